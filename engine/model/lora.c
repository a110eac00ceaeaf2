/* lora.c - reading, checking and applying low-rank adapters. See lora.h. */
#include "engine/model/lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/crypto.h"
#include "base/mem.h"
#include "engine/model/shard.h"

enum { NAME_BYTES_MAX = 160, SUFFIX_BYTES = 7 /* of .lora_a */ };

struct pair {
    struct weight *a, *b; /* [rank][n_in], scale * [n_out][rank]; NULL: not adapted */
    int rank;
};
struct lora {
    struct hash128 id;
    int n_pairs, rank_max;
    struct pair *pairs; /* [n_layer * LORA_LAYER_TARGETS + 1], the last is the output head */
};

static const char *const target_names[LORA_LAYER_TARGETS] = {
    "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"};

static const struct gguf_tensor *base_of(const struct plan_layer *l, int target)
{
    const struct plan_linear *all[LORA_LAYER_TARGETS] = {&l->q,    &l->k,  &l->v,   &l->attn_out,
                                                         &l->gate, &l->up, &l->down};
    return all[target]->weight;
}

/* The place of a base tensor's pair and the tensor itself; -1 = we adapt no such tensor. */
static int place_of(const struct model_plan *p, struct str name, const struct gguf_tensor **base)
{
    struct str head, number;
    int64_t layer;
    *base = p->output;
    if (str_eqz(name, "output.weight")) return p->output ? p->n_layer * LORA_LAYER_TARGETS : -1;
    if (!str_next(&name, '.', &head) || !str_eqz(head, "blk") || !str_next(&name, '.', &number) ||
        str_to_i64(number, 0, p->n_layer - 1, &layer) || !str_next(&name, '.', &head) ||
        !str_eqz(name, "weight"))
        return -1;
    for (int t = 0; t < LORA_LAYER_TARGETS; t++) {
        if (!str_eqz(head, target_names[t])) continue;
        *base = base_of(&p->layers[layer], t);
        return *base ? (int)layer * LORA_LAYER_TARGETS + t : -1;
    }
    return -1;
}

static enum err check_keys(const struct gguf *g, const struct model_plan *p, float *alpha,
                           struct errmsg *e)
{
    static const struct {
        const char *key, *want;
    } keys[] = {{"general.type", "adapter"}, {"adapter.type", "lora"}};
    char shown[40];
    enum err code;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct str v = {NULL, 0};
        if ((code = gguf_str_opt(g, keys[i].key, &v, e))) return code;
        if (!str_eqz(v, keys[i].want))
            return err_set(e, ERR_UNSUPPORTED, "%s: \"%s\" must be \"%s\"; this is no LoRA adapter",
                           keys[i].key, gguf_printable(v, shown, sizeof shown), keys[i].want);
    }
    struct str arch;
    if ((code = gguf_str(g, "general.architecture", &arch, e)))
        return code == ERR_NOT_FOUND ? ERR_CORRUPT : code;
    if (!str_eq(arch, p->name))
        return err_set(e, ERR_UNSUPPORTED,
                       "general.architecture: the adapter is for \"%s\", the model is " STR_FMT,
                       gguf_printable(arch, shown, sizeof shown), STR_ARG(p->name));
    if (gguf_has(g, "adapter.alora.invocation_tokens"))
        return err_set(e, ERR_UNSUPPORTED,
                       "adapter.alora.invocation_tokens: adapters that begin in the middle of a "
                       "prompt are not supported");
    if ((code = gguf_f32_opt(g, "adapter.lora.alpha", alpha, e))) return code;
    return *alpha >= 0 ? OK
                       : err_set(e, ERR_CORRUPT, "adapter.lora.alpha: %g must not be below 0",
                                 (double)*alpha);
}

static enum err check_shape(const struct gguf_tensor *t, int64_t cols, int64_t rows,
                            struct errmsg *e)
{
    if (t->dims[0] == cols && t->dims[1] == rows && t->dims[2] == 1 && t->dims[3] == 1) return OK;
    return err_set(e, ERR_CORRUPT,
                   "tensor " STR_FMT " has shape [%lld, %lld, %lld, %lld], must be [%lld, %lld, 1, "
                   "1] to fit the model",
                   STR_ARG(t->name), (long long)t->dims[0], (long long)t->dims[1],
                   (long long)t->dims[2], (long long)t->dims[3], (long long)cols, (long long)rows);
}

/* Which part of a factor is this rank's. */
struct corner {
    int64_t col, n_cols, row, n_rows;
};

static void move_corner(float *v, int64_t n_cols, const struct corner *c)
{
    for (int64_t i = 0; i < c->n_rows; i++)
        memmove(v + i * c->n_cols, v + (c->row + i) * n_cols + c->col,
                (size_t)c->n_cols * sizeof *v);
}

