/* Goal: shares follow weights, batch keeps its share and no more, deadlines order a tenant's own, bounds hold. Method: small situations,
 * a simulation of an overloaded server under a virtual clock, and random operations whose counts are kept twice. */
#include "base/mem.h"
#include "base/rng.h"
#include "gateway/fair_queue.h"
#include "tests/check.h"

#include <string.h>

static const struct fair_queue_options usual = {
    .items_max = 64, .batch_share = 0.1, .batch_most = 0.5, .batch_age_ms = 0};

static struct fair_item item(enum fair_class class, double cost, uint64_t deadline_ms)
{
    return (struct fair_item){.class = class, .cost = cost, .deadline_ms = deadline_ms};
}

static enum err put(struct fair_queue *q, struct fair_item *i, const char *tenant, double weight)
{
    struct fair_item *displaced;
    return fair_queue_put(q, i, str_of(tenant), weight, &displaced);
}

TEST(a_free_slot_is_taken_without_waiting_and_a_full_server_makes_wait)
{
    struct fair_queue *q = fair_queue_new(&usual);
    struct fair_item a = item(FAIR_ONLINE, 1, 100), b = a, c = a;
    CHECK(fair_queue_pass(q, &a, STR("t"), 1, 2));
    CHECK(fair_queue_pass(q, &b, STR("t"), 1, 2));
    CHECK(!fair_queue_pass(q, &c, STR("t"), 1, 2));
    CHECK_INT(put(q, &c, "t", 1), OK);
    CHECK(!fair_queue_next(q, 2, 0));
    fair_queue_done(q, &a, -1);
    CHECK(fair_queue_next(q, 2, 0) == &c);
    CHECK_INT(fair_queue_working(q, FAIR_ONLINE), 2);
    fair_queue_done(q, &b, -1);
    fair_queue_done(q, &c, -1);
    fair_queue_free(q);
}

TEST(a_newcomer_does_not_overtake_those_who_wait)
{
    struct fair_queue *q = fair_queue_new(&usual);
    struct fair_item a = item(FAIR_ONLINE, 1, 100), b = a;
    CHECK_INT(put(q, &a, "t", 1), OK);
    CHECK(!fair_queue_pass(q, &b, STR("u"), 1, 8));
    fair_queue_remove(q, &a);
    CHECK(fair_queue_pass(q, &b, STR("u"), 1, 8));
    fair_queue_done(q, &b, -1);
    fair_queue_free(q);
}

TEST(within_a_tenant_the_earliest_deadline_goes_first)
{
    struct fair_queue *q = fair_queue_new(&usual);
    struct fair_item a = item(FAIR_ONLINE, 1, 300), b = item(FAIR_ONLINE, 1, 100),
                     c = item(FAIR_ONLINE, 1, 200);
    CHECK_INT(put(q, &a, "t", 1) | put(q, &b, "t", 1) | put(q, &c, "t", 1), OK);
    CHECK_INT((int)fair_queue_deadline(q), 100);
    CHECK(fair_queue_next(q, 0, 0) == &b && fair_queue_next(q, 0, 0) == &c &&
          fair_queue_next(q, 0, 0) == &a);
    fair_queue_done(q, &a, -1), fair_queue_done(q, &b, -1), fair_queue_done(q, &c, -1);
    fair_queue_free(q);
}

TEST(whose_deadline_is_over_is_taken_out_and_nobody_else)
{
    struct fair_queue *q = fair_queue_new(&usual);
    struct fair_item a = item(FAIR_ONLINE, 1, 100), b = item(FAIR_BATCH, 1, 200);
    CHECK_INT(put(q, &a, "t", 1) | put(q, &b, "u", 1), OK);
    CHECK(!fair_queue_expired(q, 99));
    CHECK(fair_queue_expired(q, 100) == &a && !a.waiting);
    CHECK(!fair_queue_expired(q, 100));
    CHECK(fair_queue_expired(q, 500) == &b);
    CHECK(fair_queue_deadline(q) == UINT64_MAX);
    fair_queue_free(q);
}

