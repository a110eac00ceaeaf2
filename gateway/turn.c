/* turn.c - see turn.h. */
#include "gateway/turn.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/openai_answer.h"

enum { NAME_BYTES_MAX = 1024, ITEMS_FIRST = 4 };

void turn_init(struct turn *t, size_t bytes_max)
{
    *t = (struct turn){.bytes_max = bytes_max};
}

void turn_fini(struct turn *t)
{
    for (size_t i = 0; i < t->n_items; i++) {
        buf_fini(&t->items[i].text);
        buf_fini(&t->items[i].id);
        buf_fini(&t->items[i].name);
    }
    mem_free(t->items);
    *t = (struct turn){0};
}

static void copy_text(char *out, size_t cap, struct str s)
{
    s = str_sub(s, 0, cap - 1);
    s = str_sub(s, 0, utf8_complete(s));
    if (s.n) memcpy(out, s.p, s.n);
    out[s.n] = 0;
}

/* The index of a new item, or -1. Room doubles from ITEMS_FIRST. */
static ptrdiff_t add_item(struct turn *t, enum turn_kind kind)
{
    if (t->n_items == TURN_ITEMS_MAX) return -1;
    bool full = t->n_items >= ITEMS_FIRST ? !(t->n_items & (t->n_items - 1)) : !t->n_items;
    if (full) {
        size_t cap = t->n_items ? t->n_items * 2 : ITEMS_FIRST;
        t->items = xrealloc(t->items, cap * sizeof *t->items);
    }
    struct turn_item *it = &t->items[t->n_items];
    *it = (struct turn_item){.kind = kind, .call_i = -1};
    buf_init(&it->text, t->bytes_max);
    buf_init(&it->id, NAME_BYTES_MAX);
    buf_init(&it->name, NAME_BYTES_MAX);
    return (ptrdiff_t)t->n_items++;
}

static enum err add_text(struct turn *t, size_t i, struct str text)
{
    t->bytes += text.n;
    if (t->bytes > t->bytes_max) return ERR_TOO_LARGE;
    buf_str(&t->items[i].text, text);
    return buf_failed(&t->items[i].text) ? ERR_TOO_LARGE : OK;
}

/* --- telling the sink */
static void end_item(const struct turn_sink *sink, struct turn *t, size_t i)
{
    struct turn_item *it = &t->items[i];
    if (it->ended) return;
    if (!it->begun && sink) {
        sink->begin(sink->arg, t, i);
        if (it->text.n) sink->piece(sink->arg, t, i, buf_view(&it->text));
    }
    it->begun = it->ended = true;
    if (sink) sink->end(sink->arg, t, i);
}

void turn_close(struct turn *t, const struct turn_sink *sink)
{
    for (size_t i = 0; i < t->n_items; i++)
        end_item(sink, t, i);
}

/* All but the newest have ended when another begins. */
static ptrdiff_t open_item(struct turn *t, enum turn_kind kind, const struct turn_sink *sink)
{
    turn_close(t, sink);
    return add_item(t, kind);
}

static enum err feed_text(struct turn *t, enum turn_kind kind, struct str text,
                          const struct turn_sink *sink)
{
    if (!text.n) return OK;
    ptrdiff_t i = (ptrdiff_t)t->n_items - 1;
    if (i < 0 || t->items[i].kind != kind || t->items[i].ended) i = open_item(t, kind, sink);
    if (i < 0 || add_text(t, (size_t)i, text) != OK) return ERR_TOO_LARGE;
    if (!sink) return OK;
    if (!t->items[i].begun) sink->begin(sink->arg, t, (size_t)i);
    t->items[i].begun = true;
    sink->piece(sink->arg, t, (size_t)i, text);
    return OK;
}

/* --- tool calls */
/* Which call a delta belongs to: by its index; without one, by its id, or the last. */
static ptrdiff_t find_call(const struct turn *t, const json_t *call, int64_t *number)
{
    const json_t *index = json_object_get(call, "index");
    struct str id = json_member_str(call, "id");
    int64_t last = -1;
    *number = json_integer_value(index);
    for (size_t i = 0; i < t->n_items; i++) {
        const struct turn_item *it = &t->items[i];
        if (it->kind != TURN_CALL) continue;
        last = it->call_i;
        if (json_is_integer(index) ? it->call_i == *number : id.n && str_eq(id, buf_view(&it->id)))
            return (ptrdiff_t)i;
    }
    if (json_is_integer(index)) return -1;
    *number = last + 1;
    return !id.n && last >= 0 && t->items[t->n_items - 1].kind == TURN_CALL
               ? (ptrdiff_t)t->n_items - 1
               : -1;
}

