/* pair_net_private.h - what pair_net.c, pair_net_head.c and pair_net_load.c share; for no other file. */
#ifndef DEJA_ENGINE_MODEL_PAIR_NET_PRIVATE_H
#define DEJA_ENGINE_MODEL_PAIR_NET_PRIVATE_H
#include "engine/model/encoder_private.h"
#include "engine/model/pair_net.h"

enum { PAIR_INNER_MAX = 256, PAIR_DIM_MAX = 1024, PAIR_HEADS_MAX = 64 };

/* logit = w2 . relu(w1 z + b1) + b2 + gain * (cosine - 0.9)
 * z = two parts of 2 * inner about the tokens, |va - vb|, va * vb of the encoder's vectors (times sqrt(dim), so of about 1) */
struct pair_head {
    int n_hidden;
    float *w1, *b1, *w2; /* [n_hidden][4 * inner + 2 * dim], [n_hidden], [n_hidden] */
    float *scalars;      /* b2, gain */
};

/* x = norm(in s) of each token state s; then
 *   alone  x = norm(x + out attention(x)), x = norm(x + down gelu(up x))
 *   joint  x += mark; c = attention of x over the other text's tokens; x = norm(x + down gelu(up [x, c, |x - c|, x * c])) */
struct pair_tower {
    struct encoder_matrix in, q, k, v, attn_out, up, down; /* attn_out: alone only */
    struct encoder_norm in_norm, attn_norm, out_norm;
    float *marks; /* joint only: [2][inner] added to a token that the other text has not, has */
    struct pair_head head;
};

struct pair_net {
    struct encoder *enc;
    int layer, skip;    /* states after this layer of the encoder; its first rows left out */
    int inner, n_heads; /* width of the towers */
    uint32_t tag;       /* of these weights: first four bytes of a sketch */
    char *calibration;
    struct pair_tower alone, joint;

    /* one pass; rows = rows_max */
    int rows_max;
    float *states;          /* [rows][n_embd] */
    float *x, *y;           /* [rows][inner] */
    float *q, *k, *v, *att; /* [rows][inner + PAIR_HEAD_PAD a head] */
    float *wide, *up;       /* [rows][4 * inner], [rows][inner] */
    int32_t *length;
    struct {                         /* of the pair_net_embed that runs, by text */
        float *pooled;               /* [n][2 * inner] */
        bool *taken;                 /* [n] pooled is there */
        struct pair_tokens **tokens; /* NULL = not wanted */
    } want;
};

enum { PAIR_HEAD_PAD = 8 }; /* columns a head gets beside its own for the bias between two texts */

/* Vector and pooled tokens of a text, as numbers: f32[dim] times sqrt(dim), f32[2 * inner]. */
struct pair_view {
    float vector[PAIR_DIM_MAX], pooled[2 * PAIR_INNER_MAX];
};

struct pair_tokens {
    int n, inner;
    size_t sketch_bytes;
    int32_t ids[PAIR_TOKENS_MAX];
    float scale[PAIR_TOKENS_MAX];
    int8_t q[]; /* [n][inner] of the joint tower's x, then the sketch */
};

/* pair_net_head.c. first, second: the two parts of 2 * inner about the tokens. */
float pair_head_logit(const struct pair_net *net, const struct pair_head *h, const float *first,
                      const float *second, const float *vector_a, const float *vector_b,
                      double cosine);
/* vector: unit length; pooled f32[2 * inner]. */
void pair_sketch_write(const struct pair_net *net, const float *vector, const float *pooled,
                       uint8_t *out);
bool pair_sketch_read(const struct pair_net *net, const void *sketch, struct pair_view *out);
/* rows f32[n][inner] -> mean and maximum, f32[2 * inner] */
void pair_pool(const float *rows, int n, int inner, float *pooled);

#endif
