/* upstreams.c - see upstreams.h. */
#include "gateway/upstreams.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

enum { PROBE_BODY_MAX = 1024 * 1024, MODELS_BYTES_MAX = 64 * 1024, PROBE_ROUNDS_GOOD = 3 };

struct upstreams {
    struct loop *loop;
    struct http_client *client;
    const struct gateway_options *o;
    struct loop_timer *timer;
    int n;
    unsigned turn; /* ties go round */
    struct upstream items[UPSTREAMS_MAX];
};

/* --- choosing */
static bool serves(const struct upstream *t, struct str model)
{
    struct str lines = buf_view(&t->models), line;
    while (str_next(&lines, '\n', &line))
        if (str_eq(line, model)) return true;
    return false;
}

/* With both kinds configured the engine takes the models it serves, the others everything else. */
static bool is_candidate(const struct upstreams *u, const struct upstream *t, bool engine_serves)
{
    bool mixed = u->o->engine_url[0] && u->o->upstreams[0];
    return !mixed || t->engine == engine_serves;
}

struct upstream *upstreams_pick(struct upstreams *u, struct str model, uint32_t tried,
                                uint64_t *wait_ms)
{
    uint64_t now = clock_ms();
    bool engine_serves = false;
    uint32_t refused = tried;
    for (int i = 0; i < u->n; i++)
        engine_serves |= u->items[i].engine && serves(&u->items[i], model);
    *wait_ms = UINT64_MAX;
    for (int round = 0; round < u->n; round++) {
        struct upstream *best = NULL;
        for (int k = 0; k < u->n; k++) {
            int i = (int)((u->turn + (unsigned)k) % (unsigned)u->n);
            struct upstream *t = &u->items[i];
            if (refused & 1u << i || !is_candidate(u, t, engine_serves)) continue;
            if (!best || t->inflight < best->inflight) best = t;
        }
        if (!best) break;
        if (breaker_allow(&best->breaker, now)) {
            u->turn++;
            best->inflight++;
            *wait_ms = 0;
            return best;
        }
        uint64_t wait = breaker_wait_ms(&best->breaker, now);
        if (wait < *wait_ms) *wait_ms = wait;
        refused |= 1u << (best - u->items);
    }
    if (*wait_ms == UINT64_MAX) *wait_ms = 0;
    return NULL;
}

void upstream_done(struct upstream *t)
{
    ASSERT(t->inflight > 0);
    t->inflight--;
}

void upstream_judge(struct upstream *t, enum upstream_verdict v, const char *why)
{
    bool was_open = breaker_is_open(&t->breaker);
    if (v == UPSTREAM_UNKNOWN) {
        breaker_forget(&t->breaker);
        return;
    }
    if (v == UPSTREAM_GOOD) {
        breaker_success(&t->breaker);
        t->last_ok_ms = clock_ms();
        t->why[0] = 0;
        if (was_open) log_info("gateway", "upstream %s answers again", t->url);
        return;
    }
    breaker_failure(&t->breaker, clock_ms());
    snprintf(t->why, sizeof t->why, "%s", why ? why : "no answer");
    buf_clear(&t->models); /* whoever comes back may serve another model */
    if (!was_open && breaker_is_open(&t->breaker))
        log_warn("gateway", "upstream %s left alone for a while: %s", t->url, t->why);
}

int upstreams_index(const struct upstreams *u, const struct upstream *t)
{
    return (int)(t - u->items);
}
int upstreams_count(const struct upstreams *u)
{
    return u->n;
}

struct upstream *upstreams_at(struct upstreams *u, int i)
{
    ASSERT(i >= 0 && i < u->n);
    return &u->items[i];
}

bool upstream_is_ready(const struct upstream *t, uint64_t now_ms)
{
    uint64_t window = (uint64_t)t->owner->o->probe_ms * PROBE_ROUNDS_GOOD;
    if (!strcmp(t->owner->o->probe, "off")) return !breaker_is_open(&t->breaker);
    return t->last_ok_ms && now_ms - t->last_ok_ms <= window && !t->why[0];
}

void upstream_path(const struct upstream *t, struct str path, struct buf *out)
{
    bool v1 = str_starts(path, STR("/v1/")) || str_eq(path, STR("/v1"));
    buf_str(out, t->origin.base_path[0] && v1 ? str_sub(path, 3, path.n - 3) : path);
}

/* --- probes */
static void keep_models(struct upstream *t)
{
    json_t *doc, *data, *item;
    size_t i;
    if (json_parse(buf_view(&t->probe_body), 0, &doc, NULL) != OK) return;
    data = json_object_get(doc, "data");
    buf_clear(&t->models);
    json_array_foreach(data, i, item)
    {
        struct str id = json_member_str(item, "id");
        if (!id.n || str_find_char(id, '\n') >= 0) continue;
        buf_str(&t->models, id);
        buf_char(&t->models, '\n');
    }
    json_decref(doc);
}

static void probe_head(void *arg, const struct http_reply_head *head)
{
    ((struct upstream *)arg)->probe_status = head->status;
}
static void probe_body(void *arg, struct str bytes)
{
    buf_str(&((struct upstream *)arg)->probe_body, bytes);
}