TEST(a_full_queue_gives_a_place_to_the_tenant_with_less_than_its_part)
{
    struct fair_queue_options o = usual;
    o.items_max = 4;
    struct fair_queue *q = fair_queue_new(&o);
    struct fair_item flood[6], other = item(FAIR_ONLINE, 1, 100), *displaced;
    for (int i = 0; i < 6; i++)
        flood[i] = item(FAIR_ONLINE, 1, (uint64_t)(10 + i));
    for (int i = 0; i < 4; i++)
        CHECK_INT(put(q, &flood[i], "flood", 1), OK);
    CHECK_INT(put(q, &flood[4], "flood", 1), ERR_FULL);
    CHECK_INT(fair_queue_put(q, &other, STR("other"), 1, &displaced), OK);
    CHECK(displaced == &flood[3] && !flood[3].waiting);
    CHECK_INT(fair_queue_waiting(q, FAIR_ONLINE), 4);
    for (int i = 0; i < 3; i++)
        fair_queue_remove(q, &flood[i]);
    fair_queue_remove(q, &other);
    fair_queue_free(q);
}

TEST(batch_gets_its_share_first_and_the_rest_only_when_nobody_else_waits)
{
    struct fair_queue *q = fair_queue_new(&usual);
    struct fair_item b[8], o[8], *x;
    for (int i = 0; i < 8; i++) {
        b[i] = item(FAIR_BATCH, 1, 100);
        o[i] = item(FAIR_ONLINE, 1, 100);
        CHECK_INT(put(q, &b[i], "bulk", 1) | put(q, &o[i], "site", 1), OK);
    }
    x = fair_queue_next(q, 10, 0); /* a tenth of ten slots is one */
    CHECK_INT(x->class, FAIR_BATCH);
    for (int i = 0; i < 8; i++)
        CHECK_INT(fair_queue_next(q, 10, 0)->class, FAIR_ONLINE);
    CHECK_INT(fair_queue_next(q, 10, 0)->class, FAIR_BATCH); /* no online one waits */
    CHECK(!fair_queue_next(q, 10, 0));                       /* all slots taken */
    for (int i = 0; i < 8; i++)
        fair_queue_done(q, &o[i], -1);
    int more = 0;
    while (fair_queue_next(q, 10, 0))
        more++;
    CHECK_INT(more, 3); /* five of ten is its upper bound */
    for (int i = 0; i < 8; i++)
        if (b[i].tenant && !b[i].waiting)
            fair_queue_done(q, &b[i], -1);
        else
            fair_queue_remove(q, &b[i]);
    fair_queue_free(q);
}

TEST(batch_gets_its_part_and_no_more_however_few_the_slots)
{
    static const int slots_of[] = {1, 2, 3, 4, 9, 10, 15, 25, 40};
    enum { GRANTS = 2000, WAITING = 8, MOST = 40 };
    for (size_t k = 0; k < sizeof slots_of / sizeof *slots_of; k++) {
        struct fair_queue *q = fair_queue_new(&usual);
        struct fair_item items[2 * WAITING + MOST] = {0}, *unused[2 * WAITING + MOST],
                                             *working[MOST], *x;
        int n_unused = 0, n_working = 0, batch = 0, granted = 0;
        for (int i = 0; i < 2 * WAITING + MOST; i++)
            unused[n_unused++] = &items[i];
        while (granted < GRANTS) {
            for (int c = 0; c < N_FAIR_CLASSES; c++)
                while (fair_queue_waiting(q, (enum fair_class)c) < WAITING) {
                    x = unused[--n_unused];
                    *x = item((enum fair_class)c, 1, 1u << 30);
                    CHECK_INT(put(q, x, c == FAIR_BATCH ? "bulk" : "site", 1), OK);
                }
            x = fair_queue_next(q, slots_of[k], 0);
            if (x) {
                granted++;
                batch += x->class == FAIR_BATCH;
                working[n_working++] = x;
                continue;
            }
            x = working[0]; /* the one begun first ends first */
            memmove(working, working + 1, (size_t)--n_working * sizeof *working);
            fair_queue_done(q, x, -1);
            unused[n_unused++] = x;
        }
        CHECK_AT(batch >= 0.095 * GRANTS && batch <= 0.104 * GRANTS,
                 "%d slots: %d of %d grants went to batch", slots_of[k], batch, GRANTS);
        for (int i = 0; i < n_working; i++)
            fair_queue_done(q, working[i], -1);
        for (int i = 0; i < 2 * WAITING + MOST; i++)
            if (items[i].waiting) fair_queue_remove(q, &items[i]);
        fair_queue_free(q);
    }
}

