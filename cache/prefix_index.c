/* prefix_index.c - a hash table over entries, an LRU list through them, and one list of places a pod. A look-up reads the table and one
 * line of each entry; places are touched only by changes. All links are numbers. */
#include "cache/prefix_index.h"

#include <string.h>

#include "base/hash_slots.h"

#define NONE HASH_SLOT_EMPTY
enum { AHEAD = 16, BLOCKS_MIN = 64, PLACES_PER_BLOCK = 2 };

struct entry { /* 48 bytes */
    struct hash128 id;
    uint32_t held[PREFIX_TIERS], guessed; /* pods, a bit each */
    uint32_t guess_ms;                    /* of the last guess */
    uint32_t places;                      /* list */
    uint32_t newer, older;                /* LRU list */
};
struct place {
    uint32_t entry, next, pod_next, pod_prev, pod;
};
struct pod {
    uint64_t incarnation;
    uint32_t places; /* list */
    size_t n;
    bool joined;
};

struct prefix_index {
    uint32_t n_entries_max, n_places_max, n_entries, n_places, guess_ms;
    uint32_t free_entry, free_place, newest, oldest;
    uint32_t telling; /* pods, a bit each */
    uint64_t evicted;
    struct hash_slots table;
    struct entry *entries;
    struct place *places;
    struct pod pods[PREFIX_PODS_MAX];
    uint32_t walk[PREFIX_CHAIN_MAX]; /* entries a look-up passed */
};

struct prefix_index *prefix_index_new(size_t bytes_max, uint32_t guess_ms)
{
    struct prefix_index *x = xcalloc(1, sizeof *x);
    /* the table has between 2 and 4 slots an entry */
    size_t one =
        sizeof(struct entry) + PLACES_PER_BLOCK * sizeof(struct place) + 4 * sizeof(uint32_t);
    size_t n = bytes_max / one;
    if (n < BLOCKS_MIN) n = BLOCKS_MIN;
    if (n > 1u << 29) n = 1u << 29;
    x->n_entries_max = (uint32_t)n;
    x->n_places_max = (uint32_t)(n * PLACES_PER_BLOCK);
    x->guess_ms = guess_ms;
    x->table = hash_slots_new(n);
    x->entries = xcalloc(n, sizeof *x->entries);
    x->places = xcalloc(x->n_places_max, sizeof *x->places);
    x->free_entry = x->free_place = x->newest = x->oldest = NONE;
    for (int i = 0; i < PREFIX_PODS_MAX; i++)
        x->pods[i].places = NONE;
    return x;
}

void prefix_index_free(struct prefix_index *x)
{
    if (!x) return;
    mem_free(x->table.at);
    mem_free(x->entries);
    mem_free(x->places);
    mem_free(x);
}

static uint32_t slot_of(const struct prefix_index *x, struct hash128 id)
{
    return hash_slots_find(&x->table, x->entries, sizeof *x->entries, id);
}

/* --- the LRU list */
static void unlink_entry(struct prefix_index *x, uint32_t e)
{
    struct entry *en = &x->entries[e];
    if (en->newer == NONE)
        x->newest = en->older;
    else
        x->entries[en->newer].older = en->older;
    if (en->older == NONE)
        x->oldest = en->newer;
    else
        x->entries[en->older].newer = en->newer;
}

static void link_newest(struct prefix_index *x, uint32_t e)
{
    x->entries[e].newer = NONE;
    x->entries[e].older = x->newest;
    if (x->newest == NONE)
        x->oldest = e;
    else
        x->entries[x->newest].newer = e;
    x->newest = e;
}

static void touch(struct prefix_index *x, uint32_t e)
{
    if (x->newest == e) return;
    unlink_entry(x, e);
    link_newest(x, e);
}

/* --- places */
static void drop_place(struct prefix_index *x, uint32_t p)
{
    struct place *pl = &x->places[p];
    struct pod *pod = &x->pods[pl->pod];
    if (pl->pod_prev == NONE)
        pod->places = pl->pod_next;
    else
        x->places[pl->pod_prev].pod_next = pl->pod_next;
    if (pl->pod_next != NONE) x->places[pl->pod_next].pod_prev = pl->pod_prev;
    pod->n--;
    x->n_places--;
    pl->next = x->free_place;
    x->free_place = p;
}

static void drop_entry(struct prefix_index *x, uint32_t e)
{
    struct entry *en = &x->entries[e];
    for (uint32_t p = en->places, next; p != NONE; p = next) {
        next = x->places[p].next;
        drop_place(x, p);
    }
    hash_slots_remove(&x->table, x->entries, sizeof *x->entries, slot_of(x, en->id));
    unlink_entry(x, e);
    en->older = x->free_entry; /* the list of free ones runs through older */
    x->free_entry = e;
    x->n_entries--;
}

static void evict(struct prefix_index *x)
{
    drop_entry(x, x->oldest);
    x->evicted++;
}

static uint32_t take(uint32_t *free_list, uint32_t next, uint32_t fresh)
{
    uint32_t i = *free_list;
    if (i == NONE) return fresh;
    *free_list = next;
    return i;
}

