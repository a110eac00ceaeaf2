/* pretokenize_words.c - scanners that cover a text by themselves. The expression of each stands above it; alternatives are tried
 * in its order, and where it backtracks the comment says what that comes to. */
#include "engine/text/pretokenize_scan.h"

const uint16_t pretokenize_ascii[128] = {
    ['!' ... '#'] = PUNCT,
    ['$'] = SYMBOL,
    ['%' ... '*'] = PUNCT,
    ['+'] = SYMBOL,
    [',' ... '/'] = PUNCT,
    [':' ... ';'] = PUNCT,
    ['<' ... '>'] = SYMBOL,
    ['?' ... '@'] = PUNCT,
    ['[' ... ']'] = PUNCT,
    ['^'] = SYMBOL,
    ['_'] = PUNCT,
    ['`'] = SYMBOL,
    ['{'] = PUNCT,
    ['|'] = SYMBOL,
    ['}'] = PUNCT,
    ['~'] = SYMBOL,
    ['A' ... 'Z'] = LETTER | UPPER,
    ['a' ... 'z'] = LETTER | LOWER,
    ['0' ... '9'] = NUMBER,
    [' '] = SPACE,
    ['\t'] = SPACE,
    ['\v'] = SPACE,
    ['\f'] = SPACE,
    ['\n'] = SPACE | NEWLINE,
    ['\r'] = SPACE | NEWLINE,
};

unsigned pretokenize_wide_kind(uint32_t code)
{
    switch (unicode_class(code)) {
    case UC_LU:
    case UC_LT:
        return LETTER | UPPER;
    case UC_LL:
        return LETTER | LOWER;
    case UC_LM:
    case UC_LO:
        return LETTER | UPPER | LOWER;
    case UC_MN:
    case UC_MC:
        return MARK | UPPER | LOWER;
    case UC_ND:
    case UC_NO:
        return NUMBER;
    case UC_P:
        return PUNCT;
    case UC_S:
        return SYMBOL;
    default:
        return unicode_is_space(code) ? SPACE : 0;
    }
}

/* Bytes of 's 't 're 've 'm 'll 'd at i, or 0. */
static size_t contraction(struct str t, size_t i, bool any_case)
{
    if (i + 1 >= t.n || t.p[i] != '\'') return 0;
    int fold = any_case ? 32 : 0;
    char a = (char)(t.p[i + 1] | fold), b = i + 2 < t.n ? (char)(t.p[i + 2] | fold) : 0;
    if (any_case && t.p[i + 1] == '\xc5' && i + 2 < t.n && t.p[i + 2] == '\xbf')
        return 3; /* long s folds to s */
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    return 0;
}

size_t pretokenize_spaces(struct str t, size_t from, unsigned stop)
{
    size_t i = from, last = from, next;
    unsigned k;
    while ((k = kind_at(t, i, &next)) & SPACE) {
        last = i;
        i = next;
    }
    if (k & (END | stop)) return i;
    return last > from ? last : i;
}

size_t pretokenize_spaces_to_newline(struct str t, size_t i)
{
    size_t end = 0, next;
    unsigned k;
    for (; (k = kind_at(t, i, &next)) & SPACE; i = next)
        if (k & NEWLINE) end = next;
    return end;
}

