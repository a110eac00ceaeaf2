/* pair_net_private.h - what pair_net.c, pair_net_head.c and pair_net_load.c share; for no other file. */
#ifndef DEJA_ENGINE_MODEL_PAIR_NET_PRIVATE_H
#define DEJA_ENGINE_MODEL_PAIR_NET_PRIVATE_H
#include "engine/model/encoder_private.h"
#include "engine/model/pair_net.h"

enum { PAIR_INNER_MAX = 256, PAIR_DIM_MAX = 1024, PAIR_NUMBERS = 6 };
enum { PAIR_FEATURES_MAX = 5 * PAIR_INNER_MAX + 2 * PAIR_DIM_MAX + PAIR_NUMBERS + 1 };

typedef float pair_dot(const float *a, const float *b, int n);

/* logit = w2 . relu(w1 z + b1) + w3 . z + b2 */
struct pair_head {
    int n_in, n_hidden;
    pair_dot *dot;
    float *w1, *b1, *w2, *w3, *b2; /* [n_hidden][n_in], [n_hidden], [n_hidden], [n_in], [1] */
};

struct pair_net {
    struct encoder *enc;
    int layer, skip; /* states after this layer of the encoder; its first rows left out */
    int inner;       /* width of a projected token */
    uint32_t tag;    /* of these weights: first four bytes of a sketch */
    pair_dot *dot;
    char *calibration;             /* text */
    struct encoder_matrix in;      /* [inner][n_embd] */
    struct pair_head alone, joint; /* joint.w1 NULL = none */

    float *x;                        /* one text: [PAIR_TOKENS_MAX][inner] */
    struct {                         /* of the pair_net_embed that runs, by text */
        float *pooled;               /* [n][2 * inner] */
        bool *taken;                 /* [n] pooled is there */
        struct pair_tokens **tokens; /* NULL = not wanted */
    } want;
};

/* What a sketch says: the encoder's vector times sqrt(dim), mean and maximum of the tokens. */
struct pair_view {
    float vector[PAIR_DIM_MAX], pooled[2 * PAIR_INNER_MAX];
};

struct pair_tokens {
    int n, inner;
    size_t sketch_bytes;
    float scale[PAIR_TOKENS_MAX];
    int8_t q[]; /* [n][inner], then the sketch */
};

/* pair_net_dot.c; isa: backend_isa_name; that of a device = the best of this machine */
pair_dot *pair_dot_for(const char *isa);
/* pair_net_head.c */
/* z f32[n][PAIR_FEATURES_MAX] -> logits[n]: the weights, a megabyte or two, are gone through once for all. */
void pair_head_logits(const struct pair_head *h, const float *z, int n, float *logits);
/* What the alone network sees of two sketches: 4 * inner + 2 * dim + 1 numbers. */
void pair_alone_features(const struct pair_net *net, const struct pair_view *a,
                         const struct pair_view *b, double cosine, float *z);
/* |va - vb|, va * vb of two vectors: 2 * dim numbers. */
void pair_vectors_apart(const float *a, const float *b, int dim, float *z);
/* vector: unit length; pooled f32[2 * inner]. */
void pair_sketch_write(const struct pair_net *net, const float *vector, const float *pooled,
                       uint8_t *out);
bool pair_sketch_read(const struct pair_net *net, const void *sketch, struct pair_view *out);

#endif
