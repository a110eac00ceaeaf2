/* test_plan.c - the arithmetic of plan.h on made-up numbers, and what `deja plan` says to wrong options. */
#include "engine/plan.h"
#include "engine/plan_main.h"
#include "tests/check.h"

static struct plan example(void)
{
    return (struct plan){.model = "m",
                         .arch = "llama",
                         .bytes = {[PLAN_WEIGHTS] = 100 << 20, [PLAN_KV] = 400 << 20},
                         .total = 500 << 20,
                         .kv_bytes_per_token = 1000,
                         .read_per_token = 100000000,
                         .macs_per_token = 1e8,
                         .max_len = 4096,
                         .max_num_seqs = 16,
                         .block_size = 16,
                         .n_blocks = 100,
                         .kv_tokens = 1600};
}

TEST(one_sequence_is_bound_by_reading_and_many_by_arithmetic)
{
    struct plan p = example();
    struct plan_machine m = {
        .memory_bytes = 1u << 30, .read_bytes_per_s = 1e10, .macs_per_s = 1e11};
    CHECK_NEAR(plan_decode_bound(&p, &m, 1, 0), 100, 1e-6);     /* 1e10 / 1e8 */
    CHECK_NEAR(plan_decode_bound(&p, &m, 1, 100000), 50, 1e-6); /* as much KV as weights */
    CHECK_NEAR(plan_decode_bound(&p, &m, 100, 0), 1000, 1e-6);  /* 1e11 / 1e8 */
    CHECK_NEAR(plan_prefill_bound(&p, &m), 1000, 1e-6);
    m.macs_per_s = 0;
    CHECK_NEAR(plan_decode_bound(&p, &m, 1, 0), 0, 0);
}

TEST(the_more_sequences_the_more_of_the_experts_are_read)
{
    struct plan p = example();
    struct plan_machine m = {
        .memory_bytes = 1u << 30, .read_bytes_per_s = 1e10, .macs_per_s = 1e15};
    p.n_experts = 8, p.n_experts_used = 2, p.expert_bytes = 800000000;
    CHECK_NEAR(plan_decode_bound(&p, &m, 1, 0), 1e10 / 3e8, 1e-6);
    CHECK_NEAR(plan_decode_bound(&p, &m, 2, 0), 2e10 / (1e8 + 8e8 * 7 / 16), 1e-6);
    CHECK_NEAR(plan_decode_bound(&p, &m, 200, 0), 200e10 / 9e8, 1e-6);
}

TEST(all_experts_take_memory_and_the_chosen_take_part)
{
    struct gguf *g;
    struct model_plan m;
    struct plan p;
    struct errmsg e = {0};
    struct engine_sizes s = {
        .max_len = 64, .max_num_seqs = 1, .block_size = 16, .n_blocks = 8, .max_batch = 16};
    struct engine_options o = {.max_num_seqs = 1};
    REQUIRE(gguf_open(&g, TEST_DATA "/tiny-olmoe.gguf", &e) == OK);
    REQUIRE(model_plan_read(&m, g, &e) == OK);
    plan_make(&p, &m, &s, &o, g);
    double head = 32.0 * m.n_vocab, attention = 4 * 32 * 32, experts = 8 * 3 * 32 * 32,
           router = 8 * 32;
    CHECK_NEAR(p.parameters, 2 * head + 2 * (attention + router + experts), 0);
    CHECK_NEAR(p.active_parameters, 2 * head + 2 * (attention + router + experts * 3 / 8), 0);
    CHECK_NEAR(p.macs_per_token, head + 2 * (attention + router + experts * 3 / 8), 0);
    CHECK_INT(p.expert_bytes, (int)(2 * experts * 4));
    struct buf b;
    buf_init(&b, 1 << 16);
    plan_write_text(&p, &(struct plan_machine){.memory_bytes = 1u << 30}, NULL, 0, &b);
    CHECK(str_find(buf_view(&b), STR("experts: 3 of 8 a token")) >= 0);
    buf_clear(&b);
    plan_write_json(&p, &(struct plan_machine){.memory_bytes = 1u << 30}, &b);
    CHECK(str_find(buf_view(&b), STR("\"experts\":8,\"experts_used\":3")) >= 0);
    buf_fini(&b);
    model_plan_fini(&m);
    gguf_close(g);
}

