/* pair_net.h - do two short questions ask the same? Two small networks of ours on the token states of one encoder, which embedding a text
 * computes anyway; each token is projected to a few numbers.
 *   alone    mean and maximum of a text's tokens, with the encoder's vector, are its sketch. Two sketches give a logit. Nearly free, and
 *            a sketch is small enough to be stored with an entry.
 *   joint    each token of one text is aligned with those that resemble it in the other; what is left over, and what the tokens that
 *            nothing explains are about, gives a logit.
 * Owns weights and scratch; works on the encoder's backend. Knows no threshold: cache/verifier.h makes probabilities of it.
 * Threading: as the encoder, on its thread; pair_net_score and pair_net_compare: any thread, also while the others run.
 * Source: sentence pairs by |u-v| and u*v (Reimers & Gurevych 2019, arXiv:1908.10084); aligning tokens and comparing what is left after
 * Parikh et al. 2016 (arXiv:1606.01933). Weights: train/train_verifier.py. */
#ifndef DEJA_ENGINE_MODEL_PAIR_NET_H
#define DEJA_ENGINE_MODEL_PAIR_NET_H
#include "engine/model/encoder.h"

struct pair_net;
struct gguf;

enum {
    PAIR_TOKENS_MAX = 47, /* of one text, without prefix and end mark; longer ones have no sketch */
    PAIR_SKETCH_MAX = 2048,  /* bytes */
    PAIR_PACKED_MAX = 16384, /* bytes of packed tokens */
    PAIR_COMPARE_MAX = 8
};

/* weights: borrowed for the call. ERR_UNSUPPORTED: made for another encoder, or no weights of a pair net; ERR_CORRUPT: damaged. The
 * encoder must outlive the net and its tap is the net's from here on. */
MUST enum err pair_net_open(struct pair_net **out, struct encoder *enc, const struct gguf *weights,
                            struct errmsg *e);
void pair_net_close(struct pair_net *net); /* NULL is fine */

size_t pair_net_sketch_bytes(const struct pair_net *net); /* at most PAIR_SKETCH_MAX */
bool pair_net_is_joint(const struct pair_net *net);       /* has the second network too */
/* What the file says about turning logits into decisions: a text for cache/verifier.h, empty = nothing. Borrowed. */
struct str pair_net_calibration(const struct pair_net *net);

/* A text as the joint network wants it: its tokens in 8 bit, and its sketch. Plain bytes, may be copied. */
struct pair_tokens;
const void *pair_tokens_sketch(const struct pair_tokens *t); /* [sketch_bytes], borrowed */
void pair_tokens_free(struct pair_tokens *t);                /* NULL is fine */
size_t pair_tokens_bytes(const struct pair_tokens *t);
/* To be stored with a text, some 1.5 KB for 16 tokens: writes at most PAIR_PACKED_MAX bytes, returns how many. Unpack trusts nothing: NULL
 * unless they were packed by a net of these very weights. Any thread. */
size_t pair_tokens_pack(const struct pair_tokens *t, uint8_t out[PAIR_PACKED_MAX]);
struct pair_tokens *pair_tokens_unpack(const struct pair_net *net, struct str bytes);

/* encoder_embed, and in the same passes sketches[n][sketch_bytes] and tokens[n] (may be NULL; new, the caller's).
 * A text that was refused or is too long for the net gets a sketch of zeros, and tokens NULL. */
void pair_net_embed(struct pair_net *net, const struct str *texts, int n, float *vectors,
                    enum err *status, uint8_t *sketches, struct pair_tokens **tokens);

/* *logit > 0: rather the same question. Does not depend on the order. cosine: of the texts' vectors. ERR_CORRUPT: one of the two is
 * no sketch of this net (zeros, another net's, damaged): nothing is known then. */
MUST enum err pair_net_score(const struct pair_net *net, const void *sketch_a, const void *sketch_b,
                             double cosine, float *logit);

/* Both looks at a beside each of b[n], n at most PAIR_COMPARE_MAX, with the cosines of their vectors: alone[n], joint[n], NaN where one of
 * the two is NULL or not of this net. alone is what pair_net_score says; joint the same in either order but for rounding, and whoever
 * else is compared. n of them cost less than three times as much as one. Needs pair_net_is_joint. */
void pair_net_compare(const struct pair_net *net, const struct pair_tokens *a,
                      const struct pair_tokens *const *b, const double *cosines, int n,
                      float *alone, float *joint);

#endif
