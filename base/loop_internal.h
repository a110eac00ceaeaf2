/* loop_internal.h - for files of base/: the post that cannot be refused for want of room (workers.c), and memory (wire.c). */
#ifndef DEJA_BASE_LOOP_INTERNAL_H
#define DEJA_BASE_LOOP_INTERNAL_H
#include "base/loop.h"

/* loop_post without its bound; the caller keeps one of its own. Only ERR_CLOSED can come back. */
MUST enum err loop_post_unbounded(struct loop *l, void (*fn)(void *arg), void *arg);

/* For what a callback reads; the next callback's from its end on. */
enum { LOOP_BYTES = 65536 };
char *loop_bytes(struct loop *l);

#endif
