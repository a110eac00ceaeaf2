/* test_chain.c - goal: each step refuses what it is there for, names itself, and can be switched off; the order of what passes is right.
 * Method: one candidate spoilt in one way a row, hand-made pictures. */
#include "cache/chain.h"

#include <math.h>

#include "tests/check.h"

static struct guard *guard;

struct picture {
    struct question own, said;
    struct chain_item item;
};

static void paint(struct picture *p, const char *stored, double cosine)
{
    *p = (struct picture){
        .own = {.id = {1, 1}, .entry = {1, 1}, .trust = 1, .text = str_of(stored)}};
    p->item.c = (struct candidate){&p->own, &p->own, cosine, -1, -1, 1};
}

static struct chain_rules rules(const struct cache_knobs *k)
{
    static const struct policy e5 = {0.80,       {0.945, 0.945},         {false, false},
                                     {0.9, 0.9}, {{0, 1, 0}, {0, 1, 0}}, {0, 0}};
    struct chain_rules r = {.guard = guard, .knobs = k, .policy = policy_with(&e5, k)};
    r.policy.verifier[0] = r.policy.verifier[1] = 0.9;
    return r;
}

static const char *run(const struct cache_knobs *k, struct picture *p, const char *question,
                       double verifier)
{
    struct chain_rules r = rules(k);
    size_t order[1];
    if (chain_screen(&r, str_of(question), &p->item, 1)) p->item.verifier = verifier;
    size_t hits = chain_settle(&r, &p->item, 1, order);
    CHECK_INT(hits, p->item.hit);
    CHECK(!p->item.open);
    return p->item.reason;
}

TEST(a_verifier_outweighs_soft_guards_and_never_hard_ones)
{
    static const struct {
        const char *stored, *question;
        double verifier;
        const char *reason;
    } rows[] = {
        {"How do I reset my password?", "How do I change my password?", 0.95, "semantic:verifier"},
        {"How do I reset my password?", "How do I change my password?", 0.85, "verifier"},
        {"How do I reset my password?", "How do I change my password?", -1, "guard:replaced_word"},
        {"Can I send 5 kg?", "Can I send 7 kg?", 0.99, "guard:number"},
        {"How do I enable roaming?", "How do I disable roaming?", 0.99, "guard:antonym"},
        {"怎么开通漫游", "怎么关闭漫游", 0.99, "guard:antonym"},
    };
    struct cache_knobs k = knobs_default();
    guard = guard_new();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct picture p;
        struct chain_rules r = rules(&k);
        size_t order[1];
        r.has_verifier = true;
        paint(&p, rows[i].stored, 0.93);
        if (chain_screen(&r, str_of(rows[i].question), &p.item, 1))
            p.item.verifier = rows[i].verifier;
        (void)chain_settle(&r, &p.item, 1, order);
        CHECK_Z(p.item.reason, rows[i].reason);
    }
    guard_free(guard);
}

TEST(a_namespace_may_weigh_the_verifier_anew_and_what_is_refused_for_likeness_alone)
{
    const char *stored = "How do I reset my home router's password?",
               *added = "How do I reset my router's password?";
    struct cache_knobs k = knobs_default();
    struct picture p;
    size_t order[1];
    guard = guard_new();
    for (int i = 0; i < 5; i++) {
        static const double cosines[] = {0.97, 0.97, 0.97, 0.93, 0.99};
        static const char *const reasons[] = {"guard:added_word", "verifier", "semantic:verifier",
                                              "verifier", "guard:number"};
        k.likeness_refuses = i < 1;
        k.verifier_cosine_en = i < 2 ? 0 : 0.5; /* 0.5 * 7 on the logit: 0.5 becomes 0.97 */
        struct chain_rules r = rules(&k);
        r.has_verifier = true;
        paint(&p, i < 4 ? stored : "Can I send 5 kg of tea?", cosines[i]);
        if (chain_screen(&r, str_of(i < 4 ? added : "Can I send 7 kg of tea?"), &p.item, 1))
            p.item.verifier = 0.5;
        (void)chain_settle(&r, &p.item, 1, order);
        CHECK_Z(p.item.reason, reasons[i]);
        if (i == 2) CHECK_NEAR(p.item.verifier, 1 / (1 + exp(-3.5)), 1e-9);
    }
    paint(&p, "How do I stop receiving the newsletter?", 0.99);
    struct chain_rules r = rules(&k);
    r.has_verifier = true;
    if (chain_screen(&r, STR("How do I stop not receiving the newsletter?"), &p.item, 1))
        p.item.verifier = 0.99;
    (void)chain_settle(&r, &p.item, 1, order);
    CHECK_Z(p.item.reason, "guard:negation");
    guard_free(guard);
}

