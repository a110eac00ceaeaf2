/* test_speculate.c - where guesses come from and when they are worth a try: look-up against a dumb search, trees of several sources, the
 * arithmetic of gain against a simulated engine. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/speculate/gain.h"
#include "engine/speculate/grow.h"
#include "engine/speculate/lookup.h"
#include "engine/speculate/speculator.h"
#include "tests/check.h"

static int look(const int32_t *t, int n, struct lookup_text expected, struct lookup_path *out,
                int n_out)
{
    return lookup_paths((struct lookup_text){t, n}, expected, 15, out, n_out);
}
static const struct lookup_text nothing = {NULL, 0};

TEST(what_followed_the_longest_repeat_is_drafted)
{
    static const int32_t t[] = {1, 2, 3, 9, 5, 2, 3, 7, 8, 1, 2, 3};
    struct lookup_path p;
    REQUIRE(look(t, 12, nothing, &p, 1) == 1);
    CHECK_INT(p.match, 3);
    CHECK_INT(p.n, 9);
    CHECK(p.tokens == t + 3 && !p.expected);
}

TEST(an_expected_text_is_followed_from_where_the_answer_stands)
{
    static const int32_t answer[] = {50, 51, 10, 11, 12}, expected[] = {10, 11, 12, 13, 14};
    struct lookup_path p[4];
    REQUIRE(look(answer, 5, (struct lookup_text){expected, 5}, p, 4) == 1);
    CHECK(p[0].n == 2 && p[0].tokens[0] == 13 && p[0].expected);
    CHECK_INT(look(answer, 4, (struct lookup_text){expected, 5}, p, 4), 0); /* two agree: too few */
}

TEST(several_continuations_come_longest_repeat_first_and_none_says_what_another_does)
{
    static const int32_t t[] = {4, 5, 1,  2,  3, 70, 71, 5, 1,  2, 3, 80, 9, 1,
                                2, 3, 70, 72, 5, 1,  2,  3, 80, 4, 5, 1,  2, 3};
    struct lookup_path p[4];
    int n = look(t, 28, nothing, p, 4);
    REQUIRE(n == 4);
    CHECK(p[0].match == 5 && p[0].tokens == t + 5);  /* 70 71 */
    CHECK(p[1].match == 4 && p[1].tokens == t + 22); /* 80 4 */
    CHECK(p[2].match == 4 && p[2].tokens == t + 11); /* 80 9 */
    CHECK(p[3].match == 3 && p[3].tokens == t + 16); /* 70 72 */
    CHECK_INT(look(t, 28, nothing, p, 2), 2);
    CHECK(p[0].tokens == t + 5 && p[1].tokens == t + 22);
}

struct place {
    struct lookup_path p;
    int own, at;
};

static bool beginning(const struct lookup_path *a, const struct lookup_path *b)
{
    int n = a->n < b->n ? a->n : b->n;
    return !memcmp(a->tokens, b->tokens, (size_t)n * sizeof *a->tokens);
}

/* The same by trying every place: sorted by repeat, then text, then lateness; then those that say nothing new go. */
static int plain(const int32_t *t, int n, struct lookup_text expected, struct lookup_path *out,
                 int n_out)
{
    struct place all[100];
    int n_all = 0, kept = 0;
    for (int own = 0; own < 2; own++) {
        const int32_t *text = own ? t : expected.tokens;
        int len = own ? n : expected.n;
        for (int at = len - 1; at >= 1; at--) {
            int m = 0, rest = len - at < 15 ? len - at : 15, k = n_all;
            while (m < LOOKUP_MATCH_MAX && m < at && m < n && text[at - 1 - m] == t[n - 1 - m])
                m++;
            if (m < LOOKUP_MATCH_MIN) continue;
            for (; k > 0 && all[k - 1].p.match < m; k--)
                all[k] = all[k - 1];
            all[k] = (struct place){{text + at, rest, m, !own}, own, at};
            n_all++;
        }
    }
    for (int i = 0; i < n_all && kept < n_out; i++) {
        bool fresh = true;
        for (int k = 0; k < kept; k++)
            fresh &= !beginning(&out[k], &all[i].p);
        if (fresh) out[kept++] = all[i].p;
    }
    return n < LOOKUP_MATCH_MIN ? 0 : kept;
}

