/* test_chat_traits.c - templates that keep a conversation's prompts from being reused are told apart from those that only ever add
 * at the end, and the form in which a template shows calls is found. */
#include "engine/text/chat_traits.h"

#include "engine/text/chat_template.h"
#include "tests/check.h"

#define TURNS "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
#define PROMPT "{% if add_generation_prompt %}<assistant>{% endif %}"

static struct chat_traits traits_of(const char *source)
{
    struct chat_template *t = NULL;
    struct errmsg e = {0};
    CHECK_AT(chat_template_new(&t, str_of(source), &e) == OK, "%s: %s", source, e.text);
    struct chat_traits traits = chat_traits_of(t, "<s>", "</s>");
    chat_template_free(t);
    return traits;
}

static void check_described(const struct chat_traits *traits, const char *part)
{
    struct buf b;
    buf_init(&b, 4096);
    chat_traits_describe(traits, &b);
    if (*part)
        CHECK_AT(b.n && strstr(b.p, part), "\"%s\" is not in \"%s\"", part, b.n ? b.p : "");
    else
        CHECK_INT(b.n, 0);
    buf_fini(&b);
}

TEST(a_template_that_only_adds_at_the_end_is_fine)
{
    struct chat_traits t = traits_of("{{ bos_token }}" TURNS PROMPT);
    CHECK(!t.dated && !t.rewrites && !t.rewrites_with_tools && !t.rewrites_answers);
    check_described(&t, "");
    t = traits_of(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" TURNS PROMPT);
    check_described(&t, "");
}

TEST(a_date_is_noticed)
{
    struct chat_traits t = traits_of("{{ strftime_now('%d %B %Y') }}" TURNS PROMPT);
    CHECK(t.dated && !t.rewrites);
    check_described(&t, "date");
}

TEST(a_system_text_that_moves_to_the_last_question_is_noticed)
{
    struct chat_traits t =
        traits_of("{% for m in messages if m.role != 'system' %}<{{ m.role }}>"
                  "{% if loop.last %}{{ messages[0].content }} {% endif %}{{ m.content }}</>"
                  "{% endfor %}" PROMPT);
    CHECK(t.rewrites && !t.dated);
    check_described(&t, "changes earlier turns");
}

TEST(tools_that_move_to_the_last_question_are_noticed)
{
    struct chat_traits t =
        traits_of("{% for m in messages %}<{{ m.role }}>{% if loop.last and tools %}"
                  "{{ tools|tojson }}{% endif %}{{ m.content }}</>{% endfor %}" PROMPT);
    CHECK(t.rewrites_with_tools && !t.rewrites && !t.rewrites_answers);
    check_described(&t, "with tools");
}

TEST(dropped_thoughts_are_noticed)
{
    struct chat_traits t =
        traits_of("{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}</>"
                  "{% endfor %}" PROMPT);
    CHECK(t.rewrites_answers && !t.rewrites && !t.dated);
    check_described(&t, "<think>");
    /* a prompt that opens the thought itself, while the history has none */
    t = traits_of(TURNS PROMPT "{% if add_generation_prompt %}<think>\n{% endif %}");
    CHECK(t.rewrites_answers && !t.rewrites);
}

TEST(the_form_of_calls_is_found)
{
    static const struct {
        const char *shown;
        bool as_text, null_content;
    } cases[] = {
        {"{{ c.function.arguments | tojson }}", false, false},
        {"{% for k, v in c.function.arguments.items() %}<{{ k }}>{{ v }}{% endfor %}", false,
         false},
        {"{{ '(' + c.function.arguments + ')' }}", true, false},
        {"{{ c.function.arguments }}", true, false},
        {"{% if m.content is none %}{{ '(' + c.function.arguments + ')' }}{% endif %}", true, true},
        {"{% if m.content is none %}{{ c.function.arguments | tojson }}{% endif %}", false, true},
        {"nothing at all", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char source[600];
        snprintf(source, sizeof source,
                 "{%% for m in messages %%}<{{ m.role }}>{{ m.content }}{%% for c in m.tool_calls "
                 "or [] %%}"
                 "%s{%% endfor %%}{%% endfor %%}",
                 cases[i].shown);
        struct chat_traits t = traits_of(source);
        CHECK_AT(t.arguments_as_text == cases[i].as_text, "%s", cases[i].shown);
        CHECK_AT(t.null_content == cases[i].null_content, "%s", cases[i].shown);
    }
}

TEST(a_template_that_renders_nothing_has_no_traits)
{
    struct chat_traits t = traits_of("{{ raise_exception('never') }}");
    CHECK(!t.dated && !t.rewrites && !t.rewrites_answers && !t.arguments_as_text);
    t = traits_of("{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}");
    check_described(&t, "");
}

TEST_MAIN()
