/* server_prompt.c - from a checked request to token ids: chat messages through the model's template
 * (what a client wrote stays plain text there), completion prompts as they are. Runs on the loop or
 * a worker; touches only the exchange and what is immutable. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/server.h"

static void refuse(struct exchange *x, const char *param, const char *code, const char *why)
{
    openai_error_set(&x->error, 400, "invalid_request_error", param, code, "%s", why);
}

static void prepare_chat(struct exchange *x)
{
    struct server *s = x->server;
    if (!s->text.template) {
        refuse(x, "messages", "no_chat_template",
               "this model has no chat template; use /v1/completions");
        return;
    }
    const json_t *variables = json_object_get(x->request.body, "chat_template_kwargs");
    if (variables && !json_is_object(variables) && !json_is_null(variables)) {
        refuse(x, "chat_template_kwargs", "", "chat_template_kwargs: expected an object");
        return;
    }
    struct chat_prompt p = {.messages = x->request.messages,
                            .tools = x->calls_on ? x->request.tools : NULL,
                            .variables = variables,
                            .now_s = clock_wall_s()};
    struct errmsg e = {0};
    /* a little over the context, so that the refusal can tell how long a prompt is, but not as long
     * as a client likes */
    token_list_init(&x->prompts[0], CHAT_PROMPT_MAX);
    x->n_prompts = 1;
    if (chat_prompt_encode(&s->text, &p, &x->prompts[0], &e)) refuse(x, "messages", "", e.text);
}

static bool add_ids(struct exchange *x, const json_t *ids)
{
    struct token_list *l = &x->prompts[x->n_prompts++];
    int n_vocab = tokenizer_size(x->server->tokenizer);
    size_t i;
    json_t *v;
    token_list_init(l, CHAT_PROMPT_MAX);
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
    token_list_init(l, CHAT_PROMPT_MAX);
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
    json_t *text = chat_content(content);
    tokenizer_encode(x->server->tokenizer, json_str(text), 0, &x->expected);
    json_decref(text);
    if (x->expected.failed) refuse(x, "prediction", "", "prediction: too long to be read");
}

static void check_ignore_eos(struct exchange *x)
{
    const json_t *v = json_given(x->request.body, "ignore_eos");
    if (v && !json_is_boolean(v))
        openai_error_set(&x->error, 400, "invalid_request_error", "ignore_eos", "invalid_type",
                         "ignore_eos: expected true or false, got %s", json_kind(v));
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
    token_list_init(&x->expected, CHAT_PROMPT_MAX);
    if (!x->error.status) prepare_prediction(x);
    if (!x->error.status) check_ignore_eos(x);
    form_prepare(x);
}
