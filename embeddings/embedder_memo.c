/* embedder_memo.c - hash table with chains, entries threaded on a list by last use. See embedder_memo.h. */
#include "embeddings/embedder_memo.h"

#include <string.h>

#include "base/hash.h"
#include "base/lru.h"
#include "base/mem.h"
#include "base/rng.h"

struct entry {
    struct lru_link use;
    struct entry *chain; /* next in the bucket */
    uint64_t hash;
    size_t n;
    char *text;  /* [n] */
    void *bytes; /* what was computed */
    size_t n_bytes;
};

struct embedder_memo {
    int entries_max, n_entries;
    size_t entry_bytes;
    uint64_t seed;    /* texts come from outside: nobody may aim at one bucket */
    size_t n_buckets; /* power of two */
    struct entry **buckets;
    struct lru uses;
};

struct embedder_memo *embedder_memo_new(int entries_max)
{
    ASSERT(entries_max >= 0);
    struct embedder_memo *m = xcalloc(1, sizeof *m);
    m->entries_max = entries_max;
    m->seed = rng_entropy();
    for (m->n_buckets = 16; m->n_buckets < (size_t)entries_max; m->n_buckets *= 2)
        continue;
    m->buckets = xcalloc(m->n_buckets, sizeof *m->buckets);
    return m;
}

static void entry_free(struct entry *x)
{
    mem_free(x->text);
    mem_free(x->bytes);
    mem_free(x);
}

void embedder_memo_free(struct embedder_memo *m)
{
    if (!m) return;
    while (m->uses.newest) {
        struct lru_link *x = m->uses.newest;
        lru_remove(&m->uses, x);
        entry_free((struct entry *)x);
    }
    mem_free(m->buckets);
    mem_free(m);
}

static struct entry *find(const struct embedder_memo *m, struct str text, uint64_t hash)
{
    struct entry *x = m->buckets[hash & (m->n_buckets - 1)];
    while (x && !(x->hash == hash && str_eq((struct str){x->text, x->n}, text)))
        x = x->chain;
    return x;
}

const void *embedder_memo_get(struct embedder_memo *m, struct str text)
{
    if (!m->n_entries || text.n > EMBEDDER_MEMO_TEXT_MAX) return NULL;
    struct entry *x = find(m, text, hash_bytes(m->seed, text).lo);
    if (!x) return NULL;
    lru_remove(&m->uses, &x->use);
    lru_push(&m->uses, &x->use);
    return x->bytes;
}

static size_t held(const struct entry *x)
{
    return sizeof *x + x->n + 1 + x->n_bytes + 48; /* 48: the allocator's, for three blocks */
}

static void drop_oldest(struct embedder_memo *m)
{
    struct entry *x = (struct entry *)m->uses.oldest,
                 **at = &m->buckets[x->hash & (m->n_buckets - 1)];
    while (*at != x)
        at = &(*at)->chain;
    *at = x->chain;
    lru_remove(&m->uses, &x->use);
    m->entry_bytes -= held(x);
    entry_free(x);
    m->n_entries--;
}

void embedder_memo_put(struct embedder_memo *m, struct str text, const void *bytes, size_t n_bytes)
{
    if (!m->entries_max || text.n > EMBEDDER_MEMO_TEXT_MAX) return;
    uint64_t hash = hash_bytes(m->seed, text).lo;
    if (find(m, text, hash)) return;
    if (m->n_entries == m->entries_max) drop_oldest(m);
    struct entry *x = xcalloc(1, sizeof *x), **bucket = &m->buckets[hash & (m->n_buckets - 1)];
    x->hash = hash;
    x->n = text.n;
    x->text = xstrndup(text.p ? text.p : "", text.n);
    x->bytes = xmalloc(n_bytes);
    memcpy(x->bytes, bytes, n_bytes);
    x->chain = *bucket;
    *bucket = x;
    lru_push(&m->uses, &x->use);
    x->n_bytes = n_bytes;
    m->entry_bytes += held(x);
    m->n_entries++;
}

int embedder_memo_entries(const struct embedder_memo *m)
{
    return m->n_entries;
}

size_t embedder_memo_bytes(const struct embedder_memo *m)
{
    return sizeof *m + m->n_buckets * sizeof *m->buckets + m->entry_bytes;
}
