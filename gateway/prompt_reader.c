/* prompt_reader.c - see prompt_reader.h. */
#include "gateway/prompt_reader.h"

#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model/gguf.h"
#include "engine/model/tokenizer_load.h"
#include "engine/text/chat_prompt.h"

struct prompt_reader {
    atomic_int users;
    struct tokenizer *tokenizer;
    struct chat_template *template; /* NULL: none that we can run */
    struct chat_reader text;
};

static enum err take_gguf(struct prompt_reader **out, struct gguf *g, bool tools_in_words,
                          struct errmsg *e)
{
    struct prompt_reader *r = xcalloc(1, sizeof *r);
    enum err code = chat_reader_from_gguf(&r->tokenizer, &r->template, &r->text, g, e);
    gguf_close(g);
    if (code != OK) {
        mem_free(r);
        return code;
    }
    r->users = 1;
    r->text.tools_in_words = tools_in_words;
    *out = r;
    return OK;
}

enum err prompt_reader_new(struct prompt_reader **out, struct str bytes, bool tools_in_words,
                           struct errmsg *e)
{
    struct gguf *g;
    char *copy = try_malloc(bytes.n + 1); /* at an address the reader of the file can use */
    if (!copy) return err_set(e, ERR_FULL, "no memory for %zu bytes of a tokenizer", bytes.n);
    memcpy(copy, bytes.p, bytes.n);
    enum err code = gguf_from_bytes(&g, copy, bytes.n, e);
    if (code == OK) code = take_gguf(out, g, tools_in_words, e);
    mem_free(copy);
    return code;
}

enum err prompt_reader_open(struct prompt_reader **out, const char *path, struct errmsg *e)
{
    struct gguf *g;
    enum err code = gguf_open(&g, path, e);
    return code == OK ? take_gguf(out, g, false, e) : code;
}

struct prompt_reader *prompt_reader_ref(struct prompt_reader *r)
{
    atomic_fetch_add(&r->users, 1);
    return r;
}

void prompt_reader_unref(struct prompt_reader *r)
{
    if (!r || atomic_fetch_sub(&r->users, 1) > 1) return;
    tokenizer_free(r->tokenizer);
    chat_template_free(r->template);
    mem_free(r);
}

static enum err read_chat(const struct prompt_reader *r, const struct openai_request *q,
                          int64_t now_s, struct token_list *out, struct errmsg *e)
{
    const json_t *variables = json_object_get(q->body, "chat_template_kwargs");
    bool tools = q->tools && q->tool_choice != OPENAI_TOOLS_NONE;
    if (q->has_image || q->has_audio)
        return err_set(e, ERR_UNSUPPORTED, "messages hold more than text");
    struct chat_prompt p = {.messages = q->messages,
                            .tools = tools ? q->tools : NULL,
                            .variables = json_is_object(variables) ? variables : NULL,
                            .now_s = now_s};
    return chat_prompt_encode(&r->text, &p, out, e);
}

static enum err read_ids(const struct prompt_reader *r, const json_t *ids, struct token_list *out,
                         struct errmsg *e)
{
    size_t i;
    json_t *id;
    json_array_foreach(ids, i, id)
    {
        json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
        if (v < 0 || v >= tokenizer_size(r->tokenizer))
            return err_set(e, ERR_INVALID, "prompt: a token is outside the vocabulary");
        token_list_add(out, (int32_t)v);
    }
    return OK;
}

enum err prompt_reader_read(const struct prompt_reader *r, const struct openai_request *q,
                            int64_t now_s, struct token_list *out, struct errmsg *e)
{
    const json_t *p = q->prompt, *first = json_array_get(p, 0);
    if (q->kind == OPENAI_CHAT) return read_chat(r, q, now_s, out, e);
    if (json_is_integer(first)) return read_ids(r, p, out, e);
    if (json_array_size(p) == 1) p = first;
    if (json_is_array(p) && json_is_integer(json_array_get(p, 0))) return read_ids(r, p, out, e);
    if (!json_is_string(p)) return err_set(e, ERR_UNSUPPORTED, "more than one prompt");
    tokenizer_encode(r->tokenizer, json_str(p), TOKENIZE_ADD_SPECIAL, out);
    return OK;
}

int64_t prompt_reader_count(const struct prompt_reader *r, struct str text)
{
    struct token_list ids;
    token_list_init(&ids, PROMPT_TOKENS_MAX);
    tokenizer_encode(r->tokenizer, text, 0, &ids);
    int64_t n = (int64_t)ids.n;
    token_list_fini(&ids);
    return n;
}
