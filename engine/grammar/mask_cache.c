/* mask_cache.c - see mask_cache.h. Chains in a table of fixed size; a list from the last used to the longest unused. */
#include "engine/grammar/mask_cache.h"

#include <string.h>

#include "base/hash.h"
#include "base/lru.h"
#include "base/mem.h"

enum { SLOTS = 4096 };

struct block {
    struct lru_link use;
    struct block *chain;
    size_t bytes; /* of everything */
    uint32_t slot;
    int n_key;
    uint32_t *key;
    void *content;
};
struct mask_cache {
    struct block *slot[SLOTS];
    struct lru uses;
    size_t bytes, bytes_max;
};

struct mask_cache *mask_cache_new(size_t bytes_max)
{
    struct mask_cache *c = xcalloc(1, sizeof *c);
    c->bytes_max = bytes_max;
    return c;
}

static void drop(struct mask_cache *c, struct block *b)
{
    struct block **link = &c->slot[b->slot];
    while (*link != b)
        link = &(*link)->chain;
    *link = b->chain;
    lru_remove(&c->uses, &b->use);
    c->bytes -= b->bytes;
    mem_free(b);
}

void mask_cache_free(struct mask_cache *c)
{
    if (!c) return;
    while (c->uses.oldest)
        drop(c, (struct block *)c->uses.oldest);
    mem_free(c);
}

static uint32_t slot_of(struct mask_key key)
{
    struct str bytes = {(const char *)key.word, (size_t)key.n * sizeof *key.word};
    return (uint32_t)hash_bytes(0x6d61736b, bytes).lo & (SLOTS - 1);
}

void *mask_cache_find(struct mask_cache *c, struct mask_key key)
{
    for (struct block *b = c->slot[slot_of(key)]; b; b = b->chain) {
        if (b->n_key != key.n || memcmp(b->key, key.word, (size_t)key.n * sizeof *key.word) != 0)
            continue;
        lru_remove(&c->uses, &b->use);
        lru_push(&c->uses, &b->use);
        return b->content;
    }
    return NULL;
}

static size_t padded(size_t n)
{
    return (n + 15) & ~(size_t)15;
}

void *mask_cache_add(struct mask_cache *c, struct mask_key key, size_t bytes)
{
    size_t key_bytes = (size_t)key.n * sizeof *key.word;
    size_t head = padded(sizeof(struct block) + key_bytes), all = head + bytes;
    while (c->uses.oldest && c->bytes + all > c->bytes_max)
        drop(c, (struct block *)c->uses.oldest);
    struct block *b = xcalloc(1, all);
    b->bytes = all;
    b->slot = slot_of(key);
    b->n_key = key.n;
    b->key = (uint32_t *)(b + 1);
    memcpy(b->key, key.word, key_bytes);
    b->content = (char *)b + head;
    b->chain = c->slot[b->slot];
    c->slot[b->slot] = b;
    lru_push(&c->uses, &b->use);
    c->bytes += all;
    return b->content;
}
