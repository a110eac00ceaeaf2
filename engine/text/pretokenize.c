/* pretokenize.c - see pretokenize.h. The expression of each family stands above its scanner; alternatives are tried in its
 * order, and where it backtracks the comment says what that comes to. */
#include "engine/text/pretokenize.h"

#include <string.h>

#include "engine/text/unicode.h"

/* What a scanner needs to know of a character: one bit each. */
enum {
    LETTER = 1,
    MARK = 2,
    NUMBER = 4,
    SPACE = 8,
    NEWLINE = 16, /* \r and \n; SPACE is set as well */
    UPPER = 32,   /* Lu Lt Lm Lo M */
    LOWER = 64,   /* Ll Lm Lo M */
    END = 128     /* past the end of the text */
};

static const uint8_t ascii_kind[128] = {
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

static unsigned wide_kind(uint32_t code)
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
    default:
        return unicode_is_space(code) ? SPACE : 0;
    }
}

/* The kind of the character at byte i and where the next one starts. */
static inline unsigned kind_at(struct str t, size_t i, size_t *next)
{
    if (i >= t.n) {
        *next = i;
        return END;
    }
    unsigned char c = (unsigned char)t.p[i];
    if (c < 0x80) {
        *next = i + 1;
        return ascii_kind[c];
    }
    uint32_t code;
    *next = i + unicode_next(t, i, &code);
    return code == UNICODE_INVALID ? 0 : wide_kind(code);
}

