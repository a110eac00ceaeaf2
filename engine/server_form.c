/* server_form.c - what a request demands of its text: a grammar from response_format or from tools that must be called. The vocabulary's
 * trie is built when the first such request comes, grammars are kept for the next ones that ask the same.
 * Threading: form_prepare runs on the loop or a worker; what is shared lies under the lock. */
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "engine/grammar/grammar.h"
#include "engine/model/gguf.h"
#include "engine/server.h"

enum {
    KEPT_MAX = 64,
    KEPT_BYTES_MAX = 64 << 20,
    MARKERS_MAX = 16,
    KEY_BYTES_MAX = 32 << 20,
    ENCODED_MAX = 4096
};

struct kept { /* a grammar that was asked for before */
    struct hash128 key;
    struct grammar *grammar;
    uint64_t used;
};
struct server_forms {
    pthread_mutex_t lock;
    struct grammar_vocab *vocab; /* NULL until needed */
    struct kept kept[KEPT_MAX];
    int n_kept;
    size_t bytes;
    uint64_t clock;
    /* not under the lock: set at the start */
    enum toolcall_form form;
    int32_t marker[MARKERS_MAX]; /* tokens whose text is needed to find calls */
    int n_markers;
    bool marker_hidden; /* the form's marker is a control token: a grammar cannot write it */
};

struct server_forms *forms_new(struct server *s)
{
    static const char *const texts[] = {"<tool_call>",     "</tool_call>",  "[TOOL_CALLS]",
                                        "[ARGS]",          "[CALL_ID]",     "<|python_tag|>",
                                        "<tool_response>", "[TOOL_CONTENT]"};
    struct server_forms *f = xcalloc(1, sizeof *f);
    struct str source = {0};
    pthread_mutex_init(&f->lock, NULL);
    if (gguf_str(engine_gguf(s->engine), "tokenizer.chat_template", &source, NULL))
        source = (struct str){"", 0};
    f->form = toolcall_form_of(source);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int32_t id = tokenizer_id_of(s->tokenizer, str_of(texts[i]));
        if (id >= 0) f->marker[f->n_markers++] = id;
    }
    int32_t id = tokenizer_id_of(s->tokenizer, toolcall_text_of(f->form).marker);
    f->marker_hidden = id >= 0 && !tokenizer_bytes(s->tokenizer, id, false).n;
    return f;
}

void forms_free(struct server_forms *f)
{
    if (!f) return;
    for (int i = 0; i < f->n_kept; i++)
        grammar_unref(f->kept[i].grammar);
    grammar_vocab_free(f->vocab);
    pthread_mutex_destroy(&f->lock);
    mem_free(f);
}

enum toolcall_form forms_toolcall(const struct server_forms *f)
{
    return f->form;
}

struct str exchange_token_bytes(const struct exchange *x, int32_t id)
{
    const struct server_forms *f = x->server->forms;
    bool shown = false;
    for (int i = 0; i < f->n_markers && x->calls_on; i++)
        shown |= f->marker[i] == id;
    return tokenizer_bytes(x->server->tokenizer, id, shown);
}

/* --- grammars */
static int encode(void *arg, struct str text, int32_t *out, int max)
{
    struct token_list l;
    token_list_init(&l, ENCODED_MAX);
    tokenizer_encode(arg, text, 0, &l);
    int n = l.failed ? 0 : (int)l.n < max ? (int)l.n : max;
    if (n) memcpy(out, l.ids, (size_t)n * sizeof *out);
    token_list_fini(&l);
    return n;
}

/* Under the lock. */
static const struct grammar_vocab *vocab_of(struct server *s)
{
    struct server_forms *f = s->forms;
    if (f->vocab) return f->vocab;
    int n = tokenizer_size(s->tokenizer), n_vocab = engine_model(s->engine)->n_vocab;
    if (n > n_vocab) n = n_vocab;
    struct str *text = xcalloc((size_t)n, sizeof *text);
    for (int32_t id = 0; id < n; id++)
        text[id] = tokenizer_bytes(s->tokenizer, id, false);
    f->vocab = grammar_vocab_new(text, n, n_vocab, s->end_ids, s->n_end_ids);
    grammar_vocab_encoder(f->vocab, encode, s->tokenizer);
    mem_free(text);
    return f->vocab;
}

static struct kept *find_kept(struct server_forms *f, struct hash128 key)
{
    for (int i = 0; i < f->n_kept; i++)
        if (hash_eq(f->kept[i].key, key)) return &f->kept[i];
    return NULL;
}

static void drop_oldest(struct server_forms *f)
{
    int oldest = 0;
    for (int i = 1; i < f->n_kept; i++)
        if (f->kept[i].used < f->kept[oldest].used) oldest = i;
    f->bytes -= grammar_bytes(f->kept[oldest].grammar);
    grammar_unref(f->kept[oldest].grammar);
    f->kept[oldest] = f->kept[--f->n_kept];
}

