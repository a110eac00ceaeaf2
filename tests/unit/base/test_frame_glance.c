/* Goal: a glance takes only frames that the collector takes and tells the same of them, and a collector that only watches says of a stream
 * what one that collects says. Method: usual frames by hand; random ones put together of good and bad members, through both. */
#include "base/frame_glance.h"
#include "base/frame_shape.h"
#include "tests/check.h"
#include "tests/unit/base/json_texts.h"

TEST(usual_frames_are_recognised)
{
    static const struct {
        const char *frame;
        bool alike;
        const char *finish;
    } rows[] = {
        {"{\"id\":\"a\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","
         "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},"
         "\"logprobs\":null,\"finish_reason\":null}]}",
         true, ""},
        {"{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}", false,
         ""},
        {"{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}",
         false, "stop"},
        {"{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":"
         "1}}",
         false, ""},
        {"{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"logprobs\":{\"content\":[]}}]"
         "}",
         false, ""},
        {"{\"choices\":[{\"delta\":{\"reasoning_content\":\"x\",\"content\":null}}]}", false, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct frame_glance g;
        bool seen = frame_glance(str_of(rows[i].frame), OPENAI_CHAT, &g);
        CHECK_AT(seen, "declined: %s", rows[i].frame);
        if (!seen) continue;
        CHECK_INT(g.seen, 1);
        CHECK_AT(g.alike == rows[i].alike, "alike is %d: %s", g.alike, rows[i].frame);
        CHECK_STR(str_of(g.finish[0]), rows[i].finish);
    }
    struct frame_glance g;
    CHECK(frame_glance(
        STR("{\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2}}"),
        OPENAI_CHAT, &g));
    CHECK(g.usage.known && g.usage.prompt_tokens == 4 && g.usage.completion_tokens == 2 && !g.seen);
}

TEST(what_is_rare_or_no_chunk_is_declined)
{
    static const char *const others[] = {
        "",
        "[]",
        "{}",
        "{\"choices\":null}",
        "{\"choices\":[1]}",
        "{\"error\":{}}",
        "{\"object\":\"error\",\"choices\":[]}",
        "{\"choices\":[{\"index\":16,\"delta\":{}}]}",
        "{\"choices\":[{\"index\":-1,\"delta\":{}}]}",
        "{\"choices\":[{\"delta\":[]}]}",
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}",
        "{\"choices\":[{\"message\":{\"content\":\"a\"}}]}",
        "{\"choices\":[{\"finish_reason\":7}]}",
        "{\"choices\":[{\"delta\":{\"content\":\"\\ud800\"}}]}",
        "{\"choices\":[]} x"};
    struct frame_glance g;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK_AT(!frame_glance(str_of(others[i]), OPENAI_CHAT, &g), "%s", others[i]);
}

static void random_frame(struct buf *b, struct rng *rng)
{
    static const char *const tops[] = {
        "\"id\":\"i\"",   "\"object\":\"error\"",
        "\"error\":null", "\"error\":{\"message\":\"x\"}",
        "\"usage\":null", "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}",
        "\"usage\":{}",   "\"extra\":[1]",
        "\"nvext\":{}"};
    static const char *const parts[] = {"\"index\":0",
                                        "\"index\":1",
                                        "\"index\":null",
                                        "\"index\":99",
                                        "\"delta\":{\"content\":\"one\"}",
                                        "\"delta\":{\"content\":\"two \\n\"}",
                                        "\"delta\":{\"role\":\"assistant\",\"content\":null}",
                                        "\"delta\":null",
                                        "\"delta\":{\"tool_calls\":null}",
                                        "\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\"}]}",
                                        "\"delta\":7",
                                        "\"delta\":{\"content\":[\"x\"]}",
                                        "\"text\":\"t\"",
                                        "\"text\":null",
                                        "\"text\":1",
                                        "\"finish_reason\":\"stop\"",
                                        "\"finish_reason\":null",
                                        "\"finish_reason\":\"\"",
                                        "\"finish_reason\":false",
                                        "\"logprobs\":{\"content\":[1]}",
                                        "\"message\":{\"content\":\"m\"}",
                                        "\"stop_reason\":null"};
    buf_clear(b);
    buf_z(b, rng_below(rng, 8) ? "{\"choices\":[" : "{\"choices\":null,\"x\":[");
    uint64_t n = rng_below(rng, 9) ? 1 : rng_below(rng, 3);
    text_choices(b, rng, n, TEXTS_OF(parts), TEXTS_OF(tops));
}

static void check_frame(struct str frame, enum openai_kind kind)
{
    struct frame_glance g;
    struct frame_shape shape;
    struct errmsg e = {0};
    if (!frame_glance(frame, kind, &g)) return;
    struct openai_collector *c = openai_collector_new(kind, 1 << 20);
    CHECK_AT(openai_collector_feed(c, frame, &e) == OK, STR_FMT ": %s", STR_ARG(frame), e.text);
    bool shaped =
        g.alike && frame_shape_learn(&shape, frame, kind == OPENAI_CHAT ? "content" : "text");
    if (shaped)
        CHECK_AT(openai_collector_feed_like(c, frame), "not alike: " STR_FMT, STR_ARG(frame));
    openai_collector_free(c);
}

TEST(a_watching_collector_says_of_streams_what_a_collecting_one_says)
{
    struct rng rng;
    struct buf frame;
    int whole = 0;
    rng_seed(&rng, 17);
    buf_init(&frame, 1 << 16);
    for (int stream = 0; stream < 20000; stream++) {
        enum openai_kind kind = stream & 1 ? OPENAI_CHAT : OPENAI_COMPLETION;
        struct openai_collector *all = openai_collector_new(kind, 1 << 20),
                                *watch = openai_collector_new(kind, 1 << 20);
        openai_collector_only_watch(watch);
        bool failed = false;
        for (uint64_t n = 1 + rng_below(&rng, 4); n && !failed; n--) {
            struct errmsg e = {0};
            random_frame(&frame, &rng);
            check_frame(buf_view(&frame), kind);
            enum err code = openai_collector_feed(all, buf_view(&frame), &e),
                     seen = openai_collector_feed(watch, buf_view(&frame), &e);
            CHECK_AT(code == seen, "%d, watching %d: %s", (int)code, (int)seen, frame.p);
            failed = code != OK;
            if (failed || rng_below(&rng, 2)) continue;
            if (openai_collector_feed_like(watch, buf_view(&frame)))
                CHECK_AT(openai_collector_feed_like(all, buf_view(&frame)), "not alike: %s",
                         frame.p);
        }
        struct openai_usage a = openai_collector_usage(all), b = openai_collector_usage(watch);
        CHECK(a.known == b.known && a.prompt_tokens == b.prompt_tokens &&
              a.completion_tokens == b.completion_tokens);
        CHECK_INT(openai_collector_whole(watch), openai_collector_whole(all));
        whole += openai_collector_whole(watch) == OK;
        openai_collector_free(all);
        openai_collector_free(watch);
    }
    CHECK_AT(whole > 100, "%d whole streams", whole);
    buf_fini(&frame);
}

TEST_MAIN()
