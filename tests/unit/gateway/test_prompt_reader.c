/* Goal: requests of every form become the ids the engine computes, or are left alone. Method: the tiny generated model's file. */
#include "base/buf.h"
#include "gateway/prompt_reader.h"
#include "tests/check.h"

static struct prompt_reader *reader(void)
{
    struct prompt_reader *r = NULL;
    struct errmsg e = {0};
    CHECK_AT(prompt_reader_open(&r, TEST_DATA "/tiny-llama-mixed.gguf", &e) == OK, "%s", e.text);
    return r;
}

/* Number of ids, -1 = not read. */
static int count(struct prompt_reader *r, enum openai_kind kind, const char *body)
{
    struct openai_request q;
    struct openai_error oe;
    struct errmsg e = {0};
    struct token_list l;
    if (openai_parse(&q, kind, str_of(body), OPENAI_GATEWAY, &oe) != OK) return -2;
    token_list_init(&l, 1000);
    int n = prompt_reader_read(r, &q, 0, &l, &e) == OK && !l.failed ? (int)l.n : -1;
    token_list_fini(&l);
    openai_request_fini(&q);
    return n;
}

TEST(chats_and_single_prompts_are_read)
{
    struct prompt_reader *r = reader();
    REQUIRE(r);
    int text = count(r, OPENAI_COMPLETION, "{\"model\":\"m\",\"prompt\":\"some words\"}");
    CHECK(text > 2);
    int64_t alone = prompt_reader_count(r, STR("some words"));
    CHECK(alone == text || alone == text - 1); /* a prompt may have a first token of its own */
    CHECK(prompt_reader_count(r, STR("")) == 0);
    CHECK_INT(count(r, OPENAI_COMPLETION, "{\"model\":\"m\",\"prompt\":[\"some words\"]}"), text);
    CHECK_INT(count(r, OPENAI_COMPLETION, "{\"model\":\"m\",\"prompt\":[5,6,7]}"), 3);
    CHECK_INT(count(r, OPENAI_COMPLETION, "{\"model\":\"m\",\"prompt\":[[5,6,7,8]]}"), 4);
    CHECK(count(r, OPENAI_CHAT,
                "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"some words\"}]}") >
          text);
    prompt_reader_unref(r);
}

TEST(what_has_no_one_prompt_is_left_alone)
{
    struct prompt_reader *r = reader();
    REQUIRE(r);
    CHECK_INT(count(r, OPENAI_COMPLETION, "{\"model\":\"m\",\"prompt\":[\"a\",\"b\"]}"), -1);
    CHECK_INT(count(r, OPENAI_COMPLETION, "{\"model\":\"m\",\"prompt\":[99999999]}"), -1);
    CHECK_INT(count(r, OPENAI_CHAT,
                    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
                    "\"image_url\",\"image_url\":"
                    "{\"url\":\"http://x/y.png\"}}]}]}"),
              -1);
    prompt_reader_unref(r);
}

TEST(users_keep_a_reader_alive_and_nonsense_makes_none)
{
    struct prompt_reader *r = reader(), *none = NULL;
    struct errmsg e = {0};
    REQUIRE(r);
    CHECK(prompt_reader_ref(r) == r);
    prompt_reader_unref(r);
    CHECK(count(r, OPENAI_COMPLETION, "{\"model\":\"m\",\"prompt\":\"x\"}") > 0);
    prompt_reader_unref(r);
    CHECK(prompt_reader_new(&none, STR("GGUF nonsense"), false, &e) != OK && !none);
    CHECK(prompt_reader_open(&none, TEST_DATA "/no-such-file", &e) != OK && !none);
}

TEST_MAIN()
