/* sample.h - what picking a token takes and gives, wherever it is done: by engine/model/sampler.c on the host, or by an accelerator that
 * keeps the logits (backend_submit). The order of things is sampler.h's. */
#ifndef DEJA_ENGINE_BACKEND_SAMPLE_H
#define DEJA_ENGINE_BACKEND_SAMPLE_H
#include <stdint.h>

#define SAMPLER_TOP_LOGPROBS_MAX 20
#define SAMPLER_LOGPROB_FLOOR (-9999.0f)

struct sampler_bias {
    int32_t token;
    float bias; /* added to the logit, -100..100 */
};

/* One token seen so far. token -1: an empty slot of the sampler's table. */
struct sampler_seen {
    int32_t token;
    int32_t n_generated;
};

struct sampler_top {
    int32_t token;
    float logprob;
};
struct sampler_pick_out {
    int32_t token;
    float logprob; /* of token; 0 when not asked for. Floor SAMPLER_LOGPROB_FLOOR */
    int n_top;
    struct sampler_top top[SAMPLER_TOP_LOGPROBS_MAX]; /* best first, ties by id */
};

/* One pick from one row of logits; arrays are borrowed for the call. */
struct sample_row {
    int logits; /* which row */
    float temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int top_k, n_top_logprobs;
    double draw; /* [0,1): the one the host's sampler would make now */
    const struct sampler_bias *bias;
    const struct sampler_seen *seen; /* empty slots are passed over */
    int n_bias, n_seen;
    int unheard; /* 0, or 1 + i: the i-th pick of the last submission is not among seen yet and counts as generated too */
    const uint32_t *allowed; /* bit t%32 of word t/32, or NULL = all */
};

#endif
