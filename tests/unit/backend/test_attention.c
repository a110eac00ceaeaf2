/* test_attention.c - rope, KV store and attention against double loops written here, over block sizes, head shapes, forms of KV and
 * contexts that cross the 256-position parts; then the promises: bits independent of batch and threads, blocks of others
 * unread. Rounded KV is compared with a rounding of its own, so that the tolerance stays that of float arithmetic. */
#include <math.h>

#include "tests/unit/backend/helpers.h"

struct dims {
    int n_heads, n_kv_heads, head_dim, block_tokens;
};
static const struct dims all_dims[] = {{9, 3, 64, 16}, {14, 2, 64, 16}, {4, 4, 32, 8},
                                       {2, 1, 128, 2}, {16, 1, 72, 16}, {3, 1, 256, 64},
                                       {6, 2, 16, 5}};
enum { N_DIMS = sizeof all_dims / sizeof all_dims[0], SEQS = 3, POS_MAX = 700 };
static const int lengths[SEQS] = {5, 300, 530};

/* One layer's inputs for SEQS sequences and everything a call needs. */
struct world {
    struct dims d;
    struct backend *be;
    struct kv *kv;
    struct rope *rope;
    bool half_split;
    enum kv_type type;
    const float *spread;
    int n_rows, first[SEQS];
    float *q, *k, *v;        /* before rope */
    double *kept_k, *kept_v; /* what the store should hold, [n_rows][n_kv_heads][head_dim] */
    int32_t *pos, *seq;
    int32_t table[SEQS][POS_MAX];
    const int32_t *tables[SEQS];
};

static void shuffle_blocks(struct world *w, struct rng *r, int n_blocks)
{
    int32_t *ids = xmalloc((size_t)n_blocks * 4);
    for (int i = 0; i < n_blocks; i++)
        ids[i] = i;
    for (int i = n_blocks - 1; i > 0; i--) {
        int j = (int)rng_below(r, (uint64_t)i + 1), t = ids[i];
        ids[i] = ids[j], ids[j] = t;
    }
    int at = 0;
    for (int s = 0; s < SEQS; s++) {
        w->tables[s] = w->table[s];
        for (int b = 0; b * w->d.block_tokens < lengths[s]; b++)
            w->table[s][b] = ids[at++];
    }
    mem_free(ids);
}

/* How K and V are kept: float32, or one of the types. */
enum { EXACT = -1 };

static bool world_init(struct world *w, const char *isa, int threads, int type, struct dims d,
                       bool half_split)
{
    *w = (struct world){
        .d = d, .half_split = half_split, .type = type == EXACT ? KV_F16 : (enum kv_type)type};
    w->be = open_backend(isa, threads, type == EXACT);
    if (!w->be) return false;
    struct errmsg e = {0};
    int n_blocks = 0;
    for (int s = 0; s < SEQS; s++) {
        w->first[s] = w->n_rows;
        w->n_rows += lengths[s];
        n_blocks += (lengths[s] + d.block_tokens - 1) / d.block_tokens;
    }
    struct kv_options o = {.n_layers = 2,
                           .n_kv_heads = d.n_kv_heads,
                           .head_dim = d.head_dim,
                           .n_blocks = n_blocks + 3,
                           .block_tokens = d.block_tokens,
                           .type = w->type};
    CHECK_INT(kv_new(&w->kv, w->be, &o, &e), OK);
    struct rope_options ro = {
        .base = 10000, .dims = d.head_dim, .pos_max = POS_MAX, .half_split = half_split};
    CHECK_INT(rope_new(&w->rope, &ro, &e), OK);
    struct rng r;
    rng_seed(&r, 4);
    shuffle_blocks(w, &r, n_blocks + 3);
    w->q = random_values(&r, (size_t)(w->n_rows * d.n_heads * d.head_dim), 1.5f);
    w->k = random_values(&r, (size_t)(w->n_rows * d.n_kv_heads * d.head_dim), 1.5f);
    w->v = random_values(&r, (size_t)(w->n_rows * d.n_kv_heads * d.head_dim), 1.0f);
    w->pos = xmalloc((size_t)w->n_rows * 4);
    w->seq = xmalloc((size_t)w->n_rows * 4);
    for (int s = 0; s < SEQS; s++)
        for (int i = 0; i < lengths[s]; i++)
            w->pos[w->first[s] + i] = i, w->seq[w->first[s] + i] = s;
    return true;
}

