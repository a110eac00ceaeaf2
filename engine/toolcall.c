/* toolcall.c - a machine that reads one byte at a time, so that cutting the text elsewhere cannot change what it says. Pieces are
 * collected during one feed and handed on when their kind changes or the feed ends. */
#include "engine/toolcall.h"

#include <string.h>

#include "base/mem.h"

enum { HELD_BYTES = TOOLCALL_HEAD_MAX + 256, NAME_BYTES_MAX = 256, RUN_BYTES_MAX = 64 << 20 };

enum state {
    TEXT,      /* content; looks for a marker */
    OPENING,   /* a marker was read: what follows must be the beginning of a call */
    NAME,      /* Mistral: a name before the arguments */
    HEAD,      /* in the object of a call, whose arguments have not begun */
    ARGUMENTS, /* handed on as they come */
    TAIL,      /* in the object after its arguments: dropped */
    AFTER      /* a call has ended: white space and closing marks are dropped */
};
enum kind { CONTENT, ARGUMENT };

/* Where one stands in the object of a call: its members are followed, what is inside their values only counted. */
struct scan {
    enum { KEY, COLON, VALUE, WORD, COMMA } expect; /* at depth 1 */
    int depth;
    bool in_string, escaped;
    size_t key, n_key;     /* the last key, in held; n_key 0 = not ended */
    size_t value, n_value; /* its value with quotes; n_value 0 = not ended */
};

struct toolcall {
    enum toolcall_form form;
    struct str marker;
    const json_t *tools;
    struct toolcall_sink sink;
    enum state state;
    int n_calls;
    bool at_start;   /* nothing but white space so far */
    bool listed;     /* Mistral: inside [ ] */
    bool bare;       /* the object came without a mark */
    bool alone;      /* the arguments stand in no object */
    struct buf held; /* from where a call may have begun */
    size_t sure;     /* bytes of held that are content for certain when it turns out to be none */
    size_t object;   /* where its object begins in held */
    struct scan scan;
    struct str name; /* of the call, as the request has it */
    struct buf run;  /* piece being collected */
    enum kind run_is;
};

/* --- forms */
enum toolcall_form toolcall_form_of(struct str t)
{
    if (str_find(t, STR("[TOOL_CALLS]")) >= 0) return TOOLCALL_MISTRAL;
    if (str_find(t, STR("<tool_call>")) >= 0) return TOOLCALL_HERMES;
    bool tools = str_find(t, STR("tools")) >= 0;
    bool llama =
        str_find(t, STR("<|python_tag|>")) >= 0 || str_find(t, STR("<|start_header_id|>")) >= 0;
    return tools && llama ? TOOLCALL_LLAMA : tools ? TOOLCALL_HERMES : TOOLCALL_GENERIC;
}

struct toolcall_text toolcall_text_of(enum toolcall_form form)
{
    switch (form) {
    case TOOLCALL_LLAMA:
        return (struct toolcall_text){.marker = STR("<|python_tag|>"),
                                      .open = STR("{\"name\": \""),
                                      .middle = STR("\", \"parameters\": "),
                                      .close = STR("}"),
                                      .between = STR("; ")};
    case TOOLCALL_MISTRAL:
        return (struct toolcall_text){.marker = STR("[TOOL_CALLS]"),
                                      .begin = STR("["),
                                      .open = STR("{\"name\": \""),
                                      .middle = STR("\", \"arguments\": "),
                                      .close = STR("}"),
                                      .between = STR(", "),
                                      .end = STR("]")};
    default:
        return (struct toolcall_text){.marker = STR("<tool_call>"),
                                      .open = STR("\n{\"name\": \""),
                                      .middle = STR("\", \"arguments\": "),
                                      .close = STR("}\n</tool_call>"),
                                      .between = STR("\n")};
    }
}

/* --- pieces */
static void hand_on(struct toolcall *t)
{
    struct str text = buf_view(&t->run);
    if (text.n && t->run_is == CONTENT && t->sink.content) t->sink.content(t->sink.arg, text);
    if (text.n && t->run_is == ARGUMENT && t->sink.arguments)
        t->sink.arguments(t->sink.arg, t->n_calls - 1, text);
    buf_clear(&t->run);
}

static void say(struct toolcall *t, enum kind kind, struct str text)
{
    if (t->run_is != kind) hand_on(t);
    t->run_is = kind;
    buf_str(&t->run, text);
    if (text.n) t->at_start = false;
}

static struct str held_part(const struct toolcall *t, size_t from, size_t n)
{
    return str_sub(buf_view(&t->held), from, n);
}

