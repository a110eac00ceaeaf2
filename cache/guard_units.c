/* guard_units.c - folding and cutting: from bytes to units (a word, a run of digits, an identifier, one Chinese character, a
 * symbol). Knows shapes only; what a unit means is guard_text.c's and guard_number.c's matter. */
#include <string.h>

#include "base/buf.h"
#include "cache/guard_text.h"

/* Base letters of U+00C0..U+00FF and U+0100..U+017F, by position; '?' = leave alone. */
static const char latin1_base[] = "aaaaaaaceeeeiiiidnooooo?ouuuuyts"
                                  "aaaaaaaceeeeiiiidnooooo?ouuuuyty";
static const char latin_a_base[] =
    "aaaaaaccccccccddddeeeeeeeeeegggggggghhhhiiiiiiiiiiiijjkkkllllllllll"
    "nnnnnnnnnoooooooorrrrrrssssssssttttttuuuuuuuuuuuuwwyyyzzzzzzs";

static bool is_han(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x3134F) || (c >= 0xF900 && c <= 0xFAFF) || c == 0x3007;
}

static unsigned script_of(uint32_t c)
{
    if (is_han(c)) return GS_HAN;
    if ((c >= 0xA0 && c <= 0xBF && c != 0xAA && c != 0xBA) || c == 0xD7 || c == 0xF7)
        return GS_REST;
    if (c < 0x250 || (c >= 0x1E00 && c <= 0x1EFF)) return GS_LATIN;
    if (c >= 0x370 && c <= 0x3FF) return GS_GREEK;
    if (c >= 0x400 && c <= 0x52F) return GS_CYRILLIC;
    if (c >= 0x590 && c <= 0x5FF) return GS_HEBREW;
    if (c >= 0x600 && c <= 0x77F) return GS_ARABIC;
    if (c >= 0x900 && c <= 0xDFF) return GS_INDIC;
    if (c >= 0xE00 && c <= 0xE7F) return GS_THAI;
    if (c >= 0x3040 && c <= 0x30FF) return GS_KANA;
    if ((c >= 0xAC00 && c <= 0xD7AF) || (c >= 0x1100 && c <= 0x11FF)) return GS_HANGUL;
    return GS_REST;
}

static uint32_t fold_punctuation(uint32_t c)
{
    switch (c) {
    case 0x2018:
    case 0x2019:
    case 0x02BC:
    case 0x0060:
    case 0x00B4:
        return '\'';
    case 0x201C:
    case 0x201D:
    case 0x201E:
    case 0x00AB:
    case 0x00BB:
    case 0x300C:
    case 0x300D:
    case 0x300E:
    case 0x300F:
    case 0x300A:
    case 0x300B:
    case 0x3008:
    case 0x3009:
    case 0x3010:
    case 0x3011:
        return '"';
    case 0x3001:
    case 0x3002:
    case 0x2026:
    case 0x00BF:
    case 0x00A1:
    case 0x00B7:
        return ',';
    case 0x2010:
    case 0x2011:
    case 0x2012:
    case 0x2013:
    case 0x2014:
    case 0x2015:
    case 0x2212:
        return '-';
    case 0x00D7:
        return 'x';
    case 0x00A0:
    case 0x2002:
    case 0x2003:
    case 0x2009:
    case 0x202F:
    case '\t':
    case '\n':
    case '\r':
        return ' ';
    default:
        return c;
    }
}

/* 0 = leave the character out */
static uint32_t fold(const struct guard_lexicon *x, uint32_t c)
{
    if (c >= 0xFF01 && c <= 0xFF5E) c -= 0xFEE0;
    if (c == 0x3000) return ' ';
    if (c >= 'A' && c <= 'Z') return c + 32;
    if (c < 0x80) return fold_punctuation(c);
    if (is_han(c)) return guard_lexicon_simplify(x, c);
    if (c >= 0xC0 && c <= 0xFF)
        return latin1_base[c - 0xC0] == '?' ? fold_punctuation(c) : (uint32_t)latin1_base[c - 0xC0];
    if (c >= 0x100 && c <= 0x17F && c - 0x100 < sizeof latin_a_base - 1)
        return (uint32_t)latin_a_base[c - 0x100];
    if (c >= 0x391 && c <= 0x3A9) return c + 0x20;
    if (c >= 0x410 && c <= 0x42F) return c + 0x20;
    if (c >= 0x400 && c <= 0x40F) return c + 0x50;
    if ((c >= 0x300 && c <= 0x36F) || (c >= 0x200B && c <= 0x200F) || c == 0xFEFF || c == 0xAD ||
        (c >= 0xFE00 && c <= 0xFE0F))
        return 0;
    if (c >= 0x1F000 || (c >= 0x2600 && c <= 0x27BF)) return ' '; /* pictographs */
    return fold_punctuation(c);
}