static void world_fini(struct world *w)
{
    kv_free(w->kv);
    rope_free(w->rope);
    backend_close(w->be);
    mem_free(w->q), mem_free(w->k), mem_free(w->v), mem_free(w->pos), mem_free(w->seq);
    mem_free(w->kept_k), mem_free(w->kept_v);
}

/* Rows [first, first+n) of sequence order through store and attention; out and q are full-size arrays. */
static void run(struct world *w, int first, int n, float *q, float *out, int window, float softcap)
{
    struct kv_rows rows = {
        .n_rows = n, .pos = w->pos + first, .seq = w->seq + first, .block_table = w->tables};
    size_t qn = (size_t)(w->d.n_heads * w->d.head_dim),
           kn = (size_t)(w->d.n_kv_heads * w->d.head_dim);
    backend_rope_store(w->be, w->kv, &rows,
                       &(struct rope_store){.rope = w->rope,
                                            .layer = 1,
                                            .n_heads = w->d.n_heads,
                                            .q = q + (size_t)first * qn,
                                            .k = w->k + (size_t)first * kn,
                                            .v = w->v + (size_t)first * kn,
                                            .spread = w->spread});
    backend_attention(w->be, w->kv, &rows,
                      &(struct attention){.layer = 1,
                                          .n_heads = w->d.n_heads,
                                          .q = q + (size_t)first * qn,
                                          .scale = 0.3f,
                                          .window = window,
                                          .softcap = softcap,
                                          .out = out + (size_t)first * qn});
}

static void turn(const float *x, int n, int pos, bool half_split, double *out)
{
    for (int i = 0; i < n / 2; i++) {
        int a = half_split ? i : 2 * i, b = half_split ? i + n / 2 : 2 * i + 1;
        double t = pos * pow(10000, -2.0 * i / n);
        out[a] = x[a] * cos(t) - x[b] * sin(t);
        out[b] = x[a] * sin(t) + x[b] * cos(t);
    }
}

/* x as int8 storage keeps it. */
static void as_int8(double *x, int n)
{
    double peak = 0;
    for (int i = 0; i < n; i++)
        peak = fmax(peak, fabs(x[i]));
    double step = f16_to_f32(f32_to_f16((float)peak / 127.0f));
    for (int i = 0; i < n; i++)
        x[i] = step > 0 ? fmin(fmax(rint(x[i] / step), -127), 127) * step : 0;
}

/* x in four bits, 32 values at a time. */
static void as_u4(double *x, int n)
{
    for (int at = 0, m; at < n; at += m, x += m) {
        m = n - at < 32 ? n - at : 32;
        double low = x[0], high = x[0];
        for (int i = 1; i < m; i++)
            low = fmin(low, x[i]), high = fmax(high, x[i]);
        low = f16_to_f32(f32_to_f16((float)low));
        double step = f16_to_f32(f32_to_f16((float)(high - low) / 15.0f));
        for (int i = 0; i < m; i++)
            x[i] = low + (step > 0 ? fmin(fmax(rint((x[i] - low) / step), 0), 15) * step : 0);
    }
}

static void expect_kept(struct world *w)
{
    size_t n = (size_t)w->d.head_dim, heads = (size_t)w->d.n_kv_heads;
    w->kept_k = xmalloc((size_t)w->n_rows * heads * n * sizeof(double));
    w->kept_v = xmalloc((size_t)w->n_rows * heads * n * sizeof(double));
    for (size_t i = 0; i < (size_t)w->n_rows * heads; i++) {
        double *k = w->kept_k + i * n, *v = w->kept_v + i * n;
        turn(w->k + i * n, (int)n, w->pos[i / heads], w->half_split, k);
        for (size_t d = 0; d < n; d++)
            v[d] = w->v[i * n + d];
        if (w->type != KV_F16) as_int8(k, (int)n);
        if (w->type == KV_INT8) as_int8(v, (int)n);
        if (w->type == KV_K8V4) as_u4(v, (int)n);
    }
}

