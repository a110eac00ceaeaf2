/* encoder_private.h - what encoder_load.c and encoder.c share; for no other file. */
#ifndef DEJA_ENGINE_MODEL_ENCODER_PRIVATE_H
#define DEJA_ENGINE_MODEL_ENCODER_PRIVATE_H
#include "engine/backend/backend.h"
#include "engine/model/encoder.h"
#include "engine/model/gguf.h"
#include "engine/text/tokenizer.h"

struct encoder_dims {
    int n_layer, n_embd, n_head, n_ff, n_vocab, n_pos;
    int max_tokens; /* of one text, <= n_pos */
    float norm_eps;
    bool pool_cls; /* the first row instead of the mean */
};

struct encoder_norm {
    float *weight, *bias; /* [n] */
};
struct encoder_matrix {
    struct weight *weight;
    float *bias;
};
struct encoder_layer {
    struct encoder_matrix q, k, v, attn_out, up, down;
    struct encoder_norm attn_norm, out_norm;
};

struct encoder {
    struct encoder_dims dims;
    char *id, *prefix;
    float unknown_share_max;
    struct tokenizer *tokenizer;
    struct backend *be;
    struct weight *token_embd; /* [n_vocab][n_embd] */
    struct weight *pos_embd;   /* [n_pos][n_embd], the type embedding of type 0 already added */
    struct encoder_norm embd_norm;
    struct encoder_layer *layers; /* [n_layer] */

    /* one pass; rows = rows_max */
    int rows_max, segments_max;
    int32_t *ids, *pos; /* [rows] */
    int32_t *length;    /* [segments_max] tokens of each text in the pass */
    int *text_i;        /* [segments_max] which text it is */
    float *x, *y;       /* [rows][n_embd] */
    float *q, *k, *v, *att;
    float *up; /* [rows][n_ff] */
    struct token_list tokens;

    encoder_tap *tap; /* NULL = none */
    void *tap_arg;
    int tap_layer;
};

#endif
