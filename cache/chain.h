/* chain.h - the decision on candidates, cheap to dear. Every step can only refuse, and names itself:
 *   topic     the nearest wording is below the topic floor                        below_floor
 *   veto      the question, or a nearer one, was judged not to get this answer    veto
 *   trust     the entry is set aside, or its writer not trusted enough            quarantined, untrusted
 *   guards    a rule about language refuses (cache/guard.h)                       guard:NAME
 *             (with a verifier: only hard ones; it weighs the others, and without its opinion they refuse too)
 *             (questions of which every word is explained pass all that follows)
 *   places    better candidates have used up the verifier's places                too_many
 *   verifier  the trained verifier does not say yes                               verifier
 *   rival     a question with another answer is as near                           rival
 *   policy    the threshold, or what was learnt of such pairs and of the entry    below_threshold, bound:learning, bound:error
 * Pure: between chain_screen and chain_settle whoever owns a verifier fills in what it says, or does not. */
#ifndef DEJA_CACHE_CHAIN_H
#define DEJA_CACHE_CHAIN_H
#include "cache/bounds.h"
#include "cache/candidates.h"
#include "cache/policy.h"

enum chain_step {
    CHAIN_TOPIC,
    CHAIN_VETO,
    CHAIN_TRUST,
    CHAIN_GUARDS,
    CHAIN_PLACES,
    CHAIN_VERIFIER,
    CHAIN_RIVAL,
    CHAIN_POLICY,
    N_CHAIN_STEPS
};
extern const char *const chain_step_names[N_CHAIN_STEPS];

struct chain_rules {
    const struct guard *guard;
    const struct cache_knobs *knobs;
    struct policy policy;
    double client_min; /* lowest cosine the client asks for; 0 = none */
    bool
        has_verifier; /* its opinions are to be had: guards it may outweigh leave candidates open */
    const struct bounds *bounds; /* mode bound: what was learnt, NULL = nothing; and where */
    struct str ns;
};
struct chain_item {
    struct candidate c;
    /* a text the guards call the same as the question forbids this entry: filled in by the caller */
    bool text_vetoed;
    bool set_aside; /* the entry is in quarantine: filled in by the caller too */
    bool
        guarded; /* `guard` is known, of these very texts and knobs: by the caller, from an earlier screening */
    /* filled in by the chain */
    bool checked;         /* the guards were asked: `guard` is what they say */
    bool soft;            /* a guard spoke against it that the verifier may outweigh */
    bool open;            /* neither refused nor a hit yet: to be shown to the verifier */
    bool hit;             /* passed everything */
    enum chain_step step; /* where it was refused */
    struct guard_verdict guard;
    double threshold; /* what the score was held against */
    char reason[64];
    struct bound_view view; /* what was measured, of those no guard refused */
    double error;           /* mode bound: likelihood that the answer is wrong; -1 = not asked */
    /* probability that the answer fits, -1 = not asked: filled in by the caller while open, weighed anew (policy.h) by chain_settle */
    double verifier;
};
/* Items best first. Everything up to the verifier. Returns how many are open. */
size_t chain_screen(const struct chain_rules *r, struct str question, struct chain_item *items,
                    size_t n);
/* The rest. order[] gets the indices of the hits, best first; returns their number. */
size_t chain_settle(const struct chain_rules *r, struct chain_item *items, size_t n, size_t *order);

#endif
