/* calibration.h - how large each channel of what a model's matrices multiply becomes, and the file that keeps it. A few channels of many
 * models are tens of times larger than the rest; rounded to int8 with one scale a token they leave the others few steps. What is known
 * here moves that into the weights: channel j of the input is divided by s_j and column j of the matrix multiplied by it before both are
 * rounded, s_j = max|X_j|^a / max|W_j|^(1-a), and `a` is chosen for each product (calibrate.c), 0 meaning that nothing is moved.
 *
 * File: a head (magic, version, shape, the model file's hash), then for each product `a` and two rows of floats, then a check over all of
 * it. In the machine's own order: another order fails the check. Reading and writing are pure but for calibration_load and _save.
 * Threading: any; one thread an object.
 * Source: Xiao et al. 2022, arXiv:2211.10438, equation 4. */
#ifndef DEJA_ENGINE_MODEL_CALIBRATION_H
#define DEJA_ENGINE_MODEL_CALIBRATION_H
#include "base/hash.h"

/* What multiplies the same input: q, k and v; the way out of attention; gate and up; down. Then, once a model, the output head. */
enum calibration_site { SITE_QKV, SITE_ATTN_OUT, SITE_GATE, SITE_DOWN, SITES };
enum { CALIBRATION_LAYERS_MAX = 1024, CALIBRATION_WIDTH_MAX = 1 << 20 };

struct calibration_shape {
    struct hash128 model; /* of the file (model_info.file_hash) */
    int n_layers;         /* 1..CALIBRATION_LAYERS_MAX */
    int width[SITES],
        head; /* channels of each input; 0: the model has no such product (mixtures) */
};
struct calibration {
    struct calibration_shape shape;
    uint64_t n_tokens; /* that were looked at */
    float *floats;     /* of every product: a, x[width], w[width] */
};

static inline int calibration_place(int layer, enum calibration_site site)
{
    return layer * SITES + (int)site;
}
static inline int calibration_head(const struct calibration_shape *s)
{
    return s->n_layers * SITES;
}
/* Channels of the product at a place; 0 where there is none. */
int calibration_width(const struct calibration_shape *s, int place);
bool calibration_same(const struct calibration_shape *a, const struct calibration_shape *b);

/* All zeros. ERR_FULL: no memory. */
MUST enum err calibration_new(struct calibration **out, const struct calibration_shape *s);
void calibration_free(struct calibration *c); /* NULL is fine */

/* f32[width], the largest absolute values: of each channel of the input, of each column of the matrices; and a in [0,1]. */
float *calibration_x(struct calibration *c, int place);
float *calibration_w(struct calibration *c, int place);
float *calibration_a(struct calibration *c, int place);
/* s f32[width] > 0, in [1e-4, 1e4]. False: a is 0, all of it would be 1. */
bool calibration_spread(struct calibration *c, int place, float a, float *s);

size_t calibration_bytes(const struct calibration_shape *s);
void calibration_write(const struct calibration *c, uint8_t *to);
/* ERR_CORRUPT: one sentence what is wrong with it. ERR_FULL: no memory. */
MUST enum err calibration_read(struct calibration **out, const uint8_t *bytes, size_t n,
                               struct errmsg *e);

/* Errors name the path. save replaces the file at once or not at all. */
MUST enum err calibration_save(const struct calibration *c, const char *path, struct errmsg *e);
/* Of this model alone: ERR_INVALID when the file is another's. ERR_NOT_FOUND, ERR_IO: it cannot be read. */
MUST enum err calibration_load(struct calibration **out, const char *path,
                               const struct calibration_shape *of, struct errmsg *e);

#endif