static const double *kept(const struct world *w, const double *of, int row, int kv_head)
{
    return of + (size_t)(row * w->d.n_kv_heads + kv_head) * (size_t)w->d.head_dim;
}

/* Reference for one row and head. */
static void expect(const struct world *w, int row, int head, int window, float softcap, double *out)
{
    int n = w->d.head_dim, s = w->seq[row], pos = w->pos[row],
        kh = head / (w->d.n_heads / w->d.n_kv_heads);
    double q[256], p[POS_MAX], top = -INFINITY, sum = 0;
    turn(w->q + (size_t)((row * w->d.n_heads + head) * n), n, pos, w->half_split, q);
    int from = window && pos >= window ? pos - window + 1 : 0;
    for (int j = from; j <= pos; j++) {
        const double *k = kept(w, w->kept_k, w->first[s] + j, kh);
        double dot = 0;
        for (int i = 0; i < n; i++)
            dot += q[i] * k[i];
        p[j] = dot * 0.3;
        if (softcap > 0) p[j] = softcap * tanh(p[j] / softcap);
        top = fmax(top, p[j]);
    }
    for (int i = 0; i < n; i++)
        out[i] = 0;
    for (int j = from; j <= pos; j++)
        sum += p[j] = exp(p[j] - top);
    for (int j = from; j <= pos; j++) {
        const double *v = kept(w, w->kept_v, w->first[s] + j, kh);
        for (int i = 0; i < n; i++)
            out[i] += p[j] / sum * v[i];
    }
}

static void check_world(struct world *w, int window, float softcap)
{
    size_t total = (size_t)(w->n_rows * w->d.n_heads * w->d.head_dim);
    float *q = xmalloc(total * 4), *out = xmalloc(total * 4);
    memcpy(q, w->q, total * 4);
    run(w, 0, w->n_rows, q, out, window, softcap);
    if (!w->kept_k) expect_kept(w);
    double tol = backend_is_exact(w->be)
                     ? 5e-5
                     : 2e-2; /* float16 K and V: 2^-11 of scores up to ~20, of values up to 3 */
    int bad = 0;
    for (int row = 0; row < w->n_rows; row += row < 20 ? 1 : 67)
        for (int h = 0; h < w->d.n_heads; h++) {
            double want[256];
            expect(w, row, h, window, softcap, want);
            for (int i = 0; i < w->d.head_dim; i++) {
                double got = out[(size_t)((row * w->d.n_heads + h) * w->d.head_dim + i)];
                if (!(fabs(got - want[i]) <= tol) && !bad++)
                    CHECK_AT(false,
                             "%s exact %d %s heads %d/%d x %d block %d window %d: row %d head %d "
                             "dim %d is %.7g, not %.7g",
                             backend_isa_name(w->be), backend_is_exact(w->be),
                             kv_type_name(w->type), w->d.n_heads, w->d.n_kv_heads, w->d.head_dim,
                             w->d.block_tokens, window, row, h, i, got, want[i]);
            }
        }
    mem_free(q), mem_free(out);
}

static void check_isa(const char *isa)
{
    struct world w;
    for (int i = 0; i < N_DIMS; i++)
        for (int type = EXACT; type < KV_TYPES; type++) {
            bool small = i == 3 || i == 6;
            if (!strcmp(isa, "scalar") && !(small || (i == 0 && type == EXACT)))
                continue; /* slow */
            if (!world_init(&w, isa, 2, type, all_dims[i], i % 2))
                SKIP("this CPU lacks the instruction set");
            check_world(&w, 0, 0);
            if (i < 2) check_world(&w, 100, 0);
            if (i == 0) check_world(&w, 0, 5);
            world_fini(&w);
        }
}

TEST(scalar_attention_matches_double_loops)
{
    check_isa("scalar");
}
TEST(avx2_attention_matches_double_loops)
{
    check_isa("avx2");
}
TEST(avx512_attention_matches_double_loops)
{
    check_isa("avx512");
}

