/* prompt_reader.h - from a parsed request to the token ids its model will compute: a model's tokenizer and chat template, taken from a
 * GGUF file or from its metadata alone (as Deja's engine gives it away). Knows no upstream. Counted, because workers read with one
 * while the loop may already have let go. Immutable once made; any thread. */
#ifndef DEJA_GATEWAY_PROMPT_READER_H
#define DEJA_GATEWAY_PROMPT_READER_H
#include "base/openai.h"
#include "engine/text/tokenizer.h"

struct prompt_reader;
enum { PROMPT_TOKENS_MAX = 4 << 20 };

/* bytes are not needed afterwards. tools_in_words: the model's template knows no tools (the engine says it of itself). */
MUST enum err prompt_reader_new(struct prompt_reader **out, struct str bytes, bool tools_in_words,
                                struct errmsg *e);
MUST enum err prompt_reader_open(struct prompt_reader **out, const char *path, struct errmsg *e);
struct prompt_reader *prompt_reader_ref(struct prompt_reader *r);
void prompt_reader_unref(struct prompt_reader *r); /* NULL is fine */

/* Token ids of a chat's messages or of a completion's one prompt; the caller has made out. now_s: for templates that tell the date.
 * ERR_UNSUPPORTED: several prompts, images, or no chat template; ERR_INVALID..: the template refuses. out->failed: too long. */
MUST enum err prompt_reader_read(const struct prompt_reader *r, const struct openai_request *q,
                                 int64_t now_s, struct token_list *out, struct errmsg *e);
/* How many tokens a text is by itself. */
int64_t prompt_reader_count(const struct prompt_reader *r, struct str text);

#endif
