/* test_pretokenize.c - each family's scanner cuts like its regular expression (tests/data/tokenizer_words.jsonl holds what
 * a regular expression engine made of each text), and survives bytes that are not text. */
#include <jansson.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/text/pretokenize.h"
#include "tests/check.h"

static void check_words(const char *name, struct str text, const json_t *words)
{
    struct pretokenize_rule rule;
    struct pretokenize_walk walk;
    struct str got;
    size_t i = 0;
    REQUIRE(pretokenize_rule_of(name, &rule) == OK);
    pretokenize_start(&walk, rule.family, text);
    for (; pretokenize_next(&walk, &got); i++) {
        const json_t *w = json_array_get(words, i);
        struct str want = {json_string_value(w), json_string_length(w)};
        CHECK_AT(str_eq(got, want), "%s on \"%.*s\": word %zu is \"%.*s\", not \"%.*s\"", name,
                 STR_ARG(text), i, STR_ARG(got), STR_ARG(want));
        if (!str_eq(got, want)) return;
    }
    CHECK_AT(i == json_array_size(words), "%s on \"%.*s\": %zu words, not %zu", name, STR_ARG(text),
             i, json_array_size(words));
}

TEST(scanners_cut_like_their_expressions)
{
    char line[65536];
    int n = 0, families = 0;
    FILE *f = fopen(TEST_DATA "/tokenizer_words.jsonl", "r");
    REQUIRE(f);
    while (fgets(line, sizeof line, f)) {
        json_t *c = json_loads(line, JSON_ALLOW_NUL, NULL), *words;
        const char *name;
        REQUIRE(c);
        const json_t *t = json_object_get(c, "text");
        families = 0;
        json_object_foreach(json_object_get(c, "words"), name, words)
        {
            check_words(name, (struct str){json_string_value(t), json_string_length(t)}, words);
            families++;
        }
        json_decref(c);
        n++;
    }
    CHECK(n > 60);
    CHECK(families > 20);
    fclose(f);
}

static const char *const families[] = {
    "gpt-2",    "smollm", "llama-bpe",  "jais-2",      "qwen2",        "qwen35",
    "ufakzeka", "laguna", "seed-coder", "minicpm5",    "exaone-moe",   "gpt-4o",
    "tiny_aya", "tekken", "youtu",      "deepseek-v3", "deepseek-llm", "deepseek-coder",
    "spark2_5", "afmoe",  "falcon",     "bloom",       "viking"};
enum { FAMILIES = sizeof families / sizeof families[0] };

static const struct pretokenize_family *family_of(const char *name)
{
    struct pretokenize_rule rule = {NULL, false, false, false};
    CHECK_AT(pretokenize_rule_of(name, &rule) == OK, "%s is unknown", name);
    return rule.family;
}

TEST(random_bytes_are_covered_by_words)
{
    struct rng r;
    rng_seed(&r, 11);
    for (int round = 0; round < 1000; round++) {
        size_t n = 1 + rng_below(&r, 40);
        char *bytes = xmalloc(n); /* exactly n: reading past the end is caught by the sanitizer */
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)rng_below(&r, 256);
        for (int k = 0; k < FAMILIES; k++) {
            struct pretokenize_walk walk;
            struct str word;
            size_t at = 0;
            pretokenize_start(&walk, family_of(families[k]), (struct str){bytes, n});
            while (pretokenize_next(&walk, &word)) {
                REQUIRE(word.p == bytes + at && word.n > 0 && word.n <= n - at);
                at += word.n;
            }
            CHECK_INT(at, n);
        }
        mem_free(bytes);
    }
}

/* Texts that make a naive scanner look far ahead again and again. A quadratic one would take minutes. */
TEST(long_runs_are_cut_in_linear_time)
{
    static const char *const units[] = {" ",    "\n",           "1",    "a",        "A",
                                        "!",    "\t x",         " \n ", "A1",       "1a",
                                        "\xff", "\xe4\xb8\xad", "'",    " \xcc\x81"};
    enum { BYTES = 200000 };
    char *text = xmalloc(BYTES + 8);
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        size_t unit = strlen(units[u]), n = 0;
        for (; n < BYTES; n += unit)
            memcpy(text + n, units[u], unit);
        for (int k = 0; k < FAMILIES; k++) {
            struct pretokenize_walk walk;
            struct str word;
            size_t at = 0;
            pretokenize_start(&walk, family_of(families[k]), (struct str){text, n});
            while (pretokenize_next(&walk, &word))
                at += word.n;
            CHECK_AT(at == n, "%s on runs of \"%s\"", families[k], units[u]);
        }
    }
    mem_free(text);
}

TEST(unknown_families_are_refused)
{
    struct pretokenize_rule rule;
    CHECK_INT(pretokenize_rule_of("no-such-family", &rule), ERR_UNSUPPORTED);
    CHECK_INT(pretokenize_rule_of("qwen2", &rule), OK);
    CHECK(rule.nfc && !rule.whole_words && !rule.bos);
    CHECK_INT(pretokenize_rule_of("smollm", &rule), OK);
    CHECK(!rule.nfc);
    CHECK_INT(pretokenize_rule_of("llama-bpe", &rule), OK);
    CHECK(rule.whole_words && rule.bos);
}

TEST_MAIN()