size_t pretokenize_three_numbers(struct str t, size_t i)
{
    for (int n = 0; n < 3; n++) {
        size_t next;
        if (!(kind_at(t, i, &next) & NUMBER)) break;
        i = next;
    }
    return i;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t gpt2(struct str t, size_t i, bool digits_alone)
{
    size_t next, n = contraction(t, i, false);
    if (n) return i + n;
    unsigned k = kind_at(t, i, &next);
    if (digits_alone && k & NUMBER) return next;
    size_t j = i;
    if (t.p[i] == ' ') {
        j = i + 1;
        k = kind_at(t, j, &next);
    }
    if (k & LETTER) return run_end(t, j, LETTER, 0);
    if (k & NUMBER && !digits_alone) return run_end(t, j, NUMBER, 0);
    if (!(k & (SPACE | LETTER | NUMBER | END))) return run_end(t, j, 0, SPACE | LETTER | NUMBER);
    return pretokenize_spaces(t, i, digits_alone ? NUMBER : 0);
}

size_t pass_gpt2(struct str t, size_t from, size_t i, size_t *retry)
{
    (void)from, (void)retry;
    return gpt2(t, i, false);
}

/* \p{N}, then the above in what is left */
size_t pass_digits_gpt2(struct str t, size_t from, size_t i, size_t *retry)
{
    (void)from, (void)retry;
    return gpt2(t, i, true);
}

/* How the followers of Llama 3 differ. */
struct llama3_form {
    unsigned word;        /* kinds of which a word is made */
    int numbers;          /* digits in a word; 0 = all of the run */
    bool contractions;    /* (?i:'s|'t|'re|'ve|'m|'ll|'d) */
    bool newlines_follow; /* symbols take the line ends behind them */
};

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+ . 0: none of these,
 * it is white space. \s*[\r\n] (one line end) is the same, as \s* takes those before it. */
static size_t llama3(struct str t, size_t i, struct llama3_form f)
{
    size_t next, after, n = f.contractions ? contraction(t, i, true) : 0;
    if (n) return i + n;
    unsigned k = kind_at(t, i, &next);
    if (k & f.word) return run_end(t, i, f.word, 0);
    if (k & NUMBER)
        return f.numbers == 1   ? next
               : f.numbers == 3 ? pretokenize_three_numbers(t, i)
                                : run_end(t, i, NUMBER, 0);
    unsigned k2 = kind_at(t, next, &after);
    if (!(k & NEWLINE) && k2 & f.word) return run_end(t, next, f.word, 0);
    size_t j = i;
    if (t.p[i] == ' ') {
        j = next;
        k = k2;
    }
    if (!(k & (SPACE | NUMBER | END | f.word))) {
        size_t end = run_end(t, j, 0, SPACE | NUMBER | f.word);
        return f.newlines_follow ? run_end(t, end, NEWLINE, 0) : end;
    }
    return pretokenize_spaces_to_newline(t, i);
}

#define LLAMA3_PASS(name, word, numbers, contractions, newlines_follow)                            \
    size_t name(struct str t, size_t from, size_t i, size_t *retry)                                \
    {                                                                                              \
        (void)from, (void)retry;                                                                   \
        size_t end =                                                                               \
            llama3(t, i, (struct llama3_form){word, numbers, contractions, newlines_follow});      \
        return end ? end : pretokenize_spaces(t, i, 0);                                            \
    }
LLAMA3_PASS(pass_llama3, LETTER, 3, true, true)
LLAMA3_PASS(pass_qwen2, LETTER, 1, true, true)
LLAMA3_PASS(pass_qwen35, LETTER | MARK, 1, true,
            true) /* [\p{L}\p{M}]+ for \p{L}+, no \p{M} among the symbols */
LLAMA3_PASS(pass_plain_qwen2, LETTER, 1, false, true)
LLAMA3_PASS(pass_seed_coder, LETTER, 1, true, false)
LLAMA3_PASS(pass_minicpm5, LETTER, 0, true, true)

/* Llama 3's, but white space falls into runs: \s{512}(?!\S)|\s{256}(?!\S)|..|\s{4}(?!\S)|\s{1,2}(?!\S)|\s */
size_t pass_jais2(struct str t, size_t from, size_t i, size_t *retry)
{
    (void)from, (void)retry;
    size_t end = llama3(t, i, (struct llama3_form){LETTER, 3, true, true}), next, at[514], n = 0;
    if (end) return end;
    for (at[0] = i; n < 513 && kind_at(t, at[n], &next) & SPACE;)
        at[++n] = next;
    bool all =
        kind_at(t, at[n], &next) & (SPACE | END); /* no other character stands behind the run */
    for (size_t run = 512; run; run /= 2)
        if (run < n || (run == n && all)) return at[run];
    return at[1];
}

/* (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+ : letters with their marks, and single spaces before further letters */
static size_t spaced_letters(struct str t, size_t i)
{
    for (;;) {
        size_t next, after;
        unsigned k = kind_at(t, i, &next);
        if (k & LETTER) {
            i = run_end(t, next, MARK, 0);
        } else if (!(k & END) && t.p[i] == ' ' && kind_at(t, next, &after) & LETTER) {
            i = next;
        } else {
            return i;
        }
    }
}

/* (?i:'s|..)|[^\r\n\p{L}\p{N}]?(spaced letters)|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+ */
size_t pass_exaone_moe(struct str t, size_t from, size_t i, size_t *retry)
{
    (void)from, (void)retry;
    size_t next, after, n = contraction(t, i, true);
    if (n) return i + n;
    unsigned k = kind_at(t, i, &next), k2 = kind_at(t, next, &after);
    if (k & LETTER) return spaced_letters(t, i);
    if (k & NUMBER) return next;
    if (!(k & NEWLINE) && k2 & LETTER) return spaced_letters(t, next);
    size_t j = i;
    if (t.p[i] == ' ') {
        j = next;
        k = k2;
    }
    if (!(k & (SPACE | NUMBER | END | LETTER))) {
        size_t end = run_end(t, j, 0, SPACE | NUMBER | LETTER);
        return end + (end < t.n && (t.p[end] == '\r' || t.p[end] == '\n' || t.p[end] == '/'));
    }
    size_t end = pretokenize_spaces_to_newline(t, i);
    return end ? end : pretokenize_spaces(t, i, 0);
}

/* [UPPER]*[LOWER]+ at i: where the upper run is not followed by lower case, the expression backtracks to the last
 * character that counts as both (scripts without case). 0 when it does not match. */
static size_t cased_word(struct str t, size_t i)
{
    size_t end = 0, next;
    unsigned k;
    for (; (k = kind_at(t, i, &next)) & UPPER; i = next)
        if (k & LOWER) end = next;
    return k & LOWER ? run_end(t, i, LOWER, 0) : end;
}

/* W1 = [^\r\n\p{L}\p{N}]?[UPPER]*[LOWER]+, W2 = [^\r\n\p{L}\p{N}]?[UPPER]+[LOWER]*, each with (?i:'s|'t|..)? but for Tekken
 * W1|W2|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+      single: \p{N} */
static size_t gpt4o(struct str t, size_t i, bool single, bool contractions)
{
    size_t next;
    unsigned k = kind_at(t, i, &next);
    if (k & NUMBER) return single ? next : pretokenize_three_numbers(t, i);
    bool may_prefix = !(k & (NEWLINE | LETTER | NUMBER));
    size_t end = may_prefix ? cased_word(t, next) : 0;
    if (!end) end = cased_word(t, i);
    if (!end && may_prefix) {
        end = run_end(t, next, UPPER, 0); /* no lower case follows, or W1 had matched */
        if (end == next) end = 0;
    }
    if (!end && k & UPPER) end = run_end(t, i, UPPER, 0);
    if (end) return end + (contractions ? contraction(t, end, true) : 0);
    size_t j = i;
    if (t.p[i] == ' ') {
        j = next;
        k = kind_at(t, j, &next);
    }
    if (!(k & (SPACE | LETTER | NUMBER | END))) {
        end = run_end(t, j, 0, SPACE | LETTER | NUMBER);
        while (end < t.n && (t.p[end] == '\r' || t.p[end] == '\n' || t.p[end] == '/'))
            end++;
        return end;
    }
    end = pretokenize_spaces_to_newline(t, i);
    return end ? end : pretokenize_spaces(t, i, 0);
}

size_t pass_gpt4o(struct str t, size_t from, size_t i, size_t *retry)
{
    (void)from, (void)retry;
    return gpt4o(t, i, false, true);
}

size_t pass_gpt4o_single(struct str t, size_t from, size_t i, size_t *retry)
{
    (void)from, (void)retry;
    return gpt4o(t, i, true, true);
}

size_t pass_tekken(struct str t, size_t from, size_t i, size_t *retry)
{
    (void)from, (void)retry;
    return gpt4o(t, i, true, false);
}