static void keep(struct server_forms *f, struct hash128 key, struct grammar *g)
{
    size_t bytes = grammar_bytes(g);
    if (bytes > KEPT_BYTES_MAX) return;
    while (f->n_kept && (f->n_kept == KEPT_MAX || f->bytes + bytes > KEPT_BYTES_MAX))
        drop_oldest(f);
    f->kept[f->n_kept++] = (struct kept){key, grammar_ref(g), ++f->clock};
    f->bytes += bytes;
}

/* Everything of the request that the grammar depends on; the order of members counts. */
static struct hash128 key_of(const struct exchange *x)
{
    static const char *const members[] = {"response_format", "guided_json",        "guided_regex",
                                          "guided_choice",   "structured_outputs", "tools",
                                          "tool_choice",     "parallel_tool_calls"};
    struct hasher h;
    struct buf text;
    buf_init(&text, KEY_BYTES_MAX);
    hasher_open(&h, x->server->id_seed);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const json_t *v = json_object_get(x->request.body, members[i]);
        if (!v || (i >= 5 && !x->calls_on)) continue;
        buf_clear(&text);
        json_write(&text, v);
        hasher_field(&h, (char)('a' + i), buf_view(&text));
    }
    buf_fini(&text);
    return hasher_close(&h);
}

/* --- from a request to a description */
struct demand {
    struct grammar_spec spec;
    struct grammar_tool *tools; /* [n_tools], paths owned */
    struct buf first;           /* what the first call begins with */
    json_t *any_object;
    const char *param; /* whose fault it is when it cannot be kept */
};

static void demand_fini(struct demand *d)
{
    for (int i = 0; i < d->spec.calls.n_tools; i++)
        mem_free((char *)(uintptr_t)d->tools[i].path);
    mem_free(d->tools);
    buf_fini(&d->first);
    json_decref(d->any_object);
}

static void read_format(const struct exchange *x, struct demand *d)
{
    const struct openai_format *f = &x->request.format;
    d->spec.path = f->path;
    d->spec.schema = f->schema;
    d->spec.strict = f->strict;
    d->spec.regex = f->regex;
    d->spec.choices = f->choices;
    d->spec.kind = f->kind == OPENAI_FORMAT_REGEX    ? GRAMMAR_REGEX
                   : f->kind == OPENAI_FORMAT_CHOICE ? GRAMMAR_CHOICE
                                                     : GRAMMAR_SCHEMA;
    d->param = !f->path || !strncmp(f->path, "response_format", 15) ? "response_format"
               : !strncmp(f->path, "structured_outputs", 18)        ? "structured_outputs"
                                                                    : f->path;
}

static bool plain_name(struct str name)
{
    bool plain = name.n > 0;
    for (size_t i = 0; i < name.n && plain; i++)
        plain = (unsigned char)name.p[i] > ' ' && !strchr("\"\\{}[]", name.p[i]);
    return plain;
}

/* The tools that may be called. checked: their arguments follow their schemas; otherwise only those of strict tools do.
 * False: x->error. */
static bool read_tools(struct exchange *x, struct demand *d, bool checked)
{
    const json_t *list = x->request.tools;
    int n = 0;
    d->tools = xcalloc(json_array_size(list) + 1, sizeof *d->tools);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *function = json_object_get(json_array_get(list, i), "function"),
                     *parameters = json_object_get(function, "parameters");
        struct grammar_tool tool = {.name = json_member_str(function, "name"),
                                    .strict = json_is_true(json_object_get(function, "strict"))};
        if (x->request.tool_choice == OPENAI_TOOLS_NAMED &&
            !str_eq(tool.name, x->request.tool_name))
            continue;
        if (!plain_name(tool.name)) {
            openai_error_set(&x->error, 400, "invalid_request_error", "tools", "invalid_value",
                             "tools[%zu].function.name: expected letters, digits, - and _", i);
            return false;
        }
        if ((checked || tool.strict) && json_object_size(parameters)) tool.parameters = parameters;
        struct buf path;
        buf_init(&path, 100);
        buf_printf(&path, "tools[%zu].function.parameters", i);
        tool.path = buf_take(&path, NULL);
        d->tools[n++] = tool;
        d->spec.calls.n_tools = n;
    }
    d->spec.calls.tools = d->tools;
    return true;
}

static bool any_strict(const json_t *tools)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        if (json_is_true(json_object_get(function, "strict"))) return true;
    }
    return false;
}

static bool must_call(const struct exchange *x)
{
    return x->calls_on && (x->request.tool_choice == OPENAI_TOOLS_REQUIRED ||
                           x->request.tool_choice == OPENAI_TOOLS_NAMED);
}