static enum err feed_call(struct turn *t, const json_t *call, const struct turn_sink *sink)
{
    int64_t number;
    const json_t *function = json_object_get(call, "function");
    struct str id = json_member_str(call, "id"), name = json_member_str(function, "name"),
               arguments = json_member_str(function, "arguments");
    ptrdiff_t at = find_call(t, call, &number);
    if (at < 0) {
        at = open_item(t, TURN_CALL, sink);
        if (at < 0) return ERR_TOO_LARGE;
        t->items[at].call_i = number;
    }
    struct turn_item *it = &t->items[at];
    size_t i = (size_t)at;
    if (it->ended) return arguments.n ? ERR_UNSUPPORTED : OK;
    if (!it->begun && !it->id.n) buf_str(&it->id, id);
    if (!it->begun && !it->name.n) buf_str(&it->name, name);
    if (buf_failed(&it->id) || buf_failed(&it->name)) return ERR_TOO_LARGE;
    if (add_text(t, i, arguments) != OK) return ERR_TOO_LARGE;
    if (!sink || !it->name.n) return OK;
    struct str piece = it->begun ? arguments : buf_view(&it->text);
    if (!it->begun) sink->begin(sink->arg, t, i);
    it->begun = true;
    if (piece.n) sink->piece(sink->arg, t, i, piece);
    return OK;
}

static enum err feed_calls(struct turn *t, const json_t *calls, const struct turn_sink *sink)
{
    enum err code = OK;
    for (size_t i = 0; i < json_array_size(calls) && code == OK; i++)
        code = feed_call(t, json_array_get(calls, i), sink);
    return code;
}

/* Each entry of a whole message is a call of its own, whatever its id or index. */
static enum err read_calls(struct turn *t, const json_t *calls)
{
    for (size_t n = 0; n < json_array_size(calls); n++) {
        const json_t *call = json_array_get(calls, n),
                     *function = json_object_get(call, "function");
        ptrdiff_t i = open_item(t, TURN_CALL, NULL);
        if (i < 0) return ERR_TOO_LARGE;
        struct turn_item *it = &t->items[i];
        it->call_i = (int64_t)n;
        buf_str(&it->id, json_member_str(call, "id"));
        buf_str(&it->name, json_member_str(function, "name"));
        if (buf_failed(&it->id) || buf_failed(&it->name)) return ERR_TOO_LARGE;
        enum err code = add_text(t, (size_t)i, json_member_str(function, "arguments"));
        if (code != OK) return code;
    }
    return OK;
}

/* --- a message or a delta: the same members */
static enum err feed_texts(struct turn *t, const json_t *m, const struct turn_sink *sink)
{
    struct str thought = json_member_str(m, "reasoning_content");
    if (!thought.n) thought = json_member_str(m, "reasoning");
    enum err code = feed_text(t, TURN_REASONING, thought, sink);
    if (code == OK) code = feed_text(t, TURN_TEXT, json_member_str(m, "content"), sink);
    if (code == OK) code = feed_text(t, TURN_REFUSAL, json_member_str(m, "refusal"), sink);
    return code;
}

static void read_usage(struct turn *t, const json_t *usage)
{
    if (!json_is_object(usage)) return;
    const json_t *out = json_object_get(usage, "completion_tokens_details");
    t->usage = openai_usage_read(usage);
    t->reasoning_tokens = openai_count(out, "reasoning_tokens");
}

enum err turn_read(struct turn *t, const struct openai_answer *a)
{
    if (a->n_choices < 1) return ERR_INVALID;
    const struct openai_choice *c = &a->choices[0];
    t->started = true;
    copy_text(t->id, sizeof t->id, str_of(a->id));
    copy_text(t->model, sizeof t->model, str_of(a->model));
    copy_text(t->finish_reason, sizeof t->finish_reason, str_of(c->finish_reason));
    copy_text(t->stop, sizeof t->stop, json_member_str(c->extra, "stop_reason"));
    t->created = a->created;
    t->usage = a->usage;
    read_usage(t, a->usage_json);
    enum err code = feed_texts(t, c->message, NULL);
    if (code == OK) code = read_calls(t, json_object_get(c->message, "tool_calls"));
    turn_close(t, NULL);
    return code;
}

void turn_head(struct turn *t, const json_t *chunk)
{
    if (t->started) return;
    copy_text(t->id, sizeof t->id, json_member_str(chunk, "id"));
    copy_text(t->model, sizeof t->model, json_member_str(chunk, "model"));
    t->created = json_integer_value(json_object_get(chunk, "created"));
    t->started = true;
}

enum err turn_feed(struct turn *t, const json_t *chunk, const struct turn_sink *sink)
{
    turn_head(t, chunk);
    const json_t *choices = json_object_get(chunk, "choices"), *choice = NULL;
    for (size_t i = 0; i < json_array_size(choices) && !choice; i++)
        if (!json_integer_value(json_object_get(json_array_get(choices, i), "index")))
            choice = json_array_get(choices, i);
    read_usage(t, json_object_get(chunk, "usage"));
    struct str finish = json_member_str(choice, "finish_reason"),
               stop = json_member_str(choice, "stop_reason");
    if (finish.n) copy_text(t->finish_reason, sizeof t->finish_reason, finish);
    if (stop.n) copy_text(t->stop, sizeof t->stop, stop);
    const json_t *delta = json_object_get(choice, "delta");
    enum err code = feed_texts(t, delta, sink);
    return code == OK ? feed_calls(t, json_object_get(delta, "tool_calls"), sink) : code;
}
