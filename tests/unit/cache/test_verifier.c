/* test_verifier.c - goal: the probability is what the calibration says, nothing that is no number gives a hit, a calibration that does
 * not fit this program is refused with the reason, and hard guards are named. Method: calibrations written here; the shipped one is read
 * too. */
#include "cache/verifier.h"

#include "base/buf.h"
#include "base/mem.h"
#include "embeddings/pair_weights.h"
#include "engine/model/gguf.h"
#include "tests/check.h"

/* Weights of 0 but what is given; guards: the weight of "negation", the others 0. */
static void write_look(struct buf *out, const char *more, double negation)
{
    buf_printf(out, "{%s\"guards\":{", more);
    for (int i = 0; guard_names[i]; i++)
        buf_printf(out, "%s\"%s\":%g", i ? "," : "", guard_names[i],
                   strcmp(guard_names[i], "negation") ? 0.0 : negation);
    buf_printf(out, "}}");
}

static const char *const FIRST = "\"bias\":-1,\"cosine\":10,\"alone\":2,\"shared\":0.5,"
                                 "\"contained\":0.25,\"asks_alike\":0.125,\"same\":4,";
static const char *const SECOND = "\"bias\":0,\"cosine\":0,\"alone\":0,\"joint\":1,\"shared\":0,"
                                  "\"contained\":0,\"asks_alike\":0,\"same\":0,";

static void write_calibration(struct buf *out, const char *first)
{
    buf_init(out, 1 << 16);
    for (int i = 0; i < 2; i++) {
        buf_printf(out, "%s{\"first\":0.2,\"alone\":0.9,\"hit\":0.8,\"looks\":[",
                   i ? ",\"zh\":" : "{\"en\":");
        write_look(out, first, -3);
        buf_printf(out, ",");
        write_look(out, SECOND, 0);
        buf_printf(out, "]}");
    }
    buf_printf(out, "}");
}

static struct verifier *make(void)
{
    struct buf text;
    struct verifier *vf;
    struct errmsg e = {0};
    write_calibration(&text, FIRST);
    if (verifier_new(&vf, buf_view(&text), &e) != OK) printf("    %s\n", e.text);
    buf_fini(&text);
    return vf;
}

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

TEST(the_probability_is_the_weighted_sum_of_the_features)
{
    struct verifier *vf = make();
    REQUIRE(vf != NULL);
    struct guard_verdict v = {.shared = 0.5f, .contained = 1, .asks_alike = true, .language = 'e'};
    struct verifier_view x = {.guard = &v, .cosine = 0.95, .alone = 1.5f};
    double z = -1 + 0.5 + 3 + 0.25 + 0.25 + 0.125;
    CHECK_NEAR(verifier_probability(vf, &x), sigmoid(z), 1e-6);
    v.fired = guard_bit("negation") | guard_bit("number");
    CHECK_NEAR(verifier_probability(vf, &x), sigmoid(z - 3), 1e-6);
    x.has_joint = true, x.joint = 2;
    CHECK_NEAR(verifier_probability(vf, &x), sigmoid(2), 1e-6);
    CHECK_NEAR(verifier_thresholds_of(vf, 'z')->hit, 0.8, 1e-9);
    verifier_free(vf);
}

TEST(what_is_no_number_is_no_hit)
{
    struct verifier *vf = make();
    REQUIRE(vf != NULL);
    struct guard_verdict v = {.language = 'z'};
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        struct verifier_view x = {.guard = &v, .cosine = 0.9, .alone = bad[i]};
        CHECK(verifier_probability(vf, &x) == 0);
        x = (struct verifier_view){.guard = &v, .cosine = (double)bad[i], .alone = 9};
        CHECK(verifier_probability(vf, &x) == 0);
        x = (struct verifier_view){
            .guard = &v, .cosine = 0.9, .alone = 9, .has_joint = true, .joint = bad[i]};
        CHECK(verifier_probability(vf, &x) == 0);
    }
    verifier_free(vf);
}

TEST(what_the_first_look_stops_stays_a_miss_whatever_the_second_says)
{
    struct verifier *vf = make();
    REQUIRE(vf != NULL);
    struct guard_verdict v = {.language = 'e'};
    struct verifier_view x = {
        .guard = &v, .cosine = 0.9, .alone = -0.5f, .has_joint = true, .joint = 9};
    CHECK(verifier_is_hopeless(vf, &x)); /* first look: 1 / (1 + e^2) = 0.12, asked for 0.2 */
    CHECK_NEAR(verifier_judge(vf, &x), sigmoid(-2), 1e-6);
    x.has_joint = false;
    CHECK(verifier_is_hopeless(vf, &x));
    CHECK_NEAR(verifier_judge(vf, &x), sigmoid(-2), 1e-6);
    x.alone = 0;
    CHECK(!verifier_is_hopeless(vf, &x));
    CHECK_NEAR(verifier_judge(vf, &x), sigmoid(-1), 1e-6);
    x.has_joint = true;
    CHECK_NEAR(verifier_judge(vf, &x), sigmoid(9), 1e-6);
    verifier_free(vf);
}

