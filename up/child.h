/* child.h - one supervised process: started with its output in a log file, restarted with backoff when it ends unasked, ended by
 * TERM then KILL. Dies with its supervisor (PR_SET_PDEATHSIG). Threading: the loop's thread. */
#ifndef DEJA_UP_CHILD_H
#define DEJA_UP_CHILD_H
#include <sys/types.h>

#include "base/loop.h"

struct child;
enum { CHILD_ARGS_MAX = 40 };
struct child_options {
    const char *name;                 /* "engine" */
    const char *log_path;             /* appended to */
    const char *argv[CHILD_ARGS_MAX]; /* [0] = the program; NULL-terminated; copied */
    int held_fd; /* stays open in it: a lock lasts as long as it lives; 0 = none */
};
/* Does not start it yet. */
struct child *child_new(struct loop *l, const struct child_options *o);
/* Ends it at once if it runs. */
void child_free(struct child *c);
/* ERR_UNAVAILABLE when it cannot be started (program missing...). */
MUST enum err child_start(struct child *c, struct errmsg *e);
/* The supervisor reaped pid; true when it was this child, which then restarts itself if `again` says so and it was not asked to stop. */
bool child_ended(struct child *c, pid_t pid, int status, bool again);
void child_keep_down(struct child *c); /* if it ends, it is not started again; NULL is fine */
void child_stop(struct child *c);      /* TERM */
void child_kill(struct child *c);      /* KILL */
bool child_running(const struct child *c);
const char *child_name(const struct child *c);
int child_restarts(const struct child *c);
/* The last line of its log into out ("" when there is none). */
void child_last_words(const struct child *c, char *out, size_t cap);
/* How long to wait before start number `restarts`, after a run of ran_ms: 200 ms doubling to 5 s; a run of 10 s starts anew. Pure. */
uint64_t child_backoff_ms(int *restarts_in_a_row, uint64_t ran_ms);

#endif
