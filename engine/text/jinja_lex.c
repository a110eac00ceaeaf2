/* jinja_lex.c - see jinja_lex.h. One pass; line ends are made \n first, and one at the very end is dropped. */
#include "engine/text/jinja_lex.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

enum { BRACKETS_MAX = 128 };

struct lexer {
    struct arena *arena;
    struct str s;
    size_t at;
    int line;
    bool line_start; /* the last tag ended with a line end, or nothing has been read yet */
    struct jinja_token *tokens, spill; /* spill takes the token for which there was no memory */
    size_t n, cap;
    struct errmsg *e;
    enum err err;
};

static void fail(struct lexer *x, enum err err, const char *what)
{
    if (!x->err) x->err = err_set(x->e, err, "line %d: %s", x->line, what);
}

static struct jinja_token *add(struct lexer *x, enum jinja_token_kind kind, struct str text)
{
    if (x->n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 256;
        struct jinja_token *t = try_realloc(x->tokens, cap * sizeof *t);
        if (!t) {
            fail(x, ERR_TOO_LARGE, "no memory for the template");
            return &x->spill;
        }
        x->tokens = t;
        x->cap = cap;
    }
    x->tokens[x->n] = (struct jinja_token){.kind = kind, .line = x->line, .text = text};
    return &x->tokens[x->n++];
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}
static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c) ||
           (unsigned char)c >= 0x80;
}

static char peek(const struct lexer *x, size_t ahead)
{
    return x->at + ahead < x->s.n ? x->s.p[x->at + ahead] : 0;
}

static void advance(struct lexer *x, size_t n)
{
    for (; n && x->at < x->s.n; n--)
        x->line += x->s.p[x->at++] == '\n';
}

static void skip_spaces(struct lexer *x)
{
    while (x->at < x->s.n && is_space(x->s.p[x->at]))
        advance(x, 1);
}

/* After a tag: '-' eats all white space, '+' nothing, else one line end where trimming is wanted. */
static void after_tag(struct lexer *x, char sign, bool trim)
{
    size_t from = x->at;
    if (sign == '-')
        skip_spaces(x);
    else if (sign != '+' && trim && peek(x, 0) == '\n')
        advance(x, 1);
    x->line_start = x->at > from && x->s.p[x->at - 1] == '\n';
}

/* Text before a tag; sign is what stands after the tag's opening. strip_line: white space between the line's start and
 * the tag goes. */
static void add_text(struct lexer *x, size_t from, size_t to, char sign, bool strip_line)
{
    struct str t = {x->s.p + from, to - from};
    if (sign == '-') {
        while (t.n && is_space(t.p[t.n - 1]))
            t.n--;
    } else if (sign != '+' && strip_line) {
        size_t start = t.n;
        while (start && t.p[start - 1] != '\n')
            start--;
        size_t i = start;
        while (i < t.n && is_space(t.p[i]))
            i++;
        if (i == t.n && (start > 0 || x->line_start)) t.n = start;
    }
    if (t.n) add(x, JINJA_T_TEXT, t);
}

static char sign_at(const struct lexer *x, size_t ahead)
{
    char c = peek(x, ahead);
    return c == '-' || c == '+' ? c : 0;
}

/* Three digits of octal, two of \x, four of \u, eight of \U. Returns digits read. */
static size_t read_digits(struct str s, size_t at, int base, size_t n_max, uint32_t *out)
{
    size_t n = 0;
    *out = 0;
    for (; n < n_max && at + n < s.n; n++) {
        char c = s.p[at + n];
        int d = is_digit(c)            ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : 99;
        if (d >= base) break;
        *out = *out * (uint32_t)base + (uint32_t)d;
    }
    return n;
}

/* One escape at s[at] == '\\': appends what it stands for, returns its length; unknown ones stay as written. */
static size_t unescape(struct lexer *x, struct str s, size_t at, struct buf *out)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = s.p[at + 1];
    const char *hit = c ? strchr(from, c) : NULL;
    uint32_t code;
    if (c == '\n') return 2;
    if (hit) {
        buf_char(out, to[hit - from]);
        return 2;
    }
    size_t want = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0, n;
    if (want)
        n = read_digits(s, at + 2, 16, want, &code);
    else
        n = read_digits(s, at + 1, 8, 3, &code);
    if (want && n < want) {
        fail(x, ERR_INVALID, "a string has an unfinished \\x, \\u or \\U escape");
        return 2;
    }
    if (n == 0) {
        buf_add(out, s.p + at, 2);
        return 2;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        fail(x, ERR_INVALID, "a string escape is no character");
    else
        buf_utf8(out, code);
    return want ? 2 + n : 1 + n;
}

