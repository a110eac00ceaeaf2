/* openai_collect.c - puts a streamed answer together again. Accepts what OpenAI, vLLM and llama.cpp send: role chunk with content "" or
 * null, reasoning, tool calls by index with argument pieces (or whole, with the id repeated), several choices, usage in every chunk or
 * in one without choices, chunks after the finish, fields of their own. Bounded: text by bytes_max, calls by CALLS_MAX, choices by
 * OPENAI_N_MAX. What is kept is counted on the way in, so that memory stays near bytes_max plus one frame. Pure, allocation aside. */
#include <string.h>

#include "base/frame_glance.h"
#include "base/frame_shape.h"
#include "base/mem.h"
#include "base/openai_answer.h"

enum { CALLS_MAX = 128, TEXTS = 5, TEXT_BYTES = 500 /* room for a first paragraph */ };

/* Fields whose deltas are joined. */
static const char *const text_names[TEXTS] = {"content", "reasoning_content", "reasoning",
                                              "refusal", "text"};

struct call {
    struct buf name, arguments;
    json_t *rest;     /* members of the call but index and function */
    json_t *function; /* members of the function but name and arguments */
    bool seen;
};

struct part { /* of the answer: one choice */
    bool seen, calls_given, texts_given[TEXTS], texts_null[TEXTS];
    struct buf texts[TEXTS];
    json_t *message; /* members that are not text, calls or a function call */
    json_t *logprobs, *extra;
    struct call *calls; /* n_calls */
    int n_calls;
    struct call function_call;
    char finish_reason[24];
};

struct openai_collector {
    enum openai_kind kind;
    size_t bytes_max, bytes;
    struct part parts[OPENAI_N_MAX];
    struct openai_answer top; /* all but the choices */
    bool damaged, watches;    /* watches: see openai_collector_only_watch */
    struct frame_shape shape; /* of the last frame, where it only added a text: */
    struct buf *shape_text;   /* to this one */
};

void openai_collector_only_watch(struct openai_collector *c)
{
    c->watches = true;
}

/* About how many bytes a value holds on to. Depth is bounded by the parser. */
static size_t weight(const json_t *v)
{
    size_t n = 16 + json_string_length(v);
    json_t *o = json_is_object(v) ? (json_t *)(uintptr_t)v : NULL;
    for (size_t i = 0; i < json_array_size(v); i++)
        n += weight(json_array_get(v, i));
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it))
        n += 32 + json_object_iter_key_len(it) + weight(json_object_iter_value(it));
    return n;
}

/* openai_keep, counted: what replaces an old value is not counted again. */
static void keep(struct openai_collector *c, json_t **object, const char *key, json_t *v)
{
    const json_t *old = json_object_get(*object, key);
    if (!old || json_is_array(old)) c->bytes += weight(v);
    openai_keep(object, key, v);
}

static void append(struct openai_collector *c, struct buf *b, struct str text)
{
    c->bytes += text.n;
    buf_str(b, text);
}

static void call_init(struct call *c, size_t bytes_max)
{
    *c = (struct call){0};
    buf_init(&c->name, bytes_max);
    buf_init(&c->arguments, bytes_max);
}

static void call_fini(struct call *c)
{
    buf_fini(&c->name);
    buf_fini(&c->arguments);
    json_decref(c->rest);
    json_decref(c->function);
}

static void part_fini(struct part *p)
{
    for (int i = 0; i < TEXTS; i++)
        buf_fini(&p->texts[i]);
    for (int i = 0; i < p->n_calls; i++)
        call_fini(&p->calls[i]);
    mem_free(p->calls);
    call_fini(&p->function_call);
    json_decref(p->message);
    json_decref(p->logprobs);
    json_decref(p->extra);
    *p = (struct part){0};
}

struct openai_collector *openai_collector_new(enum openai_kind kind, size_t bytes_max)
{
    struct openai_collector *c = xcalloc(1, sizeof *c);
    c->kind = kind;
    c->bytes_max = bytes_max;
    c->top.kind = kind;
    return c;
}

void openai_collector_free(struct openai_collector *c)
{
    if (!c) return;
    for (int i = 0; i < OPENAI_N_MAX; i++)
        if (c->parts[i].seen) part_fini(&c->parts[i]);
    openai_answer_fini(&c->top);
    mem_free(c);
}

/* --- calls */
static struct call *call_at(struct openai_collector *c, struct part *p, int64_t i)
{
    if (i < 0 || i >= CALLS_MAX) return NULL;
    if (i >= p->n_calls) {
        p->calls = xrealloc(p->calls, (size_t)(i + 1) * sizeof *p->calls);
        while (p->n_calls <= i)
            call_init(&p->calls[p->n_calls++], c->bytes_max);
    }
    p->calls[i].seen = true;
    return &p->calls[i];
}

