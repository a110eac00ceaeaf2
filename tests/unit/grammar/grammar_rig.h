/* grammar_rig.h - what the grammar tests share: a small vocabulary with every byte and many awkward pieces, and short ways to compile,
 * to ask whether a whole text is accepted, and to write a random text that the masks allow. */
#ifndef DEJA_TESTS_GRAMMAR_RIG_H
#define DEJA_TESTS_GRAMMAR_RIG_H
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/grammar/grammar.h"
#include "tests/check.h"

enum { RIG_TOKENS_MAX = 1400, RIG_TEXT_MAX = 6000 };

static struct grammar_vocab *rig_vocab;
static struct grammar_run *rig_run;
static struct str rig_token[RIG_TOKENS_MAX];
static int rig_n_tokens, rig_n_vocab;
static int32_t rig_end;

static const char *const rig_pieces[] = {
    "{\"",
    "\":",
    "\": ",
    "\",",
    "\", \"",
    "\",\"",
    "\"}",
    "\"]",
    "\"}]",
    "}}",
    "]]",
    "]}",
    "}]",
    "},",
    "},{",
    "},{\"",
    "[{",
    "[[",
    "[\"",
    "[]",
    "{}",
    ": ",
    ", ",
    ",\n",
    "{\n",
    "}\n",
    "\n  ",
    "\n    ",
    "  ",
    "    ",
    "\n\n",
    "        ",
    "true",
    "false",
    "null",
    "tru",
    "ue",
    "nul",
    "1.",
    "0.5",
    "12",
    "123",
    "2024",
    "-",
    "-1",
    "e+",
    "E-3",
    "e1",
    ".0",
    "00",
    "name",
    "na",
    "me",
    "age",
    "a\"",
    "\"a",
    "\"a\"",
    "\"a\":",
    "\\\"",
    "\\n",
    "\\u",
    "\\u00",
    "00e9",
    "\\\\",
    "\\",
    "hello",
    " world",
    " the",
    "the",
    "ing",
    "\xc3\xa9",
    "\xc3",
    "\xe4\xbd\xa0",
    "\xe4\xbd",
    "\xa0\xe5\xa5\xbd",
    "\xf0\x9f\x98\x80",
    "\xf0\x9f",
    "\x98\x80",
    "\xe2\x80\xa8",
    "red",
    "green",
    "blue",
    "<tool_call>",
    "</tool_call>",
    "\"\"",
    "\":\"",
    "\":[",
    "\":{\"",
    "]}\n",
    "abc",
    "ab",
    "bc",
    "2-",
    "-02",
    "T0",
    "Z\"",
    ":00",
    "@a",
    ".co",
    "com",
    "\"b\"",
    "\"b",
    "c\":",
    "x",
    "yz",
    "0\"",
};

/* Pieces, every byte, random pairs and triples of what JSON is made of, one token without text, one that ends. */
static void rig_open(void)
{
    static char made[600][4];
    static const char common[] = "{}[]\",:\\ \n0123456789-.eEtrufalsn ab\"\"";
    struct rng r;
    if (rig_vocab) return;
    rng_seed(&r, 42);
    for (int b = 0; b < 256; b++) {
        static char bytes[256];
        bytes[b] = (char)b;
        rig_token[rig_n_tokens++] = (struct str){&bytes[b], 1};
    }
    for (size_t i = 0; i < sizeof rig_pieces / sizeof *rig_pieces; i++)
        rig_token[rig_n_tokens++] = str_of(rig_pieces[i]);
    for (int i = 0; i < 600; i++) {
        size_t n = 2 + rng_below(&r, 3);
        for (size_t k = 0; k < n; k++)
            made[i][k] = common[rng_below(&r, sizeof common - 1)];
        rig_token[rig_n_tokens++] = (struct str){made[i], n};
    }
    rig_token[rig_n_tokens++] = (struct str){"", 0};
    rig_end = rig_n_tokens;
    rig_token[rig_n_tokens++] = str_of("</s>");
    rig_n_vocab = rig_n_tokens + 3; /* logits may be more than tokens */
    rig_vocab = grammar_vocab_new(rig_token, rig_n_tokens, rig_n_vocab, &rig_end, 1);
    rig_run = grammar_run_new(0);
}

