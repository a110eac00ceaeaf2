/* scenario.h - one public model name served by several models, by rule: `chat when prompt_tokens > 4000 and class = online -> chat-long`.
 * The first rule of the asked model (or of *) whose conditions all hold names the model; it is not looked up again. Read once, evaluated
 * before the cache's key, so that what counts in the key is the model that answers. Pure. Threading: read-only after scenario_parse.
 *   numbers  prompt_tokens prompt_bytes max_tokens messages inflight load      with > >= < <= = !=
 *   words    class tenant stream                                               with = != and several as a|b
 * A number that a request does not give (max_tokens) fits no condition. class is online or batch, stream yes or no. A model may lead to
 * itself only where a later rule of it or of * would take it: that rule then does not. */
#ifndef DEJA_GATEWAY_SCENARIO_H
#define DEJA_GATEWAY_SCENARIO_H
#include "base/str.h"

struct scenario;
enum { SCENARIO_RULES_MAX = 256, SCENARIO_CONDITIONS_MAX = 8 };

enum scenario_number {
    SCENARIO_PROMPT_TOKENS, /* an estimate where the tokenizer is not known */
    SCENARIO_PROMPT_BYTES,
    SCENARIO_MAX_TOKENS,
    SCENARIO_MESSAGES,
    SCENARIO_INFLIGHT, /* calls at work at the targets of the asked model */
    SCENARIO_LOAD,     /* these in percent of what its targets take, or of inflight_max */
    N_SCENARIO_NUMBERS
};
enum scenario_word { SCENARIO_CLASS, SCENARIO_TENANT, SCENARIO_STREAM, N_SCENARIO_WORDS };

struct scenario_facts {
    int64_t numbers[N_SCENARIO_NUMBERS]; /* -1 = not given */
    struct str words[N_SCENARIO_WORDS];
};

/* Rules, one a line, # comments; text is copied. ERR_INVALID: e names the line and what is wrong in it. No lines: *out NULL, OK. */
MUST enum err scenario_parse(struct scenario **out, struct str text, struct errmsg *e);
void scenario_free(struct scenario *s); /* NULL is fine */
/* Is there a rule for this model at all? Then the facts are worth gathering. */
bool scenario_concerns(const struct scenario *s, struct str model);
/* The model of the i-th rule (may be "*"); p NULL beyond the last. */
struct str scenario_name(const struct scenario *s, int i);
/* The model that the i-th rule leads to; p NULL beyond the last. */
struct str scenario_target(const struct scenario *s, int i);
/* The model to answer; model itself when no rule fits. Borrowed from s or model. */
struct str scenario_model(const struct scenario *s, struct str model,
                          const struct scenario_facts *f);

#endif
