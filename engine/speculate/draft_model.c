/* draft_model.c - see draft_model.h. */
#include "engine/speculate/draft_model.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/model/gguf.h"
#include "engine/model/model.h"

enum {
    SLOTS = 4, /* speculation does not pay for more sequences at a time on the machines measured */
    BLOCK_TOKENS = 16,
    READ_MAX = 64, /* tokens read in one step: the streams of others wait meanwhile */
    WARM_STEPS = 8
};

struct slot {
    int32_t *tokens; /* [context_max] what the KV blocks hold, so far */
    int n;
    uint64_t ticket, used; /* ticket 0 = free; used: the call that used it last */
};

struct draft_model {
    struct model *model;
    int n_vocab, context_max, blocks_a_slot;
    struct slot slot[SLOTS];
    int32_t *table; /* [SLOTS][blocks_a_slot]: each slot has its blocks for good */
    float *logits;
    uint64_t calls, tickets;
    double token_us;
};

static enum err same_vocabulary(const struct gguf *target, const struct gguf *draft,
                                struct errmsg *e)
{
    static const char key[] = "tokenizer.ggml.tokens";
    struct str *a = NULL, *b = NULL;
    size_t n_a, n_b, i = 0;
    enum err code = gguf_str_array(target, key, &a, &n_a, e);
    if (!code) code = gguf_str_array(draft, key, &b, &n_b, e);
    if (!code && n_a != n_b)
        code = err_set(e, ERR_INVALID,
                       "the draft model has %zu tokens and the model %zu: they need the same "
                       "vocabulary",
                       n_b, n_a);
    while (!code && i < n_a && str_eq(a[i], b[i]))
        i++;
    if (!code && i < n_a)
        code = err_set(e, ERR_INVALID,
                       "token %zu of the draft model is another than the model's: they need the "
                       "same vocabulary",
                       i);
    mem_free(a);
    mem_free(b);
    return code;
}

/* Computes tokens[from..to-1] of a slot; the last one's logits are left in m->logits when wanted. */
static void read_tokens(struct draft_model *m, int slot_i, const int32_t *tokens, int from, int to,
                        bool wanted)
{
    int32_t pos[READ_MAX], seq[READ_MAX] = {0}, out_row = to - from - 1;
    const int32_t *table = m->table + (size_t)slot_i * (size_t)m->blocks_a_slot;
    ASSERT(to - from >= 1 && to - from <= READ_MAX);
    for (int i = from; i < to; i++)
        pos[i - from] = i;
    struct model_batch b = {.n_rows = to - from,
                            .token = tokens + from,
                            .pos = pos,
                            .seq = seq,
                            .n_seqs = 1,
                            .block_table = &table,
                            .n_out = wanted,
                            .out_row = &out_row};
    model_forward(m->model, &b, m->logits);
    struct slot *s = &m->slot[slot_i];
    memcpy(s->tokens + from, tokens + from, (size_t)(to - from) * sizeof *tokens);
    s->n = to;
}

/* The likeliest tokens of the last logits; NaN counts as nothing. */
static struct draft_guess guess(const struct draft_model *m)
{
    struct draft_guess g = {.token = {0, 1, 2}, .p = {-INFINITY, -INFINITY, -INFINITY}};
    for (int32_t i = 0; i < m->n_vocab; i++) {
        float v = m->logits[i];
        if (!(v > g.p[DRAFT_MODEL_RANKS - 1])) continue;
        int k = DRAFT_MODEL_RANKS - 1;
        for (; k > 0 && v > g.p[k - 1]; k--)
            g.token[k] = g.token[k - 1], g.p[k] = g.p[k - 1];
        g.token[k] = i, g.p[k] = v;
    }
    float top = g.p[0], sum = 0;
    for (int32_t i = 0; i < m->n_vocab; i++)
        if (m->logits[i] > top - 15) sum += expf(m->logits[i] - top);
    for (int k = 0; k < DRAFT_MODEL_RANKS; k++)
        g.p[k] = sum > 0 ? expf(g.p[k] - top) / sum : 0;
    return g;
}

