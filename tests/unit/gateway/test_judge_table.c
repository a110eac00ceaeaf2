/* test_judge_table.c - goal: a table fitted to labelled pairs gives back how often they were the same, never falls, and proves nothing from a
 * few; text goes in and out unchanged. Method: simulated judges with a known truth (fixed seed), tables. */
#include "gateway/judge_table.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tests/check.h"

TEST(a_model_nobody_measured_is_taken_at_its_word)
{
    struct judge_tables t = judge_tables_for(STR("some-model"));
    CHECK_NEAR(judge_calibrated(&t, 'e', 0.37), 0.37, 1e-12);
    CHECK_NEAR(judge_calibrated(&t, 'z', 0.999), 0.999, 1e-9);
    CHECK_NEAR(judge_calibrated(&t, 'e', 1.5), 1, 1e-12);
    CHECK_NEAR(judge_calibrated(&t, 'e', -1), 0, 1e-12);
    CHECK_NEAR(judge_calibrated(&t, 'e', 0.0 / 0.0), 0, 1e-12);
}

TEST(a_model_that_was_measured_to_be_a_poor_judge_reaches_no_mark)
{
    struct judge_tables t = judge_tables_for(STR("Qwen2.5-Coder-0.5B-Instruct-Q4_K_M"));
    CHECK(judge_calibrated(&t, 'e', 1) < 0.9 && judge_calibrated(&t, 'z', 1) < 0.9);
    CHECK(judge_calibrated(&t, 'e', 0) > 0.1 && judge_calibrated(&t, 'z', 0) > 0.1);
}

TEST(a_fitted_table_gives_back_how_often_pairs_were_the_same)
{
    enum { N = 4000 };
    struct rng r;
    struct judge_label *labels = xcalloc(N, sizeof *labels);
    struct judge_tables t = judge_tables_for(STR(""));
    rng_seed(&r, 7);
    for (int i = 0; i < N; i++) { /* a judge too sure of itself: the truth is 0.25 + yes / 2 */
        labels[i].yes = rng_f64(&r);
        labels[i].same = rng_f64(&r) < 0.25 + labels[i].yes / 2;
    }
    judge_table_fit(labels, N, t.at[0]);
    for (double yes = 0.05; yes < 1; yes += 0.05)
        CHECK_NEAR(judge_calibrated(&t, 'e', yes), 0.25 + yes / 2, 0.08);
    for (int p = 1; p < JUDGE_POINTS; p++)
        CHECK(t.at[0][p] >= t.at[0][p - 1]);
    mem_free(labels);
}

TEST(a_few_labels_prove_little_and_none_nothing)
{
    struct judge_label three[] = {{0.99, -1, true}, {0.98, -1, true}, {0.01, -1, false}};
    double at[JUDGE_POINTS];
    judge_table_fit(three, 3, at);
    CHECK(at[10] < 0.95 && at[10] > 0.5 && at[0] > 0.05 && at[0] < 0.5);
    judge_table_fit(three, 0, at);
    CHECK_NEAR(at[7], 0.7, 1e-12);
    struct judge_label backwards[] = {{0.1, -1, true}, {0.2, -1, true}, {0.8, -1, false}, {0.9, -1, false}};
    judge_table_fit(backwards, 4, at); /* worth nothing: every probability is the share of all */
    for (int p = 0; p < JUDGE_POINTS; p++)
        CHECK_NEAR(at[p], 0.5, 1e-9);
}

TEST(text_goes_in_and_out_unchanged_and_mistakes_are_told_with_their_line)
{
    struct judge_tables t, again;
    struct errmsg e = {0};
    struct buf out;
    buf_init(&out, 4096);
    const char *text =
        "# made from 300 pairs\nen 0 .1 .1 .2 .2 .3 .3 .4 .5 .7 .9\n\nzh 0.5 0.5 0.5 0.5 0.5 "
        "0.5 0.5 0.5 0.5 0.5 0.5\n";
    REQUIRE(judge_tables_parse(&t, str_of(text), "t", &e) == OK);
    judge_tables_write(&out, &t);
    REQUIRE(judge_tables_parse(&again, buf_view(&out), "t", &e) == OK);
    for (int z = 0; z < 2; z++)
        for (int p = 0; p < JUDGE_POINTS; p++)
            CHECK_NEAR(t.at[z][p], again.at[z][p], 1e-9);
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"en 0 1", "t:1: expected 11 numbers from 0 to 1 that never fall; number 3 is none"},
        {"\nfr 0", "t:2: expected en, zh, en-beside or zh-beside, not \"fr\""},
        {"en 0 .1 .2 .3 .4 .5 .6 .7 .8 .9 1 1", "t:1: more than 11 numbers"},
        {"en 0 .2 .1 .3 .4 .5 .6 .7 .8 .9 1",
         "t:1: expected 11 numbers from 0 to 1 that never fall; number 3 is none"},
        {"en 0 .1 .2 .3 .4 .5 .6 .7 .8 .9 1.1",
         "t:1: expected 11 numbers from 0 to 1 that never fall; number 11 is none"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(judge_tables_parse(&t, str_of(bad[i].text), "t", &e) == ERR_INVALID);
        CHECK_Z(e.text, bad[i].says);
    }
    CHECK(judge_tables_load(&t, "/nowhere/at/all", &e) == ERR_NOT_FOUND);
    buf_fini(&out);
}

TEST(a_small_model_approves_only_beside_the_verifier)
{
    struct judge_tables t = judge_tables_for(STR("qwen2.5-coder-1.5b-instruct-q4_k_m"));
    for (int z = 0; z < 2; z++) {
        char language = z ? 'z' : 'e';
        CHECK(judge_calibrated_beside(&t, language, 1, -1) < 0.95);
        CHECK(judge_calibrated_beside(&t, language, 1, 0.001) < 0.95);
        CHECK(judge_calibrated_beside(&t, language, 0.97, 0.4) > 0.95);
        CHECK(judge_calibrated_beside(&t, language, 0.3, 0.4) < 0.9);
    }
}

TEST(a_table_may_say_what_the_judge_is_worth_beside_the_verifier)
{
    struct judge_tables t, again;
    struct errmsg e = {0};
    struct buf text;
    REQUIRE(judge_tables_parse(&t, STR("# m\nzh-beside -0.5 1 2\n"), "t", &e) == OK);
    CHECK_NEAR(judge_calibrated_beside(&t, 'z', 0.5, 0.5), 1 / (1 + exp(0.5)), 1e-9);
    CHECK_NEAR(judge_calibrated_beside(&t, 'z', 0.3, -1), 0.3, 1e-9);  /* it said nothing */
    CHECK_NEAR(judge_calibrated_beside(&t, 'e', 0.3, 0.9), 0.3, 1e-9); /* not measured */
    buf_init(&text, 4096);
    judge_tables_write(&text, &t);
    REQUIRE(judge_tables_parse(&again, buf_view(&text), "t", &e) == OK);
    CHECK_NEAR(again.beside[1].bias, -0.5, 1e-9);
    CHECK(!judge_weights_measured(&again.beside[0]));
    buf_fini(&text);
    static const char *const bad[] = {"en-beside 1 2", "en-beside 0 -1 1", "en-beside 0 1 1 1",
                                      "en-besides 0 1 1", "zh-beside 0 nan 1", "english 0 1 1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(judge_tables_parse(&t, str_of(bad[i]), "t", &e) == ERR_INVALID);
}

TEST_MAIN()
