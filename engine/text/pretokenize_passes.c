/* pretokenize_passes.c - passes that pick some words out of a text and leave the rest to the passes after them, and those that
 * leave characters uncovered. The expression of each stands above it. */
#include <string.h>

#include "engine/text/pretokenize_scan.h"

/* --- sets of characters given by ranges, in rising order */
struct code_range {
    uint32_t first, last;
};
#define IN(ranges, code) in_ranges(ranges, sizeof(ranges) / sizeof(ranges)[0], code)

static bool in_ranges(const struct code_range *r, size_t n, uint32_t code)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (code > r[mid].last)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && code >= r[lo].first;
}

typedef bool in_set(uint32_t code);

/* End of the run of members at i; i itself when there is none. Stray bytes belong to no set. */
static size_t set_run(struct str t, size_t i, in_set *member)
{
    while (i < t.n) {
        uint32_t code;
        size_t n = unicode_next(t, i, &code);
        if (code == UNICODE_INVALID || !member(code)) break;
        i += n;
    }
    return i;
}

/* [set]+ */
static size_t set_match(struct str t, size_t i, in_set *member)
{
    size_t end = set_run(t, i, member);
    return end > i ? end : 0;
}

/* \s?[set]+ */
static size_t spaced_set_match(struct str t, size_t i, in_set *member)
{
    size_t next, end = set_run(t, i, member);
    if (end > i)
        return end; /* also where the first one is white space: \s? takes it, or gives it back */
    if (!(kind_at(t, i, &next) & SPACE)) return 0;
    end = set_run(t, next, member);
    return end > next ? end : 0;
}

/* \s?[kinds]+ */
static size_t spaced_kind_match(struct str t, size_t i, unsigned kinds)
{
    size_t next;
    unsigned k = kind_at(t, i, &next);
    if (k & kinds) return run_end(t, next, kinds, 0);
    if (!(k & SPACE)) return 0;
    size_t end = run_end(t, next, kinds, 0);
    return end > next ? end : 0;
}

/* --- numbers */

size_t pass_number(struct str t, size_t from, size_t i, size_t *retry) /* \p{N} */
{
    (void)from;
    return kind_at(t, i, retry) & NUMBER ? *retry : 0;
}

size_t pass_numbers(struct str t, size_t from, size_t i, size_t *retry) /* \p{N}+ */
{
    (void)from;
    return kind_at(t, i, retry) & NUMBER ? run_end(t, i, NUMBER, 0) : 0;
}

size_t pass_numbers_to_three(struct str t, size_t from, size_t i, size_t *retry) /* \p{N}{1,3} */
{
    (void)from, (void)retry;
    size_t end = pretokenize_three_numbers(t, i);
    return end > i ? end : 0;
}

/* In a piece that pass_numbers has cut: groups of three from the right, so that the first has what is left over. */
size_t pass_numbers_from_right(struct str t, size_t from, size_t i, size_t *retry)
{
    size_t next, n = 0;
    if (!(kind_at(t, i, &next) & NUMBER)) {
        *retry = t.n;
        return 0;
    }
    if (i > from) return pretokenize_three_numbers(t, i);
    for (size_t k = i; k < t.n; k = next, n++)
        kind_at(t, k, &next);
    n = n % 3 ? n % 3 : 3;
    for (; n; n--) {
        kind_at(t, i, &next);
        i = next;
    }
    return i;
}

static bool is_decimal(uint32_t code)
{
    return unicode_class(code) == UC_ND;
}

static bool
is_word_character(uint32_t code) /* \w: letters, marks, decimal digits, connector punctuation */
{
    static const struct code_range connectors[] = {{'_', '_'},       {0x203F, 0x2040},
                                                   {0x2054, 0x2054}, {0xFE33, 0xFE34},
                                                   {0xFE4D, 0xFE4F}, {0xFF3F, 0xFF3F}};
    enum unicode_class c = unicode_class(code);
    return unicode_is_letter(c) || unicode_is_mark(c) || c == UC_ND || IN(connectors, code);
}

/* \d{1,3}(?=(?:\d{3})*\b) cuts a run of digits that no word character follows into groups of three from the right. First the
 * run, then pass_decimal_groups inside it. */
size_t pass_bounded_decimals(struct str t, size_t from, size_t i, size_t *retry)
{
    (void)from;
    size_t end = set_run(t, i, is_decimal);
    if (end == i) return 0;
    uint32_t code = UNICODE_INVALID;
    if (end < t.n) unicode_next(t, end, &code);
    if (code == UNICODE_INVALID || !is_word_character(code)) return end;
    *retry = end;
    return 0;
}

size_t pass_decimal_groups(struct str t, size_t from, size_t i, size_t *retry)
{
    if (i == from && set_run(t, i, is_decimal) < t.n) {
        *retry = t.n;
        return 0;
    }
    return pass_numbers_from_right(t, from, i, retry);
}

