/* test_moe.c - the routed feed-forward against a double-precision reference written here from the papers' formulas: every tensor type and
 * instruction set, widths that do not fill panels, both ways of weighing, shared experts; and what must not change a row's bits: its
 * company, its place, the number of threads. Float paths must agree to float32 rounding; rounded activations to a share of the result's
 * size that rounding each of them to 1/127 of its group's peak allows. */
#include "engine/backend/moe.h"

#include <math.h>

#include "tests/unit/backend/helpers.h"

enum { ROWS = 19, EXPERTS = 7 };

struct shape {
    int n_embd, n_ff, n_used;
    bool normalise, shared;
    float scale;
};

struct layer {
    struct shape s;
    struct weight *gate, *up, *down;
    float *exact_gate, *exact_up, *exact_down; /* [EXPERTS][n_out][n_in] */
    float *x, *logits, *shared, *shared_gate;  /* [ROWS][..] */
};

static struct weight *stack(struct backend *be, enum tensor_type t, int n_out, int n_in,
                            struct rng *r, float **exact)
{
    size_t n_rows = (size_t)EXPERTS * (size_t)n_out, n = (size_t)n_in,
           row = tensor_row_bytes(t, n_in);
    float *values = random_values(r, n_rows * n, 1.0f / sqrtf((float)n_in));
    uint8_t *bytes = xmalloc(n_rows * row);
    *exact = xmalloc(n_rows * n * sizeof(float));
    for (size_t i = 0; i < n_rows; i++) {
        quantise_row(t, values + i * n, bytes + i * row, n_in);
        dequantise_row(t, bytes + i * row, *exact + i * n, n_in);
    }
    struct weight *w = NULL;
    struct errmsg e = {0};
    struct weight_shape s = {t, EXPERTS, n_out, n_in};
    enum err code = weight_new_stack(&w, be, &s, bytes, &e);
    CHECK_AT(!code, "weight_new_stack: %s", e.text);
    mem_free(bytes);
    mem_free(values);
    return w;
}

static struct layer make(struct backend *be, enum tensor_type t, struct shape s)
{
    struct rng r;
    rng_seed(&r, 5 + (uint64_t)t);
    struct layer l = {.s = s};
    l.gate = stack(be, t, s.n_ff, s.n_embd, &r, &l.exact_gate);
    l.up = stack(be, t, s.n_ff, s.n_embd, &r, &l.exact_up);
    l.down = stack(be, t, s.n_embd, s.n_ff, &r, &l.exact_down);
    l.x = random_values(&r, (size_t)ROWS * (size_t)s.n_embd, 1);
    l.logits = random_values(&r, ROWS * EXPERTS, 2);
    l.shared = random_values(&r, (size_t)ROWS * (size_t)s.n_embd, 1);
    l.shared_gate = random_values(&r, ROWS, 2);
    return l;
}

static void drop(struct layer *l)
{
    weight_free(l->gate), weight_free(l->up), weight_free(l->down);
    float *all[] = {l->exact_gate, l->exact_up, l->exact_down, l->x,
                    l->logits,     l->shared,   l->shared_gate};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
}

