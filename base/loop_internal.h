/* loop_internal.h - for files of base/: memory of the loop's (wire.c). */
#ifndef DEJA_BASE_LOOP_INTERNAL_H
#define DEJA_BASE_LOOP_INTERNAL_H
#include "base/loop.h"

/* For what a callback reads; the next callback's from its end on. */
enum { LOOP_BYTES = 65536 };
char *loop_bytes(struct loop *l);

#endif
