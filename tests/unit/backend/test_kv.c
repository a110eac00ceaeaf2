/* test_kv.c - the KV store beside attention: what its types are called and cost, and rope against its formula. */
#include <math.h>

#include "tests/unit/backend/helpers.h"

TEST(int8_takes_half_the_memory_and_k8v4_two_fifths)
{
    struct backend *be = open_backend("scalar", 1, false);
    struct errmsg e = {0};
    double bytes[KV_TYPES];
    for (int type = 0; type < KV_TYPES; type++) {
        struct kv *kv = NULL;
        struct kv_options o = {.n_layers = 3,
                               .n_kv_heads = 2,
                               .head_dim = 64,
                               .n_blocks = 5,
                               .block_tokens = 16,
                               .type = (enum kv_type)type};
        REQUIRE(kv_new(&kv, be, &o, &e) == OK);
        CHECK_INT(kv_bytes(kv), 5 * 16 * kv_bytes_per_token(o.type, false, 3, 2, 64));
        bytes[type] = (double)kv_bytes(kv);
        kv_free(kv);
    }
    CHECK(bytes[KV_INT8] / bytes[KV_F16] < 0.52);
    CHECK(bytes[KV_K8V4] / bytes[KV_F16] < 0.42);
    backend_close(be);
}

TEST(kv_types_have_names_and_exact_arithmetic_refuses_rounded_ones)
{
    enum kv_type t;
    struct errmsg e = {0};
    for (int i = 0; i < KV_TYPES; i++) {
        CHECK_INT(kv_type_parse(kv_type_name((enum kv_type)i), &t, &e), OK);
        CHECK_INT((int)t, i);
    }
    CHECK_INT(kv_type_parse("auto", &t, &e), OK);
    CHECK_INT((int)t, KV_F16);
    CHECK_INT(kv_type_parse("fp8", &t, &e), ERR_INVALID);
    CHECK(strstr(e.text, "\"fp8\"") && strstr(e.text, "int8"));
    struct backend *be = open_backend("scalar", 1, true);
    struct kv *kv;
    struct kv_options o = {
        .n_layers = 1, .n_kv_heads = 1, .head_dim = 8, .n_blocks = 1, .block_tokens = 8};
    o.type = KV_INT8;
    CHECK_INT(kv_new(&kv, be, &o, &e), ERR_INVALID);
    CHECK(kv == NULL);
    backend_close(be);
}

TEST(rope_factors_and_partial_rotation_follow_the_formula)
{
    const float factors[2] = {2.0f, 4.0f};
    struct rope_options o = {
        .base = 100, .dims = 4, .pos_max = 10, .freq_factors = factors, .linear_scale = 2};
    struct rope *rope = NULL;
    struct errmsg e = {0};
    REQUIRE(rope_new(&rope, &o, &e) == OK);
    for (int isa = 0; isa < N_ISAS; isa++) {
        struct backend *be = open_backend(all_isas[isa], 1, true);
        struct kv *kv = NULL;
        if (!be) continue;
        CHECK_INT(kv_new(&kv, be,
                         &(struct kv_options){.n_layers = 1,
                                              .n_kv_heads = 1,
                                              .head_dim = 8,
                                              .n_blocks = 1,
                                              .block_tokens = 16},
                         &e),
                  OK);
        float q[8] = {1, 2, 3, 4, 5, 6, 7, 8}, k[8] = {0}, v[8] = {0};
        const int32_t pos = 6, seq = 0, block = 0, *table = &block;
        struct kv_rows rows = {.n_rows = 1, .pos = &pos, .seq = &seq, .block_table = &table};
        backend_rope_store(
            be, kv, &rows,
            &(struct rope_store){.rope = rope, .n_heads = 1, .q = q, .k = k, .v = v});
        double a = 6 / 2.0 / 2, b = 6 / 2.0 * pow(100, -0.5) / 4;
        CHECK_NEAR(q[0], 1 * cos(a) - 2 * sin(a), 1e-6);
        CHECK_NEAR(q[1], 1 * sin(a) + 2 * cos(a), 1e-6);
        CHECK_NEAR(q[3], 3 * sin(b) + 4 * cos(b), 1e-6);
        CHECK(q[4] == 5 && q[7] == 8);
        kv_free(kv);
        backend_close(be);
    }
    rope_free(rope);
}

TEST_MAIN()
