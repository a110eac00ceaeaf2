/* join_table.c - see join_table.h. Open addressing with linear probing and backward-shift deletion; at most half full. */
#include "gateway/join_table.h"

#include "base/mem.h"

struct join_slot {
    struct hash128 key;
    void *value; /* NULL = free */
};
struct join_table {
    struct join_slot *slots;
    size_t n_slots, n, max; /* n_slots is a power of two >= 2 * max */
};

struct join_table *join_table_new(size_t entries_max)
{
    struct join_table *t = xcalloc(1, sizeof *t);
    t->max = entries_max ? entries_max : 1;
    for (t->n_slots = 16; t->n_slots < t->max * 2;)
        t->n_slots *= 2;
    t->slots = xcalloc(t->n_slots, sizeof *t->slots);
    return t;
}

void join_table_free(struct join_table *t)
{
    if (!t) return;
    mem_free(t->slots);
    mem_free(t);
}

static size_t home(const struct join_table *t, struct hash128 key) { return (size_t)key.lo & (t->n_slots - 1); }

/* The slot that holds key, or the free one where it would go. */
static size_t slot_of(const struct join_table *t, struct hash128 key)
{
    size_t i = home(t, key);
    while (t->slots[i].value && !hash_eq(t->slots[i].key, key))
        i = (i + 1) & (t->n_slots - 1);
    return i;
}

void *join_table_find(const struct join_table *t, struct hash128 key) { return t->slots[slot_of(t, key)].value; }

enum err join_table_put(struct join_table *t, struct hash128 key, void *value)
{
    ASSERT(value);
    if (t->n == t->max) return ERR_FULL;
    size_t i = slot_of(t, key);
    ASSERT(!t->slots[i].value);
    t->slots[i] = (struct join_slot){key, value};
    t->n++;
    return OK;
}

void join_table_remove(struct join_table *t, struct hash128 key, const void *value)
{
    size_t i = slot_of(t, key), mask = t->n_slots - 1;
    if (!t->slots[i].value || t->slots[i].value != value) return;
    t->n--;
    /* Knuth, vol. 3, 6.4, algorithm R: close the gap so that no probe run is broken. */
    for (size_t j = i;;) {
        t->slots[i].value = NULL;
        for (;;) {
            j = (j + 1) & mask;
            if (!t->slots[j].value) return;
            size_t k = home(t, t->slots[j].key);
            bool stays = i <= j ? (i < k && k <= j) : (i < k || k <= j);
            if (!stays) break;
        }
        t->slots[i] = t->slots[j];
        i = j;
    }
}

size_t join_table_count(const struct join_table *t) { return t->n; }
