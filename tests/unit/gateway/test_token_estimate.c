/* test_token_estimate.c - goal: an estimate is near what tokenizers give for usual text, rather over than far under, whatever bytes come.
 * Method: tables of texts and requests of every form, random bytes. */
#include "gateway/token_estimate.h"

#include "base/mem.h"
#include "base/rng.h"
#include "tests/check.h"

TEST(texts_are_estimated_by_their_script)
{
    static const struct {
        const char *text;
        int64_t want;
    } t[] = {{"", 0},
             {"a", 1},
             {"How do I reset my password?", 7},
             {"\xE5\xA6\x82\xE4\xBD\x95\xE9\x87\x8D\xE7\xBD\xAE", 4}, /* four Chinese characters */
             {"\xD0\x9A\xD0\xB0\xD0\xBA", 2},                         /* three Cyrillic letters */
             {"\xC3\xA9t\xC3\xA9", 2},                                /* two accented, one plain */
             {"\xF0\x9F\x9A\x9A", 1},                                 /* a picture */
             {"\xE2\x80\x94", 1},                                     /* a dash is a letter */
             {"ok \xE4\xBD\xA0\xE5\xA5\xBD", 3}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        CHECK_INT(token_estimate(str_of(t[i].text)), t[i].want);
}

TEST(pieces_are_not_rounded_one_by_one)
{
    struct token_estimate e = {0};
    for (int i = 0; i < 400; i++)
        token_estimate_add(&e, STR("a"));
    CHECK_INT(token_estimate_total(&e), 100);
}

static int64_t prompt(enum openai_kind kind, const char *body)
{
    struct openai_request r;
    struct openai_error e = {0};
    if (openai_parse(&r, kind, str_of(body), OPENAI_GATEWAY, &e) != OK) {
        printf("    %s\n", e.message);
        return -1;
    }
    int64_t n = token_estimate_prompt(&r);
    openai_request_fini(&r);
    return n;
}

TEST(a_prompt_is_its_messages_their_frames_tools_and_pictures)
{
    static const struct {
        enum openai_kind kind;
        const char *body;
        int64_t want;
    } t[] = {
        {OPENAI_CHAT,
         "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"12345678\"}]}",
         4 + 3 + 2},
        {OPENAI_CHAT,
         "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"1234\"},{\"role\":"
         "\"user\",\"content\":[{\"type\":\"text\",\"text\":\"1234\"},{\"type\":\"image_url\","
         "\"image_url\":{\"url\":\"data:image/png;base64,AAAAAAAAAAAAAAAAAAAAAAAAAAAA\"}}]}]}",
         4 + 4 + 3 + 2 + 765},
        {OPENAI_COMPLETION, "{\"model\":\"m\",\"prompt\":\"12345678\"}", 2},
        {OPENAI_COMPLETION, "{\"model\":\"m\",\"prompt\":[\"1234\",\"5678\"]}", 2},
        {OPENAI_COMPLETION, "{\"model\":\"m\",\"prompt\":[1,2,3]}", 3},
        {OPENAI_COMPLETION, "{\"model\":\"m\",\"prompt\":[[1,2,3],[4]]}", 4},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        CHECK_INT(prompt(t[i].kind, t[i].body), t[i].want);
    int64_t bare = prompt(OPENAI_CHAT, t[0].body);
    int64_t tools = prompt(
        OPENAI_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"12345678\"}],"
                     "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\","
                     "\"parameters\":{\"type\":\"object\"}}}]}");
    CHECK(tools > bare + 15 && tools < bare + 40);
}

TEST(any_bytes_are_fine_and_more_text_is_never_less)
{
    uint64_t seed = rng_entropy();
    struct rng r;
    rng_seed(&r, seed);
    for (int i = 0; i < 300; i++) {
        char *text = xmalloc(200); /* of its own size, so that reading beyond is seen */
        size_t n = rng_below(&r, 201);
        for (size_t k = 0; k < n; k++)
            text[k] = (char)rng_below(&r, 256);
        char *exact = xmalloc(n + !n);
        memcpy(exact, text, n);
        int64_t whole = token_estimate((struct str){exact, n});
        CHECK_AT(whole >= 0 && whole <= (int64_t)n + 2, "%lld of %zu, seed %llu", (long long)whole,
                 n, (unsigned long long)seed);
        mem_free(exact);
        mem_free(text);
    }
}

TEST_MAIN()