TEST(a_row_attends_to_the_same_bits_alone_in_chunks_and_for_any_thread_count)
{
    static const struct dims d = {9, 3, 64, 16};
    size_t n = (size_t)(835 * 9 * 64);
    float *whole = xmalloc(n * 4), *parts = xmalloc(n * 4), *q = xmalloc(n * 4), *first[KV_TYPES];
    for (int t = 0; t < KV_TYPES; t++)
        first[t] = xmalloc(n * 4);
    for (int isa = 1; isa < N_ISAS; isa++)
        for (int threads = 1; threads <= 3; threads++)
            for (int i = 0; i < 2 * KV_TYPES; i++) {
                int window = i < KV_TYPES ? 0 : 200, type = i % KV_TYPES;
                struct world w;
                if (type != KV_F16 && threads != (window ? 3 : 1)) continue;
                if (!world_init(&w, all_isas[isa], threads, type, d, false)) continue;
                memcpy(q, w.q, n * 4);
                run(&w, 0, w.n_rows, q, whole, window, 0);
                memcpy(q, w.q, n * 4);
                struct rng r;
                rng_seed(&r, 77);
                for (int at = 0, step; at < w.n_rows;
                     at += step) { /* decode steps and chunks of prefill */
                    step = rng_below(&r, 3) ? 1 : 1 + (int)rng_below(&r, 60);
                    if (step > w.n_rows - at) step = w.n_rows - at;
                    run(&w, at, step, q, parts, window, 0);
                }
                CHECK_AT(!memcmp(whole, parts, n * 4), "%s %s %d threads window %d: chunks differ",
                         all_isas[isa], kv_type_name(w.type), threads, window);
                if (threads == 1 && !window) memcpy(first[type], whole, n * 4);
                if (!window)
                    CHECK_AT(!memcmp(first[type], whole, n * 4), "%s %s: %d threads differ from 1",
                             all_isas[isa], kv_type_name(w.type), threads);
                world_fini(&w);
            }
    mem_free(whole), mem_free(parts), mem_free(q);
    for (int t = 0; t < KV_TYPES; t++)
        mem_free(first[t]);
}

TEST(copied_and_swapped_blocks_attend_alike)
{
    for (int i = 0; i < N_ISAS * (KV_TYPES + 1); i++) {
        struct world w;
        static const struct dims d = {4, 2, 32, 8};
        if (!world_init(&w, all_isas[i % N_ISAS], 1, EXACT + i / N_ISAS, d, true)) continue;
        size_t row = (size_t)(d.n_heads * d.head_dim), n = (size_t)w.n_rows * row;
        float *q = xmalloc(n * 4), *out = xmalloc(n * 4), *again = xmalloc(n * 4);
        memcpy(q, w.q, n * 4);
        run(&w, 0, 5, q, out, 0, 0); /* sequence 0: 5 tokens in one block */
        int from = w.table[0][0], spare = w.table[1][0], other = w.table[1][1];
        kv_copy(w.kv, spare, from, 5);
        void *bytes = xmalloc(kv_block_bytes(w.kv));
        kv_block_read(w.kv, from, bytes);
        kv_block_write(w.kv, other, bytes);
        const int32_t *table = w.table[1]; /* first block is now a copy */
        struct kv_rows rows = {.n_rows = 1, .pos = w.pos + 4, .seq = w.seq, .block_table = &table};
        struct attention a = {
            .layer = 1, .n_heads = d.n_heads, .q = q + 4 * row, .scale = 0.3f, .out = again};
        backend_attention(w.be, w.kv, &rows, &a);
        CHECK(!memcmp(again, out + 4 * row, row * 4));
        table = w.table[1] + 1; /* the swapped one */
        backend_attention(w.be, w.kv, &rows, &a);
        CHECK(!memcmp(again, out + 4 * row, row * 4));
        mem_free(q), mem_free(out), mem_free(again), mem_free(bytes);
        world_fini(&w);
    }
}

