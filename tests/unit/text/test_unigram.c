/* test_unigram.c - the unigram cut against a search over all cuts, its normalisation, and SentencePiece's precompiled character
 * map built here. */
#include "base/mem.h"
#include "base/rng.h"
#include "engine/text/charsmap.h"
#include "engine/text/tokenizer.h"
#include "tests/check.h"

#define B "\xe2\x96\x81" /* U+2581 */
static const struct str words[] = {STR("<s>"),
                                   STR("</s>"),
                                   STR("<unk>"),
                                   STR(B),
                                   STR("a"),
                                   STR("b"),
                                   STR("ab"),
                                   STR(B "a"),
                                   STR("ba"),
                                   STR("aba"),
                                   STR(B "ab"),
                                   STR("\xe4\xbd\xa0"),
                                   STR("\xe4\xbd\xa0\xe5\xa5\xbd"),
                                   STR("1"),
                                   STR("<mask>")};
static const float scores[] = {0,     0,  0,      -2.5f, -3,    -3.25f, -4, -3.5f,
                               -4.5f, -7, -5.25f, -6,    -7.5f, -5,     0};
static const int32_t types[] = {3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3};
enum { N = sizeof words / sizeof words[0], UNK = 2 };

static struct tokenizer_spec spec_of(void)
{
    return (struct tokenizer_spec){.kind = TOKENIZER_UNIGRAM,
                                   .n_tokens = N,
                                   .tokens = words,
                                   .types = types,
                                   .scores = scores,
                                   .bos = 0,
                                   .eos = 1,
                                   .unk = UNK,
                                   .pad = -1,
                                   .cls = -1,
                                   .sep = -1,
                                   .add_bos = true,
                                   .add_eos = true};
}

static struct tokenizer *open_tokenizer(void)
{
    struct tokenizer_spec spec = spec_of();
    struct tokenizer *t = NULL;
    struct errmsg e = {0};
    CHECK_AT(tokenizer_new(&t, &spec, &e) == OK, "%s", e.text);
    return t;
}

static void check_ids(const struct tokenizer *t, struct str text, unsigned flags,
                      const int32_t *want, size_t n)
{
    struct token_list l;
    token_list_init(&l, 1000);
    tokenizer_encode(t, text, flags, &l);
    bool same = l.n == n;
    for (size_t i = 0; same && i < n; i++)
        same = l.ids[i] == want[i];
    CHECK_AT(same, "\"%.*s\" has other ids", STR_ARG(text));
    for (size_t i = 0; !same && i < l.n; i++)
        printf("      %d\n", l.ids[i]);
    token_list_fini(&l);
}
#define CHECK_IDS(t, text, flags, ...)                                                             \
    do {                                                                                           \
        static const int32_t want_[] = {__VA_ARGS__};                                              \
        check_ids(t, STR(text), flags, want_, sizeof want_ / sizeof want_[0]);                     \
    } while (0)

TEST(text_is_normalised_and_words_are_marked)
{
    struct tokenizer *t = open_tokenizer();
    CHECK_IDS(t, "a", 0, 7);
    CHECK_IDS(t, "a", TOKENIZE_ADD_SPECIAL, 0, 7, 1);
    CHECK_IDS(t, "", TOKENIZE_ADD_SPECIAL, 0, 1);
    CHECK_IDS(t, "   ", TOKENIZE_ADD_SPECIAL, 0, 1);
    CHECK_IDS(t, "  a \t\n a  ", 0, 7, 7);
    CHECK_IDS(t, "\xef\xbd\x81\xe2\x91\xa0", 0, 7, 13); /* full-width a, circled 1 */
    CHECK_IDS(t,
              "a\x01"
              "b",
              0, 10); /* control characters vanish */
    CHECK_IDS(t, "\xe4\xbd\xa0\xe5\xa5\xbd", 0, 3, 12);
    CHECK_IDS(t, "<mask>", TOKENIZE_PARSE_SPECIAL, 14);
    CHECK_STR(tokenizer_bytes(t, 7, false), " a");
    tokenizer_free(t);
}

TEST(neighbouring_unknown_characters_are_one_token)
{
    struct tokenizer *t = open_tokenizer();
    CHECK_IDS(t, "axyzb", 0, 7, UNK, 5);
    CHECK_IDS(t, "\xf0\x9f\x98\x80\xf0\x9f\x98\x80", 0, 3, UNK);
    CHECK_IDS(t, "a\xff", 0, 7); /* a stray byte is white space */
    tokenizer_free(t);
}

