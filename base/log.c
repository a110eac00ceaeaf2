/* log.c - formats a line once, writes it with one write(2), remembers the last 50. */
#include "base/log.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { LINE_BYTES = 4096, RECENT_LINES = 50 };
static char recent[RECENT_LINES][LINE_BYTES];
static unsigned recent_next;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long long dropped_told; /* under the lock */
static _Atomic unsigned long long dropped;
static _Atomic int level_now = LOG_INFO;
static const char *const level_names[] = {"error", "warn", "info", "debug"};

void log_set_level(enum log_level level)
{
    atomic_store(&level_now, (int)level);
}
enum log_level log_level_now(void)
{
    return (enum log_level)atomic_load(&level_now);
}

enum err log_level_parse(const char *name, enum log_level *out)
{
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, level_names[i])) continue;
        *out = (enum log_level)i;
        return OK;
    }
    return ERR_INVALID;
}

static size_t stamp(char *out, size_t cap)
{
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t n = strftime(out, cap, "%Y-%m-%dT%H:%M:%S", &tm);
    return n + (size_t)snprintf(out + n, cap - n, ".%03ldZ ", now.tv_nsec / 1000000);
}

/* A pipe that can be written has room for PIPE_BUF bytes, 4096: a line never waits. */
static bool has_room(void)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) != 0;
}

/* Under the lock. */
static void write_line(const char *line, size_t n)
{
    unsigned long long missing = atomic_load(&dropped) - dropped_told;
    if (missing && has_room()) {
        char note[128];
        size_t at = stamp(note, sizeof note);
        at += (size_t)snprintf(note + at, sizeof note - at,
                               "warn  log %llu lines were dropped, stderr was not read\n", missing);
        ssize_t told = write(STDERR_FILENO, note, at);
        if (told > 0) dropped_told += missing;
    }
    if (!has_room()) {
        atomic_fetch_add(&dropped, 1);
        return;
    }
    ssize_t done = write(STDERR_FILENO, line, n);
    (void)done; /* a closed stderr must not end the server */
}

unsigned long long log_lines_dropped(void)
{
    return atomic_load(&dropped);
}

/* Ends the line of n bytes (room for two more), remembers and writes it. */
static void put(char *line, size_t n)
{
    line[n] = '\n';
    line[n + 1] = 0;
    pthread_mutex_lock(&lock);
    memcpy(recent[recent_next++ % RECENT_LINES], line, n + 2);
    write_line(line, n + 1);
    pthread_mutex_unlock(&lock);
}

void log_line(enum log_level level, const char *room, const char *fmt, ...)
{
    if (level > log_level_now()) return;
    char line[LINE_BYTES];
    size_t n = stamp(line, sizeof line);
    n += (size_t)snprintf(line + n, sizeof line - n, "%-5s %s ", level_names[level], room);
    va_list ap;
    va_start(ap, fmt);
    int more = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
    va_end(ap);
    if (more > 0) n += (size_t)more;
    if (n > sizeof line - 2) n = sizeof line - 2;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7F) line[i] = '?';
    put(line, n);
}

void log_json(const char *room, const char *members)
{
    if (LOG_INFO > log_level_now()) return;
    char line[LINE_BYTES], time[40];
    size_t n = stamp(time, sizeof time), more = strlen(members);
    ASSERT(more <= LOG_MEMBERS_MAX);
    time[n - 1] = 0; /* the space after it */
    n = (size_t)snprintf(line, sizeof line, "{\"time\":\"%s\",\"level\":\"info\",\"room\":\"%s\",",
                         time, room);
    ASSERT(n + more + 3 <= sizeof line);
    memcpy(line + n, members, more);
    n += more;
    line[n++] = '}';
    put(line, n);
}

int log_site_open(struct log_site *site, unsigned every_ms, unsigned *held)
{
    unsigned long long now = clock_ms(), last = atomic_load(&site->last_ms);
    if (last && now - last < every_ms) {
        atomic_fetch_add(&site->held, 1);
        return 0;
    }
    if (!atomic_compare_exchange_strong(&site->last_ms, &last, now ? now : 1)) return 0;
    unsigned n = atomic_exchange(&site->held, 0);
    if (held) *held = n;
    return 1;
}

void log_dump_recent(void)
{
    for (unsigned i = 0; i < RECENT_LINES; i++) {
        const char *line = recent[(recent_next + i) % RECENT_LINES];
        size_t n = strnlen(line, LINE_BYTES);
        if (n && write(STDERR_FILENO, line, n) < 0) return;
    }
}
