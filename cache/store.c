/* store.c - hash map with chaining in an array that doubles, and one list from most to least recently used. */
#include "cache/store.h"

#include <string.h>

#include "base/mem.h"

enum { BUCKETS_FIRST = 1024, NODE_BYTES = 96 /* node, bucket share, allocator's own */ };

struct node {
    struct entry *e;
    struct node *chain, *newer, *older;
    bool unsaved;
};
struct store {
    struct node **buckets;
    size_t n_buckets, count, bytes, bytes_max, n_unsaved;
    struct node *newest, *oldest;
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

static void unlink_use(struct store *s, struct node *n)
{
    if (n->newer)
        n->newer->older = n->older;
    else
        s->newest = n->older;
    if (n->older)
        n->older->newer = n->newer;
    else
        s->oldest = n->newer;
    n->newer = n->older = NULL;
}

static void link_newest(struct store *s, struct node *n)
{
    n->older = s->newest;
    if (s->newest) s->newest->newer = n;
    s->newest = n;
    if (!s->oldest) s->oldest = n;
}

static void drop(struct store *s, struct node **at)
{
    struct node *n = *at;
    *at = n->chain;
    unlink_use(s, n);
    s->count--;
    s->n_unsaved -= n->unsaved;
    s->bytes -= n->e->bytes + NODE_BYTES;
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

/* Saved entries first; when only unsaved ones are left the oldest of them goes, since the budget holds always. */
static void make_room(struct store *s)
{
    while (s->bytes > s->bytes_max && s->oldest) {
        struct node *victim = s->oldest;
        if (s->n_unsaved < s->count)
            while (victim->unsaved && victim->newer)
                victim = victim->newer;
        if (s->gone) s->gone(s->arg, victim->e);
        drop(s, find(s, victim->e->id));
    }
}

bool store_put(struct store *s, struct entry *e, bool unsaved)
{
    store_remove(s, e->id);
    if (e->bytes + NODE_BYTES > s->bytes_max) {
        entry_free(e);
        return false;
    }
    if (s->count >= s->n_buckets) grow(s);
    struct node *n = xcalloc(1, sizeof *n);
    n->e = e;
    n->unsaved = unsaved;
    struct node **at = find(s, e->id);
    *at = n;
    link_newest(s, n);
    s->count++;
    s->n_unsaved += unsaved;
    s->bytes += e->bytes + NODE_BYTES;
    make_room(s);
    return true;
}

const struct entry *store_get(struct store *s, struct hash128 id)
{
    struct node *n = *find(s, id);
    if (!n) return NULL;
    if (n != s->newest) {
        unlink_use(s, n);
        link_newest(s, n);
    }
    return n->e;
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
    n->unsaved = false;
    s->n_unsaved--;
}

const struct entry *store_unsaved(struct store *s)
{
    if (!s->n_unsaved) return NULL;
    for (struct node *n = s->oldest; n; n = n->newer)
        if (n->unsaved) return n->e;
    return NULL;
}

void store_drop_saved(struct store *s)
{
    for (struct node *n = s->oldest, *next; n; n = next) {
        next = n->newer;
        if (!n->unsaved) drop(s, find(s, n->e->id));
    }
}

void store_free(struct store *s)
{
    if (!s) return;
    while (s->oldest)
        drop(s, find(s, s->oldest->e->id));
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
