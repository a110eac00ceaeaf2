/* Goal: whatever the masks let through is valid JSON of the schema, every value of the schema is let through, and a mask says exactly
 * which tokens are accepted. Method: random schemas, values and walks against tests/unit/grammar/schema_oracle.h and against trying
 * each token; the seed is printed. */
#include "base/clock.h"
#include "tests/unit/grammar/schema_oracle.h"

enum { SCHEMAS = 250, VALUES = 6, WALKS = 4 };

static char *shown(const json_t *v)
{
    return json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
}

static void check_values(struct grammar *g, const json_t *schema, struct rng *r, uint64_t seed)
{
    static const size_t styles[] = {JSON_COMPACT, 0, JSON_INDENT(2)};
    for (int i = 0; i < VALUES; i++) {
        json_t *v = oracle_value(schema, schema, r, 0);
        char *text = json_dumps(v, styles[i % 3] | JSON_ENCODE_ANY), *of = shown(schema);
        CHECK(oracle_valid(schema, schema, v));
        CHECK_AT(rig_accepts(g, str_of(text)), "seed %llu: %s should allow %s",
                 (unsigned long long)seed, of, text);
        json_decref(v);
        mem_free(text);
        mem_free(of);
    }
}

static void check_walks(struct grammar *g, const json_t *schema, struct rng *r, uint64_t seed)
{
    for (int i = 0; i < WALKS; i++) {
        struct buf text;
        struct errmsg e = {0};
        json_t *v = NULL;
        buf_init(&text, 1 << 20);
        bool ended = rig_write(g, r, 60, &text);
        char *of = shown(schema);
        enum err code = json_parse(buf_view(&text), 0, &v, &e);
        /* our parser refuses a key given twice in an object that is open; such a text is JSON nevertheless */
        bool twice = code && strstr(e.text, "duplicate");
        CHECK_AT(ended, "seed %llu: %s never ended: %.*s", (unsigned long long)seed, of,
                 (int)text.n, text.p);
        CHECK_AT(!code || twice, "seed %llu: %s gave %.*s: %s", (unsigned long long)seed, of,
                 (int)text.n, text.p, e.text);
        CHECK_AT(code || oracle_valid(schema, schema, v), "seed %llu: %s let through %.*s",
                 (unsigned long long)seed, of, (int)text.n, text.p);
        mem_free(of);
        if (!code) json_decref(v);
        buf_fini(&text);
    }
}

TEST(what_is_let_through_is_valid_and_what_is_valid_is_let_through)
{
    struct rng r;
    for (uint64_t seed = 1; seed <= SCHEMAS; seed++) {
        rng_seed(&r, seed);
        json_t *schema = oracle_root(&r);
        struct errmsg e = {0};
        struct grammar *g = rig_schema_json(schema, true, &e);
        char *of = shown(schema);
        CHECK_AT(g, "seed %llu: %s: %s", (unsigned long long)seed, of, e.text);
        mem_free(of);
        if (g) check_values(g, schema, &r, seed);
        if (g) check_walks(g, schema, &r, seed);
        grammar_unref(g);
        json_decref(schema);
    }
}

static bool forced_on(const struct grammar_state *s)
{
    char byte;
    return grammar_forced(rig_run, s, &byte, 1) == 1;
}

/* Left out on purpose: where this token leads the text is forced, and a longer one says that too. */
static bool is_part(const uint32_t *mask, int32_t t)
{
    for (int32_t u = 0; u < rig_n_tokens; u++)
        if (rig_allowed(mask, u) && rig_token[u].n > rig_token[t].n &&
            str_starts(rig_token[u], rig_token[t]))
            return true;
    return false;
}

/* Every token by the mask and by trying it. */
static void check_mask(struct grammar_state *s, struct grammar_state *trial, const char *what,
                       uint64_t seed)
{
    static uint32_t mask[RIG_TOKENS_MAX / 32 + 1];
    int n, seen = 0;
    memcpy(mask, grammar_mask(rig_run, s, &n), (size_t)(rig_n_vocab + 31) / 32 * sizeof *mask);
    for (int32_t t = 0; t < rig_n_vocab; t++) {
        grammar_state_copy(trial, s);
        bool fine = grammar_accept(rig_run, trial, t);
        seen += rig_allowed(mask, t);
        CHECK_AT(fine == rig_allowed(mask, t) || (fine && is_part(mask, t) && forced_on(trial)),
                 "seed %llu, %s: token %d \"%.*s\" is %d by the mask and %d tried",
                 (unsigned long long)seed, what, t, t < rig_n_tokens ? (int)rig_token[t].n : 0,
                 t < rig_n_tokens ? rig_token[t].p : "", rig_allowed(mask, t), fine);
    }
    CHECK_INT(n, seen);
    CHECK(n > 0);
}

