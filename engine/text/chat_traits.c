/* chat_traits.c - see chat_traits.h. */
#include "engine/text/chat_traits.h"

#include <jansson.h>
#include <string.h>

#include "engine/text/chat_template.h"

enum { PROBE_TEXT_MAX = 1 << 17, PROBE_STEPS_MAX = 1 << 18, DAY_S = 86400 };
static const int64_t some_day_s = 1767225600;

struct probe {
    const struct chat_template *t;
    const char *bos, *eos;
    const json_t *tools;
    bool with_system;
    int64_t now_s;
};

static enum err render(const struct probe *p, const json_t *messages, struct chat_rendering *out)
{
    struct chat_render_options o = {.messages = messages,
                                    .tools = p->tools,
                                    .add_generation_prompt = true,
                                    .bos_token = p->bos,
                                    .eos_token = p->eos,
                                    .now_s = p->now_s,
                                    .text_max = PROBE_TEXT_MAX,
                                    .steps_max = PROBE_STEPS_MAX};
    return chat_template_render(p->t, &o, out, NULL);
}

static const char *const asked[] = {"What is one?", "What is two?", "What is three?"};

/* A conversation of some questions, all but the last one answered. */
static json_t *conversation(const struct probe *p, int questions, const char *answer)
{
    json_t *messages = json_array();
    if (p->with_system)
        json_array_append_new(messages,
                              json_pack("{s:s,s:s}", "role", "system", "content", "Be brief."));
    for (int i = 0; i < questions; i++) {
        if (i)
            json_array_append_new(messages,
                                  json_pack("{s:s,s:s}", "role", "assistant", "content", answer));
        json_array_append_new(messages,
                              json_pack("{s:s,s:s}", "role", "user", "content", asked[i]));
    }
    return messages;
}

static enum err render_turns(const struct probe *p, int questions, const char *answer,
                             struct chat_rendering *out)
{
    json_t *messages = conversation(p, questions, answer);
    enum err err = render(p, messages, out);
    json_decref(messages);
    return err;
}

enum growth { GROWS, ANSWERS_CHANGE, PROMPT_CHANGES };

/* How the prompt of a turn stands to that of the turn before, whose question and answer are given. */
static enum growth growth_of(const struct chat_rendering *before, const char *question,
                             const char *answer, const struct chat_rendering *after)
{
    struct str a = buf_view(&before->text), b = buf_view(&after->text), rest = a;
    size_t same = 0, asked_end = 0;
    while (same < a.n && same < b.n && a.p[same] == b.p[same])
        same++;
    for (ptrdiff_t hit; (hit = str_find(rest, str_of(question))) >= 0;) {
        asked_end += (size_t)hit + strlen(question);
        rest = str_sub(a, asked_end, a.n);
    }
    if (same < asked_end) return PROMPT_CHANGES;
    return same == a.n && str_starts(str_sub(b, a.n, b.n), str_of(answer)) ? GROWS : ANSWERS_CHANGE;
}

/* The worse of what a second and a third turn do. GROWS when not even the first two can be rendered. */
static enum growth growth(const struct probe *p, const char *answer)
{
    struct chat_rendering turn[3];
    enum growth worst = GROWS;
    int n = 0;
    while (n < 3 && render_turns(p, n + 1, answer, &turn[n]) == OK)
        n++;
    for (int i = 0; i + 1 < n; i++) {
        enum growth g = growth_of(&turn[i], asked[i], answer, &turn[i + 1]);
        if (g > worst) worst = g;
    }
    while (n)
        chat_rendering_fini(&turn[--n]);
    return worst;
}

static bool same_tomorrow(struct probe p)
{
    struct chat_rendering today, later;
    if (render_turns(&p, 1, "", &today)) return true;
    p.now_s += 400 * DAY_S + 3661;
    bool same = true;
    if (render_turns(&p, 1, "", &later) == OK) {
        same = str_eq(buf_view(&today.text), buf_view(&later.text));
        chat_rendering_fini(&later);
    }
    chat_rendering_fini(&today);
    return same;
}