static void begin_call(struct toolcall *t)
{
    hand_on(t);
    if (t->sink.begin) t->sink.begin(t->sink.arg, t->n_calls, t->name);
    t->n_calls++;
    t->at_start = false;
}

static void byte(struct toolcall *t, char c);

/* Reads held bytes once more, from `from` on. */
static void read_again(struct toolcall *t, size_t from)
{
    struct buf again = t->held;
    buf_init(&t->held, HELD_BYTES);
    for (size_t i = from; i < again.n; i++)
        byte(t, again.p[i]);
    buf_fini(&again);
}

/* It was no call. */
static void not_a_call(struct toolcall *t)
{
    size_t sure = t->sure < t->held.n ? t->sure : t->held.n;
    t->state = TEXT;
    t->listed = false;
    say(t, CONTENT, held_part(t, 0, sure));
    read_again(t, sure);
}

/* The name as the request has it; empty when no tool is called so. */
static struct str known_name(const struct toolcall *t, struct str name)
{
    for (size_t i = 0; i < json_array_size(t->tools); i++) {
        const json_t *function = json_object_get(json_array_get(t->tools, i), "function");
        struct str one = json_member_str(function, "name");
        if (one.n && str_eq(one, name)) return one;
    }
    return (struct str){0};
}

/* --- the object of a call */
static bool blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void string_byte(struct scan *s, char c, size_t at)
{
    if (s->escaped || c == '\\') {
        s->escaped = !s->escaped;
    } else if (c == '"') {
        s->in_string = false;
        if (s->depth > 1) return;
        if (s->expect == KEY) {
            s->n_key = at - s->key;
            s->expect = COLON;
        } else {
            s->n_value = at + 1 - s->value;
            s->expect = COMMA;
        }
    }
}

static bool value_byte(struct scan *s, char c, size_t at)
{
    s->value = at;
    s->n_value = 0;
    s->in_string = c == '"';
    s->depth += c == '{' || c == '[';
    if (!s->in_string) s->expect = s->depth > 1 ? COMMA : WORD;
    return strchr("{[\"-0123456789tfn", c) != NULL;
}

static bool member_byte(struct scan *s, char c, size_t at)
{
    if (s->expect == WORD && c != ',' && c != '}') {
        if (blank(c)) s->expect = COMMA;
        return blank(c) || strchr("+-.0123456789Eaeflnrstu", c);
    }
    if (blank(c)) return true;
    if (s->expect == VALUE) return value_byte(s, c, at);
    if (s->expect == COLON) {
        s->expect = VALUE;
        return c == ':';
    }
    if (s->expect == KEY && c == '"') {
        s->in_string = true;
        s->key = at + 1;
        s->n_key = s->n_value = 0;
        return true;
    }
    bool end = c == '}', next = c == ',' && s->expect != KEY;
    if (next) s->expect = KEY;
    if (end) s->depth = 0;
    return end || next;
}

/* One byte of the object after its opening brace, at this place of held. False: it is no object. */
static bool scan_byte(struct scan *s, char c, size_t at)
{
    if (s->in_string) {
        string_byte(s, c, at);
        return true;
    }
    if (s->depth == 1) return member_byte(s, c, at);
    s->in_string = c == '"';
    if (c == '{' || c == '[') s->depth++;
    if (c == '}' || c == ']') s->depth--;
    return true;
}

/* The whole object is there and its arguments have not been told: the name came last, or they are a string, or there are none. */
static void whole_object(struct toolcall *t)
{
    json_t *v = NULL;
    struct errmsg e;
    struct buf out;
    buf_init(&out, 2 * HELD_BYTES);
    enum err code = json_parse(held_part(t, t->object, t->held.n), 0, &v, &e);
    const json_t *arguments = json_object_get(v, "arguments");
    if (!arguments) arguments = json_object_get(v, "parameters");
    t->name = code ? (struct str){0} : known_name(t, json_member_str(v, "name"));
    if (json_is_string(arguments))
        buf_str(&out, json_str(arguments));
    else if (json_is_object(arguments))
        json_write(&out, arguments);
    else if (!arguments || json_is_null(arguments))
        buf_z(&out, "{}");
    bool fine = t->name.n && out.n;
    if (fine) {
        begin_call(t);
        say(t, ARGUMENT, buf_view(&out));
        buf_clear(&t->held);
        t->state = AFTER;
    }
    buf_fini(&out);
    json_decref(v);
    if (!fine) not_a_call(t);
}

