/* token_estimate.h - how many tokens a text may be where its tokenizer is not known. A reservation made by it is put right at the end of
 * the request, so it should rather be a little high. Four ASCII bytes a token, two other letters a token (Cyrillic, Arabic, accented), a
 * token a character of Chinese, Japanese, Korean and symbols beyond; template and picture sizes are usual ones. Pure. */
#ifndef DEJA_GATEWAY_TOKEN_ESTIMATE_H
#define DEJA_GATEWAY_TOKEN_ESTIMATE_H
#include "base/openai.h"

/* Sums up pieces of one text without rounding each. */
struct token_estimate {
    size_t ascii, letters, wide; /* bytes, characters, characters */
};
void token_estimate_add(struct token_estimate *e, struct str text);
int64_t token_estimate_total(const struct token_estimate *e);

int64_t token_estimate(struct str text);
/* Every string of a JSON value, names left out. */
void token_estimate_add_json(struct token_estimate *e, const json_t *v);
/* Messages with their frame, tools, pictures; or the prompt of a completion (token ids count as they are). */
int64_t token_estimate_prompt(const struct openai_request *r);

#endif