static void walk_and_check(struct grammar *g, struct rng *r, const char *what, uint64_t seed)
{
    struct grammar_state *s = grammar_state_new(g), *trial = grammar_state_new(g);
    for (int i = 0; i < 40; i++) {
        int n;
        check_mask(s, trial, what, seed);
        const uint32_t *mask = grammar_mask(rig_run, s, &n);
        int32_t t = -1;
        for (uint64_t k = rng_below(r, (uint64_t)n) + 1; k > 0;)
            k -= rig_allowed(mask, ++t);
        if (t == rig_end) break;
        char forced[64];
        size_t n_forced = grammar_forced(rig_run, s, forced, sizeof forced), common = 0;
        while (common < n_forced && common < rig_token[t].n &&
               forced[common] == rig_token[t].p[common])
            common++;
        CHECK_AT(common == n_forced || common == rig_token[t].n,
                 "%s: \"%.*s\" is forced and \"%.*s\" allowed", what, (int)n_forced, forced,
                 (int)rig_token[t].n, rig_token[t].p);
        CHECK(grammar_accept(rig_run, s, t));
    }
    grammar_state_free(s);
    grammar_state_free(trial);
}

TEST(a_mask_says_exactly_which_tokens_are_accepted)
{
    struct rng r;
    for (uint64_t seed = 1000; seed < 1060; seed++) {
        rng_seed(&r, seed);
        json_t *schema = oracle_root(&r);
        struct errmsg e = {0};
        struct grammar *g = rig_schema_json(schema, true, &e);
        REQUIRE(g);
        walk_and_check(g, &r, "random schema", seed);
        grammar_unref(g);
        json_decref(schema);
    }
    static const char *const schemas[] = {
        "{\"type\":\"string\",\"minLength\":3,\"maxLength\":9}",
        "{\"type\":\"object\"}",
        "{}",
        "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":2},{\"type\":\"string\",\"pattern\":\"^a+"
        "\"}]}",
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"date\"},\"maxItems\":3}",
        "{\"type\":\"array\",\"items\":{\"enum\":[1]},\"minItems\":5}",
        "{\"type\":\"array\",\"prefixItems\":[true,true],\"items\":{\"enum\":[true,7]},"
        "\"minItems\":5,"
        "\"maxItems\":5}"};
    enum { N = sizeof schemas / sizeof schemas[0] };
    for (uint64_t i = 0; i < 5 * N; i++) {
        struct errmsg e = {0};
        struct grammar *g = rig_schema(schemas[i % N], true, &e);
        rng_seed(&r, i);
        REQUIRE(g);
        walk_and_check(g, &r, schemas[i % N], i);
        grammar_unref(g);
    }
}

/* Two arrays whose items begin alike in thirty ways each: more ways than are followed at a time once both have begun an item. */
static json_t *many_ways(const char *letters)
{
    json_t *ways = json_array();
    for (; *letters; letters++) {
        char pattern[8];
        snprintf(pattern, sizeof pattern, "^%c+$", *letters);
        json_array_append_new(ways, json_pack("{s:s,s:s}", "type", "string", "pattern", pattern));
    }
    return json_pack("{s:s,s:i,s:{s:o}}", "type", "array", "minItems", 1, "items", "anyOf", ways);
}

TEST(what_a_mask_allows_is_accepted_also_where_more_ways_are_open_than_are_followed)
{
    struct errmsg e = {0};
    struct rng r;
    json_t *schema = json_pack("{s:[o,o]}", "anyOf", many_ways("ABCDEFGHIJKLMNOPQRSTUVWXYZ01234"),
                               many_ways("bcdefghijklmnopqrstuvwxyz56789a"));
    struct grammar *g = rig_schema_json(schema, true, &e);
    CHECK_AT(g, "%s", e.text);
    REQUIRE(g);
    struct grammar_state *s = grammar_state_new(g), *trial = grammar_state_new(g);
    CHECK(grammar_accept_bytes(rig_run, s, STR("[")));
    check_mask(s, trial, "two arrays", 0);
    grammar_state_free(s);
    grammar_state_free(trial);
    for (uint64_t seed = 0; seed < 20; seed++) {
        rng_seed(&r, seed);
        walk_and_check(g, &r, "two arrays", seed);
    }
    grammar_unref(g);
    json_decref(schema);
}