static void probe_done(void *arg, enum err code, const struct errmsg *e)
{
    struct upstream *t = arg;
    char why[64];
    bool generate = !strcmp(t->owner->o->probe, "generate");
    t->probe = NULL;
    if (code == ERR_CANCELLED) return;
    if (code != OK) {
        upstream_judge(t, UPSTREAM_BAD, e && e->text[0] ? e->text : err_text(code));
        return;
    }
    /* Without generation, a server that knows us not (401) or has no model list (404) is still there. */
    bool listing = t->engine && !t->models.n;
    if (listing && t->probe_status / 100 == 2) {
        keep_models(t);
        t->last_probe_ms =
            0; /* go on to its /ready at once: only that one has seen the model answer */
        breaker_success(&t->breaker);
        return;
    }
    bool good = t->probe_status / 100 == 2 ||
                (!t->engine && !generate && (t->probe_status == 401 || t->probe_status == 404));
    if (good) {
        upstream_judge(t, UPSTREAM_GOOD, NULL);
        if (!t->engine && !generate && t->probe_status / 100 == 2) keep_models(t);
        return;
    }
    breaker_success(
        &t->breaker); /* it speaks HTTP: calls may go and report its errors themselves */
    snprintf(why, sizeof why, "probe answered %d", t->probe_status);
    snprintf(t->why, sizeof t->why, "%s", why);
}

static void probe(struct upstream *t)
{
    const struct gateway_options *o = t->owner->o;
    struct buf path, body, auth;
    struct http_header headers[2];
    size_t n = 0;
    bool generate = !strcmp(o->probe, "generate") && !t->engine;
    buf_init(&path, 512);
    buf_init(&body, 1024);
    buf_init(&auth, 8192);
    if (o->upstream_key[0] && !t->engine) {
        buf_printf(&auth, "Bearer %s", o->upstream_key);
        headers[n++] = (struct http_header){STR("authorization"), buf_view(&auth)};
    }
    if (generate) {
        buf_z(&body, "{\"model\":");
        json_write_string(&body, str_of(o->probe_model));
        buf_z(&body, ",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
        headers[n++] = (struct http_header){STR("content-type"), STR("application/json")};
    }
    struct str what = generate                   ? STR("/v1/chat/completions")
                      : t->engine && t->models.n ? STR("/ready")
                                                 : STR("/v1/models");
    upstream_path(t, what, &path);
    buf_clear(&t->probe_body);
    t->probe_status = 0;
    t->last_probe_ms = clock_ms();
    struct http_call_options call = {.origin = &t->origin,
                                     .method = generate ? "POST" : "GET",
                                     .path = path.p,
                                     .headers = headers,
                                     .n_headers = n,
                                     .body = buf_view(&body),
                                     .connect_timeout_ms = o->upstream_connect_ms,
                                     .first_byte_timeout_ms = generate ? 30000 : 5000,
                                     .idle_timeout_ms = 5000,
                                     .body_max = PROBE_BODY_MAX,
                                     .retry_stale = true};
    struct http_call_handler handler = {probe_head, probe_body, probe_done, t};
    t->probe = http_call(t->owner->client, &call, &handler);
    buf_fini(&path);
    buf_fini(&body);
    buf_fini(&auth);
}

static void tick(void *arg)
{
    struct upstreams *u = arg;
    uint64_t now = clock_ms(), pause = (uint64_t)u->o->probe_ms;
    for (int i = 0; i < u->n; i++) {
        struct upstream *t = &u->items[i];
        bool open = breaker_is_open(&t->breaker);
        if (t->probe || (!open && t->last_probe_ms && now - t->last_probe_ms < pause)) continue;
        if (open && breaker_wait_ms(&t->breaker, now) > 0) continue;
        probe(t);
    }
    /* Short steps while a breaker is open, so that a server that is back is seen soon. */
    loop_timer_arm(u->timer, pause < 250 ? pause : 250);
}

/* --- life */
static enum err add(struct upstreams *u, struct str url, bool engine, struct errmsg *e)
{
    if (u->n == UPSTREAMS_MAX)
        return err_set(e, ERR_TOO_LARGE, "more than %d upstreams", UPSTREAMS_MAX);
    struct upstream *t = &u->items[u->n];
    enum err code = http_origin_parse(url, &t->origin, e);
    if (code != OK) return err_prefix(e, code, "%s", engine ? "engine_url" : "upstream");
    t->engine = engine;
    t->owner = u;
    struct http_origin origin =
        t->origin; /* a copy: the compiler cannot see that the fields do not overlap */
    snprintf(t->url, sizeof t->url, "%s://%.150s:%d%.80s", origin.tls ? "https" : "http",
             origin.host, origin.port, origin.base_path);
    breaker_init(&t->breaker, u->o->breaker_failures, (uint64_t)u->o->breaker_open_ms);
    buf_init(&t->probe_body, PROBE_BODY_MAX);
    buf_init(&t->models, MODELS_BYTES_MAX);
    u->n++;
    return OK;
}

enum err upstreams_open(struct upstreams **out, struct loop *l, struct http_client *client,
                        const struct gateway_options *o, struct errmsg *e)
{
    struct upstreams *u = xcalloc(1, sizeof *u);
    struct str lines = str_of(o->upstreams), line;
    enum err code = OK;
    u->loop = l;
    u->client = client;
    u->o = o;
    while (code == OK && str_next(&lines, '\n', &line)) {
        line = str_trim(line);
        if (line.n) code = add(u, line, false, e);
    }
    if (code == OK && o->engine_url[0]) code = add(u, str_of(o->engine_url), true, e);
    if (code != OK) {
        upstreams_close(u);
        return code;
    }
    u->timer = loop_timer_new(l, tick, u);
    if (strcmp(o->probe, "off")) loop_timer_arm(u->timer, 1);
    *out = u;
    return OK;
}

void upstreams_close(struct upstreams *u)
{
    if (!u) return;
    loop_timer_free(u->timer);
    for (int i = 0; i < u->n; i++) {
        ASSERT(!u->items[i].probe); /* the HTTP client is freed first, which ends its calls */
        buf_fini(&u->items[i].probe_body);
        buf_fini(&u->items[i].models);
    }
    mem_free(u);
}
