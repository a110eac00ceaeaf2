/* plan.c - see plan.h. What is not weights or KV was fitted once to what a running engine holds and is tested against one. */
#include "engine/plan.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "engine/backend/collective.h"
#include "engine/model/shard.h"

enum {
    PROGRAM_BYTES = 20 << 20,   /* measured: code and libraries 12, HTTP front, logs and heap 8 */
    TOKEN_BYTES = 64,           /* tables of the tokenizer a vocabulary entry, beside its text */
    MERGE_BYTES = 24,           /* a merge rule */
    MEAN_CONTEXT = 500,         /* tokens of a typical chat, for "expected" */
    SAMPLER_BYTES_A_TOKEN = 12, /* sampler.h */
    DEVICE_SPLIT = 512,         /* a context over it is attended to in parts on a GPU */
    DEVICE_PARTS_BYTES = 128 << 20,
    ACTIVATION_EXTRA_PERCENT = 45 /* rounded activations a float row is also kept as */
};

const char *const plan_term_names[PLAN_TERMS] = {"weights", "kv",         "activations", "logits",
                                                 "rope",    "vocabulary", "swap",        "program"};

struct counted {
    uint64_t bytes; /* repacked */
    double macs;    /* also: numbers */
};

/* One matrix, or the experts of a layer in one tensor. */
static void add_tensor(struct counted *to, const struct gguf_tensor *t, const char *device)
{
    if (!t) return;
    const struct gguf_tensor *whole = t->cut ? t->cut->whole : t;
    to->bytes +=
        weight_bytes_on(device, t->type, (int)t->dims[1], (int)t->dims[0]) * (uint64_t)t->dims[2];
    to->macs += (double)whole->dims[0] * (double)whole->dims[1] * (double)whole->dims[2];
}

static void add_linear(struct counted *to, const struct plan_linear *l, const char *device)
{
    add_tensor(to, l->weight, device);
    if (l->bias) to->bytes += (uint64_t)l->bias->dims[0] * 4;
}

static void add_layer(const struct plan_layer *l, const char *device, struct counted *dense,
                      struct counted *routed)
{
    const struct plan_mixture *x = &l->mixture;
    const struct plan_linear *all[] = {&l->q,         &l->k,          &l->v,    &l->attn_out,
                                       &l->gate,      &l->up,         &l->down, &x->shared_gate,
                                       &x->shared_up, &x->shared_down};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        add_linear(dense, all[i], device);
    add_tensor(dense, x->router, device);
    add_tensor(dense, x->shared_router, device);
    add_tensor(routed, x->gate, device);
    add_tensor(routed, x->up, device);
    add_tensor(routed, x->down, device);
}

static void count_weights(struct plan *p, const struct model_plan *m, const char *device)
{
    struct counted dense = {8 * (uint64_t)m->n_embd * (uint64_t)m->n_layer, 0}, routed = {0, 0},
                   embed = {0, 0};
    for (int i = 0; i < m->n_layer; i++)
        add_layer(&m->layers[i], device, &dense, &routed);
    add_tensor(&dense, m->output ? m->output : m->token_embd, device);
    if (m->output) add_tensor(&embed, m->token_embd, device);
    double used = m->experts.n ? (double)m->experts.n_used / m->experts.n : 0;
    p->n_experts = m->experts.n;
    p->n_experts_used = m->experts.n_used;
    p->bytes[PLAN_WEIGHTS] = dense.bytes + routed.bytes + embed.bytes;
    p->read_per_token = dense.bytes;
    p->expert_bytes = routed.bytes;
    p->macs_per_token = dense.macs + routed.macs * used;
    p->parameters = dense.macs + routed.macs + embed.macs;
    p->active_parameters = p->parameters - routed.macs * (1 - used);
}

static uint64_t text_bytes(const struct gguf *g)
{
    struct errmsg e;
    struct str *tokens = NULL;
    size_t n = 0, merges = 0;
    uint64_t bytes = 0;
    if (!gguf_str_array(g, "tokenizer.ggml.tokens", &tokens, &n, &e))
        for (size_t i = 0; i < n; i++)
            bytes += tokens[i].n + TOKEN_BYTES;
    mem_free(tokens);
    tokens = NULL;
    if (!gguf_str_array(g, "tokenizer.ggml.merges", &tokens, &merges, &e))
        bytes += merges * MERGE_BYTES;
    mem_free(tokens);
    return bytes;
}

