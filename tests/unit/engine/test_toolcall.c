/* Goal: calls are found in generated text as each family of models writes them, what only looks like one stays content, and it does not
 * matter how the text is cut. Method: tables, each text whole, byte by byte and cut at every place. */
#include "base/mem.h"
#include "engine/toolcall.h"
#include "tests/check.h"

static json_t *tools;

struct heard { /* content, then " | name:arguments" for each call */
    struct buf content, calls;
    int n;
};

static void on_content(void *arg, struct str text)
{
    CHECK(text.n > 0);
    buf_str(&((struct heard *)arg)->content, text);
}
static void on_begin(void *arg, int call, struct str name)
{
    struct heard *h = arg;
    CHECK_INT(call, h->n);
    h->n++;
    buf_printf(&h->calls, " | " STR_FMT ":", STR_ARG(name));
}
static void on_arguments(void *arg, int call, struct str text)
{
    struct heard *h = arg;
    CHECK_INT(call, h->n - 1);
    buf_str(&h->calls, text);
}

/* The text in pieces that end at cut and at cut2; result to be freed. */
static char *read_text(enum toolcall_form form, bool inside, struct str text, size_t cut,
                       size_t cut2)
{
    struct heard h = {.n = 0};
    struct toolcall_sink sink = {on_content, on_begin, on_arguments, &h};
    buf_init(&h.content, 1 << 20);
    buf_init(&h.calls, 1 << 20);
    struct toolcall *t = toolcall_new(form, tools, inside, &sink);
    if (cut == SIZE_MAX) {
        for (size_t i = 0; i < text.n; i++)
            toolcall_feed(t, str_sub(text, i, 1));
    } else {
        toolcall_feed(t, str_sub(text, 0, cut));
        toolcall_feed(t, str_sub(text, cut, cut2 - cut));
        toolcall_feed(t, str_sub(text, cut2, text.n));
    }
    toolcall_finish(t);
    toolcall_free(t);
    buf_str(&h.content, buf_view(&h.calls));
    buf_char(&h.content, 0);
    buf_fini(&h.calls);
    return buf_take(&h.content, NULL);
}

static void check_text(enum toolcall_form form, bool inside, const char *text, const char *want)
{
    struct str s = str_of(text);
    char *got = read_text(form, inside, s, s.n, s.n);
    CHECK_AT(!strcmp(got, want), "%s\n  gives  %s\n  not    %s", text, got, want);
    char *bytes = read_text(form, inside, s, SIZE_MAX, 0);
    CHECK_AT(!strcmp(got, bytes), "byte by byte %s\n  gives  %s", text, bytes);
    mem_free(bytes);
    for (size_t cut = 0; cut <= s.n; cut++) {
        char *cut_got = read_text(form, inside, s, cut, cut + (s.n - cut) / 2);
        CHECK_AT(!strcmp(got, cut_got), "cut at %zu: %s", cut, cut_got);
        mem_free(cut_got);
    }
    mem_free(got);
}

