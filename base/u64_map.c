/* u64_map.c - see u64_map.h. A removed place is marked and taken over by the next growth. A place that moved is marked removed in the old
 * table, so a walk there still finds what lies behind it. The new table is sized so that the old one is empty long before it is full. */
#include "base/u64_map.h"

#include "base/err.h"
#include "base/mem.h"

enum { FIRST = 16, MOVED_AT_ONCE = 8 };
static const uint64_t REMOVED = UINT64_MAX;

static size_t home(uint64_t key, size_t n_slots)
{
    key = (key ^ key >> 33) * 0xff51afd7ed558ccdu;
    return (size_t)(key ^ key >> 29) & (n_slots - 1);
}

static bool holds(const struct u64_slot *s)
{
    return s->value && s->value != REMOVED;
}

static void put(struct u64_map *m, uint64_t key, uint64_t value)
{
    size_t i = home(key, m->n_slots);
    while (holds(&m->slots[i]))
        i = (i + 1) & (m->n_slots - 1);
    m->used += !m->slots[i].value;
    m->slots[i] = (struct u64_slot){key, value};
}

static void move_some(struct u64_map *m, size_t n)
{
    for (; m->old && n; n--) {
        struct u64_slot *s = &m->old[m->moved++];
        if (holds(s)) {
            put(m, s->key, s->value);
            s->value = REMOVED;
        }
        if (m->moved < m->n_old) continue;
        mem_free(m->old);
        m->old = NULL;
        m->n_old = m->moved = 0;
    }
}

static bool grow(struct u64_map *m)
{
    size_t n = FIRST;
    move_some(m, m->n_old); /* none is left by now, unless nearly all were removed again */
    while (n < m->count * 3 + 3)
        n *= 2;
    struct u64_slot *slots = try_calloc(n, sizeof *slots);
    if (!slots) return false;
    m->old = m->slots;
    m->n_old = m->n_slots;
    m->moved = 0;
    m->slots = slots;
    m->n_slots = n;
    m->used = 0;
    if (!m->n_old) m->old = NULL;
    return true;
}

void u64_map_fini(struct u64_map *m)
{
    mem_free(m->slots);
    mem_free(m->old);
    *m = (struct u64_map){0};
}

bool u64_map_add(struct u64_map *m, uint64_t key, uint64_t value)
{
    ASSERT(value && value != REMOVED);
    if ((m->used + 1) * 3 > m->n_slots * 2 && !grow(m)) return false;
    move_some(m, MOVED_AT_ONCE);
    put(m, key, value);
    m->count++;
    return true;
}

static bool remove_from(struct u64_slot *slots, size_t n, uint64_t key, uint64_t value)
{
    for (size_t i = n ? home(key, n) : 0; n && slots[i].value; i = (i + 1) & (n - 1))
        if (slots[i].value == value && slots[i].key == key) {
            slots[i].value = REMOVED;
            return true;
        }
    return false;
}

bool u64_map_remove(struct u64_map *m, uint64_t key, uint64_t value)
{
    move_some(m, MOVED_AT_ONCE);
    bool was =
        remove_from(m->slots, m->n_slots, key, value) || remove_from(m->old, m->n_old, key, value);
    m->count -= was;
    return was;
}

/* Places of the old table come first. */
uint64_t u64_map_next(const struct u64_map *m, uint64_t key, size_t *at)
{
    size_t i = *at;
    if (m->n_old && (i == SIZE_MAX || i < m->n_old)) {
        i = i == SIZE_MAX ? home(key, m->n_old) : (i + 1) & (m->n_old - 1);
        for (; m->old[i].value; i = (i + 1) & (m->n_old - 1))
            if (m->old[i].key == key && m->old[i].value != REMOVED) return *at = i, m->old[i].value;
        i = SIZE_MAX;
    }
    if (!m->n_slots) return 0;
    i = i == SIZE_MAX ? home(key, m->n_slots) : (i - m->n_old + 1) & (m->n_slots - 1);
    for (; m->slots[i].value; i = (i + 1) & (m->n_slots - 1))
        if (m->slots[i].key == key && m->slots[i].value != REMOVED)
            return *at = m->n_old + i, m->slots[i].value;
    return 0;
}

size_t u64_map_places(const struct u64_map *m)
{
    return m->n_old + m->n_slots;
}

uint64_t u64_map_at(const struct u64_map *m, size_t i)
{
    const struct u64_slot *s = i < m->n_old ? &m->old[i] : &m->slots[i - m->n_old];
    return holds(s) ? s->value : 0;
}

size_t u64_map_bytes(const struct u64_map *m)
{
    return u64_map_places(m) * sizeof *m->slots;
}
