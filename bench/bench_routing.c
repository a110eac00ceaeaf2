/* bench_routing.c - what routing by held KV brings, simulated on request traces with the gateway's own index and score. Reads traces in
 * the public Mooncake form (a JSON object a line: timestamp in ms, hash_ids: one a block of 512 tokens, equal for equal beginnings),
 * replicas are LRU caches of whole blocks; no queueing and no decode. Prints one
 * JSON object a policy and capacity, then the index's own speed. Run by bench_routing.py. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/prefix_hash.h"
#include "base/rng.h"
#include "cache/prefix_index.h"
#include "gateway/pick.h"
#include "gateway/route_score.h"

enum { REPLICAS = 8, BLOCK_TOKENS = 512, ROUNDS = 20000 };

struct request {
    uint64_t at_ms;
    struct hash128 *chain;
    size_t n;
};
struct trace {
    struct request *requests;
    size_t n, n_blocks;
};

/* --- traces */
static void add_request(struct trace *t, const json_t *line)
{
    const json_t *ids = json_object_get(line, "hash_ids"), *id;
    struct prefix_origin origin = {.seed = 1};
    struct request *r = &t->requests[t->n];
    size_t i;
    r->n = json_array_size(ids);
    if (!r->n) return;
    r->at_ms = (uint64_t)json_integer_value(json_object_get(line, "timestamp"));
    r->chain = xcalloc(r->n, sizeof *r->chain);
    struct hash128 parent = prefix_hash_start(&origin);
    json_array_foreach(ids, i, id)
    {
        int32_t token = (int32_t)json_integer_value(id);
        parent = r->chain[i] = prefix_hash_next(1, parent, &token, 1);
    }
    t->n_blocks += r->n;
    t->n++;
}

static void read_trace(struct trace *t, const char *path)
{
    static char line[1 << 20];
    FILE *f = fopen(path, "r");
    size_t room = 0;
    *t = (struct trace){0};
    if (!f) {
        fprintf(stderr, "bench_routing: %s cannot be read\n", path);
        exit(2);
    }
    while (fgets(line, sizeof line, f)) {
        json_t *doc = NULL;
        if (json_parse(str_trim(str_of(line)), 0, &doc, NULL) != OK) {
            fprintf(stderr, "bench_routing: %s: a line is not JSON\n", path);
            exit(2);
        }
        if (t->n == room)
            t->requests = xrealloc(t->requests, (room = room * 2 + 1024) * sizeof *t->requests);
        add_request(t, doc);
        json_decref(doc);
    }
    (void)fclose(f);
}

static void free_trace(struct trace *t)
{
    for (size_t i = 0; i < t->n; i++)
        mem_free(t->requests[i].chain);
    mem_free(t->requests);
}

/* --- replicas: an LRU of blocks each */
struct block {
    struct hash128 id;
    int newer, older, next;
};
struct replica {
    struct block *blocks;
    int *heads; /* [2^16] */
    int n, cap, newest, oldest;
    double work, load; /* blocks computed; the same, fading */
    double pass;
    uint64_t load_ms;
};

static int *head_of(struct replica *r, struct hash128 id)
{
    return &r->heads[id.hi & 0xffff];
}

static int find_block(struct replica *r, struct hash128 id)
{
    int b = *head_of(r, id);
    while (b >= 0 && !hash_eq(r->blocks[b].id, id))
        b = r->blocks[b].next;
    return b;
}

static void unlink_block(struct replica *r, int b)
{
    struct block *k = &r->blocks[b];
    *(k->newer < 0 ? &r->newest : &r->blocks[k->newer].older) = k->older;
    *(k->older < 0 ? &r->oldest : &r->blocks[k->older].newer) = k->newer;
}

static void link_block(struct replica *r, int b)
{
    r->blocks[b].newer = -1;
    r->blocks[b].older = r->newest;
    *(r->newest < 0 ? &r->oldest : &r->blocks[r->newest].newer) = b;
    r->newest = b;
}

static void replica_open(struct replica *r, int cap)
{
    *r = (struct replica){.cap = cap, .newest = -1, .oldest = -1};
    r->blocks = xcalloc((size_t)cap, sizeof *r->blocks);
    r->heads = xmalloc(sizeof(int) << 16);
    memset(r->heads, 0xff, sizeof(int) << 16);
}

static void replica_close(struct replica *r)
{
    mem_free(r->blocks);
    mem_free(r->heads);
}

