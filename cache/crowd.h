/* crowd.h - the questions an entry's answer was given to: are they like each other? Other wordings of one question are. An entry that many
 * unlike questions hit answers at most one of them rightly, be it that somebody stored it to be served to all (poisoning), or that its text
 * lies near everything. Of each entry hit lately the last few questions' vectors are kept, a signed byte a number; a new question is
 * unlike when most of them lie below a cosine. A text counts once, and so does whoever is known to ask, so that nobody alone makes or
 * breaks an entry. The entry is a crowd's when the share of unlike questions, by its one-sided 95 % lower Wilson bound, is over half.
 * Pure; fixed memory: where it is used up the entry heard of longest ago makes room. Threading: the loop's thread. */
#ifndef DEJA_CACHE_CROWD_H
#define DEJA_CACHE_CROWD_H
#include "base/hash.h"

enum { CROWD_KEPT = 8, CROWDS_MAX = 2048, CROWDS_BYTES = 8 << 20 };

struct crowds;
struct crowds *crowds_new(size_t dim); /* allocates nothing else until the first question */
void crowds_free(struct crowds *c);
size_t crowds_bytes(const struct crowds *c);

struct crowd_question {
    struct str text;
    uint64_t asker; /* 0 = not known: every text counts */
    const float *vec;
    double unlike; /* cosine below which another question is unlike this one */
};
struct crowd_count {
    unsigned questions, unlike; /* the first has nothing to be unlike to */
};
/* The entry's answer is given to q. What is known of it now, the counts halved every CROWD_AGE questions. */
enum { CROWD_AGE = 64 };
struct crowd_count crowds_note(struct crowds *c, struct hash128 entry,
                               const struct crowd_question *q);
/* At least least questions were counted, and too many are unlike. */
bool crowd_is_one(struct crowd_count n, int64_t least);
void crowds_forget(struct crowds *c, struct hash128 entry);

#endif