static void add_function(struct openai_collector *c, struct call *call, const json_t *function,
                         bool repeated)
{
    json_t *f = (json_t *)(uintptr_t)function; /* jansson's iterators take no const */
    for (void *it = json_object_iter(f); it; it = json_object_iter_next(f, it)) {
        const char *key = json_object_iter_key(it);
        json_t *v = json_object_iter_value(it);
        if (!strcmp(key, "arguments") && json_is_string(v))
            append(c, &call->arguments, json_str(v));
        else if (strcmp(key, "name") || !json_is_string(v))
            keep(c, &call->function, key, v);
        else if (!repeated || !str_eq(buf_view(&call->name), json_str(v)))
            append(c, &call->name, json_str(v));
    }
}

/* Which call a delta belongs to: its index; without one, a new id starts a new call. */
static int64_t call_index(const struct part *p, const json_t *delta)
{
    const json_t *index = json_object_get(delta, "index");
    if (json_is_integer(index)) return json_integer_value(index);
    struct str id = json_member_str(delta, "id");
    if (!p->n_calls) return 0;
    struct str last = json_member_str(p->calls[p->n_calls - 1].rest, "id");
    return id.n && !str_eq(id, last) ? p->n_calls : p->n_calls - 1;
}

static bool add_call(struct openai_collector *c, struct part *p, json_t *delta)
{
    struct call *call = json_is_object(delta) ? call_at(c, p, call_index(p, delta)) : NULL;
    if (!call) return false;
    struct str id = json_member_str(delta, "id");
    bool repeated = id.n && str_eq(id, json_member_str(call->rest, "id"));
    for (void *it = json_object_iter(delta); it; it = json_object_iter_next(delta, it)) {
        const char *key = json_object_iter_key(it);
        json_t *v = json_object_iter_value(it);
        bool blank =
            json_is_string(v) && !json_string_length(v) && json_object_get(call->rest, key);
        if (!strcmp(key, "function") && json_is_object(v))
            add_function(c, call, v, repeated);
        else if (strcmp(key, "index") && !blank)
            keep(c, &call->rest, key, v);
    }
    return true;
}

static bool add_calls(struct openai_collector *c, struct part *p, const json_t *calls)
{
    if (json_is_null(calls)) return true;
    if (!json_is_array(calls)) return false;
    p->calls_given = true;
    for (size_t i = 0; i < json_array_size(calls); i++)
        if (!add_call(c, p, json_array_get(calls, i))) return false;
    return true;
}

/* --- a choice of a chunk */
static bool add_text(struct openai_collector *c, struct part *p, const char *key, const json_t *v)
{
    int i = 0;
    while (i < TEXTS && strcmp(key, text_names[i]))
        i++;
    if (i == TEXTS || !(json_is_string(v) || json_is_null(v))) return false;
    p->texts_null[i] |= json_is_null(v);
    if (!json_is_string(v)) return true;
    if (!p->texts_given[i]) {
        buf_init(&p->texts[i], c->bytes_max);
        buf_reserve(&p->texts[i], TEXT_BYTES < c->bytes_max ? TEXT_BYTES : 0);
    }
    p->texts_given[i] = true;
    append(c, &p->texts[i], json_str(v));
    return true;
}

static bool add_delta(struct openai_collector *c, struct part *p, json_t *delta)
{
    if (!p->message) p->message = json_object();
    for (void *it = json_object_iter(delta); it; it = json_object_iter_next(delta, it)) {
        const char *key = json_object_iter_key(it);
        json_t *v = json_object_iter_value(it);
        if (add_text(c, p, key, v)) continue;
        if (!strcmp(key, "tool_calls")) {
            if (!add_calls(c, p, v)) return false;
        } else if (!strcmp(key, "function_call") && json_is_object(v)) {
            if (!p->function_call.seen) call_init(&p->function_call, c->bytes_max);
            p->function_call.seen = true;
            add_function(c, &p->function_call, v, false);
        } else if (!strcmp(key, "role") && json_is_string(v) && !json_string_length(v)) {
            continue; /* some servers blank it in later chunks */
        } else if (!json_is_null(v)) {
            keep(c, &p->message, key, v);
        } else if (!json_object_get(p->message, key)) {
            json_object_set(p->message, key, v);
        }
    }
    return true;
}

