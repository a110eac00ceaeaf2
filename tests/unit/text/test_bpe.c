/* test_bpe.c - byte-level BPE on a small vocabulary made here: merge order, special tokens, long words against the plain
 * algorithm, and what a file may get wrong. */
#include "base/mem.h"
#include "base/rng.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/check.h"

enum { BYTES = 256, MAX = 400 };

/* 256 byte tokens in byte order, then the results of the merges, then specials. */
struct small {
    struct str tokens[MAX], merges[MAX];
    int32_t types[MAX];
    char text[MAX][24];
    int n, n_merges;
};

static void add_token(struct small *v, const char *text, int32_t type)
{
    snprintf(v->text[v->n], sizeof v->text[0], "%s", text);
    v->tokens[v->n] = str_of(v->text[v->n]);
    v->types[v->n++] = type;
}

static void add_merge(struct small *v, const char *left, const char *right)
{
    static const char space[] = " ";
    char both[24], *line = xmalloc(48);
    snprintf(both, sizeof both, "%s%s", left, right);
    snprintf(line, 48, "%s%s%s", left, space, right);
    add_token(v, both, TOKEN_NORMAL);
    v->merges[v->n_merges++] = str_of(line);
}

static void small_init(struct small *v, bool all_bytes)
{
    *v = (struct small){.n = 0};
    int extra = 0;
    for (int b = 0; b < BYTES; b++) {
        bool shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        uint32_t code = shown ? (uint32_t)b : 256 + (uint32_t)extra++;
        char utf8[8] = {0};
        utf8_encode(code, utf8);
        add_token(v, all_bytes || b != 7 ? utf8 : "", TOKEN_NORMAL);
    }
    add_merge(v, "a", "b");                     /* 256 */
    add_merge(v, "ab", "c");                    /* 257 */
    add_merge(v, "b", "c");                     /* 258 */
    add_merge(v, "a", "a");                     /* 259 */
    add_merge(v, "aa", "aa");                   /* 260 */
    add_merge(v, "\u0120", "a");                /* 261: space a */
    add_token(v, "<|end|>", TOKEN_CONTROL);     /* 262 */
    add_token(v, "<|end|>x", TOKEN_CONTROL);    /* 263 */
    add_token(v, "<tool>", TOKEN_USER_DEFINED); /* 264 */
    add_token(v, "[PAD9]", TOKEN_UNUSED);       /* 265 */
}

static void small_fini(struct small *v)
{
    for (int i = 0; i < v->n_merges; i++)
        mem_free((char *)v->merges[i].p);
}

static struct tokenizer_spec spec_of(const struct small *v)
{
    return (struct tokenizer_spec){.kind = TOKENIZER_BPE,
                                   .pre = "gpt-2",
                                   .n_tokens = v->n,
                                   .tokens = v->tokens,
                                   .types = v->types,
                                   .n_merges = v->n_merges,
                                   .merges = v->merges,
                                   .bos = -1,
                                   .eos = 262,
                                   .unk = -1,
                                   .pad = -1,
                                   .cls = -1,
                                   .sep = -1};
}

static struct tokenizer *small_tokenizer(bool all_bytes)
{
    struct small v;
    struct tokenizer *t = NULL;
    struct errmsg e = {0};
    small_init(&v, all_bytes);
    struct tokenizer_spec spec = spec_of(&v);
    CHECK_AT(tokenizer_new(&t, &spec, &e) == OK, "%s", e.text);
    small_fini(&v);
    return t;
}

static void check_ids(const struct tokenizer *t, struct str text, unsigned flags,
                      const int32_t *want, size_t n)
{
    struct token_list l;
    token_list_init(&l, 1000);
    tokenizer_encode(t, text, flags, &l);
    bool same = l.n == n && !l.failed;
    for (size_t i = 0; same && i < n; i++)
        same = l.ids[i] == want[i];
    CHECK_AT(same, "\"%.*s\" has other ids", STR_ARG(text));
    for (size_t i = 0; !same && i < l.n; i++)
        printf("      %d", l.ids[i]);
    token_list_fini(&l);
}
#define CHECK_IDS(t, text, flags, ...)                                                             \
    do {                                                                                           \
        static const int32_t want_[] = {__VA_ARGS__};                                              \
        check_ids(t, STR(text), flags, want_, sizeof want_ / sizeof want_[0]);                     \
    } while (0)

