/* sample.cu - the end of a step: its picks. What the kernel reads crosses over in one copy, with the rest of the step where that was
 * recorded; what it found stays for the next step's ids and comes to the host in another copy (token ids alone, unless somebody wants
 * log-probabilities), with an event behind it. Each step in flight has pinned memory of its own for both. */
#include <string.h>

#include "engine/backend/cuda/gpu.h"
#include "engine/backend/cuda/sample.cuh"

static void launch_take_picks(int32_t *id, int n, const struct sample_head *head, cudaStream_t s)
{
    LAUNCH(take_picks, 1, SAMPLE_THREADS, 0, s, id, n, head);
}

void launch_sample(const struct sample_args &a, int n_rows, cudaStream_t s)
{
    LAUNCH(sample_rows, n_rows, SAMPLE_THREADS, 0, s, a);
}

static size_t words_of(const struct sample_row *r, int n_vocab)
{
    return 2 * ((size_t)r->n_bias + (size_t)r->n_seen) +
           (r->allowed ? (size_t)(n_vocab + 31) / 32 : 0);
}

/* What r points to goes behind *at words. */
static void fill(struct sample_params *p, const struct sample_row *r, int n_vocab, int32_t *words,
                 int *at)
{
    int n_words = (n_vocab + 31) / 32;
    *p = {r->logits,
          r->top_k,
          r->n_top_logprobs,
          r->temperature,
          r->top_p,
          r->min_p,
          r->repetition_penalty,
          r->presence_penalty,
          r->frequency_penalty,
          *at,
          r->n_bias,
          *at + 2 * r->n_bias,
          r->n_seen,
          -1,
          r->unheard,
          r->draw};
    if (r->n_bias) memcpy(words + *at, r->bias, (size_t)r->n_bias * sizeof *r->bias);
    *at += 2 * r->n_bias;
    if (r->n_seen) memcpy(words + *at, r->seen, (size_t)r->n_seen * sizeof *r->seen);
    *at += 2 * r->n_seen;
    if (!r->allowed) return;
    p->allowed_at = *at;
    memcpy(words + *at, r->allowed, (size_t)n_words * sizeof *words);
    *at += n_words;
}

static size_t params_bytes(int n_rows)
{
    return (size_t)n_rows * sizeof(struct sample_params);
}

size_t sample_bytes(const struct sample *s)
{
    size_t n_words = 1;
    for (int i = 0; i < s->n_rows; i++)
        n_words += words_of(&s->row[i], s->n_vocab);
    return params_bytes(s->n_rows) + n_words * sizeof(int32_t);
}

void sample_fill(uint8_t *to, const struct sample *s)
{
    for (int i = 0, at = 0; i < s->n_rows; i++)
        fill((struct sample_params *)to + i, &s->row[i], s->n_vocab,
             (int32_t *)(to + params_bytes(s->n_rows)), &at);
}

void resolve_ids(struct gpu *g, int32_t *id, const int32_t *host, int n)
{
    int i = 0;
    while (i < n && host[i] >= 0)
        i++;
    if (i == n || is_lost(g)) return;
    const uint8_t *picks = g->sample_out[g->last_out].p;
    ASSERT(picks);
    launch_take_picks(id, n, (const struct sample_head *)picks, g->stream);
}

/* What the host keeps of the rows until their picks are there. */
static void remember(struct flight *f, const struct sample *s)
{
    if (s->n_rows > f->rows_max) {
        mem_free(f->n_top);
        f->n_top = (int *)xcalloc((size_t)s->n_rows, sizeof *f->n_top);
        f->rows_max = s->n_rows;
    }
    f->n_rows = s->n_rows;
    f->report = false;
    for (int i = 0; i < s->n_rows; i++) {
        f->n_top[i] = s->row[i].n_top_logprobs;
        f->report |= f->n_top[i] >= 0;
    }
}

/* Picks, and their copy to f's host memory. */
static void pick(struct gpu *g, struct flight *f, const struct sample *s)
{
    size_t rows = (size_t)s->n_rows, head_bytes = rows * sizeof(struct sample_head),
           out_bytes = head_bytes + rows * sizeof(struct sample_top);
    const uint8_t *in = g->sent_at;
    if (g->sent != s->row) {
        size_t in_bytes = sample_bytes(s);
        uint8_t *packed = (uint8_t *)xcalloc(1, in_bytes),
                *to = (uint8_t *)need_apart(g, &g->sample_in, in_bytes);
        sample_fill(packed, s);
        upload(g, to, packed, in_bytes);
        mem_free(packed);
        in = to;
    }
    const uint8_t *before = g->sample_out[g->last_out].p;
    uint8_t *out = (uint8_t *)need_apart(g, &g->sample_out[!g->last_out], out_bytes),
            *host = (uint8_t *)need_pinned(g, &f->host, out_bytes);
    float *work =
        (float *)need_apart(g, &g->sample_work, rows * (size_t)s->n_vocab * sizeof(float));
    if (is_lost(g)) return;
    struct sample_args a = {s->logits,
                            s->n_vocab,
                            s->softcap,
                            (const struct sample_params *)in,
                            (const int32_t *)(in + params_bytes(s->n_rows)),
                            (const struct sample_head *)before,
                            work,
                            (struct sample_head *)out,
                            (struct sample_top *)(out + head_bytes)};
    launch_sample(a, s->n_rows, g->stream);
    g->last_out = !g->last_out;
    note(g, "a kernel", cudaGetLastError());
    note(g, "a download",
         cudaMemcpyAsync(host, out, f->report ? out_bytes : head_bytes, cudaMemcpyDeviceToHost,
                         g->stream));
}

static enum err told(const struct gpu *g, struct errmsg *e)
{
    if (!is_lost(g)) return OK;
    *e = g->failed;
    return ERR_UNAVAILABLE;
}

enum err gpu_submit(void *device, const struct sample *s, struct errmsg *e)
{
    struct gpu *g = on(device);
    struct flight *f = making(g);
    remember(f, s);
    if (s->n_rows) pick(g, f, s);
    g->sent = NULL;
    if (!is_lost(g)) note(g, "the end of a step", cudaEventRecord(f->over, g->stream));
    if (!is_lost(g)) g->n_flying++;
    return told(g, e);
}

enum err gpu_wait(void *device, struct sampler_pick_out *out, struct errmsg *e)
{
    struct gpu *g = on(device);
    ASSERT(g->n_flying > 0);
    struct flight *f = &g->flight[g->first];
    note(g, "a kernel", g->ranks ? settle(g) : cudaEventSynchronize(f->over));
    g->first = (g->first + 1) % BACKEND_FLIGHTS;
    g->n_flying--;
    f->staged = 0;
    if (is_lost(g)) return told(g, e);
    const struct sample_head *head = (const struct sample_head *)f->host.p;
    const struct sample_top *top = (const struct sample_top *)(head + f->n_rows);
    for (int i = 0; i < f->n_rows; i++) {
        out[i].token = head[i].token;
        out[i].logprob = head[i].logprob;
        out[i].n_top = f->n_top[i] < 0 ? 0 : top[i].n;
        for (int k = 0; k < out[i].n_top; k++)
            out[i].top[k] = {top[i].top[k].token, top[i].top[k].logprob};
    }
    return OK;
}
