/* hash_slots.h - finds an entry's number by its 128-bit hash. Each entry begins with its hash (struct hash128 first) and lies in an
 * array of the caller's, `each` bytes apart; only numbers are kept here. Open addressing with linear probing, at most half full; what is
 * removed leaves no mark, the rest of its run moves up (Knuth, vol. 3, 6.4, algorithm R). Inlined for the hot paths that look up
 * chains of blocks. Threading: as the entries'. */
#ifndef DEJA_BASE_HASH_SLOTS_H
#define DEJA_BASE_HASH_SLOTS_H
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

#define HASH_SLOT_EMPTY UINT32_MAX

struct hash_slots {
    uint32_t *at; /* [mask + 1]: an entry's number, or HASH_SLOT_EMPTY */
    uint32_t mask;
};

/* Empty, for up to n_max <= 2^30 entries. Free with mem_free(at). */
static inline struct hash_slots hash_slots_new(size_t n_max)
{
    size_t n = 4;
    while (n < 2 * n_max)
        n *= 2;
    struct hash_slots s = {xmalloc(n * sizeof *s.at), (uint32_t)(n - 1)};
    memset(s.at, 0xff, n * sizeof *s.at);
    return s;
}

static inline uint32_t hash_slots_home(const struct hash_slots *s, struct hash128 hash)
{
    return (uint32_t)hash.lo & s->mask;
}

static inline struct hash128 hash_slots_entry(const void *entries, size_t each, uint32_t number)
{
    return *(const struct hash128 *)((const char *)entries + number * each);
}

/* The slot that holds the entry of this hash, or the empty one where its number would go. */
static inline uint32_t hash_slots_find(const struct hash_slots *s, const void *entries, size_t each,
                                       struct hash128 hash)
{
    uint32_t i = hash_slots_home(s, hash);
    while (s->at[i] != HASH_SLOT_EMPTY && !hash_eq(hash_slots_entry(entries, each, s->at[i]), hash))
        i = (i + 1) & s->mask;
    return i;
}

/* Empties a slot that is taken. All entries still say their hashes. */
static inline void hash_slots_remove(struct hash_slots *s, const void *entries, size_t each,
                                     uint32_t slot)
{
    for (uint32_t i = (slot + 1) & s->mask; s->at[i] != HASH_SLOT_EMPTY; i = (i + 1) & s->mask) {
        uint32_t home = hash_slots_home(s, hash_slots_entry(entries, each, s->at[i]));
        if (((i - home) & s->mask) < ((i - slot) & s->mask)) continue;
        s->at[slot] = s->at[i];
        slot = i;
    }
    s->at[slot] = HASH_SLOT_EMPTY;
}

#endif