static void start_object(struct toolcall *t)
{
    t->state = HEAD;
    t->bare = false;
    t->object = t->held.n - 1;
    t->scan = (struct scan){.expect = KEY, .depth = 1};
    t->name = (struct str){0};
}

/* Small models forget the marks around a call: an object that begins with a tool's name is one all the same. */
static bool may_be_bare(const struct toolcall *t)
{
    return t->form != TOOLCALL_MISTRAL;
}

/* sure: bytes of held before the object, which are content when it is none. */
static void start_bare(struct toolcall *t, size_t sure)
{
    start_object(t);
    t->bare = true;
    t->sure = sure ? sure : 1;
}

static void start_arguments(struct toolcall *t, bool alone)
{
    begin_call(t);
    say(t, ARGUMENT, STR("{"));
    buf_clear(&t->held);
    t->alone = alone;
    t->scan = (struct scan){.expect = COMMA, .depth = 2};
    t->state = ARGUMENTS;
}

static void head_byte(struct toolcall *t, char c)
{
    struct scan *s = &t->scan;
    buf_char(&t->held, c);
    bool fine = scan_byte(s, c, t->held.n - 1), known = true;
    struct str key = held_part(t, s->key, s->n_key), value = held_part(t, s->value, s->n_value);
    if (s->n_value && !t->name.n && str_eqz(key, "name")) {
        t->name = known_name(t, str_sub(value, 1, value.n > 2 ? value.n - 2 : 0));
        known = t->name.n > 0;
    }
    /* an answer in JSON must not wait for its end */
    if (t->bare && s->n_key && !str_eqz(key, "name") && !str_eqz(key, "type"))
        known = t->name.n > 0;
    bool opened = s->depth == 2 && s->value == t->held.n - 1 && c == '{' && t->name.n &&
                  (str_eqz(key, "arguments") || str_eqz(key, "parameters"));
    if (!fine || !known || t->held.n >= TOOLCALL_HEAD_MAX)
        not_a_call(t);
    else if (opened)
        start_arguments(t, false);
    else if (!s->depth)
        whole_object(t);
}

/* Models write line breaks into strings as they are: escaped, so that what arrives is JSON. */
static void argument_byte(struct toolcall *t, char c)
{
    static const char controls[] = "\n\t\r", *const escapes[] = {"\\n", "\\t", "\\r"};
    const char *control = t->scan.in_string && c ? strchr(controls, c) : NULL;
    say(t, ARGUMENT, control ? str_of(escapes[control - controls]) : (struct str){&c, 1});
    scan_byte(&t->scan, c, 0);
    if (t->scan.depth == 1) t->state = t->alone ? AFTER : TAIL;
}

static void tail_byte(struct toolcall *t, char c)
{
    bool fine = scan_byte(&t->scan, c, 0);
    if (fine && t->scan.depth) return;
    t->state = AFTER;
    if (!fine) byte(t, c);
}

/* Between calls: what belongs to the form is dropped, other text is content again. */
static void after_byte(struct toolcall *t, char c)
{
    struct str closing = t->bare ? STR("```") : STR("</tool_call>");
    bool tagged = t->form != TOOLCALL_MISTRAL && t->form != TOOLCALL_LLAMA;
    if (!t->held.n && blank(c)) return;
    if (!t->held.n && ((t->form == TOOLCALL_LLAMA && c == ';') || (t->listed && c == ','))) {
        t->state = OPENING;
        t->sure = 1;
        return;
    }
    if (t->listed && c == ']') {
        t->listed = false;
        return;
    }
    buf_char(&t->held, c);
    if (t->held.n == 1 && c == '{' && may_be_bare(t) && t->n_calls < TOOLCALL_CALLS_MAX) {
        start_bare(t, 0);
        return;
    }
    if ((tagged || t->bare) && str_starts(closing, buf_view(&t->held))) {
        if (t->held.n == closing.n) buf_clear(&t->held);
        return;
    }
    t->state = TEXT;
    t->listed = false;
    read_again(t, 0);
}

/* --- before a call */
/* At the start of the text: an object, alone or in a block of code ("```json"). */
enum fence { NO_FENCE, FENCE /* perhaps one */, FENCED_OBJECT };
static enum fence look_for_fence(const struct toolcall *t, size_t from)
{
    static const char *const fences[] = {"```json", "```", ""};
    struct str s = held_part(t, from, t->held.n);
    enum fence found = NO_FENCE;
    for (int i = 0; i < 3 && may_be_bare(t) && s.n; i++) {
        struct str fence = str_of(fences[i]);
        size_t at = fence.n;
        if (str_starts(fence, s)) found = FENCE;
        if (!str_starts(s, fence)) continue;
        while (fence.n && at < s.n && blank(s.p[at]))
            at++;
        if (at == s.n && at < TOOLCALL_HEAD_MAX) found = FENCE;
        if (at + 1 == s.n && s.p[at] == '{') return FENCED_OBJECT;
    }
    return found;
}

