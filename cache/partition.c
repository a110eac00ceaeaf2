/* partition.c - table of partitions; in each a vector index and maps to the questions: from its 64-bit labels, and from texts. A label
 * is the low half of the question's id; the question carries the whole id. */
#include "cache/partition.h"

#include <string.h>

#include "base/mem.h"
#include "cache/question_map.h"

enum { REMOVED_MAX = 256, TABLE_BUCKETS = 8192, QUESTION_OVERHEAD = 16 /* the allocator's */ };

struct partition {
    struct partitions *table; /* NULL once forgotten */
    struct hash128 key;
    enum partition_state state;
    struct vector_index *index;
    struct question_map labels, texts; /* texts: by hash of the text, and by its normal form */
    size_t judged, question_bytes;
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
    for (size_t i = 0; i < x->labels.n_slots; i++)
        mem_free(question_map_at(&x->labels, i));
    question_map_fini(&x->labels);
    question_map_fini(&x->texts);
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
    p->entries -= x->labels.count;
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
        n += sizeof *x + vector_index_bytes(x->index) + question_map_bytes(&x->labels) +
             question_map_bytes(&x->texts) + x->question_bytes;
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
    if (!--x->refs && !x->table) free_partition(x);
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

static struct question *find(const struct partition *x, uint64_t label)
{
    size_t at = SIZE_MAX;
    return question_map_next(&x->labels, label, &at);
}

static void take_out(struct partition *x, struct question *q)
{
    question_map_remove(&x->labels, q->id.lo, q);
    question_map_remove(&x->texts, text_key(q->text), q);
    if (q->normal) question_map_remove(&x->texts, q->normal, q);
    x->judged -= q->judged;
    x->question_bytes -= question_bytes(q) + QUESTION_OVERHEAD;
    if (x->table) x->table->entries--;
    mem_free(q);
}

static bool put_in(struct partition *x, struct question *q)
{
    if (!question_map_add(&x->labels, q->id.lo, q)) return false;
    if (!question_map_add(&x->texts, text_key(q->text), q)) {
        question_map_remove(&x->labels, q->id.lo, q);
        return false;
    }
    if (q->normal && !question_map_add(&x->texts, q->normal, q)) {
        question_map_remove(&x->labels, q->id.lo, q);
        question_map_remove(&x->texts, text_key(q->text), q);
        return false;
    }
    x->judged += q->judged;
    x->question_bytes += question_bytes(q) + QUESTION_OVERHEAD;
    if (x->table) x->table->entries++;
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

enum err partition_add(struct partition *x, const struct question *from, const float *vec,
                       bool from_load)
{
    if (from_load && was_removed(x, from->id)) return OK;
    if (!make_room(x)) return ERR_FULL;
    struct question *q = question_copy(from);
    if (!q) return ERR_FULL;
    enum err code = vec ? vector_index_add(x->index, from->id.lo, vec) : OK;
    if (code != OK) {
        mem_free(q);
        return code;
    }
    struct question *old = find(x, from->id.lo);
    if (old) take_out(x, old);
    if (!vec) vector_index_remove(x->index, from->id.lo);
    if (put_in(x, q)) return OK;
    vector_index_remove(x->index, from->id.lo);
    mem_free(q);
    return ERR_FULL;
}

enum err partition_give_vector(struct partition *x, struct hash128 id, const float *vec)
{
    const struct question *q = find(x, id.lo);
    if (!q || !hash_eq(q->id, id)) return ERR_NOT_FOUND;
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
    vector_index_remove(x->index, id.lo);
    take_out(x, q);
    return true;
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
        q = question_map_next(&x->texts, text_key(text), &walk->at);
        if (q && str_eq(q->text, text)) return q;
        if (q) continue;
        walk->by_normal = true;
        walk->at = SIZE_MAX;
    }
    while (normal && (q = question_map_next(&x->texts, normal, &walk->at)))
        if (q->normal == normal && !str_eq(q->text, text)) return q;
    return NULL;
}

size_t partition_search(struct partition *x, const float *vec, size_t k, struct vector_hit *hits)
{
    return vector_index_search(x->index, vec, k, hits, NULL, NULL);
}
