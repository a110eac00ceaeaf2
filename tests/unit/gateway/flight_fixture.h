/* flight_fixture.h - for tests of flight_*.c: a gateway with no more than flights need, on a real redis-server with the library loaded, and
 * one flight with a ticket that nobody rides. */
#ifndef DEJA_TESTS_FLIGHT_FIXTURE_H
#define DEJA_TESTS_FLIGHT_FIXTURE_H
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "cache/library.h"
#include "gateway/flight_internal.h"
#include "gateway/join_table.h"
#include "tests/check.h"
#include "tests/unit/base/redis_fixture.h"

enum { PATIENCE_MS = 10000 };

struct sky {
    struct fixture redis;
    struct gateway gw;
    struct ticket t;
    struct flight *f;
};

struct said { /* the messages of one inbox */
    char kinds[4096];
    struct buf body;
    size_t end; /* the offset of the last 'e' */
    bool answered, gap;
    int64_t n;
};

static inline void sky_answered(void *arg, enum err code, const struct redis_reply *reply)
{
    struct said *s = arg;
    s->answered = true;
    if (code != OK || !reply) return;
    if (reply->kind == REDIS_INTEGER) s->n = reply->integer;
    for (size_t i = 0; i < reply->n_items; i++) { /* id, [f token k kind o offset d bytes] */
        const struct redis_reply *fields = &reply->items[i].items[1];
        size_t offset = strtoull(fields->items[5].text.p, NULL, 10);
        char kind = fields->items[3].text.p[0];
        if (i + 1 < sizeof s->kinds) s->kinds[i] = kind;
        if (kind == 'e') s->end = offset;
        if (kind != 'b') continue;
        s->gap |= offset > s->body.n;
        size_t known = s->body.n - offset;
        struct str d = fields->items[7].text;
        if (offset <= s->body.n && known < d.n)
            buf_str(&s->body, (struct str){d.p + known, d.n - known});
    }
}

static inline bool sky_is_answered(void *arg)
{
    return ((struct said *)arg)->answered;
}
static inline bool sky_is_quiet(void *arg)
{
    return ((struct sky *)arg)->f->waiting == 0;
}

static inline struct said sky_ask(struct sky *s, const char *command, const char *key)
{
    struct said said = {0};
    buf_init(&said.body, 64 << 20);
    redis_commandf(s->gw.redis, PATIENCE_MS, sky_answered, &said, command, key);
    CHECK(fixture_until(&s->redis, sky_is_answered, &said, PATIENCE_MS));
    return said;
}

/* What an inbox holds, once nothing is on its way. */
static inline struct said sky_heard(struct sky *s, const char *inbox)
{
    CHECK(fixture_until(&s->redis, sky_is_quiet, s, PATIENCE_MS));
    return sky_ask(s, "XRANGE %s - +", inbox);
}

static inline bool sky_open(struct sky *s)
{
    struct buf library;
    bool answered = false;
    if (!fixture_open(&s->redis)) return false;
    log_set_level(LOG_ERROR);
    s->gw.loop = s->redis.loop;
    s->gw.metrics = metrics_new();
    s->gw.o = (struct gateway_options){.redis = s->redis.url,
                                       .ns = "deja",
                                       .coalesce_max = 100,
                                       .coalesce_wait_ms = 600000,
                                       .inflight_max = 100};
    rng_seed(&s->gw.rng, 1);
    struct redis_options o = {.url = s->redis.url, .command_timeout_ms = PATIENCE_MS};
    if (redis_open(&s->gw.redis, s->gw.loop, &o, NULL) != OK ||
        !fixture_until(&s->redis, fixture_usable, s->gw.redis, PATIENCE_MS))
        return false;
    buf_init(&library, 4 << 20);
    library_write(&library);
    struct str argv[] = {STR("FUNCTION"), STR("LOAD"), STR("REPLACE"), buf_view(&library)};
    struct said loaded = {0};
    redis_command(s->gw.redis, 4, argv, PATIENCE_MS, sky_answered, &loaded);
    answered = fixture_until(&s->redis, sky_is_answered, &loaded, PATIENCE_MS);
    buf_fini(&library);
    s->gw.flights = flights_open(&s->gw);
    return answered && s->gw.flights;
}

static inline void sky_flight(struct sky *s, enum flight_role role)
{
    struct flights *fs = s->gw.flights;
    struct flight *f = xcalloc(1, sizeof *f);
    s->t.gw = &s->gw;
    s->t.ttl_s = 60;
    s->t.n_riders = 1; /* nobody that is told anything, but it must not end */
    headers_init(&s->t.headers);
    buf_init(&s->t.body, 64 << 20);
    s->t.flight = f;
    *f = (struct flight){.fs = fs, .t = &s->t, .role = role, .next = fs->all};
    if (fs->all) fs->all->prev = f;
    fs->all = f;
    f->timer = loop_timer_new(s->gw.loop, NULL, NULL);
    buf_init(&f->head, HEADERS_BYTES_MAX * 2);
    buf_init(&f->log, FLIGHT_LOG_BYTES);
    snprintf(f->lease, sizeof f->lease, "{deja}:flight:test");
    CHECK(flight_list(f, (struct hash128){1, 2}));
    s->f = f;
}

static inline void sky_close(struct sky *s)
{
    redis_close(s->gw.redis);
    flights_close(s->gw.flights);
    headers_fini(&s->t.headers);
    buf_fini(&s->t.body);
    metrics_free(s->gw.metrics);
    fixture_close(&s->redis);
}

static inline void said_fini(struct said *s)
{
    buf_fini(&s->body);
}

#endif