TEST(each_step_refuses_and_names_itself)
{
    const char *stored = "How do I reset my password?", *reworded = "I cannot get in, what now?";
    struct cache_knobs k = knobs_default();
    struct picture p;
    guard = guard_new();
    paint(&p, stored, 0.70);
    CHECK_Z(run(&k, &p, reworded, -1), "below_floor");
    CHECK_INT(p.item.step, CHAIN_TOPIC);
    paint(&p, stored, 0.96), p.item.set_aside = true;
    CHECK_Z(run(&k, &p, reworded, 0.99), "quarantined");
    CHECK_INT(p.item.step, CHAIN_TRUST);
    paint(&p, stored, 0.96), p.item.c.veto = 0.97;
    CHECK_Z(run(&k, &p, reworded, -1), "veto");
    paint(&p, stored, 0.96), p.item.text_vetoed = true;
    CHECK_Z(run(&k, &p, reworded, -1), "veto");
    paint(&p, stored, 0.96), p.item.c.veto = 0.90; /* farther than the wording itself */
    CHECK(strcmp(run(&k, &p, reworded, -1), "veto"));
    k.trust_min = 5;
    paint(&p, stored, 0.96);
    CHECK_Z(run(&k, &p, reworded, -1), "untrusted");
    k.trust_min = 0;
    paint(&p, stored, 0.99);
    CHECK_Z(run(&k, &p, "How do I reset my 2 passwords?", -1), "guard:number");
    CHECK_INT(p.item.step, CHAIN_GUARDS);
    paint(&p, "Where can I see what I ordered", 0.90);
    CHECK_Z(run(&k, &p, "Show me the history of purchases", -1), "below_threshold");
    CHECK_INT(p.item.step, CHAIN_POLICY);
    paint(&p, "Where can I see what I ordered", 0.90);
    CHECK_Z(run(&k, &p, "Show me the history of purchases", 0.5), "verifier");
    CHECK_INT(p.item.step, CHAIN_VERIFIER);
    k.rival_margin = 0.02;
    paint(&p, "Where can I see what I ordered", 0.90), p.item.c.rival = 0.89;
    CHECK_Z(run(&k, &p, "Show me the history of purchases", 0.95), "rival");
    CHECK_INT(p.item.step, CHAIN_RIVAL);
    guard_free(guard);
}

TEST(what_passes_says_why)
{
    struct cache_knobs k = knobs_default();
    struct picture p;
    guard = guard_new();
    paint(&p, "How do I reset my password?", 0.85);
    CHECK_Z(run(&k, &p, "how can i reset my password please", -1), "semantic:same");
    paint(&p, "How do I reset my password?", 0.85), p.own.judged = true;
    CHECK_Z(run(&k, &p, "how can i reset my password please", -1), "semantic:wording");
    paint(&p, "Where can I see what I ordered", 0.96);
    CHECK_Z(run(&k, &p, "Show me the history of purchases", -1), "semantic:policy");
    paint(&p, "Where can I see what I ordered", 0.90);
    CHECK_Z(run(&k, &p, "Show me the history of purchases", 0.95), "semantic:verifier");
    guard_free(guard);
}

TEST(steps_can_be_switched_off)
{
    struct cache_knobs k = knobs_default();
    struct picture p;
    struct errmsg e = {0};
    guard = guard_new();
    k.vetoes = false;
    paint(&p, "Where can I see what I ordered", 0.96), p.item.text_vetoed = true;
    CHECK_Z(run(&k, &p, "Show me the history of purchases", -1), "semantic:policy");
    k.mode = KNOB_MODE_BOUND;
    paint(&p, "How do I reset my password?", 0.85);
    CHECK_Z(run(&k, &p, "how can i reset my password please", -1), "bound:learning");
    k.mode = KNOB_MODE_THRESHOLD;
    paint(&p, "How do I reset my password?", 0.85);
    CHECK_Z(run(&k, &p, "how can i reset my password please", -1), "semantic:same");
    k.same_words = false;
    paint(&p, "How do I reset my password?", 0.85);
    CHECK_Z(run(&k, &p, "how can i reset my password please", -1), "below_threshold");
    k.verifier = false;
    paint(&p, "Where can I see what I ordered", 0.96);
    CHECK_Z(run(&k, &p, "Show me the history of purchases", 0.1), "semantic:policy");
    REQUIRE(knobs_set(&k, STR("guard_number"), STR("no"), &e) == OK);
    paint(&p, "How do I pay 5 euros?", 0.96);
    CHECK_AT(strcmp(run(&k, &p, "How do I pay 6 euros?", -1), "guard:number"), "%s", p.item.reason);
    guard_free(guard);
}

