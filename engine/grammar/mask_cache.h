/* mask_cache.h - private to engine/grammar: memory blocks by key, the longest unused of which go when the bound is passed. One thread. */
#ifndef DEJA_ENGINE_GRAMMAR_MASK_CACHE_H
#define DEJA_ENGINE_GRAMMAR_MASK_CACHE_H
#include <stddef.h>
#include <stdint.h>

struct mask_cache;
struct mask_key {
    const uint32_t *word;
    int n;
};
struct mask_cache *mask_cache_new(size_t bytes_max);
void mask_cache_free(struct mask_cache *c);
/* NULL when it is not there. The block stays until the next add. */
void *mask_cache_find(struct mask_cache *c, struct mask_key key);
/* A zeroed block of this size for a key that is not there yet. Larger blocks than the whole cache are taken too, alone. */
void *mask_cache_add(struct mask_cache *c, struct mask_key key, size_t bytes);

#endif
