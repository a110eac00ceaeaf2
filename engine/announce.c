/* announce.c - a ring of changes and a map of what is held. */
#include "engine/announce.h"

#include <pthread.h>
#include <string.h>

#include "base/hash_map.h"

enum { HELD_FIRST = 512 };
struct held {
    struct hash128 block;
    uint8_t places; /* a bit each */
};

struct announce {
    pthread_mutex_t lock;
    uint64_t incarnation, number; /* number: of the last change */
    void (*wake)(void *arg);
    void *wake_arg;
    bool woken;
    struct hash_map held;
    struct kv_change ring[ANNOUNCE_RING];
};

struct announce *announce_new(uint64_t incarnation)
{
    struct announce *a = xcalloc(1, sizeof *a);
    pthread_mutex_init(&a->lock, NULL);
    a->incarnation = incarnation;
    hash_map_init(&a->held, sizeof(struct held), HELD_FIRST);
    return a;
}

void announce_free(struct announce *a)
{
    if (!a) return;
    pthread_mutex_destroy(&a->lock);
    hash_map_fini(&a->held);
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

/* --- what is held; false: that is how it is already */
static bool note(struct announce *a, uint8_t bit, bool stored, struct hash128 block)
{
    struct held *h = stored ? hash_map_add(&a->held, block) : hash_map_find(&a->held, block);
    if (!h || stored == ((h->places & bit) != 0)) return false;
    h->places ^= bit;
    if (!h->places) hash_map_remove(&a->held, h);
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
    const struct held *held = (const struct held *)a->held.entries;
    *out = try_malloc((a->held.n * KV_PLACES + 1) * sizeof **out);
    for (size_t i = 0; *out && i < a->held.n; i++)
        for (int p = 0; p < KV_PLACES; p++)
            if (held[i].places & 1u << p)
                (*out)[(*n)++] = (struct kv_change){held[i].block, (uint8_t)p, true};
    *number = a->number;
    pthread_mutex_unlock(&a->lock);
    return *out ? OK : ERR_FULL;
}
