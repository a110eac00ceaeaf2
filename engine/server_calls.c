/* server_calls.c - tool calls in an answer: the text of each choice goes through a parser (toolcall.h); what it finds is streamed as
 * deltas, or collected for the whole answer. */
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "engine/server.h"

enum { ARGUMENTS_MAX = 64 << 20, ID_DIGITS = 24, MISTRAL_ID = 9 };

/* An id nobody can foresee; Mistral's templates want exactly nine letters and digits. */
static void make_id(const struct exchange *x, int choice, int call, char out[40])
{
    char hex[33], text[96];
    int n = snprintf(text, sizeof text, "%s %d %d", x->id, choice, call);
    hash_hex(hash_bytes(x->server->id_seed, (struct str){text, (size_t)n}), hex);
    bool mistral = forms_toolcall(x->server->forms) == TOOLCALL_MISTRAL;
    snprintf(out, 40, "%s%.*s", mistral ? "" : "call_", mistral ? MISTRAL_ID : ID_DIGITS, hex);
}

static void write_call(const struct call_out *call, struct str arguments, struct buf *out)
{
    buf_printf(out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", call->id);
    json_write_string(out, call->name);
    buf_z(out, ",\"arguments\":");
    json_write_string(out, arguments);
    buf_z(out, "}}");
}

/* --- what the parser finds */
static void on_content(void *arg, struct str text)
{
    struct choice_out *c = arg;
    if (c->exchange->streaming)
        write_text(c->exchange, c->index, text);
    else
        buf_str(&c->text, text);
}

static void on_begin(void *arg, int i, struct str name)
{
    struct choice_out *c = arg;
    c->calls = xrealloc(c->calls, (size_t)(i + 1) * sizeof *c->calls);
    struct call_out *call = &c->calls[i];
    c->n_calls = i + 1;
    *call = (struct call_out){.name = name};
    buf_init(&call->arguments, ARGUMENTS_MAX);
    make_id(c->exchange, c->index, i, call->id);
    if (!c->exchange->streaming) return;
    struct buf *b = write_delta_begin(c->exchange, c->index);
    buf_printf(b, "{\"tool_calls\":[{\"index\":%d,", i);
    write_call(call, STR(""), b);
    buf_z(b, "]}");
    write_delta_end(c->exchange, b);
}

static void on_arguments(void *arg, int i, struct str text)
{
    struct choice_out *c = arg;
    if (!c->exchange->streaming) {
        buf_str(&c->calls[i].arguments, text);
        return;
    }
    struct buf *b = write_delta_begin(c->exchange, c->index);
    buf_printf(b, "{\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":", i);
    json_write_string(b, text);
    buf_z(b, "}}]}");
    write_delta_end(c->exchange, b);
}

/* --- a choice's calls */
void calls_open(struct exchange *x, int choice)
{
    struct choice_out *c = &x->choices[choice];
    struct toolcall_sink sink = {on_content, on_begin, on_arguments, c};
    c->exchange = x;
    c->index = choice;
    if (x->calls_on)
        c->toolcall = toolcall_new(forms_toolcall(x->server->forms), x->request.tools,
                                   x->marker_in_prompt, &sink);
}

void calls_free(struct choice_out *c)
{
    toolcall_free(c->toolcall);
    for (int i = 0; i < c->n_calls; i++)
        buf_fini(&c->calls[i].arguments);
    mem_free(c->calls);
}

void calls_write(const struct choice_out *c, struct buf *out)
{
    if (!c->n_calls) return;
    buf_z(out, ",\"tool_calls\":[");
    for (int i = 0; i < c->n_calls; i++) {
        buf_z(out, i ? ",{" : "{");
        write_call(&c->calls[i], buf_view(&c->calls[i].arguments), out);
    }
    buf_char(out, ']');
}
