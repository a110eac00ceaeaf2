/* openai_answer.c - a complete JSON reply read into the neutral form. Nulls among unknown top-level and choice fields are dropped,
 * everything else is kept. Pure, allocation aside. */
#include <string.h>

#include "base/mem.h"
#include "base/openai_answer.h"

void openai_answer_fini(struct openai_answer *a)
{
    for (int i = 0; i < OPENAI_N_MAX; i++) {
        json_decref(a->choices[i].message);
        json_decref(a->choices[i].logprobs);
        json_decref(a->choices[i].extra);
    }
    json_decref(a->extra);
    json_decref(a->usage_json);
    *a = (struct openai_answer){0};
}

void openai_copy_str(char *out, size_t cap, struct str s)
{
    s = str_sub(s, 0, cap - 1);
    s = str_sub(s, 0, utf8_complete(s));
    const char *nul = s.n ? memchr(s.p, 0, s.n) : NULL;
    if (nul) s.n = (size_t)(nul - s.p);
    if (s.n) memcpy(out, s.p, s.n);
    out[s.n] = 0;
}

int64_t openai_count(const json_t *object, const char *key)
{
    int64_t n = json_integer_value(json_object_get(object, key));
    return n > 0 && n <= OPENAI_TOKENS_MAX ? n : 0;
}

struct openai_usage openai_usage_read(const json_t *usage)
{
    const json_t *details = json_object_get(usage, "prompt_tokens_details");
    return (struct openai_usage){.prompt_tokens = openai_count(usage, "prompt_tokens"),
                                 .completion_tokens = openai_count(usage, "completion_tokens"),
                                 .cached_tokens = openai_count(details, "cached_tokens"),
                                 .known = json_is_object(usage)};
}

void openai_keep(json_t **object, const char *key, json_t *value)
{
    if (!value || json_is_null(value)) return;
    if (!*object) *object = json_object();
    json_t *old = json_object_get(*object, key);
    if (json_is_array(old) && json_is_array(value))
        json_array_extend(old, value);
    else
        json_object_set(*object, key, value);
}

bool openai_is_error(const json_t *frame, struct errmsg *e)
{
    const json_t *error = json_object_get(frame, "error");
    bool flat = str_eqz(json_member_str(frame, "object"), "error");
    if (!flat && (!error || json_is_null(error))) return false;
    struct str text = flat                    ? json_member_str(frame, "message")
                      : json_is_string(error) ? json_str(error)
                                              : json_member_str(error, "message");
    if (!text.n) text = STR("an error without a message");
    err_set(e, ERR_UNAVAILABLE, STR_FMT, STR_ARG(text));
    return true;
}

static bool one_of(const char *key, const char *const *names)
{
    while (*names && strcmp(key, *names))
        names++;
    return *names != NULL;
}

static void read_top(struct openai_answer *a, json_t *reply)
{
    static const char *const known[] = {
        "id", "object", "created", "model", "choices", "usage", "system_fingerprint", NULL};
    openai_copy_str(a->id, sizeof a->id, json_member_str(reply, "id"));
    openai_copy_str(a->model, sizeof a->model, json_member_str(reply, "model"));
    openai_copy_str(a->system_fingerprint, sizeof a->system_fingerprint,
                    json_member_str(reply, "system_fingerprint"));
    a->created = json_integer_value(json_object_get(reply, "created"));
    json_t *usage = json_object_get(reply, "usage");
    a->usage = openai_usage_read(usage);
    if (json_is_object(usage)) a->usage_json = json_incref(usage);
    for (void *it = json_object_iter(reply); it; it = json_object_iter_next(reply, it))
        if (!one_of(json_object_iter_key(it), known))
            openai_keep(&a->extra, json_object_iter_key(it), json_object_iter_value(it));
}

/* tool_calls, when given, are objects: the writer and the index count on it. */
static bool calls_are_objects(const json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    if (!calls || json_is_null(calls)) return true;
    for (size_t i = 0; i < json_array_size(calls); i++)
        if (!json_is_object(json_array_get(calls, i))) return false;
    return json_is_array(calls);
}

static bool read_choice(struct openai_choice *out, enum openai_kind kind, json_t *v)
{
    static const char *const known[] = {"index",    "message",       "text",
                                        "logprobs", "finish_reason", NULL};
    json_t *message = json_object_get(v, "message"), *text = json_object_get(v, "text"),
           *logprobs = json_object_get(v, "logprobs");
    struct str finish = json_member_str(v, "finish_reason");
    if (finish.n >= sizeof out->finish_reason) return false;
    if (kind == OPENAI_CHAT && (!json_is_object(message) || !calls_are_objects(message)))
        return false;
    if (kind != OPENAI_CHAT && !json_is_string(text)) return false;
    out->message = kind == OPENAI_CHAT ? json_incref(message) : json_pack("{s:O}", "text", text);
    if (kind == OPENAI_CHAT && !json_object_get(message, "content"))
        json_object_set_new(message, "content", json_null());
    if (logprobs && !json_is_null(logprobs)) out->logprobs = json_incref(logprobs);
    openai_copy_str(out->finish_reason, sizeof out->finish_reason, finish);
    for (void *it = json_object_iter(v); it; it = json_object_iter_next(v, it))
        if (!one_of(json_object_iter_key(it), known))
            openai_keep(&out->extra, json_object_iter_key(it), json_object_iter_value(it));
    return true;
}

static enum err read_choices(struct openai_answer *a, const json_t *choices, struct errmsg *e)
{
    size_t n = json_array_size(choices);
    if (!n)
        return err_set(e, ERR_INVALID,
                       "choices: expected an array with at least one choice, got %s",
                       json_kind(choices));
    if (n > OPENAI_N_MAX)
        return err_set(e, ERR_INVALID, "choices: %zu of them, at most %d are understood", n,
                       OPENAI_N_MAX);
    for (size_t i = 0; i < n; i++) {
        json_t *v = json_array_get(choices, i);
        const json_t *index = json_object_get(v, "index");
        int64_t at = index ? json_integer_value(index) : (int64_t)i;
        if (at < 0 || at >= (int64_t)n || a->choices[at].message)
            return err_set(e, ERR_INVALID, "choices[%zu].index: expected each of 0 to %zu once", i,
                           n - 1);
        if (!read_choice(&a->choices[at], a->kind, v))
            return err_set(e, ERR_INVALID, "choices[%zu]: expected a %s", i,
                           a->kind == OPENAI_CHAT ? "message object" : "text");
    }
    a->n_choices = (int)n;
    return OK;
}

enum err openai_answer_parse(struct openai_answer *out, enum openai_kind kind, struct str json,
                             struct errmsg *e)
{
    json_t *reply;
    *out = (struct openai_answer){.kind = kind};
    enum err code = json_parse(json, 0, &reply, e);
    if (code) return ERR_INVALID;
    if (!json_is_object(reply))
        code = err_set(e, ERR_INVALID, "reply: expected an object, got %s", json_kind(reply));
    else if (openai_is_error(reply, e))
        code = ERR_INVALID;
    else
        code = read_choices(out, json_object_get(reply, "choices"), e);
    if (code)
        openai_answer_fini(out);
    else
        read_top(out, reply);
    json_decref(reply);
    return code;
}
