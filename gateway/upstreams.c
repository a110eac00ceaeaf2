/* upstreams.c - see upstreams.h. Here: who there is, what is known of each, the beginning and the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/text_file.h"
#include "gateway/upstreams_internal.h"

enum {
    PROBE_BODY_MAX = 1024 * 1024,
    MODELS_BYTES_MAX = 64 * 1024,
    PROBE_ROUNDS_GOOD = 3,
    SPECS_BYTES_MAX = 256 * 1024
};

/* --- what is learnt of a target */
void upstream_done(struct upstream *t)
{
    ASSERT(t->inflight > 0);
    t->inflight--;
}

static void erred(struct upstream *t, struct breaker_call by, const char *why)
{
    uint64_t now = clock_ms();
    if (breaker_is_open(&t->breaker))
        breaker_failure(&t->breaker, by, now); /* the one probe: still not well */
    else
        breaker_sample(&t->breaker, false, by, now);
    if (breaker_is_open(&t->breaker))
        snprintf(t->why, sizeof t->why, "%s", why ? why : "errors of its own");
}

void upstream_judge(struct upstream *t, enum retry_verdict v, const struct breaker_call *by,
                    const char *why)
{
    struct breaker_call who = by ? *by : (struct breaker_call){0};
    bool was_open = breaker_is_open(&t->breaker);
    if (v == TARGET_UNKNOWN) {
        breaker_forget(&t->breaker);
        return;
    }
    if (v == TARGET_WELL) {
        if (by) breaker_success(&t->breaker), breaker_sample(&t->breaker, true, who, clock_ms());
        if (!by) breaker_probed(&t->breaker);
        t->last_ok_ms = clock_ms();
        t->why[0] = 0;
        if (was_open) log_info("gateway", "upstream %s answers again", t->url);
        return;
    }
    metric_add(t->failures, 1);
    if (v == TARGET_ERRED) {
        erred(t, who, why);
    } else {
        breaker_failure(&t->breaker, who, clock_ms());
        snprintf(t->why, sizeof t->why, "%s", why ? why : "no answer");
        buf_clear(&t->models); /* whoever comes back may serve another model */
    }
    if (was_open || !breaker_is_open(&t->breaker)) return;
    metric_add(t->opened, 1);
    log_warn("gateway", "upstream %s left alone for a while: %s", t->url, t->why);
}

void upstream_pause(struct upstream *t, uint64_t ms, bool hard)
{
    uint64_t until = clock_ms() + ms, *at = hard ? &t->paused_until_ms : &t->spare_until_ms;
    if (!ms || until <= *at) return;
    *at = until;
    if (hard)
        log_limited(LOG_WARN, "gateway", "upstream %s asks to wait %llu ms", t->url,
                    (unsigned long long)ms);
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
    buf_str(out, t->spec.origin.base_path[0] && v1 ? str_sub(path, 3, path.n - 3) : path);
}

/* --- who there is */
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

bool upstreams_have_keys(const struct upstreams *u)
{
    for (int i = 0; i < u->n; i++)
        if (u->items[i].key[0]) return true;
    return false;
}

bool upstreams_have_models(const struct upstreams *u)
{
    for (int i = 0; i < u->n; i++)
        if (u->items[i].spec.models[0]) return true;
    return false;
}

struct retry_budget *upstreams_budget(struct upstreams *u)
{
    return &u->budget;
}

/* --- life */
static enum err read_key(struct upstream *t, const struct gateway_options *o, struct errmsg *e)
{
    struct buf text;
    const char *env = t->spec.key_env[0] ? getenv(t->spec.key_env) : NULL;
    enum err code = OK;
    if (t->spec.key_env[0] && (!env || !env[0]))
        return err_set(e, ERR_NOT_FOUND, "key_env: the environment has no %s", t->spec.key_env);
    buf_init(&text, UPSTREAM_KEY_BYTES);
    if (t->spec.key_file[0])
        code = text_file_read(&text, "key_file", t->spec.key_file, e);
    else
        buf_z(&text, env ? env : t->engine ? "" : o->upstream_key);
    struct str key = str_trim(buf_view(&text));
    bool fits = key.n < sizeof t->key && str_find_char(key, '\n') < 0;
    if (code == OK && (!fits || (t->spec.key_file[0] && !key.n)))
        code = err_set(e, ERR_INVALID, "the key of %s: expected one line of 1 to %d characters",
                       t->url, UPSTREAM_KEY_BYTES - 1);
    if (code == OK && key.n) memcpy(t->key, key.p, key.n);
    if (text.p) memset(text.p, 0, text.n);
    buf_fini(&text);
    return code;
}

