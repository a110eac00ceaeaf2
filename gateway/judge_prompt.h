/* judge_prompt.h - what a language model is asked about two questions or two answers, and what its first token says: the probability of
 * yes against no, from the log probabilities of the likeliest tokens. The prompt begins with the same text for every pair of a language,
 * then the stored question, so that an engine with a prefix cache computes only what is new. Texts go in as JSON strings: whatever they
 * say, they stay inside their quotes. Pure. */
#ifndef DEJA_GATEWAY_JUDGE_PROMPT_H
#define DEJA_GATEWAY_JUDGE_PROMPT_H
#include "base/json.h"

enum judge_task { JUDGE_QUESTIONS, JUDGE_ANSWERS };

/* Appends a chat request for one token with its log probabilities. language: 'z' or 'e'. */
void judge_prompt_write(struct buf *out, enum judge_task task, char language, struct str model,
                        struct str stored, struct str asked);
/* Reads the reply's first token. *yes: 0..1, from log probabilities where the reply has them, else 0 or 1 by the word that was said.
 * ERR_INVALID: no such reply, or neither yes nor no is likely (less than one in ten together). */
MUST enum err judge_prompt_read(const json_t *reply, double *yes, struct errmsg *e);

#endif
