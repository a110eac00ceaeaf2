/* tokenizer_spm.h - SentencePiece's BPE (Llama, Mistral, Gemma): spaces become U+2581, then neighbouring characters are joined,
 * the pair whose joint text is the piece of highest score first. A character that is no piece becomes its bytes' tokens, or the
 * unknown token where the vocabulary has none. Bytes that are not UTF-8 are kept the same way. Private to the room.
 * Immutable after construction; any thread may encode. Cost: O(n log n) at worst; text falls into short words at the places that
 * no piece spans, and those are scanned.
 * Source: Kudo and Richardson 2018, arXiv:1808.06226; Sennrich et al. 2016, arXiv:1508.07909. */
#ifndef DEJA_ENGINE_TEXT_TOKENIZER_SPM_H
#define DEJA_ENGINE_TEXT_TOKENIZER_SPM_H
#include "engine/text/tokenizer.h"
#include "engine/text/vocab.h"

struct spm;

/* v is borrowed until spm_free. ERR_CORRUPT without scores, when a score is not finite, or when there are neither byte tokens
 * nor an unknown token. */
MUST enum err spm_new(struct spm **out, const struct vocab *v, const struct tokenizer_spec *spec,
                      struct errmsg *e);
void spm_free(struct spm *s);
/* starts: the text begins here, or follows a control token, so a word mark is put first where the vocabulary wants one.
 * ends: nothing but a control token follows. User-defined tokens were cut out before. */
void spm_encode(const struct spm *s, struct str text, bool starts, bool ends,
                struct token_list *out);
/* "<0x41>" -> 0x41, else -1. */
int spm_byte_of(struct str written);

#endif
