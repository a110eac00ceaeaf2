/* guard_rig.h - for tests of the guards: tables of pairs, each asked in both orders. */
#ifndef DEJA_TESTS_UNIT_CACHE_GUARD_RIG_H
#define DEJA_TESTS_UNIT_CACHE_GUARD_RIG_H
#include "cache/guard.h"
#include "tests/check.h"

static struct guard *guard;

static struct guard_verdict check(struct str a, struct str b)
{
    struct guard_verdict v, w;
    if (!guard) guard = guard_new();
    guard_check(guard, a, b, &v);
    guard_check(guard, b, a, &w);
    CHECK_AT(v.allowed == w.allowed && v.same == w.same,
             "not symmetric: \"" STR_FMT "\" / \"" STR_FMT "\"", STR_ARG(a), STR_ARG(b));
    return v;
}

struct pair {
    const char *a, *b, *by; /* by: the guard that refuses, "" = any, NULL = the same question */
};

static void check_pairs(const struct pair *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct guard_verdict v = check(str_of(p[i].a), str_of(p[i].b));
        if (!p[i].by)
            CHECK_AT(v.same, "\"%s\" / \"%s\": refused by %s (%s)", p[i].a, p[i].b, v.refused_by,
                     v.detail);
        else if (!*p[i].by)
            CHECK_AT(!v.allowed, "\"%s\" / \"%s\": allowed", p[i].a, p[i].b);
        else
            CHECK_AT(!v.allowed && !strcmp(v.refused_by, p[i].by),
                     "\"%s\" / \"%s\": %s, not %s (%s)", p[i].a, p[i].b,
                     v.allowed ? "allowed" : v.refused_by, p[i].by, v.detail);
    }
}
/* Refused whatever a verifier would say, and however many of the words are the same. */
static inline void check_all_hard(const struct pair *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct guard_verdict v = check(str_of(p[i].a), str_of(p[i].b));
        CHECK_AT(v.hard & ~v.hard_by_likeness, "\"%s\" / \"%s\": not hard", p[i].a, p[i].b);
    }
}
#define CHECK_HARD(p) check_all_hard(p, sizeof p / sizeof *p)
#define CHECK_PAIRS(p) check_pairs(p, sizeof p / sizeof *p)

#endif