static enum err load_factor(struct weight **out, struct backend *be, const struct gguf_tensor *t,
                            float factor, const struct corner *c, struct errmsg *e)
{
    float *v = tensor_to_f32(t);
    enum err code = OK;
    for (int64_t i = 0; i < t->dims[0] * t->dims[1] && !code; i++) {
        v[i] *= factor;
        if (!isfinite(v[i]))
            code =
                err_set(e, ERR_CORRUPT, "tensor " STR_FMT "[%lld, %lld]: not a finite number",
                        STR_ARG(t->name), (long long)(i % t->dims[0]), (long long)(i / t->dims[0]));
    }
    if (!code) {
        move_corner(v, t->dims[0], c);
        code = weight_new(out, be, TENSOR_F32, (int)c->n_rows, (int)c->n_cols, v, e);
        if (code) code = err_prefix(e, code, "tensor " STR_FMT, STR_ARG(t->name));
    }
    mem_free(v);
    return code;
}

struct loading {
    struct lora *lora;
    struct backend *be;
    const struct model_plan *plan;
    const struct gguf *g;
    float scale, alpha; /* alpha 0: not said */
};

/* a is a tensor whose name ends in .lora_a; its partner and the model's matrix must fit. */
static enum err load_pair(const struct loading *o, const struct gguf_tensor *a, struct errmsg *e)
{
    char partner[NAME_BYTES_MAX];
    struct str name = str_sub(a->name, 0, a->name.n - SUFFIX_BYTES);
    const struct gguf_tensor *base;
    int at = place_of(o->plan, name, &base);
    if (at < 0)
        return err_set(
            e, ERR_UNSUPPORTED,
            "tensor " STR_FMT ": the model has no matrix of this name that can be "
            "adapted (those of attention and feed-forward can, and an output of its own)",
            STR_ARG(a->name));
    (void)snprintf(partner, sizeof partner, STR_FMT ".lora_b", STR_ARG(name));
    const struct gguf_tensor *b = gguf_tensor(o->g, partner);
    if (!b) return err_set(e, ERR_CORRUPT, "tensor %s is missing", partner);
    int64_t rank = a->dims[1];
    struct tensor_cut none = {.whole = base};
    const struct tensor_cut *cut = base->cut ? base->cut : &none;
    struct corner a_part = {cut->col_first, base->dims[0], 0, rank},
                  b_part = {0, rank, cut->row_first, base->dims[1]};
    enum err code = check_shape(a, cut->whole->dims[0], rank, e);
    if (!code) code = check_shape(b, rank, cut->whole->dims[1], e);
    if (code) return code;
    if (rank > LORA_RANK_MAX)
        return err_set(e, ERR_RANGE, "tensor " STR_FMT ": rank %lld is over %d", STR_ARG(a->name),
                       (long long)rank, LORA_RANK_MAX);
    struct pair *pair = &o->lora->pairs[at];
    pair->rank = (int)rank;
    if (pair->rank > o->lora->rank_max) o->lora->rank_max = pair->rank;
    if ((code = load_factor(&pair->a, o->be, a, 1, &a_part, e))) return code;
    return load_factor(&pair->b, o->be, b,
                       o->alpha > 0 ? o->scale * o->alpha / (float)rank : o->scale, &b_part, e);
}

/* Every tensor is half of a pair. */
static enum err load_pairs(const struct loading *o, struct errmsg *e)
{
    char partner[NAME_BYTES_MAX];
    size_t n = gguf_n_tensors(o->g);
    enum err code = OK;
    if (!n) return err_set(e, ERR_CORRUPT, "the adapter has no tensors");
    for (size_t i = 0; i < n && !code; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(o->g, i);
        bool is_b = str_ends(t->name, STR(".lora_b"));
        if (str_ends(t->name, STR(".lora_a"))) {
            code = load_pair(o, t, e);
        } else if (is_b) {
            (void)snprintf(partner, sizeof partner, STR_FMT ".lora_a",
                           STR_ARG(str_sub(t->name, 0, t->name.n - SUFFIX_BYTES)));
            if (!gguf_tensor(o->g, partner))
                code = err_set(e, ERR_CORRUPT, "tensor %s is missing", partner);
        } else {
            code = err_set(e, ERR_UNSUPPORTED,
                           "tensor " STR_FMT ": only pairs NAME.lora_a, NAME.lora_b are understood",
                           STR_ARG(t->name));
        }
    }
    return code;
}

static struct hash128 identity(struct str file, float scale)
{
    struct {
        char tag[8];
        uint8_t file[32];
        uint64_t scale;
    } in = {.tag = "dejalora"};
    uint32_t bits;
    uint8_t digest[32];
    struct hash128 id;
    memcpy(&bits, &scale, 4);
    in.scale = bits;
    sha256_bytes(file, in.file);
    sha256_bytes((struct str){(const char *)&in, sizeof in}, digest);
    memcpy(&id, digest, sizeof id);
    return id;
}