TEST(in_mode_bound_what_was_learnt_decides)
{
    struct cache_knobs k = knobs_default();
    struct bounds *learnt = bounds_new();
    struct chain_rules r;
    struct picture p;
    size_t order[1];
    struct str q = STR("Show me the history of purchases");
    guard = guard_new();
    k.mode = KNOB_MODE_BOUND;
    k.max_error = 0.05;
    r = rules(&k);
    r.bounds = learnt, r.ns = STR("shop");
    paint(&p, "Where can I see what I ordered", 0.97);
    (void)chain_screen(&r, q, &p.item, 1);
    CHECK_INT(chain_settle(&r, &p.item, 1, order), 0);
    CHECK_Z(p.item.reason, "bound:learning");
    struct evidence e = {.entry = {1, 1}, .ns = STR("shop"), .weight = 1};
    for (int i = 0; i < 400; i++) { /* near ones are right, farther ones wrong */
        e.right = i % 2;
        e.v = (struct bound_view){e.right ? 0.97 : 0.86, 0.80, -1, 1, -1, false};
        e.entry.lo = (uint64_t)i + 10;
        bounds_learn(learnt, &e);
    }
    for (int near = 0; near < 2; near++) {
        paint(&p, "Where can I see what I ordered", near ? 0.97 : 0.86);
        p.item.c.agree = 1;
        (void)chain_screen(&r, q, &p.item, 1);
        CHECK_INT(chain_settle(&r, &p.item, 1, order), near);
        CHECK_Z(p.item.reason, near ? "semantic:bound" : "bound:error");
        CHECK(p.item.error > 0 && p.item.threshold > 0);
    }
    r.client_min = 0.98;
    paint(&p, "Where can I see what I ordered", 0.97);
    (void)chain_screen(&r, q, &p.item, 1);
    CHECK_INT(chain_settle(&r, &p.item, 1, order), 0);
    r.client_min = 0, r.ns = STR("elsewhere"); /* another namespace has learnt nothing */
    paint(&p, "Where can I see what I ordered", 0.97);
    (void)chain_screen(&r, q, &p.item, 1);
    (void)chain_settle(&r, &p.item, 1, order);
    CHECK_Z(p.item.reason, "bound:learning");
    bounds_free(learnt);
    guard_free(guard);
}

TEST(only_so_many_are_shown_to_the_verifier_and_the_best_comes_first)
{
    enum { N = 6 };
    struct cache_knobs k = knobs_default();
    struct question own[N];
    struct chain_item items[N] = {0};
    size_t order[N];
    static const char *const texts[N] = {
        "Where can I see what I ordered", "Is there a list of my orders",
        "Where are old receipts",         "Can I look at earlier deliveries",
        "Is shopping recorded somewhere", "Where do I find my orders"};
    guard = guard_new();
    struct chain_rules r = rules(&k);
    for (int i = 0; i < N; i++) {
        own[i] = (struct question){.id = {(uint64_t)i, 1}, .trust = 1, .text = str_of(texts[i])};
        items[i].c = (struct candidate){&own[i], &own[i], 0.95 - i / 1000.0, -1, -1, 1};
    }
    struct str q = STR("Show me the history of purchases");
    size_t open = chain_screen(&r, q, items, N);
    CHECK(open <= (size_t)k.verify_top && open > 1);
    int places = 0, last = -1;
    for (int i = 0; i < N; i++) {
        if (items[i].open) items[i].verifier = 0.90 + i / 100.0, last = i;
        places += items[i].step == CHAIN_PLACES && !items[i].open && !items[i].hit;
    }
    size_t hits = chain_settle(&r, items, N, order);
    CHECK_INT(hits, open);
    CHECK_INT(order[0], last); /* the surest, not the nearest */
    CHECK_AT(places > 0, "nobody was turned away");
    guard_free(guard);
}

TEST_MAIN()