/* Numbers a row has in the feed-forward: of a mixture, in all experts it passes. */
static uint64_t ff_width(const struct model_plan *m)
{
    uint64_t all = (uint64_t)m->experts.n_used * (uint64_t)m->experts.n_ff,
             shared = (uint64_t)m->experts.n_ff_shared;
    if (!m->experts.n) return (uint64_t)m->n_ff;
    return all > shared ? all : shared;
}

/* On an accelerator blocks are laid out in its way, every row of the largest step has room for logits, and the sampler works beside
 * them; the first host to know is the one that gives the memory of all this. */
static void plan_for_device(struct plan *p, const struct model_plan *m,
                            const struct engine_sizes *s, const struct engine_options *o)
{
    struct kv_options k = {.n_layers = m->n_layer,
                           .n_kv_heads = m->n_kv_head,
                           .head_dim = m->head_dim,
                           .n_blocks = s->n_blocks,
                           .block_tokens = s->block_size,
                           .type = o->kv_type};
    size_t block;
    if (!kv_block_bytes_on(o->device, &k, &block, NULL)) {
        p->bytes[PLAN_KV] = (uint64_t)block * (uint64_t)s->n_blocks;
        p->kv_bytes_per_token = block / (uint64_t)s->block_size;
    }
    p->bytes[PLAN_LOGITS] = (uint64_t)m->n_vocab * 4 * (uint64_t)(s->max_batch + s->max_num_seqs);
    /* rounded activations in all forms a mixed file may need, and parts of long contexts */
    uint64_t rounded = ff_width(m), in = (uint64_t)m->experts.n_used * (uint64_t)m->n_embd;
    if (rounded < in) rounded = in; /* of a mixture: a copy for every expert a row goes to */
    p->bytes[PLAN_ACTIVATIONS] += (uint64_t)s->max_batch * rounded * 8;
    if (s->max_len > DEVICE_SPLIT) p->bytes[PLAN_ACTIVATIONS] += DEVICE_PARTS_BYTES;
    p->device = o->device;
    for (int i = PLAN_WEIGHTS; i <= PLAN_ROPE; i++)
        p->device_bytes += p->bytes[i];
}

/* Bytes that were counted are the first rank's, who has the most of each kind. */
static void plan_for_ranks(struct plan *p, const struct model_plan *m, const struct engine_sizes *s)
{
    uint64_t parts = (uint64_t)collective_most(m->n_vocab, p->n_ranks) * (uint64_t)s->max_batch * 4,
             gathered = p->device ? (uint64_t)p->n_ranks * parts : 0;
    p->bytes[PLAN_LOGITS] += parts + gathered;
    if (p->device) p->device_bytes += parts + gathered;
    for (int i = PLAN_WEIGHTS; i <= PLAN_ROPE; i++)
        p->bytes[i] *= (uint64_t)p->n_ranks;
    p->read_per_token *= (uint64_t)p->n_ranks;
    p->expert_bytes *= (uint64_t)p->n_ranks;
    if (!p->device) p->kv_bytes_per_token *= (uint64_t)p->n_ranks; /* of a pool they share */
}

void plan_make(struct plan *out, const struct model_plan *m, const struct engine_sizes *s,
               const struct engine_options *o, const struct gguf *g)
{
    uint64_t rows = (uint64_t)s->max_batch, ff = ff_width(m),
             wide = 2 * (uint64_t)m->n_embd + 2 * (uint64_t)m->n_head * (uint64_t)m->head_dim +
                    2 * (uint64_t)m->n_kv_head * (uint64_t)m->head_dim + 2 * ff;
    const struct plan_experts *x = &m->experts;
    if (x->n) /* each expert's result, normalised rows, scores, the shared expert's result */
        wide +=
            (uint64_t)m->n_embd * (uint64_t)(x->n_used + 1 + (x->n_ff_shared > 0)) + (uint64_t)x->n;
    *out = (struct plan){.max_len = s->max_len,
                         .max_num_seqs = s->max_num_seqs,
                         .max_batch = s->max_batch,
                         .block_size = s->block_size,
                         .n_blocks = s->n_blocks,
                         .arch = m->arch->name};
    count_weights(out, m, o->device);
    out->kv_bytes_per_token =
        kv_bytes_per_token(o->kv_type, o->exact, m->n_layer, m->n_kv_head, m->head_dim);
    out->kv_tokens = (int64_t)s->n_blocks * s->block_size;
    out->full_length_seqs = s->n_blocks / ((s->max_len - 1) / s->block_size + 1);
    out->bytes[PLAN_KV] = out->kv_bytes_per_token * (uint64_t)out->kv_tokens;
    out->bytes[PLAN_ACTIVATIONS] = rows * wide * 4 * (100 + ACTIVATION_EXTRA_PERCENT) / 100;
    out->bytes[PLAN_LOGITS] =
        (uint64_t)m->n_vocab *
        (4 * (uint64_t)(s->max_num_seqs + s->draft_rows + 1) + SAMPLER_BYTES_A_TOKEN);
    out->bytes[PLAN_ROPE] =
        (uint64_t)s->max_len * (uint64_t)m->rope.dims * 4 * (m->rope.local_base > 0 ? 2 : 1);
    out->bytes[PLAN_VOCABULARY] = text_bytes(g);
    out->bytes[PLAN_SWAP] = o->swap_bytes;
    out->bytes[PLAN_PROGRAM] = PROGRAM_BYTES;
    if (o->device) plan_for_device(out, m, s, o);
    out->n_ranks = m->shard.n_ranks ? m->shard.n_ranks : 1;
    if (out->n_ranks > 1) plan_for_ranks(out, m, s);
    for (int i = 0; i < PLAN_TERMS; i++)
        out->total += out->bytes[i];
}

