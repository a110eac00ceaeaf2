/* Goal: a glance says yes only to answers that openai_answer_parse takes, with the same usage, and to the usual ones it does say yes.
 * Method: answers by hand; random ones put together of good and bad members, through both. */
#include "base/openai_glance.h"

#include "tests/check.h"
#include "tests/unit/base/json_texts.h"

static bool agrees(struct str json, enum openai_kind kind)
{
    struct openai_usage u = {0};
    struct openai_answer a;
    struct errmsg e = {0};
    if (!openai_glance(json, kind, &u)) return false;
    bool taken = openai_answer_parse(&a, kind, json, &e) == OK;
    CHECK_AT(taken, STR_FMT ": %s", STR_ARG(json), e.text);
    if (!taken) return true;
    CHECK_INT(u.known, a.usage.known);
    CHECK_INT(u.prompt_tokens, a.usage.prompt_tokens);
    CHECK_INT(u.completion_tokens, a.usage.completion_tokens);
    CHECK_INT(u.cached_tokens, a.usage.cached_tokens);
    openai_answer_fini(&a);
    return true;
}

TEST(usual_answers_are_recognised_with_their_usage)
{
    CHECK(agrees(
        STR("{\"id\":\"x\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"m\","
            "\"choices\":[{\"index\":0,\"message\":{\"role\":"
            "\"assistant\",\"content\":\"Hi "
            "\\u4f60\",\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\"}}]},\"logprobs\":"
            "null,"
            "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,"
            "\"total_tokens\":10,"
            "\"prompt_tokens_details\":{\"cached_tokens\":4,\"audio_tokens\":0}},\"error\":null}"),
        OPENAI_CHAT));
    CHECK(agrees(STR("{\"choices\":[{\"index\":1,\"message\":{}},{\"index\":0,\"message\":{\"tool_"
                     "calls\":null}}],\"usage\":null}"),
                 OPENAI_CHAT));
    CHECK(agrees(STR("{\"choices\":[{\"text\":\"a\"},{\"text\":\"b\"}],\"usage\":{\"prompt_"
                     "tokens\":-1,\"completion_tokens\":2.5}}"),
                 OPENAI_COMPLETION));
}

TEST(what_is_no_answer_is_left_to_the_parser)
{
    static const char *const others[] = {
        "",
        "[]",
        "{}",
        "{\"choices\":[]}",
        "{\"choices\":null}",
        "{\"choices\":[{\"index\":0}]}",
        "{\"choices\":[{\"message\":[]}]}",
        "{\"choices\":[{\"message\":{}},{\"index\":0,\"message\":{}}]}",
        "{\"choices\":[{\"index\":1,\"message\":{}}]}",
        "{\"choices\":[{\"message\":{\"tool_calls\":[1]}}]}",
        "{\"choices\":[{\"message\":{\"tool_calls\":{}}}]}",
        "{\"choices\":[{\"message\":{},\"finish_reason\":\"123456789012345678901234\"}]}",
        "{\"error\":{},\"choices\":[{\"message\":{}}]}",
        "{\"object\":\"error\",\"choices\":[{\"message\":{}}]}",
        "{\"choices\":[{\"message\":{}}]} x",
        "{\"choices\":[{\"message\":{}}]",
        "{\"choices\":[{\"message\":{\"a\":1,\"a\":1}}]}",
        "{\"choices\":[{\"message\":{\"content\":\"\xff\"}}]}"};
    struct openai_usage u;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK_AT(!openai_glance(str_of(others[i]), OPENAI_CHAT, &u), "%s", others[i]);
    CHECK(!openai_glance(STR("{\"choices\":[{\"text\":1}]}"), OPENAI_COMPLETION, &u));
    CHECK(!openai_glance(STR("{\"choices\":[{\"message\":{}}]}"), OPENAI_COMPLETION, &u));
}

TEST(random_answers_are_judged_as_the_parser_judges_them)
{
    static const char *const tops[] = {
        "\"id\":\"i\"",
        "\"object\":\"chat.completion\"",
        "\"object\":\"error\"",
        "\"error\":null",
        "\"error\":\"x\"",
        "\"usage\":{\"prompt_tokens\":5}",
        "\"usage\":{\"completion_tokens\":\"5\",\"prompt_tokens\":1e2}",
        "\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":2}}",
        "\"usage\":{\"prompt_tokens\":999999999999999999,\"completion_tokens\":1000000001}",
        "\"usage\":{\"prompt_tokens\":9223372036854775807,\"completion_tokens\":-1}",
        "\"usage\":[]",
        "\"extra\":{\"a\":[1]}"};
    static const char *const parts[] = {"\"index\":0",
                                        "\"index\":1",
                                        "\"index\":null",
                                        "\"index\":1.0",
                                        "\"message\":{\"content\":null}",
                                        "\"message\":{}",
                                        "\"message\":{\"tool_calls\":[{}]}",
                                        "\"message\":{\"tool_calls\":[[]]}",
                                        "\"message\":\"m\"",
                                        "\"text\":\"t\"",
                                        "\"text\":null",
                                        "\"finish_reason\":\"stop\"",
                                        "\"finish_reason\":null",
                                        "\"finish_reason\":7",
                                        "\"finish_reason\":\"\\u0041\"",
                                        "\"logprobs\":{}"};
    struct rng rng;
    struct buf b;
    int agreed = 0;
    rng_seed(&rng, 3);
    buf_init(&b, 1 << 16);
    for (int i = 0; i < 60000; i++) {
        buf_clear(&b);
        buf_z(&b, "{\"choices\":[");
        uint64_t n = rng_below(&rng, 3);
        text_choices(&b, &rng, n, TEXTS_OF(parts), TEXTS_OF(tops));
        agreed += agrees(buf_view(&b), i & 1 ? OPENAI_CHAT : OPENAI_COMPLETION);
    }
    CHECK(agreed > 500);
    buf_fini(&b);
}

TEST_MAIN()
