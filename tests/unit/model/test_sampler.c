/* test_sampler.c - goal: each knob does what its name says and nothing more, the same seed gives the same tokens, odd
 * numbers never crash. Method: vocabularies of a few logits whose right answer can be worked out by hand; frequencies
 * over many draws against the exact distribution. */
#include "engine/model/sampler.h"

#include "base/mem.h"
#include "tests/check.h"

enum { N = 6 };
static const float LOGITS[N] = {1.0f, 3.0f, 2.0f, 3.0f, -1.0f, 0.0f};

static struct sampler *make(const struct sampler_params *p)
{
    struct sampler *s;
    struct errmsg e = {0};
    enum err code = sampler_new(&s, p, N, &e);
    if (code) printf("    %s\n", e.text);
    ASSERT(code == OK);
    return s;
}

static struct sampler_pick_out pick(struct sampler *s, const uint32_t *allowed)
{
    float logits[N];
    struct sampler_scratch *scratch = sampler_scratch_new(N);
    struct sampler_pick_out out;
    memcpy(logits, LOGITS, sizeof logits);
    if (sampler_pick(s, scratch, logits, allowed, &out)) out.token = -1;
    sampler_scratch_free(scratch);
    return out;
}

static int32_t pick_once(const struct sampler_params *p, const uint32_t *allowed)
{
    struct sampler *s = make(p);
    int32_t token = pick(s, allowed).token;
    sampler_free(s);
    return token;
}

/* Share of each token over many draws. */
static void shares(const struct sampler_params *p, double share[N])
{
    enum { DRAWS = 20000 };
    struct sampler *s = make(p);
    memset(share, 0, N * sizeof *share);
    for (int i = 0; i < DRAWS; i++)
        share[pick(s, NULL).token] += 1.0 / DRAWS;
    sampler_free(s);
}

TEST(greedy_takes_the_largest_and_the_first_of_equals)
{
    struct sampler_params p = sampler_params_default();
    CHECK_INT(pick_once(&p, NULL), 1);
}

TEST(a_mask_forbids)
{
    struct sampler_params p = sampler_params_default();
    uint32_t no_1 = ~2u, only_4 = 16, none = 0;
    CHECK_INT(pick_once(&p, &no_1), 3);
    CHECK_INT(pick_once(&p, &only_4), 4);
    CHECK_INT(pick_once(&p, &none), -1);
    p.temperature = 1;
    CHECK_INT(pick_once(&p, &only_4), 4);
}

TEST(bias_adds_to_the_logit)
{
    struct sampler_bias bias[] = {{4, 10}, {1, -100}};
    struct sampler_params p = sampler_params_default();
    p.bias = bias;
    p.n_bias = 2;
    CHECK_INT(pick_once(&p, NULL), 4);
    p.bias = bias + 1;
    p.n_bias = 1;
    CHECK_INT(pick_once(&p, NULL), 3);
}

TEST(draws_follow_the_softmax)
{
    struct sampler_params p = sampler_params_default();
    double share[N], total = 0;
    p.temperature = 2;
    p.seed = 42;
    shares(&p, share);
    for (int t = 0; t < N; t++)
        total += exp(LOGITS[t] / 2);
    for (int t = 0; t < N; t++)
        CHECK_NEAR(share[t], exp(LOGITS[t] / 2) / total, 0.012); /* 3.4 sigma */
}

TEST(top_k_keeps_the_k_best_and_lower_ids_of_equals)
{
    struct sampler_params p = sampler_params_default();
    double share[N];
    p.temperature = 1;
    p.top_k = 1;
    shares(&p, share);
    CHECK_NEAR(share[1], 1, 1e-9);
    p.top_k = 3;
    shares(&p, share);
    CHECK_NEAR(share[1] + share[2] + share[3], 1, 1e-9);
    CHECK(share[2] > 0.1);
}

TEST(top_p_keeps_the_smallest_set_that_reaches_it)
{
    /* softmax: 1 and 3 have 0.36 each, 2 has 0.13 */
    struct sampler_params p = sampler_params_default();
    double share[N];
    p.temperature = 1;
    p.top_p = 0.3f;
    shares(&p, share);
    CHECK_NEAR(share[1], 1, 1e-9);
    p.top_p = 0.7f;
    shares(&p, share);
    CHECK_NEAR(share[1] + share[3], 1, 1e-9);
    CHECK_NEAR(share[1], 0.5, 0.015);
    p.top_p = 0.8f;
    shares(&p, share);
    CHECK(share[2] > 0 && share[0] == 0);
}

