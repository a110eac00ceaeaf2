/* test_wordpiece.c - WordPiece equals the ids of an independent reference (tests/data/tokenizer_wordpiece.jsonl: the pieces of
 * BERT's vocabulary that its texts can meet, then texts and ids), in both ways of writing pieces. */
#include <jansson.h>

#include "base/mem.h"
#include "engine/text/tokenizer.h"
#include "tests/check.h"

static struct str *tokens;
static int32_t *types;
static int n_tokens;

/* "##s" -> "s", "word" -> U+2581 "word", as other converters write it. */
static struct str other_form(struct str s)
{
    char out[200];
    bool special = s.n > 2 && s.p[0] == '[' && s.p[s.n - 1] == ']';
    if (special) return s;
    if (str_starts(s, STR("##")) && s.n > 2) return str_sub(s, 2, s.n);
    int n = snprintf(out, sizeof out, "\xe2\x96\x81%.*s", STR_ARG(s));
    return (struct str){xstrndup(out, (size_t)n), (size_t)n};
}

static void read_pieces(const json_t *v)
{
    const json_t *pieces = json_object_get(v, "pieces");
    n_tokens = (int)json_integer_value(json_object_get(v, "n"));
    tokens = xcalloc((size_t)n_tokens, sizeof *tokens);
    types = xcalloc((size_t)n_tokens, sizeof *types);
    for (int i = 0; i < n_tokens; i++)
        types[i] = TOKEN_NORMAL;
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        const json_t *p = json_array_get(pieces, i);
        int id = (int)json_integer_value(json_array_get(p, 0));
        const char *text = json_string_value(json_array_get(p, 1));
        tokens[id] = (struct str){xstrdup(text), strlen(text)};
        if (text[0] == '[' && text[1])
            types[id] = !strcmp(text, "[UNK]") ? TOKEN_UNKNOWN : TOKEN_CONTROL;
    }
}

static struct tokenizer *open_tokenizer(bool other)
{
    struct str *list = xcalloc((size_t)n_tokens, sizeof *list);
    for (int i = 0; i < n_tokens; i++)
        list[i] = other && tokens[i].n ? other_form(tokens[i]) : tokens[i];
    struct tokenizer_spec spec = {.kind = TOKENIZER_WORDPIECE,
                                  .n_tokens = n_tokens,
                                  .tokens = list,
                                  .types = types,
                                  .bos = -1,
                                  .eos = -1,
                                  .unk = 100,
                                  .pad = 0,
                                  .cls = 101,
                                  .sep = 102,
                                  .lowercase = true};
    struct tokenizer *t = NULL;
    struct errmsg e = {0};
    CHECK_AT(tokenizer_new(&t, &spec, &e) == OK, "%s", e.text);
    for (int i = 0; other && i < n_tokens; i++)
        if (str_starts(list[i], STR("\xe2\x96\x81"))) mem_free((char *)list[i].p);
    mem_free(list);
    return t;
}

static void check_case(const struct tokenizer *t, const json_t *c, const char *key, unsigned flags)
{
    const json_t *text = json_object_get(c, "text"), *want = json_object_get(c, key);
    struct token_list l;
    if (!want) return;
    token_list_init(&l, 10000);
    tokenizer_encode(t, (struct str){json_string_value(text), json_string_length(text)},
                     flags | TOKENIZE_ADD_SPECIAL, &l);
    bool same = l.n == json_array_size(want);
    for (size_t i = 0; same && i < l.n; i++)
        same = l.ids[i] == json_integer_value(json_array_get(want, i));
    CHECK_AT(same, "%s (%s) has other ids", json_string_value(json_object_get(c, "id")), key);
    token_list_fini(&l);
}

TEST(wordpiece_ids_equal_the_reference)
{
    char *line = xmalloc(1 << 20);
    struct tokenizer *t[2] = {NULL, NULL};
    int n = 0;
    FILE *f = fopen(TEST_DATA "/tokenizer_wordpiece.jsonl", "r");
    REQUIRE(f);
    while (fgets(line, 1 << 20, f)) {
        json_t *c = json_loads(line, JSON_ALLOW_NUL, NULL);
        REQUIRE(c);
        if (!t[0]) {
            read_pieces(c);
            t[0] = open_tokenizer(false);
            t[1] = open_tokenizer(true);
        } else {
            for (int k = 0; k < 2; k++) {
                check_case(t[k], c, "ids", 0);
                check_case(t[k], c, "ids_special", TOKENIZE_PARSE_SPECIAL);
            }
            n++;
        }
        json_decref(c);
    }
    CHECK(n > 20);
    CHECK_STR(tokenizer_bytes(t[0], 7592, false), " hello");
    CHECK_STR(tokenizer_bytes(t[1], 7592, false), " hello");
    CHECK_INT(tokenizer_unk(t[0]), 100);
    fclose(f);
    for (int k = 0; k < 2; k++)
        tokenizer_free(t[k]);
    for (int i = 0; i < n_tokens; i++)
        mem_free((char *)tokens[i].p);
    mem_free(tokens);
    mem_free(types);
    mem_free(line);
}

TEST(a_vocabulary_without_unknown_token_is_refused)
{
    struct str list[] = {STR("a"), STR("##b")};
    struct tokenizer_spec spec = {.kind = TOKENIZER_WORDPIECE,
                                  .n_tokens = 2,
                                  .tokens = list,
                                  .bos = -1,
                                  .eos = -1,
                                  .unk = -1,
                                  .pad = -1,
                                  .cls = -1,
                                  .sep = -1};
    struct tokenizer *t;
    struct errmsg e = {0};
    CHECK_INT(tokenizer_new(&t, &spec, &e), ERR_CORRUPT);
    CHECK(strstr(e.text, "[UNK]"));
}

TEST_MAIN()