/* Lists of lists, each of thousands of kinds: every bracket could be read in thousands of ways from each of those that are followed. */
TEST(ways_that_are_not_followed_cost_nothing)
{
    enum { KINDS = 4000 };
    struct errmsg e = {0};
    json_t *kinds = json_array();
    for (int i = 0; i < KINDS; i++)
        json_array_append_new(kinds, json_pack("{s:s,s:i,s:{s:s}}", "type", "array", "maxItems",
                                               i + 2, "items", "$ref", "#"));
    json_t *schema = json_pack("{s:o}", "anyOf", kinds);
    struct grammar *g = rig_schema_json(schema, true, &e);
    CHECK_AT(g, "%s", e.text);
    REQUIRE(g);
    struct grammar_state *s = grammar_state_new(g);
    uint64_t start_ms = clock_ms();
    for (int depth = 0; depth < 4; depth++) {
        int n;
        CHECK(rig_allowed(grammar_mask(rig_run, s, &n), '['));
        CHECK(grammar_accept(rig_run, s, '['));
    }
    uint64_t ms = clock_ms() - start_ms;
    CHECK_AT(ms < 1000, "%d ms", (int)ms);
    grammar_state_free(s);
    grammar_unref(g);
    json_decref(schema);
}

TEST(a_cache_of_no_size_changes_nothing)
{
    struct rng r;
    struct grammar_run *own = rig_run;
    rig_run = grammar_run_new(1);
    for (uint64_t seed = 1; seed <= 10; seed++) {
        rng_seed(&r, seed);
        json_t *schema = oracle_root(&r);
        struct errmsg e = {0};
        struct grammar *g = rig_schema_json(schema, true, &e);
        REQUIRE(g);
        walk_and_check(g, &r, "no cache", seed);
        grammar_unref(g);
        json_decref(schema);
    }
    grammar_run_free(rig_run);
    rig_run = own;
}

static struct grammar *calls_grammar(struct str trigger, bool many, const json_t *or_schema)
{
    static const char parameters[] =
        "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},"
        "\"required\":[\"city\"]}";
    json_t *schema = rig_json(parameters);
    struct grammar_tool tools[] = {{STR("weather"), schema, true, "tools[0]"},
                                   {STR("time"), NULL, true, "tools[1]"}};
    struct grammar_spec spec = {
        .kind = GRAMMAR_CALLS,
        .path = "schema",
        .calls = {.tools = tools,
                  .n_tools = 2,
                  .open = trigger.n ? STR("\n{\"name\": \"") : STR("<tool_call>\n{\"name\": \""),
                  .middle = STR("\", \"arguments\": "),
                  .close = STR("}\n</tool_call>"),
                  .between = STR("\n"),
                  .many = many,
                  .trigger = trigger,
                  .or_schema = or_schema,
                  .or_strict = true}};
    struct grammar *g = NULL;
    struct errmsg e = {0};
    rig_open();
    CHECK_AT(grammar_new(&g, rig_vocab, &spec, &e) == OK, "%s", e.text);
    json_decref(schema);
    return g;
}

TEST(tool_calls_have_their_tools_arguments)
{
#define CALL(name, arguments)                                                                      \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"
    struct grammar *g = calls_grammar(STR(""), false, NULL);
    CHECK(rig_accepts(g, STR(CALL("weather", "{\"city\":\"Oslo\"}"))));
    CHECK(rig_accepts(g, STR(CALL("time", "{\"x\":[1]}"))));
    CHECK(!rig_accepts(g, STR(CALL("weather", "{}"))));
    CHECK(!rig_accepts(g, STR(CALL("other", "{}"))));
    CHECK(!rig_accepts(g, STR(CALL("time", "{}") "\n" CALL("time", "{}"))));
    grammar_unref(g);
    g = calls_grammar(STR(""), true, NULL);
    CHECK(rig_accepts(g, STR(CALL("time", "{}") "\n" CALL("weather", "{\"city\":\"\"}"))));
    CHECK(!rig_accepts(g, STR("")));
    grammar_unref(g);
    json_t *schema = rig_json("{\"type\":\"integer\"}");
    g = calls_grammar(STR(""), false, schema);
    CHECK(rig_accepts(g, STR("12")) && rig_accepts(g, STR(CALL("time", "{}"))));
    CHECK(!rig_accepts(g, STR("\"12\"")));
    grammar_unref(g);
    json_decref(schema);
}