TEST(what_lies_behind_a_row_in_its_block_is_never_seen)
{
    for (int i = 0; i < N_ISAS * KV_TYPES; i++) {
        struct world w;
        static const struct dims d = {9, 3, 64, 16};
        if (!world_init(&w, all_isas[i % N_ISAS], 1, i / N_ISAS, d, false)) continue;
        size_t row = (size_t)(d.n_heads * d.head_dim);
        float *q = xmalloc(5 * row * 4), *out = xmalloc(5 * row * 4), *again = xmalloc(5 * row * 4);
        memcpy(q, w.q, 5 * row * 4);
        run(&w, 0, 3, q, out, 0, 0);
        uint8_t *bytes = xmalloc(kv_block_bytes(w.kv));
        memset(bytes, 0xff, kv_block_bytes(w.kv)); /* float16 NaN everywhere */
        kv_block_write(w.kv, w.table[0][0], bytes);
        memcpy(q, w.q, 5 * row * 4);
        run(&w, 0, 3, q, again, 0, 0);
        CHECK_AT(!memcmp(out, again, 3 * row * 4), "%s %s: stale bytes leak into a result",
                 all_isas[i % N_ISAS], kv_type_name(w.type));
        mem_free(q), mem_free(out), mem_free(again), mem_free(bytes);
        world_fini(&w);
    }
}

TEST(huge_values_do_not_become_infinities_in_the_store)
{
    struct world w;
    static const struct dims d = {1, 1, 64, 16};
    for (int k = 0; k < N_ISAS * KV_TYPES; k++) {
        if (!world_init(&w, all_isas[k % N_ISAS], 1, k / N_ISAS, d, false)) continue;
        for (int i = 0; i < 64; i++)
            w.v[i] = i % 2 ? 1e30f : -1e30f;
        float q[64 * 2], out[64 * 2];
        memcpy(q, w.q, sizeof q);
        run(&w, 0, 2, q, out, 0, 0);
        for (int i = 0; i < 128; i++)
            CHECK(isfinite(out[i]));
        float largest = w.type == KV_INT8 ? 127 * 65504.0f : 65504.0f;
        CHECK(out[0] == -largest && fabsf(out[1] - largest) <= 64);
        world_fini(&w);
    }
}

TEST(every_instruction_set_stores_the_same_bytes)
{
    for (int type = 0; type < KV_TYPES; type++)
        for (int i = 0; i < N_DIMS; i++) {
            uint8_t *first = NULL;
            for (int isa = 0; isa < N_ISAS; isa++) {
                struct world w;
                if (!world_init(&w, all_isas[isa], 1, type, all_dims[i], false)) continue;
                struct kv_rows rows = {
                    .n_rows = 3, .pos = w.pos, .seq = w.seq, .block_table = w.tables};
                struct rope_store p = {.n_heads = w.d.n_heads, .q = w.q, .k = w.k, .v = w.v};
                memset(w.v, 0, (size_t)w.d.head_dim * 4); /* no spread at all */
                size_t n = kv_block_bytes(w.kv);
                uint8_t *bytes = xcalloc(n, 1);
                kv_block_write(w.kv, w.table[0][0], bytes);
                backend_rope_store(w.be, w.kv, &rows, &p);
                kv_block_read(w.kv, w.table[0][0], bytes);
                if (first)
                    CHECK_AT(!memcmp(bytes, first, n), "%s %s head_dim %d", all_isas[isa],
                             kv_type_name(w.type), w.d.head_dim);
                else
                    first = xmalloc(n), memcpy(first, bytes, n);
                mem_free(bytes);
                world_fini(&w);
            }
            mem_free(first);
        }
}

/* Largest difference to exact K and V over the rows checked. */
static double worst_error(struct world *w)
{
    size_t total = (size_t)(w->n_rows * w->d.n_heads * w->d.head_dim);
    float *q = xmalloc(total * 4), *out = xmalloc(total * 4);
    memcpy(q, w->q, total * 4);
    run(w, 0, w->n_rows, q, out, 0, 0);
    enum kv_type type = w->type;
    w->type = KV_F16; /* expect float values */
    expect_kept(w);
    w->type = type;
    double worst = 0, want[256];
    for (int row = 0; row < w->n_rows; row += 31)
        for (int h = 0; h < w->d.n_heads; h++) {
            expect(w, row, h, 0, 0, want);
            for (int i = 0; i < w->d.head_dim; i++)
                worst =
                    fmax(worst, fabs(out[(row * w->d.n_heads + h) * w->d.head_dim + i] - want[i]));
        }
    mem_free(q), mem_free(out);
    return worst;
}

