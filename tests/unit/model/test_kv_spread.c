/* test_kv_spread.c - goal: sizes of K's channels told from weights are those that K then has, and pairs that rotate together share
 * one. Method: made-up float32 projections, inputs of unit mean square drawn at random, K measured. */
#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/model/arch.h"
#include "engine/model/model_private.h"
#include "tests/check.h"

enum { EMBD = 64, HEADS = 2, HEAD = 16, OUT = HEADS * HEAD, DRAWS = 4000 };

static double normal(struct rng *r)
{
    double s = 0;
    for (int i = 0; i < 12; i++)
        s += rng_f64(r) - 0.5;
    return s;
}

static void measured(struct rng *r, const float *w, const float *norm, const float *bias,
                     double *size)
{
    double x[EMBD];
    memset(size, 0, OUT * sizeof *size);
    for (int draw = 0; draw < DRAWS; draw++) {
        for (int j = 0; j < EMBD; j++)
            x[j] = normal(r) * norm[j];
        for (int d = 0; d < OUT; d++) {
            double k = bias ? bias[d] : 0;
            for (int j = 0; j < EMBD; j++)
                k += w[d * EMBD + j] * x[j];
            size[d] += k * k / DRAWS;
        }
    }
}

/* A projection from inputs to K. */
static struct gguf_tensor tensor_of(const float w[OUT * EMBD])
{
    return (struct gguf_tensor){.type = TENSOR_F32,
                                .n_dims = 2,
                                .dims = {EMBD, OUT, 1, 1},
                                .bytes = w,
                                .n_bytes = OUT * EMBD * sizeof *w};
}

TEST(spread_is_the_size_k_has_and_the_same_within_a_pair)
{
    struct rng r;
    rng_seed(&r, 9);
    static float w[OUT * EMBD], norm[EMBD], bias[OUT];
    for (int i = 0; i < OUT * EMBD; i++)
        w[i] = (float)(normal(&r) * (1 + i / EMBD % 5) * 0.1);
    for (int i = 0; i < EMBD; i++)
        norm[i] = (float)(0.5 + rng_f64(&r));
    bias[3] = 40, bias[HEAD + 7] = -25;
    struct gguf_tensor t = tensor_of(w);
    struct plan_layer l = {.k = {.weight = &t}};
    for (int half_split = 0; half_split < 2; half_split++)
        for (int with_bias = 0; with_bias < 2; with_bias++) {
            struct model_arch arch = {.half_split = half_split};
            struct model_plan p = {
                .arch = &arch, .n_embd = EMBD, .n_kv_head = HEADS, .head_dim = HEAD};
            p.rope.dims = 8; /* the second half of a head stays */
            double size[OUT];
            measured(&r, w, norm, with_bias ? bias : NULL, size);
            float *spread = kv_spread_new(&p, &l, norm, NULL, with_bias ? bias : NULL);
            for (int d = 0; d < OUT; d++) {
                int at = d % HEAD, mate = at >= 8      ? d
                                          : half_split ? d - at + (at + 4) % 8
                                                       : d - at + (at ^ 1);
                double want = sqrt((size[d] + size[mate]) / 2);
                CHECK_AT(fabs(spread[d] - want) < 0.06 * want, "channel %d: %g, not %g", d,
                         (double)spread[d], want);
                CHECK(spread[d] == spread[mate]);
            }
            mem_free(spread);
        }
}

TEST(a_norm_over_all_heads_keeps_their_sizes_apart_and_makes_their_mean_one)
{
    struct rng r;
    rng_seed(&r, 12);
    static float w[OUT * EMBD], norm[EMBD], k_norm[OUT];
    for (int i = 0; i < OUT * EMBD; i++)
        w[i] = (float)(normal(&r) * (1 + i / EMBD % 5));
    for (int i = 0; i < EMBD; i++)
        norm[i] = 1;
    for (int i = 0; i < OUT; i++)
        k_norm[i] = 2;
    struct gguf_tensor t = tensor_of(w);
    struct plan_layer l = {.k = {.weight = &t}};
    struct model_arch arch = {.half_split = true, .qk_norm_wide = true};
    struct model_plan p = {.arch = &arch, .n_embd = EMBD, .n_kv_head = HEADS, .head_dim = HEAD};
    float *plain = kv_spread_new(&p, &l, norm, NULL, NULL),
          *normed = kv_spread_new(&p, &l, norm, k_norm, NULL);
    double mean = 0;
    for (int i = 0; i < OUT; i++)
        mean += (double)normed[i] * (double)normed[i] / OUT;
    CHECK_NEAR(mean, 4, 1e-4);
    for (int i = 1; i < OUT; i++)
        CHECK_NEAR(normed[i] / normed[0], plain[i] / plain[0], 1e-4);
    mem_free(plain), mem_free(normed);
}

TEST(a_norm_per_head_decides_alone_and_nothing_is_ever_zero)
{
    static float w[OUT * EMBD], norm[EMBD], k_norm[HEAD];
    struct gguf_tensor t = tensor_of(w);
    struct plan_layer l = {.k = {.weight = &t}};
    struct model_arch arch = {.half_split = true};
    struct model_plan p = {.arch = &arch, .n_embd = EMBD, .n_kv_head = HEADS, .head_dim = HEAD};
    p.rope.dims = HEAD;
    k_norm[1] = -3, k_norm[1 + HEAD / 2] = 4;
    float *spread = kv_spread_new(&p, &l, norm, k_norm, NULL);
    CHECK_NEAR(spread[1], sqrt(12.5), 1e-5);
    CHECK_NEAR(spread[HEAD + 1 + HEAD / 2], sqrt(12.5), 1e-5);
    for (int i = 0; i < OUT; i++)
        CHECK(spread[i] > 0);
    mem_free(spread);
    spread = kv_spread_new(&p, &l, norm, NULL, NULL); /* a file of zeros */
    for (int i = 0; i < OUT; i++)
        CHECK(spread[i] == 1);
    mem_free(spread);
}

TEST_MAIN()
