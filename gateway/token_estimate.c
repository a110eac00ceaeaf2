/* token_estimate.c - see token_estimate.h. */
#include "gateway/token_estimate.h"

enum {
    ASCII_PER_TOKEN = 4,
    LETTERS_PER_TOKEN = 2,
    MESSAGE_TOKENS = 4,   /* role and frame of one message in usual templates */
    ANSWER_TOKENS = 3,    /* the frame the answer begins with */
    PICTURE_TOKENS = 765, /* a 1024 x 1024 picture in high detail in OpenAI's rules */
    DEPTH_MAX = 64,
};

static bool is_wide(unsigned char first, unsigned char second)
{
    return first >= 0xE3 || (first == 0xE2 && second >= 0xBA); /* from U+2E80 on */
}

void token_estimate_add(struct token_estimate *e, struct str text)
{
    size_t high = 0, wide = 0;
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c < 0x80) continue;
        high++;
        if (c < 0xC0) continue; /* inside a character */
        if (is_wide(c, i + 1 < text.n ? (unsigned char)text.p[i + 1] : 0))
            wide++;
        else
            e->letters++;
    }
    e->ascii += text.n - high;
    e->wide += wide;
}

int64_t token_estimate_total(const struct token_estimate *e)
{
    size_t n = (e->ascii + ASCII_PER_TOKEN - 1) / ASCII_PER_TOKEN +
               (e->letters + LETTERS_PER_TOKEN - 1) / LETTERS_PER_TOKEN + e->wide;
    return (int64_t)n;
}

int64_t token_estimate(struct str text)
{
    struct token_estimate e = {0};
    token_estimate_add(&e, text);
    return token_estimate_total(&e);
}

/* Parsed values are at most 64 deep (base/json.h); the bound is for those that were built. */
static void add_json(struct token_estimate *e, const json_t *v, int depth)
{
    json_t *o = json_is_object(v) ? (json_t *)(uintptr_t)v : NULL;
    if (depth > DEPTH_MAX) return;
    if (json_is_string(v)) token_estimate_add(e, json_str(v));
    if (json_is_number(v) || json_is_boolean(v)) e->ascii += ASCII_PER_TOKEN;
    for (size_t i = 0; i < json_array_size(v); i++)
        add_json(e, json_array_get(v, i), depth + 1);
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it))
        add_json(e, json_object_iter_value(it), depth + 1);
}

void token_estimate_add_json(struct token_estimate *e, const json_t *v)
{
    add_json(e, v, 0);
}

/* A picture's bytes are no text. */
static int64_t add_part(struct token_estimate *e, const json_t *part)
{
    struct str type = json_member_str(part, "type");
    if (json_is_string(part)) {
        token_estimate_add(e, json_str(part));
    } else if (str_eqz(type, "text") || str_eqz(type, "refusal") || !type.n) {
        token_estimate_add_json(e, json_object_get(part, "text"));
        token_estimate_add_json(e, json_object_get(part, "refusal"));
    } else {
        return PICTURE_TOKENS;
    }
    return 0;
}

static int64_t add_message(struct token_estimate *e, const json_t *m)
{
    const json_t *content = json_object_get(m, "content");
    int64_t n = MESSAGE_TOKENS;
    if (!json_is_array(content)) token_estimate_add_json(e, content);
    for (size_t i = 0; i < json_array_size(content); i++)
        n += add_part(e, json_array_get(content, i));
    token_estimate_add_json(e, json_object_get(m, "name"));
    token_estimate_add_json(e, json_object_get(m, "tool_calls"));
    return n;
}

static void add_tools(struct token_estimate *e, const json_t *tools)
{
    struct buf text;
    if (!json_array_size(tools)) return;
    buf_init(&text, 16 << 20);
    json_write(&text, tools); /* templates show them as JSON, with their names */
    token_estimate_add(e, buf_view(&text));
    buf_fini(&text);
}

/* A string, strings, token ids or lists of them. */
static int64_t add_prompt(struct token_estimate *e, const json_t *prompt)
{
    int64_t ids = 0;
    if (json_is_string(prompt)) token_estimate_add(e, json_str(prompt));
    for (size_t i = 0; i < json_array_size(prompt); i++) {
        const json_t *item = json_array_get(prompt, i);
        if (json_is_integer(item))
            ids++;
        else if (json_is_array(item))
            ids += (int64_t)json_array_size(item);
        else
            token_estimate_add(e, json_str(item));
    }
    return ids;
}

int64_t token_estimate_prompt(const struct openai_request *r)
{
    struct token_estimate e = {0};
    int64_t n = 0;
    if (r->kind != OPENAI_CHAT)
        return add_prompt(&e, r->prompt ? r->prompt : r->input) + token_estimate_total(&e);
    for (size_t i = 0; i < json_array_size(r->messages); i++)
        n += add_message(&e, json_array_get(r->messages, i));
    add_tools(&e, r->tools);
    return n + ANSWER_TOKENS + token_estimate_total(&e);
}
