/* Goal: a request with a grammar gets text of that form, each choice its own, whatever the batch, drafts and preemption do; logprobs stay
 * those of the model. Method: the real step thread over a pretended model whose logits are noise of token and position. */
#include <math.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine_private.h"
#include "engine/grammar/grammar.h"
#include "tests/check.h"

enum { LETTERS = 256, WORDS = 8, END = LETTERS + WORDS, VOCAB = END + 1, TEXT_MAX = 4000 };

static const char *const words[WORDS] = {"{\"", "\": ", "\", \"", "\"}", "true", "abc", "]}", "12"};
static struct grammar_vocab *vocab;

static struct str token_text(int32_t t)
{
    static char bytes[LETTERS];
    if (t >= LETTERS) return t < END ? str_of(words[t - LETTERS]) : (struct str){"", 0};
    bytes[t] = (char)t;
    return (struct str){&bytes[t], 1};
}

static void open_vocab(void)
{
    struct str token[VOCAB];
    int32_t end = END;
    for (int32_t t = 0; t < VOCAB; t++)
        token[t] = token_text(t);
    vocab = grammar_vocab_new(token, VOCAB, VOCAB, &end, 1);
}

static float noise(int32_t token, int32_t pos, int v)
{
    uint64_t x =
        (uint64_t)(uint32_t)token * 0x9E3779B97F4A7C15u ^ (uint64_t)pos << 32 ^ (uint64_t)v;
    x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
    return (float)(x >> 40) / (1 << 24) * 8 + (v == END ? 3 : 0);
}

static void forward(void *arg, const struct model_batch *b, float *logits)
{
    (void)arg;
    for (int i = 0; i < b->n_out; i++)
        for (int v = 0; v < VOCAB; v++)
            logits[i * VOCAB + v] = noise(b->token[b->out_row[i]], b->pos[b->out_row[i]], v);
}

static void copy(void *arg, int32_t dst, int32_t src, int n)
{
    (void)arg;
    (void)dst;
    (void)src;
    (void)n;
}

/* Now and then right, since JSON has few ways on. */
static void guess(void *arg, const struct choice *c, const int32_t *tokens, int n,
                  struct draft *out)
{
    (void)arg;
    (void)c;
    *out = (struct draft){.n = 4, .parent = {DRAFT_ROOT, 0, 0, DRAFT_ROOT}};
    for (int i = 0; i < 4; i++)
        out->token[i] = (int32_t)((unsigned)(tokens[n - 1] * 31 + n + i) % VOCAB);
    out->token[1] = '"';
    if (out->token[2] == '"') out->token[2] = 'x';
}

static void move(void *arg, const struct kv_move *moves, int n)
{
    (void)arg;
    (void)moves;
    (void)n;
}

static struct engine *open_engine(bool drafts, int n_blocks)
{
    struct engine *g = NULL;
    struct errmsg e = {0};
    struct engine_sizes s = {.n_blocks = n_blocks,
                             .block_size = 4,
                             .max_len = 300,
                             .max_num_seqs = 6,
                             .max_batch = 64,
                             .queue_max = 64,
                             .draft_rows = drafts ? 12 : 0,
                             .prefix_caching = true,
                             .check_every_step = true,
                             .prompt_rows = 32};
    struct engine_forward f = {.forward = forward,
                               .kv_copy = copy,
                               .kv_move = move,
                               .draft = drafts ? guess : NULL,
                               .n_vocab = VOCAB};
    CHECK_INT(engine_open_with(&g, &f, &s, &e), OK);
    return g;
}

struct heard {
    struct buf text;
    enum engine_finish finish;
    int completion_tokens, n_tokens;
    float logprob_min;
};
struct client {
    struct heard choice[ENGINE_CHOICES_MAX];
    _Atomic int ends;
};

static bool on_token(void *arg, const struct engine_token *t)
{
    struct heard *h = &((struct client *)arg)->choice[t->choice];
    buf_str(&h->text, token_text(t->id));
    h->n_tokens++;
    if (t->logprob < h->logprob_min) h->logprob_min = t->logprob;
    return true;
}
static void on_end(void *arg, const struct engine_end *end)
{
    struct client *c = arg;
    c->choice[end->choice].finish = end->finish;
    c->choice[end->choice].completion_tokens = end->completion_tokens;
    c->ends++;
}

static void ask(struct engine *g, struct client *c, struct grammar *form, int n, int max_tokens,
                uint64_t seed)
{
    int32_t prompt[5] = {1, 2, 3, 4, (int32_t)(seed % 50)};
    struct sampler_params sp = sampler_params_default();
    struct errmsg e = {0};
    uint64_t id;
    int32_t end = END;
    memset(c, 0, sizeof *c);
    for (int i = 0; i < n; i++)
        buf_init(&c->choice[i].text, TEXT_MAX);
    sp.temperature = 1;
    sp.seed = seed;
    sp.n_top_logprobs = 0;
    struct engine_submit_options o = {.prompt = prompt,
                                      .n_prompt = 5,
                                      .n = n,
                                      .max_tokens = max_tokens,
                                      .sampling = sp,
                                      .end_ids = &end,
                                      .n_end_ids = 1,
                                      .ignore_end = seed & 1,
                                      .grammar = form,
                                      .on_token = on_token,
                                      .on_end = on_end,
                                      .arg = c};
    CHECK_INT(engine_submit(g, &o, &id, &e), OK);
}

