/* child.c - fork, exec, backoff. See child.h. */
#define _GNU_SOURCE
#include "up/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

struct child {
    struct loop *loop;
    char *name, *log_path, *argv[CHILD_ARGS_MAX];
    int held_fd; /* 0 = none */
    pid_t pid;   /* 0 = not running */
    bool stopping;
    int restarts, in_a_row;
    uint64_t started_ms;
    struct loop_timer *again;
};

uint64_t child_backoff_ms(int *in_a_row, uint64_t ran_ms)
{
    if (ran_ms >= 10000) *in_a_row = 0;
    int shift = *in_a_row < 5 ? *in_a_row : 5;
    (*in_a_row)++;
    uint64_t wait = 200u << shift;
    return wait < 5000 ? wait : 5000;
}

static void start_again(void *arg)
{
    struct child *c = arg;
    struct errmsg e = {0};
    if (c->stopping || c->pid) return;
    c->restarts++;
    if (!child_start(c, &e)) return;
    log_error("up", "%s", e.text);
    loop_timer_arm(c->again, child_backoff_ms(&c->in_a_row, 0));
}

struct child *child_new(struct loop *l, const struct child_options *o)
{
    struct child *c = xcalloc(1, sizeof *c);
    c->loop = l;
    c->name = xstrdup(o->name);
    c->log_path = xstrdup(o->log_path);
    c->held_fd = o->held_fd;
    for (int i = 0; i < CHILD_ARGS_MAX - 1 && o->argv[i]; i++)
        c->argv[i] = xstrdup(o->argv[i]);
    c->again = loop_timer_new(l, start_again, c);
    return c;
}

void child_free(struct child *c)
{
    if (!c) return;
    child_kill(c);
    if (c->pid) waitpid(c->pid, NULL, 0);
    loop_timer_free(c->again);
    for (int i = 0; i < CHILD_ARGS_MAX; i++)
        mem_free(c->argv[i]);
    mem_free(c->name);
    mem_free(c->log_path);
    mem_free(c);
}

/* In the new process: never returns. Reports why through fd. */
static _Noreturn void become(struct child *c, pid_t parent, int fd)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int log = open(c->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600),
        null = open("/dev/null", O_RDWR);
    if (log < 0) log = null; /* its folder is gone or full: better without words than not at all */
    if (getppid() == parent && null >= 0) {
        dup2(null, 0);
        dup2(log, 1);
        dup2(log, 2);
        if (c->held_fd) (void)fcntl(c->held_fd, F_SETFD, 0);
        setpgid(0, 0); /* Ctrl-C reaches the supervisor only, which ends its children in order */
        execvp(c->argv[0], c->argv);
    }
    int why = errno;
    ssize_t n = write(fd, &why, sizeof why);
    _exit(n == (ssize_t)sizeof why ? 127 : 126);
}

enum err child_start(struct child *c, struct errmsg *e)
{
    int fds[2], why = 0;
    if (pipe2(fds, O_CLOEXEC))
        return err_set(e, ERR_UNAVAILABLE, "cannot start %s: %s", c->name, strerror(errno));
    pid_t parent = getpid(), pid = fork();
    if (!pid) become(c, parent, fds[1]);
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return err_set(e, ERR_UNAVAILABLE, "cannot start %s: %s", c->name, strerror(errno));
    }
    ssize_t n = read(fds[0], &why, sizeof why); /* end of file once exec has succeeded */
    close(fds[0]);
    if (n == (ssize_t)sizeof why) {
        waitpid(pid, NULL, 0);
        return err_set(e, ERR_UNAVAILABLE, "cannot start %s (%s): %s", c->name, c->argv[0],
                       strerror(why));
    }
    c->pid = pid;
    c->started_ms = clock_ms();
    c->stopping = false;
    return OK;
}

bool child_ended(struct child *c, pid_t pid, int status, bool again)
{
    if (!c || !c->pid || c->pid != pid) return false;
    c->pid = 0;
    if (c->stopping || !again) return true;
    uint64_t wait_ms = child_backoff_ms(&c->in_a_row, clock_ms() - c->started_ms);
    if (WIFSIGNALED(status))
        log_warn("up", "%s was ended by signal %d; starting it again in %d ms", c->name,
                 WTERMSIG(status), (int)wait_ms);
    else
        log_warn("up", "%s ended with status %d; starting it again in %d ms", c->name,
                 WEXITSTATUS(status), (int)wait_ms);
    loop_timer_arm(c->again, wait_ms);
    return true;
}

void child_keep_down(struct child *c)
{
    if (!c) return;
    c->stopping = true;
    loop_timer_stop(c->again);
}

void child_stop(struct child *c)
{
    child_keep_down(c);
    if (c && c->pid) kill(c->pid, SIGTERM);
}

void child_kill(struct child *c)
{
    child_keep_down(c);
    if (c && c->pid) kill(c->pid, SIGKILL);
}

bool child_running(const struct child *c)
{
    return c && c->pid;
}
const char *child_name(const struct child *c)
{
    return c->name;
}
int child_restarts(const struct child *c)
{
    return c->restarts;
}

void child_last_words(const struct child *c, char *out, size_t cap)
{
    char tail[1024];
    out[0] = 0;
    int fd = open(c->log_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    off_t end = lseek(fd, 0, SEEK_END);
    off_t from = end > (off_t)sizeof tail ? end - (off_t)sizeof tail : 0;
    ssize_t n = pread(fd, tail, sizeof tail, from);
    close(fd);
    if (n <= 0) return;
    struct str s = str_trim((struct str){tail, (size_t)n}), line = s;
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '\n') line = str_sub(s, i + 1, s.n);
    snprintf(out, cap, STR_FMT, STR_ARG(line));
}