TEST(min_p_drops_what_is_far_below_the_best)
{
    struct sampler_params p = sampler_params_default();
    double share[N];
    p.temperature = 1;
    p.min_p = 0.3f; /* token 2 has e^-1 = 0.37 of the best, token 0 has 0.14 */
    shares(&p, share);
    CHECK(share[2] > 0.05);
    CHECK_NEAR(share[0] + share[4] + share[5], 0, 0);
    p.min_p = 1;
    shares(&p, share);
    CHECK_NEAR(share[1] + share[3], 1, 1e-9);
}

TEST(penalties_count_what_was_generated)
{
    struct sampler_params p = sampler_params_default();
    p.frequency_penalty = 0.4f;
    struct sampler *s = make(&p);
    int32_t prompt[] = {1, 1, 1, 1};
    sampler_prompt(s, prompt, 4);
    CHECK_INT(pick(s, NULL).token, 1); /* the prompt does not count */
    sampler_accept(s, 1);
    CHECK_INT(pick(s, NULL).token, 3);
    sampler_accept(s, 3);
    CHECK_INT(pick(s, NULL).token, 1);
    for (int i = 0; i < 2; i++) {
        sampler_accept(s, 1);
        sampler_accept(s, 3);
    }
    CHECK_INT(pick(s, NULL).token, 2); /* 3 - 3*0.4 < 2 */
    sampler_free(s);
}

TEST(presence_penalty_counts_once)
{
    struct sampler_params p = sampler_params_default();
    p.presence_penalty = 0.9f;
    struct sampler *s = make(&p);
    for (int i = 0; i < 5; i++) {
        sampler_accept(s, 1);
        sampler_accept(s, 3);
    }
    CHECK_INT(pick(s, NULL).token, 1); /* 2.1 still beats 2.0 */
    sampler_free(s);
}

TEST(repetition_penalty_counts_the_prompt_and_pushes_negative_logits_down)
{
    struct sampler_params p = sampler_params_default();
    p.repetition_penalty = 2;
    p.n_top_logprobs = 0;
    struct sampler *s = make(&p);
    int32_t prompt[] = {1, 3, 4};
    sampler_prompt(s, prompt, 3);
    CHECK_INT(pick(s, NULL).token, 2); /* 1.5 1.5 2 */
    sampler_free(s);
    float logits[2] = {-1.0f, -1.5f};
    struct sampler_scratch *scratch = sampler_scratch_new(2);
    struct sampler_pick_out out;
    struct errmsg e;
    REQUIRE(sampler_new(&s, &p, 2, &e) == OK);
    sampler_prompt(s, (int32_t[]){0}, 1);
    CHECK(sampler_pick(s, scratch, logits, NULL, &out) == OK && out.token == 1);
    sampler_free(s);
    sampler_scratch_free(scratch);
}

TEST(many_different_tokens_are_all_remembered)
{
    enum { BIG = 5000 };
    struct sampler_params p = sampler_params_default();
    struct sampler *s;
    struct errmsg e;
    p.presence_penalty = 1;
    REQUIRE(sampler_new(&s, &p, BIG, &e) == OK);
    float *logits = xcalloc(BIG, sizeof *logits);
    struct sampler_scratch *scratch = sampler_scratch_new(BIG);
    struct sampler_pick_out out;
    for (int t = 0; t < BIG; t++)
        if (t != 4321) sampler_accept(s, t);
    CHECK(sampler_pick(s, scratch, logits, NULL, &out) == OK);
    CHECK_INT(out.token, 4321);
    sampler_free(s);
    sampler_scratch_free(scratch);
    mem_free(logits);
}

