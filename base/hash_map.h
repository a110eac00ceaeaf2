/* hash_map.h - entries of one size by their 128-bit hashes, side by side in no order: entry i < n is at entries + i * each and begins with
 * its hash. Grows as needed; running out of memory ends the process, so its owner bounds n. Threading: its owner's. */
#ifndef DEJA_BASE_HASH_MAP_H
#define DEJA_BASE_HASH_MAP_H
#include "base/hash_slots.h"

struct hash_map {
    struct hash_slots slots;
    char *entries;
    size_t each, n, cap;
};

/* each: bytes of an entry, a struct that begins with a struct hash128. n: how many there is room for without growing, at least 1. */
void hash_map_init(struct hash_map *m, size_t each, size_t n);
void hash_map_fini(struct hash_map *m);
/* NULL: none. Good until an entry is added or removed. */
void *hash_map_find(const struct hash_map *m, struct hash128 hash);
/* The entry of hash; a new one is zero but for its hash. Good as above. */
void *hash_map_add(struct hash_map *m, struct hash128 hash);
/* entry is one of m's; the last one takes its place. */
void hash_map_remove(struct hash_map *m, void *entry);

#endif