/* Rows from[n] of the layer's, together in this order; 1 stands in out before. Free with mem_free. */
static float *run(struct backend *be, const struct layer *l, const int *from, int n)
{
    size_t embd = (size_t)l->s.n_embd, ff = (size_t)l->s.n_ff, rows = (size_t)n,
           pairs = rows * (size_t)l->s.n_used;
    float *x = xcalloc(rows * embd, 4), *logits = xcalloc(rows * EXPERTS, 4),
          *shared = xcalloc(rows * embd, 4), *shared_gate = xcalloc(rows, 4),
          *out = xcalloc(rows * embd, 4), *gate = xcalloc(pairs * ff, 4),
          *up = xcalloc(pairs * ff, 4), *down = xcalloc(pairs * embd, 4);
    for (int i = 0; i < n; i++) {
        memcpy(x + (size_t)i * embd, l->x + (size_t)from[i] * embd, embd * 4);
        memcpy(shared + (size_t)i * embd, l->shared + (size_t)from[i] * embd, embd * 4);
        memcpy(logits + i * EXPERTS, l->logits + from[i] * EXPERTS, EXPERTS * 4);
        shared_gate[i] = l->shared_gate[from[i]];
    }
    for (size_t i = 0; i < rows * embd; i++)
        out[i] = 1;
    backend_moe(be, &(struct moe){.n_experts = EXPERTS,
                                  .n_used = l->s.n_used,
                                  .gate = l->gate,
                                  .up = l->up,
                                  .down = l->down,
                                  .normalise = l->s.normalise,
                                  .scale = l->s.scale,
                                  .logits = logits,
                                  .x = x,
                                  .shared = l->s.shared ? shared : NULL,
                                  .shared_gate = l->s.shared ? shared_gate : NULL,
                                  .out = out,
                                  .n_rows = n,
                                  .gate_rows = gate,
                                  .up_rows = up,
                                  .down_rows = down});
    float *all[] = {x, logits, shared, shared_gate, gate, up, down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    return out;
}

/* ---- the reference ---- */

static double dot(const float *w, const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)w[i] * x[i];
    return sum;
}

/* What expert e makes of x, added weight times. */
static void add_expert(const struct layer *l, int e, double weight, const double *x, double *out)
{
    int embd = l->s.n_embd, ff = l->s.n_ff;
    double h[512];
    size_t matrix = (size_t)embd * (size_t)ff;
    const float *gate = l->exact_gate + (size_t)e * matrix, *up = l->exact_up + (size_t)e * matrix,
                *down = l->exact_down + (size_t)e * matrix;
    for (int i = 0; i < ff; i++) {
        double g = dot(gate + i * embd, x, embd);
        h[i] = g / (1 + exp(-g)) * dot(up + i * embd, x, embd);
    }
    for (int i = 0; i < embd; i++)
        out[i] += weight * dot(down + i * ff, h, ff);
}

static void reference_row(const struct layer *l, int row, double *out)
{
    int embd = l->s.n_embd;
    const float *logit = l->logits + row * EXPERTS;
    double x[512], p[EXPERTS], all = 0, chosen = 0;
    for (int i = 0; i < embd; i++) {
        x[i] = (double)l->x[row * embd + i];
        out[i] = 1;
    }
    for (int e = 0; e < EXPERTS; e++)
        all += p[e] = exp((double)logit[e]);
    bool used[EXPERTS] = {false};
    for (int e = 0; e < EXPERTS; e++) { /* used: fewer than n_used experts are liked better */
        int better = 0;
        for (int f = 0; f < EXPERTS; f++)
            better += logit[f] > logit[e];
        used[e] = better < l->s.n_used;
        chosen += used[e] ? p[e] : 0;
    }
    for (int e = 0; e < EXPERTS; e++)
        if (used[e])
            add_expert(l, e, (double)l->s.scale * p[e] / (l->s.normalise ? chosen : all), x, out);
    if (!l->s.shared) return;
    double open = 1 / (1 + exp(-(double)l->shared_gate[row]));
    for (int i = 0; i < embd; i++)
        out[i] += open * (double)l->shared[row * embd + i];
}

/* Root mean square of the difference, relative to that of what was added to the ones. */
static double error_of(const struct layer *l, const float *out)
{
    double off = 0, size = 0, want[512];
    for (int r = 0; r < ROWS; r++) {
        reference_row(l, r, want);
        for (int i = 0; i < l->s.n_embd; i++) {
            double d = want[i] - (double)out[r * l->s.n_embd + i];
            off += d * d;
            size += (want[i] - 1) * (want[i] - 1);
        }
    }
    return sqrt(off / size);
}

static bool is_float(enum tensor_type t)
{
    return t == TENSOR_F32 || t == TENSOR_F16 || t == TENSOR_BF16;
}

static const struct shape small = {64, 96, 2, true, false, 1},
                          wide = {256, 512, 3, false, true, 1.5f},
                          odd = {40, 24, 7, false, false, 1}; /* every expert; part of a panel */