static void rig_close(void)
{
    grammar_run_free(rig_run);
    grammar_vocab_free(rig_vocab);
    rig_run = NULL;
    rig_vocab = NULL;
    rig_n_tokens = 0;
}

static inline json_t *rig_json(const char *text)
{
    json_t *v = NULL;
    struct errmsg e = {0};
    CHECK_AT(json_parse(str_of(text), 0, &v, &e) == OK, "%s: %s", text, e.text);
    return v;
}

/* NULL: refused, with the reason in e. */
static inline struct grammar *rig_schema_json(const json_t *schema, bool strict, struct errmsg *e)
{
    struct grammar *g = NULL;
    struct grammar_spec spec = {
        .kind = GRAMMAR_SCHEMA, .schema = schema, .strict = strict, .path = "schema"};
    rig_open();
    if (grammar_new(&g, rig_vocab, &spec, e)) return NULL;
    return g;
}
static inline struct grammar *rig_schema(const char *schema, bool strict, struct errmsg *e)
{
    json_t *v = rig_json(schema);
    struct grammar *g = rig_schema_json(v, strict, e);
    json_decref(v);
    return g;
}
static inline struct grammar *rig_regex(const char *regex, struct errmsg *e)
{
    struct grammar *g = NULL;
    struct grammar_spec spec = {.kind = GRAMMAR_REGEX, .regex = str_of(regex)};
    rig_open();
    if (grammar_new(&g, rig_vocab, &spec, e)) return NULL;
    return g;
}

/* The whole text, and it may end there. */
static inline bool rig_accepts(struct grammar *g, struct str text)
{
    struct grammar_state *s = grammar_state_new(g);
    bool fine = grammar_accept_bytes(rig_run, s, text) && grammar_may_end(rig_run, s);
    grammar_state_free(s);
    return fine;
}

static inline bool rig_allowed(const uint32_t *mask, int32_t t)
{
    return mask[t / 32] >> (t % 32) & 1;
}

/* A random text by the masks; after `patience` tokens those are preferred that end it soonest (shortest token first, end first).
 * False: it did not end, or nothing was allowed. */
static inline bool rig_write(struct grammar *g, struct rng *r, int patience, struct buf *out)
{
    struct grammar_state *s = grammar_state_new(g);
    bool fine = false;
    for (int i = 0; i < RIG_TEXT_MAX; i++) {
        int n, pick = -1;
        const uint32_t *mask = grammar_mask(rig_run, s, &n);
        CHECK_AT(n > 0, "nothing is allowed after %.*s", (int)out->n, out->p);
        if (n <= 0) break;
        bool end = rig_allowed(mask, rig_end);
        if (end && (i > patience || rng_below(r, 4) == 0 || n == 1)) {
            CHECK(grammar_accept(rig_run, s, rig_end));
            fine = true;
            break;
        }
        for (int tries = 0; pick < 0; tries++) {
            int32_t t = tries < 40 ? (int32_t)rng_below(r, (uint64_t)rig_n_vocab) : tries - 40;
            if (i > patience) t = tries; /* single bytes first; quotes and brackets come early */
            if (i > patience && tries == 0) t = '"';
            if (i > patience && tries == 1) t = '}';
            if (i > patience && tries == 2) t = ']';
            CHECK(t < rig_n_vocab);
            if (t >= rig_n_vocab) break;
            if (rig_allowed(mask, t) && t != rig_end) pick = t;
        }
        if (pick < 0) break;
        bool taken = grammar_accept(rig_run, s, pick);
        CHECK_AT(taken, "token %d was allowed after %.*s and is refused", pick, (int)out->n,
                 out->p);
        buf_str(out, rig_token[pick]);
        if (!taken) break;
    }
    grammar_state_free(s);
    return fine && !buf_failed(out);
}

#endif