static void enter_block(struct replica *r, struct hash128 id, struct prefix_index *told, int pod)
{
    int b = r->n < r->cap ? r->n++ : r->oldest;
    if (r->n == r->cap && b == r->oldest) {
        int *link = head_of(r, r->blocks[b].id);
        while (*link != b)
            link = &r->blocks[*link].next;
        *link = r->blocks[b].next;
        unlink_block(r, b);
        if (told) (void)prefix_index_remove(told, pod, 1, PREFIX_DEVICE, r->blocks[b].id);
    }
    r->blocks[b].id = id;
    r->blocks[b].next = *head_of(r, id);
    *head_of(r, id) = b;
    link_block(r, b);
    if (told) (void)prefix_index_store(told, pod, 1, PREFIX_DEVICE, id);
}

/* Blocks of the prompt that are there without a gap; afterwards all are, as far as they fit, the first ones used last. */
static size_t serve(struct replica *r, const struct request *q, struct prefix_index *told, int pod)
{
    size_t hit = 0, n = q->n < (size_t)r->cap ? q->n : (size_t)r->cap;
    while (hit < q->n && find_block(r, q->chain[hit]) >= 0)
        hit++;
    for (size_t i = n; i-- > 0;) {
        int b = find_block(r, q->chain[i]);
        if (b < 0) {
            enter_block(r, q->chain[i], told, pod);
            continue;
        }
        unlink_block(r, b);
        link_block(r, b);
    }
    return hit;
}

/* --- policies */
enum policy { RANDOM, ROUND_ROBIN, LEAST, PREFIX_ONLY, HISTORY, PRECISE, INFINITE, N_POLICIES };
static const char *const names[] = {"random",       "round_robin",  "least",   "prefix_only",
                                    "history_load", "precise_load", "infinite"};

struct sim {
    enum policy policy;
    struct replica replicas[REPLICAS];
    struct prefix_index *index;
    struct rng rng;
    unsigned turn;
    float weight;
    double passed;
    size_t promised, overclaimed, hits;
};

static void fade(struct replica *r, uint64_t now_ms)
{
    if (now_ms <= r->load_ms) return;
    r->load = route_fade(r->load, now_ms - r->load_ms);
    r->load_ms = now_ms;
}

static int choose(struct sim *s, const struct request *q, const struct prefix_match *m)
{
    struct pick_target t[REPLICAS];
    for (int i = 0; i < REPLICAS; i++) {
        struct replica *r = &s->replicas[i];
        fade(r, q->at_ms);
        t[i] = (struct pick_target){
            .allowed = true,
            .weight = 1,
            .pass = r->pass,
            .work = r->load * BLOCK_TOKENS,
            .matched =
                s->policy == LEAST ? 0 : (double)route_share(m->blocks[i], m->slow[i], (int)q->n)};
    }
    if (s->policy == RANDOM) return (int)rng_below(&s->rng, REPLICAS);
    if (s->policy == ROUND_ROBIN) return (int)(s->turn++ % REPLICAS);
    int best =
        pick_best(t, REPLICAS, true, s->policy == PREFIX_ONLY ? 0 : (double)s->weight, s->passed);
    s->replicas[best].pass = pick_taken(&t[best], &s->passed);
    return best;
}

static void route_one(struct sim *s, const struct request *q)
{
    struct prefix_match m = {0};
    bool precise = s->policy == PREFIX_ONLY || s->policy == PRECISE;
    if (s->index) prefix_index_match(s->index, q->chain, q->n, q->at_ms, &m);
    int i = s->policy == INFINITE ? 0 : choose(s, q, &m);
    struct replica *r = &s->replicas[i];
    size_t hit = serve(r, q, precise ? s->index : NULL, i);
    if (s->policy == HISTORY) prefix_index_guess(s->index, i, q->chain, q->n, q->at_ms);
    s->overclaimed += (size_t)m.blocks[i] > hit;
    s->hits += hit;
    fade(r, q->at_ms);
    r->work += (double)(q->n - hit);
    r->load += (double)(q->n - hit);
}

