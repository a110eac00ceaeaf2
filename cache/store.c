/* store.c - hash map with chaining in an array that doubles; a heap of what would go first; a list of what Redis has not got. A use only
 * raises an entry's rank, so the heap learns of it when the entry comes to its top. */
#include "cache/store.h"

#include <string.h>

#include "base/lru.h"
#include "base/mem.h"
#include "cache/worth.h"

enum {
    SEEN_ONCE = 2 /* put, and got once */,
    BUCKETS_FIRST = 1024,
    NODE_BYTES = 176 /* node, bucket, heap, the allocator's own */
};

/* Order of going: among equals of a class the one of less rank, then the one used earlier. */
enum class { SAVED, UNSAVED, PINNED };
struct standing {
    enum class class;
    double rank;
    uint64_t used; /* number of the use */
};
struct node {
    struct lru_link unsaved_use; /* among the unsaved */
    struct entry *e;
    struct served *served; /* NULL = not kept */
    struct node *chain;
    struct standing now, in_heap;
    double clock; /* at the last use */
    size_t heap_at;
    uint32_t uses;
    bool unsaved;
};
struct store {
    struct node **buckets, **heap;
    size_t n_buckets, count, heap_room, bytes, bytes_max;
    struct lru unsaved;
    double clock; /* rank of the last one pushed out */
    uint64_t uses;
    void (*gone)(void *arg, const struct entry *e);
    void *arg;
};

struct store *store_new(size_t bytes_max, void (*gone)(void *arg, const struct entry *e), void *arg)
{
    struct store *s = xcalloc(1, sizeof *s);
    s->n_buckets = BUCKETS_FIRST;
    s->buckets = xcalloc(s->n_buckets, sizeof *s->buckets);
    s->bytes_max = bytes_max;
    s->gone = gone;
    s->arg = arg;
    return s;
}

static struct node **find(const struct store *s, struct hash128 id)
{
    struct node **at = &s->buckets[id.lo & (s->n_buckets - 1)];
    while (*at && !hash_eq((*at)->e->id, id))
        at = &(*at)->chain;
    return at;
}

/* --- the heap */
static bool before(const struct node *a, const struct node *b)
{
    const struct standing *x = &a->in_heap, *y = &b->in_heap;
    if (x->class != y->class) return x->class < y->class;
    return x->rank != y->rank ? x->rank < y->rank : x->used < y->used;
}

static void place(struct store *s, size_t i, struct node *n)
{
    s->heap[i] = n;
    n->heap_at = i;
}

static void sift_up(struct store *s, struct node *n)
{
    size_t i = n->heap_at;
    for (; i && before(n, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        place(s, i, s->heap[(i - 1) / 2]);
    place(s, i, n);
}

static void sift_down(struct store *s, struct node *n)
{
    size_t i = n->heap_at;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->count) break;
        if (child + 1 < s->count && before(s->heap[child + 1], s->heap[child])) child++;
        if (!before(s->heap[child], n)) break;
        place(s, i, s->heap[child]);
        i = child;
    }
    place(s, i, n);
}

static bool heap_add(struct store *s, struct node *n)
{
    if (s->count == s->heap_room) {
        size_t room = s->heap_room ? 2 * s->heap_room : 256;
        struct node **bigger = try_realloc(s->heap, room * sizeof *bigger);
        if (!bigger) return false;
        s->heap = bigger;
        s->heap_room = room;
    }
    n->heap_at = s->count++;
    n->in_heap = n->now;
    sift_up(s, n);
    return true;
}

static void heap_remove(struct store *s, const struct node *n)
{
    struct node *last = s->heap[--s->count];
    if (last == n) return;
    last->heap_at = n->heap_at;
    sift_up(s, last);
    sift_down(s, last);
}

/* --- what Redis has not got, oldest first */
static void unlink_unsaved(struct store *s, struct node *n)
{
    if (!n->unsaved) return;
    n->unsaved = false;
    lru_remove(&s->unsaved, &n->unsaved_use);
}

static void link_unsaved(struct store *s, struct node *n)
{
    n->unsaved = true;
    lru_push(&s->unsaved, &n->unsaved_use);
}

/* --- standing */
static size_t bytes_of(const struct node *n)
{
    return n->e->bytes + NODE_BYTES + (n->served ? n->served->bytes : 0);
}

static void stand_as_of(struct node *n, double clock, uint64_t used)
{
    double saved = worth_saved(n->e->prompt_tokens + n->e->completion_tokens, n->e->latency_ms);
    n->now = (struct standing){.class = n->e->pinned ? PINNED
                                        : n->unsaved ? UNSAVED
                                                     : SAVED,
                               .rank = worth_rank(clock, n->uses, saved, bytes_of(n)),
                               .used = used};
    n->clock = clock;
}

static void stand(struct store *s, struct node *n)
{
    stand_as_of(n, s->clock, ++s->uses);
}

static void drop(struct store *s, struct node **at)
{
    struct node *n = *at;
    *at = n->chain;
    unlink_unsaved(s, n);
    heap_remove(s, n);
    s->bytes -= bytes_of(n);
    served_unref(n->served);
    entry_free(n->e);
    mem_free(n);
}