TEST(the_lowest_rank_merges_first)
{
    struct tokenizer *t = small_tokenizer(true);
    CHECK_IDS(t, "abc", 0, 257);
    CHECK_IDS(t, "bc", 0, 258);
    CHECK_IDS(t, "aabc", 0, 'a', 257);
    CHECK_IDS(t, "aaaaa", 0, 260, 'a');
    CHECK_IDS(t, "x a", 0, 'x', 261);
    tokenizer_free(t);
}

TEST(control_tokens_need_the_flag_and_the_longest_wins)
{
    struct tokenizer *t = small_tokenizer(true);
    CHECK_IDS(t, "a<|end|>b", TOKENIZE_PARSE_SPECIAL, 'a', 262, 'b');
    CHECK_IDS(t, "<|end|>xa", TOKENIZE_PARSE_SPECIAL, 263, 'a');
    CHECK_IDS(t, "<|end|>", 0, '<', '|', 'e', 'n', 'd', '|', '>');
    CHECK_IDS(t, "a<tool>b", 0, 'a', 264, 'b'); /* a user-defined token is a word of the text */
    CHECK_IDS(t, "[PAD9]", TOKENIZE_PARSE_SPECIAL, '[', 'P', 'A', 'D', '9', ']');
    CHECK(tokenizer_is_end(t, 262) && !tokenizer_is_end(t, 264) && !tokenizer_is_end(t, -1) &&
          !tokenizer_is_end(t, 1 << 20));
    CHECK_STR(tokenizer_bytes(t, 262, false), "");
    CHECK_STR(tokenizer_bytes(t, 262, true), "<|end|>");
    CHECK_STR(tokenizer_bytes(t, 264, false), "<tool>");
    CHECK_STR(tokenizer_bytes(t, 261, false), " a");
    tokenizer_free(t);
}

TEST(control_tokens_across_a_segment_border_stay_text)
{
    struct tokenizer *t = small_tokenizer(true);
    struct str text = STR("<|end|>a<|end|>b<|end|>");
    /* template: first token and the head of the second; content: the rest of it and "b"; template: the last token */
    struct chat_segment segments[] = {{0, 10, false}, {10, 6, true}, {16, 7, false}};
    static const int32_t want[] = {262, 'a', '<', '|', 'e', 'n', 'd', '|', '>', 'b', 262};
    struct token_list l;
    token_list_init(&l, 100);
    tokenizer_encode_segments(t, text, segments, 3, 0, &l);
    REQUIRE(l.n == sizeof want / sizeof want[0]);
    for (size_t i = 0; i < l.n; i++)
        CHECK_INT(l.ids[i], want[i]);
    token_list_fini(&l);
    tokenizer_free(t);
}

TEST(llama3_keeps_a_word_whole_that_is_a_token)
{
    struct small v;
    small_init(&v, true);
    add_token(&v, "xyz", TOKEN_NORMAL);       /* 266: no merge makes it */
    add_token(&v, "\u0120xyz", TOKEN_NORMAL); /* 267 */
    add_token(&v, "zyx", TOKEN_CONTROL);      /* 268 */
    struct tokenizer_spec spec = spec_of(&v);
    struct tokenizer *t = NULL;
    CHECK_INT(tokenizer_new(&t, &spec, NULL), OK);
    CHECK_IDS(t, "xyz", 0, 'x', 'y', 'z');
    tokenizer_free(t);
    spec.pre = "llama-bpe";
    CHECK_INT(tokenizer_new(&t, &spec, NULL), OK);
    CHECK_IDS(t, "xyz xyz zyx", 0, 266, 267, ' ', 'z', 'y', 'x');
    CHECK_IDS(t, "abc", 0, 257);
    tokenizer_free(t);
    small_fini(&v);
}

