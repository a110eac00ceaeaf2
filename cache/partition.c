/* partition.c - table of partitions; in each a vector index and a map from its 64-bit labels to the questions. A label is the low
 * half of the entry's id; the question carries the whole id. */
#include "cache/partition.h"

#include <string.h>

#include "base/mem.h"

enum { REMOVED_MAX = 256, MAP_FIRST = 16, TABLE_BUCKETS = 8192 };

struct slot {
    uint64_t label;
    struct question *q; /* NULL = free; TOMB = was used */
};
static const struct question tomb;
#define TOMB ((struct question *)(uintptr_t)&tomb) /* compared, never written */

struct partition {
    struct partitions *table; /* NULL once forgotten */
    struct hash128 key;
    enum partition_state state;
    struct vector_index *index;
    struct slot *slots;
    size_t n_slots, used, count;         /* used counts tombs too */
    struct hash128 removed[REMOVED_MAX]; /* while loading */
    size_t n_removed;
    bool removed_overflow;
    int refs;
    struct partition *chain, *newer, *older;
};
struct partitions {
    struct partitions_options o;
    struct partition *buckets[TABLE_BUCKETS];
    struct partition *newest, *oldest;
    size_t count, entries;
};

static void free_partition(struct partition *x)
{
    for (size_t i = 0; i < x->n_slots; i++)
        if (x->slots[i].q && x->slots[i].q != TOMB) mem_free(x->slots[i].q);
    mem_free(x->slots);
    vector_index_free(x->index);
    mem_free(x);
}

struct partitions *partitions_new(const struct partitions_options *o)
{
    struct partitions *p = xcalloc(1, sizeof *p);
    p->o = *o;
    return p;
}

static struct partition **bucket_of(struct partitions *p, struct hash128 key)
{
    struct partition **at = &p->buckets[key.lo & (TABLE_BUCKETS - 1)];
    while (*at && !hash_eq((*at)->key, key))
        at = &(*at)->chain;
    return at;
}

static void unlink_use(struct partitions *p, struct partition *x)
{
    if (x->newer)
        x->newer->older = x->older;
    else
        p->newest = x->older;
    if (x->older)
        x->older->newer = x->newer;
    else
        p->oldest = x->newer;
    x->newer = x->older = NULL;
}

static void link_newest(struct partitions *p, struct partition *x)
{
    x->older = p->newest;
    if (p->newest) p->newest->newer = x;
    p->newest = x;
    if (!p->oldest) p->oldest = x;
}

static void forget(struct partitions *p, struct partition *x)
{
    struct partition **at = bucket_of(p, x->key);
    *at = x->chain;
    unlink_use(p, x);
    p->count--;
    p->entries -= x->count;
    x->table = NULL;
    if (!x->refs) free_partition(x);
}

static struct partition *make(struct partitions *p, struct hash128 key)
{
    struct vector_index_options o = {
        .kind = VECTOR_INDEX_FAISS, .dim = (int)p->o.dim, .entries_max = p->o.entries_max};
    struct vector_index *index;
    struct errmsg e = {0};
    if (vector_index_new(&index, &o, &e) != OK) {
        o.kind = VECTOR_INDEX_FLAT;
        if (vector_index_new(&index, &o, &e) != OK) return NULL;
    }
    struct partition *x = xcalloc(1, sizeof *x);
    x->table = p;
    x->key = key;
    x->index = index;
    x->n_slots = MAP_FIRST;
    x->slots = xcalloc(x->n_slots, sizeof *x->slots);
    return x;
}

struct partition *partitions_get(struct partitions *p, struct hash128 key, bool may_make)
{
    struct partition **at = bucket_of(p, key), *x = *at;
    if (x) {
        if (x != p->newest) {
            unlink_use(p, x);
            link_newest(p, x);
        }
        return x;
    }
    if (!may_make || !(x = make(p, key))) return NULL;
    if (p->count >= p->o.partitions_max && p->oldest) {
        forget(p, p->oldest);
        at = bucket_of(p, key);
    }
    *at = x;
    link_newest(p, x);
    p->count++;
    return x;
}

void partitions_forget_all(struct partitions *p)
{
    while (p->oldest)
        forget(p, p->oldest);
}

void partitions_free(struct partitions *p)
{
    if (!p) return;
    partitions_forget_all(p);
    mem_free(p);
}

bool partitions_remove_id(struct partitions *p, struct hash128 id)
{
    bool any = false;
    for (struct partition *x = p->newest; x; x = x->older)
        any = partition_remove(x, id) || any;
    return any;
}

size_t partitions_entries(const struct partitions *p)
{
    return p->entries;
}

