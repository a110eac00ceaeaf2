/* cache_rig.h - for tests of the cache: requests and answers from text, and waiting for a look-up on a running loop. */
#ifndef DEJA_TESTS_CACHE_RIG_H
#define DEJA_TESTS_CACHE_RIG_H
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/workers.h"
#include "cache/cache.h"
#include "cache/key.h"
#include "embeddings/embedder.h"

static const char *const RIG_EMBEDDER = TEST_DATA "/tiny-bert.gguf";

static inline bool rig_request(struct openai_request *r, const char *body)
{
    struct openai_error e = {0};
    if (openai_parse(r, OPENAI_CHAT, str_of(body), OPENAI_GATEWAY, &e) == OK) return true;
    printf("    %s\n", e.message);
    return false;
}

static inline struct cache_scope rig_scope(const char *tenant)
{
    return (struct cache_scope){.tenant = str_of(tenant), .ns = STR(""), .model = STR("m")};
}

/* The key of one user question under one system prompt. */
static inline bool rig_key_system(struct cache *c, const char *tenant, const char *system,
                                  const char *question, struct cache_key *out)
{
    struct buf body;
    struct openai_request r;
    buf_init(&body, 1 << 20);
    buf_z(&body, "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":");
    json_write_string(&body, str_of(system));
    buf_z(&body, "},{\"role\":\"user\",\"content\":");
    json_write_string(&body, str_of(question));
    buf_z(&body, "}]}");
    bool ok = rig_request(&r, body.p);
    if (ok) {
        struct cache_scope scope = rig_scope(tenant);
        ok = cache_key_make(c, &r, &scope, out) == OK;
        openai_request_fini(&r);
    }
    buf_fini(&body);
    return ok;
}

static inline bool rig_key(struct cache *c, const char *question, struct cache_key *out)
{
    return rig_key_system(c, "t", "s", question, out);
}

static inline bool rig_answer(struct openai_answer *a, const char *text, const char *finish)
{
    struct buf body;
    struct errmsg e = {0};
    buf_init(&body, 8 << 20);
    buf_z(&body, "{\"id\":\"x\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"m\","
                 "\"choices\":[{\"index\":0,\"message\":"
                 "{\"role\":\"assistant\",\"content\":");
    json_write_string(&body, str_of(text));
    buf_printf(&body,
               "},\"finish_reason\":\"%s\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":"
               "4,\"total_tokens\":7}}",
               finish);
    enum err code = openai_answer_parse(a, OPENAI_CHAT, buf_view(&body), &e);
    if (code != OK) printf("    %s\n", e.text);
    buf_fini(&body);
    return code == OK;
}

/* --- waiting on the loop */
struct rig_wait {
    struct loop *loop;
    struct loop_timer *timer;
    bool (*holds)(void *arg);
    void *arg;
    uint64_t until_ms;
    bool held;
};
static inline void rig_look(void *arg)
{
    struct rig_wait *w = arg;
    w->held = w->holds && w->holds(w->arg);
    if (w->held || clock_ms() >= w->until_ms)
        loop_stop(w->loop);
    else
        loop_timer_arm(w->timer, 1);
}
static inline bool rig_until(struct loop *l, bool (*holds)(void *arg), void *arg, int ms)
{
    struct rig_wait w = {
        .loop = l, .holds = holds, .arg = arg, .until_ms = clock_ms() + (uint64_t)ms};
    w.timer = loop_timer_new(l, rig_look, &w);
    loop_timer_arm(w.timer, 0);
    loop_run(l);
    loop_timer_free(w.timer);
    return w.held;
}

struct rig_found {
    int calls;
    enum cache_result result;
    char reason[64], entry[36], text[256];
    double similarity, threshold;
    int64_t age_s, stale_s;
};
static inline void rig_note(void *arg, const struct cache_found *f)
{
    struct rig_found *r = arg;
    r->calls++;
    r->result = f->result;
    r->similarity = f->similarity;
    r->threshold = f->threshold;
    r->age_s = f->age_s;
    r->stale_s = f->stale_s;
    snprintf(r->reason, sizeof r->reason, "%s", f->reason);
    snprintf(r->entry, sizeof r->entry, "%s", f->entry_id);
    struct str s =
        f->answer ? json_member_str(f->answer->choices[0].message, "content") : (struct str){"", 0};
    snprintf(r->text, sizeof r->text, "%.*s", (int)s.n, s.p ? s.p : "");
}
static inline bool rig_noted(void *arg)
{
    return ((struct rig_found *)arg)->calls > 0;
}

/* Looks up and waits. calls stays 0 when nothing came within 5 s. */
static inline struct rig_found rig_find_with(struct loop *l, struct cache *c,
                                             const struct cache_key *k,
                                             const struct cache_lookup_options *o)
{
    struct rig_found f = {0};
    struct cache_lookup *lookup = cache_find(c, k, o, rig_note, &f);
    if (!rig_until(l, rig_noted, &f, 30000)) cache_find_cancel(lookup);
    return f;
}
static inline struct rig_found rig_find(struct loop *l, struct cache *c, const char *question)
{
    struct cache_lookup_options o = {.max_age_s = -1};
    struct cache_key k;
    struct rig_found f = {0};
    if (!rig_key(c, question, &k)) return f;
    f = rig_find_with(l, c, &k, &o);
    cache_key_fini(&k);
    return f;
}
static inline const char *rig_keep_ttl(struct cache *c, const char *question, const char *text,
                                       int64_t ttl_s, char id[36])
{
    struct cache_key k;
    struct openai_answer a = {0};
    const char *why = NULL;
    struct cache_keep_options o = {.ttl_s = ttl_s, .tags = STR("faq"), .latency_ms = 5};
    if (!rig_key(c, question, &k) || !rig_answer(&a, text, "stop")) return "rig";
    enum err code = cache_keep(c, &k, &a, &o, id, &why);
    openai_answer_fini(&a);
    cache_key_fini(&k);
    return code == OK ? NULL : why ? why : "unknown";
}
static inline const char *rig_keep(struct cache *c, const char *question, const char *text)
{
    char id[36];
    return rig_keep_ttl(c, question, text, 0, id);
}

/* --- a loop that is full */
static inline void rig_nothing(void *arg)
{
    (void)arg;
}
struct rig_crowd {
    struct loop *loop;
    struct embedder *embedder;
    atomic_bool full;
};
static inline bool rig_wait_until(bool (*holds)(const struct rig_crowd *r),
                                  const struct rig_crowd *r)
{
    struct timespec ms = {0, 1000000};
    uint64_t until = clock_ms() + 20000;
    while (!holds(r) && clock_ms() < until)
        nanosleep(&ms, NULL);
    return holds(r);
}
static inline bool rig_is_full(const struct rig_crowd *r)
{
    return r->full;
}
static inline bool rig_is_done(const struct rig_crowd *r)
{
    struct embedder_stats s;
    embedder_stats_read(r->embedder, &s);
    return !s.queued && s.submitted == s.answered + s.timeouts + s.refused_text + s.cancelled;
}
static inline void rig_held(void *arg, enum err code, const float *vec, size_t dim, bool more)
{
    (void)code, (void)vec, (void)dim, (void)more;
    CHECK(rig_wait_until(rig_is_full, arg));
}
/* What is asked of the embedder from now on is answered once the loop is full. */
static inline void rig_hold(const struct rig_crowd *r)
{
    CHECK(embedder_submit(r->embedder, STR("held up"), 60000, rig_held, (void *)(uintptr_t)r) ==
          OK);
}
/* Posted: keeps the loop full until the embedder has answered all it was asked. */
static inline void rig_crowd(void *arg)
{
    struct rig_crowd *r = arg;
    struct timespec after = {0, 100000000};
    while (loop_post(r->loop, rig_nothing, NULL) == OK)
        ;
    r->full = true;
    CHECK(rig_wait_until(rig_is_done, r));
    nanosleep(&after, NULL); /* it counts, then hands over */
}

#endif
