/* limit_settle.c - see limit.h: what a request came to, in tokens and money, and settling its claim by it. Where an upstream tells no
 * usage, what came is counted. */
#include <string.h>

#include "base/mem.h"
#include "gateway/exchange.h"
#include "gateway/limit.h"
#include "gateway/prompt_reader.h"
#include "gateway/ticket.h"
#include "gateway/token_estimate.h"

enum { EXACT_BYTES_MAX = 16 * 1024 }; /* some 10 MB a second: a millisecond and a half */

/* At the price of the fallback that answered; empty: of the model that was asked. */
static double cost_of(const struct gateway *gw, const struct limit_plan *p, struct str fallback,
                      const struct openai_usage *u)
{
    struct limit_price price = {p->price_prompt, p->price_completion};
    if (fallback.n) price = limits_price(gw->limits, fallback);
    return ((double)u->prompt_tokens * price.prompt +
            (double)u->completion_tokens * price.completion) /
           1e6;
}

void limit_claim_free(struct limit_claim *c)
{
    prompt_reader_unref(c->reader);
    mem_free(c);
}

static void settle(struct limit_claim *c, struct limit_amounts used, double saved)
{
    limits_settle(c->hold, used, saved);
    limit_claim_free(c);
}

double limit_hit_tokens(const struct limit_claim *c, const struct openai_usage *u)
{
    return c->plan.hit_tokens && u->known ? (double)(u->prompt_tokens + u->completion_tokens) : 0;
}

void limit_end(struct exchange *x)
{
    struct limit_claim *c = x->limit;
    if (!c) return;
    x->limit = NULL;
    if (!x->parsed) { /* passed through: what was estimated stays */
        bool reached = x->upstream_us && x->status < 500;
        settle(c, reached ? c->reserved : (struct limit_amounts){0, 0}, 0);
        return;
    }
    if (x->route == ROUTE_EMBEDDINGS) { /* what an upstream was asked for; the rest was there */
        struct openai_usage u = {.prompt_tokens = x->usage.known   ? x->usage.prompt_tokens
                                                  : x->upstream_us ? c->prompt_tokens
                                                                   : 0};
        bool reached = x->upstream_us && x->status < 500;
        settle(c,
               reached ? (struct limit_amounts){.tokens = (double)u.prompt_tokens,
                                                .cost = cost_of(x->gw, &c->plan, STR(""), &u)}
                       : (struct limit_amounts){0, 0},
               0);
        return;
    }
    bool saved = x->usage.known && (x->out.age_s >= 0 || !strcmp(x->out.cache, "coalesced"));
    struct limit_amounts used = {.tokens = saved ? limit_hit_tokens(c, &x->usage) : 0};
    settle(c, used, saved ? cost_of(x->gw, &c->plan, x->out.served_by, &x->usage) : 0);
}

void limit_pass_to_ticket(struct exchange *x, struct ticket *t)
{
    t->limit = x->limit;
    x->limit = NULL;
}

void limit_take_back(struct exchange *x, struct ticket *t)
{
    if (x->limit || !t->limit) return;
    x->limit = t->limit;
    t->limit = NULL;
}

static void settle_ticket(struct ticket *t, const struct openai_usage *u)
{
    struct limit_claim *c = t->limit;
    struct limit_amounts used = {.tokens = (double)(u->prompt_tokens + u->completion_tokens),
                                 .cost = cost_of(t->gw, &c->plan, ladder_fallback(t), u)};
    t->limit = NULL;
    settle(c, used, 0);
}

/* To the token where the tokenizer is known, as long as that is no work for a worker. */
struct came {
    const struct prompt_reader *reader;
    size_t exact_bytes;
    int64_t exact;
    struct token_estimate rest;
};

static void add_text(void *arg, struct str text)
{
    struct came *c = arg;
    if (!c->reader || c->exact_bytes + text.n > EXACT_BYTES_MAX) {
        token_estimate_add(&c->rest, text);
        return;
    }
    c->exact_bytes += text.n;
    c->exact += prompt_reader_count(c->reader, text);
}

/* What came of a stream, where no usage was told. */
static struct openai_usage count_stream(const struct ticket *t)
{
    struct came c = {.reader = t->limit->reader};
    openai_collector_each_text(t->collector, add_text, &c);
    return (struct openai_usage){.prompt_tokens = t->limit->prompt_tokens,
                                 .completion_tokens = c.exact + token_estimate_total(&c.rest)};
}

static struct openai_usage count_answer(const struct ticket *t, const struct openai_answer *a)
{
    struct token_estimate e = {0};
    for (int i = 0; i < a->n_choices; i++)
        token_estimate_add_json(&e, a->choices[i].message);
    return (struct openai_usage){.prompt_tokens = t->limit->prompt_tokens,
                                 .completion_tokens = token_estimate_total(&e)};
}

void ticket_settle_answer(struct ticket *t, const struct openai_answer *a)
{
    if (!t->limit || (!a && !t->collector)) return;
    struct openai_usage u = a ? a->usage : openai_collector_usage(t->collector);
    if (!u.known) u = a ? count_answer(t, a) : count_stream(t);
    settle_ticket(t, &u);
}

void ticket_settle_rest(struct ticket *t, enum err code, bool head_seen)
{
    struct openai_usage u = {0};
    if (!t->limit) return;
    bool good = head_seen && t->status / 100 == 2;
    if (t->collector) {
        ticket_settle_answer(t, NULL);
        return;
    }
    if (good && t->form == FORM_WHOLE && t->body.n) { /* an answer we cannot read */
        u.prompt_tokens = t->limit->prompt_tokens;
        u.completion_tokens = token_estimate(buf_view(&t->body));
    } else if (good ||
               (code == ERR_CANCELLED && !head_seen)) { /* it may be at work on the prompt */
        u.prompt_tokens = t->limit->prompt_tokens;
    }
    settle_ticket(t, &u);
}
