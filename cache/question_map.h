/* question_map.h - many questions under a 64-bit key: open addressing, equal keys allowed. Owns nothing it points to. Used by
 * cache/partition.c: by label, by text. Threading: one thread. */
#ifndef DEJA_CACHE_QUESTION_MAP_H
#define DEJA_CACHE_QUESTION_MAP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct question;
struct question_slot {
    uint64_t key;
    struct question *q; /* NULL = free */
};
struct question_map {
    struct question_slot *slots; /* a power of two; zero-initialised struct = empty */
    size_t n_slots, used, count; /* used counts removed places too */
};
void question_map_fini(struct question_map *m);
bool question_map_add(struct question_map *m, uint64_t key,
                      struct question *q); /* false: no memory */
bool question_map_remove(struct question_map *m, uint64_t key, const struct question *q);
/* Walks the questions under a key: *at starts as SIZE_MAX. NULL ends. Nothing may be added or removed meanwhile. */
struct question *question_map_next(const struct question_map *m, uint64_t key, size_t *at);
/* What place i < n_slots holds, NULL = nothing. */
struct question *question_map_at(const struct question_map *m, size_t i);
size_t question_map_bytes(const struct question_map *m);

#endif
