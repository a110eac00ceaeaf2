/* test_chat_template.c - renderings are byte-equal to Jinja2's (tests/data/template_cases.jsonl: each line has a template, its
 * inputs and what Jinja2 3.1 made of them), content keeps its mark, and hostile templates end within bounds. */
#include <jansson.h>

#include "base/mem.h"
#include "engine/text/chat_template.h"
#include "tests/check.h"

enum { NOW = 1767225600 + 3661 }; /* the clock the expected texts were made with */

static struct chat_render_options options_of(const json_t *c)
{
    return (struct chat_render_options){
        .messages = json_object_get(c, "messages"),
        .tools = json_object_get(c, "tools"),
        .add_generation_prompt = json_is_true(json_object_get(c, "add_generation_prompt")),
        .bos_token = "<s>",
        .eos_token = "</s>",
        .variables = json_object_get(c, "variables"),
        .now_s = NOW,
        .text_max = 1 << 20,
        .steps_max = 1000000};
}

/* Segments cover the text, in order, and neighbours differ in kind. */
static void check_segments(const struct chat_rendering *r, const char *id)
{
    size_t at = 0;
    for (size_t i = 0; i < r->n_segments; i++) {
        CHECK_AT(r->segments[i].from == at && r->segments[i].n > 0, "%s: segment %zu leaves a gap",
                 id, i);
        CHECK_AT(!i || r->segments[i].is_content != r->segments[i - 1].is_content,
                 "%s: segments %zu not merged", id, i);
        at += r->segments[i].n;
    }
    CHECK_AT(at == r->text.n, "%s: segments end at %zu of %zu", id, at, r->text.n);
}

static void show_difference(const char *id, struct str got, struct str want)
{
    size_t i = 0;
    while (i < got.n && i < want.n && got.p[i] == want.p[i])
        i++;
    CHECK_AT(false, "%s: differs at byte %zu", id, i);
    struct str g = str_sub(got, i > 30 ? i - 30 : 0, 80),
               w = str_sub(want, i > 30 ? i - 30 : 0, 80);
    printf("      got  \"%.*s\"\n      want \"%.*s\"\n", STR_ARG(g), STR_ARG(w));
}

static void run_case(const json_t *c)
{
    const char *id = json_string_value(json_object_get(c, "id"));
    const json_t *source = json_object_get(c, "template"),
                 *expected = json_object_get(c, "expected");
    const char *raises = json_string_value(json_object_get(c, "raises"));
    struct chat_template *t = NULL;
    struct errmsg e = {0};
    struct chat_rendering r;
    struct chat_render_options opt = options_of(c);
    enum err err = chat_template_new(
        &t, (struct str){json_string_value(source), json_string_length(source)}, &e);
    if (!err) err = chat_template_render(t, &opt, &r, &e);
    if (expected) {
        CHECK_AT(!err, "%s: %s", id, e.text);
        struct str want = {json_string_value(expected), json_string_length(expected)};
        if (!err && !str_eq(buf_view(&r.text), want)) show_difference(id, buf_view(&r.text), want);
        if (!err) check_segments(&r, id);
    } else if (raises) {
        CHECK_AT(err == ERR_INVALID && !strcmp(e.text, raises), "%s: %s", id, e.text);
    } else {
        CHECK_AT(err, "%s: expected an error", id);
        CHECK_AT(err && e.text[0], "%s: the error has no text", id);
    }
    if (!err) chat_rendering_fini(&r);
    chat_template_free(t);
}

TEST(renderings_equal_jinja2)
{
    FILE *f = fopen(TEST_DATA "/template_cases.jsonl", "r");
    REQUIRE(f);
    char *line = xmalloc(1 << 20);
    int n = 0;
    while (fgets(line, 1 << 20, f)) {
        json_t *c = json_loads(line, JSON_ALLOW_NUL, NULL);
        REQUIRE(c);
        run_case(c);
        json_decref(c);
        n++;
    }
    CHECK(n > 60);
    fclose(f);
    mem_free(line);
}

static char *read_template(const char *name, size_t *n)
{
    char path[300], *source = xmalloc(1 << 16);
    snprintf(path, sizeof path, TEST_DATA "/templates/%s", name);
    FILE *f = fopen(path, "r");
    *n = f ? fread(source, 1, 1 << 16, f) : 0;
    CHECK_AT(f && *n, "%s cannot be read", path);
    if (f) fclose(f);
    return source;
}

