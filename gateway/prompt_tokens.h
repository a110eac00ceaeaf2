/* prompt_tokens.h - stage "prompt": the token ids of a request's prompt, where the model's tokenizer is known (from the engine that serves
 * it, or the option tokenizer); long ones are read on a worker. Kept in the exchange for whoever needs them: the choice of the target,
 * limits in tokens. A request whose prompt cannot be read goes on without: nothing here refuses one.
 * Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_PROMPT_TOKENS_H
#define DEJA_GATEWAY_PROMPT_TOKENS_H
#include "gateway/pipeline.h"
#include "gateway/prompt_reader.h"

struct prompt_tokens {
    struct prompt_reader *reader; /* whose ids they are */
    struct token_list list;
};

/* NEXT, or WAIT while a worker reads. The stage reads only where somebody will look: with one target there is nothing to choose. */
enum step stage_prompt(struct exchange *x);
enum step prompt_read(struct exchange *x);
/* x goes; a worker that still reads for it finishes on its own. */
void prompt_abandon(struct exchange *x);
void prompt_tokens_free(struct prompt_tokens *p); /* NULL is fine */

#endif
