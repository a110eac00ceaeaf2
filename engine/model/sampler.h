/* sampler.h - picks the next token from one row of logits: penalties, bias, temperature, min-p, top-k, top-p, seed; and
 * the log-probabilities a client asked for. One sampler per generated choice.
 * Order: allowed mask, logit bias, repetition / presence / frequency penalties; temperature 0 stops here (largest logit,
 * the lower id wins a tie); else temperature, min-p, top-k, top-p, one draw. Log-probabilities are those of the raw
 * logits, before any of it, so that they do not depend on sampling settings.
 * Pure but for memory: no clock, no global state; the same seed and logits give the same tokens, alone or in a batch.
 * Threading: a sampler and a scratch belong to one thread at a time. One scratch serves any number of samplers.
 * Source: top-p Holtzman et al. 2020 (arXiv:1904.09751); min-p Nguyen et al. 2024 (arXiv:2407.01082); repetition penalty
 * Keskar et al. 2019 (arXiv:1909.05858). */
#ifndef DEJA_ENGINE_MODEL_SAMPLER_H
#define DEJA_ENGINE_MODEL_SAMPLER_H
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/backend/sample.h"

#define SAMPLER_BIAS_MAX 1024

struct sampler_params {
    float temperature;        /* 0..2; 0 = greedy */
    int top_k;                /* 0 = off */
    float top_p;              /* (0,1]; 1 = off */
    float min_p;              /* [0,1]; 0 = off: drops tokens under min_p times the likeliest */
    float repetition_penalty; /* (0,2]; 1 = off: over prompt and generated tokens */
    float presence_penalty;   /* -2..2; over generated tokens */
    float frequency_penalty;  /* -2..2; over generated tokens */
    uint64_t seed;
    const struct sampler_bias *bias; /* [n_bias], copied by sampler_new; 0..SAMPLER_BIAS_MAX */
    int n_bias;
    int n_top_logprobs; /* 0..20 alternatives to report; -1 = no log-probabilities at all */
};
/* Everything off, greedy, seed 0, no log-probabilities. */
struct sampler_params sampler_params_default(void);

struct sampler;
struct sampler_scratch; /* work memory of a pick, about 12 bytes a vocabulary entry */

struct sampler_scratch *sampler_scratch_new(int n_vocab); /* never NULL */
void sampler_scratch_free(struct sampler_scratch *scratch);

/* ERR_RANGE with the field's name and its range. */
MUST enum err sampler_new(struct sampler **out, const struct sampler_params *params, int n_vocab,
                          struct errmsg *e);
void sampler_free(struct sampler *s);

/* Tells the prompt's tokens, for the repetition penalty. Cheap when that is off. */
void sampler_prompt(struct sampler *s, const int32_t *ids, int n);
/* Tells that a token was generated (picked, drafted and accepted, or forced): penalties count it. */
void sampler_accept(struct sampler *s, int32_t token);

/* Whether what sampler_accept tells changes the next pick: there are penalties. */
bool sampler_remembers(const struct sampler *s);

/* logits f32[n_vocab] is overwritten where mask, bias or penalties apply. allowed: bit set of [n_vocab] tokens (bit t%32 of
 * word t/32) or NULL = all. ERR_CORRUPT when no finite logit is left to pick from. Does not call sampler_accept. */
MUST enum err sampler_pick(struct sampler *s, struct sampler_scratch *scratch, float *logits,
                           const uint32_t *allowed, struct sampler_pick_out *out);

/* Everything another machine needs to make s's next pick in its stead; the draw is taken, as sampler_pick would. logits, allowed and
 * unheard are the caller's to fill; the arrays are s's, until the next call. */
void sampler_hand_over(struct sampler *s, struct sample_row *out);

#endif