TEST(every_type_on_every_instruction_set_computes_the_formulas)
{
    int from[ROWS];
    for (int i = 0; i < ROWS; i++)
        from[i] = i;
    for (int i = 0; i < N_ISAS; i++)
        for (int exact = 0; exact < 2; exact++) {
            struct backend *be = open_backend(all_isas[i], 2, exact);
            for (int t = 0; be && t < N_TYPES; t++) {
                int block = tensor_type_block(all_types[t]);
                struct shape s = block == 256 ? wide : block == 32 ? small : odd;
                struct layer l = make(be, all_types[t], s);
                float *out = run(be, &l, from, ROWS);
                bool rounds = !exact && i > 0 && !is_float(all_types[t]);
                double error = error_of(&l, out);
                CHECK_AT(error < (rounds ? 0.02 : 2e-6), "%s %s%s: %.2g", all_isas[i],
                         tensor_type_name((uint32_t)all_types[t]), exact ? " exact" : "", error);
                mem_free(out);
                drop(&l);
            }
            backend_close(be);
        }
}

TEST(a_row_is_the_same_bits_alone_in_company_elsewhere_and_on_other_threads)
{
    static const int some[] = {11, 3, 18, 0, 7};
    int all[ROWS];
    for (int i = 0; i < ROWS; i++)
        all[i] = i;
    for (int i = 0; i < N_ISAS; i++) {
        struct backend *be = open_backend(all_isas[i], 1, false),
                       *more = open_backend(all_isas[i], 3, false);
        if (!be) continue;
        struct layer l = make(be, TENSOR_Q4_K, wide), other = make(more, TENSOR_Q4_K, wide);
        size_t n = (size_t)wide.n_embd;
        float *whole = run(be, &l, all, ROWS), *threads = run(more, &other, all, ROWS),
              *mixed = run(be, &l, some, 5);
        CHECK(!memcmp(whole, threads, ROWS * n * sizeof *whole));
        for (int k = 0; k < 5; k++)
            CHECK(!memcmp(mixed + (size_t)k * n, whole + (size_t)some[k] * n, n * sizeof *whole));
        for (int r = 0; r < ROWS; r++) {
            float *alone = run(be, &l, &r, 1);
            CHECK(!memcmp(alone, whole + (size_t)r * n, n * sizeof *alone));
            mem_free(alone);
        }
        mem_free(whole), mem_free(threads), mem_free(mixed);
        drop(&l), drop(&other);
        backend_close(be), backend_close(more);
    }
}

TEST(of_equal_logits_the_lower_number_wins_and_logits_that_are_no_numbers_pick_some_expert)
{
    struct backend *be = open_backend("scalar", 1, false);
    struct shape s = {32, 32, 1, true, false, 1};
    struct layer l = make(be, TENSOR_F32, s);
    int row = 0;
    for (int e = 0; e < EXPERTS; e++)
        l.logits[e] = e == 2 || e == 5 ? 4 : 1;
    float *tied = run(be, &l, &row, 1);
    l.logits[5] = 1;
    float *second = run(be, &l, &row, 1);
    CHECK(!memcmp(tied, second, 32 * sizeof *tied));
    for (int e = 0; e < EXPERTS; e++)
        l.logits[e] = e % 2 ? NAN : -INFINITY;
    float *none = run(be, &l, &row, 1);
    CHECK(isnan(none[0]));
    mem_free(tied), mem_free(second), mem_free(none);
    drop(&l);
    backend_close(be);
}

TEST(stacks_of_wrong_shape_are_refused)
{
    struct backend *be = open_backend("scalar", 1, false);
    struct weight *w;
    struct errmsg e = {0};
    struct weight_shape none = {TENSOR_F32, 0, 4, 4}, many = {TENSOR_F32, 1 << 20, 1 << 20, 4};
    float x[16] = {0};
    CHECK_INT(weight_new_stack(&w, be, &none, x, &e), ERR_INVALID);
    CHECK_INT(weight_new_stack(&w, be, &many, x, &e), ERR_INVALID);
    CHECK(!w);
    backend_close(be);
}

TEST_MAIN()