static void add_logprobs(struct openai_collector *c, struct part *p, json_t *v)
{
    for (void *it = json_object_iter(v); it; it = json_object_iter_next(v, it)) {
        if (json_is_null(json_object_iter_value(it)) &&
            !json_object_get(p->logprobs, json_object_iter_key(it))) {
            if (!p->logprobs) p->logprobs = json_object();
            json_object_set(p->logprobs, json_object_iter_key(it), json_null());
        }
        keep(c, &p->logprobs, json_object_iter_key(it), json_object_iter_value(it));
    }
}

static bool add_member(struct openai_collector *c, struct part *p, const char *key, json_t *v)
{
    bool delta = !strcmp(key, "delta") || (!strcmp(key, "message") && json_is_object(v));
    if (!strcmp(key, "index")) return true;
    if (delta && c->kind == OPENAI_CHAT)
        return json_is_null(v) || (json_is_object(v) && add_delta(c, p, v));
    if (!strcmp(key, "text") && c->kind != OPENAI_CHAT) return add_text(c, p, key, v);
    if (!strcmp(key, "logprobs") && (json_is_object(v) || json_is_null(v))) {
        if (json_is_object(v)) add_logprobs(c, p, v);
        return true;
    }
    if (strcmp(key, "finish_reason")) {
        keep(c, &p->extra, key, v);
        return true;
    }
    if (json_string_length(v) >= sizeof p->finish_reason || !(json_is_string(v) || json_is_null(v)))
        return false;
    if (json_string_length(v))
        openai_copy_str(p->finish_reason, sizeof p->finish_reason, json_str(v));
    return true;
}

static enum err add_choice(struct openai_collector *c, json_t *choice, struct errmsg *e)
{
    const json_t *index = json_object_get(choice, "index");
    int64_t i = json_integer_value(index);
    if (!json_is_object(choice))
        return err_set(e, ERR_INVALID, "choices: expected objects, got %s", json_kind(choice));
    if (index && (!json_is_integer(index) || i < 0))
        return err_set(e, ERR_INVALID, "choices.index: expected an integer of at least 0");
    if (i >= OPENAI_N_MAX)
        return err_set(e, ERR_UNSUPPORTED, "choice %lld: at most %d choices are collected",
                       (long long)i, OPENAI_N_MAX);
    struct part *p = &c->parts[i];
    p->seen = true;
    for (void *it = json_object_iter(choice); it; it = json_object_iter_next(choice, it))
        if (!add_member(c, p, json_object_iter_key(it), json_object_iter_value(it)))
            return err_set(e, ERR_INVALID, "choices.%s: not the form of a chunk",
                           json_object_iter_key(it));
    return OK;
}

/* --- the chunk around it */
static void first_str(char *out, size_t cap, const json_t *v)
{
    if (!*out) openai_copy_str(out, cap, json_str(v));
}

static void add_top(struct openai_collector *c, const char *key, json_t *v)
{
    struct openai_answer *top = &c->top;
    if (!strcmp(key, "id"))
        first_str(top->id, sizeof top->id, v);
    else if (!strcmp(key, "model"))
        first_str(top->model, sizeof top->model, v);
    else if (!strcmp(key, "system_fingerprint"))
        first_str(top->system_fingerprint, sizeof top->system_fingerprint, v);
    else if (!strcmp(key, "created"))
        top->created = top->created ? top->created : json_integer_value(v);
    else if (strcmp(key, "object") && strcmp(key, "choices") && strcmp(key, "usage"))
        keep(c, &top->extra, key, v);
    if (strcmp(key, "usage") || !json_is_object(v)) return;
    json_decref(top->usage_json);
    top->usage_json = json_incref(v);
    top->usage = openai_usage_read(v);
}

static enum err add_chunk(struct openai_collector *c, json_t *chunk, struct errmsg *e)
{
    const json_t *choices = json_object_get(chunk, "choices"),
                 *usage = json_object_get(chunk, "usage");
    if (openai_is_error(chunk, e)) return ERR_UNAVAILABLE;
    if (!json_is_array(choices) && !json_is_object(usage))
        return err_set(e, ERR_INVALID, "frame: neither choices nor usage in it");
    for (size_t i = 0; i < json_array_size(choices); i++) {
        enum err code = add_choice(c, json_array_get(choices, i), e);
        if (code) return code;
    }
    for (void *it = json_object_iter(chunk); it; it = json_object_iter_next(chunk, it))
        add_top(c, json_object_iter_key(it), json_object_iter_value(it));
    return OK;
}

