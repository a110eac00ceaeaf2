/* hash_map.c - see hash_map.h. */
#include "base/hash_map.h"

void hash_map_init(struct hash_map *m, size_t each, size_t n)
{
    ASSERT(each >= sizeof(struct hash128) && n);
    *m = (struct hash_map){.slots = hash_slots_new(n), .each = each, .cap = n};
    m->entries = xcalloc(n, each);
}

void hash_map_fini(struct hash_map *m)
{
    mem_free(m->slots.at);
    mem_free(m->entries);
    *m = (struct hash_map){0};
}

static uint32_t slot_of(const struct hash_map *m, struct hash128 hash)
{
    return hash_slots_find(&m->slots, m->entries, m->each, hash);
}

void *hash_map_find(const struct hash_map *m, struct hash128 hash)
{
    uint32_t i = m->slots.at[slot_of(m, hash)];
    return i == HASH_SLOT_EMPTY ? NULL : m->entries + i * m->each;
}

static void grow(struct hash_map *m)
{
    m->cap *= 2;
    m->entries = xrealloc(m->entries, m->cap * m->each);
    mem_free(m->slots.at);
    m->slots = hash_slots_new(m->cap);
    for (uint32_t i = 0; i < m->n; i++)
        m->slots.at[slot_of(m, hash_slots_entry(m->entries, m->each, i))] = i;
}

void *hash_map_add(struct hash_map *m, struct hash128 hash)
{
    void *there = hash_map_find(m, hash);
    if (there) return there;
    if (m->n == m->cap) grow(m);
    char *entry = memset(m->entries + m->n * m->each, 0, m->each);
    memcpy(entry, &hash, sizeof hash);
    m->slots.at[slot_of(m, hash)] = (uint32_t)m->n++;
    return entry;
}

void hash_map_remove(struct hash_map *m, void *entry)
{
    uint32_t i = (uint32_t)((size_t)((char *)entry - m->entries) / m->each), last;
    ASSERT(i < m->n);
    hash_slots_remove(&m->slots, m->entries, m->each,
                      slot_of(m, hash_slots_entry(m->entries, m->each, i)));
    last = (uint32_t)--m->n;
    if (i == last) return;
    m->slots.at[slot_of(m, hash_slots_entry(m->entries, m->each, last))] = i;
    memcpy(entry, m->entries + last * m->each, m->each);
}
