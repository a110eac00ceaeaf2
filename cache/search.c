/* search.c - the nearest stored texts of questions. A small partition is searched at once on the loop; what takes longer is for a worker,
 * and questions that come while it searches wait in a line and are searched together: an index is read once for all of them. One worker
 * at a time, so that lines form only when there is more to do than it can. */
#include "base/mem.h"
#include "cache/lookup.h"

enum {
    TOGETHER = 8, /* their judging follows in one turn of the loop: some 0.1 ms each */
    QUERIES_MAX = TOGETHER * NEARBY_PLACES_MAX
};

struct search_job {
    struct cache *c;
    struct cache_lookup *l[TOGETHER];
    int n;
};

static void take_turn(struct cache *c);

/* Of every look-up that asks there. */
static void search_partition(struct partition *p, struct cache_lookup *const *l, int n)
{
    struct vector_query queries[QUERIES_MAX];
    size_t *found[QUERIES_MAX], count = 0;
    for (int i = 0; i < n; i++)
        for (int at = 0; at < l[i]->around.n_places; at++) {
            if (l[i]->around.places[at] != p) continue;
            found[count] = &l[i]->around.n_hits[at];
            queries[count++] = (struct vector_query){
                l[i]->vec, l[i]->around.wanted[at] + STALE_HITS_MAX, l[i]->around.hits[at], 0};
        }
    partition_search_many(p, queries, count);
    for (size_t i = 0; i < count; i++)
        *found[i] = queries[i].n;
}

static void search_all(struct cache_lookup *const *l, int n)
{
    struct partition *seen[QUERIES_MAX];
    int n_seen = 0;
    for (int i = 0; i < n; i++)
        for (int at = 0; at < l[i]->around.n_places; at++) {
            struct partition *p = l[i]->around.places[at];
            int k = 0;
            while (k < n_seen && seen[k] != p)
                k++;
            if (k < n_seen) continue;
            seen[n_seen++] = p;
            search_partition(p, l, n);
        }
}

static void run(void *arg) /* a worker */
{
    struct search_job *job = arg;
    search_all(job->l, job->n);
}

static void done(void *arg, bool cancelled)
{
    struct search_job *job = arg;
    struct cache *c = job->c;
    c->search_line.running = false;
    if (!cancelled) take_turn(c); /* the worker goes on while these are judged */
    for (int i = 0; i < job->n; i++) {
        struct cache_lookup *l = job->l[i];
        l->pending--;
        if (!l->cb)
            lookup_settle(l);
        else if (cancelled)
            lookup_miss(l, "search_cancelled");
        else
            lookup_judge(l);
    }
    if (cancelled) take_turn(c);
    mem_free(job);
    cache_unref(c);
}

static struct cache_lookup *leave_line(struct search_line *line)
{
    struct cache_lookup *l = line->first;
    line->first = l->behind;
    if (!line->first) line->last = NULL;
    l->behind = NULL;
    return l;
}

static void dismiss(struct cache_lookup *l)
{
    l->pending--;
    if (l->cb)
        lookup_miss(l, "busy");
    else
        lookup_settle(l);
}

/* Those of the line's first that are still wanted. */
static void fill(struct search_job *job, struct search_line *line)
{
    while (line->first && job->n < TOGETHER) {
        struct cache_lookup *l = leave_line(line);
        if (l->cb)
            job->l[job->n++] = l;
        else
            dismiss(l);
    }
}

/* The first of the line go to a worker, unless one is at it; when none can be had they miss. */
static void take_turn(struct cache *c)
{
    struct search_line *line = &c->search_line;
    while (line->first && !line->running) {
        struct search_job *job = xcalloc(1, sizeof *job);
        job->c = c;
        fill(job, line);
        if (!job->n) { /* after cache_close nobody waits, and there may be no workers */
            mem_free(job);
            return;
        }
        line->running = true;
        cache_ref(c);
        if (workers_submit(c->workers, c->loop, run, done, job) == OK) return;
        line->running = false;
        for (int i = 0; i < job->n; i++)
            dismiss(job->l[i]);
        mem_free(job);
        cache_unref(c);
    }
}

static void turn_comes(void *arg)
{
    struct cache *c = arg;
    c->search_line.posted = false;
    take_turn(c);
    cache_unref(c);
}

/* Once everything that waits for the loop now has been seen to: the vectors of one pass of the embedder come together. */
static void await_turn(struct cache *c)
{
    if (c->search_line.posted || c->search_line.running) return;
    cache_ref(c);
    c->search_line.posted = true;
    if (loop_post(c->loop, turn_comes, c) != OK) turn_comes(c);
}

static void stand_in_line(struct cache_lookup *l)
{
    struct search_line *line = &l->c->search_line;
    l->pending++;
    l->behind = NULL;
    if (line->last)
        line->last->behind = l;
    else
        line->first = l;
    line->last = l;
}

void lookup_search(struct cache_lookup *l)
{
    size_t n = 0;
    if (l->searches++) l->around.keep_s = 0; /* what has expired is in the way */
    nearby_want(&l->around, (size_t)l->knobs.top_k);
    for (int i = 0; i < l->around.n_places; i++)
        n += partition_count(l->around.places[i]);
    if (l->c->workers && n > SEARCH_INLINE_MAX) {
        stand_in_line(l);
        await_turn(l->c);
        return;
    }
    search_all(&l, 1);
    lookup_judge(l);
}
