/* server_prompt.c - from a checked request to token ids: chat messages through the model's template
 * (what a client wrote stays plain text there), completion prompts as they are. Runs on the loop or
 * a worker; touches only the exchange and what is immutable. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/server.h"

enum { RENDERED_MAX = 32 << 20, STEPS_MAX = 20000000 };

static void refuse(struct exchange *x, const char *param, const char *code, const char *why)
{
    openai_error_set(&x->error, 400, "invalid_request_error", param, code, "%s", why);
}

static struct str part_text(const json_t *part)
{
    struct str text = json_is_string(part) ? json_str(part) : json_member_str(part, "text");
    return text.p ? text : json_member_str(part, "refusal");
}

/* Parts joined by line breaks; templates expect a string. */
static json_t *plain_content(const json_t *content)
{
    if (json_is_string(content)) return json_incref((json_t *)content);
    struct buf b;
    buf_init(&b, RENDERED_MAX);
    size_t i;
    json_t *part;
    json_array_foreach(content, i, part)
    {
        if (i) buf_char(&b, '\n');
        buf_str(&b, part_text(part));
    }
    json_t *v = json_stringn(b.p ? b.p : "", b.n);
    buf_fini(&b);
    return v ? v : json_string("");
}

/* Most templates want call arguments as an object; clients send them as a string of JSON. */
static json_t *plain_calls(const json_t *calls)
{
    json_t *out = json_deep_copy(calls);
    size_t i;
    json_t *call;
    json_array_foreach(out, i, call)
    {
        json_t *function = json_object_get(call, "function"), *parsed;
        struct str text = json_member_str(function, "arguments");
        struct errmsg e;
        if (!text.p || json_parse(text, 0, &parsed, &e)) continue;
        if (json_is_object(parsed))
            json_object_set_new(function, "arguments", parsed);
        else
            json_decref(parsed);
    }
    return out;
}

static json_t *plain_messages(const json_t *messages, const struct chat_traits *traits)
{
    json_t *out = json_array(), *m;
    size_t i;
    json_array_foreach(messages, i, m)
    {
        json_t *copy = json_copy(m); /* shallow: the request stays as it came */
        const json_t *calls = json_object_get(m, "tool_calls");
        if (str_eqz(json_member_str(m, "role"), "developer"))
            json_object_set_new(copy, "role", json_string("system"));
        const json_t *content = json_object_get(m, "content"),
                     *refusal = json_object_get(m, "refusal");
        bool refused =
            !json_is_string(content) && !json_is_array(content) && json_is_string(refusal);
        json_t *text = plain_content(refused ? refusal : content);
        if (json_is_array(calls) && traits->null_content && !json_string_length(text)) {
            json_decref(text);
            text = json_null();
        }
        json_object_set_new(copy, "content", text);
        if (json_is_array(calls) && !traits->arguments_as_text)
            json_object_set_new(copy, "tool_calls", plain_calls(calls));
        json_array_append_new(out, copy);
    }
    return out;
}

static void prepare_chat(struct exchange *x)
{
    struct server *s = x->server;
    if (!s->template) {
        refuse(x, "messages", "no_chat_template",
               "this model has no chat template; use /v1/completions");
        return;
    }
    const json_t *variables = json_object_get(x->request.body, "chat_template_kwargs");
    if (variables && !json_is_object(variables) && !json_is_null(variables)) {
        refuse(x, "chat_template_kwargs", "", "chat_template_kwargs: expected an object");
        return;
    }
    json_t *messages = plain_messages(x->request.messages, &s->traits);
    tools_into_messages(x, messages);
    struct chat_render_options o = {.messages = messages,
                                    .tools = x->calls_on ? x->request.tools : NULL,
                                    .add_generation_prompt = true,
                                    .bos_token = s->bos,
                                    .eos_token = s->eos,
                                    .variables = variables,
                                    .now_s = clock_wall_s(),
                                    .text_max = RENDERED_MAX,
                                    .steps_max = STEPS_MAX};
    struct chat_rendering r;
    struct errmsg e = {0};
    enum err code = chat_template_render(s->template, &o, &r, &e);
    json_decref(messages);
    if (code) {
        refuse(x, "messages", "", e.text);
        return;
    }
    /* a little over the context, so that the refusal can tell how long a prompt is, but not as long
     * as a client likes */
    token_list_init(&x->prompts[0], RENDERED_MAX);
    tokenizer_encode_segments(s->tokenizer, buf_view(&r.text), r.segments, r.n_segments,
                              TOKENIZE_PARSE_SPECIAL, &x->prompts[0]);
    x->n_prompts = 1;
    chat_rendering_fini(&r);
}

