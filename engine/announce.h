/* announce.h - tells others which KV blocks this engine holds: each change in the order it happened, numbered from 1 on, in a bounded
 * ring. A reader that comes late, or too late, starts from all that is held now. Knows no HTTP (server_kv.c serves it) and no tokens:
 * a block is its identity (base/prefix_hash.h). A number says nothing without the incarnation: each process has one of its own.
 * Threading: announce_change from the step thread, everything else from any; one short lock. */
#ifndef DEJA_ENGINE_ANNOUNCE_H
#define DEJA_ENGINE_ANNOUNCE_H
#include "base/hash.h"

struct announce;
enum kv_place { KV_DEVICE, KV_HOST, KV_DISK, KV_PLACES };
enum { ANNOUNCE_RING = 1 << 16 };

struct kv_change {
    struct hash128 block;
    uint8_t place; /* enum kv_place */
    bool stored;   /* else removed */
};

struct announce *announce_new(uint64_t incarnation);
void announce_free(struct announce *a); /* NULL is fine */
uint64_t announce_incarnation(const struct announce *a);
/* wake(arg) on the step thread when something has changed since the last announce_read; NULL = nobody listens. */
void announce_listen(struct announce *a, void (*wake)(void *arg), void *arg);
void announce_change(struct announce *a, enum kv_place place, bool stored, struct hash128 block);

/* Copies changes number from+1, from+2, .. into out, at most max. *from moves on. ERR_NOT_FOUND: they are no longer there, or not yet
 * (another incarnation's number): begin with announce_snapshot. */
MUST enum err announce_read(struct announce *a, uint64_t *from, struct kv_change *out, size_t max,
                            size_t *n);
/* All that is held, as stored changes, and the number they are right after. Free *out with mem_free. ERR_FULL: no memory. */
MUST enum err announce_snapshot(struct announce *a, struct kv_change **out, size_t *n,
                                uint64_t *number);

#endif
