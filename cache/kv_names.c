/* kv_names.c - see kv_names.h. A hash table by the engine's name (open addressing, deletion by shifting back). */
#include "cache/kv_names.h"

#include "base/mem.h"

struct named {
    uint64_t theirs;
    struct hash128 ours;
    uint64_t holders[PREFIX_TIERS]; /* bits: 8 groups of 8 ranks */
    bool used;
};
struct kv_names {
    struct prefix_index *index;
    int pod, block_tokens;
    uint64_t incarnation, orphans;
    struct prefix_origin origin;
    size_t n, max, mask;
    struct named *table;
};

enum { SLOTS_FIRST = 64 };

struct kv_names *kv_names_new(struct prefix_index *index, int pod, size_t blocks_max,
                              const struct prefix_origin *origin)
{
    struct kv_names *n = xcalloc(1, sizeof *n);
    *n = (struct kv_names){.index = index,
                           .pod = pod,
                           .origin = *origin,
                           .max = blocks_max > SLOTS_FIRST / 2 ? blocks_max : SLOTS_FIRST / 2,
                           .mask = SLOTS_FIRST - 1};
    n->table = xcalloc(SLOTS_FIRST, sizeof *n->table);
    return n;
}

void kv_names_free(struct kv_names *n)
{
    if (!n) return;
    mem_free(n->table);
    mem_free(n);
}

static void forget_all(struct kv_names *n)
{
    mem_free(n->table);
    n->table = xcalloc(SLOTS_FIRST, sizeof *n->table);
    n->mask = SLOTS_FIRST - 1;
    n->n = 0;
    prefix_index_clear(n->index, n->pod);
}

void kv_names_begin(struct kv_names *n, uint64_t incarnation)
{
    n->incarnation = incarnation;
    forget_all(n);
}

/* --- the table */
static size_t home(const struct kv_names *n, uint64_t theirs)
{
    return (size_t)((theirs * 0x9e3779b97f4a7c15u) >> 20) & n->mask;
}

static size_t slot_of(const struct kv_names *n, uint64_t theirs)
{
    size_t i = home(n, theirs);
    while (n->table[i].used && n->table[i].theirs != theirs)
        i = (i + 1) & n->mask;
    return i;
}

/* At most half of the slots are taken. */
static void make_room(struct kv_names *n)
{
    struct named *old = n->table;
    size_t slots = n->mask + 1;
    if (2 * (n->n + 1) <= slots) return;
    n->mask = 2 * slots - 1;
    n->table = xcalloc(2 * slots, sizeof *n->table);
    for (size_t i = 0; i < slots; i++)
        if (old[i].used) n->table[slot_of(n, old[i].theirs)] = old[i];
    mem_free(old);
}

static void drop(struct kv_names *n, size_t hole)
{
    for (size_t i = (hole + 1) & n->mask; n->table[i].used; i = (i + 1) & n->mask) {
        size_t want = home(n, n->table[i].theirs);
        if (((i - want) & n->mask) < ((i - hole) & n->mask)) continue;
        n->table[hole] = n->table[i];
        hole = i;
    }
    n->table[hole].used = false;
    n->n--;
}

/* --- events */
static uint64_t holder_bit(const struct kv_event *ev)
{
    return (uint64_t)1 << ((ev->group & 7) * 8 + (ev->rank & 7));
}

static void hold(struct kv_names *n, uint64_t theirs, struct hash128 ours,
                 const struct kv_event *ev)
{
    struct named *e = &n->table[slot_of(n, theirs)];
    if (e->used && !hash_eq(e->ours, ours)) { /* the name means another block now */
        for (int t = 0; t < PREFIX_TIERS; t++)
            (void)prefix_index_remove(n->index, n->pod, n->incarnation, t, e->ours);
        *e = (struct named){.theirs = theirs, .ours = ours, .used = true};
    } else if (!e->used) {
        if (n->n == n->max) forget_all(n);
        make_room(n);
        e = &n->table[slot_of(n, theirs)];
        *e = (struct named){.theirs = theirs, .ours = ours, .used = true};
        n->n++;
    }
    e->holders[ev->tier] |= holder_bit(ev);
    (void)prefix_index_store(n->index, n->pod, n->incarnation, ev->tier, ours);
}

/* Where the first block of ev hangs. False: its parent is not known. */
static bool parent_of(const struct kv_names *n, const struct kv_event *ev, struct hash128 *out)
{
    if (!ev->has_parent) return *out = prefix_hash_start(&n->origin), true;
    const struct named *e = &n->table[slot_of(n, ev->parent)];
    *out = e->ours;
    return e->used;
}

static void stored(struct kv_names *n, const struct kv_event *ev)
{
    struct hash128 parent = {0, 0};
    bool chained = ev->plain && parent_of(n, ev, &parent);
    int size = ev->block_tokens;
    if (size > 0 && size <= PREFIX_BLOCK_TOKENS_MAX && ev->plain) n->block_tokens = size;
    for (size_t i = 0; i < ev->n_hashes; i++) {
        const struct named *known = &n->table[slot_of(n, ev->hashes[i])];
        bool tokens =
            size > 0 && size <= PREFIX_BLOCK_TOKENS_MAX && (i + 1) * (size_t)size <= ev->n_tokens;
        if (chained && tokens)
            parent = prefix_hash_next(n->origin.seed, parent, ev->tokens + i * (size_t)size, size);
        else if (known->used && !ev->n_tokens) /* an offload tier: the block was told before */
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
        size_t slot = slot_of(n, ev->hashes[i]);
        struct named *e = &n->table[slot];
        uint64_t any = 0;
        if (!e->used) continue;
        e->holders[ev->tier] &= ~holder_bit(ev);
        if (!e->holders[ev->tier])
            (void)prefix_index_remove(n->index, n->pod, n->incarnation, ev->tier, e->ours);
        for (int t = 0; t < PREFIX_TIERS; t++)
            any |= e->holders[t];
        if (!any) drop(n, slot);
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
    return n->n;
}
int kv_names_block_tokens(const struct kv_names *n)
{
    return n->block_tokens;
}
uint64_t kv_names_orphans(const struct kv_names *n)
{
    return n->orphans;
}
