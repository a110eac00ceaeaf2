/* pretend.h - the real engine over a pretended model, whose next token depends on every KV cell read through the block tables
 * (tests/unit/sched/fake_kv.h), and a client that remembers what it hears. */
#ifndef DEJA_TESTS_PRETEND_H
#define DEJA_TESTS_PRETEND_H
#include <math.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/backend/backend.h"
#include "engine/engine_private.h"
#include "tests/unit/sched/fake_kv.h"

enum { VOCAB = 60, TEXT_MAX = 256, GENERATED = 80 /* over the reserve promised at admission */ };

struct pretend {
    struct fake_kv kv;
    _Atomic int delay_us, steps, n_rows_max, moved, drafts, seqs; /* seqs: summed over steps */
    _Atomic int broken_at; /* rows of this position have no number among their logits; 0 = none */
    _Atomic int right;     /* tokens of each draft, a chain, all of them right; 0 = as it comes */
};

static inline void wait_us(int us)
{
    for (uint64_t until = clock_us() + (uint64_t)us; clock_us() < until;)
        ;
}

static inline void pretend_forward(void *arg, const struct model_batch *b, float *logits)
{
    struct pretend *p = arg;
    struct batch view = {.n_rows = b->n_rows,
                         .n_seqs = b->n_seqs,
                         .n_out = b->n_out,
                         .token = (int32_t *)b->token,
                         .pos = (int32_t *)b->pos,
                         .seq = (int32_t *)b->seq,
                         .out_row = (int32_t *)b->out_row,
                         .block_table = (const int32_t **)b->block_table,
                         .has_tree = b->slot != NULL,
                         .slot = (int32_t *)b->slot,
                         .tree_from = (int32_t *)b->tree_from,
                         .tree_mask = (uint64_t *)b->tree_mask};
    uint64_t hash[128];
    fake_forward(&p->kv, &view, hash);
    for (int i = 0; i < b->n_out; i++)
        for (int v = 0; v < VOCAB; v++)
            logits[i * VOCAB + v] = p->broken_at && b->pos[b->out_row[i]] == p->broken_at
                                        ? NAN
                                        : (float)(fake_mix(hash[i], v, 3) % 1000) / 100;
    if (p->delay_us) wait_us(p->delay_us);
    p->steps++;
    p->seqs += b->n_seqs;
    if (b->n_rows > p->n_rows_max) p->n_rows_max = b->n_rows;
}

static inline void pretend_copy(void *arg, int32_t dst, int32_t src, int n)
{
    struct fake_kv *k = &((struct pretend *)arg)->kv;
    memcpy(k->cells + dst * k->bt, k->cells + src * k->bt, (size_t)n * sizeof *k->cells);
}

static inline void pretend_move(void *arg, const struct kv_move *m, int n)
{
    struct pretend *p = arg;
    struct fake_kv *k = &p->kv;
    for (int i = 0; i < n; i++)
        k->cells[m[i].dst_block * k->bt + m[i].dst_at] =
            k->cells[m[i].src_block * k->bt + m[i].src_at];
    p->moved += n;
}

/* What it says after tokens[n] when it is greedy. */
static inline int32_t pretend_says(const int32_t *tokens, int n)
{
    uint64_t h = 1;
    int best = 0;
    for (int i = 0; i < n; i++)
        h = fake_mix(h, tokens[i], i);
    for (int v = 1; v < VOCAB; v++)
        if (fake_mix(h, v, 3) % 1000 > fake_mix(h, best, 3) % 1000) best = v;
    return best;
}

/* Right for a while, then not: the "model" is a hash, so the text ahead can be foretold. Every other draft is a tree, in which wrong nodes
 * stand before and behind the right ones. */
static inline void pretend_draft(void *arg, const struct choice *c, const int32_t *tokens, int n,
                                 struct draft *out)
{
    (void)c;
    struct pretend *p = arg;
    int32_t ahead[TEXT_MAX + SCHED_DRAFT_MAX];
    int depth = 0, at = DRAFT_ROOT, n_draft = (n + p->steps) % (SCHED_DRAFT_MAX + 1);
    bool tree = (n + p->steps) % 2 && !p->right;
    if (p->right) n_draft = p->right;
    p->drafts++;
    memcpy(ahead, tokens, (size_t)n * sizeof *tokens);
    for (out->n = 0; out->n < n_draft; depth++) {
        int32_t best = pretend_says(ahead, n + depth);
        if (tree && depth % 3 != 2 && out->n + 1 < n_draft) {
            out->token[out->n] = (best + 7) % VOCAB;
            out->parent[out->n++] = (int8_t)at;
        }
        ahead[n + depth] = out->token[out->n] =
            depth % 7 == 6 && !p->right ? (best + 1) % VOCAB : best;
        out->parent[out->n] = (int8_t)at;
        at = out->n++;
    }
}