/* A bit per byte of the folded text. */
struct marks {
    unsigned char bits[sizeof((struct guard_text *)0)->folded / 8 + 1];
};

static void mark(struct marks *m, size_t at)
{
    m->bits[at / 8] |= (unsigned char)(1u << (at % 8));
}

static bool is_marked(const struct marks *m, size_t at)
{
    return m->bits[at / 8] >> (at % 8) & 1;
}

static bool is_accented(uint32_t c)
{
    return (c >= 0xC0 && c <= 0x17F && c != 0xD7 && c != 0xF7) || (c >= 0x300 && c <= 0x36F);
}

/* The folded text, where a capital stood, and where an accent did. */
static void fold_all(struct guard_text *t, const struct guard_lexicon *x, struct str text,
                     struct marks *capitals, struct marks *accents)
{
    while (text.n) {
        uint32_t c;
        size_t n = utf8_decode(text, &c);
        if (!n) {
            text = str_sub(text, 1, text.n);
            continue;
        }
        bool capital =
            (c >= 'A' && c <= 'Z') || (c >= 0xFF21 && c <= 0xFF3A) || (c >= 0xC0 && c <= 0xDE);
        size_t emoticon = guard_emoticon(text, t->folded_n ? t->folded[t->folded_n - 1] : ' ');
        if (emoticon) { /* decorates; guard_signs.c compares it */
            n = emoticon;
            c = ' ';
        }
        bool accented = is_accented(c);
        text = str_sub(text, n, text.n);
        if (!(c = fold(x, c))) {
            if (accented && t->folded_n) mark(accents, t->folded_n - 1);
            continue;
        }
        char bytes[4];
        size_t m = utf8_encode(c, bytes);
        if (t->folded_n + m > sizeof t->folded) {
            t->too_long = true;
            return;
        }
        memcpy(t->folded + t->folded_n, bytes, m);
        if (capital) mark(capitals, t->folded_n);
        if (accented) mark(accents, t->folded_n);
        t->folded_n += m;
    }
}

static bool alpha(char c)
{
    return c >= 'a' && c <= 'z';
}
static bool digit(char c)
{
    return c >= '0' && c <= '9';
}
static bool alnum(char c)
{
    return alpha(c) || digit(c);
}

static void emit(struct guard_text *t, struct str text, enum guard_unit_kind kind,
                 bool clause_start, bool capital)
{
    if (!text.n) return;
    if (t->n_units == GUARD_UNITS_MAX) {
        t->too_long = true;
        return;
    }
    t->units[t->n_units++] = (struct guard_unit){
        .text = text, .kind = (uint8_t)kind, .clause_start = clause_start, .capital = capital};
}

struct shape {
    size_t letters, digits, dots, slashes, hyphens,
        others; /* others: @ _ : = & + # ~ and the like */
    bool scheme, at;
};

static struct shape shape_of(struct str s)
{
    struct shape h = {0};
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (alpha(c))
            h.letters++;
        else if (digit(c))
            h.digits++;
        else if (c == '.')
            h.dots++;
        else if (c == '/')
            h.slashes++;
        else if (c == '-')
            h.hyphens++;
        else if (c == ',' || c == '\'' || c == '%')
            continue;
        else {
            h.others++;
            if (c == '@') h.at = true;
        }
    }
    h.scheme = str_find(s, STR("://")) > 0 || str_starts(s, STR("www."));
    return h;
}