static uint32_t entry_of(struct prefix_index *x, struct hash128 id)
{
    uint32_t slot = slot_of(x, id), e = x->table.at[slot];
    if (e != NONE) return e;
    if (x->n_entries == x->n_entries_max) {
        evict(x);
        slot = slot_of(x, id);
    }
    e = take(&x->free_entry, x->free_entry == NONE ? 0 : x->entries[x->free_entry].older,
             x->n_entries);
    x->entries[e] = (struct entry){.id = id, .places = NONE};
    x->table.at[slot] = e;
    x->n_entries++;
    link_newest(x, e);
    return e;
}

static uint32_t pods_of(const struct entry *en)
{
    return en->held[PREFIX_DEVICE] | en->held[PREFIX_HOST] | en->held[PREFIX_DISK] | en->guessed;
}

/* pod gets a place at e, which is in use and not the oldest unless it is alone. */
static void add_place(struct prefix_index *x, uint32_t e, int pod)
{
    while (x->n_places == x->n_places_max)
        evict(x);
    uint32_t p = take(&x->free_place, x->free_place == NONE ? 0 : x->places[x->free_place].next,
                      x->n_places);
    struct pod *of = &x->pods[pod];
    x->places[p] = (struct place){.entry = e,
                                  .next = x->entries[e].places,
                                  .pod_next = of->places,
                                  .pod_prev = NONE,
                                  .pod = (uint32_t)pod};
    if (of->places != NONE) x->places[of->places].pod_prev = p;
    of->places = p;
    of->n++;
    x->entries[e].places = p;
    x->n_places++;
}

/* pod's last bit at e is gone: so is its place, and the entry with the last place. */
static void lose_place(struct prefix_index *x, uint32_t e, int pod)
{
    uint32_t *link = &x->entries[e].places, p;
    while ((p = *link) != NONE && x->places[p].pod != (uint32_t)pod)
        link = &x->places[p].next;
    ASSERT(p != NONE);
    *link = x->places[p].next;
    drop_place(x, p);
    if (x->entries[e].places == NONE) drop_entry(x, e);
}

/* --- pods */
static void forget_pod(struct prefix_index *x, int pod)
{
    uint32_t bit = 1u << pod;
    while (x->pods[pod].places != NONE) {
        uint32_t e = x->places[x->pods[pod].places].entry;
        for (int t = 0; t < PREFIX_TIERS; t++)
            x->entries[e].held[t] &= ~bit;
        x->entries[e].guessed &= ~bit;
        lose_place(x, e, pod);
    }
}

void prefix_index_join(struct prefix_index *x, int pod, uint64_t incarnation, bool tells)
{
    ASSERT(pod >= 0 && pod < PREFIX_PODS_MAX);
    struct pod *p = &x->pods[pod];
    if (!p->joined || p->incarnation != incarnation) forget_pod(x, pod);
    p->joined = true;
    p->incarnation = incarnation;
    x->telling = tells ? x->telling | 1u << pod : x->telling & ~(1u << pod);
}

void prefix_index_leave(struct prefix_index *x, int pod)
{
    ASSERT(pod >= 0 && pod < PREFIX_PODS_MAX);
    forget_pod(x, pod);
    x->pods[pod].joined = false;
    x->telling &= ~(1u << pod);
}

void prefix_index_clear(struct prefix_index *x, int pod)
{
    ASSERT(pod >= 0 && pod < PREFIX_PODS_MAX);
    forget_pod(x, pod);
}

/* --- changes */
static bool is_current(const struct prefix_index *x, int pod, uint64_t incarnation)
{
    ASSERT(pod >= 0 && pod < PREFIX_PODS_MAX);
    return x->pods[pod].joined && x->pods[pod].incarnation == incarnation;
}

bool prefix_index_store(struct prefix_index *x, int pod, uint64_t incarnation,
                        enum prefix_tier tier, struct hash128 block)
{
    uint32_t bit = 1u << pod;
    if (!is_current(x, pod, incarnation)) return false;
    uint32_t e = entry_of(x, block);
    bool known = pods_of(&x->entries[e]) & bit;
    x->entries[e].held[tier] |= bit;
    x->entries[e].guessed &= ~bit;
    touch(x, e);
    if (!known) add_place(x, e, pod);
    return true;
}

bool prefix_index_remove(struct prefix_index *x, int pod, uint64_t incarnation,
                         enum prefix_tier tier, struct hash128 block)
{
    uint32_t bit = 1u << pod;
    if (!is_current(x, pod, incarnation)) return false;
    uint32_t e = x->table.at[slot_of(x, block)];
    if (e == NONE || !(x->entries[e].held[tier] & bit)) return true;
    x->entries[e].held[tier] &= ~bit;
    if (!(pods_of(&x->entries[e]) & bit)) lose_place(x, e, pod);
    return true;
}

