/* Goal: what a follower takes is what the leader's upstream said, byte for byte, whatever comes twice; after a gap, a refusal or silence
 * it forgets it and asks anew who leads. Method: a flight whose ticket nobody rides, messages by hand, a real redis-server in which
 * another gateway leads. */
#include "tests/unit/gateway/flight_fixture.h"

static const char HEAD[] = "200\ncontent-type:application/json\nx-a:b:c\n";
static const char NEXT_TOKEN[] = "000000000000000700000000000000aa";

#define OPEN(s)                                                                                    \
    struct sky s = {0};                                                                            \
    if (!fixture_server_exists()) SKIP("redis-server is not installed");                           \
    REQUIRE(sky_open(&s));                                                                         \
    sky_flight(&s, FLIGHT_FOLLOWS);                                                                \
    s.f->tries = 1;                                                                                \
    snprintf(s.f->leader, sizeof s.f->leader, "{deja}:flight:in:first");                           \
    another_leads(&s)

static void another_leads(struct sky *s)
{
    struct said set = {0};
    redis_commandf(s->gw.redis, PATIENCE_MS, sky_answered, &set,
                   "HSET %s token %s inbox {deja}:flight:in:second until 99999999999999",
                   s->f->lease, NEXT_TOKEN);
    CHECK(fixture_until(&s->redis, sky_is_answered, &set, PATIENCE_MS));
}

static void body(struct sky *s, uint64_t offset, const char *text)
{
    flight_follow_take(s->f, 'b', offset, str_of(text));
}

static void close_all(struct sky *s)
{
    if (s->t.flight) flight_leave(&s->t);
    fixture_run(&s->redis, 20);
    sky_close(s);
}

/* It has forgotten what it had, and follows the second leader, who knows. */
static void check_anew(struct sky *s)
{
    CHECK(fixture_until(&s->redis, sky_is_quiet, s, PATIENCE_MS));
    CHECK(s->f->role == FLIGHT_FOLLOWS && s->f->tries == 2 && !s->f->at && !s->f->head_seen);
    CHECK_INT(s->t.body.n, 0);
    CHECK_INT(s->t.status, 0);
    CHECK(!strcmp(s->f->leader, "{deja}:flight:in:second"));
    struct said second = sky_ask(s, "XRANGE %s - +", "{deja}:flight:in:second");
    CHECK(!strcmp(second.kinds, "j"));
    said_fini(&second);
    flight_follow_take(s->f, 'h', 0, STR("200\n"));
    body(s, 0, "anew");
    CHECK(str_eqz(buf_view(&s->t.body), "anew"));
}

TEST(bytes_arrive_once_whatever_was_sent_twice)
{
    OPEN(s);
    flight_follow_take(s.f, 'h', 0, str_of(HEAD));
    flight_follow_take(s.f, 'h', 0, str_of(HEAD));
    CHECK_INT(s.t.status, 200);
    CHECK(str_eqz(headers_find(&s.t.headers, "x-a"), "b:c"));
    CHECK_INT(s.t.headers.n, 2);
    body(&s, 0, "abc");
    body(&s, 0, "abc");
    body(&s, 1, "bcde");
    body(&s, 5, "f");
    body(&s, 2, "c");
    CHECK(str_eqz(buf_view(&s.t.body), "abcdef"));
    CHECK(s.f->at == 6 && !s.t.store);
    close_all(&s);
}

TEST(gap_makes_it_ask_anew_who_leads)
{
    OPEN(s);
    flight_follow_take(s.f, 'h', 0, str_of(HEAD));
    body(&s, 0, "abc");
    body(&s, 4, "e");
    check_anew(&s);
    close_all(&s);
}

TEST(leader_that_knows_no_such_flight_makes_it_ask_anew)
{
    OPEN(s);
    flight_follow_take(s.f, 'x', 0, STR(""));
    check_anew(&s);
    close_all(&s);
}

TEST(silence_makes_it_ask_anew_and_a_sign_of_life_does_not)
{
    OPEN(s);
    flight_follow_take(s.f, 'h', 0, str_of(HEAD));
    body(&s, 0, "abc");
    flight_follow_take(s.f, 'r', 0, STR(""));
    CHECK(s.f->at == 3 && s.f->tries == 1);
    flight_follow_timer(s.f);
    check_anew(&s);
    close_all(&s);
}

TEST(end_that_does_not_fit_what_came_is_not_believed)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } ends[] = {{2, "0 0 1"}, {3, "0 0"}, {3, "nonsense"}, {3, "0 0 0"}, {3, "0 -1 1"}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        OPEN(s);
        flight_follow_take(s.f, 'h', 0, str_of(HEAD));
        body(&s, 0, "abc");
        flight_follow_take(s.f, 'e', ends[i].bytes, str_of(ends[i].text));
        check_anew(&s);
        close_all(&s);
    }
}

TEST(heads_and_bytes_that_make_no_sense_are_a_loss)
{
    static const char *const heads[] = {"", "abc\n", "99\n", "123456789012\n"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        OPEN(s);
        flight_follow_take(s.f, 'h', 0, str_of(heads[i]));
        check_anew(&s);
        close_all(&s);
    }
    OPEN(s);
    body(&s, 0, "bytes before a head");
    check_anew(&s);
    close_all(&s);
}

TEST(who_leaves_tells_its_leader)
{
    OPEN(s);
    flight_leave(&s.t);
    fixture_run(&s.redis, 50);
    struct said first = sky_ask(&s, "XRANGE %s - +", "{deja}:flight:in:first");
    CHECK(!strcmp(first.kinds, "l") && !s.t.flight);
    said_fini(&first);
    sky_close(&s);
}

TEST_MAIN()
