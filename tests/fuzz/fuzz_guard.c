/* fuzz_guard.c - any two texts (split at the first newline): guards never crash, are symmetric, and
 * find a text the same as itself or refuse it for its shape. */
#include "cache/guard.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n)
{
    static struct guard *g;
    if (!g) g = guard_new();
    struct str b = {(const char *)bytes, n}, a;
    if (!str_next(&b, '\n', &a)) return 0;
    struct guard_verdict v, w, self;
    guard_check(g, a, b, &v);
    guard_check(g, b, a, &w);
    ASSERT(v.allowed == w.allowed && v.same == w.same && !strcmp(v.refused_by, w.refused_by));
    ASSERT(!v.same || v.allowed);
    ASSERT(v.allowed == !v.refused_by[0] && strlen(v.detail) < sizeof v.detail &&
           utf8_valid(str_of(v.detail)));
    guard_check(g, a, a, &self);
    ASSERT(self.same || !strcmp(self.refused_by, "length") ||
           !strcmp(self.refused_by, "no_content"));
    return 0;
}
