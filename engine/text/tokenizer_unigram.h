/* tokenizer_unigram.h - SentencePiece unigram (XLM-R and its kin): normalise, mark word starts with U+2581, then the cut of
 * highest summed score (Viterbi). Neighbouring characters that no piece covers become one unknown token. Private to the room.
 * Immutable; any thread may encode.
 * Source: Kudo 2018, arXiv:1804.10959; Kudo and Richardson 2018, arXiv:1808.06226. */
#ifndef DEJA_ENGINE_TEXT_TOKENIZER_UNIGRAM_H
#define DEJA_ENGINE_TEXT_TOKENIZER_UNIGRAM_H
#include "engine/text/tokenizer.h"
#include "engine/text/vocab.h"

struct unigram;

/* ERR_CORRUPT without scores or an unknown token, or when a score is not finite. */
MUST enum err unigram_new(struct unigram **out, const struct vocab *v,
                          const struct tokenizer_spec *spec, struct errmsg *e);
void unigram_free(struct unigram *u);
void unigram_encode(const struct unigram *u, struct str text, struct token_list *out);
void unigram_decode_token(struct str written, struct buf *out); /* U+2581 becomes a space */

#endif
