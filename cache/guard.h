/* guard.h - may the stored answer to one question be used for another? Two questions are read into tokens and compared; a guard is a
 * rule that refuses, each with a name. Similar vectors are never a reason to allow what a guard refuses: one-word swaps score
 * higher than true rewordings in every encoder.
 *   same     every content word of one is explained by the other (equal, synonym, inflection, slip of the keyboard), in the same
 *            order, nothing else differs: the answer may be used whatever the vectors say
 *   allowed  no guard refuses, wording differs freely: whether it is used is up to cache/policy.h
 * Pure and read-only after guard_new: any number of threads may check at once. */
#ifndef DEJA_CACHE_GUARD_H
#define DEJA_CACHE_GUARD_H
#include "base/buf.h"
#include "base/str.h"

struct guard;
struct guard_verdict {
    bool allowed, same;
    const char *refused_by; /* static name without "guard:", "" when allowed */
    char detail
        [64]; /* what differs, for people; "" when allowed. Holds text of the questions: never logged at info */
    uint32_t fired; /* bit i: guard_names[i] has something against it, also after the first */
    /* of these, what no similarity outweighs: both name a number, time, date, currency, identifier or name and not the same; another
     * script or language; opposites in one sentence; something ruled out on one side alone; the same words in another order; anything,
     * where most of the words are the same */
    uint32_t hard;
    /* of the hard ones, those that are so for this alone: most of the words are the same. Where people judge questions loosely such
     * differences (a word, a tense, an order, the question word) often mean nothing, so a calibration made from their own pairs may weigh
     * them (cache/verifier.h). Never negation, quantifier, antonym, modality and who does it to whom */
    uint32_t hard_by_likeness;
    float shared;    /* 0..1: content in common, by weight, of the longer one */
    float contained; /* 0..1: of the shorter one */
    bool asks_alike; /* the same kind of question, as far as both say */
    char language;   /* 'z' or 'e' */
};

struct guard *guard_new(void); /* reads the word lists, about 5 ms and 2 MB */
void guard_free(struct guard *g);
/* Appends text with traditional and variant characters as the common simplified ones; bytes that are no UTF-8 stay. */
void guard_simplify(const struct guard *g, struct str text, struct buf *out);
/* The order of the two does not matter for the result. */
void guard_check(const struct guard *g, struct str query, struct str stored,
                 struct guard_verdict *out);
/* The same without the guards of which bit i (of guard_names[i]) is set in off. */
void guard_check_without(const struct guard *g, uint64_t off, struct str query, struct str stored,
                         struct guard_verdict *out);
/* A question read once, to be checked against many: some 70 KB, a third of a check's time. Borrows text. */
struct guard_reading;
struct guard_reading *guard_read(const struct guard *g, struct str text);
void guard_reading_free(struct guard_reading *r); /* NULL is fine */
/* guard_check_without; the reading is as before when it is over, but one thread at a time may use it. */
void guard_check_read(const struct guard *g, uint64_t off, struct guard_reading *query,
                      struct str stored, struct guard_verdict *out);
/* Equal for most texts that guard_check calls the same, whatever their case, width, politeness, script, synonyms and order: a cheap way
 * to find what is then checked. 0 = the text is too long or says nothing. */
uint64_t guard_normal(const struct guard *g, struct str text);
/* 'z' when there is Chinese in it, else 'e'. */
char guard_language(struct str text);

/* Bit of a guard in `fired`; 0 = no such name. */
uint32_t guard_bit(const char *name);

/* Names of all guards, for metrics and docs; NULL ends the list. */
extern const char *const guard_names[];

#endif
