/* tokenizer_wordpiece.h - BERT's tokenizer: clean, split at spaces, ideographs and punctuation, then longest pieces first.
 * Private to the room. A word of more than 100 characters, or one the pieces do not cover, is one unknown token. Bytes that
 * are not UTF-8 are dropped, like control characters. Immutable; any thread; encoding allocates nothing.
 * Source: Devlin et al. 2018, arXiv:1810.04805; Wu et al. 2016, arXiv:1609.08144. */
#ifndef DEJA_ENGINE_TEXT_TOKENIZER_WORDPIECE_H
#define DEJA_ENGINE_TEXT_TOKENIZER_WORDPIECE_H
#include "engine/text/tokenizer.h"
#include "engine/text/vocab.h"

struct wordpiece;

/* Two ways of writing pieces are read: "word" and "##piece", or U+2581 "word" and "piece". ERR_CORRUPT without an unknown
 * token. v is borrowed until wordpiece_free. */
MUST enum err wordpiece_new(struct wordpiece **out, const struct vocab *v,
                            const struct tokenizer_spec *spec, struct errmsg *e);
void wordpiece_free(struct wordpiece *w);
void wordpiece_encode(const struct wordpiece *w, struct str text, struct token_list *out);
void wordpiece_decode_token(const struct wordpiece *w, struct str written,
                            struct buf *out); /* words get a space before */

#endif
