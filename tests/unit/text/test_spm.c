/* test_spm.c - SentencePiece's BPE: the ids that sentencepiece itself gave on vocabularies trained for the test
 * (tests/data/tokenizer_spm.jsonl), the plain algorithm on random vocabularies, bytes, word marks and broken files. */
#include <jansson.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/text/stream_text.h"
#include "engine/text/tokenizer.h"
#include "tests/check.h"

#define B "\xe2\x96\x81" /* U+2581 */
enum { PIECES_MAX = 1000 };

struct vocabulary {
    struct str tokens[PIECES_MAX];
    int32_t types[PIECES_MAX];
    float scores[PIECES_MAX];
    int n;
    bool prefix, tidy;
};

static void add(struct vocabulary *v, struct str text, float score, enum token_type type)
{
    v->tokens[v->n] = text;
    v->scores[v->n] = score;
    v->types[v->n++] = type;
}

static struct tokenizer_spec spec_of(const struct vocabulary *v)
{
    return (struct tokenizer_spec){.kind = TOKENIZER_SPM,
                                   .n_tokens = v->n,
                                   .tokens = v->tokens,
                                   .types = v->types,
                                   .scores = v->scores,
                                   .bos = 1,
                                   .eos = 2,
                                   .unk = 0,
                                   .pad = -1,
                                   .cls = -1,
                                   .sep = -1,
                                   .add_bos = true,
                                   .add_space_prefix = v->prefix,
                                   .remove_extra_whitespaces = v->tidy};
}

static struct tokenizer *open_vocabulary(const struct vocabulary *v)
{
    struct tokenizer_spec spec = spec_of(v);
    struct tokenizer *t = NULL;
    struct errmsg e = {0};
    CHECK_AT(tokenizer_new(&t, &spec, &e) == OK, "%s", e.text);
    return t;
}

static void check_ids(const struct tokenizer *t, struct str text, unsigned flags,
                      const int32_t *want, size_t n)
{
    struct token_list l;
    token_list_init(&l, 100000);
    tokenizer_encode(t, text, flags, &l);
    bool same = l.n == n && !l.failed;
    for (size_t i = 0; same && i < n; i++)
        same = l.ids[i] == want[i];
    CHECK_AT(same, "\"%.*s\" has other ids", STR_ARG(text));
    for (size_t i = 0; !same && i < l.n; i++)
        printf(" %d", l.ids[i]);
    if (!same) printf("\n");
    token_list_fini(&l);
}
#define CHECK_IDS(t, text, flags, ...)                                                             \
    do {                                                                                           \
        static const int32_t want_[] = {__VA_ARGS__};                                              \
        check_ids(t, STR(text), flags, want_, sizeof want_ / sizeof want_[0]);                     \
    } while (0)

static struct tokenizer *open_trained(const json_t *line)
{
    static struct vocabulary v;
    const json_t *pieces = json_object_get(line, "pieces"), *p;
    size_t i;
    v.n = 0;
    v.prefix = json_is_true(json_object_get(line, "add_space_prefix"));
    v.tidy = json_is_true(json_object_get(line, "remove_extra_whitespaces"));
    json_array_foreach(pieces, i, p)
    {
        const json_t *text = json_array_get(p, 0);
        add(&v, (struct str){json_string_value(text), json_string_length(text)},
            (float)json_number_value(json_array_get(p, 1)),
            (enum token_type)json_integer_value(json_array_get(p, 2)));
    }
    return open_vocabulary(&v);
}

TEST(ids_equal_those_of_sentencepiece)
{
    enum { LINE_MAX_BYTES = 1 << 16 };
    char *line = xmalloc(LINE_MAX_BYTES);
    struct tokenizer *t = NULL;
    int n = 0;
    FILE *f = fopen(TEST_DATA "/tokenizer_spm.jsonl", "r");
    REQUIRE(f);
    while (fgets(line, LINE_MAX_BYTES, f)) {
        json_t *c = json_loads(line, JSON_ALLOW_NUL, NULL);
        REQUIRE(c);
        if (json_object_get(c, "vocabulary")) {
            tokenizer_free(t);
            t = open_trained(c);
            REQUIRE(t);
        } else {
            const json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids");
            int32_t want[2000];
            size_t n_want = json_array_size(ids);
            REQUIRE(t && n_want <= 2000);
            for (size_t i = 0; i < n_want; i++)
                want[i] = (int32_t)json_integer_value(json_array_get(ids, i));
            check_ids(t, (struct str){json_string_value(text), json_string_length(text)}, 0, want,
                      n_want);
            n++;
        }
        json_decref(c);
    }
    CHECK(n > 150);
    tokenizer_free(t);
    fclose(f);
    mem_free(line);
}

static void add_bytes(struct vocabulary *v)
{
    static char names[256][8];
    for (int i = 0; i < 256; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", i);
        add(v, str_of(names[i]), 0, TOKEN_BYTE);
    }
}