/* The slot of this ticket, else the one unused for longest. */
static int slot_of(struct draft_model *m, uint64_t *ticket)
{
    int oldest = 0;
    for (int i = 0; i < SLOTS; i++) {
        if (*ticket && m->slot[i].ticket == *ticket) return i;
        if (m->slot[i].used < m->slot[oldest].used) oldest = i;
    }
    *ticket = ++m->tickets;
    m->slot[oldest].ticket = *ticket;
    m->slot[oldest].n = 0;
    return oldest;
}

int draft_model_say(struct draft_model *m, uint64_t *ticket, const int32_t *tokens, int n_tokens,
                    struct draft_guess *out, int n)
{
    if (n_tokens + n > m->context_max) return 0;
    int slot_i = slot_of(m, ticket), same = 0;
    struct slot *s = &m->slot[slot_i];
    s->used = ++m->calls;
    int most = s->n < n_tokens - 1 ? s->n : n_tokens - 1; /* the last one is always computed */
    while (same < most && s->tokens[same] == tokens[same])
        same++;
    if (n_tokens - same > READ_MAX) {
        read_tokens(m, slot_i, tokens, same, same + READ_MAX, false);
        return 0;
    }
    uint64_t start_us = clock_us();
    bool clean = n_tokens - same <= 2; /* else reading is most of it */
    read_tokens(m, slot_i, tokens, same, n_tokens, true);
    for (int i = 0; i < n; i++) {
        out[i] = guess(m);
        if (i == n - 1) break;
        s->tokens[n_tokens + i] = out[i].token[0];
        read_tokens(m, slot_i, s->tokens, n_tokens + i, n_tokens + i + 1, true);
    }
    double us = (double)(clock_us() - start_us) / n;
    if (clean) m->token_us += 0.1 * ((us < 3 * m->token_us ? us : 3 * m->token_us) - m->token_us);
    return n;
}

void draft_model_forget(struct draft_model *m, uint64_t *ticket)
{
    for (int i = 0; *ticket && i < SLOTS; i++)
        if (m->slot[i].ticket == *ticket) m->slot[i] = (struct slot){.tokens = m->slot[i].tokens};
    *ticket = 0;
}

double draft_model_token_us(const struct draft_model *m)
{
    return m->token_us;
}

static void measure(struct draft_model *m)
{
    int32_t tokens[WARM_STEPS] = {0};
    for (int i = 0; i < WARM_STEPS; i++) {
        uint64_t start_us = clock_us();
        read_tokens(m, 0, tokens, i, i + 1, true);
        double us = (double)(clock_us() - start_us);
        if (i == 0 || us < m->token_us) m->token_us = us;
    }
    m->slot[0].n = 0;
}

enum err draft_model_open(struct draft_model **out, const struct draft_model_options *o,
                          const struct gguf *target, struct errmsg *e)
{
    *out = NULL;
    struct draft_model *m = xcalloc(1, sizeof *m);
    m->context_max = o->context_max;
    m->blocks_a_slot = (o->context_max + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    struct model_options mo = {.n_threads = o->n_threads,
                               .block_tokens = BLOCK_TOKENS,
                               .n_blocks = SLOTS * m->blocks_a_slot,
                               .max_batch_tokens = READ_MAX,
                               .max_seqs = 1,
                               .context_max = o->context_max,
                               .isa = o->isa};
    enum err code = model_open(&m->model, o->path, &mo, e);
    if (!code) code = same_vocabulary(target, model_gguf(m->model), e);
    if (code) {
        draft_model_close(m);
        return code;
    }
    m->n_vocab = model_info(m->model)->n_vocab;
    m->table = xcalloc((size_t)(SLOTS * m->blocks_a_slot), sizeof *m->table);
    for (int i = 0; i < SLOTS * m->blocks_a_slot; i++)
        m->table[i] = i;
    for (int i = 0; i < SLOTS; i++)
        m->slot[i].tokens = xcalloc((size_t)o->context_max, sizeof(int32_t));
    m->logits = xcalloc((size_t)m->n_vocab, sizeof *m->logits);
    measure(m);
    *out = m;
    return OK;
}

void draft_model_close(struct draft_model *m)
{
    if (!m) return;
    model_close(m->model);
    for (int i = 0; i < SLOTS; i++)
        mem_free(m->slot[i].tokens);
    mem_free(m->table);
    mem_free(m->logits);
    mem_free(m);
}
