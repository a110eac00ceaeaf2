/* Goal: a good traceparent is gone on with under a span of ours, and everything else begins a new trace. Method: tables of forms; every
 * value ends at its last byte, so that reading past it is seen. */
#include <string.h>

#include "base/mem.h"
#include "gateway/trace.h"
#include "tests/check.h"

#define ID "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

static struct trace begun(const char *given, double percent)
{
    struct trace t;
    size_t n = strlen(given);
    char *exact = xmalloc(n + 1); /* no NUL after it: its end is the end of the block's use */
    memcpy(exact, given, n);
    exact[n] = '-';
    trace_begin(&t, (struct str){exact, n}, (struct hash128){.lo = 0x8000000000000000, .hi = 7},
                0xabc, percent);
    mem_free(exact);
    return t;
}

TEST(a_good_parent_keeps_its_trace_and_sampled_flag_under_a_new_span)
{
    char out[TRACE_PARENT_BYTES + 1];
    struct trace t = begun("00-" ID "-" SPAN "-01", 0);
    CHECK(t.given);
    trace_write(&t, out);
    CHECK_STR(str_of(out), "00-" ID "-0000000000000abc-01");
    t = begun("00-" ID "-" SPAN "-00", 100);
    trace_write(&t, out);
    CHECK_STR(str_of(out), "00-" ID "-0000000000000abc-00");
}

TEST(unknown_flags_are_not_passed_on_and_later_versions_are_read_as_the_first)
{
    struct trace t = begun("00-" ID "-" SPAN "-ff", 0);
    CHECK(t.given);
    CHECK_INT(t.flags, 1);
    t = begun("cc-" ID "-" SPAN "-02", 0);
    CHECK(t.given);
    CHECK_INT(t.flags, 0);
    t = begun("01-" ID "-" SPAN "-01-what-will-be", 0);
    CHECK(t.given);
    CHECK_INT(t.flags, 1);
}

TEST(what_is_malformed_begins_a_new_trace)
{
    static const char *const bad[] = {"",
                                      "00",
                                      "nonsense",
                                      "00-" ID "-" SPAN "-1",
                                      "00-" ID "-" SPAN "-01-more",
                                      "00-" ID "-" SPAN "-01x",
                                      "01-" ID "-" SPAN "-01x",
                                      "ff-" ID "-" SPAN "-01",
                                      "0-" ID "-" SPAN "-001",
                                      "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
                                      "00-00000000000000000000000000000000-" SPAN "-01",
                                      "00-" ID "-0000000000000000-01",
                                      "00-" ID "-" SPAN "-0g",
                                      "00_" ID "-" SPAN "-01",
                                      "00-" ID "_" SPAN "-01",
                                      "00-" ID "-" SPAN "_01"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct trace t = begun(bad[i], 100);
        CHECK(!t.given);
        CHECK_STR(str_of(t.id), "00000000000000078000000000000000");
        CHECK_STR(str_of(t.span), "0000000000000abc");
    }
}

TEST(the_share_of_new_traces_that_is_sampled_goes_by_the_id)
{
    CHECK_INT(begun("", 0).flags, 0);
    CHECK_INT(begun("", 50).flags, 0); /* the id lies at the half */
    CHECK_INT(begun("", 50.1).flags, 1);
    CHECK_INT(begun("", 100).flags, 1);
}

TEST(ids_are_never_zero)
{
    struct trace t;
    trace_begin(&t, STR(""), (struct hash128){0}, 0, 0);
    CHECK_STR(str_of(t.id), "00000000000000000000000000000001");
    CHECK_STR(str_of(t.span), "0000000000000001");
}

TEST_MAIN()
