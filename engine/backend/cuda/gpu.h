/* gpu.h - one open CUDA device: what device.cu and its siblings share. `on` comes first in every function that a backend calls: the CUDA
 * runtime keeps a current device for each thread, and an engine opens a model on one thread and steps on another.
 * Private to engine/backend/cuda. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_GPU_H
#define DEJA_ENGINE_BACKEND_CUDA_GPU_H
#include <pthread.h>

extern "C" {
#include "base/mem.h"
#include "engine/backend/device.h"
}
#include "engine/backend/cuda/launch.h"
#include "engine/backend/cuda/lt.h"
#include "engine/backend/cuda/nccl.h"

enum {
    STAGE_BYTES = 8 << 20,
    PLANS_MAX = BACKEND_WINDOWS_MAX,
    STEPS_MAX = 64,
    PARTS_BYTES_MAX = 128 << 20
};

struct area { /* device scratch that only grows */
    uint8_t *p;
    size_t bytes;
};
struct outgrown { /* memory of an area that has moved; of a rank, until it closes */
    struct outgrown *next;
    void *p;
};

struct
    piece { /* rows whose parts of a long context fit into the scratch together, and their tiles on the device */
    int first_row, n_rows, splits_max;
    struct attend_tiles_of tiles;
    const int32_t *members, *n_splits;
};
struct plan { /* attention of this step for one window */
    int window, n_pieces, room;
    struct piece *piece; /* [room] */
    struct area area;
};

struct recorded {
    int n_rows, stride;    /* what it is for */
    bool many;             /* there are large tiles: prefixes are shared */
    bool tree;             /* some rows are nodes of trees */
    bool sized;            /* its calls were made once, so that every area is large enough */
    cudaGraphExec_t graph; /* NULL = not recorded yet */
};

enum large_products { LARGE_AUTO, LARGE_OWN, LARGE_BF16, LARGE_FP8, LARGE_INT8 };

struct
    flight { /* a step: what it sends goes through stage; from its submission on its picks are on their way to host */
    uint8_t *stage; /* pinned [STAGE_BYTES] */
    size_t staged;
    cudaEvent_t over;
    struct area host; /* pinned */
    int *n_top;       /* [rows_max] of its rows, -1: no log-probabilities */
    int n_rows, rows_max;
    bool report;
};

struct gpu {
    int index; /* which device */
    char model[80];
    size_t pitch_max; /* of a copy of rows */
    cudaStream_t stream;
    struct errmsg failed; /* text empty: nothing has failed */
    struct flight flight
        [BACKEND_FLIGHTS]; /* the oldest is flight[first]; the one after those that fly is being made */
    int first, n_flying;
    struct area q, d, s, h, f, pairs, ids, gathered, rows, parts;
    struct area sample_in, sample_work,
        sample_out[2]; /* of picks; the last ones are in sample_out[last_out] */
    int last_out;
    const struct sample_row *sent; /* whose parameters are at sent_at already; NULL = nobody's */
    const uint8_t *sent_at;
    struct kv_rows host; /* of this step; arrays are the caller's until the next set_rows */
    int table_stride, n_seqs, group;
    struct rows_view view;
    struct plan plan[PLANS_MAX];
    int n_plans;
    struct recorded step[STEPS_MAX]; /* step.cu */
    int n_steps;
    struct recorded *now;         /* whose calls are being made; NULL = an ordinary pass */
    const int32_t *token_ids;     /* of a recorded pass, on the device */
    bool capturing, no_recording; /* no_recording: passes are made call by call */
    struct lt *lt;                /* NULL: products of any size have kernels of our own */
    bool lt_refused;              /* the library has nothing for such shapes: never asked again */
    enum large_products large;
    struct area wide[5]; /* large.cu */
    struct area step_area;
    struct collective *ranks; /* ranks.cu; NULL: alone */
    int rank;
    struct nccl *nccl;         /* NULL: alone, or the group was given up */
    pthread_mutex_t recording; /* of a rank: held while its stream is recorded */
    struct area gathered_parts;
    struct outgrown *outgrown;
};

struct gpu_weight {
    struct pack_layout layout;
    uint8_t *bytes;
};
struct gpu_kv {
    struct kv_options o;
    struct kv_view view; /* .layer is layer 0 */
    size_t layer_bytes, bytes;
    uint8_t *out;             /* pinned: a block of all layers on its way to the host */
    struct attend_maps *maps; /* NULL: attention of large tiles is attention.cuh's */
};

