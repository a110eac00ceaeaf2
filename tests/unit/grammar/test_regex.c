/* Goal: regular expressions mean what they mean elsewhere, and what is not regular is refused by name. Method: tables; random
 * expressions against a matcher that walks the expression itself. */
#include "tests/unit/grammar/grammar_rig.h"

static const struct {
    const char *regex, *yes[6], *no[6];
} cases[] = {
    {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
    {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
    {"[0-9]+", {"0", "42", "0000000000000"}, {"", "a", "4a"}},
    {"-?(0|[1-9]\\d*)(\\.\\d+)?", {"0", "-12.50", "7"}, {"01", "1.", "-", ".5"}},
    {"(ab){2,3}", {"abab", "ababab"}, {"ab", "abababab"}},
    {"a{2}b{0,1}c{1,}", {"aac", "aabc", "aaccc"}, {"ac", "aab", "aabbc"}},
    {"[^a-z]", {"A", "\xc3\xa9", "\xf0\x9f\x98\x80", "\n"}, {"a", "", "AB"}},
    {"[\\w.-]+@\\w+\\.com", {"a.b-c@d.com"}, {"@d.com", "a@d.co"}},
    {".", {"x", "\xe4\xbd\xa0"}, {"\n", "", "xy", "\xe4\xbd"}},
    {"\\S+\\s\\D", {"ab c"}, {"ab 1", "a b c"}},
    {"[^\\s]", {"a", "\xc3\xa9"}, {" ", "\n", "\xc2\xa0", "\xe2\x80\xa8", "\xef\xbb\xbf"}},
    {"[^\\S]", {" ", "\t"}, {"a", "\xc2\xa0"}},
    {"[^\\s\\S]|x", {"x"}, {"\xe2\x81\x9f", " "}},
    {"[\\u4e00-\\u9fff]{2}", {"\xe4\xbd\xa0\xe5\xa5\xbd"}, {"\xe4\xbd\xa0", "ab"}},
    {"\\x41\\u{1F600}\\uD83D\\uDE00", {"A\xf0\x9f\x98\x80\xf0\x9f\x98\x80"}, {"A"}},
    {"^abc$", {"abc"}, {"abcd"}},
    {"(^a|b)c", {"ac", "bc"}, {"aac"}},
    {"a^b", {NULL}, {"ab", "a^b"}},
    {"a$b|c", {"c"}, {"ab", "a$b"}},
    {"(?:x|y)*?z", {"z", "xyxz"}, {"x"}},
    {"(?P<year>\\d{4})-(?<month>\\d\\d)", {"2024-05"}, {"24-05"}},
    {"\\(\\[\\{\\\\\\}\\]\\)", {"([{\\}])"}, {"([{}])"}},
    {"a{,2}", {"a{,2}"}, {"aa"}},
    {"[]^]", {NULL}, {NULL}},
    {"[a\\]b]", {"a", "]", "b"}, {"\\"}},
    {"[-a]", {"-", "a"}, {"b"}},
    {"[a-]", {"-", "a"}, {"b"}},
    {"\\t\\n\\r\\0", {NULL}, {"tnr0"}},
    {"(a*)*b", {"b", "aaab"}, {"a"}},
    {"(|a)+", {"", "a", "aaa"}, {"b"}},
    {"[\\d\\-x]+", {"1-x"}, {"y"}},
    {"\\Aab\\Z", {"ab"}, {"abab"}},
};

TEST(expressions_match_whole_texts)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct errmsg e = {0};
        struct grammar *g = rig_regex(cases[i].regex, &e);
        if (!g) {
            CHECK_AT(!cases[i].yes[0], "%s is refused: %s", cases[i].regex, e.text);
            continue;
        }
        for (int k = 0; k < 6; k++) {
            if (cases[i].yes[k])
                CHECK_AT(rig_accepts(g, str_of(cases[i].yes[k])), "%s should match \"%s\"",
                         cases[i].regex, cases[i].yes[k]);
            if (cases[i].no[k])
                CHECK_AT(!rig_accepts(g, str_of(cases[i].no[k])), "%s should not match \"%s\"",
                         cases[i].regex, cases[i].no[k]);
        }
        grammar_unref(g);
    }
}

static const struct {
    const char *regex, *reason;
} refused[] = {
    {"a(?=b)", "look-ahead"},
    {"(?<!x)a", "look-behind"},
    {"(a)\\1", "back-references"},
    {"\\bword", "word boundaries"},
    {"(a", "expected )"},
    {"a)", "closes nothing"},
    {"[a", "expected ]"},
    {"[]", "empty class"},
    {"*a", "nothing to repeat"},
    {"a**", "repetition of a repetition"},
    {"a++", "repetition of a repetition"},
    {"a{3,2}", "below the least"},
    {"a{20000}", "10000"},
    {"\\p{L}", "Unicode property"},
    {"(?i)a", "flags"},
    {"\\q", "unknown escape"},
    {"[z-a]", "a range that is none"},
    {"\\", "backslash at the end"},
    {"\\ud800", "no such character"},
    {"((((a{1000}){1000}){1000}){1000})", "too complex"},
    {"((((){10000}){10000}){10000}){10000}", "too complex"},
    {"(a|b)*a(a|b){30}", "too complex"},
    {"a^b", "nothing can match"},
};

