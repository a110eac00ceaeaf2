/* log.h - one line a fact on stderr: `2026-01-31T12:00:00.123Z info  cache hit kind=exact age_s=12`.
 * Never prompt text at info. Keeps the last 50 lines in memory for a crash report. A line that stderr has no room for (a pipe whose reader
 * has stopped) is dropped and counted, the next that gets through says how many: nobody waits for a log.
 * Threading: any thread; lines never interleave. */
#ifndef DEJA_BASE_LOG_H
#define DEJA_BASE_LOG_H

#include "base/err.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Lines above level are dropped. Default LOG_INFO. */
void log_set_level(enum log_level level);
enum log_level log_level_now(void);
/* "error" "warn" "info" "debug" -> level; ERR_INVALID leaves *out alone. */
MUST enum err log_level_parse(const char *name, enum log_level *out);

/* room: "engine", "gateway"... printed first. Control characters in the line are replaced by '?'. */
void log_line(enum log_level level, const char *room, const char *fmt, ...) PRINTF_LIKE(3, 4);
#define log_error(room, ...) log_line(LOG_ERROR, room, __VA_ARGS__)
#define log_warn(room, ...) log_line(LOG_WARN, room, __VA_ARGS__)
#define log_info(room, ...) log_line(LOG_INFO, room, __VA_ARGS__)
#define log_debug(room, ...)                                                                       \
    do {                                                                                           \
        if (log_level_now() >= LOG_DEBUG) log_line(LOG_DEBUG, room, __VA_ARGS__);                  \
    } while (0)

/* A line of level info that is one JSON object: time, level and room, then members (`"a":1,"b":"x"`, without control characters, at most
 * LOG_MEMBERS_MAX bytes: ASSERTed). */
enum { LOG_MEMBERS_MAX = 3900 };
void log_json(const char *room, const char *members);

/* At most one line per second from this call site; says how many were held back. */
#define log_limited(level, room, ...)                                                              \
    do {                                                                                           \
        static struct log_site site_;                                                              \
        unsigned held_;                                                                            \
        if (log_site_open(&site_, 1000, &held_)) {                                                 \
            if (held_) log_line(level, room, "(%u like the next were held back)", held_);          \
            log_line(level, room, __VA_ARGS__);                                                    \
        }                                                                                          \
    } while (0)
struct log_site {
    _Atomic unsigned long long last_ms;
    _Atomic unsigned held;
};
/* May a line be written here, every_ms after the last one? *held, which may be NULL: how many were not, since. last_ms = 0 begins anew. */
int log_site_open(struct log_site *site, unsigned every_ms, unsigned *held);

/* Lines dropped so far because stderr had no room. */
unsigned long long log_lines_dropped(void);

/* Writes the last lines to stderr; for crashes only (takes no lock). */
void log_dump_recent(void);

#endif
