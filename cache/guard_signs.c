/* guard_signs.c - a guard over signs that are no words: brackets and operators of a calculation, arrows, a dot, dash or slash before a
 * name (.net, -a, /etc), a factorial, pictographs. They are read from the text as it came, for folding drops them. Punctuation of prose
 * does not count, nor a pictograph against none: it decorates. Refuses as "identifier". Pure. */
#include <string.h>

#include "cache/guard_rules.h"

enum { CODES_MAX = GUARD_TEXT_BYTES_MAX, SIGNS_BYTES_MAX = 2 * GUARD_TEXT_BYTES_MAX };
struct codes {
    uint32_t at[CODES_MAX + 2]; /* a blank before the first and behind the last */
    size_t n;
};
struct signs {
    char bytes[SIGNS_BYTES_MAX];
    size_t n;
};

/* :-) =( ;P <3 :D, alone between blanks */
size_t guard_emoticon(struct str s, char before)
{
    size_t n = 0;
    if (!s.n || (s.p[0] >= 'a' && s.p[0] <= 'w')) return 0; /* most of them */
    if (before != ' ' && before != '.' && before != '!' && before != '?' && before != ',') return 0;
    if (s.n >= 2 && s.p[0] == '<' && s.p[1] == '3') {
        n = 2;
    } else if (s.n >= 2 && strchr(":;=8xX", s.p[0])) {
        bool nose = s.n >= 3 && strchr("-^'o", s.p[1]);
        n = nose ? 2 : 1;
        bool letter = strchr("8xX", s.p[0]) != NULL;
        if (!strchr(letter ? "()" : nose || s.p[0] != '=' ? "()DPpO|/\\]>*o" : "()DP", s.p[n]))
            return 0;
        n++;
    }
    bool alone = n && (n == s.n || strchr(" \t\n.,!?)", s.p[n]));
    return alone ? n : 0;
}

static bool is_digit(uint32_t c)
{
    return c >= '0' && c <= '9';
}
static bool is_letter(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static bool is_alnum(uint32_t c)
{
    return is_digit(c) || is_letter(c);
}
/* Most of what there is, and never a sign. */
static bool is_prose(uint32_t c)
{
    return c == ' ' || is_alnum(c) || (c >= 0x3400 && c <= 0x9FFF);
}
static bool is_one_of(uint32_t c, const char *signs)
{
    return c && c < 0x80 && strchr(signs, (int)c);
}

static void read_codes(struct codes *out, struct str text)
{
    out->at[0] = ' ';
    out->n = 1;
    while (text.n && out->n <= CODES_MAX) {
        uint32_t c;
        size_t n = utf8_decode(text, &c);
        text = str_sub(text, n ? n : 1, text.n);
        if (!n) continue;
        if (c >= 0xFF01 && c <= 0xFF5E) c -= 0xFEE0;
        if (c == 0x3000 || c == 0xA0 || c == '\t' || c == '\r' || c == '\n') c = ' ';
        out->at[out->n++] = c == 0x2212 ? '-' : c;
    }
    out->at[out->n] = ' ';
}

/* Division, plus-minus, powers, fractions, arrows, operators of mathematics. */
static bool is_mathematical(uint32_t c)
{
    return c == 0xF7 || c == 0xB1 || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2044 ||
           (c >= 0xBC && c <= 0xBE) || (c >= 0x2070 && c <= 0x209F) || (c >= 0x2190 && c <= 0x22FF);
}

static bool is_pictograph(uint32_t c)
{
    return (c >= 0x1F000 && !(c >= 0x1F3FB && c <= 0x1F3FF) && c < 0x20000) ||
           (c >= 0x2600 && c <= 0x27BF);
}

/* "10 - 5", "a && b", anything with an operator: then brackets and dashes are part of what is asked. */
static bool calculates(const struct codes *t)
{
    for (size_t i = 1; i < t->n; i++) {
        uint32_t c = t->at[i], before = t->at[i - 1], after = t->at[i + 1];
        if (is_prose(c)) continue;
        if (is_one_of(c, "=+*^<>|") || is_mathematical(c) || (c == '&' && after == '&'))
            return true;
        if (is_one_of(c, "-/") && before == ' ' && after == ' ' && i > 1 && i + 2 < t->n &&
            is_alnum(t->at[i - 2]) && is_digit(t->at[i + 2]))
            return true;
    }
    return false;
}

static bool counts(const struct codes *t, size_t i, bool math)
{
    uint32_t c = t->at[i], before = t->at[i - 1], after = t->at[i + 1];
    if (math && is_one_of(c, "-/")) return !is_alnum(before) || !is_alnum(after);
    if (math && is_one_of(c, "()[]{}=+*^<>|&!~")) return true;
    if (c == '!') return is_digit(before) || (before == ' ' && is_letter(after));
    if (c == '\\') return is_letter(after);
    if (c == '~') return before == ' ' && is_alnum(after);
    return is_one_of(c, ".-/@#") && before == ' ' && is_letter(after);
}

static void add(struct signs *s, uint32_t c)
{
    if (s->n + 4 <= sizeof s->bytes) s->n += utf8_encode(c, s->bytes + s->n);
}

static void read_signs(struct str text, struct signs *signs, struct signs *pictures)
{
    struct codes t;
    read_codes(&t, text);
    bool math = calculates(&t);
    signs->n = pictures->n = 0;
    char before = ' ';
    for (size_t i = 0; i < text.n; before = text.p[i], i++)
        for (size_t n = guard_emoticon(str_sub(text, i, text.n), before); n; n--, i++)
            add(pictures, (unsigned char)text.p[i]);
    for (size_t i = 1; i < t.n; i++) {
        if (is_prose(t.at[i])) continue;
        if (is_pictograph(t.at[i]))
            add(pictures, t.at[i]);
        else if (is_mathematical(t.at[i]) || counts(&t, i, math))
            add(signs, t.at[i]);
    }
}

static struct str view(const struct signs *s)
{
    return s->n ? (struct str){s->bytes, s->n} : guard_none;
}

static bool equal(const struct signs *a, const struct signs *b)
{
    return a->n == b->n && !memcmp(a->bytes, b->bytes, a->n);
}

bool guard_signs_differ(struct comparison *c)
{
    struct signs a, b, pictures_a, pictures_b;
    read_signs(c->text_a, &a, &pictures_a);
    read_signs(c->text_b, &b, &pictures_b);
    bool differ = !equal(&a, &b);
    if (!differ && (!pictures_a.n || !pictures_b.n || equal(&pictures_a, &pictures_b)))
        return false;
    return guard_refuse_hard(c->out, "identifier", view(differ ? &a : &pictures_a),
                             view(differ ? &b : &pictures_b));
}