static bool behind_preposition(const struct guard_text *t)
{
    static const char *const before[] = {"in",  "the", "with", "using", "of",
                                         "for", "a",   "an",   "to",    "from"};
    for (size_t i = 0; t->n_units && i < sizeof before / sizeof *before; i++)
        if (str_eqz(t->units[t->n_units - 1].text, before[i])) return true;
    return false;
}

/* US, IT, WHO are names where us, it, who are grammar. Shouted texts have no small letter and are read as usual. */
static struct str name_in_capitals(const struct guard_text *t, struct str s, bool capitals)
{
    if (str_eqz(s, "us") &&
        (capitals || (t->n_units && str_eqz(t->units[t->n_units - 1].text, "the"))))
        return STR("usa");
    return capitals && (str_eqz(s, "it") || str_eqz(s, "who")) ? s : (struct str){"", 0};
}

/* can't -> can, not; john's -> john; else the word without apostrophes */
static void emit_word(struct guard_text *t, const struct guard_lexicon *x, struct str s, bool start,
                      bool capital)
{
    struct str whole = guard_lexicon_contraction(x, s), piece;
    if (s.n == 1 && (capital || behind_preposition(t)))
        whole.n = 0; /* the language R, the y axis */
    if (whole.n) {
        while (str_next(&whole, ' ', &piece)) {
            emit(t, piece, GU_WORD, start, capital);
            if (t->n_units) t->units[t->n_units - 1].contracted = !start;
            start = false;
        }
        return;
    }
    bool owner = str_ends(s, STR("'s"));
    if (owner) s.n -= 2;
    ptrdiff_t at;
    while ((at = str_find_char(s, '\'')) >= 0) {
        emit(t, str_sub(s, 0, (size_t)at), GU_WORD, start, capital);
        s = str_sub(s, (size_t)at + 1, s.n);
        start = false;
    }
    emit(t, s, GU_WORD, start, capital);
    if (owner && t->n_units) t->units[t->n_units - 1].owner = true;
}

/* "14-day", "wi-fi", "and/or": pieces of their own; hyphens with letters and digits on one side are codes ("abc-123"). */
static bool splits(struct str s)
{
    struct str piece;
    while (str_next(&s, '-', &piece)) {
        struct shape h = shape_of(piece);
        if ((h.letters && h.digits) || h.dots || h.others || !piece.n) return false;
    }
    return true;
}

static void emit_run(struct guard_text *t, const struct guard_lexicon *x, struct str s, bool start,
                     bool capital);

static void emit_pieces(struct guard_text *t, const struct guard_lexicon *x, struct str s, char sep,
                        bool start, bool capital)
{
    struct str piece;
    while (str_next(&s, sep, &piece)) {
        emit_run(t, x, piece, start, capital);
        start = false;
    }
}

/* "5kg", "3pm", "1st", "10k": digits, then letters that are a unit, a clock half, an ordinal's end or a multiplier */
static bool number_with_suffix(const struct guard_lexicon *x, struct str s, size_t *digits)
{
    size_t n = 0;
    while (n < s.n && (digit(s.p[n]) || ((s.p[n] == '.' || s.p[n] == ',' || s.p[n] == ':') &&
                                         n + 1 < s.n && digit(s.p[n + 1]))))
        n++;
    struct str suffix = str_sub(s, n, s.n);
    *digits = n;
    if (!n || !suffix.n) return false;
    for (size_t i = 0; i < suffix.n; i++)
        if (!alpha(suffix.p[i])) return false;
    if (str_eqz(suffix, "k") || str_eqz(suffix, "x") || str_eqz(suffix, "st") ||
        str_eqz(suffix, "nd") || str_eqz(suffix, "rd") || str_eqz(suffix, "th"))
        return true;
    const struct guard_word *w = guard_lexicon_find(x, suffix);
    return w && (w->classes & (GC_UNIT | GC_CLOCK | GC_CURRENCY)) &&
           !str_eqz(suffix, "g"); /* 5g is a network as often as a weight */
}

