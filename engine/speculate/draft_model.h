/* draft_model.h - a smaller model of the same vocabulary that guesses ahead. Holds the last few sequences it was asked about, each in
 * KV blocks of its own; reads what it has not seen yet, then says greedily what it thinks follows.
 * Threading: the step thread. */
#ifndef DEJA_ENGINE_SPECULATE_DRAFT_MODEL_H
#define DEJA_ENGINE_SPECULATE_DRAFT_MODEL_H
#include <stdint.h>

#include "base/err.h"

struct draft_model;
struct gguf;

struct draft_model_options {
    const char *path;
    int n_threads, context_max; /* tokens of one sequence; longer ones get no draft */
    const char *isa;
};
/* target: the file of the model that checks. ERR_INVALID when the vocabularies differ (the first difference is named). */
MUST enum err draft_model_open(struct draft_model **out, const struct draft_model_options *o,
                               const struct gguf *target, struct errmsg *e);
void draft_model_close(struct draft_model *m); /* NULL is fine */
enum { DRAFT_MODEL_RANKS = 3 };
struct draft_guess { /* likeliest first, and how likely each is by itself */
    int32_t token[DRAFT_MODEL_RANKS];
    float p[DRAFT_MODEL_RANKS];
};
/* n tokens that may follow tokens[n_tokens], each behind the likeliest of the one before; *ticket (0 at first) names the sequence here.
 * Returns how many: 0 when it is too long, or has so much to read first that a part is read now and drafts come later. */
int draft_model_say(struct draft_model *m, uint64_t *ticket, const int32_t *tokens, int n_tokens,
                    struct draft_guess *out, int n);
void draft_model_forget(struct draft_model *m, uint64_t *ticket);
/* What a drafted token costs, measured; at first by a few steps at the start. */
double draft_model_token_us(const struct draft_model *m);

#endif
