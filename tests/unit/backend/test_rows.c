/* test_rows.c - norms and sums against double formulas, for lengths that leave a tail behind whole vectors. */
#include <math.h>

#include "tests/unit/backend/helpers.h"

static const int widths[] = {1, 7, 8, 64, 100, 384, 576, 1536};

TEST(rmsnorm_and_layernorm_follow_their_formulas)
{
    for (int isa = 0; isa < N_ISAS; isa++) {
        struct backend *be = open_backend(all_isas[isa], 3, false);
        if (!be) continue;
        for (size_t k = 0; k < sizeof widths / sizeof widths[0]; k++) {
            enum { ROWS = 60 };
            int n = widths[k];
            struct rng r;
            rng_seed(&r, k);
            size_t all = (size_t)(ROWS * n);
            float *x = random_values(&r, all, 3.0f), *add = random_values(&r, all, 1.0f),
                  *w = random_values(&r, (size_t)n, 1.0f);
            float *b = random_values(&r, (size_t)n, 1.0f), *rms = xmalloc(all * 4),
                  *layer = xmalloc(all * 4);
            backend_rmsnorm(be, x, w, 1e-5f, ROWS, n, rms);
            backend_layernorm(be, x,
                              &(struct layernorm){.weight = w, .bias = b, .eps = 1e-3f, .add = add},
                              ROWS, n, layer);
            for (int i = 0; i < ROWS; i += 7) {
                double ms = 0, mean = 0, var = 0;
                for (int j = 0; j < n; j++) {
                    ms += (double)x[i * n + j] * x[i * n + j] / n;
                    mean += ((double)x[i * n + j] + add[i * n + j]) / n;
                }
                for (int j = 0; j < n; j++)
                    var += pow((double)x[i * n + j] + add[i * n + j] - mean, 2) / n;
                for (int j = 0; j < n; j++) {
                    CHECK_NEAR(rms[i * n + j], x[i * n + j] / sqrt(ms + 1e-5) * w[j], 1e-5);
                    double c = (double)x[i * n + j] + add[i * n + j] - mean;
                    CHECK_NEAR(layer[i * n + j], c / sqrt(var + 1e-3) * w[j] + b[j], 3e-5);
                }
            }
            float *same = xmalloc(all * 4);
            memcpy(same, x, all * 4);
            backend_rmsnorm(be, same, w, 1e-5f, ROWS, n, same);
            CHECK(!memcmp(same, rms, all * 4));
            backend_add(be, add, all, x);
            backend_scale(be, 0.5f, all, x);
            backend_layernorm(be, x, &(struct layernorm){.weight = w, .bias = b, .eps = 0.25e-3f},
                              ROWS, n, rms); /* halves: eps / 4 */
            for (size_t i = 0; i < all; i++)
                CHECK_NEAR(rms[i], layer[i], 1e-4);
            mem_free(x), mem_free(add), mem_free(w), mem_free(b), mem_free(rms), mem_free(layer),
                mem_free(same);
        }
        backend_close(be);
    }
}

TEST_MAIN()