static bool wait_ends(struct client *c, int n)
{
    for (uint64_t until = clock_ms() + 20000; c->ends < n;)
        if (clock_ms() > until) return false;
    return true;
}

static void forget(struct client *c, int n)
{
    for (int i = 0; i < n; i++)
        buf_fini(&c->choice[i].text);
}

static struct grammar *schema_grammar(const char *schema)
{
    json_t *v = json_loads(schema, 0, NULL);
    struct grammar_spec spec = {
        .kind = GRAMMAR_SCHEMA, .schema = v, .strict = true, .path = "schema"};
    struct grammar *form = NULL;
    struct errmsg e = {0};
    CHECK_AT(grammar_new(&form, vocab, &spec, &e) == OK, "%s", e.text);
    json_decref(v);
    return form;
}

static const char person[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},\"old\":{"
    "\"type\":\"integer\",\"minimum\":0,\"maximum\":120},\"ok\":{\"type\":\"boolean\"}},"
    "\"required\":"
    "[\"name\",\"old\",\"ok\"]}";

static void check_person(const struct heard *h)
{
    json_t *v = NULL;
    struct errmsg e = {0};
    CHECK_INT(h->finish, ENGINE_STOP);
    CHECK_AT(json_parse(buf_view(&h->text), 0, &v, &e) == OK, "%.*s: %s", (int)h->text.n, h->text.p,
             e.text);
    const json_t *old = json_object_get(v, "old");
    CHECK(json_is_string(json_object_get(v, "name")) && json_is_boolean(json_object_get(v, "ok")));
    CHECK(json_is_integer(old) && json_integer_value(old) <= 120);
    CHECK_INT(json_object_size(v), 3);
    json_decref(v);
}

TEST(every_choice_has_the_form_with_and_without_drafts_and_in_a_pool_that_is_too_small)
{
    open_vocab();
    struct grammar *form = schema_grammar(person);
    struct client c[8], plain[8];
    for (int round = 0; round < 3; round++) {
        struct engine *g = open_engine(round == 1, round == 2 ? 80 : 400);
        struct client *mine = round ? c : plain;
        for (int i = 0; i < 8; i++)
            ask(g, &mine[i], form, 3, 250, (uint64_t)(i * 100));
        for (int i = 0; i < 8; i++) {
            CHECK(wait_ends(&mine[i], 3));
            for (int k = 0; k < 3; k++) {
                check_person(&mine[i].choice[k]);
                /* the same text as a token a step, in a pool where all fit */
                CHECK_AT(!round || str_eq(buf_view(&mine[i].choice[k].text),
                                          buf_view(&plain[i].choice[k].text)),
                         "round %d: %.*s", round, (int)mine[i].choice[k].text.n,
                         mine[i].choice[k].text.p);
            }
            if (round) forget(&mine[i], 3);
        }
        struct engine_stats st;
        engine_stats(g, &st);
        CHECK((st.accepted_tokens > 0) == (round == 1)); /* the names of members are forced */
        engine_close(g);
    }
    for (int i = 0; i < 8; i++)
        forget(&plain[i], 3);
    grammar_unref(form);
    grammar_vocab_free(vocab);
}

TEST(the_text_ends_with_its_form_or_at_max_tokens)
{
    open_vocab();
    struct engine *g = open_engine(false, 400);
    struct client c;
    json_t *choices = json_pack("[s,s]", "abc", "abcabc");
    struct grammar_spec spec = {.kind = GRAMMAR_CHOICE, .choices = choices};
    struct grammar *form = NULL, *person_form = schema_grammar(person);
    struct errmsg e = {0};
    CHECK_INT(grammar_new(&form, vocab, &spec, &e), OK);
    for (uint64_t seed = 0; seed < 20; seed++) {
        ask(g, &c, form, 1, 100, seed);
        CHECK(wait_ends(&c, 1));
        struct str text = buf_view(&c.choice[0].text);
        CHECK_INT(c.choice[0].finish, ENGINE_STOP);
        CHECK(str_eqz(text, "abc") || str_eqz(text, "abcabc"));
        /* "abc" needs an end token, "abcabc" ends by itself */
        CHECK_INT(c.choice[0].completion_tokens, c.choice[0].n_tokens + str_eqz(text, "abc"));
        CHECK(c.choice[0].logprob_min < -2 &&
              c.choice[0].logprob_min > -20); /* among all tokens, not the few allowed */
        forget(&c, 1);
    }
    ask(g, &c, person_form, 1, 3, 1);
    CHECK(wait_ends(&c, 1));
    CHECK_INT(c.choice[0].finish, ENGINE_LENGTH);
    CHECK_INT(c.choice[0].completion_tokens, 3);
    forget(&c, 1);
    engine_close(g);
    grammar_unref(form);
    grammar_unref(person_form);
    json_decref(choices);
    grammar_vocab_free(vocab);
}

TEST_MAIN()
