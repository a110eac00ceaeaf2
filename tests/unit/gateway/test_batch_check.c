/* Goal: the lines of an input are found chunk by chunk, and what is wrong is told with the line's number in the whole file.
 * Method: small inputs; a large one with every id twice. */
#include "gateway/batch_check.h"
#include "base/json.h"
#include "tests/check.h"

static void add_line(struct buf *b, const char *id)
{
    buf_printf(
        b, "{\"custom_id\":\"%s\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":{}}\n",
        id);
}

static int64_t error_count(struct str text, int64_t first_line)
{
    json_t *doc = NULL;
    if (!text.n) return 0;
    if (json_parse(text, 0, &doc, NULL) != OK) return -1;
    json_t *list = json_object_get(doc, "data");
    int64_t n = (int64_t)json_array_size(list);
    json_t *line = json_object_get(json_array_get(list, 0), "line");
    CHECK_INT(json_is_null(line) ? 0 : json_integer_value(line), first_line);
    json_decref(doc);
    return n;
}

TEST(requests_are_found_and_blank_lines_are_passed_over)
{
    struct batch_check *c = batch_check_new("/v1/embeddings", 10, 1);
    struct buf b;
    size_t n;
    buf_init(&b, 1 << 16);
    add_line(&b, "a");
    buf_z(&b, "\n  \r\n");
    add_line(&b, "b");
    CHECK(batch_check_feed(c, buf_view(&b)));
    const struct batch_span *s = batch_check_lines(c, &n);
    REQUIRE(n == 2);
    CHECK_STR(str_sub(buf_view(&b), s[1].at, 16), "{\"custom_id\":\"b\"");
    CHECK_INT(b.p[s[1].at + s[1].n], '\n');
    buf_clear(&b);
    add_line(&b, "c");
    b.n--; /* no line break at the end */
    CHECK(batch_check_feed(c, buf_view(&b)));
    s = batch_check_lines(c, &n);
    REQUIRE(n == 1);
    CHECK_INT(s[0].n, b.n);
    CHECK_INT(batch_check_end(c).n, 0);
    batch_check_free(c);
    buf_fini(&b);
}

TEST(a_byte_order_mark_before_the_first_line_is_passed_over_and_nowhere_else)
{
    struct batch_check *c = batch_check_new("/v1/embeddings", 10, 1);
    struct buf b;
    size_t n;
    buf_init(&b, 1 << 16);
    buf_z(&b, "\xEF\xBB\xBF");
    add_line(&b, "a");
    CHECK(batch_check_feed(c, buf_view(&b)));
    const struct batch_span *s = batch_check_lines(c, &n);
    REQUIRE(n == 1);
    CHECK_INT(s[0].at, 3);
    CHECK_STR(str_sub(buf_view(&b), s[0].at, 16), "{\"custom_id\":\"a\"");
    CHECK(batch_check_feed(c, buf_view(&b))); /* the next chunk */
    CHECK_INT(error_count(batch_check_end(c), 2), 1);
    batch_check_free(c);
    buf_fini(&b);
}

TEST(errors_name_the_line_in_the_file_and_a_custom_id_may_come_once)
{
    struct batch_check *c = batch_check_new("/v1/embeddings", 10, 1);
    struct buf b;
    size_t n;
    buf_init(&b, 1 << 16);
    add_line(&b, "a");
    CHECK(batch_check_feed(c, buf_view(&b)));
    CHECK(batch_check_feed(c, STR("\n")));
    add_line(&b, "b");
    buf_z(&b, "nonsense\n");
    CHECK(batch_check_feed(c, buf_view(&b))); /* lines 3, 4, 5 */
    batch_check_lines(c, &n);
    CHECK_INT(n, 0);
    struct str errors = batch_check_end(c);
    CHECK_INT(error_count(errors, 3), 2);
    CHECK(str_find(errors, STR("\"code\":\"duplicate_custom_id\",\"line\":3,")) > 0);
    CHECK(str_find(errors, STR("\"code\":\"invalid_json_line\",\"line\":5,")) > 0);
    CHECK(str_eq(errors, batch_check_end(c)));
    batch_check_free(c);
    buf_fini(&b);
}

TEST(empty_file_and_one_with_too_many_requests_are_wrong)
{
    struct batch_check *c = batch_check_new("/v1/embeddings", 2, 1);
    CHECK(batch_check_feed(c, STR("\n\n")));
    struct str errors = batch_check_end(c);
    CHECK_INT(error_count(errors, 0), 1);
    CHECK(str_find(errors, STR("empty_file")) > 0);
    batch_check_free(c);
    struct buf b;
    buf_init(&b, 1 << 16);
    c = batch_check_new("/v1/embeddings", 2, 1);
    add_line(&b, "a");
    add_line(&b, "b");
    add_line(&b, "c");
    add_line(&b, "d");
    CHECK(!batch_check_feed(c, buf_view(&b)));
    errors = batch_check_end(c);
    CHECK_INT(error_count(errors, 3), 1);
    CHECK(str_find(errors, STR("too_many_tasks")) > 0);
    batch_check_free(c);
    buf_fini(&b);
}

TEST(no_more_than_a_hundred_errors_are_listed)
{
    struct batch_check *c = batch_check_new("/v1/embeddings", 50000, 7);
    struct buf b;
    char id[24];
    size_t n;
    buf_init(&b, 8 << 20);
    for (int i = 0; i < 20000; i++) {
        snprintf(id, sizeof id, "id-%d", i);
        add_line(&b, id);
    }
    CHECK(batch_check_feed(c, buf_view(&b)));
    batch_check_lines(c, &n);
    CHECK_INT(n, 20000);
    CHECK(!batch_check_feed(c, buf_view(&b)));
    CHECK_INT(error_count(batch_check_end(c), 20001), BATCH_ERRORS_MAX);
    batch_check_free(c);
    buf_fini(&b);
}

TEST_MAIN()