static void lex_string(struct lexer *x)
{
    char quote = peek(x, 0);
    size_t from = x->at + 1, to = from;
    while (to < x->s.n && x->s.p[to] != quote)
        to += x->s.p[to] == '\\' && to + 1 < x->s.n ? 2 : 1;
    if (to >= x->s.n) {
        fail(x, ERR_INVALID, "a string is not closed");
        return;
    }
    struct str raw = {x->s.p + from, to - from};
    struct buf text;
    buf_init(&text, raw.n + 16);
    for (size_t i = 0; i < raw.n && !x->err;) {
        if (raw.p[i] == '\\')
            i += unescape(x, raw, i, &text);
        else
            buf_char(&text, raw.p[i++]);
    }
    char *kept = arena_strndup(x->arena, text.n ? text.p : "", text.n);
    if (!kept || buf_failed(&text))
        fail(x, ERR_TOO_LARGE, "no memory for the template");
    else
        add(x, JINJA_T_STRING, (struct str){kept, text.n});
    buf_fini(&text);
    advance(x, to + 1 - x->at);
}

static void lex_number(struct lexer *x)
{
    char digits[64];
    size_t n = 0, used = 0;
    bool is_float = false;
    for (;; used++) {
        char c = peek(x, used), next = peek(x, used + 1);
        bool point =
            c == '.' && is_digit(next) && !is_float && !(x->at && x->s.p[x->at - 1] == '.');
        bool exponent =
            (c == 'e' || c == 'E') &&
            (is_digit(next) || ((next == '+' || next == '-') && is_digit(peek(x, used + 2))));
        if (c == '_' && is_digit(next)) continue;
        if (point || exponent)
            is_float = true;
        else if (!is_digit(c) && !((c == '+' || c == '-') && n && (digits[n - 1] | 32) == 'e'))
            break;
        if (n == sizeof digits - 1) {
            fail(x, ERR_INVALID, "a number is too long");
            return;
        }
        digits[n++] = c;
    }
    struct str s = {digits, n};
    struct jinja_token *t = add(x, is_float ? JINJA_T_FLOAT : JINJA_T_INT, (struct str){NULL, 0});
    enum err err = is_float ? str_to_f64(s, &t->f) : str_to_i64(s, INT64_MIN, INT64_MAX, &t->i);
    if (err) fail(x, ERR_INVALID, "a number is out of range");
    advance(x, used);
}

