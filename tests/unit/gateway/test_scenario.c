/* Goal: rules that lead a public model name to a model are read as written, refused with the word that is wrong, and decide as their words
 * say. Method: tables; every operator against a plain comparison; random rule texts against a second, simpler evaluator. */
#include "base/rng.h"
#include "gateway/scenario.h"
#include "tests/check.h"

static struct scenario_facts facts(int64_t tokens, int64_t max_tokens)
{
    struct scenario_facts f = {.numbers = {tokens, tokens * 4, max_tokens, 1, 0, 0},
                               .words = {STR("online"), STR("acme"), STR("no")}};
    return f;
}

static struct scenario *read(const char *text)
{
    struct errmsg e = {0};
    struct scenario *s;
    enum err code = scenario_parse(&s, str_of(text), &e);
    CHECK_AT(code == OK, "%s: %s", text, e.text);
    return s;
}

static bool leads(const char *rules, const char *model, const struct scenario_facts *f,
                  const char *to)
{
    struct scenario *s = read(rules);
    struct str got = scenario_model(s, str_of(model), f);
    bool same = str_eqz(got, to);
    CHECK_AT(same, "%s: %s leads to " STR_FMT ", not %s", rules, model, STR_ARG(got), to);
    scenario_free(s);
    return same;
}

TEST(first_rule_that_fits_names_the_model_and_it_is_not_looked_up_again)
{
    static const char rules[] = "# long prompts\nchat when prompt_tokens>4000 -> chat-long\n\nchat "
                                "-> chat-short # the rest\n"
                                "chat-long -> elsewhere\n";
    struct scenario_facts small = facts(100, -1), large = facts(4001, -1), edge = facts(4000, -1);
    leads(rules, "chat", &large, "chat-long");
    leads(rules, "chat", &edge, "chat-short");
    leads(rules, "chat", &small, "chat-short");
    leads(rules, "chat-long", &small, "elsewhere");
    leads(rules, "other", &large, "other");
}

TEST(all_conditions_must_hold)
{
    static const char rules[] =
        "chat when prompt_tokens >= 10 and class = batch and tenant != acme|partner -> cheap";
    struct scenario_facts f = facts(10, -1);
    leads(rules, "chat", &f, "chat");
    f.words[SCENARIO_CLASS] = STR("batch");
    leads(rules, "chat", &f, "chat");
    f.words[SCENARIO_TENANT] = STR("other");
    leads(rules, "chat", &f, "cheap");
    f.numbers[SCENARIO_PROMPT_TOKENS] = 9;
    leads(rules, "chat", &f, "chat");
}

TEST(star_is_any_model_and_blanks_around_signs_do_not_matter)
{
    struct scenario_facts f = facts(5, 100);
    f.numbers[SCENARIO_LOAD] = 90;
    leads("*   when load>=80   ->small", "anything", &f, "small");
    leads("* when load >=80 and stream=no -> small", "anything", &f, "small");
    leads("* when load>= 91 -> small", "anything", &f, "anything");
    leads("gpt-4o-mini->a-b", "gpt-4o-mini", &f, "a-b");
}

TEST(number_a_request_does_not_give_fits_nothing)
{
    struct scenario_facts f = facts(5, -1);
    leads("m when max_tokens < 10 -> a\nm when max_tokens != 3 -> b\nm when max_tokens >= 0 -> c",
          "m", &f, "m");
}

TEST(operators_compare_as_their_signs_say)
{
    static const char *const signs[] = {">", ">=", "<", "<=", "=", "!="};
    for (int64_t v = 0; v < 5; v++)
        for (int op = 0; op < 6; op++)
            for (int64_t limit = 0; limit < 5; limit++) {
                char rule[64];
                bool want[] = {v > limit,  v >= limit, v < limit,
                               v <= limit, v == limit, v != limit};
                struct scenario_facts f = facts(v, -1);
                snprintf(rule, sizeof rule, "m when prompt_tokens %s %d -> x", signs[op],
                         (int)limit);
                if (!leads(rule, "m", &f, want[op] ? "x" : "m")) return;
            }
}