TEST(a_schema_that_cannot_be_kept_is_refused_only_when_the_tool_is_strict)
{
    json_t *schema = rig_json(
        "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/x\"}},\"$defs\":{\"x\":{"
        "\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/x\"},\"uniqueItems\":true}}}");
    for (int strict = 0; strict < 2; strict++) {
        struct grammar_tool tools[] = {{STR("f"), schema, strict, "tools[0].function.parameters"}};
        struct grammar_spec spec = {.kind = GRAMMAR_CALLS,
                                    .calls = {.tools = tools, .n_tools = 1, .middle = STR(":")}};
        struct grammar *g = NULL;
        struct errmsg e = {0};
        rig_open();
        enum err code = grammar_new(&g, rig_vocab, &spec, &e);
        CHECK_INT(code, strict ? ERR_UNSUPPORTED : OK);
        CHECK_AT(!code || strstr(e.text, "tools[0].function.parameters.properties.a: uniqueItems"),
                 "%s", e.text);
        if (!code) CHECK(rig_accepts(g, STR("f:{\"a\":1}")));
        grammar_unref(g);
    }
    json_decref(schema);
}

TEST(arguments_are_objects_whatever_the_schema_allows_besides)
{
    static const struct {
        const char *schema, *good, *bad; /* good NULL: refused */
    } rows[] = {{"{\"type\":[\"object\",\"array\"]}", "f:{\"a\":1}", "f:[1]"},
                {"{\"description\":\"any\"}", "f:{}", "f:1"},
                {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/o\"}],\"$defs\":{\"o\":{"
                 "\"properties\":{\"a\":{\"type\":\"null\"}}}}}",
                 "f:{\"a\":null}", "f:null"},
                {"{\"type\":\"array\"}", NULL, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *schema = rig_json(rows[i].schema);
        struct grammar_tool tools[] = {{STR("f"), schema, false, "tools[0].function.parameters"}};
        struct grammar_spec spec = {.kind = GRAMMAR_CALLS,
                                    .calls = {.tools = tools, .n_tools = 1, .middle = STR(":")}};
        struct grammar *g = NULL;
        struct errmsg e = {0};
        rig_open();
        enum err code = grammar_new(&g, rig_vocab, &spec, &e);
        CHECK_INT(code, rows[i].good ? OK : ERR_INVALID);
        if (code)
            CHECK_AT(strstr(e.text, "tools[0].function.parameters: nothing can match"), "%s",
                     e.text);
        else
            CHECK_AT(rig_accepts(g, str_of(rows[i].good)) && !rig_accepts(g, str_of(rows[i].bad)),
                     "%s", rows[i].schema);
        grammar_unref(g);
        json_decref(schema);
    }
}

TEST(text_is_free_until_the_trigger)
{
    struct rng r;
    for (int many = 0; many < 2; many++) {
        struct grammar *g = calls_grammar(STR("<tool_call>"), many, NULL);
        CHECK(rig_accepts(g, STR("")) && rig_accepts(g, STR("hello <tool_cal l> \xe4\xbd\xa0")));
        CHECK(rig_accepts(g, STR("<<tool_call")));
        CHECK(rig_accepts(g, STR("well " CALL("time", "{}"))));
        CHECK(!rig_accepts(g, STR("<tool_call>")));
        CHECK(!rig_accepts(g, STR("<<tool_call>x")));
        CHECK_INT(rig_accepts(g, STR(CALL("time", "{}") " and " CALL("time", "{}"))), many);
        rng_seed(&r, 3);
        walk_and_check(g, &r, "free text", 3);
        grammar_unref(g);
    }
    rig_close();
}

TEST_MAIN()