static void grow(struct store *s)
{
    struct node **bigger = try_calloc(s->n_buckets * 2, sizeof *bigger);
    if (!bigger) return; /* longer chains, still right */
    for (size_t i = 0; i < s->n_buckets; i++)
        for (struct node *n = s->buckets[i], *next; n; n = next) {
            next = n->chain;
            struct node **to = &bigger[n->e->id.lo & (s->n_buckets * 2 - 1)];
            n->chain = *to;
            *to = n;
        }
    mem_free(s->buckets);
    s->buckets = bigger;
    s->n_buckets *= 2;
}

static struct node *victim(struct store *s)
{
    for (;;) {
        struct node *n = s->heap[0];
        if (n->in_heap.rank == n->now.rank && n->in_heap.used == n->now.used) return n;
        n->in_heap = n->now; /* it was used since */
        sift_down(s, n);
    }
}

/* The budget holds always, whatever is left in the end. */
static void make_room(struct store *s)
{
    while (s->bytes > s->bytes_max && s->count) {
        struct node *n = victim(s);
        if (n->now.class == SAVED && n->now.rank > s->clock) s->clock = n->now.rank;
        if (s->gone) s->gone(s->arg, n->e);
        drop(s, find(s, n->e->id));
    }
}

bool store_put(struct store *s, struct entry *e, bool unsaved)
{
    struct node **at = find(s, e->id), *n;
    uint32_t uses = *at ? (*at)->uses : 1;
    /* the same write once more, with its vector, is no use: an answer stored later must not go before it */
    bool same = *at && e->write_no && (*at)->e->write_no == e->write_no;
    double clock = same ? (*at)->clock : s->clock;
    uint64_t used = same ? (*at)->now.used : ++s->uses;
    if (*at) drop(s, at);
    if (e->bytes + NODE_BYTES > s->bytes_max || !(n = try_calloc(1, sizeof *n))) {
        entry_free(e);
        return false;
    }
    if (s->count >= s->n_buckets) grow(s);
    n->e = e;
    n->uses = uses;
    if (unsaved) link_unsaved(s, n);
    stand_as_of(n, clock, used);
    if (!heap_add(s, n)) {
        unlink_unsaved(s, n);
        entry_free(e);
        mem_free(n);
        return false;
    }
    at = find(s, e->id);
    *at = n;
    s->bytes += bytes_of(n);
    make_room(s);
    return true;
}

const struct entry *store_get(struct store *s, struct hash128 id)
{
    struct node *n = *find(s, id);
    if (!n) return NULL;
    if (n->uses < WORTH_USES_MAX) n->uses++;
    stand(s, n);
    return n->e;
}

const struct entry *store_peek(const struct store *s, struct hash128 id)
{
    const struct node *n = *find(s, id);
    return n ? n->e : NULL;
}

enum err store_served(struct store *s, const struct entry *e, struct served **out,
                      struct errmsg *why)
{
    struct node *n = *find(s, e->id);
    bool ours = n && n->e == e;
    if (ours && n->served) {
        *out = served_ref(n->served);
        return OK;
    }
    enum err code = served_new(out, e->kind, e->answer, why);
    /* room is made at the next put: e is still being looked at */
    if (code == OK && ours && n->uses > SEEN_ONCE && s->bytes + (*out)->bytes <= s->bytes_max) {
        n->served = served_ref(*out);
        s->bytes += (*out)->bytes;
    }
    return code;
}

bool store_remove(struct store *s, struct hash128 id)
{
    struct node **at = find(s, id);
    if (!*at) return false;
    drop(s, at);
    return true;
}

void store_set_saved(struct store *s, struct hash128 id, uint64_t write_no)
{
    struct node *n = *find(s, id);
    if (!n || !n->unsaved || n->e->write_no != write_no) return;
    unlink_unsaved(s, n);
    if (n->now.class == UNSAVED) n->now.class = SAVED;
    n->in_heap = n->now;
    sift_up(s, n); /* it may go earlier now, or, used since, later than the heap knew */
    sift_down(s, n);
}

const struct entry *store_unsaved(struct store *s)
{
    const struct node *n = (const struct node *)s->unsaved.oldest;
    return n ? n->e : NULL;
}

void store_drop_saved(struct store *s)
{
    for (size_t i = 0; i < s->n_buckets; i++)
        for (struct node **at = &s->buckets[i]; *at;) {
            if ((*at)->unsaved)
                at = &(*at)->chain;
            else
                drop(s, at);
        }
}

void store_set_budget(struct store *s, size_t bytes_max)
{
    s->bytes_max = bytes_max;
    make_room(s);
}

void store_free(struct store *s)
{
    if (!s) return;
    while (s->count)
        drop(s, find(s, s->heap[0]->e->id));
    mem_free(s->heap);
    mem_free(s->buckets);
    mem_free(s);
}

size_t store_count(const struct store *s)
{
    return s->count;
}
size_t store_bytes(const struct store *s)
{
    return s->bytes;
}