static void text_byte(struct toolcall *t, char c)
{
    buf_char(&t->held, c);
    size_t n = t->held.n, lead = 0, keep = t->marker.n;
    bool more = t->n_calls < TOOLCALL_CALLS_MAX;
    while (t->at_start && lead < n && blank(t->held.p[lead]))
        lead++;
    if (lead == n && n < TOOLCALL_HEAD_MAX) return;
    enum fence fence = more && t->at_start ? look_for_fence(t, lead) : NO_FENCE;
    if (fence == FENCE) return;
    if (fence == FENCED_OBJECT) {
        buf_consume(&t->held, lead);
        start_bare(t, t->held.n - 1);
        return;
    }
    /* the longest end of what is held that begins a marker */
    if (keep > n - lead) keep = n - lead;
    while (keep && memcmp(t->held.p + n - keep, t->marker.p, keep) != 0)
        keep--;
    bool whole = more && keep == t->marker.n;
    if (!whole && lead + keep == n && keep < t->marker.n && lead < n) return;
    if (!whole && keep == t->marker.n) keep = 0;
    if (!whole || lead + keep < n) say(t, CONTENT, held_part(t, 0, n - keep));
    buf_consume(&t->held, n - keep);
    if (!whole) return;
    t->sure = t->marker.n;
    t->state = OPENING;
}

/* White space, then an object; Mistral: a list of them, or a name. */
static void opening_byte(struct toolcall *t, char c)
{
    bool mistral = t->form == TOOLCALL_MISTRAL && !t->listed;
    buf_char(&t->held, c);
    if (blank(c) && t->held.n < TOOLCALL_HEAD_MAX) return;
    if (c == '{') {
        start_object(t);
    } else if (mistral && c == '[') {
        t->listed = true;
    } else if (mistral && (c | 32) >= 'a' && (c | 32) <= 'z') {
        t->state = NAME;
        t->object = t->held.n - 1;
    } else {
        not_a_call(t);
    }
}

/* name{..}, name[ARGS]{..}, name[CALL_ID]..[ARGS]{..} */
static void name_byte(struct toolcall *t, char c)
{
    buf_char(&t->held, c);
    struct str text = held_part(t, t->object, t->held.n);
    if (c == '{') {
        ptrdiff_t mark = str_find_char(text, '[');
        t->name = known_name(t, str_trim(str_sub(text, 0, mark < 0 ? text.n - 1 : (size_t)mark)));
        if (t->name.n)
            start_arguments(t, true);
        else
            not_a_call(t);
    } else if (text.n > NAME_BYTES_MAX || c == '\n' || c == '}') {
        not_a_call(t);
    }
}

/* Recursion: bytes that were held are read again, each time fewer of them. */
static void byte(struct toolcall *t, char c)
{
    static void (*const read[])(struct toolcall * t, char c) = {
        [TEXT] = text_byte,  [OPENING] = opening_byte,    [NAME] = name_byte,
        [HEAD] = head_byte,  [ARGUMENTS] = argument_byte, [TAIL] = tail_byte,
        [AFTER] = after_byte};
    read[t->state](t, c);
}

/* --- life */
struct toolcall *toolcall_new(enum toolcall_form form, const json_t *tools, bool inside,
                              const struct toolcall_sink *sink)
{
    struct toolcall *t = xcalloc(1, sizeof *t);
    t->form = form;
    t->marker = toolcall_text_of(form).marker;
    t->tools = tools;
    t->sink = *sink;
    t->at_start = true;
    t->state = inside ? OPENING : TEXT;
    t->sure = 1;
    buf_init(&t->held, HELD_BYTES);
    buf_init(&t->run, RUN_BYTES_MAX);
    return t;
}

void toolcall_free(struct toolcall *t)
{
    if (!t) return;
    buf_fini(&t->held);
    buf_fini(&t->run);
    mem_free(t);
}

void toolcall_feed(struct toolcall *t, struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        byte(t, text.p[i]);
    hand_on(t);
}

void toolcall_finish(struct toolcall *t)
{
    while (t->held.n && t->state != TEXT && t->state != AFTER)
        not_a_call(t);
    if (t->state == TEXT) say(t, CONTENT, buf_view(&t->held));
    buf_clear(&t->held);
    hand_on(t);
}