TEST(a_calibration_that_does_not_fit_is_refused_with_the_reason)
{
    struct verifier *vf;
    struct errmsg e = {0};
    struct buf text;
    CHECK_INT(verifier_new(&vf, (struct str){"", 0}, &e), ERR_UNSUPPORTED);
    CHECK(!vf);
    CHECK_INT(verifier_new(&vf, STR("{"), &e), ERR_CORRUPT);
    CHECK_INT(verifier_new(&vf, STR("{\"en\":{\"first\":0.1,\"alone\":1}}"), &e), ERR_CORRUPT);
    CHECK(strstr(e.text, "en: hit: must be a number"));
    write_calibration(&text, "\"bias\":1,\"cosine\":1,");
    CHECK_INT(verifier_new(&vf, buf_view(&text), &e), ERR_CORRUPT);
    CHECK(strstr(e.text, "looks[0]: alone"));
    buf_fini(&text);
    struct str all = {NULL, 0};
    write_calibration(&text, FIRST);
    all = buf_view(&text);
    char *cut = xstrndup(all.p, all.n);
    char *name = strstr(cut, "negation");
    REQUIRE(name != NULL);
    memcpy(name, "negatiom", 8); /* a guard this program does not have */
    CHECK_INT(verifier_new(&vf, (struct str){cut, all.n}, &e), ERR_CORRUPT);
    CHECK(strstr(e.text, "no guard \"negatiom\""));
    mem_free(cut);
    buf_fini(&text);
}

TEST(hard_guards_are_named)
{
    struct guard *g = guard_new();
    static const struct {
        const char *a, *b, *by; /* by NULL: no hard guard, whatever the soft ones say */
    } cases[] = {
        {"Can I send 5 kg?", "Can I send 7 kg?", "number"},
        {"Can I send 5 kg?", "May I send a parcel?", NULL},
        {"Is it open on Monday?", "Is it open on Tuesday?", "date"},
        {"Is it open on Monday?", "when are you open", NULL},
        {"How do I enable roaming?", "How do I disable roaming?", "antonym"},
        {"Transfer from savings to checking", "Transfer from checking to savings", "order"},
        {"What is error E17?", "What is error E71?", "identifier"},
        {"三个人的房间多少钱", "两个人的房间多少钱", "number"},
        {"怎么开通漫游", "怎么关闭漫游", "antonym"},
        {"信用卡丢了怎么办", "card lost what now", "script"},
        {"Do you fly to Norway?", "is chile one of ur destinations", "name"},
        {"Is hail excluded?", "Is hail in it?", "ruled_out"},
        {"明天开门吗", "后天开门吗", "relative_time"},
        {"信用卡丢了怎么办", "信用卡遗失如何处理", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct guard_verdict v;
        guard_check(g, str_of(cases[i].a), str_of(cases[i].b), &v);
        const char *by = verifier_refuses(&v, true);
        CHECK_AT(cases[i].by ? by && !strcmp(by, cases[i].by) : !by, "%s / %s: %s, not %s",
                 cases[i].a, cases[i].b, by ? by : "none", cases[i].by ? cases[i].by : "none");
        CHECK((v.hard & ~v.fired) == 0);
    }
    guard_free(g);
}

TEST(the_shipped_calibration_fits_this_program)
{
    struct gguf *g;
    struct errmsg e = {0};
    struct str text = {"", 0};
    struct verifier *vf;
    REQUIRE(gguf_from_bytes(&g, pair_weights().p, pair_weights().n, &e) == OK);
    if (gguf_str(g, "deja-pair.calibration", &text, &e) != OK) {
        gguf_close(g);
        SKIP("the weights come without a calibration");
    }
    CHECK_INT(verifier_new(&vf, text, &e), OK);
    for (const char *z = "ez"; vf && *z; z++) {
        const struct verifier_thresholds *t = verifier_thresholds_of(vf, *z);
        CHECK(t->first > 0 && t->first <= t->hit && t->hit < 1 && t->alone < 1);
    }
    verifier_free(vf);
    gguf_close(g);
}

TEST_MAIN()