/* c: a template's name and what Jinja2 made of it, or the reason it gave for refusing; conversation: the line before. */
static void check_rendering(const json_t *conversation, const json_t *c)
{
    size_t n;
    char *source = read_template(json_string_value(json_object_get(c, "template")), &n);
    json_t *whole = json_deep_copy(conversation);
    char id[200];
    snprintf(id, sizeof id, "%s on \"%s\"", json_string_value(json_object_get(c, "template")),
             json_string_value(json_object_get(conversation, "conversation")));
    json_object_update(whole, (json_t *)c);
    json_object_set_new(whole, "id", json_string(id));
    json_object_set_new(whole, "template", json_stringn(source, n));
    run_case(whole);
    json_decref(whole);
    mem_free(source);
}

TEST(templates_render_all_conversations_as_jinja2_does)
{
    FILE *f = fopen(TEST_DATA "/template_renders.jsonl", "r");
    REQUIRE(f);
    char *line = xmalloc(1 << 20);
    json_t *conversation = NULL;
    int n = 0;
    while (fgets(line, 1 << 20, f)) {
        json_t *c = json_loads(line, JSON_ALLOW_NUL, NULL);
        REQUIRE(c);
        if (json_object_get(c, "conversation")) {
            json_decref(conversation);
            conversation = c;
            continue;
        }
        check_rendering(conversation, c);
        json_decref(c);
        n++;
    }
    CHECK(n > 150);
    json_decref(conversation);
    fclose(f);
    mem_free(line);
}

/* Renders source with one user message; the error, or OK with the text in *r. */
static enum err render(const char *source, const char *user, struct chat_rendering *r,
                       struct errmsg *e)
{
    struct chat_template *t;
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", user);
    struct chat_render_options opt = {.messages = messages,
                                      .bos_token = "",
                                      .eos_token = "",
                                      .text_max = 1 << 16,
                                      .steps_max = 200000};
    enum err err = chat_template_new(&t, str_of(source), e);
    if (!err) err = chat_template_render(t, &opt, r, e);
    chat_template_free(t);
    json_decref(messages);
    return err;
}

TEST(content_keeps_its_mark_through_text_operations)
{
    static const char *const sources[] = {
        "<a>{{ '[' + messages[0].content + ']' }}<b>",
        "<a>{{ '[' ~ messages[0].content|trim ~ ']' }}<b>",
        "<a>{% set x = '[' + messages[0]['content'].strip() + ']' %}{{ x }}<b>",
        "<a>{% set x %}[{{ messages[0].content }}]{% endset %}{{ x }}<b>",
        "<a>{% macro m(v) %}[{{ v }}]{% endmacro %}{{ m(messages[0].content) }}<b>",
        "<a>{{ ['[', messages[0].content, ']']|join }}<b>",
        "<a>[{{ messages[0].content.split('\\n')[0] }}]<b>",
        "<a>[{{ messages[0].content.replace('zz', 'y') }}]<b>",
        "<a>[{{ messages[0].content[0:5] }}]<b>",
        "<a>{{ '[%s]' % messages[0].content }}<b>",
    };
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        struct chat_rendering r;
        struct errmsg e = {0};
        enum err err = render(sources[i], "inner", &r, &e);
        CHECK_AT(err == OK, "%s: %s", sources[i], e.text);
        if (err) continue;
        CHECK_STR(buf_view(&r.text), "<a>[inner]<b>");
        CHECK_INT(r.n_segments, 3);
        if (r.n_segments == 3) {
            CHECK(!r.segments[0].is_content && r.segments[1].is_content &&
                  !r.segments[2].is_content);
            CHECK_INT(r.segments[1].from, 4);
            CHECK_INT(r.segments[1].n, 5);
        }
        chat_rendering_fini(&r);
    }
}

TEST(content_that_looks_like_a_tag_stays_text)
{
    struct chat_rendering r;
    struct errmsg e = {0};
    REQUIRE(render("{{ messages[0].content }}", "{{ 7 * 7 }}{% raw %}", &r, &e) == OK);
    CHECK_STR(buf_view(&r.text), "{{ 7 * 7 }}{% raw %}");
    CHECK(r.n_segments == 1 && r.segments[0].is_content);
    chat_rendering_fini(&r);
}

