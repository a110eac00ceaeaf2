/* regex_parse.c - reads a regular expression. Recursion is bounded by DEPTH_MAX groups, nodes and sets by regex_tree.h. */
#include <string.h>

#include "base/mem.h"
#include "engine/grammar/regex_tree.h"

enum { DEPTH_MAX = 100 };

struct parser {
    struct regex_tree *t;
    struct str text;
    size_t at;
    int depth;
    struct errmsg *e;
};

static enum err refuse(struct parser *p, enum err code, const char *what)
{
    return err_set(p->e, code, "regular expression, at byte %zu: %s", p->at, what);
}

static bool done(const struct parser *p)
{
    return p->at >= p->text.n;
}
static bool next_is(const struct parser *p, const char *s)
{
    return str_starts(str_sub(p->text, p->at, p->text.n), str_of(s));
}
static bool take(struct parser *p, const char *s)
{
    if (!next_is(p, s)) return false;
    p->at += strlen(s);
    return true;
}

static enum err take_char(struct parser *p, uint32_t *c)
{
    size_t n = utf8_decode(str_sub(p->text, p->at, 4), c);
    if (!n) return refuse(p, ERR_INVALID, "not UTF-8");
    p->at += n;
    return OK;
}

static enum err add_node(struct parser *p, struct regex_node node, int *out)
{
    struct regex_tree *t = p->t;
    if (t->n == REGEX_NODES_MAX) return refuse(p, ERR_TOO_LARGE, "the expression is too long");
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 32;
        t->node = xrealloc(t->node, (size_t)t->cap * sizeof *t->node);
    }
    t->node[ *out = t->n++] = node;
    return OK;
}

static enum err add_set(struct parser *p, struct charset *set, int *out)
{
    struct regex_tree *t = p->t;
    charset_tidy(set);
    if (set->failed) return refuse(p, ERR_TOO_LARGE, "a class of too many ranges");
    if (t->n_sets == REGEX_SETS_MAX)
        return refuse(p, ERR_TOO_LARGE, "too many classes of characters");
    if (t->n_sets == t->cap_sets) {
        t->cap_sets = t->cap_sets ? 2 * t->cap_sets : 4;
        t->set = xrealloc(t->set, (size_t)t->cap_sets * sizeof *t->set);
    }
    t->set[t->n_sets] = *set;
    return add_node(
        p, (struct regex_node){.kind = REGEX_SET, .set = t->n_sets++, .last = -1, .previous = -1},
        out);
}

