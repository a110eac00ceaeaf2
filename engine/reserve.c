/* reserve.c - see reserve.h. Zeroing pages is the kernel's work: 0.2 s a GiB where it has huge pages at hand, ten times that where a
 * virtual machine's host has to find them. */
#define _GNU_SOURCE
#include "engine/reserve.h"

#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/timed_wait.h"

enum { REST_US_MAX = 50 * 1000, PIECES_MAX = 1 << 20 };

struct reserve {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop; /* under lock */
    struct reserve_area areas[RESERVE_AREAS_MAX];
    int n;
};

int reserve_pieces(size_t bytes)
{
    size_t n = (bytes + RESERVE_PIECE_BYTES - 1) / RESERVE_PIECE_BYTES;
    return n > PIECES_MAX ? PIECES_MAX : (int)n;
}

/* False: stop. */
static bool rest(struct reserve *r, uint64_t us)
{
    uint64_t until = clock_us() + (us < REST_US_MAX ? us : REST_US_MAX);
    pthread_mutex_lock(&r->lock);
    while (!r->stop && timed_wait(&r->wake, &r->lock, until))
        ;
    bool go_on = !r->stop;
    pthread_mutex_unlock(&r->lock);
    return go_on;
}

static void *reserve_main(void *arg)
{
    struct reserve *r = arg;
    (void)prctl(PR_SET_NAME, "deja-reserve");
    for (int i = 0; i < r->n; i++)
        for (int part = 0; part < r->areas[i].n_parts; part++) {
            uint64_t start = clock_us();
            r->areas[i].touch(r->areas[i].arg, part, r->areas[i].n_parts);
            if (!rest(r, clock_us() - start)) return NULL;
        }
    return NULL;
}

struct reserve *reserve_start(const struct reserve_area *areas, int n)
{
    ASSERT(n >= 0 && n <= RESERVE_AREAS_MAX);
    struct reserve *r = xcalloc(1, sizeof *r);
    r->n = n;
    if (n) memcpy(r->areas, areas, (size_t)n * sizeof *areas);
    pthread_mutex_init(&r->lock, NULL);
    timed_cond_init(&r->wake);
    if (!pthread_create(&r->thread, NULL, reserve_main, r)) return r;
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
    return NULL;
}

void reserve_stop(struct reserve *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
}
