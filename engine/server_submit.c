/* server_submit.c - an exchange's prompts into the engine, and the callbacks there: bytes of a
 * token become text that may be sent (whole characters, nothing of a stop string) on the step
 * thread, then travel to the loop as events. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/server.h"

enum { PIECE_MAX = 1 << 20 };

static struct token_event *event_new(struct exchange *x, int choice)
{
    struct choice_out *c = &x->choices[choice];
    struct token_event *ev = xcalloc(1, sizeof *ev + c->piece.n + 1);
    ev->exchange = x;
    ev->choice = choice;
    ev->at_us = clock_us();
    ev->n_text = c->piece.n;
    if (c->piece.n) memcpy(ev->text, c->piece.p, c->piece.n);
    buf_clear(&c->piece);
    return ev;
}

/* Step thread. */
static bool on_token(void *arg, const struct engine_token *t)
{
    struct submission *sub = arg;
    struct exchange *x = sub->exchange;
    int choice = sub->first_choice + t->choice;
    struct choice_out *c = &x->choices[choice];
    c->stopped = stream_text_feed(c->assembler, exchange_token_bytes(x, t->id), &c->piece);
    struct token_event *ev = event_new(x, choice);
    ev->id = t->id;
    ev->logprob = t->logprob;
    ev->n_top = t->n_top;
    if (t->n_top) memcpy(ev->top, t->top, (size_t)t->n_top * sizeof *t->top);
    ev->stopped = c->stopped;
    ev->released = stream_text_released(c->assembler);
    bool go_on = !c->stopped; /* before the hand-over: the exchange is the loop's then */
    server_deliver(x->server, ev);
    return go_on;
}

/* Step thread. */
static void on_end(void *arg, const struct engine_end *end)
{
    struct submission *sub = arg;
    struct exchange *x = sub->exchange;
    int choice = sub->first_choice + end->choice;
    struct choice_out *c = &x->choices[choice];
    if (!c->stopped) stream_text_finish(c->assembler, &c->piece);
    struct token_event *ev = event_new(x, choice);
    ev->is_end = true;
    ev->stopped = c->stopped;
    ev->end = *end;
    server_deliver(x->server, ev);
}

static void sampling_of(const struct exchange *x, struct sampler_params *p,
                        struct sampler_bias *biases)
{
    const struct openai_request *r = &x->request;
    const struct server_options *o = x->server->o;
    *p = sampler_params_default();
    p->temperature = (float)r->temperature;
    p->top_p =
        (float)r->top_p > 0 ? (float)r->top_p : 1e-6f; /* 0 asks for the likeliest token only */
    p->min_p = (float)r->min_p;
    p->top_k = r->top_k > 0 ? r->top_k : 0;
    p->repetition_penalty = (float)r->repetition_penalty;
    p->presence_penalty = (float)r->presence_penalty;
    p->frequency_penalty = (float)r->frequency_penalty;
    p->seed = r->has_seed ? (uint64_t)r->seed : o->has_seed ? o->seed : rng_entropy();
    p->n_top_logprobs = r->logprobs ? r->top_logprobs : -1;
    for (size_t i = 0; i < r->n_biases; i++)
        biases[i] = (struct sampler_bias){r->biases[i].token, r->biases[i].bias};
    p->bias = biases;
    p->n_bias = (int)r->n_biases;
}

static bool check_biases(struct exchange *x)
{
    const struct openai_request *r = &x->request;
    int n_vocab = tokenizer_size(x->server->tokenizer);
    if (r->n_biases > SAMPLER_BIAS_MAX) {
        openai_error_set(&x->error, 400, "invalid_request_error", "logit_bias", "",
                         "%zu biases are over the limit of %d", r->n_biases, SAMPLER_BIAS_MAX);
        return false;
    }
    for (size_t i = 0; i < r->n_biases; i++)
        if (r->biases[i].token >= n_vocab) {
            openai_error_set(&x->error, 400, "invalid_request_error", "logit_bias", "",
                             "token %d is outside the vocabulary of %d", r->biases[i].token,
                             n_vocab);
            return false;
        }
    return true;
}

static void explain(struct exchange *x, enum err code, const struct errmsg *e)
{
    const char *param = x->kind == OPENAI_CHAT ? "messages" : "prompt";
    switch (code) {
    case ERR_TOO_LARGE:
        openai_error_set(&x->error, 400, "invalid_request_error", param, "context_length_exceeded",
                         "%s", e->text);
        break;
    case ERR_FULL:
        metrics_rejected(x);
        openai_error_set(&x->error, 429, "rate_limit_error", "", "queue_full",
                         "the engine is busy: %s", e->text);
        break;
    case ERR_RANGE:
        openai_error_set(&x->error, 400, "invalid_request_error", "", "", "%s", e->text);
        break;
    default:
        openai_error_set(&x->error, 503, "server_error", "", "unavailable", "%s", e->text);
    }
}

static bool open_choices(struct exchange *x)
{
    struct str stops[OPENAI_STOPS_MAX];
    size_t n_stops = 0;
    for (size_t i = 0; i < x->request.n_stops; i++)
        if (x->request.stops[i].text.n)
            stops[n_stops++] = x->request.stops[i].text; /* an empty one stops nothing */
    for (int i = 0; i < x->n_choices; i++) {
        struct errmsg e = {0};
        buf_init(&x->choices[i].piece, PIECE_MAX);
        buf_init(&x->choices[i].text, 64 << 20);
        calls_open(x, i);
        if (!stream_text_new(&x->choices[i].assembler, stops, n_stops, &e)) continue;
        openai_error_set(&x->error, 400, "invalid_request_error", "stop", "", "%s", e.text);
        return false;
    }
    return true;
}

bool exchange_submit(struct exchange *x)
{
    struct server *s = x->server;
    struct sampler_params sampling;
    struct errmsg e = {0};
    x->n_choices = x->n_prompts * x->request.n;
    if (!check_biases(x) || !open_choices(x)) return false;
    struct sampler_bias *biases = xcalloc(x->request.n_biases + 1, sizeof *biases);
    sampling_of(x, &sampling, biases);
    for (int i = 0; i < x->n_prompts && !x->error.status; i++) {
        x->submissions[i] = (struct submission){.exchange = x, .first_choice = i * x->request.n};
        struct engine_submit_options o = {
            .prompt = x->prompts[i].ids,
            .n_prompt = (int)x->prompts[i].n,
            .n = x->request.n,
            .max_tokens =
                x->request.max_tokens > 0 ? x->request.max_tokens : s->o->max_tokens_default,
            .sampling = sampling,
            .adapter = x->adapter,
            .salt = x->salt,
            .priority = x->priority,
            .end_ids = s->end_ids,
            .n_end_ids = s->n_end_ids,
            .expected = x->expected.ids,
            .n_expected = (int)x->expected.n,
            .grammar = x->grammar,
            .ignore_end = json_is_true(json_object_get(x->request.body, "ignore_eos")),
            .on_token = on_token,
            .on_end = on_end,
            .arg = &x->submissions[i]};
        enum err code = engine_submit(s->engine, &o, &x->submissions[i].id, &e);
        if (code) {
            explain(x, code, &e);
            break;
        }
        x->submissions[i].submitted = true;
        x->n_open += x->request.n;
    }
    mem_free(biases);
    if (!x->error.status) {
        metrics_submitted(x);
        return true;
    }
    for (int i = 0; i < x->n_prompts; i++)
        if (x->submissions[i].submitted) engine_cancel(s->engine, x->submissions[i].id);
    return false;
}
