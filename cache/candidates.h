/* candidates.h - from the nearest stored texts to the entries worth considering. An entry may have several wordings; the nearest one
 * speaks for it. A text judged not to get an entry's answer stands against it, and so does a near question that has another answer of
 * its own. Pure. */
#ifndef DEJA_CACHE_CANDIDATES_H
#define DEJA_CACHE_CANDIDATES_H
#include "cache/partition.h"

enum {
    CANDIDATES_MAX = 16,
    /* judged texts lie between the questions: when each wording of a FAQ had been judged, 16 of them hid 2 of 100 right questions */
    JUDGED_HITS_MAX = 48,
    AGREE_TEXTS = 8
};

/* A stored text near the question. */
struct near_text {
    const struct question *q;
    const struct question
        *own; /* of the entry q leads to, itself or another; NULL = q leads to none that is here */
    double cosine;
};
struct candidate {
    const struct question *q;   /* the nearest wording */
    const struct question *own; /* the entry's own question */
    double cosine;
    double veto;  /* cosine of the nearest text that must not get this answer; -1 = none */
    double rival; /* cosine of the nearest text that has another answer; -1 = none */
    double agree; /* share of the AGREE_TEXTS nearest texts that lead to this answer */
};
/* texts: best first. Writes up to max candidates, best first. */
size_t candidates_gather(const struct near_text *texts, size_t n, struct candidate *out,
                         size_t max);
/* Does q forbid that entry's answer? */
bool candidate_vetoed_by(const struct question *q, struct hash128 entry);

#endif