TEST(old_batch_work_takes_every_fourth_online_grant)
{
    struct fair_queue_options o = usual;
    o.batch_age_ms = 1000;
    struct fair_queue *q = fair_queue_new(&o);
    struct fair_item b[4], n[12], first = item(FAIR_BATCH, 1, 1u << 30);
    CHECK(fair_queue_pass(q, &first, STR("bulk"), 1, 10)); /* its share is used */
    for (int i = 0; i < 4; i++) {
        b[i] = item(FAIR_BATCH, 1, 1u << 30);
        CHECK_INT(put(q, &b[i], "bulk", 1), OK);
    }
    for (int i = 0; i < 12; i++) {
        n[i] = item(FAIR_ONLINE, 1, 1u << 30);
        CHECK_INT(put(q, &n[i], "site", 1), OK);
    }
    int batch = 0;
    struct fair_item *got[8];
    for (int i = 0; i < 8; i++) {
        got[i] = fair_queue_next(q, 10, 5000);
        batch += got[i]->class == FAIR_BATCH;
    }
    CHECK_INT(batch, 2);
    for (int i = 0; i < 8; i++)
        fair_queue_done(q, got[i], -1);
    fair_queue_done(q, &first, -1);
    for (int i = 0; i < 12; i++)
        fair_queue_remove(q, &n[i]);
    for (int i = 0; i < 4; i++)
        fair_queue_remove(q, &b[i]);
    fair_queue_free(q);
}

/* --- an overloaded server */
enum { SLOTS = 8, LOAD = 4096 };
struct world {
    struct fair_queue *q;
    struct fair_item items[LOAD];
    int owner[LOAD], n;
    uint64_t ends[SLOTS];
    struct fair_item *at[SLOTS];
    double served[4];
};

static void arrive(struct world *w, int owner, enum fair_class class, double weight, uint64_t now)
{
    static const char *names[] = {"a", "b", "c", "bulk"};
    if (w->n == LOAD) return;
    struct fair_item *i = &w->items[w->n], *displaced;
    *i = item(class, 1, now + 200);
    i->arrived_ms = now;
    w->owner[w->n++] = owner;
    if (fair_queue_put(w->q, i, str_of(names[owner]), weight, &displaced) != OK)
        i->cost = 0; /* refused */
}

/* Tenants a, b, c of weight 1, 1, 2 bring twice what the server can, bulk brings as much batch work. Work takes 10 ms. */
static void overload(struct world *w, double true_cost_of_a)
{
    static const double weight[] = {1, 1, 2, 1};
    for (uint64_t now = 0; now < 1200; now++) {
        for (int s = 0; s < SLOTS; s++)
            if (w->at[s] && w->ends[s] <= now) {
                int owner = w->owner[w->at[s] - w->items];
                double cost = owner == 0 ? true_cost_of_a : 1;
                w->served[owner] += cost;
                fair_queue_done(w->q, w->at[s], cost);
                w->at[s] = NULL;
            }
        if (now % 2 == 0) /* 8 slots of 10 ms: 0.8 a ms; this brings 1.5 online */
            for (int o = 0; o < 3; o++)
                arrive(w, o, FAIR_ONLINE, weight[o], now);
        if (now % 2 == 0) arrive(w, 3, FAIR_BATCH, 1, now);
        while (fair_queue_expired(w->q, now)) {
        }
        for (int s = 0; s < SLOTS; s++)
            if (!w->at[s] && (w->at[s] = fair_queue_next(w->q, SLOTS, now))) w->ends[s] = now + 10;
    }
    for (int s = 0; s < SLOTS; s++)
        if (w->at[s]) fair_queue_done(w->q, w->at[s], -1);
    while (fair_queue_expired(w->q, UINT64_MAX - 1)) {
    }
}

TEST(twice_the_load_is_shared_by_weight_and_batch_keeps_its_share)
{
    struct world *w = xcalloc(1, sizeof *w);
    struct fair_queue_options o = usual;
    o.batch_share = 0.125; /* one of eight */
    w->q = fair_queue_new(&o);
    overload(w, 1);
    double online = w->served[0] + w->served[1] + w->served[2];
    /* c brings 0.5 a ms, 2/4 of the 0.7 that online gets are 0.35 */
    CHECK_NEAR(w->served[0] / online, 0.25, 0.02);
    CHECK_NEAR(w->served[1] / online, 0.25, 0.02);
    CHECK_NEAR(w->served[2] / online, 0.50, 0.02);
    CHECK_NEAR(w->served[3] / (online + w->served[3]), 0.125, 0.01);
    fair_queue_free(w->q);
    mem_free(w);
}

