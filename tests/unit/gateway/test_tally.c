/* test_tally.c - goal: what is counted comes out once, in the words of the Functions, and no number of namespaces makes it grow. */
#include "gateway/tally.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tests/check.h"

/* the arguments joined by blanks */
static char *taken(struct tally *t)
{
    struct buf out;
    size_t n;
    buf_init(&out, 1 << 20);
    tally_take(t, &out, &n);
    CHECK(!buf_failed(&out));
    for (size_t i = 0; i + 1 < out.n; i++)
        if (!out.p[i]) out.p[i] = out.p[i + 1] ? ' ' : '_', n--;
    CHECK(n == 1);
    return buf_take(&out, NULL);
}

TEST(counts_come_out_once_by_namespace_and_arm)
{
    struct tally *t = xcalloc(1, sizeof *t);
    tally_at(t, "faq", "e/a")->counts[TALLY_REQUESTS]++;
    tally_at(t, "faq", "e/a")->counts[TALLY_REQUESTS]++;
    tally_at(t, "faq", "e/b")->counts[TALLY_WRONG] += 3;
    char *first = taken(t), *again = taken(t);
    CHECK_Z(first, "2 faq e/a 1 requests 2 faq e/b 1 wrong 3");
    CHECK_Z(again, "0");
    mem_free(first);
    mem_free(again);
    mem_free(t);
}

TEST(a_latency_falls_into_the_bucket_whose_end_is_not_below_it)
{
    static const struct {
        double ms;
        const char *bucket;
    } c[] = {{0, "l0"},  {0.05, "l0"},  {0.0500001, "l1"}, {0.1, "l4"},   {0.11, "l5"},
             {1, "l18"}, {1000, "l58"}, {1e9, "l95"},      {1e30, "l95"}, {-1, "l0"}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct tally *t = xcalloc(1, sizeof *t);
        char want[64];
        tally_latency(tally_at(t, "x", "y"), c[i].ms);
        char *text = taken(t);
        snprintf(want, sizeof want, "1 x y 1 %s 1", c[i].bucket);
        CHECK_Z(text, want);
        mem_free(text);
        mem_free(t);
    }
}

TEST(too_many_namespaces_are_counted_as_one)
{
    struct tally *t = xcalloc(1, sizeof *t);
    char ns[200];
    for (int i = 0; i < 10 * TALLY_ROWS_MAX; i++) {
        snprintf(ns, sizeof ns, "ns%d", i);
        tally_at(t, ns, "")->counts[TALLY_REQUESTS]++;
    }
    CHECK(t->n_rows == TALLY_ROWS_MAX);
    CHECK_Z(t->rows[TALLY_ROWS_MAX - 1].ns, "(others)");
    CHECK(t->rows[TALLY_ROWS_MAX - 1].counts[TALLY_REQUESTS] == 9 * TALLY_ROWS_MAX + 1);
    memset(ns, 'n', sizeof ns - 1);
    ns[sizeof ns - 1] = 0;
    char *text = taken(t);
    tally_at(t, ns, ns)->counts[TALLY_REQUESTS]++; /* cut, not overrun */
    CHECK(strlen(t->rows[0].ns) == TALLY_NS_BYTES - 1);
    mem_free(text);
    mem_free(t);
}

TEST_MAIN()
