/* Goal: the limit is raised as far as it goes and never lowered. Method: real limits of this process, lowered first. */
#include "base/descriptors.h"
#include "tests/check.h"

#include <sys/resource.h>

TEST(the_limit_is_raised_up_to_the_hard_one_and_never_lowered)
{
    struct rlimit r;
    REQUIRE(!getrlimit(RLIMIT_NOFILE, &r));
    r.rlim_cur = 100;
    r.rlim_max = r.rlim_max < 300 ? r.rlim_max : 300;
    REQUIRE(!setrlimit(RLIMIT_NOFILE, &r));
    CHECK_INT(descriptors_raise(200), 200);
    CHECK_INT(descriptors_raise(150), 200);
    CHECK_INT(descriptors_raise(100000), (int)r.rlim_max);
    REQUIRE(!getrlimit(RLIMIT_NOFILE, &r));
    CHECK_INT((int)r.rlim_cur, (int)r.rlim_max);
}

TEST_MAIN()