TEST(what_an_answer_really_cost_is_charged_to_its_tenant)
{
    struct world *w = xcalloc(1, sizeof *w);
    struct fair_queue_options o = usual;
    o.batch_share = 0.125;
    w->q = fair_queue_new(&o);
    overload(w, 4); /* a's answers are four times as long as it was thought */
    CHECK_NEAR(w->served[0] / (w->served[0] + w->served[1] + w->served[2]), 0.25, 0.03);
    fair_queue_free(w->q);
    mem_free(w);
}

TEST(a_newcomer_is_level_with_what_others_work_came_to_not_with_what_it_was_thought_to)
{
    struct fair_queue *q = fair_queue_new(&usual);
    struct fair_item old[3], fresh = item(FAIR_ONLINE, 1, 100);
    for (int i = 0; i < 3; i++) {
        old[i] = item(FAIR_ONLINE, 100, 100);
        CHECK(fair_queue_pass(q, &old[i], STR("old"), 1, 3));
    }
    CHECK_INT(put(q, &fresh, "new", 1), OK); /* level with old as it stands now: 300 */
    fair_queue_done(q, &old[0], 1);
    fair_queue_done(q, &old[1], 1);
    struct fair_item again = item(FAIR_ONLINE, 100, 100), later = item(FAIR_ONLINE, 1, 100);
    CHECK_INT(put(q, &later, "newest", 1) | put(q, &again, "old", 1), OK); /* both at 102 */
    CHECK(fair_queue_next(q, 9, 0) == &later && fair_queue_next(q, 9, 0) == &again);
    CHECK(fair_queue_next(q, 9, 0) == &fresh);
    fair_queue_done(q, &old[2], -1), fair_queue_done(q, &again, -1);
    fair_queue_done(q, &later, -1), fair_queue_done(q, &fresh, -1);
    fair_queue_free(q);
}

TEST(work_in_one_class_saves_nothing_up_in_the_other)
{
    struct fair_queue_options o = usual;
    o.batch_share = o.batch_most = 1;
    struct fair_queue *q = fair_queue_new(&o);
    struct fair_item mine[8], theirs[8], online = item(FAIR_ONLINE, 1, 100);
    CHECK(fair_queue_pass(q, &online, STR("a"), 1, 0)); /* a is at work, but not in batch */
    for (int i = 0; i < 8; i++) {
        theirs[i] = item(FAIR_BATCH, 10, 100);
        CHECK(fair_queue_pass(q, &theirs[i], STR("b"), 1, 0));
        if (i < 6) fair_queue_done(q, &theirs[i], -1);
    }
    struct fair_item more[4];
    for (int i = 0; i < 4; i++) {
        mine[i] = item(FAIR_BATCH, 10, 100);
        more[i] = mine[i];
        CHECK_INT(put(q, &mine[i], "a", 1) | put(q, &more[i], "b", 1), OK);
    }
    int of_a = 0;
    struct fair_item *got[4];
    for (int i = 0; i < 4; i++) {
        got[i] = fair_queue_next(q, 0, 0);
        of_a += got[i] >= mine && got[i] < mine + 4;
    }
    CHECK_INT(of_a, 2);
    for (int i = 0; i < 4; i++)
        fair_queue_done(q, got[i], -1);
    for (int i = 0; i < 4; i++) {
        if (!mine[i].tenant || !mine[i].waiting) continue;
        fair_queue_remove(q, &mine[i]);
    }
    for (int i = 0; i < 4; i++)
        if (more[i].waiting) fair_queue_remove(q, &more[i]);
    fair_queue_done(q, &theirs[6], -1), fair_queue_done(q, &theirs[7], -1);
    fair_queue_done(q, &online, -1);
    fair_queue_free(q);
}

