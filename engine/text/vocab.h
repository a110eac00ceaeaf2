/* vocab.h - the strings of a vocabulary and a map from string to id. Owns copies of the strings. Refuses two tokens of the
 * same text; empty tokens are allowed and never found. Immutable after construction; any thread. */
#ifndef DEJA_ENGINE_TEXT_VOCAB_H
#define DEJA_ENGINE_TEXT_VOCAB_H
#include "base/str.h"

struct vocab;

/* ERR_CORRUPT: duplicate. ERR_TOO_LARGE: memory refused, or more than 2^24 tokens or 1 GiB of text. */
MUST enum err vocab_new(struct vocab **out, const struct str *tokens, int n_tokens,
                        struct errmsg *e);
void vocab_free(struct vocab *v);
int vocab_size(const struct vocab *v);
struct str vocab_text(const struct vocab *v,
                      int32_t id); /* id in range; borrowed until vocab_free */
int32_t vocab_find(const struct vocab *v, struct str text); /* -1 when there is none */

#endif