static inline void pretend_read(void *arg, int32_t block, void *to)
{
    struct fake_kv *k = &((struct pretend *)arg)->kv;
    memcpy(to, k->cells + block * k->bt, (size_t)k->bt * sizeof *k->cells);
}

static inline void pretend_write(void *arg, int32_t block, const void *from)
{
    struct fake_kv *k = &((struct pretend *)arg)->kv;
    memcpy(k->cells + block * k->bt, from, (size_t)k->bt * sizeof *k->cells);
}

static inline void sizes_for_tests(struct engine_sizes *s)
{
    if (!s->block_size) s->block_size = 4;
    if (!s->max_len) s->max_len = 200;
    if (!s->max_num_seqs) s->max_num_seqs = 8;
    if (!s->max_batch) s->max_batch = 64;
    if (!s->queue_max) s->queue_max = 64;
    if (!s->n_blocks) s->n_blocks = 400;
    s->check_every_step = true;
}

static inline struct engine_forward forward_of(struct pretend *p, const struct engine_sizes *s)
{
    return (struct engine_forward){.arg = p,
                                   .forward = pretend_forward,
                                   .kv_copy = pretend_copy,
                                   .kv_move = pretend_move,
                                   .kv_read = pretend_read,
                                   .kv_write = pretend_write,
                                   .block_bytes = (size_t)s->block_size * sizeof(struct fake_cell),
                                   .draft = s->draft_rows ? pretend_draft : NULL,
                                   .n_vocab = VOCAB};
}

static inline struct engine *open_engine(struct pretend *p, struct engine_sizes s)
{
    memset(p, 0, sizeof *p);
    sizes_for_tests(&s);
    p->kv = fake_kv_new(s.n_blocks, 0, s.block_size, VOCAB);
    struct engine_forward f = forward_of(p, &s);
    struct engine *g = NULL;
    struct errmsg e = {0};
    CHECK_INT(engine_open_with(&g, &f, &s, &e), OK);
    return g;
}

static inline void shut(struct engine *g, struct pretend *p)
{
    engine_close(g);
    fake_kv_fini(&p->kv);
}

/* What a client sees of one choice. */
struct heard {
    int32_t text[TEXT_MAX];
    int stop_after;
    struct engine_end end;
    _Atomic int n, ends;
};
struct client {
    struct pretend *model; /* or NULL */
    int steps_at_end;
    struct heard choice[ENGINE_CHOICES_MAX];
    int n;
    uint64_t id;
};

static inline bool on_token(void *arg, const struct engine_token *t)
{
    struct heard *h = &((struct client *)arg)->choice[t->choice];
    h->text[h->n++] = t->id;
    return !h->stop_after || h->n < h->stop_after;
}

static inline void on_end(void *arg, const struct engine_end *end)
{
    struct heard *h = &((struct client *)arg)->choice[end->choice];
    struct client *c = arg;
    h->end = *end;
    if (c->model) c->steps_at_end = c->model->steps;
    h->ends++;
}

static inline enum err ask_seeded(struct engine *g, struct client *c, const int32_t *prompt,
                                  int n_prompt, int max_tokens, int n, float temperature)
{
    struct sampler_params sp = sampler_params_default();
    sp.temperature = temperature;
    sp.seed = 7;
    struct engine_submit_options o = {.prompt = prompt,
                                      .n_prompt = n_prompt,
                                      .n = n,
                                      .max_tokens = max_tokens,
                                      .sampling = sp,
                                      .on_token = on_token,
                                      .on_end = on_end,
                                      .arg = c};
    struct errmsg e = {0};
    c->n = n;
    return engine_submit(g, &o, &c->id, &e);
}

static inline enum err ask(struct engine *g, struct client *c, const int32_t *prompt, int n_prompt,
                           int max_tokens)
{
    return ask_seeded(g, c, prompt, n_prompt, max_tokens, 1, 0);
}

static inline bool wait_ended(struct client *c)
{
    uint64_t until = clock_ms() + 20000;
    for (int i = 0; i < c->n; i++)
        while (!c->choice[i].ends)
            if (clock_ms() > until) return false;
    return true;
}

static inline void make_prompt(int32_t *t, int n, int n_common, uint64_t seed)
{
    struct rng r;
    rng_seed(&r, seed);
    for (int i = 0; i < n; i++)
        t[i] = i < n_common ? i % VOCAB : (int32_t)rng_below(&r, VOCAB);
}

static inline void check_same(const struct heard *a, const struct heard *b, const char *how)
{
    CHECK_AT(a->n == b->n && !memcmp(a->text, b->text, (size_t)a->n * sizeof *a->text),
             "%s: another text than alone", how);
}

#endif
