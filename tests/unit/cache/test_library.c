/* test_library.c - goal: what is loaded into Redis names itself first and ends with the knobs, so that every function finds them.
 * tests/integration/test_live.py runs it inside a redis-server. */
#include "cache/library.h"

#include "tests/check.h"

TEST(the_library_names_itself_first_and_brings_the_knobs_last)
{
    struct buf text;
    buf_init(&text, 1 << 20);
    library_write(&text);
    struct str s = buf_view(&text);
    CHECK(!buf_failed(&text) && str_starts(s, STR("#!lua name=deja\n")) &&
          str_ends(s, STR("})\n")));
    ptrdiff_t knobs = str_find(s, STR("\nknobs({")),
              config = str_find(s, STR("local function knobs("));
    CHECK(config > 0 && knobs > config);
    CHECK(str_find(str_sub(s, (size_t)knobs, s.n), STR("register_function")) < 0);
    buf_fini(&text);
}

TEST_MAIN()
