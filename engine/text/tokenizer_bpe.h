/* tokenizer_bpe.h - byte-level byte pair encoding: words of bytes, merged pair by pair in order of rank. Private to the room.
 * A byte that has no token of its own (such as control characters in some vocabularies) is dropped, as other
 * implementations of these vocabularies do: a replacement could be a control token.
 * Immutable after construction; any thread may encode. Cost: words up to 64 bytes by scanning, longer ones O(n log n).
 * Source: Sennrich et al. 2016, arXiv:1508.07909; byte alphabet: Radford et al. 2019 (GPT-2). */
#ifndef DEJA_ENGINE_TEXT_TOKENIZER_BPE_H
#define DEJA_ENGINE_TEXT_TOKENIZER_BPE_H
#include "engine/text/pretokenize.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocab.h"

struct bpe;

/* spec->merges: "left right", rank = index; a repeated pair keeps its first rank. v is borrowed until bpe_free. ERR_CORRUPT: a
 * merge that is no pair, or whose parts or result are no tokens. */
MUST enum err bpe_new(struct bpe **out, const struct vocab *v, struct pretokenize_rule rule,
                      const struct tokenizer_spec *spec, struct errmsg *e);
void bpe_free(struct bpe *b);
void bpe_encode(const struct bpe *b, struct str text, struct token_list *out);
/* Turns the written form of a token (each byte as one printable character) into its bytes; what is not in that
 * alphabet is kept as it is. Appends. */
void bpe_decode_token(struct str written, struct buf *out);

#endif
