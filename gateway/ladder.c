/* ladder.c - see ladder.h. */
#include "gateway/ladder.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/body_edit.h"
#include "gateway/fallback.h"
#include "gateway/limit.h"
#include "gateway/model_rules.h"
#include "gateway/pipeline.h"
#include "gateway/reply.h"
#include "gateway/series.h"
#include "gateway/ticket.h"

enum { ANSWER_BYTES_MAX = 1 << 20, REFUSED_WAIT_MS = 1000 };

struct ladder {
    struct ending first; /* what the riders are told when no step helps */
    const char *step;    /* static; NULL = none has served yet */
    bool pending;        /* the call is being cancelled, then the next step begins */
    int n_fallbacks;     /* asked so far */
    struct str model;    /* of the last one; borrowed from the ticket's rules */
    struct cache_key key;
    bool keyed, looked;
    struct cache_lookup *lookup;
};

void ladder_free(struct ladder *l)
{
    if (!l) return;
    cache_find_cancel(l->lookup);
    if (l->keyed) cache_key_fini(&l->key);
    ending_fini(&l->first);
    mem_free(l);
}

const struct cache_key *ladder_key(const struct ticket *t)
{
    const struct ladder *l = t->ladder;
    if (!l || !l->n_fallbacks) return t->keyed ? &t->key : NULL;
    return l->keyed ? &l->key : NULL;
}

struct str ladder_fallback(const struct ticket *t)
{
    return t->ladder && t->ladder->n_fallbacks ? t->ladder->model : (struct str){0};
}

static const char *step_of(const struct ticket *t)
{
    if (t->ladder && t->ladder->step) return t->ladder->step;
    return t->moved ? "elsewhere" : NULL;
}

void ladder_describe(struct exchange *x)
{
    if (!x->ticket) return;
    x->out.queued_us = x->ticket->queued_us;
    ticket_note_wait(x->ticket, x);
    if (x->out.degraded) return;
    x->out.degraded = step_of(x->ticket);
    if (!x->out.degraded || strcmp(x->out.degraded, "fallback")) return;
    model_rules_unref(x->served_rules);
    x->served_rules = model_rules_ref(x->ticket->rules);
    x->out.served_by = x->ticket->ladder->model;
}

/* --- fallback */
static void count_fallback(const struct ticket *t, struct str model)
{
    struct buf labels;
    buf_init(&labels, 1024);
    metrics_label(&labels, "model", model);
    metric_add(metrics_get(t->gw->metrics, METRIC_COUNTER, "deja_fallback_total",
                           labels.p ? labels.p : "",
                           "requests asked of a fallback model, by that model", 0, 0),
               1);
    buf_fini(&labels);
}

static void take_key(struct ticket *t, struct exchange *x)
{
    struct ladder *l = t->ladder;
    struct cache_scope scope = {
        .tenant = str_of(x->tenant), .ns = str_of(x->controls.ns), .model = l->model};
    if (l->keyed) cache_key_fini(&l->key);
    l->keyed = t->keyed && cache_key_make(t->gw->cache, &x->req, &scope, &l->key) == OK;
}

static bool ask_fallback(struct ticket *t, struct exchange *x)
{
    struct str model = t->ladder->model;
    struct buf body, value;
    buf_init(&body, t->gw->o.body_bytes_max + 64 * 1024);
    buf_init(&value, 8192);
    json_write_string(&value, model);
    struct body_edit edit = {.name = "model", .value = buf_view(&value), .add = true};
    bool good = body_edit(&body, exchange_body(x), &edit, 1) == OK;
    if (good) {
        ticket_forget_answer(t);
        /* also where another gateway's call was followed, which would have stored its answer there */
        t->store = t->ladder->keyed && !x->controls.no_store;
        count_fallback(t, model);
        ticket_call(t, x, model, buf_view(&body));
    }
    buf_fini(&value);
    buf_fini(&body);
    return good;
}

/* --- what is stored of a fallback */
/* Who asked for a fresh answer, or for one that is younger or nearer, is not served from the store. */
static bool takes_stored(const struct exchange *x, const struct cache_found *f)
{
    const struct controls *c = &x->controls;
    if (c->skip_lookup || c->bypass) return false;
    if (!f) return true;
    if (c->max_age_s >= 0 && f->age_s > c->max_age_s) return false;
    return f->result == CACHE_EXACT || (!c->skip_semantic && f->similarity >= c->threshold_min);
}

/* One look-up for all: by the knobs of the one that leads, and what the least trusting of them would take (equal in what they ask, they
 * may have different keys). */
