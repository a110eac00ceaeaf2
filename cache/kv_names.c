/* kv_names.c - see kv_names.h. */
#include "cache/kv_names.h"

#include "base/hash_map.h"

struct named {
    struct hash128 theirs, ours;
    uint64_t holders[PREFIX_TIERS]; /* bits: 8 groups of 8 ranks */
};
struct kv_names {
    struct prefix_index *index;
    int pod, block_tokens;
    uint64_t incarnation, orphans;
    struct prefix_origin origin;
    size_t max;
    struct hash_map map;
};

enum { NAMES_MIN = 32 };

struct kv_names *kv_names_new(struct prefix_index *index, int pod, size_t blocks_max,
                              const struct prefix_origin *origin)
{
    struct kv_names *n = xcalloc(1, sizeof *n);
    *n = (struct kv_names){.index = index,
                           .pod = pod,
                           .origin = *origin,
                           .max = blocks_max > NAMES_MIN ? blocks_max : NAMES_MIN};
    hash_map_init(&n->map, sizeof(struct named), NAMES_MIN);
    return n;
}

void kv_names_free(struct kv_names *n)
{
    if (!n) return;
    hash_map_fini(&n->map);
    mem_free(n);
}

static void forget_all(struct kv_names *n)
{
    hash_map_fini(&n->map);
    hash_map_init(&n->map, sizeof(struct named), NAMES_MIN);
    prefix_index_clear(n->index, n->pod);
}

void kv_names_begin(struct kv_names *n, uint64_t incarnation)
{
    n->incarnation = incarnation;
    forget_all(n);
}

/* Engines may count their names or take them from memory: the low bits are mixed. */
static struct hash128 key_of(uint64_t theirs)
{
    return (struct hash128){theirs, theirs * 0x9e3779b97f4a7c15u >> 20};
}

static struct named *find(const struct kv_names *n, uint64_t theirs)
{
    return hash_map_find(&n->map, key_of(theirs));
}

/* --- events */
static uint64_t holder_bit(const struct kv_event *ev)
{
    return (uint64_t)1 << ((ev->group & 7) * 8 + (ev->rank & 7));
}

static void hold(struct kv_names *n, uint64_t theirs, struct hash128 ours,
                 const struct kv_event *ev)
{
    struct named *e = find(n, theirs);
    if (e && !hash_eq(e->ours, ours)) { /* the name means another block now */
        for (int t = 0; t < PREFIX_TIERS; t++)
            (void)prefix_index_remove(n->index, n->pod, n->incarnation, t, e->ours);
        *e = (struct named){.theirs = e->theirs, .ours = ours};
    } else if (!e) {
        if (n->map.n == n->max) forget_all(n);
        e = hash_map_add(&n->map, key_of(theirs));
        e->ours = ours;
    }
    e->holders[ev->tier] |= holder_bit(ev);
    (void)prefix_index_store(n->index, n->pod, n->incarnation, ev->tier, ours);
}

/* Where the first block of ev hangs. False: its parent is not known. */
static bool parent_of(const struct kv_names *n, const struct kv_event *ev, struct hash128 *out)
{
    if (!ev->has_parent) return *out = prefix_hash_start(&n->origin), true;
    const struct named *e = find(n, ev->parent);
    if (e) *out = e->ours;
    return e != NULL;
}

static void stored(struct kv_names *n, const struct kv_event *ev)
{
    struct hash128 parent = {0, 0};
    bool chained = ev->plain && parent_of(n, ev, &parent);
    int size = ev->block_tokens;
    if (size > 0 && size <= PREFIX_BLOCK_TOKENS_MAX && ev->plain) n->block_tokens = size;
    for (size_t i = 0; i < ev->n_hashes; i++) {
        const struct named *known = find(n, ev->hashes[i]);
        bool tokens =
            size > 0 && size <= PREFIX_BLOCK_TOKENS_MAX && (i + 1) * (size_t)size <= ev->n_tokens;
        if (chained && tokens)
            parent = prefix_hash_next(n->origin.seed, parent, ev->tokens + i * (size_t)size, size);
        else if (known && !ev->n_tokens) /* an offload tier: the block was told before */
            parent = known->ours, chained = true;
        else {
            n->orphans += ev->n_hashes - i;
            return;
        }
        hold(n, ev->hashes[i], parent, ev);
    }
}

static void removed(struct kv_names *n, const struct kv_event *ev)
{
    for (size_t i = 0; i < ev->n_hashes; i++) {
        struct named *e = find(n, ev->hashes[i]);
        uint64_t any = 0;
        if (!e) continue;
        e->holders[ev->tier] &= ~holder_bit(ev);
        if (!e->holders[ev->tier])
            (void)prefix_index_remove(n->index, n->pod, n->incarnation, ev->tier, e->ours);
        for (int t = 0; t < PREFIX_TIERS; t++)
            any |= e->holders[t];
        if (!any) hash_map_remove(&n->map, e);
    }
}

void kv_names_event(struct kv_names *n, const struct kv_event *ev)
{
    switch (ev->kind) {
    case KV_EVENT_STORED:
        stored(n, ev);
        return;
    case KV_EVENT_REMOVED:
        removed(n, ev);
        return;
    case KV_EVENT_CLEARED:
        forget_all(n);
        return;
    }
}

size_t kv_names_count(const struct kv_names *n)
{
    return n->map.n;
}
int kv_names_block_tokens(const struct kv_names *n)
{
    return n->block_tokens;
}
uint64_t kv_names_orphans(const struct kv_names *n)
{
    return n->orphans;
}