TEST(look_up_agrees_with_trying_every_place)
{
    struct rng r;
    rng_seed(&r, 4);
    for (int round = 0; round < 6000; round++) {
        int32_t t[60], e[40];
        struct lookup_path got[4], want[4];
        int n = 1 + (int)rng_below(&r, 60), n_e = (int)rng_below(&r, 40), letters = 2 + round % 3,
            most = round % 2 ? 4 : 1;
        for (int i = 0; i < n; i++)
            t[i] = (int32_t)rng_below(&r, (uint64_t)letters);
        for (int i = 0; i < n_e; i++)
            e[i] = (int32_t)rng_below(&r, (uint64_t)letters);
        int n_got = look(t, n, (struct lookup_text){e, n_e}, got, most),
            n_want = plain(t, n, (struct lookup_text){e, n_e}, want, most);
        /* what a shorter repeat was dropped for may itself be pushed out: the first is exact, the rest distinct and in order */
        CHECK_AT((n_got > 0) == (n_want > 0), "round %d: %d, not %d", round, n_got, n_want);
        if (n_got) CHECK(got[0].tokens == want[0].tokens && got[0].match == want[0].match);
        for (int i = 1; i < n_got; i++) {
            CHECK(got[i].match <= got[i - 1].match && got[i].match >= LOOKUP_MATCH_MIN);
            for (int k = 0; k < i; k++)
                CHECK(!beginning(&got[i], &got[k]));
        }
    }
}

TEST(a_grown_draft_shares_beginnings_and_comes_likeliest_first)
{
    static struct grown g;
    struct chances c;
    struct rng r;
    rng_seed(&r, 6);
    for (int round = 0; round < 300; round++) {
        chances_init(&c);
        g.n = 0;
        int32_t path[4][15];
        for (int p = 0; p < 4; p++)
            for (int i = 0, at = DRAFT_ROOT; i < 15 && at >= DRAFT_ROOT; i++)
                at = grow_node(&g, &c, at, path[p][i] = (int32_t)rng_below(&r, 3),
                               p % 2 ? DRAFT_FROM_TEXT : DRAFT_FROM_MODEL,
                               (int)rng_below(&r, DRAFT_SURE_MAX), 1 + round % DRAFT_RANKS);
        grow_sort(&g);
        for (int i = 0; i < g.n; i++) {
            const struct grown_node *x = &g.node[i];
            REQUIRE(x->parent >= DRAFT_ROOT && x->parent < i);
            CHECK(x->rank <= round % DRAFT_RANKS && x->right >= 0 && x->right <= 1);
            if (i) CHECK(x->right <= g.node[i - 1].right);
            for (int k = 0; k < i; k++)
                CHECK(g.node[k].parent != x->parent || g.node[k].token != x->token);
        }
        for (int i = 0, at = DRAFT_ROOT; i < 15; i++) { /* the first path is whole */
            int next = -2;
            for (int k = 0; k < g.n; k++)
                if (g.node[k].parent == at && g.node[k].token == path[0][i]) next = k;
            REQUIRE(next >= 0);
            at = next;
        }
    }
}

TEST(chances_follow_what_is_said_also_of_nodes_that_nobody_checked)
{
    static struct grown g;
    struct chances c;
    struct rng r;
    rng_seed(&r, 8);
    chances_init(&c);
    for (int i = 0; i < 4000;
         i++) { /* the first is right in 2 of 10, the second in 6, behind it always */
        g.n = 0;
        (void)grow_node(&g, &c, DRAFT_ROOT, 1, DRAFT_FROM_TEXT, 2, 3);
        int b = grow_node(&g, &c, DRAFT_ROOT, 2, DRAFT_FROM_TEXT, 2, 3);
        (void)grow_node(&g, &c, b, 3, DRAFT_FROM_TEXT, 4, 3);
        int k = (int)rng_below(&r, 10);
        int32_t said[2] = {k < 2 ? 1 : k < 8 ? 2 : 9, 3};
        grow_learn(&g, &c, said, 2, 0.01);
    }
    CHECK_NEAR(c.of[DRAFT_FROM_TEXT][2][0].p, 0.2, 0.1);
    CHECK_NEAR(c.of[DRAFT_FROM_TEXT][2][1].p, 0.6, 0.1);
    CHECK_NEAR(c.of[DRAFT_FROM_TEXT][4][0].p, 1, 0.02);
}

/* An engine whose step costs base + slope a row, with n_seqs sequences whose drafts are right with a chance; returns tokens a second
 * relative to one without drafts. */