static void lex_operator(struct lexer *x, char *open, int *n_open)
{
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    char c = peek(x, 0);
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++) {
        if (c != two[i][0] || peek(x, 1) != two[i][1]) continue;
        add(x, JINJA_T_OPERATOR, str_of(two[i]));
        advance(x, 2);
        return;
    }
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c)) {
        fail(x, ERR_INVALID, "unexpected character in a tag");
        return;
    }
    if (strchr("([{", c)) {
        if (*n_open == BRACKETS_MAX)
            fail(x, ERR_INVALID, "brackets are nested too deeply");
        else
            open[(*n_open)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (strchr(")]}", c)) {
        if (!*n_open || open[--*n_open] != c)
            fail(x, ERR_INVALID, "a closing bracket has no opening one");
    }
    add(x, JINJA_T_OPERATOR, (struct str){x->s.p + x->at, 1});
    advance(x, 1);
}

/* From behind "{%" or "{{" and its sign to behind the tag's end. */
static void lex_tag(struct lexer *x, bool block)
{
    char open[BRACKETS_MAX];
    int n_open = 0;
    const char close = block ? '%' : '}';
    while (!x->err) {
        skip_spaces(x);
        if (x->at >= x->s.n) {
            fail(x, ERR_INVALID, block ? "a {% tag is not closed" : "a {{ tag is not closed");
            return;
        }
        char sign = peek(x, 0) == '-' || (block && peek(x, 0) == '+') ? peek(x, 0) : 0;
        if (!n_open && peek(x, sign != 0) == close && peek(x, 1 + (sign != 0)) == '}') {
            add(x, block ? JINJA_T_BLOCK_END : JINJA_T_PRINT_END, (struct str){NULL, 0});
            advance(x, 2 + (sign != 0));
            after_tag(x, sign, block);
            return;
        }
        char c = peek(x, 0);
        if (is_digit(c)) {
            lex_number(x);
        } else if (is_name(c)) {
            size_t n = 1;
            while (is_name(peek(x, n)))
                n++;
            add(x, JINJA_T_NAME, (struct str){x->s.p + x->at, n});
            advance(x, n);
        } else if (c == '\'' || c == '"') {
            lex_string(x);
        } else {
            lex_operator(x, open, &n_open);
        }
    }
}

static void lex_comment(struct lexer *x)
{
    struct str rest = {x->s.p + x->at, x->s.n - x->at};
    ptrdiff_t end = str_find(rest, STR("#}"));
    if (end < 0) {
        fail(x, ERR_INVALID, "a {# comment is not closed");
        return;
    }
    char sign = end > 0 ? rest.p[end - 1] : 0;
    advance(x, (size_t)end + 2);
    after_tag(x, sign == '-' || sign == '+' ? sign : 0, true);
}

/* Does "{%" sign spaces WORD spaces close stand `ahead` bytes from here? Returns its length to behind "%}", and the sign
 * before the end. */
static size_t word_tag(const struct lexer *x, size_t ahead, const char *word, char *sign)
{
    size_t i = ahead + 2, n = strlen(word);
    i += sign_at(x, i) != 0;
    while (is_space(peek(x, i)))
        i++;
    if (x->at + i + n > x->s.n || memcmp(x->s.p + x->at + i, word, n)) return 0;
    i += n;
    while (is_space(peek(x, i)))
        i++;
    *sign = sign_at(x, i);
    i += *sign != 0;
    return peek(x, i) == '%' && peek(x, i + 1) == '}' ? i + 2 - ahead : 0;
}

static void lex_raw(struct lexer *x, size_t tag_n, char sign)
{
    advance(x, tag_n);
    after_tag(x, sign, false);
    size_t from = x->at;
    for (size_t i = from; i + 1 < x->s.n; i++) {
        char end_sign;
        if (x->s.p[i] != '{' || x->s.p[i + 1] != '%') continue;
        size_t n = word_tag(x, i - x->at, "endraw", &end_sign);
        if (!n) continue;
        add_text(x, from, i, sign_at(x, i + 2 - x->at), true);
        advance(x, i - x->at + n);
        after_tag(x, end_sign, true);
        return;
    }
    fail(x, ERR_INVALID, "{% raw %} has no {% endraw %}");
}

static void lex_all(struct lexer *x)
{
    size_t from = 0;
    while (!x->err) {
        size_t i = x->at;
        while (i + 1 < x->s.n &&
               !(x->s.p[i] == '{' && strchr("{%#", x->s.p[i + 1]) && x->s.p[i + 1]))
            i++;
        if (i + 1 >= x->s.n) break;
        int line = x->line;
        char kind = x->s.p[i + 1];
        advance(x, i - x->at);
        int tag_line = x->line;
        x->line = line; /* the text token counts from where it starts */
        char sign = sign_at(x, 2), raw_sign = 0;
        add_text(x, from, i, sign, kind != '{');
        x->line = tag_line;
        size_t raw_n = kind == '%' ? word_tag(x, 0, "raw", &raw_sign) : 0;
        if (raw_n) {
            lex_raw(x, raw_n, raw_sign);
        } else if (kind == '#') {
            advance(x, 2 + (sign != 0));
            lex_comment(x);
        } else {
            add(x, kind == '%' ? JINJA_T_BLOCK_BEGIN : JINJA_T_PRINT_BEGIN, (struct str){NULL, 0});
            advance(x, 2 + (sign != 0));
            lex_tag(x, kind == '%');
        }
        from = x->at;
    }
    if (!x->err && from < x->s.n) add_text(x, from, x->s.n, '+', false);
    add(x, JINJA_T_END, (struct str){NULL, 0});
}

enum err jinja_lex(struct arena *arena, struct str source, struct jinja_tokens *out,
                   struct errmsg *e)
{
    *out = (struct jinja_tokens){NULL, 0};
    if (source.n > JINJA_SOURCE_MAX)
        return err_set(e, ERR_TOO_LARGE, "template has %zu bytes, at most %d are read", source.n,
                       JINJA_SOURCE_MAX);
    char *copy = arena_alloc(arena, source.n + 1);
    if (!copy) return err_set(e, ERR_TOO_LARGE, "no memory for the template");
    size_t n = 0;
    for (size_t i = 0; i < source.n; i++) {
        char c = source.p[i];
        if (c == '\r') {
            c = '\n';
            i += i + 1 < source.n && source.p[i + 1] == '\n';
        }
        copy[n++] = c;
    }
    if (n && copy[n - 1] == '\n') n--;
    struct lexer x = {.arena = arena, .s = {copy, n}, .line = 1, .line_start = true, .e = e};
    lex_all(&x);
    if (x.err) {
        mem_free(x.tokens);
        return x.err;
    }
    *out = (struct jinja_tokens){x.tokens, x.n};
    return OK;
}
