/* test_bounds.c - goal: namespaces and entries are learnt of apart, the same evidence in the same order gives the same model, the bounds
 * hold, and evidence survives its written form. */
#include "cache/bounds.h"

#include "base/rng.h"
#include "tests/check.h"

static struct evidence piece(struct rng *r)
{
    static const char *const spaces[] = {"", "shop", "bank"};
    struct evidence e = {.entry = {7, rng_below(r, 50)},
                         .ns = str_of(spaces[rng_below(r, 3)]),
                         .right = rng_below(r, 3) > 0,
                         .weight = 1};
    e.v = (struct bound_view){0.8 + rng_f64(r) / 5,
                              0.8,
                              rng_below(r, 2) ? 0.9 : -1,
                              rng_f64(r),
                              rng_below(r, 2) ? rng_f64(r) : -1,
                              rng_below(r, 2)};
    return e;
}

TEST(the_same_evidence_in_the_same_order_gives_the_same_model)
{
    struct bounds *a = bounds_new(), *b = bounds_new();
    struct rng r;
    rng_seed(&r, 3);
    CHECK(!bounds_of(a, STR("shop")) && !bounds_record(a, (struct hash128){7, 1}));
    for (int i = 0; i < 3000; i++) {
        struct evidence e = piece(&r), back;
        struct str names[EVIDENCE_FIELDS], values[EVIDENCE_FIELDS], fields[2 * EVIDENCE_FIELDS + 2];
        char texts[EVIDENCE_TEXT_BYTES];
        evidence_write(&e, names, values, texts);
        fields[0] = STR("op"), fields[1] = STR("evidence");
        for (int k = 0; k < EVIDENCE_FIELDS; k++)
            fields[2 * k + 2] = names[k], fields[2 * k + 3] = values[k];
        REQUIRE(evidence_read(fields, 2 * EVIDENCE_FIELDS + 2, &back) == OK);
        CHECK(hash_eq(back.entry, e.entry) && str_eq(back.ns, e.ns) && back.right == e.right);
        CHECK_NEAR(back.v.cosine, e.v.cosine, 1e-5);
        bounds_learn(a, &back);
        bounds_learn(b, &back);
    }
    struct bound_view v = {0.95, 0.8, 0.9, 0.5, -1, false};
    for (uint64_t n = 0; n < 50; n++) {
        struct hash128 entry = {7, n};
        const struct bound_record *ra = bounds_record(a, entry), *rb = bounds_record(b, entry);
        REQUIRE(ra && rb);
        CHECK_NEAR(bound_error(bounds_of(a, STR("shop")), &v, ra),
                   bound_error(bounds_of(b, STR("shop")), &v, rb), 0);
    }
    CHECK(bounds_of(a, STR("shop"))->n > 800 && bounds_of(a, STR("shop"))->n < 1200);
    CHECK(!bounds_of(a, STR("other")));
    bounds_clear(a);
    CHECK(!bounds_of(a, STR("shop")));
    bounds_free(a);
    bounds_free(b);
}

TEST(the_tables_keep_to_their_size_and_forget_the_oldest)
{
    struct bounds *b = bounds_new();
    struct evidence e = {.weight = 1, .right = true, .v = {0.9, 0.8, -1, 1, -1, false}};
    char name[32];
    for (int i = 0; i < BOUNDS_NAMESPACES_MAX + 5; i++) {
        snprintf(name, sizeof name, "ns%d", i);
        e.ns = str_of(name);
        bounds_learn(b, &e);
    }
    CHECK(!bounds_of(b, STR("ns0")) && bounds_of(b, STR("ns60")));
    e.ns = STR("");
    for (uint64_t i = 1; i <= 3 * BOUNDS_ENTRIES_MAX; i++) {
        e.entry = (struct hash128){i * 0x9e3779b97f4a7c15u, i};
        bounds_learn(b, &e);
    }
    CHECK(bounds_record(b, e.entry) != NULL);
    bounds_free(b);
}

TEST(malformed_evidence_is_refused)
{
    static const struct {
        const char *name, *value;
    } cases[] = {{"entry", "xyz"}, {"right", "2"},  {"right", ""},     {"weight", "-1"},
                 {"weight", "2"},  {"cosine", "5"}, {"cosine", "nan"}, {"agree", "-0.1"},
                 {"verifier", ""}, {"zh", "x"},     {"rival", "9"},    {"floor", "inf"}};
    struct rng r;
    rng_seed(&r, 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct evidence e = piece(&r), back;
        struct str names[EVIDENCE_FIELDS], values[EVIDENCE_FIELDS], fields[2 * EVIDENCE_FIELDS];
        char texts[EVIDENCE_TEXT_BYTES];
        evidence_write(&e, names, values, texts);
        for (int k = 0; k < EVIDENCE_FIELDS; k++) {
            fields[2 * k] = names[k], fields[2 * k + 1] = values[k];
            if (str_eqz(names[k], cases[i].name)) fields[2 * k + 1] = str_of(cases[i].value);
        }
        CHECK_AT(evidence_read(fields, 2 * EVIDENCE_FIELDS, &back) == ERR_CORRUPT, "%s=%s",
                 cases[i].name, cases[i].value);
        CHECK_INT(evidence_read(fields, 2 * EVIDENCE_FIELDS - 2, &back), ERR_CORRUPT);
    }
}

TEST_MAIN()
