/* body_edit.c - see body_edit.h. One pass over the top level: strings and nesting are skipped, members are copied, replaced or
 * left out. */
#include "gateway/body_edit.h"

#include "base/json.h"

enum { EDITS_MAX = 8 };

struct scan {
    struct str s;
    size_t i;
};

static void skip_blanks(struct scan *c)
{
    while (c->i < c->s.n && (c->s.p[c->i] == ' ' || c->s.p[c->i] == '\t' || c->s.p[c->i] == '\n' ||
                             c->s.p[c->i] == '\r'))
        c->i++;
}

static bool skip_string(struct scan *c)
{
    if (c->i >= c->s.n || c->s.p[c->i] != '"') return false;
    for (c->i++; c->i < c->s.n; c->i++) {
        if (c->s.p[c->i] == '\\')
            c->i++;
        else if (c->s.p[c->i] == '"')
            return c->i++, true;
    }
    return false;
}

static bool skip_value(struct scan *c)
{
    int depth = 0;
    while (c->i < c->s.n) {
        char ch = c->s.p[c->i];
        if (ch == '"') {
            if (!skip_string(c)) return false;
            if (!depth) return true;
            continue;
        }
        if (ch == '{' || ch == '[') depth++;
        if (ch == '}' || ch == ']') {
            if (!depth) return true; /* the end of the object around a number or literal */
            if (--depth == 0) return c->i++, true;
        }
        if (!depth && (ch == ',' || ch == ' ' || ch == '\n' || ch == '\t' || ch == '\r'))
            return true;
        c->i++;
    }
    return false;
}

/* key is quoted text as written. An escaped spelling of the name counts too. */
static bool key_is(struct str key, const char *name)
{
    if (str_find_char(key, '\\') < 0) return str_eqz(str_sub(key, 1, key.n - 2), name);
    json_t *v = json_loadb(key.p, key.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    bool same = v && json_is_string(v) && str_eqz(json_str(v), name);
    json_decref(v);
    return same;
}

static void add_missing(struct buf *out, const struct body_edit *edits, const bool *seen, size_t n,
                        bool any)
{
    for (size_t k = 0; k < n; k++) {
        if (seen[k] || !edits[k].add || !edits[k].value.p) continue;
        if (any) buf_char(out, ',');
        buf_printf(out, "\"%s\":", edits[k].name);
        buf_str(out, edits[k].value);
        any = true;
    }
}

static bool members(struct scan *c, struct buf *out, const struct body_edit *edits, size_t n,
                    bool *seen)
{
    bool any = false;
    size_t copied = c->i; /* text from here on has not been written */
    skip_blanks(c);
    while (c->i < c->s.n && c->s.p[c->i] != '}') {
        size_t key_at = c->i;
        if (!skip_string(c)) return false;
        struct str key = {c->s.p + key_at, c->i - key_at};
        skip_blanks(c);
        if (c->i >= c->s.n || c->s.p[c->i++] != ':') return false;
        skip_blanks(c);
        size_t value_at = c->i;
        if (!skip_value(c)) return false;
        size_t value_end = c->i;
        skip_blanks(c);
        bool comma = c->i < c->s.n && c->s.p[c->i] == ',';
        size_t hit = n;
        for (size_t k = 0; k < n && hit == n; k++)
            if (key_is(key, edits[k].name)) hit = k;
        if (hit < n) seen[hit] = true;
        if (hit < n && !edits[hit].value.p) {
            copied = comma ? c->i + 1 : c->i;
        } else {
            if (any) buf_char(out, ',');
            size_t upto = hit < n ? value_at : value_end;
            buf_add(out, c->s.p + copied, upto - copied);
            if (hit < n) buf_str(out, edits[hit].value);
            copied = comma ? c->i + 1 : value_end;
            any = true;
        }
        if (!comma) break;
        c->i++;
        skip_blanks(c);
    }
    add_missing(out, edits, seen, n, any);
    if (c->i >= c->s.n || c->s.p[c->i] != '}') return false;
    buf_add(out, c->s.p + copied, c->s.n - copied);
    return true;
}

enum err body_edit(struct buf *out, struct str json, const struct body_edit *edits, size_t n_edits)
{
    ASSERT(n_edits <= EDITS_MAX);
    bool seen[EDITS_MAX] = {false};
    struct scan c = {json, 0};
    skip_blanks(&c);
    if (c.i >= json.n || json.p[c.i] != '{') return ERR_INVALID;
    c.i++;
    buf_add(out, json.p, c.i);
    if (!members(&c, out, edits, n_edits, seen)) return ERR_INVALID;
    return buf_failed(out) ? ERR_TOO_LARGE : OK;
}

struct str body_member(struct str json, const char *name)
{
    struct scan c = {json, 0};
    struct str found = {0};
    skip_blanks(&c);
    if (c.i >= json.n || json.p[c.i++] != '{') return found;
    for (skip_blanks(&c); c.i < json.n && json.p[c.i] != '}'; skip_blanks(&c)) {
        size_t key_at = c.i;
        if (!skip_string(&c)) break;
        struct str key = {json.p + key_at, c.i - key_at};
        skip_blanks(&c);
        if (c.i >= json.n || json.p[c.i++] != ':') break;
        skip_blanks(&c);
        size_t value_at = c.i;
        if (!skip_value(&c)) break;
        if (key_is(key, name)) found = str_sub(json, value_at, c.i - value_at);
        skip_blanks(&c);
        if (c.i < json.n && json.p[c.i] == ',') c.i++;
    }
    return found;
}