/* Parses a frame; one with broken characters is repaired, remembered as damage, and parsed again. */
static enum err parse_frame(struct openai_collector *c, struct str data, json_t **out,
                            struct errmsg *e)
{
    enum err code = json_parse(data, 0, out, e);
    if (code != ERR_INVALID) return code;
    struct buf repaired;
    buf_init(&repaired, data.n * 3);
    if (json_repair(&repaired, data) && json_parse(buf_view(&repaired), 0, out, NULL) == OK) {
        c->damaged = true;
        code = OK;
    }
    buf_fini(&repaired);
    return code;
}

static enum err too_large(struct openai_collector *c, struct errmsg *e)
{
    c->damaged = true;
    return err_set(e, ERR_TOO_LARGE, "the streamed answer is over %zu bytes", c->bytes_max);
}

/* Is v a value that adds nothing when it comes again? */
static bool is_settled(const json_t *v)
{
    return !json_is_array(v) && !json_is_object(v);
}

static bool all_settled(json_t *object, const char *but)
{
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it))
        if (strcmp(json_object_iter_key(it), but) && !is_settled(json_object_iter_value(it)))
            return false;
    return true;
}

/* Remembers a frame whose like adds nothing but its text: one choice, nothing in it that is joined or counted but that text. */
static void learn_shape(struct openai_collector *c, struct str data, json_t *frame)
{
    bool chat = c->kind == OPENAI_CHAT;
    const char *name = chat ? "content" : "text";
    json_t *choices = json_object_get(frame, "choices"), *choice = json_array_get(choices, 0),
           *holder = chat ? json_object_get(choice, "delta") : choice;
    int64_t i = json_integer_value(json_object_get(choice, "index"));
    c->shape_text = NULL;
    frame_shape_forget(&c->shape);
    if (json_array_size(choices) != 1 || !json_is_string(json_object_get(holder, name)) ||
        !all_settled(frame, "choices") || !all_settled(choice, "delta") ||
        (chat && (json_object_size(holder) != 1)) || i < 0 || i >= OPENAI_N_MAX)
        return;
    if (!frame_shape_learn(&c->shape, data, name)) return;
    c->shape_text = &c->parts[i].texts[chat ? 0 : TEXTS - 1];
}

bool openai_collector_feed_like(struct openai_collector *c, struct str data)
{
    if (!c->shape_text || c->bytes + data.n > c->bytes_max) return false;
    if (c->watches) return frame_shape_read(&c->shape, data, NULL);
    size_t before = c->shape_text->n;
    if (!frame_shape_read(&c->shape, data, c->shape_text)) return false;
    c->bytes += c->shape_text->n - before;
    return true;
}

/* What is asked of a frame when nobody takes the answer. False: it has to be fed. */
static bool watch(struct openai_collector *c, struct str data)
{
    struct frame_glance g;
    bool chat = c->kind == OPENAI_CHAT;
    if (!c->watches || !frame_glance(data, c->kind, &g)) return false;
    for (int i = 0; i < OPENAI_N_MAX; i++) {
        struct part *p = &c->parts[i];
        if (!(g.seen & 1u << i)) continue;
        p->seen = true;
        if (*g.finish[i]) memcpy(p->finish_reason, g.finish[i], sizeof p->finish_reason);
    }
    if (g.usage.known) c->top.usage = g.usage;
    c->shape_text = NULL;
    if (g.alike && frame_shape_learn(&c->shape, data, chat ? "content" : "text"))
        c->shape_text = &c->parts[g.choice].texts[chat ? 0 : TEXTS - 1];
    return true;
}

enum err openai_collector_feed(struct openai_collector *c, struct str data, struct errmsg *e)
{
    json_t *frame;
    data = str_trim(data);
    if (!data.n || str_eqz(data, "[DONE]")) return OK;
    if (c->bytes > c->bytes_max) return too_large(c, e);
    if (watch(c, data)) return OK;
    enum err code = parse_frame(c, data, &frame, e) ? ERR_INVALID : OK;
    if (!code) {
        code = json_is_object(frame)
                   ? add_chunk(c, frame, e)
                   : err_set(e, ERR_INVALID, "frame: expected an object, got %s", json_kind(frame));
        if (!code && !c->damaged) learn_shape(c, data, frame);
        json_decref(frame);
    }
    if (!code && c->bytes > c->bytes_max) return too_large(c, e);
    c->damaged |= code != OK;
    return code;
}