TEST(random_operations_keep_counts_and_bounds)
{
    enum { N = 300, STEPS = 60000 };
    struct rng r;
    struct fair_queue_options o = {
        .items_max = 40, .batch_share = 0.2, .batch_most = 0.6, .batch_age_ms = 50};
    struct fair_queue *q = fair_queue_new(&o);
    struct fair_item *items = xcalloc(N, sizeof *items);
    uint8_t state[N] = {0}; /* 0 free, 1 waits, 2 works */
    rng_seed(&r, 20261130);
    for (int step = 0; step < STEPS; step++) {
        uint64_t now = (uint64_t)step;
        int i = (int)rng_below(&r, N), waits = 0, works = 0;
        char name[8];
        snprintf(name, sizeof name, "t%d", (int)rng_below(&r, 12));
        struct fair_item *got, *displaced = NULL;
        switch (rng_below(&r, 5)) {
        case 0:
            if (state[i]) break;
            items[i] = item((enum fair_class)rng_below(&r, 2), 1 + (double)rng_below(&r, 9),
                            now + rng_below(&r, 400));
            items[i].arrived_ms = now;
            if (fair_queue_put(q, &items[i], str_of(name), 1 + (double)rng_below(&r, 4),
                               &displaced) == OK)
                state[i] = 1;
            if (displaced) state[displaced - items] = 0;
            break;
        case 1:
            got = fair_queue_next(q, 20, now);
            if (!got) break;
            CHECK_INT(state[got - items], 1);
            state[got - items] = 2;
            break;
        case 2:
            if (state[i] != 2) break;
            fair_queue_done(q, &items[i], (double)rng_below(&r, 20) - 1);
            state[i] = 0;
            break;
        case 3:
            if (state[i] == 2) break;
            fair_queue_remove(q, &items[i]);
            state[i] = 0;
            break;
        default:
            while ((got = fair_queue_expired(q, now))) {
                CHECK(got->deadline_ms <= now);
                state[got - items] = 0;
            }
        }
        for (int k = 0; k < N; k++)
            waits += state[k] == 1, works += state[k] == 2;
        CHECK_INT(fair_queue_waiting(q, FAIR_ONLINE) + fair_queue_waiting(q, FAIR_BATCH), waits);
        CHECK_INT(fair_queue_working(q, FAIR_ONLINE) + fair_queue_working(q, FAIR_BATCH), works);
        CHECK(waits <= o.items_max && works <= 20);
    }
    for (int i = 0; i < N; i++)
        if (state[i] == 2)
            fair_queue_done(q, &items[i], -1);
        else
            fair_queue_remove(q, &items[i]);
    fair_queue_free(q);
    mem_free(items);
}

TEST(more_tenants_than_places_are_refused_while_all_have_work_and_taken_afterwards)
{
    struct fair_queue_options o = usual;
    o.items_max = 4 * FAIR_TENANTS_MAX;
    struct fair_queue *q = fair_queue_new(&o);
    struct fair_item *items = xcalloc(FAIR_TENANTS_MAX, sizeof *items),
                     more = item(FAIR_ONLINE, 1, 10);
    for (int i = 0; i < FAIR_TENANTS_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        items[i] = item(FAIR_ONLINE, 1, 10);
        CHECK_INT(put(q, &items[i], name, 1), OK);
    }
    CHECK_INT(put(q, &more, "late", 1), ERR_FULL);
    fair_queue_remove(q, &items[7]);
    CHECK_INT(put(q, &more, "late", 1), OK);
    fair_queue_remove(q, &more);
    for (int i = 0; i < FAIR_TENANTS_MAX; i++)
        fair_queue_remove(q, &items[i]);
    fair_queue_free(q);
    mem_free(items);
}

TEST(the_wait_is_estimated_from_those_ahead_by_weight)
{
    struct fair_queue *q = fair_queue_new(&usual);
    struct fair_item i[6];
    for (int k = 0; k < 6; k++) {
        i[k] = item(FAIR_ONLINE, 1, 100);
        CHECK_INT(put(q, &i[k], "busy", 1), OK);
    }
    CHECK_NEAR(fair_queue_ahead(q, FAIR_ONLINE, STR("busy"), 1), 6, 1e-9);
    CHECK_NEAR(fair_queue_ahead(q, FAIR_ONLINE, STR("new"), 1), 1, 1e-9);
    CHECK_NEAR(fair_queue_ahead(q, FAIR_ONLINE, STR("new"), 0.25), 4, 1e-9);
    for (int k = 0; k < 6; k++)
        fair_queue_remove(q, &i[k]);
    fair_queue_free(q);
}

TEST_MAIN()
