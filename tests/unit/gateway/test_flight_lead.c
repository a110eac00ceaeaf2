/* Goal: what a leader's call brings reaches each gateway that follows whole, in order and once, whenever it joins; who leaves, comes too
 * late or falls behind is let go. Method: a flight without an upstream, a real redis-server; what a follower's inbox holds is read back. */
#include "tests/unit/gateway/flight_fixture.h"

static const char A[] = "{deja}:flight:in:a", B[] = "{deja}:flight:in:b";

#define OPEN(s)                                                                                    \
    struct sky s = {0};                                                                            \
    if (!fixture_server_exists()) SKIP("redis-server is not installed");                           \
    REQUIRE(sky_open(&s));                                                                         \
    sky_flight(&s, FLIGHT_LEADS)

static void head(struct sky *s)
{
    struct http_header h = {STR("content-type"), STR("application/json")};
    flight_head(&s->t, &(struct http_reply_head){.status = 200, .headers = &h, .n_headers = 1});
}

static void bytes(struct sky *s, size_t n)
{
    char *some = xmalloc(n);
    for (size_t i = 0; i < n; i++)
        some[i] = (char)('a' + (i * 7 + n) % 26);
    flight_body(&s->t, (struct str){some, n});
    mem_free(some);
}

static void done(struct sky *s)
{
    flight_done(&s->t, OK, FAULT_NONE, true);
}

TEST(follower_that_joins_before_the_head_gets_everything_in_order)
{
    OPEN(s);
    flight_lead_take(s.f, 'j', str_of(A));
    CHECK(flight_followed(&s.t));
    head(&s);
    for (size_t i = 1; i <= 40; i++)
        bytes(&s, i * 97);
    memcpy(s.t.entry, "e", 2); /* stored: it stays for a while */
    done(&s);
    CHECK(!s.t.flight);
    struct said a = sky_heard(&s, A);
    CHECK(a.kinds[0] == 'h' && a.kinds[strlen(a.kinds) - 1] == 'e' && !a.gap);
    CHECK_INT(a.body.n, 97 * 40 * 41 / 2);
    CHECK_INT(a.end, a.body.n);
    said_fini(&a);
    sky_close(&s);
}

TEST(follower_that_joins_late_gets_the_same_from_the_first_byte_on)
{
    OPEN(s);
    head(&s);
    bytes(&s, 1000);
    flight_lead_take(s.f, 'j', str_of(A));
    bytes(&s, 100000);
    flight_lead_take(s.f, 'j', str_of(B));
    memcpy(s.t.entry, "e", 2);
    done(&s);
    flight_lead_take(s.f, 'j', str_of("{deja}:flight:in:c")); /* after the end of a stored answer */
    struct said a = sky_heard(&s, A), b = sky_heard(&s, B), c = sky_heard(&s, "{deja}:flight:in:c");
    CHECK(a.body.n == 101000 && !a.gap && a.end == a.body.n);
    CHECK(str_eq(buf_view(&a.body), buf_view(&b.body)));
    CHECK(str_eq(buf_view(&a.body), buf_view(&c.body)));
    said_fini(&a), said_fini(&b), said_fini(&c);
    sky_close(&s);
}

TEST(who_leaves_gets_no_more_and_the_other_one_all)
{
    OPEN(s);
    flight_lead_take(s.f, 'j', str_of(A));
    flight_lead_take(s.f, 'j', str_of(B));
    head(&s);
    bytes(&s, 500);
    struct said before = sky_heard(&s, A);
    flight_lead_take(s.f, 'l', str_of(A));
    CHECK(flight_followed(&s.t));
    bytes(&s, 500);
    memcpy(s.t.entry, "e", 2);
    done(&s);
    struct said a = sky_heard(&s, A), b = sky_heard(&s, B);
    CHECK_INT(a.body.n, before.body.n);
    CHECK(!strchr(a.kinds, 'e'));
    CHECK(b.body.n == 1000 && b.end == 1000);
    said_fini(&before), said_fini(&a), said_fini(&b);
    sky_close(&s);
}

TEST(nobody_joins_a_long_answer_any_more_and_those_who_follow_get_it_whole)
{
    OPEN(s);
    flight_lead_take(s.f, 'j', str_of(A));
    head(&s);
    for (int i = 0; i < 30; i++) {
        bytes(&s, 100000);
        struct said so_far = sky_heard(&s, A);
        said_fini(&so_far);
    }
    flight_lead_take(s.f, 'j', str_of(B));
    CHECK(s.f->closed && s.f->base > 0 && s.f->log.n < 2 << 20);
    bytes(&s, 100000);
    struct said b = sky_heard(&s, B), a = sky_heard(&s, A);
    CHECK(!strcmp(b.kinds, "x"));
    CHECK(a.body.n == 3100000 && !a.gap);
    CHECK(s.t.flight == s.f);
    said_fini(&a), said_fini(&b);
    sky_close(&s);
}

TEST(follower_that_comes_again_gets_all_of_it_again)
{
    OPEN(s);
    flight_lead_take(s.f, 'j', str_of(A));
    head(&s);
    bytes(&s, 700);
    struct said first = sky_heard(&s, A);
    struct said gone = sky_ask(&s, "DEL %s", A);
    flight_lead_take(s.f, 'j', str_of(A));
    CHECK_INT(s.f->n_peers, 1);
    struct said again = sky_heard(&s, A);
    CHECK(first.body.n == 700 && again.body.n == 700 && again.kinds[0] == 'h');
    said_fini(&first), said_fini(&gone), said_fini(&again);
    sky_close(&s);
}

TEST(silent_call_says_at_each_beat_that_it_is_at_work)
{
    OPEN(s);
    flight_lead_take(s.f, 'j', str_of(A));
    flight_lead_timer(s.f);
    flight_lead_timer(s.f);
    struct said a = sky_heard(&s, A), lease = sky_ask(&s, "EXISTS %s", s.f->lease);
    CHECK(!strcmp(a.kinds, "rr"));
    CHECK_INT(lease.n, 0); /* another one may lead by now: a beat only prolongs what is ours */
    said_fini(&a), said_fini(&lease);
    sky_close(&s);
}

TEST_MAIN()
