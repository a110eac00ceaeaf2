/* Goal: an owned header list keeps order and repeats, finds by name in any case, and holds its bounds. */
#include "gateway/headers.h"
#include "tests/check.h"

TEST(fields_keep_their_order_and_survive_growth)
{
    struct header_list l;
    struct str n, v;
    char name[16];
    headers_init(&l);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "x-%d", i);
        CHECK(headers_add(&l, str_of(name), STR("some value that makes the text grow")));
    }
    CHECK(headers_add(&l, STR("Set-Cookie"), STR("a")) &&
          headers_add(&l, STR("set-cookie"), STR("b")));
    headers_at(&l, 42, &n, &v);
    CHECK_STR(n, "x-42");
    CHECK_STR(headers_find(&l, "SET-COOKIE"), "a");
    CHECK(!headers_find(&l, "x-200").p);
    struct http_header out[HEADERS_MAX];
    CHECK_INT(headers_view(&l, out), 102);
    CHECK_STR(out[101].value, "b");
    headers_fini(&l);
}

TEST(too_many_fields_or_bytes_are_turned_away)
{
    struct header_list l;
    static char big[HEADERS_BYTES_MAX];
    headers_init(&l);
    CHECK(!headers_add(&l, STR("x"), (struct str){big, sizeof big}));
    for (int i = 0; i < HEADERS_MAX; i++)
        CHECK(headers_add(&l, STR("a"), STR("b")));
    CHECK(!headers_add(&l, STR("a"), STR("b")));
    CHECK_INT(l.n, HEADERS_MAX);
    headers_fini(&l);
}

TEST_MAIN()
