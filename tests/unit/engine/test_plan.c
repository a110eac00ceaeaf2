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

TEST(what_does_not_fit_is_named_and_three_ways_are_offered)
{
    struct plan p = example();
    struct plan_machine m = {.memory_bytes = 200 << 20};
    struct buf b;
    buf_init(&b, 1 << 16);
    plan_write_text(&p, &m, &b);
    struct str text = buf_view(&b);
    CHECK(str_find(text, STR("largest part is kv (400 MiB)")) >= 0);
    int ways = 0;
    for (size_t i = 0; i + 12 < text.n; i++)
        ways += !memcmp(text.p + i, "\n  --kv-bytes", 13);
    CHECK_INT(ways, 3);
    buf_clear(&b);
    plan_write_json(&p, &m, &b);
    CHECK(str_find(buf_view(&b), STR("\"fits\":false")) >= 0);
    buf_fini(&b);
}

TEST(wrong_options_end_with_status_two)
{
    char name[] = "plan", memory[] = "--memory", odd[] = "12x";
    char *none[] = {name, NULL}, *bad[] = {name, memory, odd, NULL};
    CHECK_INT(plan_main(1, none), 2);
    CHECK_INT(plan_main(3, bad), 2);
}

TEST_MAIN()
