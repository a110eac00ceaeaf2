/* test_limit_wire.c - goal: a plan becomes the arguments lua/limits.lua reads, and only an answer of its form is a verdict. Method: tables;
 * every answer that is cut, of another type or out of range is refused. */
#include "gateway/limit_wire.h"

#include "tests/check.h"

static struct limit_plan two(void)
{
    struct limit_plan p = {.n = 2};
    snprintf(p.buckets[0].name, sizeof p.buckets[0].name, "tenant:a");
    snprintf(p.buckets[1].name, sizeof p.buckets[1].name, "all/model:org/m");
    p.buckets[0].limit[LIMIT_TOKENS_MIN] = 1e12;
    p.buckets[0].limit[LIMIT_BUDGET_DAY] = 12.25;
    p.buckets[1].shadow = true;
    p.buckets[1].limit[LIMIT_CONCURRENCY] = 4;
    return p;
}

static void joined(const struct limit_args *a, char *out, size_t cap)
{
    size_t n = 0;
    for (int i = 0; i < a->n; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s" STR_FMT, i ? " " : "", STR_ARG(a->v[i]));
}

TEST(a_plan_becomes_the_arguments_of_the_function)
{
    struct limit_plan p = two();
    struct limit_args a;
    char text[512];
    limit_wire_reserve(&a, "{x}:config", "id1", false, 15000, &p, (struct limit_amounts){120, 0.5});
    joined(&a, text, sizeof text);
    CHECK_Z(text, "FCALL deja_limit 1 {x}:config reserve id1 - 15000 120 0.5 2 "
                  "tenant:a 0 0 0 1000000000000 0 0 12.25 0 all/model:org/m 1 0 0 0 0 4 0 0");
    limit_wire_reserve(&a, "{x}:config", "id1", true, 15000, &p, (struct limit_amounts){0, 0});
    CHECK(str_eqz(a.v[6], "force"));
    limit_wire_settle(&a, "{x}:config", "id2", (struct limit_amounts){7, 0.125}, 3);
    joined(&a, text, sizeof text);
    CHECK_Z(text, "FCALL deja_limit 1 {x}:config settle id2 7 0.125 3");
}

TEST(the_largest_plan_fits)
{
    struct limit_plan p = two();
    struct limit_args a;
    p.n = LIMIT_BUCKETS_MAX;
    limit_wire_reserve(&a, "k", "i", false, 600000, &p, (struct limit_amounts){1e15, 1e-9});
    CHECK(a.n <= LIMIT_ARGS_MAX);
}

static struct redis_reply items[15];

static struct redis_reply answer(const int64_t *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        items[i] = (struct redis_reply){.kind = REDIS_INTEGER, .integer = v[i]};
    return (struct redis_reply){.kind = REDIS_ARRAY, .items = items, .n_items = n};
}

TEST(an_answer_becomes_a_verdict)
{
    static const int64_t refused[] = {0,  3,  2,    990, 1500,  0,  0,      -1,
                                      -1, -1, 1000, 10,  59000, -1, 4500000};
    struct limit_verdict v;
    double left[2];
    struct redis_reply r = answer(refused, 15);
    REQUIRE(limit_wire_read(&r, 2, &v, left));
    CHECK(!v.allowed && v.kind == LIMIT_TOKENS_MIN && v.bucket == 1 && v.used == 990 &&
          v.retry_ms == 1500);
    CHECK(v.shadow_kind == -1 && v.shadow_bucket == -1 && v.requests.limit == -1);
    CHECK(v.tokens.limit == 1000 && v.tokens.left == 10 && v.tokens.full_ms == 59000);
    CHECK(left[0] == -1 && left[1] == 4.5);
    static const int64_t shadow[] = {1, 0, 0, 0, 0, 5, 1, 3, 2, 20000, -1, -1, -1, -1, -1};
    r = answer(shadow, 15);
    REQUIRE(limit_wire_read(&r, 2, &v, left));
    CHECK(v.allowed && v.kind == -1 && v.shadow_kind == LIMIT_CONCURRENCY && v.shadow_bucket == 0 &&
          v.requests.left == 2);
}

TEST(an_answer_of_another_form_is_none)
{
    static const int64_t good[] = {0,  3,  2,    990, 1500,  0,  0,      -1,
                                   -1, -1, 1000, 10,  59000, -1, 4500000};
    static const struct {
        size_t at;
        int64_t value;
    } wrong[] = {{1, 8}, {1, -1}, {1, 0}, {2, 3}, {2, 0}, {5, 9}, {5, 1}, {6, 1}};
    struct limit_verdict v;
    double left[2];
    for (size_t n = 0; n < 15; n++) {
        struct redis_reply r = answer(good, n);
        CHECK(!limit_wire_read(&r, 2, &v, left));
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct redis_reply r = answer(good, 15);
        items[wrong[i].at].integer = wrong[i].value;
        CHECK_AT(!limit_wire_read(&r, 2, &v, left), "row %zu", i);
    }
    struct redis_reply r = answer(good, 15);
    items[4].kind = REDIS_STRING;
    CHECK(!limit_wire_read(&r, 2, &v, left));
    struct redis_reply error = {.kind = REDIS_ERROR, .text = STR("ERR Function not found")};
    CHECK(!limit_wire_read(&error, 2, &v, left) && !limit_wire_read(NULL, 2, &v, left));
}

TEST_MAIN()
