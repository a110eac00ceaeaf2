/* u64_map.h - 64-bit keys to 64-bit values, open addressing, several values under a key. Growth is spread: the old table stays beside the
 * new one and a few places move with each change, so that no single change costs more than microseconds however many there are.
 * Owns its tables only. Threading: one thread. */
#ifndef DEJA_BASE_U64_MAP_H
#define DEJA_BASE_U64_MAP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct u64_slot {
    uint64_t key, value; /* value 0 = free, UINT64_MAX = removed: neither may be added */
};
struct u64_map {
    struct u64_slot *slots, *old; /* powers of two; a zero-initialised struct is empty */
    size_t n_slots, n_old, moved; /* of old: places already moved */
    size_t used, count;           /* used: places of slots that are not free */
};
void u64_map_fini(struct u64_map *m);
bool u64_map_add(struct u64_map *m, uint64_t key, uint64_t value); /* false: no memory */
bool u64_map_remove(struct u64_map *m, uint64_t key, uint64_t value);
/* Walks the values under a key: *at starts as SIZE_MAX; 0 ends. Nothing may be added or removed meanwhile. */
uint64_t u64_map_next(const struct u64_map *m, uint64_t key, size_t *at);
/* What place i < u64_map_places holds, 0 = nothing. */
size_t u64_map_places(const struct u64_map *m);
uint64_t u64_map_at(const struct u64_map *m, size_t i);
size_t u64_map_bytes(const struct u64_map *m);

#endif
