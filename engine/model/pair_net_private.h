/* pair_net_private.h - what pair_net.c, pair_net_head.c and pair_net_load.c share; for no other file. */
#ifndef DEJA_ENGINE_MODEL_PAIR_NET_PRIVATE_H
#define DEJA_ENGINE_MODEL_PAIR_NET_PRIVATE_H
#include "engine/model/encoder_private.h"
#include "engine/model/pair_net.h"

enum {
    PAIR_LAYERS_MAX = 8,
    PAIR_PARTS = 4 /* |u-v|, u*v, u+v, |max u - max v|: what the head sees, [dim] each */
};

/* logit = w2 . relu(w1 z + b1) + b2 + cos_gain * (cos(u, v) - cos_zero) + cosine_gain * (cosine - 0.9) */
struct pair_head {
    int n_hidden;
    float *w1, *b1, *w2; /* [n_hidden][PAIR_PARTS * dim], [n_hidden], [n_hidden] */
    float *scalars;      /* b2, cos_gain, cos_zero, cosine_gain */
};

struct pair_tower {
    int n_layers;
    struct encoder_layer layers[PAIR_LAYERS_MAX];
    float *cross; /* [n_layers][n_head] added to attention between the two texts; NULL: none */
    float *marks; /* [2][dim] added to a token that the other text has not, has; NULL: none */
    struct pair_head head;
};

struct pair_net {
    struct encoder *enc;
    int layer, skip; /* states after this layer of the encoder; its first rows left out */
    uint32_t tag;    /* of these weights: first four bytes of a sketch */
    char *calibration;
    struct pair_tower alone, joint; /* joint.n_layers 0 = none */

    /* one pass; rows = rows_max */
    int rows_max;
    float *x, *y, *q, *k, *v, *att; /* [rows][n_embd]; q k v att: up to 5/4 of it */
    float *up;                      /* [rows][n_ff] */
    int32_t *length;

    uint8_t *sketches; /* where pair_net_embed wants them; NULL = nowhere */
    struct pair_tokens **tokens;
};

struct pair_tokens {
    int n, dim;
    int32_t ids[PAIR_TOKENS_MAX];
    float scale[PAIR_TOKENS_MAX];
    int8_t q[]; /* [n][dim] */
};

/* pair_net_head.c. u, v: mean and maximum f32[2 * dim] each. */
float pair_head_logit(const struct pair_head *h, int dim, const float *u, const float *v,
                      double cosine);
void pair_sketch_write(const struct pair_net *net, const float *mean_max, uint8_t *out);
bool pair_sketch_read(const struct pair_net *net, const void *sketch, float *mean_max);
/* rows f32[n][dim] -> mean and maximum, f32[2 * dim] */
void pair_pool(const float *rows, int n, int dim, float *mean_max);

#endif