static double speed_up(struct rng *r, double slope, double draft_us, int n_seqs, double chance,
                       int n_steps)
{
    struct step_cost *cost = xcalloc(1, sizeof *cost);
    struct gain gain[32] = {{0, 0}};
    double us = 0, plain_us = 0, right_of[8], p = 1;
    for (int i = 0; i < 8; i++)
        right_of[i] = p *= chance;
    for (int step = 0; step < n_steps; step++) {
        struct gain_step s = {n_seqs, n_seqs, draft_us};
        int n[32], said = n_seqs;
        double drafting = 0;
        for (int i = 0; i < n_seqs; i++) {
            n[i] = gain_length(&gain[i], cost, &s, right_of, 8);
            s.n_rows += n[i];
            drafting += n[i] * draft_us;
        }
        double step_us = 1000 + slope * (s.n_rows - 1);
        step_us *= 0.95 + 0.1 * rng_f64(r);
        for (int i = 0; i < n_seqs; i++) {
            int right = 0;
            while (right < n[i] && rng_f64(r) < chance)
                right++;
            said += right;
        }
        step_cost_learn(cost, s.n_rows, step_us);
        us += step_us + drafting;
        plain_us += (1000 + slope * (n_seqs - 1)) * said / n_seqs;
    }
    mem_free(cost);
    return plain_us / us;
}

TEST(nobody_looks_for_drafts_where_even_right_ones_cannot_pay)
{
    static const int seqs[] = {1, 25, 199, 200, 256};
    struct step_cost cost = {{0}};
    for (int i = 1; i <= GAIN_ROWS_MAX; i++)
        step_cost_learn(&cost, i, 1000); /* more rows cost nothing */
    for (int i = 0; i < 5; i++) {
        struct gain_step s = {seqs[i], seqs[i], 0};
        struct gain g = {0};
        double right[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        bool hopeless = gain_hopeless(&s, 8);
        CHECK_INT(hopeless, seqs[i] >= 200);
        int n = gain_length(&g, &cost, &s, right, 8);
        CHECK(hopeless ? n <= 1 : n == 8); /* 1: a trial */
    }
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

/* Tokens a second relative to none drafted, where a neighbour takes the core now and then for up to eight times a step. */
static double speed_up_beside_a_neighbour(struct rng *r, double slope, double chance)
{
    struct step_cost *cost = xcalloc(1, sizeof *cost);
    struct gain gain = {0, 0};
    double us = 0, said = 0, right[8], p = 1;
    for (int i = 0; i < 8; i++)
        right[i] = p *= chance;
    for (int step = 0; step < 400; step++) {
        struct gain_step s = {1, 1, 0};
        int n = step % 64 ? gain_length(&gain, cost, &s, right, 8) : 0, k = 0;
        double own = 1000 + slope * n, seen = own;
        for (double left = own; left > 0; left -= 1000)
            if (rng_f64(r) < 0.5 * (left < 1000 ? left / 1000 : 1))
                seen += 1000 + 8000 * rng_f64(r);
        while (k < n && rng_f64(r) < chance)
            k++;
        said += 1 + k;
        us += own;
        step_cost_learn(cost, 1 + n, seen);
    }
    mem_free(cost);
    return said * 1000 / us;
}

TEST(a_step_that_was_disturbed_at_its_first_try_is_tried_again)
{
    struct rng r;
    rng_seed(&r, 15);
    double worst = 9, mean = 0;
    for (int i = 0; i < 60; i++) {
        double x = speed_up_beside_a_neighbour(&r, 150, 0.97);
        mean += x / 60;
        worst = x < worst ? x : worst;
    }
    CHECK_AT(mean > 3.3 && worst > 2, "mean %.2f, worst %.2f of 3.63", mean, worst);
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
    CHECK(step_cost_of(&c, 6) < 370);
    step_cost_learn(&c, 100000, 5); /* out of range: not kept */
    step_cost_learn(&c, 20, 150);
    CHECK_NEAR(step_cost_of(&c, 6), 150, 1e-9); /* fewer rows cost no more: it was disturbed */
    CHECK_NEAR(step_cost_of(&c, 2), 100, 1e-9);
}

/* An answer begins as the prediction does, so a prediction that is too long is known by its beginning. */
TEST(a_long_prediction_is_followed_from_its_beginning)
{
    struct speculator_options o = {.n_max = 4, .branches = 1, .always = true};
    struct speculator *s = speculator_new(&o);
    int n = 3 * LOOKUP_SCAN_MAX;
    int32_t *expected = xmalloc((size_t)n * sizeof *expected);
    for (int i = 0; i < n; i++)
        expected[i] = i;
    struct drafts *d = drafts_new(expected, n);
    static const int from[] = {0, 5000, LOOKUP_SCAN_MAX - 8};
    for (int i = 0; i < 3; i++) {
        struct speculator_step step = {1, 1};
        struct draft draft;
        speculator_draft(s, d, &step, (struct lookup_text){expected + from[i], 4}, 4, &draft);
        REQUIRE(draft.n == 4);
        for (int k = 0; k < 4; k++)
            CHECK_INT(draft.token[k], from[i] + 4 + k);
    }
    drafts_free(d);
    speculator_free(s);
    mem_free(expected);
}

TEST_MAIN()