TEST(what_is_not_regular_or_not_sound_is_refused_with_the_reason)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct errmsg e = {0};
        struct grammar *g = rig_regex(refused[i].regex, &e);
        CHECK_AT(!g, "%s is accepted", refused[i].regex);
        CHECK_AT(strstr(e.text, refused[i].reason) != NULL, "%s: \"%s\" does not say \"%s\"",
                 refused[i].regex, e.text, refused[i].reason);
        grammar_unref(g);
    }
}

/* --- a matcher that tries everything: returns the set of ends from one start as a bit set */
struct node {
    int kind; /* 0 char, 1 cat, 2 alt, 3 repeat, 4 class a-b */
    char c;
    int min, max; /* max -1 = no limit */
    int kid[3], n;
};
struct tree {
    struct node node[60];
    int n;
};

static int grow(struct tree *t, struct rng *r, int depth)
{
    int i = t->n++;
    struct node x = {.kind = depth > 3 || t->n > 40 ? 0 : (int)rng_below(r, 5)};
    x.c = (char)('a' + rng_below(r, 3));
    if (x.kind == 1 || x.kind == 2) x.n = 1 + (int)rng_below(r, 3);
    if (x.kind == 3) {
        x.n = 1;
        x.min = (int)rng_below(r, 3);
        x.max = rng_below(r, 2) ? -1 : x.min + (int)rng_below(r, 3);
    }
    for (int k = 0; k < x.n; k++)
        x.kid[k] = grow(t, r, depth + 1);
    t->node[i] = x;
    return i;
}

static void print(const struct tree *t, int i, struct buf *out)
{
    const struct node *x = &t->node[i];
    if (x->kind == 0) buf_char(out, x->c);
    if (x->kind == 4) buf_z(out, "[a-b]");
    if (x->n) buf_z(out, "(?:");
    for (int k = 0; k < x->n; k++) {
        if (k && x->kind == 2) buf_char(out, '|');
        print(t, x->kid[k], out);
    }
    if (x->n) buf_char(out, ')');
    if (x->kind == 3 && x->max < 0) buf_printf(out, "{%d,}", x->min);
    if (x->kind == 3 && x->max >= 0) buf_printf(out, "{%d,%d}", x->min, x->max);
}

static uint32_t ends(const struct tree *t, int i, struct str text, uint32_t from)
{
    const struct node *x = &t->node[i];
    uint32_t out = 0;
    if (x->kind == 0 || x->kind == 4) {
        for (size_t k = 0; k < text.n; k++)
            if (from >> k & 1 && (x->kind == 4 ? text.p[k] <= 'b' : text.p[k] == x->c))
                out |= 1u << (k + 1);
        return out;
    }
    if (x->kind == 1) {
        out = from;
        for (int k = 0; k < x->n; k++)
            out = ends(t, x->kid[k], text, out);
        return out;
    }
    if (x->kind == 2) {
        for (int k = 0; k < x->n; k++)
            out |= ends(t, x->kid[k], text, from);
        return out;
    }
    int most = x->max < 0 ? 20 : x->max;
    for (int k = 0; k <= most; k++) {
        if (k >= x->min) out |= from;
        from = ends(t, x->kid[0], text, from);
    }
    return out;
}

TEST(random_expressions_agree_with_a_matcher_that_tries_everything)
{
    struct rng r;
    uint64_t seed = 7;
    rng_seed(&r, seed);
    for (int round = 0; round < 300; round++) {
        struct tree t = {.n = 0};
        struct buf regex;
        struct errmsg e = {0};
        int root = grow(&t, &r, 0);
        buf_init(&regex, 10000);
        print(&t, root, &regex);
        buf_char(&regex, 0);
        struct grammar *g = rig_regex(regex.p, &e);
        CHECK_AT(g, "seed %llu, %s: %s", (unsigned long long)seed, regex.p, e.text);
        for (int k = 0; k < 40 && g; k++) {
            char bytes[10];
            struct str text = {bytes, rng_below(&r, 8)};
            for (size_t i = 0; i < text.n; i++)
                bytes[i] = (char)('a' + rng_below(&r, 3));
            bool want = ends(&t, root, text, 1) >> text.n & 1, got = rig_accepts(g, text);
            CHECK_AT(want == got, "seed %llu: %s on \"%.*s\" is %d", (unsigned long long)seed,
                     regex.p, (int)text.n, text.p, got);
        }
        grammar_unref(g);
        buf_fini(&regex);
    }
    rig_close();
}

TEST_MAIN()