size_t pass_ascii_triple(struct str t, size_t from, size_t i, size_t *retry) /* [0-9][0-9][0-9] */
{
    (void)from, (void)retry;
    for (size_t k = i; k < i + 3; k++)
        if (k >= t.n || t.p[k] < '0' || t.p[k] > '9') return 0;
    return i + 3;
}

/* --- lines */

size_t pass_newline(struct str t, size_t from, size_t i, size_t *retry) /* [\r\n] */
{
    (void)from, (void)retry;
    return t.p[i] == '\r' || t.p[i] == '\n' ? i + 1 : 0;
}

size_t pass_newline_run(struct str t, size_t from, size_t i, size_t *retry) /* [^\n]+|[\n]+ */
{
    (void)from, (void)retry;
    bool newline = t.p[i] == '\n';
    while (i < t.n && (t.p[i] == '\n') == newline)
        i++;
    return i;
}

size_t pass_spaces_at_end(struct str t, size_t from, size_t i, size_t *retry) /* \s+$ */
{
    (void)from;
    size_t end = run_end(t, i, SPACE, 0);
    if (end == i) return 0;
    *retry = end;
    return end == t.n ? end : 0;
}

/* --- scripts */

static bool is_kana_or_han(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
}
size_t pass_kana_han(struct str t, size_t from, size_t i, size_t *retry) /* those two, + */
{
    (void)from, (void)retry;
    return set_match(t, i, is_kana_or_han);
}

static bool is_han_or_hangul(uint32_t c)
{
    return (c >= 0x0800 && c <= 0x9FA5) || (c >= 0xAC00 && c <= 0xD7FF);
}
/* [\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+ */
size_t pass_han_hangul(struct str t, size_t from, size_t i, size_t *retry)
{
    (void)from, (void)retry;
    return set_match(t, i, is_han_or_hangul);
}

static bool is_asian(uint32_t c)
{
    static const struct code_range ranges[] = {
        {0x0E40, 0x0EFF}, {0x1000, 0x109F}, {0x1100, 0x11FF}, {0x1780, 0x17FF}, {0x2F00, 0x2FDF},
        {0x3040, 0x30FF}, {0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xA9E0, 0xA9FF}, {0xAA60, 0xAA7F},
        {0xAC00, 0xD7AF}, {0xF900, 0xFAFF}, {0xFF65, 0xFF9F}};
    return IN(ranges, c);
}
size_t pass_asian(struct str t, size_t from, size_t i,
                  size_t *retry) /* scripts without spaces, + */
{
    (void)from, (void)retry;
    return set_match(t, i, is_asian);
}

static bool is_hangul(uint32_t c)
{
    return (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0x3131 && c <= 0x318E);
}
static bool is_wide_mark(uint32_t c)
{
    static const struct code_range ranges[] = {
        {0x2014, 0x2014}, {0x2018, 0x2019}, {0x201C, 0x201D}, {0x2026, 0x2026}, {0x3001, 0x303F},
        {0xFE30, 0xFE4F}, {0xFF01, 0xFF01}, {0xFF0C, 0xFF0C}, {0xFF1A, 0xFF1B}};
    return IN(ranges, c);
}
static bool is_bopomofo(uint32_t c)
{
    return c >= 0x3105 && c <= 0x312F;
}
/* A run of one of these sets, the first that matches. */
size_t pass_scripts_youtu(struct str t, size_t from, size_t i, size_t *retry)
{
    (void)from, (void)retry;
    in_set *const sets[] = {is_hangul, is_wide_mark, is_bopomofo, is_kana_or_han};
    size_t end = 0;
    for (size_t k = 0; k < sizeof sets / sizeof sets[0] && !end; k++)
        end = set_match(t, i, sets[k]);
    return end;
}

/* --- DeepSeek's first models */

