/* regex.h - private to engine/grammar: regular expressions as people write them for JSON Schema (ECMA-262) and for Python's re, as far
 * as they are regular: literals, classes, groups, alternation, greedy and lazy repetition, ^ and $. \d \w \s are the ASCII ones of
 * ECMA-262; look-around, back-references and word boundaries are refused by name. Pure.
 * Source: ECMA-262 section 22.2 (syntax). */
#ifndef DEJA_ENGINE_GRAMMAR_REGEX_H
#define DEJA_ENGINE_GRAMMAR_REGEX_H
#include "engine/grammar/dfa.h"

enum regex_use {
    REGEX_WHOLE, /* the whole text must match */
    REGEX_FIND   /* some part of the text must match, as "pattern" means it */
};

/* json: characters are read as they stand inside a JSON string. ERR_INVALID, ERR_UNSUPPORTED: what is wrong and at which character;
 * ERR_TOO_LARGE: over the budget. */
MUST enum err regex_to_dfa(struct dfa *out, struct str pattern, enum regex_use use, bool json,
                           struct grammar_budget *budget, struct errmsg *e);

/* Is it nothing but one character of a set, repeated ("^[a-z]{1,50}$")? Then a counter does what would take a state for each count.
 * max: GRAMMAR_NO_LIMIT. False for what cannot be parsed too. */
bool regex_is_repeat(struct str pattern, enum regex_use use, struct charset *set, uint32_t *min,
                     uint32_t *max);

#endif
