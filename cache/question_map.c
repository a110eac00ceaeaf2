/* question_map.c - see question_map.h. A removed place is marked and taken over by the next growth. */
#include "cache/question_map.h"

#include "base/mem.h"

enum { FIRST = 16 };
static const char removed_place;
#define REMOVED ((struct question *)(uintptr_t)&removed_place) /* compared, never followed */

static size_t home(const struct question_map *m, uint64_t key)
{
    key = (key ^ key >> 33) * 0xff51afd7ed558ccdu;
    return (size_t)(key ^ key >> 29) & (m->n_slots - 1);
}

static bool holds(const struct question_slot *s)
{
    return s->q && s->q != REMOVED;
}

static void put(struct question_map *m, uint64_t key, struct question *q)
{
    size_t i = home(m, key);
    while (holds(&m->slots[i]))
        i = (i + 1) & (m->n_slots - 1);
    m->used += !m->slots[i].q;
    m->slots[i] = (struct question_slot){key, q};
    m->count++;
}

static bool resize(struct question_map *m)
{
    struct question_map bigger = {.n_slots = FIRST};
    while (bigger.n_slots < m->count * 3 + 3)
        bigger.n_slots *= 2;
    bigger.slots = try_calloc(bigger.n_slots, sizeof *bigger.slots);
    if (!bigger.slots) return false;
    for (size_t i = 0; i < m->n_slots; i++)
        if (holds(&m->slots[i])) put(&bigger, m->slots[i].key, m->slots[i].q);
    mem_free(m->slots);
    *m = bigger;
    return true;
}

void question_map_fini(struct question_map *m)
{
    mem_free(m->slots);
    *m = (struct question_map){0};
}

bool question_map_add(struct question_map *m, uint64_t key, struct question *q)
{
    if ((m->used + 1) * 3 > m->n_slots * 2 && !resize(m)) return false;
    put(m, key, q);
    return true;
}

bool question_map_remove(struct question_map *m, uint64_t key, const struct question *q)
{
    if (!m->n_slots) return false;
    for (size_t i = home(m, key); m->slots[i].q; i = (i + 1) & (m->n_slots - 1))
        if (m->slots[i].q == q && m->slots[i].key == key) {
            m->slots[i].q = REMOVED;
            m->count--;
            return true;
        }
    return false;
}

struct question *question_map_next(const struct question_map *m, uint64_t key, size_t *at)
{
    if (!m->n_slots) return NULL;
    *at = *at == SIZE_MAX ? home(m, key) : (*at + 1) & (m->n_slots - 1);
    for (; m->slots[*at].q; *at = (*at + 1) & (m->n_slots - 1))
        if (m->slots[*at].key == key && m->slots[*at].q != REMOVED) return m->slots[*at].q;
    return NULL;
}

struct question *question_map_at(const struct question_map *m, size_t i)
{
    return holds(&m->slots[i]) ? m->slots[i].q : NULL;
}

size_t question_map_bytes(const struct question_map *m)
{
    return m->n_slots * sizeof *m->slots;
}