static bool is_cased_letter(uint32_t c)
{
    static const struct code_range ranges[] = {
        {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},
        {0xD8, 0xF6},       {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},
        {0x295, 0x2AF},     {0x370, 0x373},     {0x376, 0x377},     {0x37B, 0x37D},
        {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},     {0x38C, 0x38C},
        {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},     {0x48A, 0x52F},
        {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
        {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},
        {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},
        {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},
        {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
        {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
        {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},
        {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},
        {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
        {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
        {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},
        {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},
        {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
        {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},
        {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
        {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943}};
    return IN(ranges, c);
}
/* \s?[those]+ */
size_t pass_deepseek_letters(struct str t, size_t from, size_t i, size_t *retry)
{
    (void)from, (void)retry;
    return spaced_set_match(t, i, is_cased_letter);
}

static bool is_deepseek_mark(uint32_t c)
{
    static const struct code_range ranges[] = {{0x21, 0x2F},     {0x3A, 0x7E},
                                               {0x2018, 0x201F}, {0x3000, 0x3002},
                                               {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E}};
    return IN(ranges, c);
}
/* \s?[!-/:-~..]+ ; the ideographic space is one of them */
size_t pass_deepseek_marks(struct str t, size_t from, size_t i, size_t *retry)
{
    (void)from, (void)retry;
    return spaced_set_match(t, i, is_deepseek_mark);
}

size_t pass_letters(struct str t, size_t from, size_t i, size_t *retry) /* \s?\p{L}+ */
{
    (void)from, (void)retry;
    return spaced_kind_match(t, i, LETTER);
}

size_t pass_puncts(struct str t, size_t from, size_t i, size_t *retry) /* \s?\p{P}+ */
{
    (void)from, (void)retry;
    return spaced_kind_match(t, i, PUNCT);
}

/* --- DeepSeek V3 and its followers */

static bool is_ascii_letter(struct str t, size_t i)
{
    return i < t.n && ((t.p[i] >= 'A' && t.p[i] <= 'Z') || (t.p[i] >= 'a' && t.p[i] <= 'z'));
}

/* [!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]* . *symbols: it was the last of these,
 * without the line ends. 0 when nothing matches. */
static size_t deepseek3_word(struct str t, size_t i, bool *symbols)
{
    size_t next, after;
    unsigned k = kind_at(t, i, &next), k2;
    *symbols = false;
    if ((unsigned char)t.p[i] < 0x80 && k & (PUNCT | SYMBOL) && is_ascii_letter(t, next)) {
        while (is_ascii_letter(t, next))
            next++;
        return next;
    }
    if (k & (LETTER | MARK)) return run_end(t, i, LETTER | MARK, 0);
    k2 = kind_at(t, next, &after);
    if (!(k & (NEWLINE | PUNCT | SYMBOL)) && k2 & (LETTER | MARK))
        return run_end(t, next, LETTER | MARK, 0);
    *symbols = true;
    if (k & (PUNCT | SYMBOL)) return run_end(t, i, PUNCT | SYMBOL, 0);
    if (t.p[i] == ' ' && k2 & (PUNCT | SYMBOL)) return run_end(t, next, PUNCT | SYMBOL, 0);
    return 0;
}

/* the above, [\r\n]* after symbols, then |\s*[\r\n]+|\s+(?!\S)|\s+ */
size_t pass_deepseek3(struct str t, size_t from, size_t i, size_t *retry)
{
    (void)from;
    bool symbols;
    size_t end = deepseek3_word(t, i, &symbols);
    if (end) return symbols ? run_end(t, end, NEWLINE, 0) : end;
    if (!(kind_at(t, i, retry) & SPACE)) return 0;
    end = pretokenize_spaces_to_newline(t, i);
    return end ? end : pretokenize_spaces(t, i, 0);
}

/* the above, then |[\r\n]|\s+(?!\S)|\s+ */
size_t pass_spark(struct str t, size_t from, size_t i, size_t *retry)
{
    (void)from;
    bool symbols;
    size_t end = deepseek3_word(t, i, &symbols);
    if (end) return end;
    unsigned k = kind_at(t, i, retry);
    if (k & NEWLINE) return *retry;
    return k & SPACE ? pretokenize_spaces(t, i, 0) : 0;
}

/* --- others */

size_t pass_falcon_marks(struct str t, size_t from, size_t i,
                         size_t *retry) /* [\p{P}\$\+<=>\^~\|`]+ */
{
    (void)from, (void)retry;
    size_t end = i, next;
    for (unsigned k; (k = kind_at(t, end, &next)) & (PUNCT | SYMBOL); end = next)
        if (!(k & PUNCT) && (unsigned char)t.p[end] >= 0x80)
            break; /* of the symbols those in ASCII */
    return end > i ? end : 0;
}

static bool is_bloom_word(uint32_t c)
{
    static const uint32_t not [] = {'(',   ')',   '|',   '.',    ',',    '!',    '?',
                                    0x60C, 0x6D4, 0x964, 0x2026, 0x3001, 0x3002, 0xFF0C};
    for (size_t i = 0; i < sizeof not / sizeof not [0]; i++)
        if (c == not [i]) return false;
    return !unicode_is_space(c);
}
/*  ?[^(\s|.,!?..)]+ : the parentheses and the bar are members of the set, whatever was meant. Stray bytes count as words. */
size_t pass_bloom(struct str t, size_t from, size_t i, size_t *retry)
{
    (void)from, (void)retry;
    size_t start = t.p[i] == ' ' ? i + 1 : i, end = start;
    while (end < t.n) {
        uint32_t code;
        size_t n = unicode_next(t, end, &code);
        if (code != UNICODE_INVALID && !is_bloom_word(code)) break;
        end += n;
    }
    return end > start ? end : 0;
}