TEST(log_probabilities_are_those_of_the_raw_logits)
{
    struct sampler_bias bias = {4, 20};
    struct sampler_params p = sampler_params_default();
    double total = 0;
    for (int t = 0; t < N; t++)
        total += exp(LOGITS[t]);
    p.n_top_logprobs = 3;
    p.bias = &bias;
    p.n_bias = 1;
    struct sampler *s = make(&p);
    struct sampler_pick_out out = pick(s, NULL);
    CHECK_INT(out.token, 4);
    CHECK_NEAR(out.logprob, LOGITS[4] - log(total), 1e-5);
    CHECK_INT(out.n_top, 3);
    CHECK_INT(out.top[0].token, 1);
    CHECK_INT(out.top[1].token, 3);
    CHECK_INT(out.top[2].token, 2);
    CHECK_NEAR(out.top[2].logprob, LOGITS[2] - log(total), 1e-5);
    sampler_free(s);
}

TEST(same_seed_same_tokens_and_another_seed_others)
{
    struct sampler_params p = sampler_params_default();
    p.temperature = 1.5f;
    p.top_p = 0.95f;
    int same = 0, differ = 0;
    struct sampler *a = make(&p), *b = make(&p);
    p.seed = 1;
    struct sampler *c = make(&p);
    for (int i = 0; i < 200; i++) {
        int32_t t = pick(a, NULL).token;
        same += t == pick(b, NULL).token;
        differ += t != pick(c, NULL).token;
    }
    CHECK_INT(same, 200);
    CHECK(differ > 50);
    sampler_free(a);
    sampler_free(b);
    sampler_free(c);
}

TEST(broken_logits_are_survived)
{
    struct sampler_params p = sampler_params_default();
    p.temperature = 1;
    p.top_p = 0.5f;
    p.n_top_logprobs = 20;
    struct sampler *s = make(&p);
    struct sampler_scratch *scratch = sampler_scratch_new(N);
    struct sampler_pick_out out;
    float some[N] = {NAN, INFINITY, -INFINITY, 0.5f, NAN, -3e38f};
    CHECK(sampler_pick(s, scratch, some, NULL, &out) == OK);
    CHECK_INT(out.token, 3);
    CHECK_NEAR(out.logprob, 0, 1e-6);
    CHECK_INT(out.n_top, 2);
    CHECK_NEAR(out.top[1].logprob, SAMPLER_LOGPROB_FLOOR, 0);
    float none[N] = {NAN, NAN, NAN, -INFINITY, INFINITY, NAN};
    CHECK(sampler_pick(s, scratch, none, NULL, &out) == ERR_CORRUPT);
    sampler_free(s);
    sampler_scratch_free(scratch);
}

TEST(tiny_temperature_is_greedy)
{
    struct sampler_params p = sampler_params_default();
    p.temperature = 1e-38f;
    p.top_k = 1;
    CHECK_INT(pick_once(&p, NULL), 1);
}

TEST(bad_parameters_are_named)
{
    const struct {
        struct sampler_params p;
        const char *want;
    } cases[] = {
        {{.temperature = 2.1f, .top_p = 1, .repetition_penalty = 1}, "temperature"},
        {{.temperature = NAN, .top_p = 1, .repetition_penalty = 1}, "temperature"},
        {{.top_p = 0, .repetition_penalty = 1}, "top_p"},
        {{.top_p = 1, .repetition_penalty = 0}, "repetition_penalty"},
        {{.top_p = 1, .repetition_penalty = 1, .min_p = 1.5f}, "min_p"},
        {{.top_p = 1, .repetition_penalty = 1, .top_k = -1}, "top_k"},
        {{.top_p = 1, .repetition_penalty = 1, .n_top_logprobs = 21}, "top_logprobs"},
        {{.top_p = 1, .repetition_penalty = 1, .frequency_penalty = -2.5f}, "frequency_penalty"},
        {{.top_p = 1, .repetition_penalty = 1, .n_bias = 1, .bias = &(struct sampler_bias){N, 1}},
         "logit_bias"},
        {{.top_p = 1, .repetition_penalty = 1, .n_bias = 1, .bias = &(struct sampler_bias){0, 101}},
         "logit_bias"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sampler *s;
        struct errmsg e = {0};
        CHECK_INT(sampler_new(&s, &cases[i].p, N, &e), ERR_RANGE);
        CHECK_AT(strstr(e.text, cases[i].want) && s == NULL, "\"%s\" does not name %s", e.text,
                 cases[i].want);
        sampler_free(s);
    }
}

TEST_MAIN()