TEST(hostile_templates_end_within_bounds)
{
    static const struct {
        const char *source;
        enum err err;
    } cases[] = {
        {"{% for i in range(1000000000) %}{% for j in range(1000000000) %}x{% endfor %}{% endfor "
         "%}",
         ERR_RANGE},
        {"{% for i in range(90000) %}a line of text that is long enough to fill the output first{% "
         "endfor %}",
         ERR_TOO_LARGE},
        {"{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
         ERR_RANGE},
        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ERR_RANGE},
        {"{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}", ERR_RANGE},
        {"{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s "
         "~ ns.s %}{% endfor %}{{ "
         "ns.s|length }}",
         ERR_RANGE},
        {"{{ 'x' * 1000000000 }}", ERR_RANGE},
        {"{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", ERR_RANGE},
        {"{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}", ERR_RANGE},
        {"{% set l = [] %}{% set m = [] %}{% set _ = l.append(l) %}{% set _ = m.append(m) %}{{ l "
         "== m }}",
         ERR_RANGE},
        {"{{ 9223372036854775807 + 1 }}", ERR_RANGE},
        {"{{ 2 ** 64 }}", ERR_RANGE},
        {"{{ (-9223372036854775807 - 1) // -1 }}", ERR_INVALID},
        {"{{ '%999999999d' % 1 }}", ERR_UNSUPPORTED},
        {"{% include 'x' %}", ERR_UNSUPPORTED},
        {"{{ 'x'.ljust(1000000000000) }}", ERR_RANGE},
        {"{{ ''|center(9000000000000000000) }}", ERR_RANGE},
        {"{{ []|slice(1000000000000)|list }}", ERR_TOO_LARGE},
        {"{{ [1]|batch(1000000000000, 2)|list }}", ERR_TOO_LARGE},
        {"{{ 'x'.zfill(1000000000000) }}", ERR_RANGE},
        {"{{ '{'|from_json }}", ERR_INVALID},
        {"{{ ('[' * 5000)|from_json }}", ERR_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct chat_rendering r;
        struct errmsg e = {0};
        enum err err = render(cases[i].source, "hi", &r, &e);
        CHECK_AT(err == cases[i].err, "%s: %s (%s)", cases[i].source, err_name(err), e.text);
        if (!err) chat_rendering_fini(&r);
    }
}

/* piece repeated n times, then end repeated n times. */
static void check_deep(const char *piece, const char *end, int n)
{
    struct buf source;
    buf_init(&source, 1 << 20);
    for (int i = 0; i < n; i++)
        buf_z(&source, piece);
    for (int i = 0; i < n && *end; i++)
        buf_z(&source, end);
    struct chat_template *t = NULL;
    struct errmsg e = {0};
    enum err err = chat_template_new(&t, buf_view(&source), &e);
    CHECK_AT(err == ERR_TOO_LARGE || err == ERR_INVALID, "%s x %d: %s", piece, n, err_name(err));
    chat_template_free(t);
    buf_fini(&source);
}

TEST(deep_nesting_is_refused_not_followed)
{
    check_deep("{% if true %}", "{% endif %}", 20000);
    check_deep("{% for x in y %}", "", 20000);
    check_deep("{{ (", "", 20000);
    check_deep("{{ [[[[", "", 2000);
    check_deep("{{ not not not not", "", 2000);
    check_deep("{{ - - - - 1", "", 2000);
    check_deep("{{ a if b else a if b else", "", 2000);
}

TEST(long_chains_are_fine)
{
    struct buf source;
    struct chat_rendering r;
    struct errmsg e = {0};
    buf_init(&source, 1 << 20);
    buf_z(&source, "{{ 1");
    for (int i = 0; i < 5000; i++)
        buf_z(&source, " + 1");
    buf_z(&source, " }}{{ 'a' ~ 'b' == 'ab' and true and 1 < 2 }}");
    enum err err = render(source.p, "x", &r, &e);
    CHECK_AT(!err, "%s", e.text);
    if (!err) {
        CHECK_STR(buf_view(&r.text), "5001True");
        chat_rendering_fini(&r);
    }
    buf_fini(&source);
}

TEST(errors_name_the_line)
{
    struct chat_rendering r;
    struct errmsg e = {0};
    CHECK_INT(render("one\ntwo\n{{ missing.member }}", "x", &r, &e), ERR_INVALID);
    CHECK_AT(strstr(e.text, "line 3") && strstr(e.text, "'missing' is undefined"), "%s", e.text);
    CHECK_INT(render("one\n{% nonsense %}", "x", &r, &e), ERR_INVALID);
    CHECK_AT(strstr(e.text, "line 2"), "%s", e.text);
}

TEST_MAIN()