TEST(channels_far_larger_than_others_do_no_harm_once_spread)
{
    enum { N = 64, KV_HEADS = 3, BIG = 5, PAIR = BIG + N / 2 };
    static const struct dims d = {9, KV_HEADS, N, 16};
    float spread[KV_HEADS * N];
    for (int i = 0; i < KV_HEADS * N; i++)
        spread[i] = i % N == BIG || i % N == PAIR ? 90.0f : 0.8f;
    for (int i = 0; i < 2 * N_ISAS; i++) {
        struct world w;
        if (!world_init(&w, all_isas[i % N_ISAS], 2, i < N_ISAS ? EXACT : KV_INT8, d, true))
            continue;
        for (int r = 0; r < w.n_rows * KV_HEADS; r++)
            w.k[r * N + BIG] += 100, w.k[r * N + PAIR] -= 60;
        for (int r = 0; r < w.n_rows * d.n_heads; r++) /* as trained models do */
            w.q[r * N + BIG] *= 0.02f, w.q[r * N + PAIR] *= 0.02f;
        double plain = i < N_ISAS ? 0 : worst_error(&w);
        mem_free(w.kept_k), mem_free(w.kept_v);
        w.spread = spread;
        double even = worst_error(&w);
        CHECK_AT(even < (i < N_ISAS ? 2e-4 : 0.15), "%s %d: %g", all_isas[i % N_ISAS], i, even);
        if (i >= N_ISAS) CHECK_AT(plain > 4 * even, "%g without, %g with", plain, even);
        world_fini(&w);
    }
}

TEST(encoder_attention_stays_inside_its_segment)
{
    enum { HEADS = 3, N = 40, TOTAL = 1 + 40 + 300 };
    const int32_t length[3] = {1, 40, 300};
    for (int isa = 0; isa < N_ISAS; isa++) {
        struct backend *be = open_backend(all_isas[isa], 2, false);
        if (!be) continue;
        struct rng r;
        rng_seed(&r, 12);
        size_t n = TOTAL * HEADS * N;
        float *q = random_values(&r, n, 1.0f), *k = random_values(&r, n, 1.0f),
              *v = random_values(&r, n, 1.0f), *out = xmalloc(n * 4), *alone = xmalloc(n * 4);
        struct attention_full p = {.q = q,
                                   .k = k,
                                   .v = v,
                                   .length = length,
                                   .n_segments = 3,
                                   .n_heads = HEADS,
                                   .head_dim = N,
                                   .scale = 0.2f,
                                   .out = out};
        backend_attention_full(be, &p);
        for (int s = 0, first = 0; s < 3; first += length[s++]) {
            for (int i = 0; i < length[s]; i += 7)
                for (int h = 0; h < HEADS; h++) {
                    double w[300], top = -INFINITY, sum = 0;
                    for (int j = 0; j < length[s]; j++) {
                        w[j] = 0;
                        for (int x = 0; x < N; x++)
                            w[j] += 0.2 * q[((first + i) * HEADS + h) * N + x] *
                                    (double)k[((first + j) * HEADS + h) * N + x];
                        top = fmax(top, w[j]);
                    }
                    for (int j = 0; j < length[s]; j++)
                        sum += w[j] = exp(w[j] - top);
                    for (int x = 0; x < N; x++) {
                        double want = 0;
                        for (int j = 0; j < length[s]; j++)
                            want += w[j] / sum * v[((first + j) * HEADS + h) * N + x];
                        CHECK_NEAR(out[((first + i) * HEADS + h) * N + x], want, 2e-5);
                    }
                }
            size_t at = (size_t)(first * HEADS * N);
            p.q = q + at, p.k = k + at, p.v = v + at, p.out = alone, p.length = length + s,
            p.n_segments = 1;
            backend_attention_full(be, &p);
            CHECK_AT(!memcmp(alone, out + at, (size_t)(length[s] * HEADS * N) * 4),
                     "%s: segment %d differs alone", all_isas[isa], s);
            p = (struct attention_full){.q = q,
                                        .k = k,
                                        .v = v,
                                        .length = length,
                                        .n_segments = 3,
                                        .n_heads = HEADS,
                                        .head_dim = N,
                                        .scale = 0.2f,
                                        .out = out};
        }
        mem_free(q), mem_free(k), mem_free(v), mem_free(out), mem_free(alone);
        backend_close(be);
    }
}

TEST_MAIN()
