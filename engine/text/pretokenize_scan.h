/* pretokenize_scan.h - the scanners and passes that families are made of. Private to pretokenize*.c. Pure. */
#ifndef DEJA_ENGINE_TEXT_PRETOKENIZE_SCAN_H
#define DEJA_ENGINE_TEXT_PRETOKENIZE_SCAN_H
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
    END = 128,    /* past the end of the piece */
    PUNCT = 256,  /* P */
    SYMBOL = 512  /* S */
};

extern const uint16_t pretokenize_ascii[128];
unsigned pretokenize_wide_kind(uint32_t code);

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
        return pretokenize_ascii[c];
    }
    uint32_t code;
    *next = i + unicode_next(t, i, &code);
    return code == UNICODE_INVALID ? 0 : pretokenize_wide_kind(code);
}

/* End of the run of characters that have a bit of `want` (or, when want is 0, none of `not`). */
static inline size_t run_end(struct str t, size_t i, unsigned want, unsigned not )
{
    for (;;) {
        size_t next;
        unsigned k = kind_at(t, i, &next);
        if (k & END || (want && !(k & want)) || k & not ) return i;
        i = next;
    }
}

/* One pass looks at a piece (t ends where the piece does): the end of the match at byte i, or 0 when none begins there; then
 * *retry, which holds the next character's place, may be moved on to the next place that is worth a try. `from` is where
 * the piece begins. A pass without gaps always matches. */
typedef size_t pretokenize_pass(struct str t, size_t from, size_t i, size_t *retry);

/* pretokenize_words.c: whole scanners, without gaps */
pretokenize_pass pass_gpt2, pass_digits_gpt2, pass_llama3, pass_qwen2, pass_qwen35,
    pass_plain_qwen2, pass_seed_coder, pass_minicpm5, pass_jais2, pass_exaone_moe, pass_gpt4o,
    pass_gpt4o_single, pass_tekken;
/* pretokenize_passes.c */
pretokenize_pass pass_number, pass_numbers, pass_numbers_to_three, pass_numbers_from_right,
    pass_bounded_decimals, pass_decimal_groups, pass_ascii_triple, pass_newline, pass_newline_run,
    pass_kana_han, pass_asian, pass_scripts_youtu, pass_deepseek3, pass_spark,
    pass_deepseek_letters, pass_deepseek_marks, pass_spaces_at_end, pass_han_hangul, pass_letters,
    pass_puncts, pass_falcon_marks, pass_bloom;

/* Shared between them. \s+(?!\S)|\s+ : all white space at the end of the piece, else all but the last character of the run (which may
 * open the next word), else the one there is. `stop`: kinds that end the text for this family. */
size_t pretokenize_spaces(struct str t, size_t i, unsigned stop);
/* \s*[\r\n]+ : backtracks to the last line end of the run of white space. 0 when there is none. */
size_t pretokenize_spaces_to_newline(struct str t, size_t i);
size_t pretokenize_three_numbers(struct str t, size_t i);

#endif