/* Calls mark themselves with a tag that the grammar can write. */
static bool tagged(const struct server_forms *f)
{
    return f->form != TOOLCALL_LLAMA && f->form != TOOLCALL_MISTRAL && !f->marker_hidden;
}

/* A strict tool may be called out of free text: from the tag on the text is a call. */
static bool triggered(const struct exchange *x)
{
    return x->calls_on && !must_call(x) && x->request.format.kind == OPENAI_FORMAT_TEXT &&
           tagged(x->server->forms) && any_strict(x->request.tools);
}

/* A call, or an answer of the form that was asked for. */
static bool call_or_answer(const struct exchange *x)
{
    enum openai_format_kind kind = x->request.format.kind;
    const struct server_forms *f = x->server->forms;
    return x->calls_on && !must_call(x) &&
           (kind == OPENAI_FORMAT_SCHEMA || kind == OPENAI_FORMAT_JSON_OBJECT) &&
           (f->form == TOOLCALL_LLAMA || !f->marker_hidden);
}

bool form_needed(const struct exchange *x)
{
    return x->request.format.kind != OPENAI_FORMAT_TEXT || must_call(x) || triggered(x);
}

static bool read_calls(struct exchange *x, struct demand *d)
{
    const struct server_forms *f = x->server->forms;
    struct toolcall_text t = toolcall_text_of(f->form);
    struct grammar_calls *c = &d->spec.calls;
    bool llama = f->form == TOOLCALL_LLAMA, mistral = f->form == TOOLCALL_MISTRAL;
    if (!read_tools(x, d, must_call(x))) return false;
    d->spec.kind = GRAMMAR_CALLS;
    c->begin = t.begin;
    c->open = t.open;
    c->middle = t.middle;
    c->close = t.close;
    c->between = t.between;
    c->end = t.end;
    c->many = x->request.parallel_tool_calls;
    if (triggered(x)) {
        c->trigger = t.marker;
        return true;
    }
    if (f->marker_hidden && !llama) { /* the prompt ends with it */
        x->marker_in_prompt = true;
        if (!mistral) c->many = false; /* a second call would need another one */
    } else if (!llama) {
        buf_str(&d->first, t.marker);
        buf_str(&d->first, mistral ? t.begin : t.open);
        *(mistral ? &c->begin : &c->open) = buf_view(&d->first);
    }
    if (call_or_answer(x)) {
        d->any_object = json_pack("{s:s}", "type", "object");
        c->or_schema = d->spec.schema ? d->spec.schema : d->any_object;
        c->or_strict = d->spec.strict;
    }
    return true;
}

static void explain(struct exchange *x, const struct demand *d, enum err code,
                    const struct errmsg *e)
{
    bool tools = !strncmp(e->text, "tools", 5) || !d->spec.path, /* no form but that of calls */
        placed = d->spec.path && !strncmp(e->text, d->spec.path, strlen(d->spec.path));
    const char *param = tools ? "tools" : d->param, *path = d->spec.path ? d->spec.path : param;
    bool named = placed || !strncmp(e->text, "tools", 5);
    openai_error_set(&x->error, 400, "invalid_request_error", param,
                     code == ERR_UNSUPPORTED ? "unsupported_value" : "invalid_value", "%s%s%s",
                     named ? "" : path, named ? "" : ": ", e->text);
}

static void append_marker(struct exchange *x)
{
    struct str marker = toolcall_text_of(x->server->forms->form).marker;
    int32_t id = tokenizer_id_of(x->server->tokenizer, marker);
    for (int i = 0; i < x->n_prompts; i++)
        token_list_add(&x->prompts[i], id);
}

void form_prepare(struct exchange *x)
{
    struct server_forms *f = x->server->forms;
    struct demand d = {.param = "response_format"};
    struct errmsg e = {0};
    enum err code = OK;
    if (x->error.status || !form_needed(x)) return;
    buf_init(&d.first, 256);
    read_format(x, &d);
    bool calls = must_call(x) || triggered(x) || call_or_answer(x);
    if (!calls || read_calls(x, &d)) {
        struct hash128 key = key_of(x);
        pthread_mutex_lock(&f->lock);
        const struct grammar_vocab *v = vocab_of(x->server);
        struct kept *known = find_kept(f, key);
        if (known) {
            known->used = ++f->clock;
            x->grammar = grammar_ref(known->grammar);
        }
        pthread_mutex_unlock(&f->lock);
        if (!x->grammar) code = grammar_new(&x->grammar, v, &d.spec, &e);
        if (code) explain(x, &d, code, &e);
        pthread_mutex_lock(&f->lock);
        if (!code && !find_kept(f, key)) keep(f, key, x->grammar);
        pthread_mutex_unlock(&f->lock);
    }
    if (!x->error.status && x->marker_in_prompt) append_marker(x);
    demand_fini(&d);
}
