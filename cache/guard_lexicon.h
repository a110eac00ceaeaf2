/* guard_lexicon.h - what the guards know about words: synonyms, opposites, question words, numbers, units, calendar, politeness,
 * traditional characters. Loaded once from the word lists of cache/guard_data, read-only afterwards.
 * Threading: build in one thread, then read from any. */
#ifndef DEJA_CACHE_GUARD_LEXICON_H
#define DEJA_CACHE_GUARD_LEXICON_H
#include "base/str.h"

/* What a word or phrase is; several may hold. */
enum guard_class {
    GC_SOFT = 1u << 0,      /* carries no content of its own: articles, auxiliaries, particles */
    GC_DROP = 1u << 1,      /* politeness and fillers: removed before anything is compared */
    GC_NEG = 1u << 2,       /* not, never, 没有 */
    GC_UNABLE = 1u << 3,    /* can not, unable to, 无法: a negation of its own kind */
    GC_QUESTION = 1u << 4,  /* code: enum guard_question */
    GC_QUANT = 1u << 5,     /* code: enum guard_quant */
    GC_MODAL = 1u << 6,     /* code: enum guard_modal */
    GC_WHEN = 1u << 7,      /* relative time: today, next week; canon tells which */
    GC_WEAK_WHEN = 1u << 8, /* now, currently: may stand on one side only */
    GC_UNIT = 1u << 9,      /* kg, day, percent */
    GC_CURRENCY = 1u << 10,
    GC_MEASURE = 1u << 11, /* counting words without a unit's meaning: 个 张 次 */
    GC_NUMBER = 1u << 12,  /* number word, value in code; ordinals have GC_ORDINAL too */
    GC_ORDINAL = 1u << 13,
    GC_MONTH = 1u << 14,   /* month number in code */
    GC_DATE = 1u << 15,    /* weekday, season, holiday; canon tells which */
    GC_PERSON1 = 1u << 16, /* I, we, 我 */
    GC_PERSON2 = 1u << 17,
    GC_PERSON3 = 1u << 18, /* he, her, 他: counts as content */
    GC_PAST = 1u << 19,
    GC_FUTURE = 1u << 20,
    GC_AUX = 1u << 21,       /* may open a yes/no question */
    GC_SYNONYM = 1u << 22,   /* in some synonym group */
    GC_KNOWN = 1u << 23,     /* an ordinary word, so not a slip of the keyboard */
    GC_CLOCK = 1u << 24,     /* am, pm, 下午: code 0 = before noon, 12 = after */
    GC_FOREIGN = 1u << 25,   /* function word of a language other than English; code tells which */
    GC_ENGLISH = 1u << 26,   /* function word of English */
    GC_YESNO_END = 1u << 27, /* 吗: makes a yes/no question */
    GC_PLACE = 1u << 28,     /* a country, city or language by name */
    GC_MAKE = 1u << 29,      /* a make, product or service by name */
    GC_RULES_OUT = 1u << 30  /* exclude, forbid: denies without a "not" */
};
enum guard_question {
    GQ_NONE,
    GQ_HOW,
    GQ_HOWMUCH,
    GQ_HOWMANY,
    GQ_HOWLONG,
    GQ_HOWOFTEN,
    GQ_HOWFAR,
    GQ_WHEN,
    GQ_WHERE,
    GQ_WHO,
    GQ_WHY,
    GQ_WHICH,
    GQ_WHAT,
    GQ_YESNO,
    GQ_AMOUNT, /* 多少: how much or how many or how far */
    GQ_HOWFAST,
    GQ_CLOCK, /* what time, 几点: a "when" that names what it wants; so are the next three */
    GQ_DAY,
    GQ_MONTH,
    GQ_YEAR,
    GQ_OPINION /* 怎么样 at the end: what is it like; not in the word lists */
};
enum guard_quant {
    GK_NONE,
    GK_ALL,
    GK_ANY,
    GK_SOME,
    GK_NO,
    GK_ONLY,
    GK_BOTH,
    GK_EITHER,
    GK_ATLEAST,
    GK_ATMOST,
    GK_MOST,
    GK_MANY,
    GK_FEW /* hardly any; "a few" are some */
};
/* Another word when it has a capital: Polish and polish. Most people write such names small in a hurry (windows) but few (turkey). */
enum guard_cased { GUARD_CASE_FREE, GUARD_CASE_IF_WRITER_MINDS, GUARD_CASE_ALWAYS };
enum guard_modal { GM_NONE, GM_CAN, GM_MUST, GM_SHOULD, GM_NEED };

struct guard_word {
    struct str phrase; /* as looked up: lower case, words joined by one blank, Chinese unspaced */
    struct str canon;  /* what equal meanings share */
    uint32_t classes;
    uint8_t question, quant, modal, month, clock, language;
    uint8_t state; /* what a thing may have come to: delivered, paid; words of one number say one */
    uint8_t cased; /* enum guard_cased */
    bool loan;     /* often written without its accents: café */
    uint8_t thing; /* one of its kind, GUARD_THINGS_MAX of them; 0 = not listed */
    int32_t number; /* GC_NUMBER: value times 2, so that a half is whole */
};

enum {
    GUARD_THINGS_MAX = 24,
    GUARD_STATES_MAX = 31,
    GUARD_PHRASE_WORDS_MAX = 7,
    GUARD_PHRASE_HANS_MAX = 8
};

struct guard_lexicon;
struct guard_lexicon *guard_lexicon_new(void);
void guard_lexicon_free(struct guard_lexicon *x);
/* NULL when unknown. The result lives as long as the lexicon. */
const struct guard_word *guard_lexicon_find(const struct guard_lexicon *x, struct str phrase);
bool guard_lexicon_opposite(const struct guard_lexicon *x, struct str canon_a, struct str canon_b);
/* can't -> "can not"; empty when it is no contraction. */
struct str guard_lexicon_contraction(const struct guard_lexicon *x, struct str word);
/* Traditional or variant character -> the common simplified one. */
uint32_t guard_lexicon_simplify(const struct guard_lexicon *x, uint32_t code_point);
/* For tests of the word lists: phrases that stand in two synonym groups; 0 when the lists are sound. */
size_t guard_lexicon_conflicts(const struct guard_lexicon *x, struct str *first);
size_t guard_lexicon_count(const struct guard_lexicon *x);

#endif
