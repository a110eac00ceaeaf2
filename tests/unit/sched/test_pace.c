/* Goal: prompts get as many rows as fit into the target, whatever a row costs, and one hiccup does not starve them. Method:
 * pretended machines that need fixed + decoding + prompt time, with noise. */
#include "base/rng.h"
#include "engine/sched/pace.h"
#include "tests/check.h"

struct machine {
    double decode_us, row_us;
    int want_from, want_to; /* rows that fit into 30 ms */
    const char *what;
};

static double noise(struct rng *r)
{
    return 0.9 + 0.2 * (double)rng_below(r, 1000) / 1000;
}

TEST(rows_settle_where_the_step_ends_in_time)
{
    static const struct machine machines[] = {{7000, 1000, 16, 24, "a small machine"},
                                              {3000, 250, 88, 112, "a fast one"},
                                              {2000, 20, 256, 256, "one that never minds"},
                                              {28000, 1000, 8, 8, "decoding alone fills the step"},
                                              {90000, 9000, 8, 8, "far too slow: still some"}};
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        const struct machine *m = &machines[i];
        struct pace p;
        struct rng r;
        rng_seed(&r, i);
        pace_init(&p, 30000, 256);
        CHECK_INT(pace_rows(&p), PACE_ROWS_UNKNOWN);
        pace_learn(&p, 0, 64, m->decode_us + 64 * m->row_us);
        for (int k = 0; k < 20; k++)
            pace_learn(&p, 4, 0, m->decode_us * noise(&r));
        int least = 1 << 20, most = 0;
        for (int k = 0; k < 200; k++) {
            int n = pace_rows(&p);
            pace_learn(&p, 4, n, (m->decode_us + n * m->row_us) * noise(&r));
            if (k < 50) continue;
            least = n < least ? n : least;
            most = n > most ? n : most;
        }
        CHECK_AT(least >= m->want_from && most <= m->want_to, "%s: %d to %d rows", m->what, least,
                 most);
    }
}

TEST(a_hiccup_costs_a_few_steps_only)
{
    struct pace p;
    pace_init(&p, 30000, 256);
    for (int k = 0; k < 50; k++) {
        pace_learn(&p, 2, 0, 5000);
        pace_learn(&p, 2, pace_rows(&p), 5000 + 400.0 * pace_rows(&p));
    }
    int before = pace_rows(&p), steps = 0;
    pace_learn(&p, 2, before, 900000);
    CHECK(pace_rows(&p) >= before / 2);
    for (; pace_rows(&p) < before * 9 / 10 && steps < 100; steps++)
        pace_learn(&p, 2, pace_rows(&p), 5000 + 400.0 * pace_rows(&p));
    CHECK_AT(steps < 20, "%d steps", steps);
}

TEST(a_step_of_prompts_only_is_bounded_too)
{
    struct pace p;
    pace_init(&p, 30000, 256);
    CHECK_INT(pace_rows_alone(&p, 500000), 256); /* nothing is known yet */
    pace_learn(&p, 0, 64, 64 * 10000.0);
    CHECK_INT(pace_rows_alone(&p, 500000), 48);
    pace_init(&p, 30000, 256);
    pace_learn(&p, 0, 64, 64 * 300.0);
    CHECK_INT(pace_rows_alone(&p, 500000), 256);
    pace_init(&p, 30000, 4);
    pace_learn(&p, 1, 64, 64 * 300000.0);
    CHECK_INT(pace_rows_alone(&p, 500000), 4);
}

TEST_MAIN()
