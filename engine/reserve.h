/* reserve.h - has the kernel back memory that is set aside but not yet used, piece by piece on a thread of its own: a start does not
 * wait for it, and soon after it the process is as large as it will ever be. Half of the time is left to others.
 * Threading: start and stop from one thread; the memory may be in use meanwhile. */
#ifndef DEJA_ENGINE_RESERVE_H
#define DEJA_ENGINE_RESERVE_H
#include <stdbool.h>
#include <stddef.h>

struct reserve;
/* touch backs the part-th of n_parts pieces. */
struct reserve_area {
    void (*touch)(void *arg, int part, int n_parts);
    void *arg;
    int n_parts; /* 0 = nothing to do */
};
enum { RESERVE_AREAS_MAX = 4, RESERVE_PIECE_BYTES = 4 << 20 };

/* Pieces that an area of so many bytes is cut into. */
int reserve_pieces(size_t bytes);
/* Areas are copied. NULL when no thread can be started: memory is then backed when it is first used. */
struct reserve *reserve_start(const struct reserve_area *areas, int n);
void reserve_stop(struct reserve *r); /* waits for the piece under way; NULL is fine */

#endif
