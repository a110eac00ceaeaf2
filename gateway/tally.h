/* tally.h - what happened since the last batch, by namespace and arm: counts and latency buckets, in the words lua/counters.lua knows.
 * Bounded: beyond TALLY_ROWS_MAX namespaces and arms the rest is counted as one. Pure. */
#ifndef DEJA_GATEWAY_TALLY_H
#define DEJA_GATEWAY_TALLY_H
#include "base/buf.h"

enum tally_field {
    TALLY_REQUESTS,
    TALLY_EXACT,
    TALLY_SEMANTIC,
    TALLY_STALE,
    TALLY_COALESCED,
    TALLY_FOLLOWED, /* of these: a similar question was being asked */
    TALLY_MISS,
    TALLY_BYPASS,
    TALLY_ERRORS,
    TALLY_NEAR,
    TALLY_PROMPT_ASKED,
    TALLY_COMPLETION_ASKED,
    TALLY_PROMPT_SAVED,
    TALLY_COMPLETION_SAVED,
    TALLY_SHADOWED,
    TALLY_CHECKED,
    TALLY_WRONG,
    TALLY_JUDGED,
    TALLY_APPROVED,
    TALLY_VETOED,
    N_TALLY_FIELDS
};
enum { TALLY_ROWS_MAX = 64, TALLY_BUCKETS = 96, TALLY_ARM_BYTES = 82, TALLY_NS_BYTES = 65 };

struct tally_row {
    char ns[TALLY_NS_BYTES], arm[TALLY_ARM_BYTES]; /* "" = none */
    uint64_t counts[N_TALLY_FIELDS], buckets[TALLY_BUCKETS];
};
struct tally {
    struct tally_row rows[TALLY_ROWS_MAX];
    int n_rows;
};

/* The row to count in; never NULL. Names too long are cut. */
struct tally_row *tally_at(struct tally *t, const char *ns, const char *arm);
/* Upper end of bucket i is 0.05 ms * 2^(i/4); what is longer than the last goes into it. */
void tally_latency(struct tally_row *r, double ms);
/* "rows [namespace arm n [field count]*n]*rows" as arguments, each terminated by a NUL byte; clears t. *n_args: how many. */
void tally_take(struct tally *t, struct buf *out, size_t *n_args);

#endif