/* End of the run of characters that have a bit of `want` (or, when want is 0, none of `not`). */
static size_t run_end(struct str t, size_t i, unsigned want, unsigned not )
{
    for (;;) {
        size_t next;
        unsigned k = kind_at(t, i, &next);
        if (k & END || (want && !(k & want)) || k & not ) return i;
        i = next;
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

/* \s+(?!\S)|\s+ : all white space at the end of the text, else all but the last character of the run (which may open the
 * next word), else the one there is. `stop`: kinds that end the text for this family. */
static size_t spaces(struct str t, size_t from, unsigned stop)
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

/* \s*[\r\n]+ : backtracks to the last line end of the run of white space. 0 when there is none. */
static size_t spaces_to_newline(struct str t, size_t i)
{
    size_t end = 0, next;
    unsigned k;
    for (; (k = kind_at(t, i, &next)) & SPACE; i = next)
        if (k & NEWLINE) end = next;
    return end;
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
    return spaces(t, i, digits_alone ? NUMBER : 0);
}

static size_t up_to_three_numbers(struct str t, size_t i)
{
    for (int n = 0; n < 3; n++) {
        size_t next;
        if (!(kind_at(t, i, &next) & NUMBER)) break;
        i = next;
    }
    return i;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 * QWEN2: \p{N}. QWEN35: \p{N}, [\p{L}\p{M}]+ for \p{L}+ and no \p{M} among the symbols. */
static size_t llama3(struct str t, size_t i, enum pretokenize_family family)
{
    const unsigned word = family == PRETOKENIZE_QWEN35 ? LETTER | MARK : LETTER;
    size_t next, after, n = contraction(t, i, true);
    if (n) return i + n;
    unsigned k = kind_at(t, i, &next);
    if (k & word) return run_end(t, i, word, 0);
    if (k & NUMBER) return family == PRETOKENIZE_LLAMA3 ? up_to_three_numbers(t, i) : next;
    unsigned k2 = kind_at(t, next, &after);
    if (!(k & NEWLINE) && k2 & word) return run_end(t, next, word, 0);
    size_t j = i;
    if (t.p[i] == ' ') {
        j = next;
        k = k2;
    }
    if (!(k & (SPACE | NUMBER | END | word)))
        return run_end(t, run_end(t, j, 0, SPACE | NUMBER | word), NEWLINE, 0);
    size_t end = spaces_to_newline(t, i);
    return end ? end : spaces(t, i, 0);
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

/* W1 = [^\r\n\p{L}\p{N}]?[UPPER]*[LOWER]+, W2 = [^\r\n\p{L}\p{N}]?[UPPER]+[LOWER]*, each with (?i:'s|'t|..)? for GPT4O
 * W1|W2|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+      TEKKEN: \p{N} */
static size_t gpt4o(struct str t, size_t i, enum pretokenize_family family)
{
    size_t next;
    unsigned k = kind_at(t, i, &next);
    if (k & NUMBER) return family == PRETOKENIZE_GPT4O ? up_to_three_numbers(t, i) : next;
    bool may_prefix = !(k & (NEWLINE | LETTER | NUMBER));
    size_t end = may_prefix ? cased_word(t, next) : 0;
    if (!end) end = cased_word(t, i);
    if (!end && may_prefix) {
        end = run_end(t, next, UPPER, 0); /* no lower case follows, or W1 had matched */
        if (end == next) end = 0;
    }
    if (!end && k & UPPER) end = run_end(t, i, UPPER, 0);
    if (end) return end + (family == PRETOKENIZE_GPT4O ? contraction(t, end, true) : 0);
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
    end = spaces_to_newline(t, i);
    return end ? end : spaces(t, i, 0);
}

size_t pretokenize_word(enum pretokenize_family family, struct str text, size_t from)
{
    ASSERT(from < text.n);
    switch (family) {
    case PRETOKENIZE_GPT2:
        return gpt2(text, from, false);
    case PRETOKENIZE_DIGITS:
        return gpt2(text, from, true);
    case PRETOKENIZE_LLAMA3:
    case PRETOKENIZE_QWEN2:
    case PRETOKENIZE_QWEN35:
        return llama3(text, from, family);
    case PRETOKENIZE_GPT4O:
    case PRETOKENIZE_TEKKEN:
        return gpt4o(text, from, family);
    }
    return text.n;
}

enum err pretokenize_rule_of(const char *name, struct pretokenize_rule *out)
{
    static const struct {
        const char *name;
        struct pretokenize_rule rule;
    } known[] = {
        {"gpt-2", {PRETOKENIZE_GPT2, false}},
        {"mpt", {PRETOKENIZE_GPT2, false}},
        {"olmo", {PRETOKENIZE_GPT2, false}},
        {"jais", {PRETOKENIZE_GPT2, false}},
        {"trillion", {PRETOKENIZE_GPT2, false}},
        {"phi-2", {PRETOKENIZE_GPT2, false}},
        {"roberta-bpe", {PRETOKENIZE_GPT2, false}},
        {"gigachat", {PRETOKENIZE_GPT2, false}},
        {"smollm", {PRETOKENIZE_DIGITS, false}},
        {"starcoder", {PRETOKENIZE_DIGITS, false}},
        {"refact", {PRETOKENIZE_DIGITS, false}},
        {"command-r", {PRETOKENIZE_DIGITS, false}},
        {"codeshell", {PRETOKENIZE_DIGITS, false}},
        {"exaone", {PRETOKENIZE_DIGITS, false}},
        {"minerva-7b", {PRETOKENIZE_DIGITS, false}},
        {"llama-bpe", {PRETOKENIZE_LLAMA3, false}},
        {"llama3", {PRETOKENIZE_LLAMA3, false}},
        {"llama-v3", {PRETOKENIZE_LLAMA3, false}},
        {"falcon3", {PRETOKENIZE_LLAMA3, false}},
        {"dbrx", {PRETOKENIZE_LLAMA3, false}},
        {"smaug-bpe", {PRETOKENIZE_LLAMA3, false}},
        {"chatglm-bpe", {PRETOKENIZE_LLAMA3, false}},
        {"glm4", {PRETOKENIZE_LLAMA3, false}},
        {"lfm2", {PRETOKENIZE_LLAMA3, false}},
        {"qwen2", {PRETOKENIZE_QWEN2, true}},
        {"deepseek-r1-qwen", {PRETOKENIZE_QWEN2, true}},
        {"stablelm2", {PRETOKENIZE_QWEN2, false}},
        {"hunyuan", {PRETOKENIZE_QWEN2, false}},
        {"qwen35", {PRETOKENIZE_QWEN35, true}},
        {"gpt-4o", {PRETOKENIZE_GPT4O, false}},
        {"llama4", {PRETOKENIZE_GPT4O, false}},
        {"tekken", {PRETOKENIZE_TEKKEN, false}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i].name)) continue;
        *out = known[i].rule;
        return OK;
    }
    return ERR_UNSUPPORTED;
}
