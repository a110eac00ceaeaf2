/* chat_prompt.h - from a chat request's messages to the token ids of the prompt: what clients send is brought into the form that
 * templates expect (content parts joined, call arguments as objects, tools described in words where the template knows none), rendered,
 * and tokenised so that control tokens typed by a user stay plain text. The engine computes these ids; the gateway finds the same ones,
 * so that it can tell which of their KV blocks exist. Pure but for memory. Any thread. */
#ifndef DEJA_ENGINE_TEXT_CHAT_PROMPT_H
#define DEJA_ENGINE_TEXT_CHAT_PROMPT_H
#include "engine/text/chat_template.h"
#include "engine/text/chat_traits.h"
#include "engine/text/tokenizer.h"

/* What of a model its prompts depend on; borrowed by whoever asks. */
struct chat_reader {
    const struct tokenizer *tokenizer;
    const struct chat_template *template; /* NULL: it has none */
    struct chat_traits traits;
    bool tools_in_words; /* the template knows no tools */
    char bos[64], eos[64];
};
struct chat_prompt {
    const struct json_t *messages;
    const struct json_t *tools;     /* those that may be called, or NULL */
    const struct json_t *variables; /* for the template: an object or NULL */
    int64_t now_s;
};
enum { CHAT_PROMPT_MAX = 32 << 20 /* bytes of a rendered prompt */ };

/* Appends to out, which the caller has made; out->failed: too long. ERR_UNSUPPORTED: the model has no template. ERR_INVALID,
 * ERR_RANGE, ERR_TOO_LARGE: the template refuses these messages, as e says. */
MUST enum err chat_prompt_encode(const struct chat_reader *r, const struct chat_prompt *p,
                                 struct token_list *out, struct errmsg *e);
/* A message's content as one text: parts joined by line breaks. A new reference, never NULL. */
struct json_t *chat_content(const struct json_t *content);

#endif
