/* descriptors.c - see descriptors.h. */
#include "base/descriptors.h"

#include <limits.h>
#include <sys/resource.h>

static int to_int(rlim_t v)
{
    return v == RLIM_INFINITY || v > INT_MAX ? INT_MAX : (int)v;
}

int descriptors_raise(int wanted)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r)) return wanted; /* cannot tell: accept will */
    if (to_int(r.rlim_cur) >= wanted) return to_int(r.rlim_cur);
    struct rlimit more = r;
    more.rlim_cur = to_int(r.rlim_max) < wanted ? r.rlim_max : (rlim_t)wanted;
    return setrlimit(RLIMIT_NOFILE, &more) ? to_int(r.rlim_cur) : to_int(more.rlim_cur);
}