static bool add_ids(struct exchange *x, const json_t *ids)
{
    struct token_list *l = &x->prompts[x->n_prompts++];
    int n_vocab = tokenizer_size(x->server->tokenizer);
    size_t i;
    json_t *v;
    token_list_init(l, RENDERED_MAX);
    json_array_foreach(ids, i, v)
    {
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id >= n_vocab) {
            openai_error_set(&x->error, 400, "invalid_request_error", "prompt", "",
                             "prompt token %zu is outside the vocabulary of %d", i, n_vocab);
            return false;
        }
        token_list_add(l, (int32_t)id);
    }
    return true;
}

static void add_text(struct exchange *x, const json_t *text)
{
    struct token_list *l = &x->prompts[x->n_prompts++];
    token_list_init(l, RENDERED_MAX);
    tokenizer_encode(x->server->tokenizer, json_str(text), TOKENIZE_ADD_SPECIAL, l);
}

static void prepare_completion(struct exchange *x)
{
    const json_t *p = x->request.prompt;
    if (json_is_string(p)) {
        add_text(x, p);
        return;
    }
    if (json_is_integer(json_array_get(p, 0))) {
        add_ids(x, p);
        return;
    }
    if (json_array_size(p) * (size_t)x->request.n > SERVER_CHOICES_MAX) {
        openai_error_set(&x->error, 400, "invalid_request_error", "prompt", "",
                         "%zu prompts with n=%d are over %d choices in one request",
                         json_array_size(p), x->request.n, SERVER_CHOICES_MAX);
        return;
    }
    size_t i;
    json_t *one;
    json_array_foreach(p, i, one)
    {
        if (json_is_string(one))
            add_text(x, one);
        else if (!add_ids(x, one))
            return;
    }
}

void prompt_echo(const struct exchange *x, int prompt, struct buf *out)
{
    const json_t *p = x->request.prompt;
    bool many = json_is_array(p) && !json_is_integer(json_array_get(p, 0));
    const json_t *one = many ? json_array_get(p, (size_t)prompt) : p;
    if (json_is_string(one)) {
        buf_str(out, json_str(one));
        return;
    }
    const struct token_list *l = &x->prompts[prompt];
    for (size_t i = 0; i < l->n; i++)
        buf_str(out, tokenizer_bytes(x->server->tokenizer, l->ids[i], true));
}

size_t prompt_bytes(const struct exchange *x)
{
    return x->http ? http_req_body(x->http).n : 0;
}

/* "prediction": {"type": "content", "content": text or text parts}, as in the API: where guesses come from, never what is said. */
static void prepare_prediction(struct exchange *x)
{
    const json_t *p = json_object_get(x->request.body, "prediction"),
                 *content = json_object_get(p, "content");
    if (!p || json_is_null(p)) return;
    if (!str_eqz(json_member_str(p, "type"), "content") ||
        !(json_is_string(content) || json_is_array(content))) {
        refuse(x, "prediction", "", "prediction: expected {\"type\":\"content\",\"content\":text}");
        return;
    }
    json_t *text = plain_content(content);
    tokenizer_encode(x->server->tokenizer, json_str(text), 0, &x->expected);
    json_decref(text);
    if (x->expected.failed) refuse(x, "prediction", "", "prediction: too long to be read");
}

void prompt_prepare(struct exchange *x)
{
    const char *param = x->kind == OPENAI_CHAT ? "messages" : "prompt";
    if (x->kind == OPENAI_CHAT)
        prepare_chat(x);
    else
        prepare_completion(x);
    for (int i = 0; i < x->n_prompts && !x->error.status; i++) {
        if (x->prompts[i].failed)
            refuse(x, param, "context_length_exceeded", "the prompt is too long to be read");
        if (!x->prompts[i].n && !x->error.status) refuse(x, param, "", "the prompt is empty");
    }
    token_list_init(&x->expected, RENDERED_MAX);
    if (!x->error.status) prepare_prediction(x);
    form_prepare(x);
}