enum err lora_from_gguf(struct lora **out, struct backend *be, const struct model_plan *plan,
                        const struct gguf *g, float scale, struct errmsg *e)
{
    *out = NULL;
    if (!isfinite(scale)) return err_set(e, ERR_RANGE, "the scale must be a finite number");
    struct lora *l = xcalloc(1, sizeof *l);
    l->n_pairs = plan->n_layer * LORA_LAYER_TARGETS + 1;
    l->pairs = xcalloc((size_t)l->n_pairs, sizeof *l->pairs);
    struct loading o = {.lora = l, .be = be, .plan = plan, .g = g, .scale = scale};
    enum err code = check_keys(g, plan, &o.alpha, e);
    if (!code) code = load_pairs(&o, e);
    if (code) {
        lora_free(l);
        return code;
    }
    l->id = identity(gguf_file_bytes(g), scale);
    *out = l;
    return OK;
}

enum err lora_open(struct lora **out, struct backend *be, const struct model_plan *plan,
                   const char *path, float scale, struct errmsg *e)
{
    struct gguf *g;
    *out = NULL;
    enum err code = gguf_open(&g, path, e);
    if (code) return code;
    code = lora_from_gguf(out, be, plan, g, scale, e);
    gguf_close(g);
    return code ? err_prefix(e, code, "%s", path) : OK;
}

void lora_free(struct lora *l)
{
    if (!l) return;
    for (int i = 0; i < l->n_pairs; i++) {
        weight_free(l->pairs[i].a);
        weight_free(l->pairs[i].b);
    }
    mem_free(l->pairs);
    mem_free(l);
}

struct hash128 lora_id(const struct lora *l)
{
    return l->id;
}
int lora_rank_max(const struct lora *l)
{
    return l->rank_max;
}

void lora_group(struct lora_rows *g, const int32_t *seq, int n_rows, const int32_t *adapter)
{
    int count[LORA_MAX] = {0}, n = 0, group[LORA_MAX];
    for (int i = 0; i < n_rows; i++)
        if (adapter && adapter[seq[i]] >= 0) count[adapter[seq[i]]]++;
    g->n_groups = 0;
    for (int a = 0; a < LORA_MAX; a++) {
        if (!count[a]) continue;
        group[a] = g->n_groups;
        g->adapter[g->n_groups] = a;
        g->first[g->n_groups++] = n;
        n += count[a];
        count[a] = 0;
    }
    g->first[g->n_groups] = n;
    for (int i = 0; n && i < n_rows; i++) {
        int a = adapter[seq[i]];
        if (a >= 0) g->row[g->first[group[a]] + count[a]++] = i;
    }
}

/* high [n][n_out] of the rows row[n] into out. */
static void add_rows(const float *high, const int32_t *row, int n, int n_out, float *out)
{
    for (int i = 0; i < n; i++) {
        float *to = out + (size_t)row[i] * (size_t)n_out;
        const float *from = high + (size_t)i * (size_t)n_out;
        for (int j = 0; j < n_out; j++)
            to[j] += from[j];
    }
}

static void raise_rows(struct backend *be, const struct pair *pair, const float *low,
                       const int32_t *row, int n, float *out, const struct lora_scratch *s)
{
    int n_out = weight_n_out(pair->b), most = (int)(s->high_floats / (size_t)n_out);
    ASSERT(most > 0);
    for (int at = 0, k; at < n; at += k) {
        k = n - at < most ? n - at : most;
        struct linear l = {.n_weights = 1,
                           .weight = {pair->b},
                           .out = {s->high},
                           .x = low + (size_t)at * (size_t)pair->rank,
                           .n_rows = k};
        backend_linear(be, &l);
        add_rows(s->high, row + at, k, n_out, out);
    }
}

void lora_apply(struct backend *be, struct lora *const *loras, const struct lora_rows *g,
                const struct linear *l, int place, const struct lora_scratch *s)
{
    ASSERT(!l->row);
    for (int i = 0; i < g->n_groups; i++) {
        const int32_t *row = g->row + g->first[i];
        int n = g->first[i + 1] - g->first[i], adapted[LINEAR_WEIGHTS_MAX];
        const struct pair *pairs = loras[g->adapter[i]]->pairs + place;
        struct linear low = *l;
        low.n_weights = 0;
        low.accumulate = false;
        low.row = row;
        low.n_rows = n;
        memset(low.bias, 0, sizeof low.bias);
        for (int w = 0; w < l->n_weights; w++) {
            if (!pairs[w].a) continue;
            adapted[low.n_weights] = w;
            low.weight[low.n_weights] = pairs[w].a;
            low.out[low.n_weights] =
                s->low + (size_t)low.n_weights * (size_t)s->rows * (size_t)s->rank_max;
            low.n_weights++;
        }
        if (!low.n_weights) continue;
        backend_linear(be, &low);
        for (int w = 0; w < low.n_weights; w++)
            raise_rows(be, &pairs[adapted[w]], low.out[w], row, n, l->out[adapted[w]], s);
    }
}
