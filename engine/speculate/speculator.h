/* speculator.h - what the sequences of an engine may say next, and how much of it is worth checking: look-up in the sequence itself and in
 * a text the client expects, and a draft model where those promise less than it does. A draft is a chain, or, where several continuations
 * of one place are worth their rows, a tree. Never changes what is said: the engine checks every token against its model.
 * Threading: the step thread, but for drafts_new/drafts_free, which touch nothing shared. */
#ifndef DEJA_ENGINE_SPECULATE_SPECULATOR_H
#define DEJA_ENGINE_SPECULATE_SPECULATOR_H
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/speculate/grow.h"
#include "engine/speculate/lookup.h"

struct speculator;
struct draft_model;

enum { SPECULATOR_BRANCHES_MAX = DRAFT_RANKS };
struct speculator_options {
    int n_max;                 /* tokens of one path, 1..DRAFT_DEPTH_MAX */
    int branches;              /* tokens behind one place, 1..SPECULATOR_BRANCHES_MAX; 1 = chains */
    bool lookup;               /* draft from the sequence itself */
    bool always;               /* as much as possible, whatever it costs: for measuring */
    struct draft_model *model; /* taken; NULL = none */
};
/* Nodes a draft may have with these options. */
int speculator_nodes_max(int n_max, int branches);
struct speculator *speculator_new(const struct speculator_options *o); /* never NULL */
void speculator_free(struct speculator *s);

/* What is remembered of one choice. expected[n_expected] (copied, may be empty) is the text a client foresees; of a longer one the first
 * LOOKUP_SCAN_MAX tokens count, since an answer begins with them. NULL: no memory. */
struct drafts;
struct drafts *drafts_new(const int32_t *expected, int n_expected);
void drafts_free(struct drafts *d); /* NULL is fine */

struct speculator_step {
    int n_rows,
        n_seqs; /* decoding rows of the step so far (drafts already given included), decoding sequences */
};
/* A draft for what follows text; at most n_max nodes (further bounded by the options), likeliest first. */
void speculator_draft(struct speculator *s, struct drafts *d, const struct speculator_step *step,
                      struct lookup_text text, int n_max, struct draft *out);
/* Whether a draft is to be expected once the token after text, which is on its way, is known. */
bool speculator_may_draft(struct speculator *s, struct drafts *d,
                          const struct speculator_step *step, struct lookup_text text);
/* said[n] followed what the last draft was made for, of which the first n_checked nodes (maybe none) were checked. */
void speculator_heard(struct speculator *s, struct drafts *d, const int32_t *said, int n,
                      int n_checked);
/* The choice has ended: a draft model forgets it. */
void speculator_forget(struct speculator *s, struct drafts *d);
/* A step of n_rows rows, all of decoding sequences, took us. */
void speculator_learn(struct speculator *s, int n_rows, double us);

struct draft_count {
    uint64_t checked, right; /* nodes */
};
/* By source, since the start. */
const struct draft_count *speculator_counts(const struct speculator *s);

#endif
