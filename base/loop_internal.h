/* loop_internal.h - for workers.c only: the post that cannot be refused for want of room. */
#ifndef DEJA_BASE_LOOP_INTERNAL_H
#define DEJA_BASE_LOOP_INTERNAL_H
#include "base/loop.h"

/* loop_post without its bound; the caller keeps one of its own. Only ERR_CLOSED can come back. */
MUST enum err loop_post_unbounded(struct loop *l, void (*fn)(void *arg), void *arg);

#endif
