/* Goal: a frame of a known shape gives just the text the parser would give, and any other is left to the parser. Method: hand-made frames,
 * and random texts around which nothing changes, compared with the JSON parser. */
#include "base/frame_shape.h"
#include "base/json.h"
#include "base/rng.h"
#include "tests/check.h"

static struct frame_shape shape;

static bool reads(const char *frame, const char *want)
{
    struct buf out;
    buf_init(&out, 1024);
    bool good = frame_shape_read(&shape, str_of(frame), &out);
    if (good && want) CHECK_STR(buf_view(&out), want);
    if (!good) CHECK_INT(out.n, 0);
    buf_fini(&out);
    return good;
}

#define FRAME(text)                                                                                \
    "{\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" text "\"}}]}"

TEST(a_frame_like_the_last_gives_its_text)
{
    REQUIRE(frame_shape_learn(&shape, STR(FRAME("Hello")), "content"));
    CHECK(reads(FRAME(" world"), " world"));
    CHECK(reads(FRAME(""), ""));
    CHECK(reads(FRAME("a \\\"b\\\" \\\\ \\/ \\n\\t\\r\\b\\f"), "a \"b\" \\ / \n\t\r\b\f"));
    CHECK(reads(FRAME("\xe4\xbd\xa0\xe5\xa5\xbd"), "\xe4\xbd\xa0\xe5\xa5\xbd"));
    CHECK(reads(FRAME("\\\"content\\\":\\\"x"), "\"content\":\"x"));
}

TEST(whatever_is_not_certainly_like_it_is_left_to_the_parser)
{
    static const char *const others[] = {
        FRAME("\\u0041"),
        FRAME("a\nb"),
        FRAME("a\tb"),
        FRAME("\xff"),
        FRAME("a\\x"),
        FRAME("a\\"),
        FRAME("a\",\"role\":\"user"), /* a member slipped in */
        "{\"id\":\"b\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}",
        "{\"id\":\"a\",\"choices\":[{\"index\":1,\"delta\":{\"content\":\"x\"}}]}",
        "{\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]} ",
        "{\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":",
        "",
        "{}"};
    REQUIRE(frame_shape_learn(&shape, STR(FRAME("Hello")), "content"));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK_AT(!reads(others[i], NULL), "%s was read", others[i]);
}

TEST(a_frame_whose_text_is_not_certain_is_not_remembered)
{
    static const char *const frames[] = {
        "{\"content\":\"a\",\"x\":{\"content\":\"b\"}}", /* twice */
        "{\"content\":null}",
        "{\"other\":\"content\"}",
        "{\"content\":\n\"a\"}",
        "{}",
        "{\"content\":\"a",
    };
    for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++) {
        CHECK_AT(!frame_shape_learn(&shape, str_of(frames[i]), "content"), "%s", frames[i]);
        CHECK(!reads(frames[i], NULL));
    }
    char big[FRAME_SHAPE_BYTES + 64];
    int n = snprintf(big, sizeof big, "{\"content\":\"%*s\"}", FRAME_SHAPE_BYTES, "x");
    CHECK(!frame_shape_learn(&shape, (struct str){big, (size_t)n}, "content"));
}

TEST(random_texts_give_what_the_parser_gives)
{
    static const char *const pieces[] = {"a",  " ",        "\\n", "\\\"",    "\\\\", "\\u00e9",
                                         "\"", "\xc3\xa9", "{}",  "\\",      "\xf0", "\x01",
                                         ":",  ",",        "]",   "content", "\\/",  "\\ud83d"};
    struct rng r;
    int taken = 0;
    rng_seed(&r, 7);
    REQUIRE(frame_shape_learn(&shape, STR(FRAME("Hello")), "content"));
    for (int round = 0; round < 20000; round++) {
        struct buf frame, text;
        json_t *doc = NULL;
        buf_init(&frame, 4096);
        buf_init(&text, 4096);
        buf_z(&frame, "{\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"");
        for (uint64_t k = rng_below(&r, 6); k; k--)
            buf_z(&frame, pieces[rng_below(&r, sizeof pieces / sizeof pieces[0])]);
        buf_z(&frame, "\"}}]}");
        bool read = frame_shape_read(&shape, buf_view(&frame), &text);
        bool valid = json_parse(buf_view(&frame), 0, &doc, NULL) == OK;
        if (read) {
            const json_t *delta =
                json_object_get(json_array_get(json_object_get(doc, "choices"), 0), "delta");
            REQUIRE(valid && json_object_size(delta) == 1);
            CHECK(str_eq(json_member_str(delta, "content"), buf_view(&text)));
            taken++;
        }
        json_decref(doc);
        buf_fini(&frame);
        buf_fini(&text);
    }
    CHECK(taken > 2000);
}

TEST_MAIN()