/* --- escapes */
/* \d \w \s and their opposites; false: c is none of them. inverted: in a class that begins with ^. */
static bool class_escape(uint32_t c, bool inverted, struct charset *set)
{
    static const struct char_range digits[] = {{'0', '9'}},
                                   word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                                   space[] = {{'\t', '\r'}, {' ', ' '}},
                                   more_space[] = {{0xA0, 0xA0},     {0x1680, 0x1680},
                                                   {0x2000, 0x200A}, {0x2028, 0x2029},
                                                   {0x202F, 0x202F}, {0x205F, 0x205F},
                                                   {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    struct charset s = {0};
    uint32_t small = c | 0x20;
    const struct char_range *r = small == 'd' ? digits : small == 'w' ? word : space;
    int n = small == 'w' ? 4 : small == 's' ? 2 : 1;
    if (small != 'd' && small != 'w' && small != 's') return false;
    for (int i = 0; i < n; i++)
        charset_add(&s, r[i].lo, r[i].hi);
    /* \s and [^\S] give plain white space only, \S and [^\s] leave out all that ECMA calls white space */
    if (small == 's' && (c == 'S') != inverted)
        for (int i = 0; i < 8; i++)
            charset_add(&s, more_space[i].lo, more_space[i].hi);
    if (c != small) charset_invert(&s);
    charset_add_all(set, &s);
    return true;
}

static enum err hex(struct parser *p, int digits, uint32_t *c)
{
    *c = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        int d = done(p) ? 0 : p->text.p[p->at];
        int v = d >= '0' && d <= '9'                 ? d - '0'
                : (d | 32) >= 'a' && (d | 32) <= 'f' ? (d | 32) - 'a' + 10
                                                     : -1;
        if (v < 0) return refuse(p, ERR_INVALID, "expected a hexadecimal digit");
        *c = *c * 16 + (uint32_t)v;
    }
    return OK;
}

/* After \u: four digits, {digits}, or a pair of surrogates. */
static enum err unicode_escape(struct parser *p, uint32_t *c)
{
    if (take(p, "{")) {
        int n = 0;
        while (n < 7 && p->at + (size_t)n < p->text.n && p->text.p[p->at + (size_t)n] != '}')
            n++;
        enum err code = n && n < 7 ? hex(p, n, c) : refuse(p, ERR_INVALID, "expected \\u{digits}");
        if (code) return code;
        if (!take(p, "}")) return refuse(p, ERR_INVALID, "expected }");
    } else {
        enum err code = hex(p, 4, c);
        uint32_t low;
        if (!code && *c >= 0xD800 && *c < 0xDC00 && take(p, "\\u")) {
            code = hex(p, 4, &low);
            if (!code && low >= 0xDC00 && low <= 0xDFFF)
                *c = 0x10000 + ((*c - 0xD800) << 10) + (low - 0xDC00);
        }
        if (code) return code;
    }
    if (*c > CHARSET_LAST || (*c >= 0xD800 && *c <= 0xDFFF))
        return refuse(p, ERR_INVALID, "no such character");
    return OK;
}

/* After the backslash, when it is no class. */
static enum err char_escape(struct parser *p, bool in_class, uint32_t *c)
{
    static const char names[] = "tnrfv", values[] = "\t\n\r\f\v";
    enum err code = take_char(p, c);
    if (code) return code;
    const char *named = *c < 128 && *c ? strchr(names, (int)*c) : NULL;
    bool letter = (*c | 32) >= 'a' && (*c | 32) <= 'z' && *c < 128;
    if (named) {
        *c = (uint32_t)values[named - names];
    } else if (*c == 'x') {
        return hex(p, 2, c);
    } else if (*c == 'u') {
        return unicode_escape(p, c);
    } else if (*c == '0' && (done(p) || p->text.p[p->at] < '0' || p->text.p[p->at] > '9')) {
        *c = 0;
    } else if (*c == 'b' && in_class) {
        *c = '\b';
    } else if (*c == 'b' || *c == 'B') {
        return refuse(p, ERR_UNSUPPORTED, "word boundaries (\\b) are not supported");
    } else if ((*c >= '0' && *c <= '9') || *c == 'k') {
        return refuse(p, ERR_UNSUPPORTED, "back-references are not supported");
    } else if (*c == 'p' || *c == 'P') {
        return refuse(p, ERR_UNSUPPORTED, "classes by Unicode property (\\p) are not supported");
    } else if (letter) {
        return refuse(p, ERR_UNSUPPORTED, "unknown escape");
    }
    return OK;
}

/* --- classes */
/* One member: a class (*is_class) or a code point. */
static enum err class_member(struct parser *p, bool inverted, struct charset *set, bool *is_class,
                             uint32_t *c)
{
    *is_class = false;
    if (!take(p, "\\")) return take_char(p, c);
    if (done(p)) return refuse(p, ERR_INVALID, "a backslash at the end");
    if (class_escape((unsigned char)p->text.p[p->at], inverted, set)) {
        *is_class = true;
        p->at++;
        return OK;
    }
    return char_escape(p, true, c);
}

static enum err parse_class(struct parser *p, int *out)
{
    struct charset set = {0};
    bool invert = take(p, "^"), is_class, hi_class;
    uint32_t lo, hi;
    if (next_is(p, "]"))
        return refuse(p, ERR_INVALID, "an empty class; write \\] for the bracket itself");
    while (!take(p, "]")) {
        if (done(p)) return refuse(p, ERR_INVALID, "the class is not closed: expected ]");
        enum err code = class_member(p, invert, &set, &is_class, &lo);
        if (code) return code;
        hi = lo;
        bool range = next_is(p, "-") && p->at + 1 < p->text.n && p->text.p[p->at + 1] != ']';
        if (range && !is_class) {
            p->at++;
            code = class_member(p, invert, &set, &hi_class, &hi);
            if (code) return code;
            if (hi_class || hi < lo) return refuse(p, ERR_INVALID, "a range that is none");
        }
        if (!is_class) charset_add(&set, lo, hi);
    }
    if (invert) charset_invert(&set);
    return add_set(p, &set, out);
}

/* --- the rest */
static enum err parse_alternatives(struct parser *p, int *out);

static enum err parse_group(struct parser *p, int *out)
{
    static const struct {
        const char *opening, *what;
    } refused[] = {{"?=", "look-ahead (?=...) is not supported"},
                   {"?!", "look-ahead (?!...) is not supported"},
                   {"?<=", "look-behind (?<=...) is not supported"},
                   {"?<!", "look-behind (?<!...) is not supported"},
                   {"?P=", "back-references are not supported"},
                   {"?>", "atomic groups (?>...) are not supported"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (next_is(p, refused[i].opening)) return refuse(p, ERR_UNSUPPORTED, refused[i].what);
    if (take(p, "?P<") || take(p, "?<")) {
        ptrdiff_t n = str_find_char(str_sub(p->text, p->at, p->text.n), '>');
        if (n < 1) return refuse(p, ERR_INVALID, "the group's name is not closed: expected >");
        p->at += (size_t)n + 1;
    } else if (!take(p, "?:") && next_is(p, "?")) {
        return refuse(p, ERR_UNSUPPORTED, "flags and unknown kinds of groups are not supported");
    }
    if (++p->depth > DEPTH_MAX) return refuse(p, ERR_TOO_LARGE, "groups are nested too deep");
    enum err code = parse_alternatives(p, out);
    p->depth--;
    if (!code && !take(p, ")"))
        return refuse(p, ERR_INVALID, "the group is not closed: expected )");
    return code;
}

static enum err add_leaf(struct parser *p, enum regex_kind kind, uint32_t c, int *out)
{
    return add_node(
        p, (struct regex_node){.kind = kind, .code_point = c, .last = -1, .previous = -1}, out);
}

/* Any character but the end of a line. */
static enum err parse_dot(struct parser *p, int *out)
{
    struct charset set = {0};
    charset_add(&set, '\n', '\n');
    charset_add(&set, '\r', '\r');
    charset_add(&set, 0x2028, 0x2029);
    charset_invert(&set);
    return add_set(p, &set, out);
}

static enum err parse_escape(struct parser *p, int *out)
{
    struct charset set = {0};
    uint32_t c;
    if (done(p)) return refuse(p, ERR_INVALID, "a backslash at the end");
    if (class_escape((unsigned char)p->text.p[p->at], false, &set)) {
        p->at++;
        return add_set(p, &set, out);
    }
    if (take(p, "A")) return add_leaf(p, REGEX_BEGIN, 0, out);
    if (take(p, "Z") || take(p, "z")) return add_leaf(p, REGEX_END, 0, out);
    enum err code = char_escape(p, false, &c);
    return code ? code : add_leaf(p, REGEX_CHAR, c, out);
}

static enum err parse_atom(struct parser *p, int *out)
{
    uint32_t c;
    if (take(p, "(")) return parse_group(p, out);
    if (take(p, "[")) return parse_class(p, out);
    if (take(p, "\\")) return parse_escape(p, out);
    if (take(p, ".")) return parse_dot(p, out);
    if (take(p, "^")) return add_leaf(p, REGEX_BEGIN, 0, out);
    if (take(p, "$")) return add_leaf(p, REGEX_END, 0, out);
    if (next_is(p, "*") || next_is(p, "+") || next_is(p, "?"))
        return refuse(p, ERR_INVALID, "nothing to repeat");
    enum err code = take_char(p, &c);
    return code ? code : add_leaf(p, REGEX_CHAR, c, out);
}

static bool number(struct parser *p, int *out)
{
    size_t from = p->at;
    for (*out = 0; !done(p) && p->text.p[p->at] >= '0' && p->text.p[p->at] <= '9'; p->at++)
        if (*out <= REGEX_REPEAT_MAX) *out = *out * 10 + (p->text.p[p->at] - '0');
    return p->at > from;
}

/* {n} {n,} {n,m}; anything else in braces is plain text. */
static bool braces(struct parser *p, int *min, int *max)
{
    size_t from = p->at;
    bool fine = take(p, "{") && number(p, min);
    *max = *min;
    if (fine && take(p, ",") && !number(p, max)) *max = REGEX_NO_MAX;
    fine = fine && take(p, "}");
    if (!fine) p->at = from;
    return fine;
}

static enum err parse_repeated(struct parser *p, int *out)
{
    int min = 0, max = REGEX_NO_MAX;
    enum err code = parse_atom(p, out);
    if (code) return code;
    if (take(p, "?"))
        max = 1;
    else if (take(p, "+"))
        min = 1;
    else if (!take(p, "*") && !braces(p, &min, &max))
        return OK;
    enum regex_kind kind = p->t->node[*out].kind;
    if (kind == REGEX_BEGIN || kind == REGEX_END)
        return refuse(p, ERR_INVALID, "nothing to repeat");
    if (min > REGEX_REPEAT_MAX || max > REGEX_REPEAT_MAX)
        return refuse(p, ERR_TOO_LARGE, "more than 10000 repetitions");
    if (max != REGEX_NO_MAX && max < min)
        return refuse(p, ERR_INVALID, "the most is below the least");
    take(p, "?"); /* lazy: the same texts match */
    if (next_is(p, "*") || next_is(p, "+") || next_is(p, "?"))
        return refuse(p, ERR_UNSUPPORTED, "a repetition of a repetition");
    return add_node(p,
                    (struct regex_node){
                        .kind = REGEX_REPEAT, .min = min, .max = max, .last = *out, .previous = -1},
                    out);
}

static enum err parse_sequence(struct parser *p, int *out)
{
    int last = -1, part;
    while (!done(p) && !next_is(p, "|") && !next_is(p, ")")) {
        enum err code = parse_repeated(p, &part);
        if (code) return code;
        p->t->node[part].previous = last;
        last = part;
    }
    return add_node(p, (struct regex_node){.kind = REGEX_CAT, .last = last, .previous = -1}, out);
}

static enum err parse_alternatives(struct parser *p, int *out)
{
    int last = -1, part;
    do {
        enum err code = parse_sequence(p, &part);
        if (code) return code;
        p->t->node[part].previous = last;
        last = part;
    } while (take(p, "|"));
    return add_node(p, (struct regex_node){.kind = REGEX_ALT, .last = last, .previous = -1}, out);
}

enum err regex_parse(struct regex_tree *out, struct str pattern, struct errmsg *e)
{
    *out = (struct regex_tree){0};
    struct parser p = {.t = out, .text = pattern, .e = e};
    enum err code = parse_alternatives(&p, &out->root);
    if (!code && !done(&p)) code = refuse(&p, ERR_INVALID, "a ) that closes nothing");
    if (code) regex_tree_fini(out);
    return code;
}

void regex_tree_fini(struct regex_tree *t)
{
    mem_free(t->node);
    mem_free(t->set);
    *t = (struct regex_tree){0};
}
