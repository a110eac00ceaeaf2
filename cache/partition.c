/* partition.c - table of partitions; in each a vector index and maps to the questions: from its 64-bit labels, and from texts. A label
 * is the low half of the question's id; the question carries the whole id. */
#include "cache/partition.h"

#include <string.h>

#include "base/lru.h"
#include "base/mem.h"
#include "base/u64_map.h"

enum {
    REMOVED_MAX = 256,
    FULL_KEEPS = 64 /* questions that no budget takes */,
    TABLE_BUCKETS = 8192,
    QUESTION_OVERHEAD = 16, /* the allocator's */
    BURIED_AT_ONCE = 500
};

struct partition {
    struct lru_link use;
    struct partitions *owner; /* outlives it */
    bool forgotten;           /* nobody finds it there any more */
    struct hash128 key;
    enum partition_state state;
    struct vector_index *index;
    struct u64_map labels, texts; /* texts: by hash of the text, and by its normal form */
    size_t judged, question_bytes;
    struct hash128 removed[REMOVED_MAX]; /* while loading */
    size_t n_removed;
    bool removed_overflow;
    size_t hand; /* of the trimming, in labels */
    int refs;
    struct partition *chain;
};
struct partitions {
    struct partitions_options o;
    struct partition *buckets[TABLE_BUCKETS];
    struct lru uses;
    size_t count, entries;
    bool full;                /* more bytes than partitions_trim was told */
    struct partition *buried; /* forgotten, being freed */
    size_t alive;             /* partitions not freed yet */
    bool closed;
};

static uint64_t as_value(const struct question *q)
{
    return (uint64_t)(uintptr_t)q;
}

static struct question *as_question(uint64_t value)
{
    return (struct question *)(uintptr_t)value;
}

static void free_partition(struct partition *x)
{
    u64_map_fini(&x->labels);
    u64_map_fini(&x->texts);
    if (x->index) vector_index_free(x->index);
    struct partitions *p = x->owner;
    mem_free(x);
    if (!--p->alive && p->closed) mem_free(p);
}

/* Frees up to max questions of x; true when it is gone. */
static bool free_some(struct partition *x, size_t *max)
{
    for (; x->hand < u64_map_places(&x->labels); x->hand++) {
        struct question *q = as_question(u64_map_at(&x->labels, x->hand));
        if (!q) continue;
        if (!*max) return false;
        mem_free(q);
        --*max;
    }
    free_partition(x);
    return true;
}

/* Nobody finds it any more; its questions are freed bit by bit. */
static void bury(struct partition *x)
{
    struct partitions *p = x->owner;
    size_t at_once = p->closed ? SIZE_MAX : BURIED_AT_ONCE;
    x->hand = 0;
    if (free_some(x, &at_once)) return;
    x->chain = p->buried;
    p->buried = x;
}

