/* speculator.h - what the sequences of an engine may say next, and how much of it is worth checking: look-up in the sequence itself and in
 * a text the client expects, else a draft model. Never changes what is said: the engine checks every token against its model.
 * Threading: the step thread, but for drafts_new/drafts_free, which touch nothing shared. */
#ifndef DEJA_ENGINE_SPECULATE_SPECULATOR_H
#define DEJA_ENGINE_SPECULATE_SPECULATOR_H
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct speculator;
struct draft_model;

struct speculator_options {
    int n_max;                 /* tokens of one draft, 1..15 */
    bool lookup;               /* draft from the sequence itself */
    bool always;               /* as long as possible, whatever it costs: for measuring */
    struct draft_model *model; /* taken; NULL = none */
};
struct speculator *speculator_new(const struct speculator_options *o); /* never NULL */
void speculator_free(struct speculator *s);

/* What is remembered of one choice. expected[n_expected] (copied, may be empty) is the text a client foresees. NULL: no memory. */
struct drafts;
struct drafts *drafts_new(const int32_t *expected, int n_expected);
void drafts_free(struct drafts *d); /* NULL is fine */

struct speculator_step {
    int n_rows,
        n_seqs; /* decoding rows of the step so far (drafts already given included), decoding sequences */
};
/* A draft for what follows tokens[n_tokens]; at most n_max ids into out (further bounded by the options). Returns how many. */
int speculator_draft(struct speculator *s, struct drafts *d, const struct speculator_step *step,
                     const int32_t *tokens, int n_tokens, int32_t *out, int n_max);
/* Of the last draft n tokens were checked (0: it was not used), the first n_right of them were right. */
void speculator_checked(struct speculator *s, struct drafts *d, int n, int n_right);
/* The choice has ended: a draft model forgets it. */
void speculator_forget(struct speculator *s, struct drafts *d);
/* A step of n_rows rows, all of decoding sequences, took us. */
void speculator_learn(struct speculator *s, int n_rows, double us);

#endif
