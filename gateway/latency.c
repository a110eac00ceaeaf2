/* latency.c - see latency.h. */
#include "gateway/latency.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "gateway/exchange.h"
#include "gateway/series.h"

enum { N_TIMED_ROUTES = ROUTE_EMBEDDINGS + 1 };

static const char *const results[] = {"exact", "semantic", "stale", "coalesced",
                                      "miss",  "bypass",   "none"};
enum { N_RESULTS = sizeof results / sizeof results[0], RESULT_NONE = N_RESULTS - 1 };

static const char *const stages[N_TIMED] = {"",           "read",
                                            "limit",      "key",
                                            "find_exact", "find_similar",
                                            "prompt",     "route",
                                            "queue",      "upstream_first_byte",
                                            "upstream"};

struct latency {
    struct metrics *m;
    struct metric *first_byte[N_TIMED_ROUTES][N_RESULTS]; /* made when first seen */
    struct metric *per_token[N_TIMED_ROUTES][N_RESULTS];
    struct metric *stage[N_TIMED];
};

void stopwatch_turn(struct stopwatch *w, enum timed next, uint64_t now_us)
{
    if (w->now && now_us > w->since_us) w->us[w->now] += now_us - w->since_us;
    w->now = next;
    w->since_us = now_us;
}

struct latency *latency_new(struct metrics *m)
{
    struct latency *l = xcalloc(1, sizeof *l);
    char labels[48];
    l->m = m;
    for (int i = TIMED_READ; i < N_TIMED; i++) {
        snprintf(labels, sizeof labels, "stage=\"%s\"", stages[i]);
        l->stage[i] = metrics_get(m, METRIC_HISTOGRAM, "deja_stage_seconds", labels,
                                  "time requests spent in a stage of the gateway", 0.00001, 23);
    }
    return l;
}

void latency_free(struct latency *l)
{
    mem_free(l);
}

static int result_of(const struct exchange *x)
{
    for (int i = 0; i < RESULT_NONE; i++)
        if (!strcmp(x->out.cache, results[i])) return i;
    return RESULT_NONE;
}

static struct metric *series(struct latency *l, struct metric **known, enum route r, int result)
{
    char labels[64];
    bool first = known == &l->first_byte[r][result];
    if (*known) return *known;
    snprintf(labels, sizeof labels, "route=\"%s\",result=\"%s\"", route_name(r), results[result]);
    *known = first ? metrics_get(l->m, METRIC_HISTOGRAM, "deja_ttft_seconds", labels,
                                 "time from a request's first byte to the first byte of its answer",
                                 0.00005, 22)
                   : metrics_get(l->m, METRIC_HISTOGRAM, "deja_tpot_seconds", labels,
                                 "mean time per output token of a streamed answer after its first",
                                 0.0005, 15);
    return *known;
}

uint64_t latency_first_byte_us(const struct exchange *x, uint64_t now_us)
{
    return (x->first_us ? x->first_us : now_us) - x->started_us;
}

static bool compared(const struct exchange *x)
{
    return strcmp(x->out.cache, "exact") != 0 && x->gw->embedder && x->knobs.semantic &&
           x->req.kind == OPENAI_CHAT && !x->controls.skip_semantic &&
           strncmp(x->out.reason, "skipped", 7) != 0;
}

/* What the ticket knows; of riders that share a call only the first one's is counted. */
static void note_upstream(struct exchange *x)
{
    uint64_t *us = x->watch.us, queued = x->out.queued_us;
    if (!x->upstream_us || !strcmp(x->out.cache, "coalesced")) return;
    us[TIMED_QUEUE] = queued;
    us[TIMED_FIRST_BYTE] = x->head_us > queued ? x->head_us - queued : 0;
    us[TIMED_UPSTREAM] = x->upstream_us > queued ? x->upstream_us - queued : 0;
}

static void count_stages(struct latency *l, struct exchange *x)
{
    uint64_t *us = x->watch.us;
    note_upstream(x);
    if (us[TIMED_FIND] && compared(x)) {
        us[TIMED_SIMILAR] = us[TIMED_FIND];
        us[TIMED_FIND] = 0;
    }
    for (int i = TIMED_READ; i < N_TIMED; i++)
        if (us[i]) metric_observe(l->stage[i], (double)us[i] / 1e6);
}

/* Where no usage was told, a frame of the stream stands for a token. */
static void count_stream(struct latency *l, struct exchange *x, int result, uint64_t now_us)
{
    int64_t tokens = x->usage.known ? x->usage.completion_tokens : x->frames;
    if (!x->first_us || x->own_used || tokens < 2 || x->client_gone) return;
    metric_observe(series(l, &l->per_token[x->route][result], x->route, result),
                   (double)(now_us - x->first_us) / 1e6 / (double)(tokens - 1));
}

void latency_count(struct latency *l, struct exchange *x, uint64_t now_us)
{
    if ((int)x->route >= N_TIMED_ROUTES) return;
    stopwatch_turn(&x->watch, TIMED_NONE, now_us);
    count_stages(l, x);
    if (x->status / 100 != 2 && !x->first_us) return;
    int result = result_of(x);
    metric_observe(series(l, &l->first_byte[x->route][result], x->route, result),
                   (double)latency_first_byte_us(x, now_us) / 1e6);
    count_stream(l, x, result, now_us);
}
