/* tokenizer_load.h - a tokenizer and a chat template from the metadata of a GGUF file (keys tokenizer.*). Knows the file's
 * words; what they mean is decided in engine/text. Any thread. */
#ifndef DEJA_ENGINE_MODEL_TOKENIZER_LOAD_H
#define DEJA_ENGINE_MODEL_TOKENIZER_LOAD_H
#include "base/str.h"

struct gguf;
struct tokenizer;
struct chat_template;
struct chat_traits;

/* tokenizer.ggml.model: "gpt2" = byte-level BPE, "llama" = SentencePiece's BPE, "bert" = WordPiece, "t5" or "unigram" =
 * unigram. ERR_UNSUPPORTED for others, ERR_CORRUPT when keys are missing or contradict each other; *e names the key. g may be
 * closed afterwards. Keys of our own: tokenizer.ggml.lowercase (bool, WordPiece; default true). */
MUST enum err tokenizer_from_gguf(struct tokenizer **out, const struct gguf *g, struct errmsg *e);
/* tokenizer.chat_template. ERR_NOT_FOUND when the file has none. traits may be NULL: with it, what the template costs the
 * prefix cache is found out and logged. */
MUST enum err chat_template_from_gguf(struct chat_template **out, const struct gguf *g,
                                      struct chat_traits *traits, struct errmsg *e);
/* Both, as a chat prompt is read with them: the caller frees tokenizer and template, which text borrows (tools_in_words stays false).
 * Files with ChatML's control tokens and no template get ChatML's. A template that we cannot run costs the chat, not the model:
 * OK, *template is NULL and *e says why (empty: there is none). */
struct chat_reader;
MUST enum err chat_reader_from_gguf(struct tokenizer **tokenizer, struct chat_template **template,
                                    struct chat_reader *text, const struct gguf *g,
                                    struct errmsg *e);
/* The text of the bos or eos token, "" when there is none; written to out[cap], cut when longer. */
void tokenizer_token_text(const struct gguf *g, const char *id_key, char *out, size_t cap);

#endif
