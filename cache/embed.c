/* embed.c - from the embedder's thread back to the loop: the vector is copied into the job, the jobs of a pass are posted together. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cache/cache_internal.h"

struct embed_job {
    struct embed_job *next; /* of the same pass and cache */
    struct cache *c;
    cache_embedded *done;
    void *arg;
    enum err code;
    uint64_t started_us;
    size_t dim;
    float vec[];
};

static uint64_t passes_of(const struct cache *c)
{
    struct embedder_stats stats;
    embedder_stats_read(c->embedder, &stats);
    return stats.passes;
}

bool cache_embedder_usable(const struct cache *c)
{
    return c->embedder && !embed_watch_is_stuck(&c->watch, passes_of(c));
}

static void end(struct embed_job *job)
{
    struct cache *c = job->c;
    if (!c->closed && job->code == ERR_TIMEOUT)
        embed_watch_timed_out(&c->watch, passes_of(c), clock_ms());
    if (!c->closed) metric_observe(c->m.embed_ms, (double)(clock_us() - job->started_us) / 1000);
    job->done(job->arg, job->code, job->code == OK ? job->vec : NULL);
    mem_free(job);
    cache_unref(c);
}

static void back(void *arg) /* the loop's thread */
{
    for (struct embed_job *job = arg, *next; job; job = next) {
        next = job->next;
        end(job);
    }
}

/* Takes those of one cache out of *list, in their order. */
static struct embed_job *take_those_of(const struct cache *c, struct embed_job **list)
{
    struct embed_job *first = NULL, **last = &first;
    while (*list) {
        struct embed_job *job = *list;
        if (job->c != c) {
            list = &job->next;
            continue;
        }
        *list = job->next;
        job->next = NULL;
        *last = job;
        last = &job->next;
    }
    return first;
}

static void embedded(void *arg, enum err code, const float *vector, size_t dim,
                     bool more) /* the embedder's threads */
{
    static _Thread_local struct embed_job *held, *last; /* of the pass, until its last one */
    struct embed_job *job = arg;
    job->code = code == OK && dim != job->dim ? ERR_CORRUPT : code;
    if (job->code == OK) memcpy(job->vec, vector, dim * sizeof *vector);
    if (held)
        last->next = job;
    else
        held = job;
    last = job;
    while (!more && held) {
        struct loop *loop = held->c->loop; /* the embedder's queue is bounded */
        if (loop_post_unbounded(loop, back, take_those_of(held->c, &held)) != OK)
            log_limited(LOG_ERROR, "cache", "a vector came after the end of the loop");
    }
}

enum err cache_embed(struct cache *c, struct str text, int deadline_ms, cache_embedded *done,
                     void *arg)
{
    struct embed_job *job = try_calloc(1, sizeof *job + c->dim * sizeof(float));
    if (!job) return ERR_FULL;
    *job = (struct embed_job){
        .c = c, .done = done, .arg = arg, .started_us = clock_us(), .dim = c->dim};
    enum err code;
    cache_ref(c);
    if (embedder_recall(c->embedder, text, job->vec)) {
        code = loop_post(c->loop, back, job);
    } else if (c->watch.stuck && !embed_watch_allows(&c->watch, passes_of(c), clock_ms())) {
        code = ERR_UNAVAILABLE;
    } else {
        code = embedder_submit(c->embedder, text, deadline_ms, embedded, job);
    }
    if (code != OK) {
        mem_free(job);
        cache_unref(c);
    }
    return code;
}