void openai_collector_each_text(const struct openai_collector *c,
                                void (*fn)(void *arg, struct str text), void *arg)
{
    for (int i = 0; i < OPENAI_N_MAX; i++) {
        const struct part *p = &c->parts[i];
        for (int t = 0; t < TEXTS; t++)
            if (p->texts_given[t]) fn(arg, buf_view(&p->texts[t]));
        for (int k = 0; k <= p->n_calls; k++) {
            const struct call *call = k < p->n_calls ? &p->calls[k] : &p->function_call;
            if (!call->seen) continue;
            fn(arg, buf_view(&call->name));
            fn(arg, buf_view(&call->arguments));
        }
    }
}

struct openai_usage openai_collector_usage(const struct openai_collector *c)
{
    return c->top.usage;
}

static int n_parts(const struct openai_collector *c)
{
    int n = OPENAI_N_MAX;
    while (n && !c->parts[n - 1].seen)
        n--;
    return n;
}

bool openai_collector_complete(const struct openai_collector *c)
{
    int n = n_parts(c);
    for (int i = 0; i < n; i++)
        if (!c->parts[i].seen || !*c->parts[i].finish_reason) return false;
    return n > 0;
}

/* --- taking the answer out */
static json_t *string_of(const struct buf *b)
{
    return json_stringn(b->p ? b->p : "", b->n);
}

static json_t *take_function(struct call *call)
{
    json_t *out = json_object();
    json_object_set_new(out, "name", string_of(&call->name));
    json_object_set_new(out, "arguments", string_of(&call->arguments));
    if (call->function) json_object_update_missing(out, call->function);
    return out;
}

static json_t *take_call(struct call *call)
{
    json_t *out = json_object(), *id = json_object_get(call->rest, "id"),
           *type = json_object_get(call->rest, "type");
    if (id) json_object_set(out, "id", id);
    if (type)
        json_object_set(out, "type", type);
    else
        json_object_set_new(out, "type", json_string("function"));
    if (call->rest) json_object_update_missing(out, call->rest);
    bool function = str_eqz(json_member_str(out, "type"), "function") || call->name.n ||
                    call->arguments.n || call->function;
    if (function) json_object_set_new(out, "function", take_function(call));
    return out;
}

static void take_texts(struct part *p, json_t *message)
{
    for (int i = 0; i < TEXTS; i++) {
        if (p->texts_given[i])
            json_object_set_new(message, text_names[i], string_of(&p->texts[i]));
        else if (p->texts_null[i])
            json_object_set_new(message, text_names[i], json_null());
    }
}

/* role, content and the other texts, members of their own, calls */
static json_t *take_message(struct part *p)
{
    json_t *out = json_object(), *role = json_object_get(p->message, "role");
    if (json_is_string(role))
        json_object_set(out, "role", role);
    else
        json_object_set_new(out, "role", json_string("assistant"));
    json_object_set_new(out, "content", json_null());
    take_texts(p, out);
    if (p->message) json_object_update_missing(out, p->message);
    if (json_is_null(json_object_get(out, "content")) && json_object_get(p->message, "content"))
        json_object_set(
            out, "content",
            json_object_get(p->message, "content")); /* content that came as a list of parts */
    if (p->calls_given) json_object_set_new(out, "tool_calls", json_array());
    for (int i = 0; i < p->n_calls; i++)
        if (p->calls[i].seen)
            json_array_append_new(json_object_get(out, "tool_calls"), take_call(&p->calls[i]));
    if (p->function_call.seen)
        json_object_set_new(out, "function_call", take_function(&p->function_call));
    return out;
}

static void take_part(struct part *p, enum openai_kind kind, struct openai_choice *out)
{
    if (kind == OPENAI_CHAT) {
        out->message = take_message(p);
    } else {
        out->message = json_object();
        json_object_set_new(out->message, "text", string_of(&p->texts[TEXTS - 1]));
    }
    out->logprobs = p->logprobs;
    out->extra = p->extra;
    p->logprobs = p->extra = NULL;
    memcpy(out->finish_reason, p->finish_reason, sizeof out->finish_reason);
    part_fini(p);
}

enum err openai_collector_whole(const struct openai_collector *c)
{
    return c->damaged ? ERR_CORRUPT : openai_collector_complete(c) ? OK : ERR_AGAIN;
}

enum err openai_collector_take(struct openai_collector *c, struct openai_answer *out)
{
    enum err code = c->watches ? ERR_CORRUPT : openai_collector_whole(c);
    if (code) return code;
    *out = c->top;
    out->n_choices = n_parts(c);
    for (int i = 0; i < out->n_choices; i++)
        take_part(&c->parts[i], c->kind, &out->choices[i]);
    c->top = (struct openai_answer){.kind = c->kind};
    return OK;
}