static const struct {
    enum toolcall_form form;
    const char *text, *want;
} cases[] = {
    {TOOLCALL_HERMES, "Hello there.", "Hello there."},
    {TOOLCALL_HERMES, "  Hello ", "  Hello "},
    {TOOLCALL_HERMES, "  ", "  "},
    {TOOLCALL_HERMES, "", ""},
    {TOOLCALL_HERMES,
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
     " | weather:{\"city\": \"Oslo\"}"},
    {TOOLCALL_HERMES,
     "\n<tool_call>{\"name\":\"weather\",\"arguments\":{\"a\":{\"b\":[\"}\"]}}}</tool_call>\n",
     " | weather:{\"a\":{\"b\":[\"}\"]}}"},
    {TOOLCALL_HERMES,
     "Let me "
     "see.\n<tool_call>{\"name\":\"weather\",\"arguments\":{}}</"
     "tool_call>\n<tool_call>{\"name\":\"time\","
     "\"arguments\":{\"zone\":\"\\\"x\\\\\"}}</tool_call>",
     "Let me see.\n | weather:{} | time:{\"zone\":\"\\\"x\\\\\"}"},
    {TOOLCALL_HERMES, "<tool_call>{\"name\":\"time\",\"arguments\":{}}</tool_call> Done.",
     "Done. | time:{}"},
    {TOOLCALL_HERMES, "<tool_call>{\"name\":\"time\",\"arguments\":{}}", " | time:{}"},
    {TOOLCALL_HERMES, "<tool_call>{\"name\":\"time\",\"arguments\":{\"a\":1", " | time:{\"a\":1"},
    {TOOLCALL_HERMES, "<tool_call>{\"name\":\"time\",\"arguments\":{\"a\":\"x\ny\"}}</tool_call>",
     " | time:{\"a\":\"x\\ny\"}"},
    {TOOLCALL_HERMES, "<tool_call>{\"arguments\":{\"zone\":\"b\"},\"name\":\"time\"}</tool_call>",
     " | time:{\"zone\":\"b\"}"},
    {TOOLCALL_HERMES, "<tool_call>{\"name\":\"time\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call>",
     " | time:{\"a\":1}"},
    {TOOLCALL_HERMES, "<tool_call>{\"name\":\"time\"}</tool_call>", " | time:{}"},
    {TOOLCALL_HERMES,
     "<tool_call>{\"id\":7,\"name\":\"time\",\"arguments\":{},\"x\":[1]}</tool_call>",
     " | time:{}"},
    /* what only looks like a call */
    {TOOLCALL_HERMES, "<tool_call>{\"name\":\"other\",\"arguments\":{}}</tool_call>",
     "<tool_call>{\"name\":\"other\",\"arguments\":{}}</tool_call>"},
    {TOOLCALL_HERMES, "The <tool_call> tag", "The <tool_call> tag"},
    {TOOLCALL_HERMES, "<tool_call>{no json}</tool_call>", "<tool_call>{no json}</tool_call>"},
    {TOOLCALL_HERMES, "<tool_call>{\"name\":\"time\", \"arguments\"",
     "<tool_call>{\"name\":\"time\", \"arguments\""},
    {TOOLCALL_HERMES, "<tool_cal", "<tool_cal"},
    {TOOLCALL_HERMES, "<<tool_call<tool_call>{}", "<<tool_call<tool_call>{}"},
    {TOOLCALL_HERMES, "a < b <to", "a < b <to"},
    {TOOLCALL_HERMES, "<tool_call><tool_call>{\"name\":\"time\",\"arguments\":{}}</tool_call>",
     "<tool_call> | time:{}"},
    {TOOLCALL_HERMES, "{\"name\":\"time\",\"arguments\":{}}", " | time:{}"},
    {TOOLCALL_HERMES,
     "{\"name\":\"time\",\"arguments\":{}}\n{\"name\":\"weather\",\"arguments\":{}}",
     " | time:{} | weather:{}"},
    {TOOLCALL_HERMES, "```json\n{\n  \"name\": \"time\",\n  \"arguments\": {}\n}\n```",
     " | time:{}"},
    {TOOLCALL_HERMES, "```\n{\"name\":\"time\",\"arguments\":{}}```\nDone", "Done | time:{}"},
    {TOOLCALL_HERMES, "```json\n{\"a\": 1}\n```", "```json\n{\"a\": 1}\n```"},
    {TOOLCALL_HERMES, "```python\nx = {}\n```", "```python\nx = {}\n```"},
    {TOOLCALL_HERMES, "``` ", "``` "},
    {TOOLCALL_LLAMA, "```json\n{\"name\":\"time\",\"parameters\":{}}\n```", " | time:{}"},
    {TOOLCALL_HERMES, "{\"name\":\"Bob\",\"arguments\":{}}", "{\"name\":\"Bob\",\"arguments\":{}}"},
    {TOOLCALL_HERMES, "See {\"name\":\"time\",\"arguments\":{}}",
     "See {\"name\":\"time\",\"arguments\":{}}"},
    {TOOLCALL_HERMES, "{\"arguments\":{},\"name\":\"time\"}",
     "{\"arguments\":{},\"name\":\"time\"}"},
    {TOOLCALL_HERMES, "<tool_call>{\"name\":\"time\",\"arguments\":[1]}</tool_call>",
     "<tool_call>{\"name\":\"time\",\"arguments\":[1]}</tool_call>"},
    {TOOLCALL_HERMES, "<tool_call>{\"name\":\"time\",\"arguments\":{}} <b>", "<b> | time:{}"},
    {TOOLCALL_LLAMA, "{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}",
     " | weather:{\"city\": \"Oslo\"}"},
    {TOOLCALL_LLAMA,
     "<|python_tag|>{\"name\": \"time\", \"parameters\": {}}; "
     "{\"name\":\"weather\",\"parameters\":{}}",
     " | time:{} | weather:{}"},
    {TOOLCALL_LLAMA, "{\"type\": \"function\", \"name\": \"time\", \"parameters\": {}}",
     " | time:{}"},
    {TOOLCALL_LLAMA, "I use {\"name\": \"time\", \"parameters\": {}}",
     "I use {\"name\": \"time\", \"parameters\": {}}"},
    {TOOLCALL_LLAMA, "{\"answer\": 42}", "{\"answer\": 42}"},
    {TOOLCALL_LLAMA, " {not json", "{not json"},
    {TOOLCALL_MISTRAL,
     "[TOOL_CALLS] [{\"name\": \"time\", \"arguments\": {}}, {\"name\": \"weather\", "
     "\"arguments\": {\"a\": 1}}]",
     " | time:{} | weather:{\"a\": 1}"},
    {TOOLCALL_MISTRAL, "[TOOL_CALLS]time[ARGS]{\"a\":{}}", " | time:{\"a\":{}}"},
    {TOOLCALL_MISTRAL, "[TOOL_CALLS]time[CALL_ID]abc[ARGS]{}[TOOL_CALLS]weather{}",
     " | time:{} | weather:{}"},
    {TOOLCALL_MISTRAL, "[TOOL_CALLS] [{\"name\": \"nope\"}]",
     "[TOOL_CALLS] [{\"name\": \"nope\"}]"},
    {TOOLCALL_MISTRAL, "[TOOL_CALLS]nope[ARGS]{}", "[TOOL_CALLS]nope[ARGS]{}"},
    {TOOLCALL_MISTRAL, "see [TOOL_CALLS", "see [TOOL_CALLS"},
    {TOOLCALL_GENERIC, "<tool_call>{\"name\":\"time\",\"arguments\":{}}</tool_call>", " | time:{}"},
};

