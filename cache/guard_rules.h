/* guard_rules.h - private to guard*.c: two questions being compared, and the rules that refuse. Each returns true when it refuses, with
 * its name and what differs put into the verdict. A rule looks at the two texts and their alignment, never at other rules' results but
 * for out->shared. Tested through guard.h. */
#ifndef DEJA_CACHE_GUARD_RULES_H
#define DEJA_CACHE_GUARD_RULES_H
#include "cache/guard.h"
#include "cache/guard_align.h"

struct comparison {
    const struct guard_lexicon *lexicon;
    struct guard_text *a, *b;  /* tokens may change places while an order is being explained */
    struct str text_a, text_b; /* as they came */
    struct guard_alignment align;
    bool voice_explained; /* one side's passive is the other's active, and nothing else */
    struct guard_verdict *out;
};

/* Half of the content is the same: from here on every difference must be explained. */
static inline bool guard_close(const struct comparison *c)
{
    return c->out->shared >= 0.5f;
}
/* Always true. a, b: what differs, cut for the verdict; guard_none = nothing to show. */
bool guard_refuse(struct guard_verdict *v, const char *name, struct str a, struct str b);
/* Marks what is about to be refused under this name as hard; see guard_verdict. */
void guard_harden(struct guard_verdict *v, const char *name);
bool guard_refuse_hard(struct guard_verdict *v, const char *name, struct str a, struct str b);
extern const struct str guard_none;

/* guard_facts.c: what must be equal one by one */
bool guard_script_differs(struct comparison *c);
bool guard_language_differs(struct comparison *c);
bool guard_identifiers_differ(struct comparison *c);
bool guard_numbers_differ(struct comparison *c);
bool guard_currencies_differ(struct comparison *c);
bool guard_times_differ(struct comparison *c);
bool guard_dates_differ(struct comparison *c);
bool guard_relative_times_differ(struct comparison *c);

/* guard_sense.c: what is said as a whole */
bool guard_negation_differs(struct comparison *c);
bool guard_denied_differs(struct comparison *c);
bool guard_quantifier_differs(struct comparison *c);
bool guard_question_differs(struct comparison *c);
bool guard_modality_differs(struct comparison *c);
bool guard_tense_differs(struct comparison *c);
bool guard_person_differs(struct comparison *c);
/* For texts whose every word is explained: is what only the question words and pronouns say the same too? */
bool guard_ask_the_same(struct comparison *c);

bool guard_asks_degree(const struct guard_text *t); /* how old, how safe */

/* guard_asks.c: what the answer would have to be */
bool guard_asks_differ(struct comparison *c);

/* guard_aspect.c: what grammar says of a deed */
bool guard_deed_differs(struct comparison *c);  /* done, under way, wished for, asked how */
bool guard_event_differs(struct comparison *c); /* what befell one, how it is done */
bool guard_duty_differs(struct comparison *c);  /* need not, must not */

/* guard_parts.c: which small word goes with which */
bool guard_receiver_differs(struct comparison *c);   /* 给我妈妈挂号, 我妈妈给我挂号 */
bool guard_counts_differ(struct comparison *c);      /* twice one, once two */
bool guard_universal_differs(struct comparison *c);  /* 谁都能, 谁能 */
bool guard_only_then_differs(struct comparison *c);  /* 才, 就 */
bool guard_degree_differs(struct comparison *c);     /* how old, how */
bool guard_definition_differs(struct comparison *c); /* what is a, what is your */
bool guard_modal_order_differs(struct comparison *c); /* must I stay or can I go */
bool guard_confused_words(struct comparison *c);      /* desert, dessert */
bool guard_contrasted_differ(struct comparison *c); /* the fee in the price, the price in the fee */
bool guard_undone_differs(struct comparison *c);    /* I forgot to pay, I paid */

/* guard_words.c: which words */
bool guard_opposites(struct comparison *c);
bool guard_words_differ(struct comparison *c);
bool guard_nothing_to_compare(struct comparison *c);

/* guard_order.c: in which order */
bool guard_order_differs(struct comparison *c);
/* Before any rule: A is more than B, B is less than A. Then one is said as the other. */
void guard_turn_comparison(struct comparison *c);
bool guard_is_inside(
    const struct guard_token *k); /* the, my, this: between a preposition and its noun */

/* guard_names.c: who and what is named, and what is ruled out */
bool guard_names_differ(struct comparison *c);
bool guard_things_differ(struct comparison *c);
bool guard_ways_differ(struct comparison *c);
bool guard_ruled_out_differs(struct comparison *c);
bool guard_capitals_tell(const struct guard_text *t); /* not a title, not shouted */

/* guard_links.c: how the words are tied together */
bool guard_links_differ(struct comparison *c);
bool guard_is_done_to(const struct guard_text *t, size_t i); /* "be cancelled", "got lost" */

/* guard_signs.c: signs that are no words */
bool guard_signs_differ(struct comparison *c);

/* guard_writing.c: the same words, written otherwise */
bool guard_writing_differs(struct comparison *c);

#endif
