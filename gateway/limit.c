/* limit.c - stage "limit": what the request may come to is reserved before any work, or it is refused with 429. The prompt is counted, the
 * answer is taken at its max_tokens. */
#include "gateway/limit.h"

#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gateway/body_edit.h"
#include "gateway/prompt_tokens.h"
#include "gateway/reply.h"
#include "gateway/series.h"
#include "gateway/token_estimate.h"

enum { PROXY_BODY_MAX = 4 << 20, OPTIONS_BYTES_MAX = 64 << 10 };

/* --- asking */
static void note_time(const struct limit_claim *c, struct gateway *gw)
{
    metric_observe(gw->series->limit_seconds, (double)(clock_us() - c->from_us) / 1e6);
}

static bool decide(struct exchange *x, const struct limit_verdict *v)
{
    struct limit_claim *c = x->limit;
    note_time(c, x->gw);
    limit_tell(x, v);
    c->tokens = v->tokens;
    if (v->allowed) return true;
    limit_refuse(x, c, v);
    x->limit = NULL;
    limit_claim_free(c);
    return false;
}

static void on_decided(void *arg, const struct limit_verdict *v)
{
    struct limit_claim *c = arg;
    struct exchange *x = c->x;
    c->x = NULL;
    if (decide(x, v))
        pipeline_resume(x);
    else
        pipeline_finish(x);
}

static enum step ask(struct exchange *x)
{
    struct limit_claim *c = x->limit;
    struct limit_verdict v;
    c->x = x;
    enum limit_answer answer =
        limits_reserve(x->gw->limits, &c->plan, c->reserved, &c->hold, &v, on_decided, c);
    if (answer == LIMIT_PENDING) return STEP_WAIT;
    c->x = NULL;
    return decide(x, &v) ? STEP_NEXT : STEP_DONE;
}

static struct limit_claim *claim_new(struct exchange *x, const struct limit_plan *p)
{
    struct limit_claim *c = xcalloc(1, sizeof *c);
    c->plan = *p;
    c->from_us = clock_us();
    x->limit = c;
    return c;
}

/* Where a request names no max_tokens the usual answer must not alone be more than what the limits ever hold. */
static double answer_tokens(const struct openai_request *r, const struct limit_claim *c)
{
    double n = r->answers > 0 ? r->answers : 1;
    if (r->kind == OPENAI_EMBEDDING) return 0;
    if (r->max_tokens_most >= 0) return n * r->max_tokens_most;
    double most = n * (double)c->plan.answer_tokens;
    for (int i = 0; i < c->plan.n; i++)
        for (int k = LIMIT_TOKENS_MIN; k <= LIMIT_TOKENS_DAY; k++) {
            const struct limit_bucket *b = &c->plan.buckets[i];
            if (b->limit[k] > 0) most = fmin(most, b->limit[k] - (double)c->prompt_tokens);
        }
    return fmax(most, 1);
}

static void estimate(struct limit_claim *c, const struct openai_request *r)
{
    if (!c->plan.tokens && !c->plan.money) return;
    double answer = answer_tokens(r, c);
    c->reserved.tokens = (double)c->prompt_tokens + answer;
    if (c->plan.money)
        c->reserved.cost =
            ((double)c->prompt_tokens * c->plan.price_prompt + answer * c->plan.price_completion) /
            1e6;
}

/* A stream tells its usage when asked to; the frame with it is kept from a client that did not ask (tape.h). */
static void ask_usage(struct exchange *x, const struct limit_plan *p)
{
    if (!x->req.stream || x->req.include_usage || !p->stream_usage || !(p->tokens || p->money))
        return;
    const json_t *given = json_object_get(x->req.body, "stream_options");
    json_t *options = json_is_object(given) ? json_copy((json_t *)(uintptr_t)given) : json_object();
    struct buf value, out;
    buf_init(&value, OPTIONS_BYTES_MAX);
    buf_init(&out, x->body.max);
    json_object_set_new(options, "include_usage", json_true());
    json_write(&value, options);
    json_decref(options);
    struct body_edit edit = {.name = "stream_options", .value = buf_view(&value), .add = true};
    struct str body = exchange_body(x);
    if (!buf_failed(&value) && body_edit(&out, body, &edit, 1) == OK) {
        buf_fini(&x->body);
        x->body = out;
        x->body_edited = true;
    } else {
        buf_fini(&out); /* then what comes is counted */
    }
    buf_fini(&value);
}

enum step stage_limit_count(struct exchange *x)
{
    struct limit_plan plan;
    if (!limits_plan(x->gw->limits, str_of(x->tenant), x->model, &plan) ||
        !(plan.tokens || plan.money))
        return STEP_NEXT;
    return prompt_read(x);
}

enum step stage_limit(struct exchange *x)
{
    struct limit_plan plan;
    if (!x->parsed) return stage_limit_proxy(x); /* embeddings of a form that is passed through */
    if (!limits_plan(x->gw->limits, str_of(x->tenant), x->model, &plan)) return STEP_NEXT;
    struct limit_claim *c = claim_new(x, &plan);
    c->prompt_tokens = x->prompt ? (int64_t)x->prompt->list.n : token_estimate_prompt(&x->req);
    if (x->prompt) c->reader = prompt_reader_ref(x->prompt->reader);
    estimate(c, &x->req);
    ask_usage(x, &plan);
    return ask(x);
}

/* What is passed through is not read: it counts as a request, and its JSON as tokens. */
enum step stage_limit_proxy(struct exchange *x)
{
    struct limit_plan plan;
    if (!str_eqz(http_req_method(x->r), "POST") ||
        !limits_plan(x->gw->limits, str_of(x->tenant), STR(""), &plan))
        return STEP_NEXT;
    struct limit_claim *c = claim_new(x, &plan);
    struct str body = http_req_body(x->r);
    if (content_type_is_json(http_req_header(x->r, "content-type")))
        c->prompt_tokens = token_estimate(str_sub(body, 0, PROXY_BODY_MAX));
    c->reserved.tokens = (double)c->prompt_tokens;
    return ask(x);
}

void limit_leave(struct exchange *x)
{
    struct limit_claim *c = x->limit;
    if (!c || !c->x) return;
    limits_abandon(c->hold);
    x->limit = NULL;
    limit_claim_free(c);
}
