/* openai_glance.c - see openai_glance.h. The rules are those of openai_answer.c; what is rare is declined. Pure, no allocation. */
#include "base/openai_glance.h"

#include "base/openai_answer.h"

enum { DEPTH = 64, FINISH_BYTES = sizeof((struct openai_choice *)0)->finish_reason };

struct glance {
    struct json_scan s;
    enum openai_kind kind;
    unsigned seen; /* choices by index, a bit each */
    int n_choices;
    bool has_choices;
    struct openai_usage usage;
};

/* --- numbers of usage */
/* As a count: of what is no integer, is negative or beyond all reason, nothing. */
static bool read_count(struct json_scan *s, int64_t *out)
{
    struct json_scan_number n;
    char c = json_scan_peek(s);
    if (c != '-' && !(c >= '0' && c <= '9')) return json_scan_skip(s);
    if (!json_scan_number(s, &n)) return false;
    *out = !n.real && n.integer > 0 && n.integer <= OPENAI_TOKENS_MAX ? n.integer : 0;
    return true;
}

static bool read_details(struct json_scan *s, struct openai_usage *u)
{
    int outer;
    bool more, good = true;
    struct str key;
    if (json_scan_peek(s) != '{') return json_scan_skip(s);
    if (!json_scan_open(s, '{', &outer)) return false;
    while (good) {
        if (!json_scan_key(s, outer, &key, &more)) return false;
        if (!more) return true;
        good = str_eqz(key, "cached_tokens") ? read_count(s, &u->cached_tokens) : json_scan_skip(s);
    }
    return false;
}

bool openai_glance_usage(struct json_scan *s, struct openai_usage *u)
{
    int outer;
    bool more, good = true;
    struct str key;
    if (json_scan_peek(s) != '{') return json_scan_skip(s);
    if (!json_scan_open(s, '{', &outer)) return false;
    u->known = true;
    while (good) {
        if (!json_scan_key(s, outer, &key, &more)) return false;
        if (!more) return true;
        if (str_eqz(key, "prompt_tokens"))
            good = read_count(s, &u->prompt_tokens);
        else if (str_eqz(key, "completion_tokens"))
            good = read_count(s, &u->completion_tokens);
        else if (str_eqz(key, "prompt_tokens_details"))
            good = read_details(s, u);
        else
            good = json_scan_skip(s);
    }
    return false;
}

/* --- choices */
/* null, or an array of objects */
static bool read_calls(struct json_scan *s)
{
    int outer;
    bool more;
    if (json_scan_null(s)) return true;
    if (!json_scan_open(s, '[', &outer)) return false;
    for (;;) {
        if (!json_scan_item(s, outer, &more)) return false;
        if (!more) return true;
        if (json_scan_peek(s) != '{' || !json_scan_skip(s)) return false;
    }
}

static bool read_message(struct json_scan *s)
{
    int outer;
    bool more, good = json_scan_open(s, '{', &outer);
    struct str key;
    while (good) {
        if (!json_scan_key(s, outer, &key, &more)) return false;
        if (!more) return true;
        good = str_eqz(key, "tool_calls") ? read_calls(s) : json_scan_skip(s);
    }
    return false;
}

static bool read_finish(struct json_scan *s)
{
    struct json_scan_text t;
    if (json_scan_peek(s) != '"') return json_scan_skip(s);
    return json_scan_string(s, &t) && !t.escaped && t.raw.n < FINISH_BYTES;
}

bool openai_glance_index(struct json_scan *s, int64_t *at)
{
    struct json_scan_number n;
    if (!json_scan_number(s, &n) || n.real) return false;
    *at = n.integer;
    return true;
}

static bool read_choice(struct glance *g)
{
    struct json_scan *s = &g->s;
    int outer;
    bool more, content = false, good = json_scan_open(s, '{', &outer);
    struct str key;
    int64_t at = g->n_choices;
    while (good) {
        if (!json_scan_key(s, outer, &key, &more)) return false;
        if (!more) break;
        bool holds = str_eqz(key, g->kind == OPENAI_CHAT ? "message" : "text");
        content |= holds;
        if (str_eqz(key, "index"))
            good = openai_glance_index(s, &at);
        else if (holds && g->kind == OPENAI_CHAT)
            good = read_message(s);
        else if (holds)
            good = json_scan_peek(s) == '"' && json_scan_skip(s);
        else if (str_eqz(key, "finish_reason"))
            good = read_finish(s);
        else
            good = json_scan_skip(s);
    }
    if (!good || !content || at < 0 || at >= OPENAI_N_MAX || (g->seen & 1u << at)) return false;
    g->seen |= 1u << at;
    g->n_choices++;
    return true;
}

static bool read_choices(struct glance *g)
{
    int outer;
    bool more;
    if (!json_scan_open(&g->s, '[', &outer)) return false;
    for (;;) {
        if (!json_scan_item(&g->s, outer, &more)) return false;
        if (!more) return g->n_choices > 0 && g->seen == (1u << g->n_choices) - 1;
        if (!read_choice(g)) return false;
    }
}

/* --- the whole */
static bool read_member(struct glance *g, struct str key)
{
    struct json_scan_text t;
    if (str_eqz(key, "choices")) return g->has_choices = true, read_choices(g);
    if (str_eqz(key, "usage")) return openai_glance_usage(&g->s, &g->usage);
    if (str_eqz(key, "error")) return json_scan_null(&g->s);
    if (!str_eqz(key, "object") || json_scan_peek(&g->s) != '"') return json_scan_skip(&g->s);
    return json_scan_string(&g->s, &t) && !t.escaped && !str_eqz(t.raw, "error");
}

bool openai_glance(struct str json, enum openai_kind kind, struct openai_usage *usage)
{
    struct glance g;
    int outer;
    bool more;
    struct str key;
    g.kind = kind;
    g.seen = 0;
    g.n_choices = 0;
    g.has_choices = false;
    g.usage = (struct openai_usage){0};
    json_scan_begin(&g.s, json, DEPTH);
    if (!json_scan_open(&g.s, '{', &outer)) return false;
    for (;;) {
        if (!json_scan_key(&g.s, outer, &key, &more)) return false;
        if (!more) break;
        if (!read_member(&g, key)) return false;
    }
    *usage = g.usage;
    return g.has_choices && json_scan_at_end(&g.s);
}
