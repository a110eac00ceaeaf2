/* encoder.c - tokens to unit vectors: packs texts into passes, runs the layers, pools. See encoder.h.
 * Layer (Devlin et al. 2019, post-norm): x = norm(x + Wo attention(x)), x = norm(x + Wdown gelu(Wup x)). */
#include <math.h>
#include <string.h>

#include "engine/model/encoder_private.h"

int encoder_dim(const struct encoder *enc)
{
    return enc->dims.n_embd;
}

const char *encoder_id(const struct encoder *enc)
{
    return enc->id;
}

int encoder_max_tokens(const struct encoder *enc)
{
    return enc->dims.max_tokens;
}

int encoder_layers(const struct encoder *enc)
{
    return enc->dims.n_layer;
}

void encoder_tap_set(struct encoder *enc, int layer, encoder_tap *tap, void *arg)
{
    ASSERT(layer >= 1 && layer <= enc->dims.n_layer);
    enc->tap = tap;
    enc->tap_arg = arg;
    enc->tap_layer = layer;
}

/* ---- text to ids ---- */

/* Pieces of prefix + text into list; returns how many are unknown. The prefix is put before the text as text, since
 * the model was trained on their joint tokens. */
static int tokenize(const struct encoder *enc, struct str text, struct token_list *list)
{
    struct str prefix = str_of(enc->prefix);
    list->n = 0;
    list->failed = false;
    if (prefix.n == 0) {
        tokenizer_encode(enc->tokenizer, text, TOKENIZE_ADD_SPECIAL, list);
    } else {
        struct buf joined;
        buf_init(&joined, prefix.n + text.n + 1);
        buf_str(&joined, prefix);
        buf_str(&joined, text);
        tokenizer_encode(enc->tokenizer, buf_view(&joined), TOKENIZE_ADD_SPECIAL, list);
        buf_fini(&joined);
    }
    int n_unknown = 0;
    int32_t unk = tokenizer_unk(enc->tokenizer);
    for (size_t i = 0; i < list->n; i++)
        n_unknown += list->ids[i] == unk;
    return n_unknown;
}

/* A piece is at most some 50 bytes in the vocabularies we read, and runs of blanks vanish: text far beyond that cannot
 * fit, or is not worth the time to find out. */
static bool hopelessly_long(const struct encoder *enc, struct str text)
{
    return text.n > (size_t)enc->dims.max_tokens * 256;
}

int encoder_count_tokens(const struct encoder *enc, struct str text, int *n_unknown)
{
    struct token_list list;
    *n_unknown = 0;
    if (hopelessly_long(enc, text)) return enc->dims.max_tokens + 1;
    token_list_init(&list, (size_t)enc->dims.max_tokens + 1);
    *n_unknown = tokenize(enc, text, &list);
    int n = list.failed ? enc->dims.max_tokens + 1 : (int)list.n;
    token_list_fini(&list);
    return n;
}

/* The text's ids in enc->tokens, or why not. */
static enum err prepare(struct encoder *enc, struct str text)
{
    if (hopelessly_long(enc, text)) return ERR_TOO_LARGE;
    int n_unknown = tokenize(enc, text, &enc->tokens);
    if (enc->tokens.failed || enc->tokens.n > (size_t)enc->dims.max_tokens) return ERR_TOO_LARGE;
    int n_pieces = (int)enc->tokens.n - 2; /* without [CLS] and [SEP] */
    if (n_pieces > 0 && (float)n_unknown > enc->unknown_share_max * (float)n_pieces)
        return ERR_UNSUPPORTED;
    return enc->tokens.n > 0 ? OK : ERR_UNSUPPORTED;
}

/* ---- one pass ---- */

static void project(struct encoder *enc, const struct encoder_layer *l, int n_rows)
{
    struct linear qkv = {
        .n_weights = 3,
        .weight = {l->q.weight, l->k.weight, l->v.weight},
        .bias = {l->q.bias, l->k.bias, l->v.bias},
        .out = {enc->q, enc->k, enc->v},
        .x = enc->x,
        .n_rows = n_rows,
    };
    backend_linear(enc->be, &qkv);
}

static void attend(struct encoder *enc, int n_segments)
{
    int head_dim = enc->dims.n_embd / enc->dims.n_head;
    struct attention_full a = {
        .q = enc->q,
        .k = enc->k,
        .v = enc->v,
        .length = enc->length,
        .n_segments = n_segments,
        .n_heads = enc->dims.n_head,
        .head_dim = head_dim,
        .scale = 1.0f / sqrtf((float)head_dim),
        .out = enc->att,
    };
    backend_attention_full(enc->be, &a);
}