static inline struct packed view_of(const struct gpu_weight *w)
{
    const struct pack_layout *l = &w->layout;
    return {w->bytes,
            w->bytes + l->high_at,
            w->bytes + l->scale_at,
            w->bytes + l->super_at,
            l->n_out,
            l->n_in,
            l->n_runs};
}

/* The device as this thread's current one. */
struct gpu *on(void *device);
/* Remembers the first error; the other ranks are told. */
void note(struct gpu *g, const char *what, cudaError_t code);
void fail(struct gpu *g, const char *what, const char *why);
/* Waits for all that was enqueued, as cudaStreamSynchronize does; for other ranks only as long as the group holds. */
cudaError_t settle(struct gpu *g);
static inline bool is_lost(const struct gpu *g)
{
    return g->failed.text[0] != 0;
}
/* At least so many bytes; contents are lost when it grows, and all recordings. NULL or garbage after an error: look at is_lost. */
void *need(struct gpu *g, struct area *a, size_t bytes);
/* Host bytes to a device area, without waiting: they are copied to pinned memory first. */
void upload(struct gpu *g, void *to, const void *from, size_t bytes);
/* The same for an area that no recorded step names. */
void *need_apart(struct gpu *g, struct area *a, size_t bytes);
/* Of the step that is being made. */
struct flight *making(struct gpu *g);
/* Pinned memory for n <= STAGE_BYTES bytes of this step, and the copy of it to `to`. */
uint8_t *stage_room(struct gpu *g, size_t n);
void stage_send(struct gpu *g, void *to, const uint8_t *room, size_t n);
/* Device bytes to the host, after all that was enqueued. ERR_UNAVAILABLE: something has failed. */
enum err fetch(struct gpu *g, void *host, const void *from, size_t bytes, struct errmsg *e);
/* As need, in pinned host memory. */
void *need_pinned(struct gpu *g, struct area *a, size_t bytes);

/* Room for n activations in these forms: sets a's outputs. */
void need_forms(struct gpu *g, struct act_forms forms, size_t n, struct act_args *a);

/* moe.cu */
void gpu_moe(void *device, const struct moe *m, void *const weight[3]);

/* large.cu. ERR_INVALID, ERR_UNSUPPORTED: products that are not known, or cannot be had here. */
enum err large_open(struct gpu *g, const char *products, struct errmsg *e);
void large_close(struct gpu *g);
/* The whole of a linear call whose activations are a. False: it is none of these, and nothing was done. */
bool gpu_linear_large(struct gpu *g, const struct linear *l, void *const *weight,
                      struct act_args a);

/* positions.cu */
void gpu_set_rows(void *device, const void *kv, const struct kv_rows *rows);
void gpu_rope_store(void *device, void *kv, const struct rope_store *p,
                    const struct rope_table *rope);
void gpu_attention(void *device, const void *kv, const struct attention *p);
void plan_room(struct plan *p, int n_pieces);
/* What `lay` places at host, made, lies at `device` (memory of a device, or NULL). */
struct piece piece_of(const struct attend_plan *made, const uint8_t *host, const uint8_t *device);
/* Bytes of scratch for one row's parts. */
size_t row_part_bytes(int n_heads, int head_dim, int splits_max);

/* step.cu */
void steps_drop(struct gpu *g); /* what is recorded names areas that are about to move */
bool gpu_step_begin(void *device, const void *kv, const struct backend_step *s, int *n_rows);
bool gpu_step_end(void *device);

/* ranks.cu */
void recording_begins(struct gpu *g);
void recording_ends(struct gpu *g);
enum err gpu_join(void *device, struct collective *c, int rank, struct errmsg *e);
void gpu_all_reduce(void *device, float *x, size_t n);
void gpu_all_gather(void *device, const float *part, int n_rows, int n, float *all);

/* sample.cu */
size_t sample_bytes(const struct sample *s); /* of the parameters of s .. */
void sample_fill(uint8_t *to, const struct sample *s);
/* Negative ids become the tokens that the last submission picked. */
void resolve_ids(struct gpu *g, int32_t *id, const int32_t *host, int n);
enum err gpu_submit(void *device, const struct sample *s, struct errmsg *e);
enum err gpu_wait(void *device, struct sampler_pick_out *out, struct errmsg *e);

#endif