static struct cache_knobs knobs_of(const struct ticket *t, const struct exchange *leader)
{
    struct cache_knobs k = leader->knobs;
    for (const struct exchange *x = t->riders; x; x = x->rider_next)
        if (x->knobs.trust_min > k.trust_min) k.trust_min = x->knobs.trust_min;
    return k;
}

static void climb(struct ticket *t);
static void serve_found(struct ticket *t, struct exchange *x, const struct cache_found *f);

static void on_stored(void *arg, const struct cache_found *f)
{
    struct ticket *t = arg;
    struct ladder *l = t->ladder;
    l->lookup = NULL;
    t->busy = true;
    for (struct exchange *x = t->riders, *next; x && f->result != CACHE_MISS; x = next) {
        next = x->rider_next;
        if (takes_stored(x, f)) serve_found(t, x, f);
    }
    struct exchange *x = ticket_leader(t);
    if (!x) {
        t->ended = true;
        t->ended_us = clock_us();
    } else if (!ask_fallback(t, x)) {
        climb(t);
    }
    t->busy = false;
    ticket_settle(t);
}

/* The same question may have been answered by the fallback before. */
static bool look_for_stored(struct ticket *t, struct exchange *leader)
{
    struct ladder *l = t->ladder;
    bool any = false, semantic = false;
    for (const struct exchange *x = t->riders; x; x = x->rider_next) {
        if (!takes_stored(x, NULL)) continue;
        any = true;
        semantic |= !x->controls.skip_semantic && x->req.kind == OPENAI_CHAT;
    }
    if (!any || !l->keyed) return false;
    struct cache_knobs knobs = knobs_of(t, leader);
    struct cache_lookup_options o = {.skip_semantic = !semantic,
                                     .threshold_min = leader->controls.threshold_min,
                                     .max_age_s = -1,
                                     .knobs = &knobs};
    l->lookup = cache_find(t->gw->cache, &l->key, &o, on_stored, t);
    return true;
}

static bool next_fallback(struct ticket *t, struct exchange *x)
{
    struct ladder *l = t->ladder;
    for (;;) {
        struct str model = fallback_of(t->rules->fallbacks, x->model, l->n_fallbacks);
        if (!model.p) return false;
        l->n_fallbacks++;
        if (!upstreams_serve(t->gw->upstreams, model)) continue;
        l->model = model;
        l->step = "fallback";
        take_key(t, x);
        if (look_for_stored(t, x) || ask_fallback(t, x)) return true;
    }
}

/* --- stale */
/* Seconds past its lifetime that x puts up with. Who asked for a fresh answer gets a stale one only if it said so. */
static int64_t stale_allowed(const struct exchange *x)
{
    const struct controls *c = &x->controls;
    if (c->stale_if_error_s >= 0) return c->stale_if_error_s;
    return c->skip_lookup || c->bypass ? 0 : x->knobs.stale_if_error_s;
}

static bool may_have(const struct exchange *x, const struct cache_found *f)
{
    const struct controls *c = &x->controls;
    bool exact = f->result == CACHE_EXACT;
    if (f->stale_s > stale_allowed(x) || (c->skip_lookup && c->stale_if_error_s < 0)) return false;
    if (!exact && (c->skip_semantic || f->similarity < c->threshold_min)) return false;
    if (c->max_age_s < 0) return true;
    return f->age_s <= c->max_age_s ||
           (c->stale_if_error_s > 0 && f->age_s - c->max_age_s <= c->stale_if_error_s);
}

static void serve_found(struct ticket *t, struct exchange *x, const struct cache_found *f)
{
    char reason[64];
    bool stale = f->stale_s > 0;
    if (strcmp(x->out.cache, "coalesced") != 0)
        limit_take_back(x, t); /* nothing is computed for it */
    x->out.cache = stale ? "stale" : f->result == CACHE_EXACT ? "exact" : "semantic";
    x->out.degraded = stale ? "stale" : NULL; /* else ladder_describe says it */
    x->out.age_s = f->age_s;
    x->out.stale_s = f->stale_s;
    x->out.similarity = f->similarity;
    snprintf(x->out.entry, sizeof x->out.entry, "%s", f->entry_id);
    x->out.nearest[0] = 0;
    snprintf(reason, sizeof reason, "%s%.50s", stale ? "stale:" : "", f->reason);
    outcome_reason(&x->out, reason);
    x->usage = f->answer->usage;
    limit_tell_hit(x);
    ticket_send_answer(t, x, f->answer);
}

static void finish(struct ticket *t);