TEST(what_is_wrong_in_a_rule_is_named_with_its_line)
{
    static const struct {
        const char *rule, *word;
    } cases[] = {{"m", "when or ->"},
                 {"m when -> x", "->"},
                 {"m when tokens > 4 -> x", "tokens"},
                 {"m when prompt_tokens -> x", "->"},
                 {"m when prompt_tokens > -> x", "whole number"},
                 {"m when prompt_tokens > 4k -> x", "4k"},
                 {"m when prompt_tokens > -1 -> x", "-1"},
                 {"m when prompt_tokens == 4 -> x", "=="},
                 {"m when tenant > 4 -> x", ">"},
                 {"m when tenant = -> x", "->"},
                 {"m when stream = yes x", "x"},
                 {"m when stream = yes ->", "after ->"},
                 {"m when stream = maybe -> x", "\"maybe\": expected yes or no after stream"},
                 {"m when stream != yes|true -> x", "\"true\": expected yes or no after stream"},
                 {"m when stream = Yes -> x", "\"Yes\": expected yes or no after stream"},
                 {"m when class = bulk -> x", "\"bulk\": expected online or batch after class"},
                 {"m when class!=batch|bulk -> x", "\"bulk\": expected online or batch"},
                 {"m when load > 1 and class = on -> x", "\"on\": expected online or batch"},
                 {"m when class > online -> x", "\">\": expected = or !="},
                 {"m when tenant = and -> x", "\"and\": expected a word"},
                 {"m when tenant = a|b| -> x", "\"a|b|\": expected a word on each side of |"},
                 {"m when tenant = a||b -> x", "\"a||b\": expected a word on each side of |"},
                 {"m when tenant != |a -> x", "\"|a\": expected a word on each side of |"},
                 {"m when class = | -> x", "\"|\": expected a word on each side of |"},
                 {"m when stream = yes| -> x", "\"yes|\": expected a word on each side of |"},
                 {"m -> *", "\"*\": expected the name of a model after ->"},
                 {"* when load > 3 -> *", "\"*\": expected the name of a model after ->"},
                 {"m -> m", "\"m\": expected another model after ->: it leads to itself"},
                 {"m when load > 3 -> m # x", "\"m\": expected another model after ->"},
                 {"none", "none stands alone"},
                 {" None # x", "none stands alone"},
                 {"m -> x y", "y"},
                 {"-> x", "model"},
                 {"m when load>1 and load>2 and load>3 and load>4 and load>5 and load>6 and load>7 "
                  "and load>8 and load>9 -> x",
                  "more than 8"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scenario *s;
        struct errmsg e = {0};
        char text[256];
        snprintf(text, sizeof text, "\na -> b\n%s\n", cases[i].rule);
        CHECK_INT(scenario_parse(&s, str_of(text), &e), ERR_INVALID);
        CHECK(!s);
        CHECK_AT(strstr(e.text, cases[i].word) && strstr(e.text, "line 3"), "%s: %s", cases[i].rule,
                 e.text);
    }
}

TEST(model_may_lead_to_itself_where_a_later_rule_would_take_it)
{
    struct scenario_facts f = facts(5, -1);
    leads("chat -> chat\n* -> small", "chat", &f, "chat");
    leads("chat -> chat\n* -> small", "other", &f, "small");
    leads("chat when tenant = acme -> chat\nchat -> small", "chat", &f, "chat");
    leads("chat when tenant = x -> chat\nchat -> small", "chat", &f, "small");
    static const char *const bad[] = {"* -> small\nchat -> chat", "a -> b\nchat -> chat\nb -> c",
                                      "chat -> chat\nchat -> chat"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct scenario *s;
        struct errmsg e = {0};
        CHECK_INT(scenario_parse(&s, str_of(bad[i]), &e), ERR_INVALID);
        CHECK_AT(!s && strstr(e.text, "line 2: \"chat\": expected another model"), "%s: %s", bad[i],
                 e.text);
    }
}

TEST(words_take_all_that_they_can_be)
{
    struct scenario_facts f = facts(5, -1);
    leads("m when class = online|batch and stream = no|yes and tenant = b|acme -> x", "m", &f, "x");
    leads("m when class != batch and stream != yes -> x", "m", &f, "x");
    leads("none -> x", "none", &f, "x");
}

TEST(without_rules_nothing_is_kept)
{
    struct scenario_facts f = facts(1, 1);
    struct scenario *s = read(" # nothing\n\n");
    CHECK(!s);
    CHECK(!scenario_concerns(s, STR("m")));
    CHECK(str_eqz(scenario_model(s, STR("m"), &f), "m"));
}

TEST(too_many_rules_are_refused)
{
    struct scenario *s;
    struct errmsg e = {0};
    char *text = calloc(1, 300 * 8);
    for (int i = 0; i < 300; i++)
        strcat(text, "a->b\n");
    CHECK_INT(scenario_parse(&s, str_of(text), &e), ERR_TOO_LARGE);
    free(text);
}

TEST(random_rules_decide_as_a_plain_reading_of_them)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct rng r;
        char text[2048] = "", want[16] = "m";
        struct scenario_facts f = facts(0, -1);
        rng_seed(&r, seed);
        for (int i = 0; i < N_SCENARIO_NUMBERS; i++)
            f.numbers[i] = (int64_t)rng_below(&r, 4) - 1;
        bool found = false;
        for (int rule = 0; rule < 12; rule++) {
            static const char *const names[] = {"prompt_tokens", "prompt_bytes", "max_tokens",
                                                "messages",      "inflight",     "load"};
            bool all = true, mine = rng_below(&r, 3) > 0;
            size_t n = strlen(text);
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", mine ? "m" : "n");
            int conditions = (int)rng_below(&r, 4);
            for (int c = 0; c < conditions; c++) {
                int which = (int)rng_below(&r, 6), limit = (int)rng_below(&r, 3),
                    greater = (int)rng_below(&r, 2);
                n += (size_t)snprintf(text + n, sizeof text - n, " %s %s %s %d", c ? "and" : "when",
                                      names[which], greater ? ">" : "<=", limit);
                int64_t v = f.numbers[which];
                all = all && v >= 0 && (greater ? v > limit : v <= limit);
            }
            snprintf(text + n, sizeof text - n, " -> t%d\n", rule);
            if (mine && all && !found) {
                found = true;
                snprintf(want, sizeof want, "t%d", rule);
            }
        }
        if (!leads(text, "m", &f, want)) {
            CHECK_AT(false, "seed %llu", (unsigned long long)seed);
            return;
        }
    }
}

TEST_MAIN()