/* Renders a call with the given arguments: false when they are not shown, or as Python would write them. */
static bool shows_arguments(const struct probe *p, const json_t *arguments, const char *content)
{
    struct chat_rendering r;
    json_t *messages = conversation(p, 1, ""),
           *call = json_pack("{s:s,s:s,s:{s:s,s:O}}", "id", "abcdefghi", "type", "function",
                             "function", "name", "find", "arguments", arguments);
    json_array_append_new(messages, json_pack("{s:s,s:s?,s:[o]}", "role", "assistant", "content",
                                              content, "tool_calls", call));
    json_array_append_new(messages,
                          json_pack("{s:s,s:s,s:s,s:s}", "role", "tool", "content", "found",
                                    "tool_call_id", "abcdefghi", "name", "find"));
    bool ok = render(p, messages, &r) == OK;
    json_decref(messages);
    if (!ok) return false;
    struct str text = buf_view(&r.text);
    ok = str_find(text, STR("hay")) >= 0 && str_find(text, STR("'hay'")) < 0;
    chat_rendering_fini(&r);
    return ok;
}

/* The first form of a message with calls that works. */
static void find_call_form(const struct probe *p, struct chat_traits *traits)
{
    json_t *object = json_pack("{s:s}", "needle", "hay"),
           *text = json_string("{\"needle\": \"hay\"}");
    const struct {
        const json_t *arguments;
        const char *content;
    } forms[] = {{object, ""}, {object, NULL}, {text, ""}, {text, NULL}};
    for (int i = 0; i < 4; i++) {
        if (!shows_arguments(p, forms[i].arguments, forms[i].content)) continue;
        traits->arguments_as_text = i >= 2;
        traits->null_content = i % 2;
        break;
    }
    json_decref(object);
    json_decref(text);
}

struct chat_traits chat_traits_of(const struct chat_template *t, const char *bos, const char *eos)
{
    struct chat_traits traits = {.dated = false};
    struct probe p = {t, bos, eos, NULL, true, some_day_s};
    struct chat_rendering r;
    if (render_turns(&p, 1, "", &r))
        p.with_system = false; /* some refuse a system message */
    else
        chat_rendering_fini(&r);
    enum growth plain = growth(&p, "Yes."), thought = growth(&p, "<think>\nHm.\n</think>\n\nYes.");
    traits.dated = !same_tomorrow(p);
    traits.rewrites = plain == PROMPT_CHANGES || thought == PROMPT_CHANGES;
    traits.rewrites_answers = plain == ANSWERS_CHANGE || thought == ANSWERS_CHANGE;
    json_t *tools = json_pack("[{s:s,s:{s:s,s:s,s:{s:s,s:{s:{s:s,s:s}},s:[s]}}}]", "type",
                              "function", "function", "name", "find", "description", "Finds it.",
                              "parameters", "type", "object", "properties", "needle", "type",
                              "string", "description", "What", "required", "needle");
    p.tools = tools;
    traits.rewrites_with_tools = !traits.rewrites && growth(&p, "Yes.") == PROMPT_CHANGES;
    find_call_form(&p, &traits);
    json_decref(tools);
    return traits;
}

void chat_traits_describe(const struct chat_traits *traits, struct buf *out)
{
    const struct {
        bool holds;
        const char *text;
    } parts[] = {
        {traits->dated, "it writes the date or time into the prompt"},
        {traits->rewrites, "it changes earlier turns when another one follows"},
        {traits->rewrites_with_tools,
         "with tools it changes earlier turns when another one follows"},
        {traits->rewrites_answers && !traits->rewrites,
         "it does not keep earlier answers as they were generated (their <think> parts, or what "
         "stands "
         "before them)"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!parts[i].holds) continue;
        if (out->n) buf_z(out, "; ");
        buf_z(out, parts[i].text);
    }
}