void partitions_dig(struct partitions *p, size_t max)
{
    while (p->buried) {
        struct partition *x = p->buried, *next = x->chain;
        if (!free_some(x, &max)) return;
        p->buried = next;
    }
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

static struct partition *of(struct lru_link *use)
{
    return (struct partition *)use;
}

static void forget(struct partitions *p, struct partition *x)
{
    struct partition **at = bucket_of(p, x->key);
    *at = x->chain;
    lru_remove(&p->uses, &x->use);
    p->count--;
    p->entries -= x->labels.count;
    x->forgotten = true;
    if (!x->refs) bury(x);
}

static struct partition *make(struct partitions *p, struct hash128 key)
{
    struct vector_index_options o = {
        .kind = VECTOR_INDEX_SCAN, .dim = (int)p->o.dim, .entries_max = p->o.entries_max};
    struct vector_index *index = NULL;
    struct errmsg e = {0};
    if (p->o.dim && vector_index_new(&index, &o, &e) != OK) return NULL;
    struct partition *x = xcalloc(1, sizeof *x);
    x->owner = p;
    p->alive++;
    x->key = key;
    x->index = index;
    return x;
}

struct partition *partitions_get(struct partitions *p, struct hash128 key, bool may_make)
{
    struct partition **at = bucket_of(p, key), *x = *at;
    if (x) {
        if (&x->use != p->uses.newest) {
            lru_remove(&p->uses, &x->use);
            lru_push(&p->uses, &x->use);
        }
        return x;
    }
    if (!may_make || !(x = make(p, key))) return NULL;
    if (p->count >= p->o.partitions_max && p->uses.oldest) {
        forget(p, of(p->uses.oldest));
        at = bucket_of(p, key);
    }
    *at = x;
    lru_push(&p->uses, &x->use);
    p->count++;
    return x;
}

void partitions_forget_all(struct partitions *p)
{
    while (p->uses.oldest)
        forget(p, of(p->uses.oldest));
}

void partitions_free(struct partitions *p)
{
    if (!p) return;
    partitions_forget_all(p);
    partitions_dig(p, SIZE_MAX);
    p->closed = true;
    if (!p->alive) mem_free(p);
}

bool partitions_remove_id(struct partitions *p, struct hash128 id)
{
    bool any = false;
    for (struct partition *x = of(p->uses.newest); x; x = of(x->use.older))
        any = partition_remove(x, id) || any;
    return any;
}

size_t partitions_entries(const struct partitions *p)
{
    return p->entries;
}

static size_t bytes_of(const struct partition *x)
{
    return sizeof *x + (x->index ? vector_index_bytes(x->index) : 0) + u64_map_bytes(&x->labels) +
           u64_map_bytes(&x->texts) + x->question_bytes;
}

static size_t live_bytes_of(const struct partition *x)
{
    size_t index = x->index ? vector_index_bytes(x->index) - vector_index_live_bytes(x->index) : 0;
    return bytes_of(x) - index;
}

size_t partitions_bytes(const struct partitions *p)
{
    size_t n = 0;
    for (const struct partition *x = of(p->uses.newest); x; x = of(x->use.older))
        n += bytes_of(x);
    return n;
}

enum partition_state partition_state(const struct partition *x)
{
    return x->state;
}
bool partition_forgotten(const struct partition *x)
{
    return x->forgotten;
}
struct hash128 partition_key(const struct partition *x)
{
    return x->key;
}
size_t partition_count(const struct partition *x)
{
    return x->labels.count;
}
size_t partition_judged(const struct partition *x)
{
    return x->judged;
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
    if (!--x->refs && x->forgotten) bury(x);
}

/* --- questions */
static size_t question_bytes(const struct question *q)
{
    return sizeof *q + q->n_vetoed * sizeof *q->vetoed + q->text.n + q->scope.tags.n + 1;
}

static struct question *question_copy(const struct question *from)
{
    struct question *q = try_malloc(question_bytes(from));
    if (!q) return NULL;
    *q = *from;
    char *at = (char *)(q + 1);
    size_t n = from->n_vetoed * sizeof *from->vetoed;
    if (n) memcpy(at, from->vetoed, n);
    q->vetoed = (const struct hash128 *)(const void *)at;
    at += n;
    if (from->text.n) memcpy(at, from->text.p, from->text.n);
    q->text.p = at;
    at += from->text.n;
    if (from->scope.tags.n) memcpy(at, from->scope.tags.p, from->scope.tags.n);
    q->scope.tags.p = at;
    return q;
}

static uint64_t text_key(struct str text)
{
    return hash_bytes(0x74657874, text).lo;
}

static void drop_vector(struct partition *x, uint64_t label)
{
    if (x->index) vector_index_remove(x->index, label);
}

static struct question *find(const struct partition *x, uint64_t label)
{
    size_t at = SIZE_MAX;
    return as_question(u64_map_next(&x->labels, label, &at));
}

static void take_out(struct partition *x, struct question *q)
{
    u64_map_remove(&x->labels, q->id.lo, as_value(q));
    u64_map_remove(&x->texts, text_key(q->text), as_value(q));
    if (q->normal) u64_map_remove(&x->texts, q->normal, as_value(q));
    x->judged -= q->judged;
    x->question_bytes -= question_bytes(q) + QUESTION_OVERHEAD;
    if (!x->forgotten) x->owner->entries--;
    mem_free(q);
}

static bool put_in(struct partition *x, struct question *q)
{
    if (!u64_map_add(&x->labels, q->id.lo, as_value(q))) return false;
    if (!u64_map_add(&x->texts, text_key(q->text), as_value(q))) {
        u64_map_remove(&x->labels, q->id.lo, as_value(q));
        return false;
    }
    if (q->normal && !u64_map_add(&x->texts, q->normal, as_value(q))) {
        u64_map_remove(&x->labels, q->id.lo, as_value(q));
        u64_map_remove(&x->texts, text_key(q->text), as_value(q));
        return false;
    }
    x->judged += q->judged;
    x->question_bytes += question_bytes(q) + QUESTION_OVERHEAD;
    if (!x->forgotten) x->owner->entries++;
    return true;
}

static bool was_removed(const struct partition *x, struct hash128 id)
{
    if (x->removed_overflow) return true; /* cannot tell: leave it out, the next load will know */
    for (size_t i = 0; i < x->n_removed; i++)
        if (hash_eq(x->removed[i], id)) return true;
    return false;
}

/* What a question takes when it is there; what the index keeps for others after a removal is used again by those. */
static size_t bytes_each(const struct partition *x)
{
    return x->labels.count ? live_bytes_of(x) / x->labels.count : 0;
}

/* Questions nobody was served since the hand last came by. */
static size_t trim_one(struct partition *x, size_t excess, size_t max)
{
    size_t gone = 0, seen = 0, each = bytes_each(x);
    while (gone * each < excess && gone < max && seen++ < 2 * u64_map_places(&x->labels)) {
        if (x->hand >= u64_map_places(&x->labels)) x->hand = 0;
        struct question *q = as_question(u64_map_at(&x->labels, x->hand++));
        if (!q || q->judged || q->trust >= TRUST_OPERATOR) continue;
        if (q->used)
            q->used = false;
        else
            gone += partition_remove(x, q->id);
    }
    return gone * each;
}

void partitions_trim(struct partitions *p, size_t bytes_max, size_t max)
{
    size_t bytes = 0;
    for (const struct partition *x = of(p->uses.newest); x; x = of(x->use.older))
        bytes += live_bytes_of(x);
    while (bytes > bytes_max && p->uses.oldest && p->uses.oldest != p->uses.newest) {
        bytes -= live_bytes_of(of(p->uses.oldest));
        forget(p, of(p->uses.oldest));
    }
    p->full = bytes > bytes_max;
    if (p->full) trim_one(of(p->uses.newest), bytes - bytes_max, max);
}

/* Room over all partitions: the least recently used other one goes. */
static bool make_room(struct partition *x)
{
    struct partitions *p = x->forgotten ? NULL : x->owner;
    if (p && p->full && x->labels.count > FULL_KEEPS) trim_one(x, 1, 1);
    while (p && p->entries >= p->o.entries_max && p->uses.oldest && p->uses.oldest != &x->use)
        forget(p, of(p->uses.oldest));
    return !p || p->entries < p->o.entries_max;
}

enum err partition_add(struct partition *x, const struct question *from, const float *vec,
                       bool from_load)
{
    if (from_load && was_removed(x, from->id)) return OK;
    if (!make_room(x)) return ERR_FULL;
    struct question *q = question_copy(from);
    if (!q) return ERR_FULL;
    enum err code = vec && x->index ? vector_index_add(x->index, from->id.lo, vec) : OK;
    if (code != OK) {
        mem_free(q);
        return code;
    }
    struct question *old = find(x, from->id.lo);
    if (old) take_out(x, old);
    if (!vec) drop_vector(x, from->id.lo);
    if (put_in(x, q)) return OK;
    drop_vector(x, from->id.lo);
    mem_free(q);
    return ERR_FULL;
}

enum err partition_give_vector(struct partition *x, struct hash128 id, const float *vec)
{
    const struct question *q = find(x, id.lo);
    if (!q || !x->index || !hash_eq(q->id, id)) return ERR_NOT_FOUND;
    return vector_index_add(x->index, id.lo, vec);
}

bool partition_remove(struct partition *x, struct hash128 id)
{
    if (x->state == PARTITION_LOADING) {
        if (x->n_removed < REMOVED_MAX)
            x->removed[x->n_removed++] = id;
        else
            x->removed_overflow = true;
    }
    struct question *q = find(x, id.lo);
    if (!q || !hash_eq(q->id, id)) return false;
    drop_vector(x, id.lo);
    take_out(x, q);
    return true;
}

void partition_touch(struct partition *x, struct hash128 entry)
{
    struct question *q = find(x, entry.lo);
    if (q && hash_eq(q->id, entry)) q->used = true;
}

const struct question *partition_question(const struct partition *x, uint64_t label)
{
    return find(x, label);
}

const struct question *partition_entry(const struct partition *x, struct hash128 entry)
{
    const struct question *q = find(x, entry.lo);
    return q && !q->judged && hash_eq(q->id, entry) ? q : NULL;
}

const struct question *partition_same_text(const struct partition *x, struct str text,
                                           uint64_t normal, struct partition_walk *walk)
{
    const struct question *q;
    if (!walk->begun) *walk = (struct partition_walk){.at = SIZE_MAX, .begun = true};
    while (!walk->by_normal) {
        q = as_question(u64_map_next(&x->texts, text_key(text), &walk->at));
        if (q && str_eq(q->text, text)) return q;
        if (q) continue;
        walk->by_normal = true;
        walk->at = SIZE_MAX;
    }
    while (normal && (q = as_question(u64_map_next(&x->texts, normal, &walk->at))))
        if (q->normal == normal && !str_eq(q->text, text)) return q;
    return NULL;
}

size_t partition_search(struct partition *x, const float *vec, size_t k, struct vector_hit *hits)
{
    return !x->index ? 0 : vector_index_search(x->index, vec, k, hits);
}

void partition_search_many(struct partition *x, struct vector_query *queries, size_t n)
{
    for (size_t i = 0; i < n; i++)
        queries[i].n = 0;
    if (x->index) vector_index_search_many(x->index, queries, n);
}