TEST(ranks_share_weights_and_kv_and_each_has_activations)
{
    struct gguf *g;
    struct model_plan m;
    struct plan one, two;
    struct errmsg e = {0};
    struct engine_sizes s = {
        .max_len = 64, .max_num_seqs = 1, .block_size = 16, .n_blocks = 8, .max_batch = 16};
    struct engine_options o = {.max_num_seqs = 1};
    REQUIRE(gguf_open(&g, TEST_DATA "/tiny-llama-f32.gguf", &e) == OK);
    REQUIRE(engine_plan_read(&m, g, &o, &e) == OK);
    plan_make(&one, &m, &s, &o, g);
    model_plan_fini(&m);
    o.tensor_parallel = 2;
    REQUIRE(engine_plan_read(&m, g, &o, &e) == OK);
    plan_make(&two, &m, &s, &o, g);
    model_plan_fini(&m);
    CHECK_INT(one.n_ranks, 1);
    CHECK_INT(two.n_ranks, 2);
    CHECK_INT((long)two.bytes[PLAN_KV], (long)one.bytes[PLAN_KV]);
    CHECK_INT((long)two.kv_bytes_per_token, (long)one.kv_bytes_per_token);
    CHECK_NEAR(two.parameters, one.parameters, 0);
    CHECK_NEAR(two.macs_per_token, one.macs_per_token, 0);
    /* norms are everywhere, and a panel of rows may be half full */
    CHECK(two.bytes[PLAN_WEIGHTS] >= one.bytes[PLAN_WEIGHTS] &&
          (double)two.bytes[PLAN_WEIGHTS] < 1.1 * (double)one.bytes[PLAN_WEIGHTS]);
    CHECK(two.bytes[PLAN_ACTIVATIONS] > one.bytes[PLAN_ACTIVATIONS] &&
          two.bytes[PLAN_ACTIVATIONS] < 2 * one.bytes[PLAN_ACTIVATIONS]);
    gguf_close(g);
}

TEST(a_context_as_long_as_a_number_can_say_is_planned_for)
{
    struct gguf *g;
    struct model_plan m;
    struct plan p;
    struct errmsg e = {0};
    struct engine_sizes s = {.max_len = INT32_MAX,
                             .max_num_seqs = 1,
                             .block_size = 16,
                             .n_blocks = 1 << 28,
                             .max_batch = 16};
    struct engine_options o = {.max_num_seqs = 1};
    REQUIRE(gguf_open(&g, TEST_DATA "/tiny-olmoe.gguf", &e) == OK);
    REQUIRE(model_plan_read(&m, g, &e) == OK);
    plan_make(&p, &m, &s, &o, g);
    CHECK_INT(p.full_length_seqs, 2);
    model_plan_fini(&m);
    gguf_close(g);
}

static int n_ways_of(struct str text)
{
    int n = 0;
    for (size_t i = 0; i + 12 < text.n; i++)
        n += !memcmp(text.p + i, "\n  --kv-bytes", 13);
    return n;
}

TEST(what_does_not_fit_is_named_and_the_ways_that_fit_are_offered)
{
    struct plan p = example();
    struct plan_machine m = {.memory_bytes = 200 << 20};
    struct plan_way ways[] = {{.plan = p}, {" --kv-cache-dtype int8", p}, {" --max-num-seqs 4", p}};
    struct buf b;
    ways[2].plan.total = 700 << 20; /* beside its KV too much: no way */
    buf_init(&b, 1 << 16);
    plan_write_text(&p, &m, ways, 3, &b);
    struct str text = buf_view(&b);
    CHECK(str_find(text, STR("largest part is kv (400 MiB)")) >= 0);
    CHECK(str_find(text, STR("Two ways that fit:")) >= 0);
    CHECK_INT(n_ways_of(text), 2);
    buf_clear(&b);
    plan_write_text(&p, &m, ways + 2, 1, &b);
    CHECK(str_find(buf_view(&b), STR("Without any KV cache and swap space it still needs")) >= 0);
    buf_clear(&b);
    plan_write_json(&p, &m, &b);
    CHECK(str_find(buf_view(&b), STR("\"fits\":false")) >= 0);
    buf_fini(&b);
}

TEST(a_way_is_planned_with_its_own_options_and_there_is_none_where_nothing_is_left_to_lower)
{
    struct engine_options o = {.model_path = TEST_DATA "/tiny-llama-f32.gguf",
                               .max_num_seqs = 8,
                               .max_num_batched_tokens = 512,
                               .kv_type = KV_F16};
    struct plan p;
    struct plan_way w[PLAN_WAYS_MAX];
    struct errmsg e = {0};
    REQUIRE(plan_of(&p, &o, &e) == OK);
    REQUIRE(plan_ways(w, &p, &o) == 3);
    CHECK(!w[0].flags[0] && w[0].plan.total == p.total);
    CHECK(!strcmp(w[1].flags, " --kv-cache-dtype int8"));
    CHECK(w[1].plan.kv_bytes_per_token < p.kv_bytes_per_token);
    CHECK(!strncmp(w[2].flags, " --max-num-seqs 2", 17));
    CHECK(w[2].plan.bytes[PLAN_LOGITS] < p.bytes[PLAN_LOGITS]);
    o.max_num_seqs = 1, o.max_num_batched_tokens = 20, o.kv_type = KV_K8V4;
    REQUIRE(plan_of(&p, &o, &e) == OK);
    CHECK_INT(plan_ways(w, &p, &o), 1);
}

TEST(wrong_options_end_with_status_two)
{
    char name[] = "plan", memory[] = "--memory", odd[] = "12x";
    char *none[] = {name, NULL}, *bad[] = {name, memory, odd, NULL};
    CHECK_INT(plan_main(1, none), 2);
    CHECK_INT(plan_main(3, bad), 2);
}

TEST_MAIN()
