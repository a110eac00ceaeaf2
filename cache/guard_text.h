/* guard_text.h - a question cut into tokens that can be compared: folded (width, case, accents, traditional characters), phrases of
 * the lexicon joined, numbers, dates, times, currencies and identifiers read, politeness dropped.
 * Pure: the same text and lexicon always give the same tokens. No allocation: everything lies in the caller's struct (about 40 KB). */
#ifndef DEJA_CACHE_GUARD_TEXT_H
#define DEJA_CACHE_GUARD_TEXT_H
#include <string.h>

#include "cache/guard_lexicon.h"

enum {
    GUARD_TEXT_BYTES_MAX = 1024, /* longer questions are for the exact cache only */
    GUARD_UNITS_MAX = 320,
    GUARD_TOKENS_MAX = 192,
    GUARD_STEMS_MAX = 3,
    GUARD_PERSONS_MAX = 16,
    GUARD_POOL_BYTES = 8192
};

enum guard_unit_kind { GU_WORD, GU_DIGITS, GU_IDENT, GU_HAN, GU_SYMBOL, GU_OTHER };
/* What the eye sees as one piece, before any meaning. */
struct guard_unit {
    struct str text;
    uint8_t kind;
    bool clause_start, capital, question_end; /* question_end: a '?' follows */
    bool contracted;                          /* came out of a contraction: the "not" of "isn't" */
    bool owner;                               /* the hotel's */
    bool accented;                            /* lost an accent in folding */
};

enum guard_token_kind {
    GT_WORD,
    GT_HAN,
    GT_NUMBER,
    GT_DATE,
    GT_TIME,
    GT_IDENT,
    GT_SYMBOL,
    GT_OTHER
};
struct guard_token {
    struct str text;  /* folded surface */
    struct str canon; /* what equal meanings share */
    struct str
        stems[GUARD_STEMS_MAX];    /* unknown Latin words: forms the word may be an inflection of */
    struct str unit;               /* GT_NUMBER: canon of its unit or currency, empty = none */
    const struct guard_word *word; /* NULL = not in the lexicon */
    uint32_t classes;
    uint8_t kind, weight;             /* weight: how much content, in half words */
    bool clause_start, capital, weak; /* weak: a "one" that may mean no more than "a" */
    bool owner;                       /* the hotel's */
    bool accented;                    /* lost an accent in folding */
    bool content;                     /* takes part in the alignment */
    bool asks_also;                   /* a question word that is not the first of its clause */
};

enum guard_script {
    GS_LATIN = 1,
    GS_HAN = 2,
    GS_KANA = 4,
    GS_HANGUL = 8,
    GS_CYRILLIC = 16,
    GS_ARABIC = 32,
    GS_GREEK = 64,
    GS_THAI = 128,
    GS_INDIC = 256,
    GS_HEBREW = 512,
    GS_REST = 1024
};

struct guard_text {
    struct guard_token tokens[GUARD_TOKENS_MAX];
    size_t n;
    bool too_long;           /* cut: not to be compared */
    unsigned scripts;        /* enum guard_script, or-ed */
    unsigned questions;      /* 1 << enum guard_question: what each clause asks first */
    unsigned all_questions;  /* and whatever else is asked in it */
    unsigned quants, modals; /* 1 << code */
    int negations;           /* negative words that are not a matter of form ("isn't it?") */
    bool past, future, perfect, present; /* perfect: has ...ed; present: is, do */
    bool asks_be; /* asks_be: a yes/no question that opens with is, are, was */
    int english_words, foreign_words[8];
    char persons[GUARD_PERSONS_MAX]; /* '1', '2', '3' (they) in order of appearance */
    size_t n_persons;
    bool writer_minds_case; /* begins with a capital */
    size_t how_at;          /* token that asks "how", "when" or "where"; GUARD_TOKENS_MAX = none */
    struct guard_unit units[GUARD_UNITS_MAX];
    size_t n_units;
    char folded[GUARD_TEXT_BYTES_MAX * 2];
    size_t folded_n;
    char pool[GUARD_POOL_BYTES]; /* texts made while reading */
    size_t pool_n;
};

/* Reads text; sets too_long and stops when a bound is passed. Invalid UTF-8 bytes are skipped. */
void guard_text_read(struct guard_text *t, const struct guard_lexicon *x, struct str text);

/* --- between the files of the guard */
/* str_eq for words, of which most differ in the first byte. */
static inline bool guard_equal(struct str a, struct str b)
{
    return a.n == b.n && (!a.n || (a.p[0] == b.p[0] && !memcmp(a.p, b.p, a.n)));
}
void guard_units_read(struct guard_text *t, const struct guard_lexicon *x,
                      struct str text); /* guard_units.c */
/* Copies into the pool; empty (and too_long) when it is full. */
struct str guard_text_keep(struct guard_text *t, struct str s);
/* The longest lexicon phrase that begins at unit i, and its number of units; NULL when none. */
const struct guard_word *guard_text_phrase(const struct guard_text *t,
                                           const struct guard_lexicon *x, size_t i,
                                           size_t *n_units);
/* A number, date or time that begins at unit i: fills *out and returns the units used; 0 when there is none. guard_number.c */
size_t guard_number_read(struct guard_text *t, const struct guard_lexicon *x, size_t i,
                         struct guard_token *out);
/* list ends with NULL. */
bool guard_one_of(struct str word, const char *const *list);
static inline bool guard_unit_is(const struct guard_text *t, size_t i, const char *word)
{
    return i < t->n_units && str_eqz(t->units[i].text, word);
}
static inline bool guard_unit_in(const struct guard_text *t, size_t i, const char *const *list)
{
    return i < t->n_units && guard_one_of(t->units[i].text, list);
}
/* Index of the content token that begins at unit i; GUARD_TOKENS_MAX when none does. */
size_t guard_content_at(const struct guard_text *t, size_t i);
/* Bytes of an emoticon that s begins with; 0 = none. before: the byte in front of it, a blank at the start. guard_signs.c */
size_t guard_emoticon(struct str s, char before);
/* Base forms of an English word; the word itself comes first. Returns their number. guard_stem.c */
size_t guard_stems(struct guard_text *t, struct str word, struct str out[GUARD_STEMS_MAX]);
/* -ed and the common irregular ones. */
bool guard_is_participle(struct str word);
/* May one be a slip of the keyboard for the other? (Lengths, first letter, shape of the edit; not whether the words exist.) */
bool guard_typo(struct str a, struct str b);
/* Bytes that both begin and, behind those, end with. */
void guard_shared_ends(struct str a, struct str b, size_t *head, size_t *tail);

#endif
