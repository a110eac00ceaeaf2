/* frame_glance.c - see frame_glance.h. The rules are those of openai_collect.c; what is rare, calls among it, is declined. Pure, no
 * allocation. */
#include "base/frame_glance.h"

#include <string.h>

#include "base/openai_glance.h"

enum { DEPTH = 64, FINISH_BYTES = sizeof((struct openai_choice *)0)->finish_reason };

struct look {
    struct json_scan s;
    enum openai_kind kind;
    struct frame_glance *out;
    int n_choices;
    bool settled; /* nothing but scalars beside choices and texts */
};

/* Passes a value; one that is made of others may add up with later ones. */
static bool pass(struct look *l)
{
    char c = json_scan_peek(&l->s);
    l->settled &= c != '{' && c != '[';
    return json_scan_skip(&l->s);
}

static bool read_text(struct look *l, bool *is_string)
{
    *is_string = json_scan_peek(&l->s) == '"';
    return *is_string ? json_scan_skip(&l->s) : json_scan_null(&l->s);
}

/* Of a delta: content alone is what most have. */
static bool read_delta(struct look *l, bool *text)
{
    struct json_scan *s = &l->s;
    int outer, n = 0;
    bool more, good, content = false;
    struct str key;
    if (json_scan_null(s)) return l->settled = false, true;
    good = json_scan_open(s, '{', &outer);
    while (good) {
        if (!json_scan_key(s, outer, &key, &more)) return false;
        if (!more) break;
        n++;
        if (str_eqz(key, "tool_calls"))
            good = json_scan_null(s);
        else if (str_eqz(key, "content") && json_scan_peek(s) == '"')
            good = read_text(l, &content);
        else
            good = pass(l);
    }
    *text = content && n == 1;
    return good;
}

static bool read_finish(struct look *l, char out[FINISH_BYTES])
{
    struct json_scan_text t;
    if (json_scan_null(&l->s)) return true;
    if (!json_scan_string(&l->s, &t) || t.escaped || t.raw.n >= FINISH_BYTES) return false;
    memcpy(out, t.raw.p, t.raw.n);
    out[t.raw.n] = 0;
    return true;
}

static bool read_choice(struct look *l)
{
    struct json_scan *s = &l->s;
    char finish[FINISH_BYTES] = "";
    int outer;
    bool more, text = false, good = json_scan_open(s, '{', &outer), chat = l->kind == OPENAI_CHAT;
    struct str key;
    int64_t at = 0;
    while (good) {
        if (!json_scan_key(s, outer, &key, &more)) return false;
        if (!more) break;
        if (str_eqz(key, "index"))
            good = openai_glance_index(s, &at);
        else if (str_eqz(key, "finish_reason"))
            good = read_finish(l, finish);
        else if (chat && str_eqz(key, "delta"))
            good = read_delta(l, &text);
        else if (chat && str_eqz(key, "message"))
            good = false; /* may stand for a delta */
        else if (!chat && str_eqz(key, "text"))
            good = read_text(l, &text);
        else
            good = pass(l);
    }
    if (!good || at < 0 || at >= OPENAI_N_MAX || (l->out->seen & 1u << at)) return false;
    l->out->seen |= 1u << at;
    l->out->choice = (int)at;
    memcpy(l->out->finish[at], finish, sizeof finish);
    l->n_choices++;
    l->settled &= text;
    return true;
}

static bool read_choices(struct look *l)
{
    int outer;
    bool more;
    if (!json_scan_open(&l->s, '[', &outer)) return false;
    for (;;) {
        if (!json_scan_item(&l->s, outer, &more)) return false;
        if (!more) return true;
        if (!read_choice(l)) return false;
    }
}

static bool read_member(struct look *l, struct str key, bool *choices)
{
    struct json_scan_text t;
    char c = json_scan_peek(&l->s);
    if (str_eqz(key, "choices")) {
        *choices = c == '[';
        return *choices ? read_choices(l) : pass(l);
    }
    if (str_eqz(key, "usage")) {
        l->settled &= c != '{' && c != '[';
        return openai_glance_usage(&l->s, &l->out->usage);
    }
    if (str_eqz(key, "error")) return json_scan_null(&l->s);
    if (!str_eqz(key, "object") || c != '"') return pass(l);
    return json_scan_string(&l->s, &t) && !t.escaped && !str_eqz(t.raw, "error");
}

bool frame_glance(struct str data, enum openai_kind kind, struct frame_glance *out)
{
    struct look l;
    int outer;
    bool more, choices = false;
    struct str key;
    l.kind = kind;
    l.out = out;
    l.n_choices = 0;
    l.settled = true;
    out->seen = 0;
    out->choice = 0;
    out->usage = (struct openai_usage){0};
    json_scan_begin(&l.s, data, DEPTH);
    if (!json_scan_open(&l.s, '{', &outer)) return false;
    for (;;) {
        if (!json_scan_key(&l.s, outer, &key, &more)) return false;
        if (!more) break;
        if (!read_member(&l, key, &choices)) return false;
    }
    out->alike = l.settled && l.n_choices == 1;
    return (choices || out->usage.known) && json_scan_at_end(&l.s);
}