size_t partitions_bytes(const struct partitions *p)
{
    size_t n = 0;
    for (const struct partition *x = p->newest; x; x = x->older)
        n += vector_index_bytes(x->index) + x->n_slots * sizeof *x->slots + x->count * 128;
    return n;
}

enum partition_state partition_state(const struct partition *x)
{
    return x->state;
}
bool partition_forgotten(const struct partition *x)
{
    return !x->table;
}
struct hash128 partition_key(const struct partition *x)
{
    return x->key;
}
size_t partition_count(const struct partition *x)
{
    return x->count;
}

void partition_set_state(struct partition *x, enum partition_state s)
{
    x->state = s;
    x->n_removed = 0;
    x->removed_overflow = false;
}

void partition_ref(struct partition *x)
{
    x->refs++;
}

void partition_unref(struct partition *x)
{
    ASSERT(x->refs > 0);
    if (!--x->refs && !x->table) free_partition(x);
}

/* --- the map */
static struct slot *find(const struct partition *x, uint64_t label)
{
    size_t i = (size_t)(label ^ label >> 32) & (x->n_slots - 1);
    struct slot *free_slot = NULL;
    for (;; i = (i + 1) & (x->n_slots - 1)) {
        struct slot *s = &x->slots[i];
        if (!s->q) return free_slot ? free_slot : s;
        if (s->q == TOMB)
            free_slot = free_slot ? free_slot : s;
        else if (s->label == label)
            return s;
    }
}

static bool occupied(const struct slot *s)
{
    return s->q && s->q != TOMB;
}

static bool rehash(struct partition *x)
{
    size_t n = x->count * 4 < MAP_FIRST ? MAP_FIRST : x->n_slots;
    while (n < x->count * 4)
        n *= 2;
    struct slot *old = x->slots, *slots = try_calloc(n, sizeof *slots);
    size_t n_old = x->n_slots;
    if (!slots) return false;
    x->slots = slots;
    x->n_slots = n;
    for (size_t i = 0; i < n_old; i++)
        if (occupied(&old[i])) *find(x, old[i].label) = old[i];
    x->used = x->count;
    mem_free(old);
    return true;
}

static bool was_removed(const struct partition *x, struct hash128 id)
{
    if (x->removed_overflow) return true; /* cannot tell: leave it out, the next load will know */
    for (size_t i = 0; i < x->n_removed; i++)
        if (hash_eq(x->removed[i], id)) return true;
    return false;
}

/* Room over all partitions: the least recently used other one goes. */
static bool make_room(struct partition *x)
{
    struct partitions *p = x->table;
    while (p && p->entries >= p->o.entries_max && p->oldest && p->oldest != x)
        forget(p, p->oldest);
    return !p || p->entries < p->o.entries_max;
}

enum err partition_add(struct partition *x, const struct entry *e, const float *vec, bool from_load)
{
    if (from_load && was_removed(x, e->id)) return OK;
    if (!make_room(x)) return ERR_FULL;
    if ((x->used + 1) * 2 > x->n_slots && !rehash(x)) return ERR_FULL;
    struct question *q = try_malloc(sizeof *q + e->question.n + 1);
    if (!q) return ERR_FULL;
    enum err code = vector_index_add(x->index, e->id.lo, vec);
    if (code != OK) {
        mem_free(q);
        return code;
    }
    char *text = (char *)(q + 1);
    memcpy(text, e->question.n ? e->question.p : "", e->question.n);
    *q = (struct question){
        .id = e->id, .expires_s = e->created_s + e->ttl_s, .text = {text, e->question.n}};
    struct slot *s = find(x, e->id.lo);
    if (occupied(s)) {
        mem_free(s->q);
    } else {
        x->used += s->q != TOMB;
        x->count++;
        if (x->table) x->table->entries++;
    }
    *s = (struct slot){e->id.lo, q};
    return OK;
}

bool partition_remove(struct partition *x, struct hash128 id)
{
    if (x->state == PARTITION_LOADING) {
        if (x->n_removed < REMOVED_MAX)
            x->removed[x->n_removed++] = id;
        else
            x->removed_overflow = true;
    }
    struct slot *s = find(x, id.lo);
    if (!occupied(s) || !hash_eq(s->q->id, id)) return false;
    vector_index_remove(x->index, id.lo);
    mem_free(s->q);
    s->q = TOMB;
    x->count--;
    if (x->table) x->table->entries--;
    return true;
}

const struct question *partition_question(const struct partition *x, uint64_t label)
{
    struct slot *s = find(x, label);
    return occupied(s) ? s->q : NULL;
}

size_t partition_search(struct partition *x, const float *vec, size_t k, struct vector_hit *hits)
{
    return vector_index_search(x->index, vec, k, hits, NULL, NULL);
}
