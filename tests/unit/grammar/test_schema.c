/* Goal: a JSON schema becomes exactly the texts it allows (narrower only where engine/grammar/schema.h says so), and what cannot be kept
 * is refused by name and path. Method: tables. */
#include "base/clock.h"
#include "tests/unit/grammar/grammar_rig.h"

static const struct {
    const char *schema, *yes[7], *no[8];
} cases[] = {
    {"{\"type\":\"null\"}", {"null"}, {"nul", "0", "\"null\""}},
    {"{\"type\":\"boolean\"}", {"true", "false"}, {"True", "1"}},
    {"{\"type\":\"integer\"}",
     {"0", "-7", "123456789012345678", "-0"},
     {"01", "1.0", "1e3", "-", "+1", "1234567890123456789"}},
    {"{\"type\":\"number\"}",
     {"0", "-1.5", "1e5", "2.5E-3", "0.1"},
     {".5", "1.", "1e", "1e100", "NaN", "--1"}},
    {"{\"type\":\"string\"}",
     {"\"\"", "\"a b\"", "\"\\u00e9\\n\\\"\"", "\"\xe4\xbd\xa0\"", "\"\\/\""},
     {"\"", "\"a", "\"\n\"", "\"\\x\"", "\"\\ud800\"", "'a'", "\"\xff\"", "\"\xe4\xbd\""}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"abc\"", "\"\xe4\xbd\xa0\xe5\xa5\xbd\"", "\"\\n\\n\""},
     {"\"a\"", "\"abcd\"", "\"\xe4\xbd\xa0\"", "\"\\n\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-c]+$\"}", {"\"abc\""}, {"\"\"", "\"abd\""}},
    {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"abc\"", "\"b\"", "\"\\nb\""}, {"\"ac\""}},
    {"{\"type\":\"string\",\"pattern\":\"^.$\"}",
     {"\"\\\"\"", "\"\\\\\"", "\"\\t\"", "\"x\"", "\"\xc3\xa9\""},
     {"\"\"\"", "\"\\n\"", "\"ab\""}},
    {"{\"type\":\"string\",\"pattern\":\"^a*$\",\"minLength\":2,\"maxLength\":4}",
     {"\"aa\"", "\"aaaa\""},
     {"\"a\"", "\"aaaaa\"", "\"ab\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[ab]{2,5}$\",\"maxLength\":4}",
     {"\"ab\"", "\"abba\""},
     {"\"a\"", "\"ababa\"", "\"abc\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[\\\"\\\\\\\\\\n]*$\"}",
     {"\"\"", "\"\\\"\\\\\"", "\"\\n\""},
     {"\"n\"", "\"\\t\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[ab]{2}|c$\"}", {"\"abx\"", "\"xc\""}, {"\"xab\""}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\""},
     {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"", "\"2024-13-01\"", "\"2024-00-10\"",
      "\"0000-02-29\"", "\"24-1-1\""}},
    {"{\"type\":\"string\",\"format\":\"date-time\"}",
     {"\"2024-05-06T07:08:09Z\"", "\"2024-05-06T23:59:59.123+05:30\""},
     {"\"2024-05-06\"", "\"2024-05-06T24:00:00Z\"", "\"2024-05-06T07:08:09\""}},
    {"{\"type\":\"string\",\"format\":\"time\"}", {"\"07:08:09Z\""}, {"\"7:08:09Z\""}},
    {"{\"type\":\"string\",\"format\":\"uuid\"}",
     {"\"123e4567-e89b-12d3-a456-426614174000\""},
     {"\"123e4567e89b12d3a456426614174000\""}},
    {"{\"type\":\"string\",\"format\":\"email\"}",
     {"\"a.b@c.de\"", "\"x@mail.example.com\""},
     {"\"a@b\"", "\"@b.c\"", "\"a b@c.d\"", "\".a@b.c\""}},
    {"{\"type\":\"string\",\"format\":\"ipv4\"}",
     {"\"127.0.0.1\""},
     {"\"256.1.1.1\"", "\"1.2.3\""}},
    {"{\"type\":\"string\",\"format\":\"uri\"}",
     {"\"https://example.com/a/b?c=d#e\""},
     {"\"example.com\"", "\"https:// \""}},
    {"{\"enum\":[\"red\",\"green\",3,null,[1,2],{\"a\":1}]}",
     {"\"red\"", "3", "null", "[1,2]", "[1, 2]", "{\"a\": 1}"},
     {"\"blue\"", "4", "[1]", "{}"}},
    {"{\"type\":\"string\",\"enum\":[\"a\",1]}", {"\"a\""}, {"1"}},
    {"{\"const\":\"a\\\"b\"}", {"\"a\\\"b\""}, {"\"a\""}},
    {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":12}",
     {"3", "9", "10", "12"},
     {"2", "13", "100", "-3", "03"}},
    {"{\"type\":\"integer\",\"minimum\":-5,\"exclusiveMaximum\":7}",
     {"-5", "0", "6", "-0"},
     {"-6", "7", "10"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":-105,\"maximum\":-95}",
     {"-104", "-95", "-100"},
     {"-105", "-94", "95", "0"}},
    {"{\"type\":\"integer\",\"minimum\":0.5}", {"1", "123456789012345678"}, {"0", "-1"}},
    {"{\"type\":\"integer\",\"multipleOf\":5}", {"0", "-15", "100"}, {"3", "12"}},
    {"{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":10,\"maximum\":30}",
     {"14", "21", "28"},
     {"7", "15", "35"}},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
     {"0", "1", "0.5", "0.25", "1.0", "0.999"},
     {"1.1", "-0.1", "2", "1e0", "1.01"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":2.5}",
     {"0.1", "2.5", "2.49", "1", "0.001", "2.50"},
     {"0", "0.0", "-1", "2.51", "3", "-0"}},
    {"{\"type\":\"number\",\"minimum\":-1.25,\"exclusiveMaximum\":-0.5}",
     {"-1.25", "-1", "-0.51", "-0.6", "-1.2"},
     {"-0.5", "-1.26", "0", "1", "-0.50", "-2"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
     {"[]", "[1]", "[1,2]", "[1, 2, 3]", "[\n  1,\n  2\n]", "[ ]"},
     {"[1,]", "[,1]", "[1 2]", "[\"a\"]", "[1", "[1,  2]"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[1]},\"minItems\":2,\"maxItems\":3}",
     {"[1,1]", "[1,1,1]"},
     {"[]", "[1]", "[1,1,1,1]"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[1]},\"minItems\":4,\"maxItems\":5}",
     {"[1,1,1,1]", "[ 1, 1, 1, 1 ]", "[1,1,1,1,1\n]"},
     {"[1,1]", "[1,1,1]", "[1,1 ,1,1]", "[1,1,1,1,1,1]"}},
    {"{\"type\":\"array\",\"maxItems\":0}", {"[]", "[ ]"}, {"[1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],"
     "\"items\":false}",
     {"[]", "[1]", "[1,\"a\"]"},
     {"[1,\"a\",2]", "[\"a\"]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"items\":{\"type\":\"null\"},"
     "\"minItems\":2,\"maxItems\":3}",
     {"[1,null]", "[1,null,null]"},
     {"[1]", "[1,1]", "[1,null,null,null]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},false]}",
     {"[]", "[1]"},
     {"[1,1]", "[null]"}},
    {"{\"type\":\"string\",\"format\":\"hostname\"}",
     {"\"a-b.example.com\"", "\"x\""},
     {"\"xn--a\"", "\"-a\"", "\"a-\"", "\"a..b\"", "\"\""}},
    {"{\"type\":\"array\",\"items\":[{\"type\":\"integer\"}],\"additionalItems\":{\"type\":"
     "\"null\"}}",
     {"[]", "[1,null]"},
     {"[null]", "[1,1]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"}},"
     "\"required\":[\"a\"]}",
     {"{\"a\":1}", "{\"a\":1,\"b\":null}", "{ \"a\": 1, \"b\": null }",
      "{\n  \"a\": 1,\n  \"b\": null\n}"},
     {"{}", "{\"b\":null}", "{\"b\":null,\"a\":1}", "{\"a\":1,\"c\":1}", "{\"a\":1,}",
      "{\"a\":1,\"a\":1}", "{\"a\" :1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"required\":[\"b\"]}",
     {"{\"b\":0}", "{\"a\":0,\"b\":0}", "{\"b\":0,\"c\":0}", "{\"a\":[],\"b\":{},\"c\":\"\"}"},
     {"{\"a\":0}", "{\"c\":0}", "{\"a\":0,\"c\":0}", "{,\"b\":0}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":{\"type\":\"string\"}}",
     {"{}", "{\"a\":1}", "{\"x\":\"y\"}", "{\"a\":1,\"x\":\"y\",\"aa\":\"z\"}", "{\"\":\"\"}"},
     {"{\"a\":\"x\"}", "{\"x\":1}", "{\"\\u0061\":\"x\"}", "{\"x\":\"y\",\"a\":\"x\"}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},\"minProperties\":1,"
     "\"maxProperties\":2}",
     {"{\"x\":1}", "{\"x\":1,\"y\":2}"},
     {"{}", "{\"x\":1,\"y\":2,\"z\":3}"}},
    {"{\"type\":\"object\",\"required\":[\"k\"]}",
     {"{\"k\":1}", "{\"k\":[null],\"l\":2}"},
     {"{}", "{\"l\":1}"}},
    {"{\"type\":\"object\",\"properties\":{}}", {"{}"}, {"{\"a\":1}"}},
    {"{\"type\":\"object\"}", {"{}", "{\"a\":{\"b\":[1,true,null,\"x\",-1e5]}}"}, {"[]"}},
    {"{}", {"1", "[{}]", "\"x\"", "null"}, {"", "x"}},
    {"true", {"1"}, {"x"}},
    {"{\"properties\":{\"\xc3\xa9\\\"\":{\"type\":\"null\"}},\"required\":[\"\xc3\xa9\\\"\"]}",
     {"{\"\xc3\xa9\\\"\":null}"},
     {"{\"e\":null}", "null"}},
    {"{\"type\":[\"integer\",\"null\",\"string\"],\"minimum\":3,\"minLength\":1}",
     {"3", "null", "\"a\""},
     {"2", "\"\"", "true"}},
    {"{\"type\":\"integer\",\"nullable\":true}", {"1", "null"}, {"\"a\""}},
    {"{\"enum\":[1],\"nullable\":true}", {"1", "null"}, {"2"}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}",
     {"12", "\"a\""},
     {"\"ab\"", "1.5"}},
    {"{\"oneOf\":[{\"const\":1},{\"const\":2}]}", {"1", "2"}, {"3"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
     "\"integer\"}},"
     "\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":1}"},
     {"{}"}},
    {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":0}},"
     "\"required\":[\"a\"]},{\"properties\":{\"b\":{\"type\":\"null\"},\"a\":{\"maximum\":5}}}]}",
     {"{\"a\":5}", "{\"a\":0,\"b\":null}"},
     {"{\"a\":6}", "{\"b\":null}", "{\"a\":-1}"}},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/x\"}],\"maxLength\":2,\"$defs\":{\"x\":{\"type\":\"string\","
     "\"minLength\":1}}}",
     {"\"a\"", "\"ab\""},
     {"\"\"", "\"abc\""}},
    {"{\"type\":\"string\",\"anyOf\":[{\"type\":\"string\",\"maxLength\":1},{\"type\":\"null\"}]}",
     {"\"a\""},
     {"null", "\"ab\""}},
    {"{\"allOf\":[{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]},{\"anyOf\":[{\"type\":"
     "\"string\",\"maxLength\":1},{\"type\":\"boolean\"}]}]}",
     {"\"a\""},
     {"1", "true", "\"ab\""}},
    {"{\"enum\":[\"a\",\"b\"],\"anyOf\":[{\"const\":\"b\"},{\"const\":\"c\"}]}",
     {"\"b\""},
     {"\"a\"", "\"c\""}},
    {"{\"oneOf\":[{\"const\":1},{\"const\":2}],\"const\":2}", {"2"}, {"1"}},
    {"{\"$ref\":\"#/$defs/a~1b%20c\",\"$defs\":{\"a/b c\":{\"type\":\"boolean\"}}}",
     {"true"},
     {"1"}},
    {"{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":[{\"$"
     "ref\":"
     "\"#\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}",
     {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"},
     {"{\"v\":1}", "{\"v\":1,\"next\":{}}"}},
    {"{\"$ref\":\"#/definitions/t\",\"definitions\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":"
     "\"#/definitions/t\"}}}}",
     {"[]", "[[],[[]]]"},
     {"[1]"}},
};

TEST(a_schema_allows_exactly_its_texts)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct errmsg e = {0};
        struct grammar *g = rig_schema(cases[i].schema, true, &e);
        CHECK_AT(g, "%s is refused: %s", cases[i].schema, e.text);
        for (int k = 0; k < 8 && g; k++) {
            if (k < 7 && cases[i].yes[k])
                CHECK_AT(rig_accepts(g, str_of(cases[i].yes[k])), "%s should allow %s",
                         cases[i].schema, cases[i].yes[k]);
            if (cases[i].no[k])
                CHECK_AT(!rig_accepts(g, str_of(cases[i].no[k])), "%s should not allow %s",
                         cases[i].schema, cases[i].no[k]);
        }
        grammar_unref(g);
    }
}

static const struct {
    const char *schema, *reason;
} refused[] = {
    {"{\"not\":{}}", "schema: the keyword \"not\" is not supported"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"if\":{}}}}}",
     "schema.properties.a.items: the keyword \"if\" is not supported"},
    {"{\"anyOf\":[{},{\"contains\":1}]}", "schema.anyOf[1]: the keyword \"contains\""},
    {"{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems is not supported"},
    {"{\"type\":\"object\",\"patternProperties\":{}}", "patternProperties"},
    {"{\"type\":\"strin\"}", "schema: type: expected null, boolean"},
    {"{\"type\":[]}", "type: the list is empty"},
    {"{\"type\":\"string\",\"format\":\"duration\"}", "format \"duration\" is not supported"},
    {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}",
     "schema.pattern: regular expression, at byte 1"},
    {"{\"type\":\"string\",\"pattern\":\"^a{5}$\",\"maxLength\":3}",
     "nothing can match its pattern"},
    {"{\"type\":\"string\",\"minLength\":-1}", "minLength: expected an integer of at least 0"},
    {"{\"type\":\"string\",\"minLength\":5,\"maxLength\":4}", "minLength is above maxLength"},
    {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "no number lies within"},
    {"{\"type\":\"integer\",\"minimum\":\"5\"}", "minimum: expected a number"},
    {"{\"type\":\"number\",\"multipleOf\":0.3}", "multipleOf: only integers"},
    {"{\"type\":\"array\",\"minItems\":3,\"items\":false}", "minItems: more than there are items"},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false}",
     "required[0]: not in properties"},
    {"{\"type\":\"object\",\"properties\":[]}", "properties: expected an object"},
    {"{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}",
     "schema.properties.a: a required member that nothing can match"},
    {"{\"enum\":[]}", "no value of enum"},
    {"{\"type\":\"string\",\"enum\":[1]}", "no value of enum"},
    {"{\"enum\":[\"a\"],\"minLength\":1}", "\"minLength\" beside enum"},
    {"{\"$ref\":\"http://x/y\"}", "only references inside the schema"},
    {"{\"$ref\":\"#/$defs/x\"}", "nothing stands at \"#/$defs/x\""},
    {"{\"$ref\":\"#\"}", "nothing can match"},
    {"{\"allOf\":[{\"$ref\":\"#\"}]}", "without end"},
    {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "refers to itself"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
     "nothing can match"},
    {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "no type is left"},
    {"{\"allOf\":[{\"const\":1},{\"const\":2}]}", "no type is left, or no value"},
    {"{\"type\":\"null\",\"anyOf\":[{\"type\":\"string\"},{\"const\":1}]}",
     "anyOf: nothing can match"},
    {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", "two demands of \"pattern\""},
    {"{\"nonsense\":1}", "unknown keyword \"nonsense\""},
    {"false", "false matches nothing"},
    {"[]", "expected a schema"},
    {"{\"properties\":{\"a\":1}}", "schema.properties.a: expected a schema"},
};

TEST(what_cannot_be_kept_is_refused_with_its_name_and_path)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct errmsg e = {0};
        struct grammar *g = rig_schema(refused[i].schema, true, &e);
        CHECK_AT(!g, "%s is accepted", refused[i].schema);
        CHECK_AT(strstr(e.text, refused[i].reason) != NULL, "%s: \"%s\" does not say \"%s\"",
                 refused[i].schema, e.text, refused[i].reason);
        grammar_unref(g);
    }
}

TEST(without_strict_only_what_says_nothing_about_values_is_passed_over)
{
    struct errmsg e = {0};
    struct grammar *g =
        rig_schema("{\"type\":\"string\",\"format\":\"duration\",\"order\":1}", false, &e);
    CHECK_AT(g, "%s", e.text);
    grammar_unref(g);
    g = rig_schema("{\"not\":{}}", false, &e);
    CHECK(!g);
    grammar_unref(g);
}

TEST(a_schema_of_any_size_is_compiled_or_refused_within_the_bounds)
{
    struct errmsg e = {0};
    json_t *nest = json_pack("{s:s}", "type", "null");
    for (int i = 0; i < 60; i++)
        nest = json_pack("{s:s,s:i,s:o}", "type", "array", "minItems", 1, "items", nest);
    CHECK(!rig_schema_json(nest, true, &e));
    CHECK_AT(strstr(e.text, "nested too deep") || strstr(e.text, "nested deeper"), "%s", e.text);
    json_decref(nest);
    json_t *wide = json_object(), *properties = json_object();
    for (int i = 0; i < 3000; i++) {
        char name[20];
        snprintf(name, sizeof name, "member%d", i);
        json_object_set_new(properties, name, json_pack("{s:s}", "type", "string"));
    }
    json_object_set_new(wide, "properties", properties);
    e.text[0] = 0;
    struct grammar *g = rig_schema_json(wide, true, &e);
    CHECK(g || strstr(e.text, "too complex"));
    grammar_unref(g);
    json_decref(wide);
    /* each doubles the last */
    json_t *defs = json_object();
    for (int i = 0; i < 25; i++) {
        char ref[40], name[20];
        snprintf(ref, sizeof ref, "#/$defs/d%d", i + 1);
        snprintf(name, sizeof name, "d%d", i);
        json_t *one = json_pack("{s:s}", "$ref", ref);
        json_object_set_new(defs, name, json_pack("{s:[o,O]}", "allOf", one, one));
    }
    json_object_set_new(defs, "d25", json_pack("{s:s}", "type", "string"));
    json_t *bomb = json_pack("{s:s,s:o}", "$ref", "#/$defs/d0", "$defs", defs);
    CHECK(!rig_schema_json(bomb, true, &e));
    CHECK_AT(strstr(e.text, "too many schemas") != NULL, "%s", e.text);
    json_decref(bomb);
}

static json_t *many_members(int n, json_t *value, json_t *names)
{
    json_t *all = json_object();
    for (int i = 0; i < n; i++) {
        char name[20];
        snprintf(name, sizeof name, "m%d", i);
        json_object_set(all, name, value);
        json_array_append_new(names, json_string(name));
    }
    json_decref(value);
    return all;
}

static void check_too_large(json_t *schema, const char *what)
{
    struct errmsg e = {0};
    uint64_t start_ms = clock_ms();
    struct grammar *g = rig_schema_json(schema, true, &e);
    uint64_t ms = clock_ms() - start_ms;
    CHECK_AT(!g, "%s: compiled", what);
    CHECK_AT(strstr(e.text, "too many") || strstr(e.text, "too complex"), "%s: %s", what, e.text);
    CHECK_AT(ms < 10000, "%s: %d ms", what, (int)ms); /* without bounds: minutes */
    grammar_unref(g);
    json_decref(schema);
}

/* Each merge makes the members anew; each comparison walks the whole value; each member is sought among what is required. */
TEST(what_schemas_that_hold_together_cost_is_bounded_too)
{
    json_t *names = json_array(), *zeros[2] = {json_array(), json_array()};
    json_t *all = json_pack("[{s:o}]", "properties",
                            many_members(2000, json_pack("{s:s}", "type", "null"), names));
    for (int i = 0; i < 2000; i++)
        json_array_append_new(all, json_object());
    check_too_large(json_pack("{s:o}", "allOf", all), "members merged again and again");
    for (int i = 0; i < 40000; i++)
        for (int k = 0; k < 2; k++)
            json_array_append_new(zeros[k], json_integer(0));
    all = json_array();
    for (int i = 0; i < 12000; i++)
        json_array_append_new(all, json_pack("{s:O}", "const", zeros[i % 2]));
    check_too_large(json_pack("{s:o}", "allOf", all), "values compared again and again");
    json_array_clear(names);
    json_t *members = many_members(60000, json_true(), names);
    check_too_large(json_pack("{s:o,s:O}", "properties", members, "required", names),
                    "members that anything matches, all required");
    members = json_pack("{s:{s:i}}", "other", "minimum", 1);
    check_too_large(json_pack("{s:o,s:O}", "properties", members, "required", names),
                    "names that only required knows");
    for (int k = 0; k < 2; k++)
        json_decref(zeros[k]);
    json_decref(names);
}

TEST(nesting_is_bounded_and_never_a_dead_end)
{
    /* every list must hold one more, or null: near the bound only null is left */
    struct errmsg e = {0};
    struct grammar *g =
        rig_schema("{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"anyOf\":[{\"type\":\"null\"},{"
                   "\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":\"#/$defs/t\"}}]}}}",
                   true, &e);
    REQUIRE(g);
    struct grammar_state *s = grammar_state_new(g);
    int depth = 0;
    while (grammar_accept_bytes(rig_run, s, STR("[")))
        depth++;
    CHECK_AT(depth > 30 && depth < 64, "%d", depth);
    int n;
    CHECK(!rig_allowed(grammar_mask(rig_run, s, &n), '['));
    CHECK(grammar_accept_bytes(rig_run, s, STR("null]")));
    for (int i = 1; i < depth; i++)
        CHECK(grammar_accept_bytes(rig_run, s, STR("]")));
    CHECK(grammar_may_end(rig_run, s));
    grammar_state_free(s);
    grammar_unref(g);
}

/* A tokenizer that writes two bytes a token where it can. */
static int encode_pairs(void *arg, struct str text, int32_t *out, int max)
{
    int n = 0;
    (void)arg;
    for (size_t at = 0; at < text.n && n < max; n++) {
        int32_t found = (int32_t)(unsigned char)text.p[at];
        for (int32_t t = 256; t < rig_n_tokens; t++)
            if (rig_token[t].n == 2 && str_starts(str_sub(text, at, text.n), rig_token[t]))
                found = t;
        at += rig_token[found].n;
        out[n] = found;
    }
    return n;
}

TEST(what_is_forced_is_written_as_the_tokenizer_writes_it)
{
    struct errmsg e = {0};
    for (int round = 0; round < 2; round++) {
        int n, n_draft;
        int32_t draft[16];
        rig_open();
        if (round) grammar_vocab_encoder(rig_vocab, encode_pairs, NULL);
        struct grammar *g = rig_schema(
            "{\"type\":\"object\",\"properties\":{\"name\":{}},\"required\":[\"name\"]}", true, &e);
        struct grammar_state *s = grammar_state_new(g);
        CHECK(grammar_accept_bytes(rig_run, s, STR("{\"")));
        n_draft = grammar_draft(rig_run, s, draft, 16);
        CHECK_INT(n_draft, round ? 3 : 2); /* na me ":   or   name ": */
        for (int i = 0; i < n_draft; i++) {
            const uint32_t *mask = grammar_mask(rig_run, s, &n);
            CHECK(rig_allowed(mask, draft[i]));
            CHECK_AT(n == 1 || i == n_draft - 1, "%d tokens at %d", n,
                     i); /* the last may be written with what follows */
            CHECK(grammar_accept(rig_run, s, draft[i]));
        }
        grammar_state_free(s);
        grammar_unref(g);
        rig_close();
    }
}

static size_t choice(const char *const *texts, size_t n, struct grammar **g, struct errmsg *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(texts[i]));
    struct grammar_spec spec = {.kind = GRAMMAR_CHOICE, .choices = list};
    rig_open();
    if (grammar_new(g, rig_vocab, &spec, e)) *g = NULL;
    json_decref(list);
    return n;
}

TEST(one_of_some_texts_and_what_is_forced)
{
    const char *texts[] = {"yes", "yesterday", "no"};
    struct errmsg e = {0};
    struct grammar *g = NULL;
    char out[20];
    choice(texts, 3, &g, &e);
    REQUIRE(g);
    CHECK(rig_accepts(g, STR("yes")) && rig_accepts(g, STR("yesterday")) &&
          rig_accepts(g, STR("no")));
    CHECK(!rig_accepts(g, STR("ye")) && !rig_accepts(g, STR("nope")) && !rig_accepts(g, STR("")));
    struct grammar_state *s = grammar_state_new(g), *copy = grammar_state_new(g);
    CHECK_INT(grammar_forced(rig_run, s, out, sizeof out), 0);
    CHECK(grammar_accept_bytes(rig_run, s, STR("y")));
    grammar_state_copy(copy, s);
    CHECK_INT(grammar_forced(rig_run, s, out, sizeof out), 2);
    CHECK(!memcmp(out, "es", 2));
    CHECK(!grammar_accept_bytes(rig_run, s, STR("ex")));
    CHECK(grammar_accept_bytes(rig_run, s, STR("es")));
    CHECK(grammar_may_end(rig_run, s) && !grammar_must_end(rig_run, s));
    CHECK_INT(grammar_forced(rig_run, s, out, sizeof out), 0);
    CHECK(grammar_accept_bytes(rig_run, s, STR("t")));
    CHECK_INT(grammar_forced(rig_run, s, out, 3), 3);
    int32_t draft[8];
    int n_draft = grammar_draft(rig_run, s, draft, 8);
    CHECK_INT(n_draft, 5);
    for (int i = 0; i < n_draft; i++)
        CHECK(grammar_accept(rig_run, s, draft[i]));
    CHECK(grammar_must_end(rig_run, s));
    grammar_state_copy(s, copy);
    CHECK(grammar_accept_bytes(rig_run, s, STR("es")));
    grammar_state_free(s);
    grammar_state_free(copy);
    grammar_unref(g);
    rig_close();
}

TEST_MAIN()