/* y = W in(x) + b, then x = norm(x + y). */
static void add_and_norm(struct encoder *enc, const struct encoder_matrix *m, const float *x,
                         enum linear_in in, const struct encoder_norm *norm, int n_rows)
{
    struct linear l = {.n_weights = 1,
                       .weight = {m->weight},
                       .bias = {m->bias},
                       .out = {enc->y},
                       .in = in,
                       .x = x,
                       .n_rows = n_rows};
    backend_linear(enc->be, &l);
    struct layernorm n = {
        .weight = norm->weight, .bias = norm->bias, .eps = enc->dims.norm_eps, .add = enc->y};
    backend_layernorm(enc->be, enc->x, &n, n_rows, enc->dims.n_embd, enc->x);
}

static void show_rows(const struct encoder *enc, int n_segments)
{
    struct encoder_pass pass = {.n_texts = n_segments,
                                .length = enc->length,
                                .text_i = enc->text_i,
                                .ids = enc->ids,
                                .rows = enc->x};
    enc->tap(enc->tap_arg, &pass);
}

static void run_layers(struct encoder *enc, int n_segments, int n_rows)
{
    struct layernorm first = {
        .weight = enc->embd_norm.weight, .bias = enc->embd_norm.bias, .eps = enc->dims.norm_eps};
    backend_embed(enc->be, enc->token_embd, enc->ids, n_rows, false, enc->x);
    backend_embed(enc->be, enc->pos_embd, enc->pos, n_rows, true, enc->x);
    backend_layernorm(enc->be, enc->x, &first, n_rows, enc->dims.n_embd, enc->x);
    for (int i = 0; i < enc->dims.n_layer; i++) {
        const struct encoder_layer *l = &enc->layers[i];
        project(enc, l, n_rows);
        attend(enc, n_segments);
        add_and_norm(enc, &l->attn_out, enc->att, LINEAR_PLAIN, &l->attn_norm, n_rows);
        struct linear widen = {.n_weights = 1,
                               .weight = {l->up.weight},
                               .bias = {l->up.bias},
                               .out = {enc->up},
                               .x = enc->x,
                               .n_rows = n_rows};
        backend_linear(enc->be, &widen);
        add_and_norm(enc, &l->down, enc->up, LINEAR_GELU, &l->out_norm, n_rows);
        if (enc->tap && enc->tap_layer == i + 1) show_rows(enc, n_segments);
    }
}

/* rows f32[n_rows][dim] -> unit vector out[dim]. False when there is no finite, non-zero one. */
static bool pool(const struct encoder *enc, const float *rows, int n_rows, float *out)
{
    int dim = enc->dims.n_embd, n = enc->dims.pool_cls ? 1 : n_rows;
    double square = 0;
    for (int i = 0; i < dim; i++) {
        double sum = 0;
        for (int r = 0; r < n; r++)
            sum += (double)rows[(size_t)r * (size_t)dim + (size_t)i];
        out[i] = (float)(sum / n);
        square += (double)out[i] * (double)out[i];
    }
    if (!isfinite(square) || square <= 0) return false;
    float scale = (float)(1.0 / sqrt(square));
    for (int i = 0; i < dim; i++)
        out[i] *= scale;
    return true;
}

/* Runs what has been packed and writes its vectors. */
static void flush(struct encoder *enc, int n_segments, int n_rows, float *out, enum err *status)
{
    size_t dim = (size_t)enc->dims.n_embd, at = 0;
    if (!n_segments) return;
    run_layers(enc, n_segments, n_rows);
    for (int s = 0; s < n_segments; s++) {
        float *vector = out + (size_t)enc->text_i[s] * dim;
        if (!pool(enc, enc->x + at * dim, enc->length[s], vector)) {
            memset(vector, 0, dim * sizeof *vector);
            status[enc->text_i[s]] = ERR_CORRUPT;
        }
        at += (size_t)enc->length[s];
    }
}

void encoder_embed(struct encoder *enc, const struct str *texts, int n, float *out,
                   enum err *status)
{
    int n_segments = 0, n_rows = 0;
    memset(out, 0, (size_t)n * (size_t)enc->dims.n_embd * sizeof *out);
    for (int i = 0; i < n; i++) {
        status[i] = prepare(enc, texts[i]);
        if (status[i]) continue;
        int length = (int)enc->tokens.n;
        if (n_rows + length > enc->rows_max || n_segments == enc->segments_max) {
            flush(enc, n_segments, n_rows, out, status);
            n_segments = n_rows = 0;
        }
        for (int j = 0; j < length; j++) {
            ASSERT(enc->tokens.ids[j] >= 0 && enc->tokens.ids[j] < enc->dims.n_vocab);
            enc->ids[n_rows + j] = enc->tokens.ids[j];
            enc->pos[n_rows + j] = j;
        }
        enc->length[n_segments] = length;
        enc->text_i[n_segments++] = i;
        n_rows += length;
    }
    flush(enc, n_segments, n_rows, out, status);
}