TEST(a_byte_without_token_is_dropped)
{
    struct tokenizer *t = small_tokenizer(false);
    CHECK_IDS(t, "a\007b", 0, 'a', 'b'); /* three words for the scanner */
    check_ids(t, STR("\007"), 0, NULL, 0);
    tokenizer_free(t);
}

/* The plain algorithm: look at all pairs, merge the best, again. */
static size_t slow_bpe(const struct small *v, const char *word, size_t n, int32_t *ids)
{
    char parts[300][300];
    for (size_t i = 0; i < n; i++) {
        parts[i][0] = word[i];
        parts[i][1] = 0;
    }
    for (;;) {
        int best = v->n_merges;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            char line[620];
            snprintf(line, sizeof line, "%s %s", parts[i], parts[i + 1]);
            for (int m = 0; m < best; m++)
                if (str_eqz(v->merges[m], line)) {
                    best = m;
                    at = i;
                }
        }
        if (best == v->n_merges) break;
        memmove(parts[at] + strlen(parts[at]), parts[at + 1], strlen(parts[at + 1]) + 1);
        for (size_t i = at + 1; i + 1 < n; i++)
            memcpy(parts[i], parts[i + 1], sizeof parts[i]);
        n--;
    }
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < v->n; k++)
            if (str_eqz(v->tokens[k], parts[i])) ids[i] = k;
    return n;
}

TEST(short_and_long_words_follow_the_plain_algorithm)
{
    struct small v;
    struct rng r;
    small_init(&v, true);
    struct tokenizer *t = small_tokenizer(true);
    rng_seed(&r, 3);
    for (int round = 0; round < 60; round++) {
        char word[300];
        int32_t want[300];
        size_t n = 2 + rng_below(&r, round % 2 ? 62 : 250); /* both sides of the limit of 64 */
        for (size_t i = 0; i < n; i++)
            word[i] = "abc"[rng_below(&r, 3)];
        size_t n_want = slow_bpe(&v, word, n, want);
        check_ids(t, (struct str){word, n}, 0, want, n_want);
    }
    tokenizer_free(t);
    small_fini(&v);
}

TEST(a_megabyte_without_spaces_is_not_quadratic)
{
    struct tokenizer *t = small_tokenizer(true);
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

TEST(the_token_limit_is_kept)
{
    struct tokenizer *t = small_tokenizer(true);
    struct token_list l;
    token_list_init(&l, 3);
    tokenizer_encode(t, STR("x y z"), 0, &l);
    CHECK(l.failed);
    CHECK(l.n <= 3);
    token_list_fini(&l);
    tokenizer_free(t);
}

static void check_refused(const struct tokenizer_spec *spec, enum err want, const char *why)
{
    struct tokenizer *t = NULL;
    struct errmsg e = {0};
    enum err err = tokenizer_new(&t, spec, &e);
    CHECK_AT(err == want, "%s: %s", err_name(err), e.text);
    CHECK_AT(strstr(e.text, why), "%s", e.text);
    tokenizer_free(t);
}

TEST(broken_vocabularies_are_refused_with_the_reason)
{
    struct small v;
    small_init(&v, true);
    struct tokenizer_spec spec = spec_of(&v);
    spec.pre = "no-such-family";
    check_refused(&spec, ERR_UNSUPPORTED, "no-such-family");
    spec = spec_of(&v);
    struct str merges[1] = {STR("x y")};
    spec.merges = merges;
    spec.n_merges = 1;
    check_refused(&spec, ERR_CORRUPT, "merge 0: its result");
    merges[0] = STR("abc");
    check_refused(&spec, ERR_CORRUPT, "merge 0");
    merges[0] = STR("qq a");
    check_refused(&spec, ERR_CORRUPT, "left part");
    spec = spec_of(&v);
    spec.eos = v.n;
    check_refused(&spec, ERR_CORRUPT, "eos");
    spec = spec_of(&v);
    v.tokens[5] = v.tokens[6];
    check_refused(&spec, ERR_CORRUPT, "tokens 5 and 6");
    small_fini(&v);
}

TEST_MAIN()