static void on_found(void *arg, const struct cache_found *f)
{
    struct ticket *t = arg;
    t->ladder->lookup = NULL;
    t->busy = true;
    for (struct exchange *x = t->riders, *next; x && f->result != CACHE_MISS; x = next) {
        next = x->rider_next;
        if (may_have(x, f)) serve_found(t, x, f);
    }
    finish(t);
    t->busy = false;
    ticket_settle(t);
}

static bool look_up(struct ticket *t, struct exchange *leader)
{
    struct ladder *l = t->ladder;
    int64_t most = 0;
    bool semantic = false;
    for (const struct exchange *x = t->riders; x; x = x->rider_next) {
        int64_t s = stale_allowed(x);
        if (s > most) most = s;
        semantic |= s > 0 && !x->controls.skip_semantic && x->req.kind == OPENAI_CHAT;
    }
    if (l->looked || !t->keyed || !most) return false;
    l->looked = true;
    struct cache_knobs knobs = knobs_of(t, leader);
    struct cache_lookup_options o = {
        .skip_semantic = !semantic, .max_age_s = -1, .stale_s = most, .knobs = &knobs};
    l->lookup = cache_find(t->gw->cache, &t->key, &o, on_found, t);
    return true;
}

/* --- canned */
/* A client that asked for a form, or for several answers, would stumble over a sentence. */
static bool takes_canned(const struct exchange *x)
{
    struct str form = json_member_str(json_object_get(x->req.body, "response_format"), "type");
    return x->req.n <= 1 && (!form.n || str_eqz(form, "text"));
}

static bool canned_answer(const struct ticket *t, const struct exchange *x, struct openai_answer *a)
{
    struct buf json;
    struct errmsg why = {0};
    bool chat = t->kind == OPENAI_CHAT;
    buf_init(&json, ANSWER_BYTES_MAX);
    buf_printf(&json, "{\"id\":\"%s-canned\",\"object\":\"%s\",\"created\":%lld,\"model\":",
               chat ? "chatcmpl" : "cmpl", chat ? "chat.completion" : "text_completion",
               (long long)clock_wall_s());
    json_write_string(&json, x->model);
    buf_z(&json, chat
                     ? ",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
                     : ",\"choices\":[{\"index\":0,\"text\":");
    json_write_string(&json, str_of(t->gw->canned));
    buf_z(&json, chat ? "},\"finish_reason\":\"stop\"}]," : ",\"finish_reason\":\"stop\"}],");
    buf_z(&json, "\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0,\"total_tokens\":0}}");
    bool good = openai_answer_parse(a, t->kind, buf_view(&json), &why) == OK;
    if (!good) log_limited(LOG_ERROR, "gateway", "the canned answer cannot be given: %s", why.text);
    buf_fini(&json);
    return good;
}

static void serve_canned(struct ticket *t, struct exchange *x)
{
    struct openai_answer a;
    if (!t->gw->canned || !takes_canned(x) || !canned_answer(t, x, &a)) return;
    x->out.degraded = "canned";
    outcome_reason(&x->out, "canned");
    ticket_send_answer(t, x, &a);
    openai_answer_fini(&a);
}

/* --- the steps */
static void finish(struct ticket *t)
{
    struct ladder *l = t->ladder;
    t->ended_us = clock_us();
    ticket_each(t, serve_canned);
    l->step = "refused";
    ending_tell(&l->first, t);
}

static void climb(struct ticket *t)
{
    t->ladder->step = "refused";
    ending_tell_lines(&t->ladder->first, t);
    struct exchange *x = ticket_leader(t);
    if (x && next_fallback(t, x)) return;
    t->ladder->step = NULL;
    t->moved = false;
    if (!x || !look_up(t, x)) finish(t);
}

void ladder_next(struct ticket *t, struct ending *e)
{
    ticket_unlist(t);
    if (!t->ladder && !e->degrades) {
        ending_tell(e, t);
        return;
    }
    if (!t->ladder) {
        t->ladder = xcalloc(1, sizeof *t->ladder);
        t->ladder->first = *e;
        if (e->kind == ENDING_ERROR && !e->retry_ms) t->ladder->first.retry_ms = REFUSED_WAIT_MS;
        *e = (struct ending){0};
    }
    ending_fini(e); /* of a fallback: the first is what is told */
    if (t->call) {
        t->ladder->pending = true;
        call_cancel(t->call);
    } else {
        climb(t);
    }
}

bool ladder_waits(const struct ticket *t)
{
    return t->ladder && t->ladder->pending;
}

bool ladder_call_over(struct ticket *t)
{
    if (!t->ladder || !t->ladder->pending) return false;
    t->ladder->pending = false;
    climb(t);
    return true;
}
