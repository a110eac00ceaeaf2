/* replica_rig.h - for tests: two caches on one loop and one real redis-server on a unix socket, as two gateways would be. */
#ifndef DEJA_TESTS_REPLICA_RIG_H
#define DEJA_TESTS_REPLICA_RIG_H
#include "tests/check.h"
#include "tests/unit/base/redis_fixture.h"
#include "tests/unit/cache/cache_rig.h"

struct replica {
    struct redis *link;
    struct cache *cache;
};
struct rig {
    struct fixture f;
    struct embedder *embedder;
    struct workers *workers;
    struct metrics *metrics;
    struct replica a, b;
};

static inline bool synced(void *arg)
{
    struct cache_stats s;
    cache_stats(((struct replica *)arg)->cache, &s);
    return s.synced && s.redis_usable;
}

static inline bool open_replica(struct rig *r, struct replica *x)
{
    struct errmsg e = {0};
    struct redis_options ro = {.url = r->f.url, .command_timeout_ms = 200};
    struct cache_options o = {.ns = "test",
                              .exact = true,
                              .semantic = true,
                              .embed_deadline_ms = 5000,
                              .redis_deadline_ms = 1000,
                              .secret = 7,
                              .redis_url = r->f.url};
    bool ok = redis_open(&x->link, r->f.loop, &ro, &e) == OK &&
              cache_open(&x->cache, r->f.loop, x->link, r->embedder, r->workers, r->metrics, &o,
                         &e) == OK;
    if (!ok) printf("    %s\n", e.text);
    return ok && rig_until(r->f.loop, synced, x, 30000);
}

static inline void close_replica(struct replica *x)
{
    cache_close(x->cache);
    redis_close(x->link);
    x->cache = NULL;
    x->link = NULL;
}

static inline bool open_rig(struct rig *r, bool two)
{
    struct errmsg e = {0};
    struct embedder_options eo = {0};
    memset(r, 0, sizeof *r);
    if (!fixture_open(&r->f) || embedder_open(&r->embedder, RIG_EMBEDDER, &eo, &e) != OK)
        return false;
    r->metrics = metrics_new();
    r->workers = workers_new(1, 64);
    return open_replica(r, &r->a) && (!two || open_replica(r, &r->b));
}

static inline void close_rig(struct rig *r)
{
    if (r->a.cache) close_replica(&r->a);
    if (r->b.cache) close_replica(&r->b);
    embedder_close(r->embedder);
    workers_free(r->workers);
    fixture_close(&r->f);
    metrics_free(r->metrics);
}

static inline void run(struct rig *r, int ms)
{
    rig_until(r->f.loop, NULL, NULL, ms);
}
static inline struct rig_found find(struct rig *r, struct replica *x, const char *q)
{
    return rig_find(r->f.loop, x->cache, q);
}

/* Looks up until the result is the wanted one or (on a very busy machine) 20 s are over. */
static inline struct rig_found find_soon(struct rig *r, struct replica *x, const char *q,
                                         enum cache_result want)
{
    uint64_t until = clock_ms() + 20000;
    struct rig_found f = find(r, x, q);
    while (f.result != want && clock_ms() < until) {
        run(r, 20);
        f = find(r, x, q);
    }
    return f;
}

#define NEEDS_SERVER()                                                                             \
    if (!fixture_server_exists()) SKIP("no redis-server in PATH")

struct reply_seen {
    bool came;
    enum redis_kind kind;
    int64_t numbers[8]; /* the integers of an array, in order */
    int n_numbers;
    char text[256];
};
static inline void note_reply(void *arg, enum err code, const struct redis_reply *reply)
{
    struct reply_seen *s = arg;
    s->came = true;
    if (code != OK) return;
    s->kind = reply->kind;
    for (size_t i = 0; i < reply->n_items && s->n_numbers < 8; i++)
        if (reply->items[i].kind == REDIS_INTEGER)
            s->numbers[s->n_numbers++] = reply->items[i].integer;
    if (reply->kind == REDIS_INTEGER) s->numbers[s->n_numbers++] = reply->integer;
    snprintf(s->text, sizeof s->text, "%.*s", (int)reply->text.n,
             reply->text.p ? reply->text.p : "");
}
static inline bool reply_came(void *arg)
{
    return ((struct reply_seen *)arg)->came;
}
static inline bool link_usable(void *arg)
{
    return redis_usable(((struct rig *)arg)->a.link);
}
/* One command, its words given as they are; waits for the reply. */
static inline struct reply_seen tell_redis(struct rig *r, int n, const char *const *words)
{
    struct str argv[32];
    struct reply_seen seen = {0};
    for (int i = 0; i < n; i++)
        argv[i] = str_of(words[i]);
    rig_until(r->f.loop, link_usable, r, 20000); /* on a busy machine its breaker may have opened */
    redis_command(r->a.link, n, argv, 20000, note_reply, &seen);
    rig_until(r->f.loop, reply_came, &seen, 30000);
    return seen;
}
#define TELL(r, ...)                                                                               \
    tell_redis(r, (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)),              \
               (const char *const[]){__VA_ARGS__})

#endif
