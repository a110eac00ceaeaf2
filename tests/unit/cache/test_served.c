/* test_served.c - goal: the parsed form says what the stored one says, and only a text that is written the same way may be sent as it is.
 * Method: answers as keep writes them, and hand-written ones. */
#include "cache/served.h"

#include "tests/check.h"

TEST(what_keep_wrote_may_be_sent_as_it_stands)
{
    struct openai_answer a = {
        .kind = OPENAI_CHAT, .n_choices = 1, .created = 5, .id = "x", .model = "m"};
    struct buf json;
    struct served *v;
    struct errmsg e = {0};
    snprintf(a.choices[0].finish_reason, sizeof a.choices[0].finish_reason, "stop");
    a.choices[0].message =
        json_pack("{s:s, s:s}", "role", "assistant", "content", "hi \xc3\xa9 \"there\"");
    buf_init(&json, 1 << 16);
    openai_answer_write_json(&json, &a);
    REQUIRE(served_new(&v, OPENAI_CHAT, buf_view(&json), &e) == OK);
    CHECK(v->as_stored && v->bytes > json.n && v->bytes < 8192);
    CHECK_STR(json_member_str(v->answer.choices[0].message, "content"), "hi \xc3\xa9 \"there\"");
    served_unref(served_ref(v));
    served_unref(v);
    served_unref(NULL);
    openai_answer_fini(&a);
    buf_fini(&json);
}

TEST(another_way_of_writing_it_is_read_but_not_sent)
{
    struct served *v;
    struct errmsg e = {0};
    REQUIRE(served_new(&v, OPENAI_CHAT,
                       STR("{ "
                           "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
                           "\"content\":\"hi\"},\"finish_reason\":"
                           "\"stop\"}],\"id\":\"x\",\"model\":\"m\",\"created\":1}"),
                       &e) == OK);
    CHECK(!v->as_stored);
    served_unref(v);
    CHECK(served_new(&v, OPENAI_CHAT, STR("{\"id\":1"), &e) == ERR_INVALID && e.text[0]);
}

TEST_MAIN()
