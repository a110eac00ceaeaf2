/* announce.c - a ring of changes and a hash table of what is held (open addressing, deletion by shifting back; grows). */
#include "engine/announce.h"

#include <pthread.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

struct held {
    struct hash128 block;
    uint8_t places; /* a bit each; 0 = empty slot */
};

struct announce {
    pthread_mutex_t lock;
    uint64_t incarnation, number; /* number: of the last change */
    void (*wake)(void *arg);
    void *wake_arg;
    bool woken;
    struct held *table; /* [mask + 1] */
    size_t mask, n_held;
    struct kv_change ring[ANNOUNCE_RING];
};

struct announce *announce_new(uint64_t incarnation)
{
    struct announce *a = xcalloc(1, sizeof *a);
    pthread_mutex_init(&a->lock, NULL);
    a->incarnation = incarnation;
    a->mask = 1023;
    a->table = xcalloc(a->mask + 1, sizeof *a->table);
    return a;
}

void announce_free(struct announce *a)
{
    if (!a) return;
    pthread_mutex_destroy(&a->lock);
    mem_free(a->table);
    mem_free(a);
}

uint64_t announce_incarnation(const struct announce *a)
{
    return a->incarnation;
}

void announce_listen(struct announce *a, void (*wake)(void *arg), void *arg)
{
    pthread_mutex_lock(&a->lock);
    a->wake = wake;
    a->wake_arg = arg;
    a->woken = false;
    pthread_mutex_unlock(&a->lock);
}

/* --- what is held */
static size_t slot_of(const struct announce *a, struct hash128 block)
{
    size_t i = block.lo & a->mask;
    while (a->table[i].places && !hash_eq(a->table[i].block, block))
        i = (i + 1) & a->mask;
    return i;
}

static void grow(struct announce *a)
{
    struct held *old = a->table;
    size_t n = a->mask + 1;
    a->mask = 2 * n - 1;
    a->table = xcalloc(2 * n, sizeof *a->table);
    for (size_t i = 0; i < n; i++)
        if (old[i].places) a->table[slot_of(a, old[i].block)] = old[i];
    mem_free(old);
}

static void drop(struct announce *a, size_t hole)
{
    for (size_t i = (hole + 1) & a->mask; a->table[i].places; i = (i + 1) & a->mask) {
        size_t want = a->table[i].block.lo & a->mask;
        if (((i - want) & a->mask) < ((i - hole) & a->mask)) continue;
        a->table[hole] = a->table[i];
        hole = i;
    }
    a->table[hole].places = 0;
    a->n_held--;
}

/* False: that is how it is already. */
static bool note(struct announce *a, uint8_t bit, bool stored, struct hash128 block)
{
    if (stored && 2 * (a->n_held + 1) > a->mask) grow(a);
    struct held *h = &a->table[slot_of(a, block)];
    if (stored == ((h->places & bit) != 0)) return false;
    if (stored && !h->places) {
        h->block = block;
        a->n_held++;
    }
    h->places = (uint8_t)(stored ? h->places | bit : h->places & ~bit);
    if (!h->places) {
        h->places = bit; /* drop wants a taken slot */
        drop(a, (size_t)(h - a->table));
    }
    return true;
}

void announce_change(struct announce *a, enum kv_place place, bool stored, struct hash128 block)
{
    void (*wake)(void *arg) = NULL;
    pthread_mutex_lock(&a->lock);
    if (note(a, (uint8_t)(1u << place), stored, block)) {
        a->ring[++a->number % ANNOUNCE_RING] =
            (struct kv_change){.block = block, .place = (uint8_t)place, .stored = stored};
        if (!a->woken) wake = a->wake;
        if (wake) a->woken = true;
    }
    void *arg = a->wake_arg;
    pthread_mutex_unlock(&a->lock);
    if (wake) wake(arg);
}

/* --- reading */
enum err announce_read(struct announce *a, uint64_t *from, struct kv_change *out, size_t max,
                       size_t *n)
{
    enum err code = OK;
    *n = 0;
    pthread_mutex_lock(&a->lock);
    a->woken = false;
    if (*from > a->number || a->number - *from > ANNOUNCE_RING)
        code = ERR_NOT_FOUND;
    else
        while (*n < max && *from < a->number)
            out[(*n)++] = a->ring[++*from % ANNOUNCE_RING];
    pthread_mutex_unlock(&a->lock);
    return code;
}

enum err announce_snapshot(struct announce *a, struct kv_change **out, size_t *n, uint64_t *number)
{
    *n = 0;
    pthread_mutex_lock(&a->lock);
    *out = try_malloc((a->n_held * KV_PLACES + 1) * sizeof **out);
    for (size_t i = 0; *out && i <= a->mask; i++)
        for (int p = 0; p < KV_PLACES; p++)
            if (a->table[i].places & 1u << p)
                (*out)[(*n)++] = (struct kv_change){a->table[i].block, (uint8_t)p, true};
    *number = a->number;
    pthread_mutex_unlock(&a->lock);
    return *out ? OK : ERR_FULL;
}
