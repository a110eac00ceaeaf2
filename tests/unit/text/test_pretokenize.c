/* test_pretokenize.c - each family's scanner cuts like its regular expression (tests/data/tokenizer_words.jsonl holds what
 * a regular expression engine made of each text), and survives bytes that are not text. */
#include <jansson.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/text/pretokenize.h"
#include "tests/check.h"

static const char *const names[] = {"gpt-2",  "smollm", "llama-bpe", "qwen2",
                                    "qwen35", "gpt-4o", "tekken"};

static void check_words(const char *name, struct str text, const json_t *words)
{
    struct pretokenize_rule rule;
    REQUIRE(pretokenize_rule_of(name, &rule) == OK);
    size_t at = 0, i = 0;
    for (; at < text.n; i++) {
        size_t end = pretokenize_word(rule.family, text, at);
        struct str got = {text.p + at, end - at},
                   want = str_of(json_string_value(json_array_get(words, i)));
        CHECK_AT(str_eq(got, want), "%s on \"%.*s\": word %zu is \"%.*s\", not \"%.*s\"", name,
                 STR_ARG(text), i, STR_ARG(got), STR_ARG(want));
        if (!str_eq(got, want)) return;
        at = end;
    }
    CHECK_INT(i, json_array_size(words));
}

TEST(scanners_cut_like_their_expressions)
{
    char line[65536];
    int n = 0;
    FILE *f = fopen(TEST_DATA "/tokenizer_words.jsonl", "r");
    REQUIRE(f);
    while (fgets(line, sizeof line, f)) {
        json_t *c = json_loads(line, JSON_ALLOW_NUL, NULL);
        REQUIRE(c);
        const json_t *t = json_object_get(c, "text");
        struct str text = {json_string_value(t), json_string_length(t)};
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            check_words(names[k], text, json_object_get(json_object_get(c, "words"), names[k]));
        json_decref(c);
        n++;
    }
    CHECK(n > 30);
    fclose(f);
}

TEST(random_bytes_are_covered_by_words)
{
    struct rng r;
    rng_seed(&r, 11);
    for (int round = 0; round < 2000; round++) {
        size_t n = 1 + rng_below(&r, 40);
        char *bytes = xmalloc(n); /* exactly n: reading past the end is caught by the sanitizer */
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)rng_below(&r, 256);
        for (int family = PRETOKENIZE_GPT2; family <= PRETOKENIZE_TEKKEN; family++) {
            size_t at = 0;
            while (at < n) {
                size_t end =
                    pretokenize_word((enum pretokenize_family)family, (struct str){bytes, n}, at);
                REQUIRE(end > at && end <= n);
                at = end;
            }
        }
        mem_free(bytes);
    }
}

TEST(unknown_families_are_refused)
{
    struct pretokenize_rule rule;
    CHECK_INT(pretokenize_rule_of("no-such-family", &rule), ERR_UNSUPPORTED);
    CHECK_INT(pretokenize_rule_of("qwen2", &rule), OK);
    CHECK(rule.nfc);
    CHECK_INT(pretokenize_rule_of("smollm", &rule), OK);
    CHECK(!rule.nfc);
}

TEST_MAIN()