/* Best sum over all cuts of s from byte `at`. */
static double best_sum(struct str s, size_t at)
{
    if (at == s.n) return 0;
    double best = -1e30;
    for (int i = 3; i < N - 1; i++) {
        if (!str_starts(str_sub(s, at, s.n), words[i])) continue;
        double sum = (double)scores[i] + best_sum(s, at + words[i].n);
        if (sum > best) best = sum;
    }
    return best;
}

TEST(the_cut_has_the_highest_sum)
{
    struct tokenizer *t = open_tokenizer();
    struct rng r;
    rng_seed(&r, 5);
    for (int round = 0; round < 500; round++) {
        char text[40], marked[140];
        size_t n = 0, m = 0;
        for (uint64_t k = 1 + rng_below(&r, 12); k; k--)
            text[n++] = "ab"[rng_below(&r, 2)];
        memcpy(marked, B, 3);
        m = 3;
        memcpy(marked + m, text, n);
        m += n;
        struct token_list l;
        token_list_init(&l, 100);
        tokenizer_encode(t, (struct str){text, n}, 0, &l);
        double sum = 0;
        for (size_t i = 0; i < l.n; i++)
            sum += (double)scores[l.ids[i]];
        CHECK_NEAR(sum, best_sum((struct str){marked, m}, 0), 1e-9);
        token_list_fini(&l);
    }
    tokenizer_free(t);
}

/* A double array for a few keys: node k keeps its children in units 256(k+1) and on. */
struct map_builder {
    uint32_t units[256 * 40];
    int n_nodes;
    uint32_t block_of[256 * 40];
    struct buf strings;
};

static void map_add(struct map_builder *m, const char *key, const char *value)
{
    uint32_t at = 0;
    for (const char *p = key;; p++) {
        if (!m->block_of[at]) {
            m->block_of[at] = 256u * (uint32_t)++m->n_nodes;
            uint32_t offset = at ^ m->block_of[at];
            m->units[at] |= offset << 10;
        }
        uint32_t child = m->block_of[at] ^ (unsigned char)*p;
        if (!*p) {
            m->units[at] |= 1u << 8;
            m->units[child] = 1u << 31 | (uint32_t)m->strings.n;
            buf_add(&m->strings, value, strlen(value) + 1);
            return;
        }
        m->units[child] |= (unsigned char)*p;
        at = child;
    }
}

TEST(a_precompiled_map_replaces_the_longest_key)
{
    struct map_builder *m = xcalloc(1, sizeof *m);
    struct buf bytes, out;
    struct charsmap *map;
    struct errmsg e = {0};
    buf_init(&m->strings, 1000);
    buf_init(&bytes, 1 << 20);
    buf_init(&out, 1000);
    map_add(m, "\xef\xbd\x81", "a");
    map_add(m, "e\xcc\x81", "\xc3\xa9");
    map_add(m, "\t", " ");
    map_add(m, "e", "E");
    map_add(m, "\x01", "");
    uint32_t n = (uint32_t)sizeof m->units;
    buf_add(&bytes, &n, 4);
    buf_add(&bytes, m->units, n);
    buf_str(&bytes, buf_view(&m->strings));
    REQUIRE(charsmap_new(&map, buf_view(&bytes), &e) == OK);
    charsmap_apply(map, STR("\xef\xbd\x81x\te e\xcc\x81\x01y\xff"), &out);
    CHECK_STR(buf_view(&out), "ax E \xc3\xa9y\xef\xbf\xbd");
    charsmap_free(map);
    memset(bytes.p + 4, 0xff, 64); /* damaged: any result is fine, reading outside is not */
    REQUIRE(charsmap_new(&map, buf_view(&bytes), &e) == OK);
    charsmap_apply(map, STR("abcdefg\xef\xbd\x81"), &out);
    charsmap_free(map);
    CHECK_INT(charsmap_new(&map, STR("\xff\xff\xff\x7f...."), &e), ERR_CORRUPT);
    CHECK_INT(charsmap_new(&map, STR("ab"), &e), ERR_CORRUPT);
    buf_fini(&bytes);
    buf_fini(&out);
    buf_fini(&m->strings);
    mem_free(m);
}

TEST(broken_vocabularies_are_refused)
{
    struct tokenizer *t;
    struct errmsg e = {0};
    struct tokenizer_spec spec = spec_of();
    spec.scores = NULL;
    CHECK_INT(tokenizer_new(&t, &spec, &e), ERR_CORRUPT);
    spec = spec_of();
    spec.unk = -1;
    CHECK_INT(tokenizer_new(&t, &spec, &e), ERR_CORRUPT);
    float bad[N] = {0};
    bad[4] = NAN;
    spec = spec_of();
    spec.scores = bad;
    CHECK_INT(tokenizer_new(&t, &spec, &e), ERR_CORRUPT);
}

TEST_MAIN()
