/* moe_launch.h - the launches of moe.cu, for it and its tests; as launch.h. Private to engine/backend/cuda. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_MOE_LAUNCH_H
#define DEJA_ENGINE_BACKEND_CUDA_MOE_LAUNCH_H
#include "engine/backend/cuda/launch.h"

/* Pair p = row * n_used + i is the i-th choice of a row. */
struct route_args {
    const float *logits; /* f32[n_rows][n_experts] */
    int n_experts, n_used;
    bool normalise;
    float scale;
    int32_t *expert; /* out [pairs] */
    float *weight;   /* out [pairs] */
};
void launch_route(const struct route_args &a, int n_rows, cudaStream_t s);

struct expert_tile { /* sorted pairs [first, first + n) of one expert; n 0: nothing to do */
    int32_t expert, first, n;
};
struct sort_args {
    const int32_t *expert; /* [n_pairs] */
    int n_pairs, n_experts, n_used;
    int32_t *row; /* out [n_pairs]: the row of each of the sorted pairs; an expert's rows ascend */
    int32_t *place;            /* out [n_pairs]: where a pair is among the sorted */
    struct expert_tile *tiles; /* out [n_tiles] */
    int tile_cols, n_tiles;    /* at most tile_cols pairs a tile; n_tiles = expert_tiles() */
};
/* Most tiles that so many pairs can make, whichever experts they chose. */
int expert_tiles(int n_pairs, int n_experts, int tile_cols);
void launch_sort(const struct sort_args &a, cudaStream_t s);

/* The width of tiles for n_rows rows: as many columns as one expert can have where gemv multiplies, else what suits tensor cores. */
int expert_tile_cols(int n_rows, int n_used, int n_experts);
struct expert_product {
    enum tensor_type type;
    struct packed w; /* of all experts, w.n_out rows each */
    /* activations of the sorted pairs, in the forms that linear_forms(type, n_in, n_rows) asks for */
    const int8_t *q;
    const float *d, *s, *f;
    const uint16_t *h;
    int n_rows; /* of the step */
    const struct expert_tile *tiles;
    int tile_cols, n_tiles;
    float *out; /* f32[n_pairs][n_out] */
};
void launch_expert_product(const struct expert_product &p, cudaStream_t s);

struct expert_sum_args {
    const float *down; /* f32[pairs][n] in sorted order */
    const int32_t *place;
    const float *weight;
    int n_used, n;
    const float *shared, *shared_gate; /* as in struct moe */
    float *out;
};
void launch_expert_sum(const struct expert_sum_args &a, int n_rows, cudaStream_t s);

#endif
