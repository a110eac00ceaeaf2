/* check.h - the unit test harness: a test is a sentence, a check prints what it saw.
 *   TEST(number_differs_so_near_hit_is_refused) { CHECK_INT(got, 3); }
 *   TEST_MAIN()
 * Each binary prints one line a test and ends with `N passed, N failed, N skipped`. Options: a substring runs only
 * the tests whose name holds it; --list lists them. CHECKs never stop a test; REQUIRE returns from it. */
#ifndef DEJA_TESTS_CHECK_H
#define DEJA_TESTS_CHECK_H
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

struct check_test {
    const char *name;
    void (*run)(void);
    struct check_test *next;
};
static struct check_test *check_first, **check_last = &check_first;
static int check_failures;
static const char *check_skip_why;

#define TEST(id)                                                                                   \
    static void test_##id(void);                                                                   \
    static struct check_test check_node_##id = {#id, test_##id, NULL};                             \
    __attribute__((constructor)) static void check_add_##id(void)                                  \
    {                                                                                              \
        *check_last = &check_node_##id;                                                            \
        check_last = &check_node_##id.next;                                                        \
    }                                                                                              \
    static void test_##id(void)

#define CHECK_AT(ok, ...)                                                                          \
    do {                                                                                           \
        if (!(ok)) {                                                                               \
            check_failures++;                                                                      \
            printf("    %s:%d: ", __FILE__, __LINE__);                                             \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)
#define CHECK(cond) CHECK_AT(cond, "%s does not hold", #cond)
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        bool ok_ = (cond);                                                                         \
        CHECK_AT(ok_, "%s does not hold", #cond);                                                  \
        if (!ok_) return;                                                                          \
    } while (0)
#define CHECK_INT(got, want)                                                                       \
    do {                                                                                           \
        long long g_ = (long long)(got), w_ = (long long)(want);                                   \
        CHECK_AT(g_ == w_, "%s is %lld, not %lld", #got, g_, w_);                                  \
    } while (0)
#define CHECK_NEAR(got, want, tol)                                                                 \
    do {                                                                                           \
        double g_ = (got), w_ = (want), t_ = (tol);                                                \
        CHECK_AT(fabs(g_ - w_) <= t_, "%s is %.9g, not %.9g within %.3g", #got, g_, w_, t_);       \
    } while (0)
#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        struct str g_ = (got), w_ = str_of(want);                                                  \
        CHECK_AT(str_eq(g_, w_), "%s is \"%.*s\", not \"%.*s\"", #got, (int)g_.n,                  \
                 g_.p ? g_.p : "", (int)w_.n, w_.p);                                               \
    } while (0)
#define CHECK_Z(got, want) CHECK_STR(str_of(got), want)
#define SKIP(why)                                                                                  \
    do {                                                                                           \
        check_skip_why = (why);                                                                    \
        return;                                                                                    \
    } while (0)

#define TEST_MAIN()                                                                                \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        int passed = 0, failed = 0, skipped = 0;                                                   \
        const char *only = argc > 1 ? argv[1] : "";                                                \
        setvbuf(stdout, NULL, _IOLBF, 0);                                                          \
        for (struct check_test *t = check_first; t; t = t->next) {                                 \
            if (!strcmp(only, "--list")) {                                                         \
                printf("%s\n", t->name);                                                           \
                continue;                                                                          \
            }                                                                                      \
            if (!strstr(t->name, only)) continue;                                                  \
            check_failures = 0;                                                                    \
            check_skip_why = NULL;                                                                 \
            t->run();                                                                              \
            if (check_failures) {                                                                  \
                failed++;                                                                          \
                printf("FAIL %s\n", t->name);                                                      \
            } else if (check_skip_why) {                                                           \
                skipped++;                                                                         \
                printf("skip %s: %s\n", t->name, check_skip_why);                                  \
            } else {                                                                               \
                passed++;                                                                          \
                printf("ok   %s\n", t->name);                                                      \
            }                                                                                      \
        }                                                                                          \
        if (strcmp(only, "--list"))                                                                \
            printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);                 \
        return failed ? 1 : 0;                                                                     \
    }

#endif