void prefix_index_guess(struct prefix_index *x, int pod, const struct hash128 *chain, size_t n,
                        uint64_t now_ms)
{
    uint32_t bit = 1u << pod;
    ASSERT(pod >= 0 && pod < PREFIX_PODS_MAX);
    if (n > PREFIX_CHAIN_MAX) n = PREFIX_CHAIN_MAX;
    if (n > x->n_entries_max / 2) n = x->n_entries_max / 2;
    for (size_t i = n; i-- > 0;) { /* the first block is used last: it gives way last */
        uint32_t e = entry_of(x, chain[i]);
        struct entry *en = &x->entries[e];
        bool known = pods_of(en) & bit,
             held = (en->held[PREFIX_DEVICE] | en->held[PREFIX_HOST] | en->held[PREFIX_DISK]) & bit;
        if (!held) {
            en->guessed |= bit;
            en->guess_ms = (uint32_t)now_ms;
        }
        touch(x, e);
        if (!known) add_place(x, e, pod);
    }
}

/* --- look-up */
static void prefetch(const struct prefix_index *x, const struct hash128 *chain, size_t n)
{
    for (size_t i = 0; i < n; i++)
        __builtin_prefetch(&x->table.at[hash_slots_home(&x->table, chain[i])]);
    for (size_t i = 0; i < n; i++) {
        uint32_t e = x->table.at[hash_slots_home(&x->table, chain[i])];
        if (e != NONE) __builtin_prefetch(&x->entries[e]);
    }
}

static uint32_t holders(const struct prefix_index *x, const struct entry *en, uint32_t now_ms)
{
    uint32_t guessed = en->guessed;
    if (now_ms - en->guess_ms > x->guess_ms) guessed &= ~x->telling;
    return en->held[PREFIX_DEVICE] | en->held[PREFIX_HOST] | en->held[PREFIX_DISK] | guessed;
}

void prefix_index_match(struct prefix_index *x, const struct hash128 *chain, size_t n,
                        uint64_t now_ms, struct prefix_match *out)
{
    uint32_t running = UINT32_MAX;
    size_t i = 0;
    *out = (struct prefix_match){0};
    if (n > PREFIX_CHAIN_MAX) n = PREFIX_CHAIN_MAX;
    for (; i < n; i++) {
        if (i % AHEAD == 0) prefetch(x, chain + i, n - i < AHEAD ? n - i : AHEAD);
        uint32_t e = x->table.at[slot_of(x, chain[i])];
        if (e == NONE) break;
        const struct entry *en = &x->entries[e];
        uint32_t have = holders(x, en, (uint32_t)now_ms) & running;
        if (i == 0) out->pods = have;
        for (uint32_t gone = running & ~have & out->pods; gone; gone &= gone - 1)
            out->blocks[__builtin_ctz(gone)] = (int)i;
        for (uint32_t s =
                 have & (en->held[PREFIX_HOST] | en->held[PREFIX_DISK]) & ~en->held[PREFIX_DEVICE];
             s; s &= s - 1)
            out->slow[__builtin_ctz(s)]++;
        running = have;
        if (!running) break;
        x->walk[i] = e;
    }
    for (uint32_t left = running & out->pods; left; left &= left - 1)
        out->blocks[__builtin_ctz(left)] = (int)i;
    while (i-- > 0)
        touch(x, x->walk[i]);
}

/* --- facts */
struct prefix_index_stats prefix_index_stats(const struct prefix_index *x)
{
    return (struct prefix_index_stats){.blocks = x->n_entries,
                                       .blocks_max = x->n_entries_max,
                                       .places = x->n_places,
                                       .places_max = x->n_places_max,
                                       .evicted = x->evicted};
}

size_t prefix_index_held(const struct prefix_index *x, int pod)
{
    return x->pods[pod].n;
}

const char *prefix_index_check(const struct prefix_index *x)
{
    size_t n = 0, places = 0, by_pod = 0, in_table = 0;
    for (uint32_t e = x->newest, newer = NONE; e != NONE; newer = e, e = x->entries[e].older) {
        const struct entry *en = &x->entries[e];
        uint32_t seen = 0;
        if (++n > x->n_entries || en->newer != newer) return "the LRU list is broken";
        if (x->table.at[slot_of(x, en->id)] != e) return "an entry is not found by its identity";
        for (uint32_t p = en->places; p != NONE; p = x->places[p].next, places++) {
            if (x->places[p].entry != e || seen & 1u << x->places[p].pod)
                return "a place is wrong or there twice";
            seen |= 1u << x->places[p].pod;
        }
        if (seen != pods_of(en) || !seen) return "places and bits of an entry do not agree";
    }
    for (int i = 0; i < PREFIX_PODS_MAX; i++) {
        size_t own = 0;
        for (uint32_t p = x->pods[i].places; p != NONE; p = x->places[p].pod_next, own++)
            if (x->places[p].pod != (uint32_t)i || own > x->n_places)
                return "a pod's list is wrong";
        if (own != x->pods[i].n) return "a pod's count is wrong";
        by_pod += own;
    }
    for (uint32_t i = 0; i <= x->table.mask; i++)
        in_table += x->table.at[i] != NONE;
    if (n != x->n_entries || in_table != n || places != x->n_places || by_pod != places)
        return "counts do not agree";
    return NULL;
}