static void simulate(const struct trace *t, const char *name, enum policy policy, int cap,
                     float weight)
{
    static struct sim s;
    double max = 0, sum = 0;
    s = (struct sim){.policy = policy, .weight = weight};
    rng_seed(&s.rng, 7);
    bool indexed = policy == PREFIX_ONLY || policy == HISTORY || policy == PRECISE;
    if (indexed) s.index = prefix_index_new(256u << 20, 1);
    for (int i = 0; i < REPLICAS; i++) {
        replica_open(&s.replicas[i], policy == INFINITE ? (int)t->n_blocks + 1 : cap);
        if (policy == INFINITE) break;
        if (indexed) prefix_index_join(s.index, i, 1, policy != HISTORY);
    }
    for (size_t i = 0; i < t->n; i++)
        route_one(&s, &t->requests[i]);
    for (int i = 0; i < REPLICAS; i++) {
        sum += s.replicas[i].work;
        if (s.replicas[i].work > max) max = s.replicas[i].work;
    }
    int n = policy == INFINITE ? 1 : REPLICAS;
    printf("{\"trace\":\"%s\",\"cap\":%d,\"policy\":\"%s\",\"weight\":%.2f,\"hit_rate\":%.4f,"
           "\"imbalance\":%.3f,\"overclaim\":%.4f,"
           "\"requests\":%zu,\"evicted\":%llu}\n",
           name, cap, names[policy], (double)weight, (double)s.hits / (double)t->n_blocks,
           max / (sum / n), (double)s.overclaimed / (double)t->n, t->n,
           s.index ? (unsigned long long)prefix_index_stats(s.index).evicted : 0);
    for (int i = 0; i < n; i++)
        replica_close(&s.replicas[i]);
    prefix_index_free(s.index);
}

/* --- the index's own speed */
static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Of this thread: what others do on the machine is not counted. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void speed(void)
{
    enum { CHAIN = 64, CHAINS = 8192, PODS = 8 };
    struct prefix_index *x = prefix_index_new(256u << 20, 1);
    struct hash128 *ids = xcalloc((size_t)CHAINS * CHAIN, sizeof *ids);
    uint64_t *ns = xcalloc(ROUNDS, sizeof *ns), sum = 0;
    struct rng r;
    rng_seed(&r, 3);
    for (size_t i = 0; i < (size_t)CHAINS * CHAIN; i++)
        ids[i] = (struct hash128){rng_u64(&r), rng_u64(&r)};
    uint64_t from = cpu_ns(), events = 0;
    for (int p = 0; p < PODS; p++) {
        prefix_index_join(x, p, 1, true);
        for (size_t i = 0; i < (size_t)CHAINS * CHAIN; i++) {
            if ((i / CHAIN + (size_t)p) % 2) continue; /* half of the pods hold a chain */
            events += prefix_index_store(x, p, 1, PREFIX_DEVICE, ids[i]);
        }
    }
    for (size_t i = 0; i < (size_t)CHAINS * CHAIN; i += 3)
        for (int p = 0; p < PODS; p++)
            events += prefix_index_remove(x, p, 1, PREFIX_DEVICE,
                                          ids[i / CHAIN * CHAIN + CHAIN - 1 - i % 8]);
    double seconds = (double)(cpu_ns() - from) / 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        struct prefix_match m;
        const struct hash128 *chain = ids + rng_below(&r, CHAINS) * CHAIN;
        uint64_t start = cpu_ns();
        prefix_index_match(x, chain, CHAIN, 0, &m);
        ns[i] = cpu_ns() - start;
        sum += (uint64_t)m.blocks[0] + (uint64_t)m.blocks[1];
    }
    qsort(ns, ROUNDS, sizeof *ns, by_value);
    printf("{\"index\":true,\"chain_blocks\":%d,\"blocks\":%zu,\"lookup_p50_us\":%.2f,\"lookup_p99_"
           "us\":%.2f,\"events_per_s\":%.0f,\"checksum\":%llu}\n",
           CHAIN, prefix_index_stats(x).blocks, (double)ns[ROUNDS / 2] / 1e3,
           (double)ns[ROUNDS * 99 / 100] / 1e3, (double)events / seconds, (unsigned long long)sum);
    prefix_index_free(x);
    mem_free(ids);
    mem_free(ns);
}

int main(int argc, char **argv)
{
    static const int caps[] = {1000, 4000, 16000};
    float weight = 1;
    for (int a = 1; a < argc; a++) {
        struct trace t;
        if (!strncmp(argv[a], "--weight=", 9)) {
            weight = strtof(argv[a] + 9, NULL);
            continue;
        }
        const char *base = strrchr(argv[a], '/');
        read_trace(&t, argv[a]);
        for (size_t c = 0; c < 3; c++)
            for (enum policy p = RANDOM; p < N_POLICIES; p++)
                simulate(&t, base ? base + 1 : argv[a], p, caps[c], weight);
        free_trace(&t);
    }
    speed();
    return 0;
}