static void emit_mixed(struct guard_text *t, const struct guard_lexicon *x, struct str s,
                       bool start, bool capital)
{
    size_t n;
    if (number_with_suffix(x, s, &n)) {
        emit(t, str_sub(s, 0, n), GU_DIGITS, start, false);
        emit(t, str_sub(s, n, s.n), GU_WORD, false, false);
    } else if (str_find_char(s, '-') > 0 && digit(s.p[0]) && splits(s)) {
        emit_pieces(t, x, s, '-', start, capital);
    } else {
        emit(t, s, GU_IDENT, start, capital);
    }
}

static void emit_digits(struct guard_text *t, const struct guard_lexicon *x, struct str s,
                        struct shape h, bool start)
{
    if (h.others && str_find_char(s, ':') < 0) {
        emit(t, s, GU_IDENT, start, false); /* 2+2, 3*4 */
    } else if (h.hyphens == 1 && !h.dots && !h.slashes && !h.others) {
        emit_pieces(t, x, s, '-', start, false); /* 3-5 */
    } else if (s.p[s.n - 1] == '%') {
        emit(t, str_sub(s, 0, s.n - 1), GU_DIGITS, start, false);
        emit(t, STR("percent"), GU_WORD, false, false);
    } else {
        emit(t, s, GU_DIGITS, start,
             false); /* plain, grouped, time, date; guard_number.c tells them apart */
    }
}

static void emit_run(struct guard_text *t, const struct guard_lexicon *x, struct str s, bool start,
                     bool capital)
{
    if (!s.n) return;
    struct shape h = shape_of(s);
    if (h.scheme || h.at) {
        emit(t, s, GU_IDENT, start, capital);
    } else if (guard_lexicon_contraction(x, s).n) {
        emit_word(t, x, s, start, capital);
    } else if (!h.letters) {
        emit_digits(t, x, s, h, start);
    } else if (h.digits) {
        emit_mixed(t, x, s, start, capital);
    } else if (h.others) {
        emit(t, s, GU_IDENT, start, capital); /* c++, snake_case, at&t */
    } else if (h.dots && h.letters == h.dots + 1) {
        char *p = t->pool + t->pool_n; /* p.m, u.s: initials */
        if (t->pool_n + h.letters > sizeof t->pool) return;
        size_t n = 0;
        for (size_t i = 0; i < s.n; i++)
            if (s.p[i] != '.') p[n++] = s.p[i];
        t->pool_n += n;
        struct str name = name_in_capitals(t, (struct str){p, n}, capital);
        bool dot_follows = s.p + s.n < t->folded + t->folded_n && s.p[s.n] == '.';
        if (!capital && !dot_follows && !guard_lexicon_find(x, (struct str){p, n})) {
            emit(t, s, GU_IDENT, start, false); /* a.b of a program, not p.o. */
            return;
        }
        emit_word(t, x, name.n ? name : (struct str){p, n}, start, capital);
    } else if (h.dots || h.slashes > 1) {
        emit(t, s, GU_IDENT, start, capital); /* node.js, report.pdf, a/b/c */
    } else if (h.slashes) {
        emit_pieces(t, x, s, '/', start, capital);
    } else if (h.hyphens) {
        emit_pieces(t, x, s, '-', start, capital);
    } else {
        emit_word(t, x, s, start, capital);
    }
}

static bool inner(char c) /* may stand inside a run */
{
    return c && strchr("._@:/-+#%&=?~'\\,*^|", c) != NULL;
}

/* End of the run that starts at i: ASCII letters and digits, joined by connectors that have one on both sides. */
static size_t run_end(const struct guard_text *t, size_t i)
{
    size_t j = i;
    while (j < t->folded_n) {
        char c = t->folded[j], next = j + 1 < t->folded_n ? t->folded[j + 1] : 0;
        if (alnum(c))
            j++;
        else if (c == '%' && j > i && digit(t->folded[j - 1]))
            return j + 1;
        else if (c == ',' && !(j > i && digit(t->folded[j - 1]) && digit(next)))
            break;
        else if (c == '?' && str_find((struct str){t->folded + i, j - i}, STR("://")) < 0)
            break;
        else if ((c == '+' || c == '#') && j == i + 1 && alpha(t->folded[i]) && !alnum(next))
            j++; /* c#, c+(+) */
        else if (c == '+' && j == i + 2 && t->folded[j - 1] == '+')
            return j + 1;
        else if (inner(c) && (alnum(next) || (next == '/' && (c == '/' || c == ':'))))
            j++;
        else
            break;
    }
    return j;
}

