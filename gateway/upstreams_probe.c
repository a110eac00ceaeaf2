/* upstreams_probe.c - asks each upstream now and then whether it is well: its list of models, the engine's /ready, or one token. A server
 * that answers closes its breaker without a user's request having to try it. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "gateway/upstreams_internal.h"

enum { PROBE_BODY_MAX = 1024 * 1024 };

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

/* The engine says how many sequences it computes together. A quarter more may be there, so that it always has the next one at hand. */
static void learn_slots(struct upstream *t)
{
    json_t *doc;
    if (t->spec.max_concurrency || json_parse(buf_view(&t->probe_body), 0, &doc, NULL) != OK)
        return;
    const json_t *n = json_object_get(doc, "max_num_seqs");
    if (json_is_integer(n) && json_integer_value(n) > 0 && json_integer_value(n) < 100000)
        t->slots.fixed = (int)(json_integer_value(n) + (json_integer_value(n) + 3) / 4);
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
        t->lost += code == ERR_UNAVAILABLE;
        upstream_judge(t, TARGET_BROKEN, NULL, e && e->text[0] ? e->text : err_text(code));
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
        upstream_judge(t, TARGET_WELL, NULL, NULL);
        if (t->engine && !listing) learn_slots(t);
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
    if (t->key[0] && !t->engine) {
        buf_printf(&auth, "Bearer %s", t->key);
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
    struct http_call_options call = {
        .origin = &t->spec.origin,
        .method = generate ? "POST" : "GET",
        .path = path.p,
        .headers = headers,
        .n_headers = n,
        .body = buf_view(&body),
        .connect_timeout_ms = t->spec.connect_ms ? t->spec.connect_ms : o->upstream_connect_ms,
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

void upstreams_probe(void *arg)
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
