/* toolcall.h - finds tool calls in generated text while it is generated: text that is no call passes as content, a call gives its name at
 * once and its arguments piece by piece. Which way of writing calls a model has learnt, its chat template tells.
 * Held back is only what may still become a marker or the head of a call. A call begins for the client when its name is known to be one of
 * the request's tools and its arguments have begun; what only looks like a call (another name, no JSON, cut off before that) stays
 * content. White space before, between and after calls is dropped.
 * The events of a text are the same however it is cut: content joined, and each call's arguments joined. Pure. One thread.
 * Source: the formats as written by the chat templates of Qwen 2.5 and Hermes, Llama 3, Mistral. */
#ifndef DEJA_ENGINE_TOOLCALL_H
#define DEJA_ENGINE_TOOLCALL_H
#include "base/json.h"

enum toolcall_form {
    /* <tool_call>{"name": .., "arguments": {..}}</tool_call>, or that object alone as the whole answer */
    TOOLCALL_HERMES,
    /* the whole answer is {"name": .., "parameters": {..}}, several with ; between; or after <|python_tag|> */
    TOOLCALL_LLAMA,
    /* [TOOL_CALLS] [{"name": .., "arguments": {..}}, ..], or [TOOL_CALLS]name[ARGS]{..} */
    TOOLCALL_MISTRAL,
    /* the template knows no tools: they are described to the model, calls are written as Hermes does */
    TOOLCALL_GENERIC
};
/* From a chat template's source. */
enum toolcall_form toolcall_form_of(struct str chat_template);

/* How calls are written, for a grammar and for a description. marker: what a call (Mistral: all of them) begins with. */
struct toolcall_text {
    struct str marker, begin, open, middle, close, between, end;
};
struct toolcall_text toolcall_text_of(enum toolcall_form form);

/* Any may be NULL. Texts are borrowed during the call, never empty. */
struct toolcall_sink {
    void (*content)(void *arg, struct str text);
    void (*begin)(void *arg, int call, struct str name);
    void (*arguments)(void *arg, int call, struct str text);
    void *arg;
};
enum { TOOLCALL_HEAD_MAX = 16 << 10, TOOLCALL_CALLS_MAX = 128 };

struct toolcall;
/* tools: the request's array, borrowed as long as the parser lives. inside: the marker stands at the end of the prompt already. */
struct toolcall *toolcall_new(enum toolcall_form form, const json_t *tools, bool inside,
                              const struct toolcall_sink *sink);
void toolcall_free(struct toolcall *t);
void toolcall_feed(struct toolcall *t, struct str text);
void toolcall_finish(struct toolcall *t); /* the end of the text: what was held back is content */

#endif
