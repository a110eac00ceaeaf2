/* up_plan.h - what `deja up` will start: options read and checked, folders made, ports found. Owns its strings.
 * Blocking calls (mkdir, bind, statvfs) happen here, before the loop runs. */
#ifndef DEJA_UP_UP_PLAN_H
#define DEJA_UP_UP_PLAN_H
#include "base/buf.h"
#include "base/conf.h"
#include "base/mem.h"
#include "up/child.h"

enum { UP_ENGINES_MAX = 8 };
struct up_plan {
    struct conf *conf;
    char self[512];            /* this executable */
    char data[400], logs[420]; /* folders */
    char redis_socket[420], pid_path[420];
    char host[64];
    int port, n_engines; /* n_engines 0 = no engine of our own */
    int engine_ports[UP_ENGINES_MAX];
    bool own_redis, detach;
    int lock_fd;
};
/* Reads arguments. ERR_CANCELLED: --help was asked for (text is in help). */
MUST enum err up_plan_read(struct up_plan *p, int argc, char **argv, struct buf *help,
                           struct errmsg *e);
/* Makes folders, takes the lock, checks disk, ports and files. One clear sentence on failure; nothing half-made stays. */
MUST enum err up_plan_prepare(struct up_plan *p, struct errmsg *e);
void up_plan_fini(struct up_plan *p);
/* Argument lists; strings are kept in text (whose bytes must not move: reserve through buf max before). */
enum {
    UP_REDIS,
    UP_ENGINE, /* the first of UP_ENGINES_MAX */
    UP_GATEWAY = UP_ENGINE + UP_ENGINES_MAX,
    UP_CHILDREN
};
/* False: this one is not started under this plan. */
bool up_plan_child(const struct up_plan *p, int which, struct child_options *out,
                   struct arena *text);

#endif