/* 0..2 specials, 3..258 bytes, 259 mark, 260 a, 261 b, 262 ab, 263 mark a, 264 mark ab, 265 the user's, 266 a control token */
static void small_vocabulary(struct vocabulary *v)
{
    *v = (struct vocabulary){.prefix = true};
    add(v, STR("<unk>"), 0, TOKEN_UNKNOWN);
    add(v, STR("<s>"), 0, TOKEN_CONTROL);
    add(v, STR("</s>"), 0, TOKEN_CONTROL);
    add_bytes(v);
    add(v, STR(B), -9, TOKEN_NORMAL);
    add(v, STR("a"), -9, TOKEN_NORMAL);
    add(v, STR("b"), -9, TOKEN_NORMAL);
    add(v, STR("ab"), -2, TOKEN_NORMAL);
    add(v, STR(B "a"), -1, TOKEN_NORMAL);
    add(v, STR(B "ab"), -3, TOKEN_NORMAL);
    add(v, STR("  "), -9, TOKEN_USER_DEFINED);
    add(v, STR("<turn>"), -9, TOKEN_CONTROL);
}

TEST(pieces_of_higher_score_are_joined_first)
{
    struct vocabulary v;
    small_vocabulary(&v);
    struct tokenizer *t = open_vocabulary(&v);
    CHECK_IDS(t, "ab", 0, 264); /* mark a, then with b */
    CHECK_IDS(t, "bab", 0, 259, 261, 262);
    CHECK_IDS(t, "a ab", 0, 263, 264);
    check_ids(t, STR(""), 0, NULL, 0);
    CHECK_IDS(t, "", TOKENIZE_ADD_SPECIAL, 1);
    tokenizer_free(t);
}

TEST(what_is_no_piece_becomes_bytes)
{
    struct vocabulary v;
    small_vocabulary(&v);
    struct tokenizer *t = open_vocabulary(&v);
    CHECK_IDS(t, "a\xe4\xbd\xa0", 0, 263, 3 + 0xE4, 3 + 0xBD, 3 + 0xA0);
    CHECK_IDS(t, "a\xff\xe4", 0, 263, 3 + 0xFF, 3 + 0xE4); /* what is not UTF-8 survives too */
    CHECK_IDS(t, "<0x41>", 0, 259, 3 + '<', 3 + '0', 3 + 'x', 3 + '4', 3 + '1', 3 + '>');
    CHECK_STR(tokenizer_bytes(t, 3 + 0xE4, false), "\xe4");
    CHECK_STR(tokenizer_bytes(t, 263, false), " a");
    tokenizer_free(t);
}

TEST(byte_tokens_leave_a_stream_as_whole_characters)
{
    struct vocabulary v;
    small_vocabulary(&v);
    struct tokenizer *t = open_vocabulary(&v);
    struct token_list l;
    struct stream_text *stream;
    struct buf out;
    struct str text = STR("a\xe4\xbd\xa0 \xf0\x9f\x98\x80");
    size_t whole = 0;
    token_list_init(&l, 100);
    buf_init(&out, 100);
    REQUIRE(stream_text_new(&stream, NULL, 0, NULL) == OK);
    tokenizer_encode(t, text, 0, &l);
    for (size_t i = 0; i < l.n; i++) {
        stream_text_feed(stream, tokenizer_bytes(t, l.ids[i], false), &out);
        CHECK(utf8_valid(buf_view(&out)));
        whole += out.n > 0;
    }
    stream_text_finish(stream, &out);
    CHECK(str_ends(buf_view(&out), text)); /* the mark before the first word is a space */
    CHECK(whole > 3);
    stream_text_free(stream);
    buf_fini(&out);
    token_list_fini(&l);
    tokenizer_free(t);
}

TEST(a_mark_opens_the_text_and_follows_control_tokens)
{
    struct vocabulary v;
    small_vocabulary(&v);
    struct tokenizer *t = open_vocabulary(&v);
    CHECK_IDS(t, "<turn>a<turn>", TOKENIZE_PARSE_SPECIAL, 266, 263, 266);
    CHECK_IDS(t, "a  b", 0, 263, 265, 261); /* none after a token that is a word of the text */
    CHECK_IDS(t, "  b", 0, 259, 265, 261);
    CHECK_IDS(t, "<s>a", TOKENIZE_PARSE_SPECIAL | TOKENIZE_ADD_SPECIAL, 1, 263);
    tokenizer_free(t);
    v.prefix = false;
    t = open_vocabulary(&v);
    CHECK_IDS(t, "a a", 0, 260, 263);
    tokenizer_free(t);
}

/* The plain algorithm: of all neighbours whose joint text is a piece join the best, again and again. */
static size_t slow_spm(const struct vocabulary *v, struct str text, int32_t *ids)
{
    struct str parts[400];
    size_t n = 0, n_ids = 0;
    for (size_t i = 0; i < text.n; i++)
        parts[n++] = str_sub(text, i, 1);
    for (;;) {
        float best = -INFINITY;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            struct str both = {parts[i].p, parts[i].n + parts[i + 1].n};
            for (int k = 0; k < v->n; k++)
                if (str_eq(v->tokens[k], both) && v->scores[k] > best) {
                    best = v->scores[k];
                    at = i;
                }
        }
        if (best == -INFINITY) break;
        parts[at].n += parts[at + 1].n;
        memmove(parts + at + 1, parts + at + 2, (n - at - 2) * sizeof *parts);
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        int32_t id = 0;
        for (int k = 1; k < v->n; k++)
            if (str_eq(v->tokens[k], parts[i])) id = k;
        if (id || !n_ids || ids[n_ids - 1] != 0) ids[n_ids++] = id;
    }
    return n_ids;
}