static struct metric *series(const struct upstream *t, struct metrics *m, const char *name,
                             const char *help)
{
    struct buf labels;
    buf_init(&labels, 1024);
    metrics_label(&labels, "upstream", str_of(t->url));
    struct metric *made =
        metrics_get(m, METRIC_COUNTER, name, labels.p ? labels.p : "", help, 0, 0);
    buf_fini(&labels);
    return made;
}

static enum err add(struct upstreams *u, const struct upstream_spec *spec, bool engine,
                    struct metrics *m, struct errmsg *e)
{
    if (u->n == UPSTREAMS_MAX)
        return err_set(e, ERR_TOO_LARGE, "more than %d upstreams", UPSTREAMS_MAX);
    struct upstream *t = &u->items[u->n];
    t->spec = *spec;
    t->engine = engine;
    t->owner = u;
    t->slots.fixed = spec->max_concurrency;
    struct http_origin origin =
        spec->origin; /* a copy: the compiler cannot see that the fields do not overlap */
    snprintf(t->url, sizeof t->url, "%s://%.150s:%d%.80s", origin.tls ? "https" : "http",
             origin.host, origin.port, origin.base_path);
    breaker_init(&t->breaker, u->o->breaker_failures, (uint64_t)u->o->breaker_open_ms);
    t->breaker.error_percent = u->o->breaker_error_percent;
    buf_init(&t->probe_body, PROBE_BODY_MAX);
    buf_init(&t->models, MODELS_BYTES_MAX);
    t->requests = series(t, m, "deja_upstream_requests_total", "calls begun there");
    t->failures = series(t, m, "deja_upstream_failures_total",
                         "calls there that ended in a 5xx, a broken answer or none");
    t->opened = series(t, m, "deja_upstream_opened_total", "times its breaker opened");
    u->n++;
    return read_key(t, u->o, e);
}

static enum err add_specs(struct upstreams *u, const char *where, struct str text,
                          struct metrics *m, struct errmsg *e)
{
    struct buf line;
    struct upstream_spec spec;
    enum err code = OK;
    buf_init(&line, SPEC_LINE_BYTES_MAX);
    while (code == OK && upstream_spec_next(&text, &line)) {
        code = buf_failed(&line)
                   ? err_set(e, ERR_TOO_LARGE, "a line is over %d bytes", SPEC_LINE_BYTES_MAX)
                   : upstream_spec_parse(buf_view(&line), &spec, e);
        if (code == OK) code = add(u, &spec, false, m, e);
    }
    buf_fini(&line);
    return code == OK ? OK : err_prefix(e, code, "%s", where);
}

static enum err add_file(struct upstreams *u, struct metrics *m, struct errmsg *e)
{
    struct buf text;
    if (!u->o->upstreams_file[0]) return OK;
    buf_init(&text, SPECS_BYTES_MAX);
    enum err code = text_file_read(&text, "upstreams_file", u->o->upstreams_file, e);
    if (code == OK) code = add_specs(u, u->o->upstreams_file, buf_view(&text), m, e);
    buf_fini(&text);
    return code;
}

static enum err add_engines(struct upstreams *u, struct metrics *m, struct errmsg *e)
{
    struct upstream_spec spec = {.weight = 1};
    struct str lines = str_of(u->o->engine_url), line;
    enum err code = OK;
    while (code == OK && str_next(&lines, '\n', &line)) {
        if (!str_trim(line).n) continue;
        code = http_origin_parse(str_trim(line), &spec.origin, e);
        if (code == OK) code = add(u, &spec, true, m, e);
    }
    return code == OK ? OK : err_prefix(e, code, "engine_url");
}

enum err upstreams_open(struct upstreams **out, struct loop *l, struct http_client *client,
                        const struct gateway_options *o, struct metrics *m, struct errmsg *e)
{
    struct upstreams *u = xcalloc(1, sizeof *u);
    u->loop = l;
    u->client = client;
    u->o = o;
    retry_budget_init(&u->budget, o->retry_budget_percent, clock_ms());
    enum err code = add_specs(u, "upstream", str_of(o->upstreams), m, e);
    if (code == OK) code = add_file(u, m, e);
    if (code == OK) code = add_engines(u, m, e);
    if (code == OK && !u->n)
        code = err_set(e, ERR_INVALID, "%s names no upstream", o->upstreams_file);
    if (code != OK) {
        upstreams_close(u);
        return code;
    }
    u->timer = loop_timer_new(l, upstreams_probe, u);
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
    memset(u->items, 0, sizeof u->items); /* keys */
    mem_free(u);
}