double plan_decode_bound(const struct plan *p, const struct plan_machine *m, int n_seqs,
                         int n_context)
{
    if (m->read_bytes_per_s <= 0 || m->macs_per_s <= 0) return 0;
    /* the share of the experts that somebody of n_seqs chose, if all were liked alike */
    double used =
        p->n_experts ? 1 - pow(1 - (double)p->n_experts_used / p->n_experts, (double)n_seqs) : 0;
    double bytes = (double)p->read_per_token + used * (double)p->expert_bytes +
                   (double)n_seqs * n_context * (double)p->kv_bytes_per_token;
    double read_s = bytes / m->read_bytes_per_s,
           compute_s = n_seqs * p->macs_per_token / m->macs_per_s;
    return n_seqs / (read_s > compute_s ? read_s : compute_s);
}

double plan_prefill_bound(const struct plan *p, const struct plan_machine *m)
{
    return m->macs_per_s > 0 ? m->macs_per_s / p->macs_per_token : 0;
}

/* ---- words ---- */
static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static int largest_term(const struct plan *p)
{
    int most = 0;
    for (int i = 1; i < PLAN_TERMS; i++)
        if (p->bytes[i] > p->bytes[most]) most = i;
    return most;
}

/* The KV bytes that are left without swap space, everything else as planned; 0: none. */
static uint64_t kv_room(const struct plan *p, const struct plan_machine *m)
{
    uint64_t rest = p->total - p->bytes[PLAN_KV] - p->bytes[PLAN_SWAP];
    return m->memory_bytes > rest ? m->memory_bytes - rest : 0;
}

/* Options that give the KV cache `room` bytes; sequences get shorter where one of max_len would not fit any more. False: no block fits. */
static bool write_way(struct buf *out, const struct plan_way *way, uint64_t room)
{
    const struct plan *p = &way->plan;
    uint64_t block = p->kv_bytes_per_token * (uint64_t)p->block_size,
             tokens = room / block * (uint64_t)p->block_size;
    if (!tokens) return false;
    buf_printf(out, "  --kv-bytes %llu%s%s", (unsigned long long)room, way->flags,
               p->bytes[PLAN_SWAP] ? " --swap-space 0" : "");
    if (tokens < (uint64_t)p->max_len)
        buf_printf(out, " --max-model-len %llu", (unsigned long long)tokens);
    buf_printf(out, "   (%llu tokens in all)\n", (unsigned long long)tokens);
    return true;
}

static void write_alternatives(const struct plan *p, const struct plan_machine *m,
                               const struct plan_way *ways, int n_ways, struct buf *out)
{
    static const char *const how_many[] = {"", "One way that fits", "Two ways that fit",
                                           "Three ways that fit"};
    buf_printf(out,
               "\nIt does not fit: %.0f MiB are needed and %.0f MiB may be used. The largest "
               "part is %s (%.0f MiB).\n",
               mib(p->total), mib(m->memory_bytes), plan_term_names[largest_term(p)],
               mib(p->bytes[largest_term(p)]));
    struct buf lines;
    int n = 0;
    buf_init(&lines, 4096);
    for (int i = 0; i < n_ways; i++)
        n += write_way(&lines, &ways[i], kv_room(&ways[i].plan, m));
    if (n)
        buf_printf(out, "%s:\n%.*s", how_many[n], (int)lines.n, lines.p);
    else
        buf_printf(out,
                   "Without any KV cache and swap space it still needs %.0f MiB. What would fit: a "
                   "model with "
                   "smaller weights (fewer bits or parameters); --max-num-seqs and "
                   "--max-num-batched-tokens lower (logits %.0f MiB, activations %.0f MiB); more "
                   "memory.\n",
                   mib(p->total - p->bytes[PLAN_KV] - p->bytes[PLAN_SWAP]),
                   mib(p->bytes[PLAN_LOGITS]), mib(p->bytes[PLAN_ACTIVATIONS]));
    buf_fini(&lines);
}

