/* grammar.h - output that must have a form: a JSON schema, a regular expression, one of some texts, or tool calls. A grammar is compiled
 * once into a pushdown automaton over bytes; a state per generated choice follows what has been written; a mask says which tokens of
 * the vocabulary may come next.
 *
 * What holds, whatever the model's probabilities: every text that the masks let through can be completed to one of the form, and an
 * end token is allowed exactly where the text is complete. Tokens without text (control tokens) are never allowed. UTF-8 is followed byte
 * by byte, so a character may be spread over tokens. There is always an allowed token, since all bytes the grammar uses are tokens of
 * their own (others were cut from it when it was compiled). Where the text is forced for a while, of the tokens that write it only the
 * usual one is offered: the text is the same. When max_tokens ends a choice its text is a beginning of the form.
 *
 * Threading: a vocabulary and a grammar are immutable, any thread (grammar_ref/unref too). A grammar_run (work memory and mask cache)
 * belongs to one thread, and calls that take one run there; states are plain values of their owner.
 * Bounds: all that a client can ask for is limited in states, work, memory and depth (dfa.h, program.h); beyond is ERR_TOO_LARGE.
 * Source: byte-level automata and token tries as in Willard & Louf 2023 (arXiv:2307.09702); pushdown masks with the split between what
 * the innermost rule decides and what its surroundings decide, Dong et al. 2024 (arXiv:2411.15100). */
#ifndef DEJA_ENGINE_GRAMMAR_GRAMMAR_H
#define DEJA_ENGINE_GRAMMAR_GRAMMAR_H
#include "base/json.h"

enum { GRAMMAR_TRIGGER_MAX = 64 };

struct grammar_vocab;
/* token[i] is the text token i stands for, empty = never allowed; copied. ends: tokens that end a text (their text does not matter).
 * n_vocab: how many tokens a mask has, at least n_tokens (the model's logits may be more). */
struct grammar_vocab *grammar_vocab_new(const struct str *token, int n_tokens, int n_vocab,
                                        const int32_t *ends, int n_ends);
/* How the tokenizer writes a text: at most max ids into out, returns how many. With it, what is forced is written in the tokens the model
 * has learnt for it; without, in the longest that fit. Called from any thread. Before the first grammar_new. */
void grammar_vocab_encoder(struct grammar_vocab *v,
                           int (*encode)(void *arg, struct str text, int32_t *out, int max),
                           void *arg);
void grammar_vocab_free(struct grammar_vocab *v);

enum grammar_kind {
    GRAMMAR_SCHEMA, /* a JSON value that the schema allows; schema NULL = any object */
    GRAMMAR_REGEX,  /* the whole text matches */
    GRAMMAR_CHOICE, /* exactly one of the texts */
    GRAMMAR_CALLS   /* tool calls */
};
/* One tool that may be called. */
struct grammar_tool {
    struct str name;
    const json_t *parameters; /* schema of the arguments, NULL = any object */
    bool strict;              /* false: where the schema cannot be kept any object will do */
    const char *path; /* where parameters stands, for messages: "tools[0].function.parameters" */
};
/* How calls are written: begin, then open name middle arguments close; when many may come: between, and the next; then end. All texts
 * are borrowed during grammar_new. */
struct grammar_calls {
    const struct grammar_tool *tools; /* [n_tools], at least one */
    int n_tools;
    struct str begin, open, middle, close, between, end;
    bool many;
    /* Free text may stand before: anything that does not hold `trigger`; the trigger (at most GRAMMAR_TRIGGER_MAX bytes) is what open
     * then goes on from, and after a call, when many may come, there is free text again; begin, between and end have no part in
     * it. Empty: calls only. */
    struct str trigger;
    /* Instead of calls a value of this schema may come (the request's response_format), where there is no trigger; NULL = not. */
    const json_t *or_schema;
    bool or_strict;
};
struct grammar_spec {
    enum grammar_kind kind;
    const json_t *schema;
    bool
        strict; /* keywords the schema language does not know are refused too, not only those we cannot keep */
    const char
        *path; /* where the schema stands, for messages: "response_format.json_schema.schema" */
    struct str regex;
    const json_t *choices; /* array of strings, at least one */
    struct grammar_calls calls;
};

struct grammar;
/* ERR_UNSUPPORTED: a keyword or construct by name and path; ERR_INVALID: a wrong value, or nothing can match; ERR_TOO_LARGE. What the
 * schema says and how it is read: docs/structured-output.md. The vocabulary must outlive the grammar. */
MUST enum err grammar_new(struct grammar **out, const struct grammar_vocab *v,
                          const struct grammar_spec *spec, struct errmsg *e);
struct grammar *grammar_ref(struct grammar *g);
void grammar_unref(struct grammar *g);         /* NULL is fine */
size_t grammar_bytes(const struct grammar *g); /* memory it holds */

struct grammar_run;
struct grammar_run *grammar_run_new(size_t cache_bytes_max); /* 0 = 64 MiB of masks */
void grammar_run_free(struct grammar_run *r);

/* Where one text stands. Takes a reference of g. */
struct grammar_state;
struct grammar_state *grammar_state_new(struct grammar *g);
void grammar_state_free(struct grammar_state *s);
/* to becomes what from is (same grammar): for trying tokens and going back. A few hundred bytes. */
void grammar_state_copy(struct grammar_state *to, const struct grammar_state *from);

/* Tokens that may come next: bit t%32 of word t/32, n_vocab bits; *n_allowed (may be NULL) is how many, at least 1 unless the text is
 * complete and nothing can follow in a vocabulary without end tokens. Borrowed until the next call with this run. */
const uint32_t *grammar_mask(struct grammar_run *r, const struct grammar_state *s, int *n_allowed);
/* Follows one token. False: it is not allowed, nothing has changed. An end token is accepted where the text is complete and changes
 * nothing. */
bool grammar_accept(struct grammar_run *r, struct grammar_state *s, int32_t token);
/* The same for bytes (a forced beginning, or a test). */
bool grammar_accept_bytes(struct grammar_run *r, struct grammar_state *s, struct str bytes);
/* The text may end here. */
bool grammar_may_end(struct grammar_run *r, const struct grammar_state *s);
/* The text must end here: it is complete and no byte can follow. */
bool grammar_must_end(struct grammar_run *r, const struct grammar_state *s);
/* Bytes that every continuation begins with, at most cap and 1024: a sure draft for speculation. Returns how many (0 = open). */
size_t grammar_forced(struct grammar_run *r, const struct grammar_state *s, char *out, size_t cap);
/* The same as tokens, as the masks will offer them, at most n_max into out. Returns how many. */
int grammar_draft(struct grammar_run *r, const struct grammar_state *s, int32_t *out, int n_max);

#endif