static size_t read_other(struct guard_text *t, size_t i, bool start)
{
    uint32_t c;
    struct str rest = {t->folded + i, t->folded_n - i};
    size_t n = utf8_decode(rest, &c);
    if (is_han(c)) {
        emit(t, str_sub(rest, 0, n), GU_HAN, start, false);
        return n;
    }
    unsigned script = script_of(c);
    if (script == GS_REST) {
        emit(t, str_sub(rest, 0, n), GU_SYMBOL, start,
             false); /* € and the like; guard_text.c keeps those it knows */
        return n;
    }
    size_t end = n;
    while (end < rest.n) {
        uint32_t d;
        size_t m = utf8_decode(str_sub(rest, end, rest.n), &d);
        if (!m || d < 0x80 || script_of(d) != script || script == GS_KANA) break;
        end += m;
    }
    emit(t, str_sub(rest, 0, end), GU_OTHER, start, false);
    return end;
}

static bool between_hans(const struct guard_text *t, size_t i)
{
    uint32_t next = 0;
    struct str rest = {t->folded + i + 1, t->folded_n - i - 1};
    return t->n_units && t->units[t->n_units - 1].kind == GU_HAN && utf8_decode(rest, &next) &&
           is_han(next);
}

static void note_writing(struct guard_text *t, struct guard_unit *u, const struct marks *accents)
{
    if (u == t->units) t->writer_minds_case = u->capital;
    if (u->text.p < t->folded || u->text.p >= t->folded + t->folded_n) return;
    for (size_t i = 0; i < u->text.n; i++)
        u->accented = u->accented || is_marked(accents, (size_t)(u->text.p - t->folded) + i);
}

void guard_units_read(struct guard_text *t, const struct guard_lexicon *x, struct str text)
{
    struct marks capitals = {{0}}, accents = {{0}};
    fold_all(t, x, text, &capitals, &accents);
    bool start = true, small_letters = false;
    size_t i = 0;
    for (size_t k = 0; k < t->folded_n && !small_letters; k++)
        small_letters = alpha(t->folded[k]) && !is_marked(&capitals, k);
    while (i < t->folded_n && !t->too_long) {
        char c = t->folded[i];
        size_t before = t->n_units;
        if (alnum(c)) {
            size_t end = run_end(t, i);
            t->scripts |= alpha(c) ? GS_LATIN : 0;
            bool caps = small_letters && is_marked(&capitals, i) && is_marked(&capitals, end - 1);
            struct str name = name_in_capitals(t, (struct str){t->folded + i, end - i}, caps);
            if (name.n)
                emit(t, name, str_eqz(name, "usa") ? GU_WORD : GU_IDENT, start, true);
            else
                emit_run(t, x, (struct str){t->folded + i, end - i}, start,
                         is_marked(&capitals, i));
            i = end;
        } else if ((unsigned char)c >= 0x80) {
            uint32_t cp = 0;
            if (utf8_decode((struct str){t->folded + i, t->folded_n - i}, &cp) &&
                script_of(cp) != GS_REST)
                t->scripts |= script_of(cp);
            i += read_other(t, i, start);
        } else if (c == '$' || c == '=' || c == '<' || c == '>' || c == '^' || c == '+' ||
                   (c == '%' && i)) {
            emit(t, (struct str){t->folded + i, 1}, GU_SYMBOL, start, false);
            i++;
        } else {
            if (c == ' ' && between_hans(t, i))
                start = true; /* in Chinese a blank stands for a comma */
            if (c == '?' && t->n_units) t->units[t->n_units - 1].question_end = true;
            if (strchr(",.;:!?()[]{}\"", c)) start = true;
            bool sign = c == '-' && i + 1 < t->folded_n && digit(t->folded[i + 1]) &&
                        (!i || t->folded[i - 1] == ' ');
            if (sign) emit(t, STR("minus"), GU_WORD, start, false);
            i++;
        }
        for (size_t k = before; k < t->n_units; k++)
            note_writing(t, &t->units[k], &accents);
        if (t->n_units > before) start = false;
    }
}