void plan_write_text(const struct plan *p, const struct plan_machine *m,
                     const struct plan_way *ways, int n_ways, struct buf *out)
{
    buf_printf(out, "%s (%s)\n\nmemory                MiB\n", p->model, p->arch);
    for (int i = 0; i < PLAN_TERMS; i++)
        buf_printf(out, "  %-14s %8.1f\n", plan_term_names[i], mib(p->bytes[i]));
    buf_printf(out, "  %-14s %8.1f   of %.0f that may be used\n\n", "total", mib(p->total),
               mib(m->memory_bytes));
    if (p->n_experts)
        buf_printf(
            out, "experts: %d of %d a token; %.1f M parameters, %.1f M of them active a token\n\n",
            p->n_experts_used, p->n_experts, p->parameters / 1e6, p->active_parameters / 1e6);
    if (p->device)
        buf_printf(out, "on %s%s: %.1f MiB of it\n\n", p->device,
                   p->n_ranks > 1 ? " and each of the others" : "", mib(p->device_bytes));
    if (p->n_ranks > 1) buf_printf(out, "in %d ranks\n\n", p->n_ranks);
    buf_printf(out, "KV cache: %lld tokens in %d blocks of %d, %llu bytes a token\n",
               (long long)p->kv_tokens, p->n_blocks, p->block_size,
               (unsigned long long)p->kv_bytes_per_token);
    buf_printf(out, "  guaranteed at once: %d sequences of %d tokens; of %d tokens: %lld\n",
               p->full_length_seqs, p->max_len, MEAN_CONTEXT,
               (long long)(p->kv_tokens / (MEAN_CONTEXT + p->block_size / 2)));
    if (m->read_bytes_per_s > 0) {
        buf_printf(out,
                   "\nspeed this machine cannot exceed (%.1f GB/s read, %.0f GMAC/s measured)\n",
                   m->read_bytes_per_s / 1e9, m->macs_per_s / 1e9);
        for (int n = 1; n <= p->max_num_seqs; n *= 4)
            buf_printf(out, "  %2d decoding together  %8.0f tokens/s\n", n,
                       plan_decode_bound(p, m, n, MEAN_CONTEXT));
        double prefill = plan_prefill_bound(p, m);
        buf_printf(out,
                   "  reading a prompt      %8.0f tokens/s; first token of 512 unseen ones after "
                   "%.0f ms\n",
                   prefill, 512e3 / prefill);
    }
    if (p->total > m->memory_bytes) write_alternatives(p, m, ways, n_ways, out);
}

void plan_write_json(const struct plan *p, const struct plan_machine *m, struct buf *out)
{
    buf_printf(out, "{\"arch\":\"%s\",\"fits\":%s", p->arch,
               p->total <= m->memory_bytes ? "true" : "false");
    for (int i = 0; i < PLAN_TERMS; i++)
        buf_printf(out, ",\"%s_bytes\":%llu", plan_term_names[i], (unsigned long long)p->bytes[i]);
    buf_printf(out,
               ",\"total_bytes\":%llu,\"memory_bytes\":%llu,\"kv_tokens\":%lld,\"kv_bytes_per_"
               "token\":%llu,\"full_length_seqs\":%d",
               (unsigned long long)p->total, (unsigned long long)m->memory_bytes,
               (long long)p->kv_tokens, (unsigned long long)p->kv_bytes_per_token,
               p->full_length_seqs);
    buf_printf(out, ",\"parameters\":%.0f,\"active_parameters\":%.0f", p->parameters,
               p->active_parameters);
    if (p->n_ranks > 1)
        buf_printf(out, ",\"ranks\":%d,\"rank_bytes\":%llu", p->n_ranks,
                   (unsigned long long)p->device_bytes);
    if (p->n_experts)
        buf_printf(out, ",\"experts\":%d,\"experts_used\":%d", p->n_experts, p->n_experts_used);
    if (m->read_bytes_per_s > 0)
        buf_printf(out,
                   ",\"read_bytes_per_s\":%.0f,\"macs_per_s\":%.0f,\"decode_bound\":%.1f,\"prefill_"
                   "bound\":%.1f",
                   m->read_bytes_per_s, m->macs_per_s, plan_decode_bound(p, m, 1, MEAN_CONTEXT),
                   plan_prefill_bound(p, m));
    buf_z(out, "}\n");
}
