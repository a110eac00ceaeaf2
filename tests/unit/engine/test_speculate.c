/* test_speculate.c - where guesses come from and when they are worth a try: look-up against a dumb search, the arithmetic of gain against
 * a simulated engine. */
#include "base/mem.h"
#include "base/rng.h"
#include "engine/speculate/gain.h"
#include "engine/speculate/lookup.h"
#include "tests/check.h"

TEST(what_followed_the_longest_repeat_is_drafted)
{
    static const int32_t t[] = {1, 2, 3, 9, 5, 2, 3, 7, 8, 1, 2, 3};
    int32_t out[4];
    struct lookup_found f = lookup_draft(t, 12, (struct lookup_text){NULL, 0}, out, 4);
    CHECK_INT(f.match, 3);
    REQUIRE(f.n == 4);
    CHECK(out[0] == 9 && out[1] == 5 && out[2] == 2 && out[3] == 3);
}

TEST(an_expected_text_is_followed_from_where_the_answer_stands)
{
    static const int32_t answer[] = {50, 51, 10, 11, 12}, expected[] = {10, 11, 12, 13, 14};
    int32_t out[8];
    struct lookup_found f = lookup_draft(answer, 5, (struct lookup_text){expected, 5}, out, 8);
    REQUIRE(f.n == 2);
    CHECK(out[0] == 13 && out[1] == 14);
    f = lookup_draft(answer, 4, (struct lookup_text){expected, 5}, out, 8);
    CHECK_INT(f.n, 0); /* two tokens agree: too few */
}

/* The same by trying every place. */
static struct lookup_found plain(const int32_t *t, int n, struct lookup_text expected, int n_out)
{
    struct lookup_found best = {0, LOOKUP_MATCH_MIN - 1};
    for (int own = 0; own < 2; own++) {
        const int32_t *text = own ? t : expected.tokens;
        int len = own ? n : expected.n, at_best = -1;
        for (int at = len - 1; at >= 1; at--) {
            int m = 0;
            while (m < LOOKUP_MATCH_MAX && m < at && m < n && text[at - 1 - m] == t[n - 1 - m])
                m++;
            if (m > best.match) best.match = m, at_best = at;
        }
        if (at_best >= 0) best.n = len - at_best < n_out ? len - at_best : n_out;
    }
    return best.n ? best : (struct lookup_found){0, 0};
}

TEST(look_up_agrees_with_trying_every_place)
{
    struct rng r;
    rng_seed(&r, 4);
    for (int round = 0; round < 3000; round++) {
        int32_t t[60], e[40], out[15];
        int n = 1 + (int)rng_below(&r, 60), n_e = (int)rng_below(&r, 40);
        for (int i = 0; i < n; i++)
            t[i] = (int32_t)rng_below(&r, 3);
        for (int i = 0; i < n_e; i++)
            e[i] = (int32_t)rng_below(&r, 3);
        struct lookup_text expected = {e, n_e};
        struct lookup_found got = lookup_draft(t, n, expected, out, 15),
                            want = n < LOOKUP_MATCH_MIN ? (struct lookup_found){0, 0}
                                                        : plain(t, n, expected, 15);
        CHECK_AT(got.n == want.n && got.match == want.match, "round %d: %d/%d, not %d/%d", round,
                 got.n, got.match, want.n, want.match);
    }
}

/* An engine whose step costs base + slope a row, with n_seqs sequences whose drafts are right with a chance; returns tokens a second
 * relative to one without drafts. */
static double speed_up(struct rng *r, double slope, double draft_us, int n_seqs, double chance,
                       int n_steps)
{
    struct step_cost *cost = xcalloc(1, sizeof *cost);
    struct gain gain[32];
    double us = 0, plain_us = 0;
    for (int i = 0; i < n_seqs; i++)
        gain_init(&gain[i], 0.6);
    for (int step = 0; step < n_steps; step++) {
        struct gain_step s = {n_seqs, n_seqs, draft_us};
        int n[32], said = n_seqs;
        double drafting = 0;
        for (int i = 0; i < n_seqs; i++) {
            n[i] = gain_length(&gain[i], cost, &s, 8);
            s.n_rows += n[i];
            drafting += n[i] * draft_us;
        }
        double step_us = 1000 + slope * (s.n_rows - 1);
        step_us *= 0.95 + 0.1 * rng_f64(r);
        for (int i = 0; i < n_seqs; i++) {
            int right = 0;
            while (right < n[i] && rng_f64(r) < chance)
                right++;
            if (n[i]) gain_learn(&gain[i], n[i], right);
            said += right;
        }
        step_cost_learn(cost, s.n_rows, step_us);
        us += step_us + drafting;
        plain_us += (1000 + slope * (n_seqs - 1)) * said / n_seqs;
    }
    mem_free(cost);
    return plain_us / us;
}

TEST(right_drafts_on_a_cheap_row_speed_up_and_wrong_ones_cost_next_to_nothing)
{
    struct rng r;
    rng_seed(&r, 9);
    static const int seqs[] = {1, 2, 4, 8, 16};
    CHECK(speed_up(&r, 150, 0, 1, 0.9, 2000) > 1.8);
    for (int i = 0; i < 5; i++) {
        double wrong = speed_up(&r, 150, 0, seqs[i], 0.05, 2000),
               dear = speed_up(&r, 900, 0, seqs[i], 0.5, 2000),
               slow = speed_up(&r, 300, 450, seqs[i], 0.7, 2000);
        CHECK_AT(wrong > 0.975 && dear > 0.97 && slow > 0.97, "%d sequences: %.3f %.3f %.3f",
                 seqs[i], wrong, dear, slow);
    }
}

TEST(costs_between_seen_ones_are_read_off_the_line)
{
    static struct step_cost c;
    CHECK_NEAR(step_cost_of(&c, 3), 0, 0);
    step_cost_learn(&c, 2, 100);
    CHECK_NEAR(step_cost_of(&c, 1), 100, 1e-9);
    CHECK_NEAR(step_cost_of(&c, 9), 100, 1e-9);
    step_cost_learn(&c, 6, 300);
    CHECK_NEAR(step_cost_of(&c, 4), 200, 1e-9);
    step_cost_learn(&c, 6, 1e9); /* a stolen core */
    CHECK(step_cost_of(&c, 6) < 340);
    step_cost_learn(&c, 100000, 5); /* out of range: not kept */
}

TEST_MAIN()
