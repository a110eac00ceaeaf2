/* redis_fixture.h - for tests: a real redis-server on a unix socket in a folder of its own, and running a loop until something holds.
 * The server dies with the test. Everything is bounded in time. */
#ifndef DEJA_TESTS_REDIS_FIXTURE_H
#define DEJA_TESTS_REDIS_FIXTURE_H
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/redis.h"

struct fixture {
    char folder[64], socket[96], url[120];
    const char *extra[8]; /* more arguments, ends with NULL */
    pid_t pid;
    struct loop *loop;
};

static inline bool fixture_server_exists(void)
{
    const char *path = getenv("PATH");
    char copy[4096], *save = NULL;
    snprintf(copy, sizeof copy, "%s", path ? path : "");
    for (char *dir = strtok_r(copy, ":", &save); dir; dir = strtok_r(NULL, ":", &save)) {
        char file[4200];
        snprintf(file, sizeof file, "%s/redis-server", dir);
        if (access(file, X_OK) == 0) return true;
    }
    return false;
}

static inline bool fixture_accepts(const struct fixture *f)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    memcpy(to.sun_path, f->socket, sizeof f->socket);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
    if (fd >= 0) close(fd);
    return ok;
}

static inline void fixture_exec(struct fixture *f)
{
    const char *args[24] = {"redis-server", "--port", "0", "--unixsocket", f->socket, "--dir",
                            f->folder,      "--save", "",  "--daemonize",  "no",      "--logfile",
                            "/dev/null"};
    int n = 13;
    for (int i = 0; f->extra[i]; i++)
        args[n++] = f->extra[i];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(args[0], (char **)args);
    _exit(127);
}

/* Starts the server (again) and waits until it takes connections. */
static inline bool fixture_start(struct fixture *f)
{
    f->pid = fork();
    if (f->pid == 0) fixture_exec(f);
    for (int i = 0; i < 500; i++) {
        if (fixture_accepts(f)) return true;
        usleep(10000);
    }
    return false;
}

static inline void fixture_kill(struct fixture *f)
{
    if (f->pid <= 0) return;
    kill(f->pid, SIGKILL);
    waitpid(f->pid, NULL, 0);
    f->pid = 0;
}

static inline bool fixture_open(struct fixture *f)
{
    memcpy(f->folder, "/tmp/deja_redis_XXXXXX", 23);
    if (!mkdtemp(f->folder) || loop_new(&f->loop, NULL)) return false;
    snprintf(f->socket, sizeof f->socket, "%s/s", f->folder);
    snprintf(f->url, sizeof f->url, "unix:%s", f->socket);
    return fixture_start(f);
}

static inline void fixture_close(struct fixture *f)
{
    char command[128];
    fixture_kill(f);
    if (f->loop) loop_free(f->loop);
    snprintf(command, sizeof command, "rm -rf '%s'", f->folder);
    if (system(command)) printf("    %s stays behind\n", f->folder);
}

/* --- running a loop until holds(arg) or the time is over */
struct fixture_wait {
    struct fixture *f;
    struct loop_timer *timer;
    bool (*holds)(void *arg);
    void *arg;
    uint64_t until_ms;
    bool held;
};

static inline void fixture_look(void *arg)
{
    struct fixture_wait *w = arg;
    w->held = w->holds && w->holds(w->arg);
    if (w->held || clock_ms() >= w->until_ms)
        loop_stop(w->f->loop);
    else
        loop_timer_arm(w->timer, 1);
}

static inline bool fixture_until(struct fixture *f, bool (*holds)(void *arg), void *arg, int ms)
{
    struct fixture_wait w = {
        .f = f, .holds = holds, .arg = arg, .until_ms = clock_ms() + (uint64_t)ms};
    w.timer = loop_timer_new(f->loop, fixture_look, &w);
    loop_timer_arm(w.timer, 0);
    loop_run(f->loop);
    loop_timer_free(w.timer);
    return w.held;
}

static inline void fixture_run(struct fixture *f, int ms)
{
    fixture_until(f, NULL, NULL, ms);
}

static inline bool fixture_usable(void *arg)
{
    return redis_usable(arg);
}

#endif