TEST(random_vocabularies_follow_the_plain_algorithm)
{
    static struct vocabulary v;
    static char texts[60][8];
    struct rng r;
    rng_seed(&r, 5);
    for (int round = 0; round < 40; round++) {
        v = (struct vocabulary){.n = 0};
        add(&v, STR("<unk>"), 0, TOKEN_UNKNOWN);
        add(&v, STR("<s>"), 0, TOKEN_CONTROL);
        add(&v, STR("</s>"), 0, TOKEN_CONTROL);
        for (int i = 0; i < 30; i++) {
            size_t n = 1 + rng_below(&r, 4);
            for (size_t k = 0; k < n; k++)
                texts[i][k] = "abcd"[rng_below(&r, 4)];
            struct str text = {texts[i], n};
            bool seen = false;
            for (int k = 0; k < v.n; k++)
                seen |= str_eq(v.tokens[k], text);
            if (!seen) add(&v, text, -(float)rng_below(&r, 12), TOKEN_NORMAL);
        }
        struct tokenizer *t = open_vocabulary(&v);
        REQUIRE(t);
        for (int k = 0; k < 10; k++) {
            char text[400];
            int32_t want[400];
            size_t n = 1 + rng_below(&r, k % 2 ? 60 : 399); /* both sides of the limit of 64 */
            for (size_t i = 0; i < n; i++)
                text[i] = "abcde"[rng_below(&r, 5)];
            size_t n_want = slow_spm(&v, (struct str){text, n}, want);
            check_ids(t, (struct str){text, n}, 0, want, n_want);
        }
        tokenizer_free(t);
    }
}

TEST(unused_pieces_fall_apart_again)
{
    struct vocabulary v = {.n = 0};
    add(&v, STR("<unk>"), 0, TOKEN_UNKNOWN);
    add(&v, STR("<s>"), 0, TOKEN_CONTROL);
    add(&v, STR("</s>"), 0, TOKEN_CONTROL);
    add(&v, STR("a"), -5, TOKEN_NORMAL);
    add(&v, STR("b"), -5, TOKEN_NORMAL);
    add(&v, STR("ab"), -1, TOKEN_UNUSED);
    add(&v, STR("aba"), -2, TOKEN_UNUSED);
    add(&v, STR("abab"), -3, TOKEN_NORMAL);
    struct tokenizer *t = open_vocabulary(&v);
    CHECK_IDS(t, "abab", 0, 7); /* through two that are not to be used */
    CHECK_IDS(t, "abb", 0, 3, 4, 4);
    CHECK_IDS(t, "aba", 0, 3, 4, 3);
    CHECK_IDS(t, "b", 0, 4);
    tokenizer_free(t);
}

TEST(a_megabyte_without_spaces_is_not_quadratic)
{
    struct vocabulary v;
    small_vocabulary(&v);
    v.prefix = false;
    add(&v, STR("aa"), -1, TOKEN_NORMAL);
    add(&v, STR("aaaa"), -2, TOKEN_NORMAL);
    struct tokenizer *t = open_vocabulary(&v);
    size_t n = 1 << 20;
    char *text = xmalloc(n);
    memset(text, 'a', n);
    struct token_list l;
    token_list_init(&l, n);
    tokenizer_encode(t, (struct str){text, n}, 0, &l);
    CHECK(!l.failed);
    CHECK_INT(l.n, n / 4);
    token_list_fini(&l);
    mem_free(text);
    tokenizer_free(t);
}

static void check_refused(const struct tokenizer_spec *spec, const char *why)
{
    struct tokenizer *t = NULL;
    struct errmsg e = {0};
    enum err err = tokenizer_new(&t, spec, &e);
    CHECK_AT(err == ERR_CORRUPT && strstr(e.text, why), "%s: %s", err_name(err), e.text);
    tokenizer_free(t);
}

TEST(broken_vocabularies_are_refused_with_the_reason)
{
    struct vocabulary v;
    small_vocabulary(&v);
    struct tokenizer_spec spec = spec_of(&v);
    spec.scores = NULL;
    check_refused(&spec, "needs scores");
    spec = spec_of(&v);
    v.scores[260] = NAN;
    check_refused(&spec, "token 260 is not finite");
    v.scores[260] = 0;
    v.tokens[4] = STR("<0xZZ>");
    check_refused(&spec, "token 4 is a byte");
    v = (struct vocabulary){.n = 0};
    for (int i = 0; i < 3; i++)
        add(&v, (struct str){"abc" + i, 1}, 0, TOKEN_NORMAL);
    spec = spec_of(&v);
    spec.unk = -1;
    check_refused(&spec, "neither");
}

TEST_MAIN()
