/* special_tokens.h - recognises tokens that stand for themselves in a text (control tokens such as <|im_end|>, and user-defined
 * ones such as <tool_call>), longest match first. Immutable after construction; any thread. */
#ifndef DEJA_ENGINE_TEXT_SPECIAL_TOKENS_H
#define DEJA_ENGINE_TEXT_SPECIAL_TOKENS_H
#include "base/str.h"

struct special_tokens;
struct special_token {
    struct str text; /* borrowed for the matcher's life, not empty */
    int32_t id;
    bool control;
};
struct special_match {
    size_t n; /* bytes */
    int32_t id;
    bool control;
};

struct special_tokens *special_tokens_new(const struct special_token *tokens,
                                          int n); /* tokens are copied; never NULL */
void special_tokens_free(struct special_tokens *s);
bool special_tokens_any(const struct special_tokens *s,
                        bool with_control); /* is there anything to look for? */
/* The longest token at byte `at`. Control tokens count only when they end at or before control_end. False: none. */
bool special_tokens_at(const struct special_tokens *s, struct str text, size_t at,
                       size_t control_end, struct special_match *out);

#endif
