/* fuzz_grammar.c - any bytes as a JSON schema or a regular expression: refused with a reason, or compiled within the bounds into something
 * that is never stuck: each mask allows a token, and what it allows is accepted. The first byte says which, and steers the walk. */
#include "base/json.h"
#include "base/rng.h"
#include "engine/grammar/grammar.h"

enum { TOKENS = 256 + 12 };

static const char *const pieces[] = {"{\"",  "\":", "\",", "\"}",      "]}", "[[",
                                     "true", "12",  "  ",  "\xc3\xa9", "ab", "\\n"};
static struct grammar_vocab *vocab;
static struct grammar_run *run;

static void open_vocab(void)
{
    static char bytes[256];
    static struct str token[TOKENS + 1];
    static const int32_t end = TOKENS;
    for (int b = 0; b < 256; b++) {
        bytes[b] = (char)b;
        token[b] = (struct str){&bytes[b], 1};
    }
    for (int i = 256; i < TOKENS; i++)
        token[i] = str_of(pieces[i - 256]);
    token[TOKENS] = (struct str){"", 0};
    vocab = grammar_vocab_new(token, TOKENS + 1, TOKENS + 1, &end, 1);
    run = grammar_run_new(1 << 20);
}

static void walk(struct grammar *g, uint64_t seed)
{
    struct grammar_state *s = grammar_state_new(g);
    struct rng r;
    rng_seed(&r, seed);
    for (int i = 0; i < 40; i++) {
        int n;
        char forced[16];
        const uint32_t *mask = grammar_mask(run, s, &n);
        int32_t t = -1;
        ASSERT(n > 0);
        for (uint64_t k = rng_below(&r, (uint64_t)n) + 1; k > 0;)
            k -= mask[(t + 1) / 32] >> ((t + 1) % 32) & 1, t++;
        if (t == TOKENS) {
            ASSERT(grammar_may_end(run, s));
            break;
        }
        grammar_forced(run, s, forced, sizeof forced);
        ASSERT(grammar_accept(run, s, t));
    }
    grammar_state_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n < 2 || n > 4000) return 0;
    if (!vocab) open_vocab();
    struct str text = {(const char *)bytes + 1, n - 1};
    struct grammar_spec spec = {.kind = bytes[0] & 1 ? GRAMMAR_SCHEMA : GRAMMAR_REGEX,
                                .strict = bytes[0] & 2,
                                .path = "schema",
                                .regex = text};
    json_t *schema = NULL;
    struct errmsg e = {0};
    struct grammar *g = NULL;
    if (bytes[0] & 1) {
        if (json_parse(text, 0, &schema, &e)) return 0;
        spec.schema = schema;
    }
    e.text[0] = 0;
    if (grammar_new(&g, vocab, &spec, &e))
        ASSERT(e.text[0] && !g);
    else
        walk(g, n);
    grammar_unref(g);
    json_decref(schema);
    return 0;
}