static void open_tools(void)
{
    tools = json_loads("[{\"type\":\"function\",\"function\":{\"name\":\"weather\"}},{\"type\":"
                       "\"function\",\"function\":"
                       "{\"name\":\"time\"}}]",
                       0, NULL);
    CHECK(tools);
}

TEST(calls_are_told_as_such_and_everything_else_stays_content_however_it_is_cut)
{
    open_tools();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_text(cases[i].form, false, cases[i].text, cases[i].want);
    json_decref(tools);
}

TEST(a_marker_may_stand_at_the_end_of_the_prompt)
{
    open_tools();
    check_text(TOOLCALL_MISTRAL, true, "[{\"name\": \"time\", \"arguments\": {}}]", " | time:{}");
    check_text(TOOLCALL_HERMES, true, "\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>",
               " | time:{}");
    check_text(TOOLCALL_HERMES, true, "no", "no");
    json_decref(tools);
}

TEST(arguments_are_handed_on_while_they_are_written)
{
    struct heard h = {.n = 0};
    struct toolcall_sink sink = {on_content, on_begin, on_arguments, &h};
    open_tools();
    buf_init(&h.content, 1000);
    buf_init(&h.calls, 1000);
    struct toolcall *t = toolcall_new(TOOLCALL_HERMES, tools, false, &sink);
    toolcall_feed(t, STR("Yes. <to"));
    CHECK_STR(buf_view(&h.content), "Yes. ");
    toolcall_feed(t, STR("ol_call>{\"name\": \"time\", \"arguments\":"));
    CHECK_INT(h.n, 0);
    toolcall_feed(t, STR(" {\"zo"));
    CHECK_STR(buf_view(&h.calls), " | time:{\"zo");
    toolcall_feed(t, STR("ne\": \"x\"}"));
    CHECK_STR(buf_view(&h.calls), " | time:{\"zone\": \"x\"}");
    toolcall_feed(t, STR("}</tool_call>"));
    toolcall_finish(t);
    CHECK_STR(buf_view(&h.content), "Yes. ");
    toolcall_free(t);
    buf_fini(&h.content);
    buf_fini(&h.calls);
    json_decref(tools);
}

TEST(an_answer_in_json_is_not_held_back)
{
    struct heard h = {.n = 0};
    struct toolcall_sink sink = {on_content, on_begin, on_arguments, &h};
    open_tools();
    buf_init(&h.content, 1000);
    buf_init(&h.calls, 1000);
    struct toolcall *t = toolcall_new(TOOLCALL_HERMES, tools, false, &sink);
    toolcall_feed(t, STR("{\"answ"));
    CHECK_STR(buf_view(&h.content), "");
    toolcall_feed(t, STR("er\""));
    CHECK_STR(buf_view(&h.content), "{\"answer\"");
    toolcall_finish(t);
    toolcall_free(t);
    buf_fini(&h.content);
    buf_fini(&h.calls);
    json_decref(tools);
}

TEST(a_head_that_never_ends_is_content_and_costs_no_more_than_its_bound)
{
    struct buf text;
    open_tools();
    buf_init(&text, 1 << 20);
    for (int i = 0; i < 3000; i++)
        buf_z(&text, "<tool_call>{\"a\":\"");
    struct str s = buf_view(&text);
    char *got = read_text(TOOLCALL_HERMES, false, s, s.n, s.n);
    CHECK(!strncmp(got, s.p, s.n) && strlen(got) == s.n);
    mem_free(got);
    buf_fini(&text);
    json_decref(tools);
}

TEST(the_template_tells_the_form)
{
    CHECK_INT(toolcall_form_of(STR("{% if tools %}<tool_call>{% endif %}")), TOOLCALL_HERMES);
    CHECK_INT(toolcall_form_of(STR("{{ tools }}<|start_header_id|>")), TOOLCALL_LLAMA);
    CHECK_INT(toolcall_form_of(STR("[AVAILABLE_TOOLS] {{ tools }} [TOOL_CALLS]")),
              TOOLCALL_MISTRAL);
    CHECK_INT(toolcall_form_of(STR("{{ messages }}<|start_header_id|>")), TOOLCALL_GENERIC);
}

TEST_MAIN()
