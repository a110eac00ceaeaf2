/* Goal: a tail hands on every entry once and in order, through lost connections, killed and frozen servers; what is gone it reports.
 * Method: entries carry a running number; a real redis-server is killed, its clients are killed, its stream is trimmed and deleted. */
#include "base/redis.h"

#include "base/log.h"
#include "tests/check.h"
#include "tests/unit/base/redis_fixture.h"

struct seen {
    int n, gaps, first, last, out_of_order;
    struct redis_tail *tail;
    int close_at; /* closes the tail at this item; 0 = never */
    char id[48];
};

static void on_item(void *arg, struct str id, const struct str *fields, size_t n_fields)
{
    struct seen *s = arg;
    CHECK(n_fields == 4 && str_eqz(fields[0], "n") && str_eqz(fields[2], "text") &&
          str_eq(fields[3], STR("a\0b")));
    int64_t n = 0;
    CHECK(str_to_i64(fields[1], 0, INT32_MAX, &n) == OK);
    if (s->n && n != s->last + 1) s->out_of_order++;
    if (!s->n) s->first = (int)n;
    s->last = (int)n;
    snprintf(s->id, sizeof s->id, "%.*s", (int)id.n, id.p);
    if (++s->n == s->close_at) redis_tail_close(s->tail);
}

static void on_gap(void *arg)
{
    ((struct seen *)arg)->gaps++;
}

static void add(struct redis *r, int from, int n, int keep)
{
    struct str text = STR("a\0b");
    for (int i = from; i < from + n; i++) {
        if (keep)
            redis_commandf(r, 5000, NULL, NULL, "XADD s MAXLEN = %d * n %d text %b", keep, i,
                           &text);
        else
            redis_commandf(r, 5000, NULL, NULL, "XADD s * n %d text %b", i, &text);
    }
}

struct goal {
    const struct seen *s;
    int n;
};
static bool reached(void *arg)
{
    return ((struct goal *)arg)->s->n >= ((struct goal *)arg)->n;
}
static bool gapped(void *arg)
{
    return ((struct goal *)arg)->s->gaps >= ((struct goal *)arg)->n;
}
static bool wait_items(struct fixture *f, const struct seen *s, int n)
{
    return fixture_until(f, reached, &(struct goal){s, n}, 4000);
}
static bool wait_gaps(struct fixture *f, const struct seen *s, int n)
{
    return fixture_until(f, gapped, &(struct goal){s, n}, 4000);
}

#define OPEN(f, r, ...)                                                                            \
    struct fixture f = {.extra = {__VA_ARGS__}};                                                   \
    struct redis *r = NULL;                                                                        \
    if (!fixture_server_exists()) SKIP("redis-server is not installed");                           \
    log_set_level(LOG_ERROR);                                                                      \
    REQUIRE(fixture_open(&f));                                                                     \
    struct redis_options options = {.url = f.url, .command_timeout_ms = 2000};                     \
    REQUIRE(redis_open(&r, f.loop, &options, NULL) == OK);                                         \
    CHECK(fixture_until(&f, fixture_usable, r, 3000));
#define CLOSE(f, r)                                                                                \
    redis_close(r);                                                                                \
    fixture_close(&f)
#define TAIL(s, after)                                                                             \
    ((s).tail = redis_tail_open(f.loop, &options, STR("s"), str_of(after), on_item, on_gap, &(s)))

TEST(entries_come_in_order_from_the_start_or_from_now)
{
    OPEN(f, r, NULL)
    struct seen all = {0}, fresh = {0}, rest = {0};
    add(r, 0, 1000, 0);
    TAIL(all, "0-0");
    CHECK(wait_items(&f, &all, 1000));
    TAIL(fresh, "$");
    fixture_run(&f, 100);
    char middle[48];
    snprintf(middle, sizeof middle, "%s", all.id);
    add(r, 1000, 500, 0);
    CHECK(wait_items(&f, &all, 1500));
    CHECK(wait_items(&f, &fresh, 500));
    TAIL(rest, middle);
    CHECK(wait_items(&f, &rest, 500));
    CHECK(all.first == 0 && fresh.first == 1000 && rest.first == 1000 && !all.out_of_order &&
          !fresh.out_of_order && !rest.out_of_order);
    CHECK(all.n == 1500 && fresh.n == 500 && rest.n == 500 && !all.gaps && !fresh.gaps &&
          !rest.gaps);
    redis_tail_close(all.tail);
    redis_tail_close(fresh.tail);
    redis_tail_close(rest.tail);
    CLOSE(f, r);
}

TEST(a_stream_that_does_not_exist_yet_is_waited_for)
{
    OPEN(f, r, NULL)
    struct seen s = {0}, now = {0};
    TAIL(s, "0-0");
    TAIL(now, "$");
    fixture_run(&f, 200);
    add(r, 0, 3, 0);
    CHECK(wait_items(&f, &s, 3));
    CHECK(wait_items(&f, &now, 3));
    CHECK(s.first == 0 && now.first == 0 && !s.gaps && !now.gaps);
    redis_tail_close(s.tail);
    redis_tail_close(now.tail);
    CLOSE(f, r);
}

TEST(nothing_is_lost_or_repeated_over_lost_connections)
{
    OPEN(f, r, NULL)
    struct seen s = {0};
    TAIL(s, "$");
    fixture_run(&f, 100);
    for (int round = 0; round < 5; round++) {
        add(r, 300 * round, 150, 0);
        fixture_run(&f, round);
        redis_commandf(r, 5000, NULL, NULL, "CLIENT KILL TYPE normal SKIPME yes");
        add(r, 300 * round + 150, 150, 0);
        CHECK(wait_items(&f, &s, 300 * (round + 1)));
    }
    CHECK(s.n == 1500 && s.first == 0 && !s.out_of_order && !s.gaps);
    redis_tail_close(s.tail);
    CLOSE(f, r);
}

TEST(a_killed_server_that_kept_its_data_is_followed_on)
{
    OPEN(f, r, "--appendonly", "yes", "--appendfsync", "always")
    struct seen s = {0};
    TAIL(s, "0-0");
    add(r, 0, 200, 0);
    CHECK(wait_items(&f, &s, 200));
    fixture_kill(&f);
    fixture_run(&f, 50);
    CHECK(fixture_start(&f));
    CHECK(fixture_until(&f, fixture_usable, r, 3000));
    add(r, 200, 200, 0);
    CHECK(wait_items(&f, &s, 400));
    CHECK(s.n == 400 && !s.out_of_order && !s.gaps);
    redis_tail_close(s.tail);
    CLOSE(f, r);
}

TEST(a_server_that_lost_its_data_is_a_gap_and_then_followed)
{
    OPEN(f, r, NULL)
    struct seen s = {0};
    TAIL(s, "0-0");
    add(r, 0, 20, 0);
    CHECK(wait_items(&f, &s, 20));
    fixture_kill(&f);
    fixture_run(&f, 50);
    CHECK(fixture_start(&f));
    CHECK(fixture_until(&f, fixture_usable, r, 3000));
    CHECK(wait_gaps(&f, &s, 1));
    add(r, 20, 20, 0);
    CHECK(wait_items(&f, &s, 40));
    CHECK(s.gaps == 1 && !s.out_of_order);
    redis_tail_close(s.tail);
    CLOSE(f, r);
}

TEST(trimming_past_our_position_is_a_gap_and_trimming_up_to_it_is_none)
{
    OPEN(f, r, NULL)
    struct seen s = {0};
    TAIL(s, "0-0");
    add(r, 0, 100, 0);
    CHECK(wait_items(&f, &s, 100));
    redis_commandf(r, 5000, NULL, NULL, "XTRIM s MAXLEN 0"); /* all of it has been read */
    redis_commandf(r, 5000, NULL, NULL, "CLIENT KILL TYPE normal SKIPME yes");
    add(r, 100, 50, 0);
    CHECK(wait_items(&f, &s, 150));
    CHECK(s.gaps == 0 && !s.out_of_order);
    redis_commandf(r, 5000, NULL, NULL,
                   "CLIENT KILL TYPE normal SKIPME yes"); /* away while 90 of 100 are trimmed */
    add(r, 150, 100, 10);
    CHECK(wait_items(&f, &s, 160));
    CHECK(s.gaps == 1 && s.last == 249 && s.out_of_order == 1);
    redis_commandf(r, 5000, NULL, NULL,
                   "CLIENT KILL TYPE normal SKIPME yes"); /* away while all are trimmed */
    add(r, 250, 10, 0);
    redis_commandf(r, 5000, NULL, NULL, "XTRIM s MAXLEN 0");
    CHECK(wait_gaps(&f, &s, 2));
    add(r, 260, 5, 0);
    CHECK(wait_items(&f, &s, 165));
    CHECK(s.gaps == 2 && s.last == 264);
    redis_tail_close(s.tail);
    CLOSE(f, r);
}

TEST(an_old_position_that_was_trimmed_away_is_a_gap)
{
    OPEN(f, r, NULL)
    struct seen s = {0}, odd = {0};
    add(r, 0, 100, 10);
    TAIL(s, "1-1");
    TAIL(odd, "0-0");
    CHECK(wait_items(&f, &s, 10));
    CHECK(wait_items(&f, &odd, 10));
    CHECK(s.gaps == 1 && odd.gaps == 1 && s.first == 90);
    redis_tail_close(s.tail);
    redis_tail_close(odd.tail);
    CLOSE(f, r);
}

TEST(a_stream_begun_anew_is_a_gap)
{
    OPEN(f, r, NULL)
    struct seen s = {0};
    TAIL(s, "0-0");
    add(r, 0, 5, 0);
    CHECK(wait_items(&f, &s, 5));
    redis_commandf(r, 5000, NULL, NULL, "CLIENT KILL TYPE normal SKIPME yes");
    redis_commandf(r, 5000, NULL, NULL, "DEL s");
    redis_commandf(r, 5000, NULL, NULL, "XADD s 5-5 n 5 text %b", &STR("a\0b"));
    CHECK(wait_items(&f, &s, 6));
    CHECK(s.gaps == 1 && s.last == 5);
    redis_tail_close(s.tail);
    CLOSE(f, r);
}

TEST(a_frozen_server_is_left_and_found_again)
{
    OPEN(f, r, NULL)
    struct seen s = {0};
    TAIL(s, "0-0");
    add(r, 0, 5, 0);
    CHECK(wait_items(&f, &s, 5));
    kill(f.pid, SIGSTOP);
    fixture_run(&f, 3600);
    kill(f.pid, SIGCONT);
    CHECK(fixture_until(&f, fixture_usable, r, 3000));
    add(r, 5, 5, 0);
    CHECK(wait_items(&f, &s, 10));
    CHECK(!s.gaps && !s.out_of_order && s.n == 10);
    redis_tail_close(s.tail);
    CLOSE(f, r);
}

TEST(closing_inside_an_item_ends_it_there)
{
    OPEN(f, r, NULL)
    struct seen s = {.close_at = 3};
    add(r, 0, 10, 0);
    TAIL(s, "0-0");
    fixture_run(&f, 200);
    CHECK_INT(s.n, 3);
    struct seen other = {0};
    TAIL(other, "0-0");
    redis_tail_close(other.tail); /* before anything happened */
    fixture_run(&f, 20);
    CHECK_INT(other.n, 0);
    redis_commandf(r, 5000, NULL, NULL, "SET t x");
    struct seen wrong = {0};
    wrong.tail = redis_tail_open(f.loop, &options, STR("t"), STR("0-0"), on_item, on_gap, &wrong);
    fixture_run(&f, 200); /* WRONGTYPE: a pause, no storm */
    CHECK(!wrong.n && !wrong.gaps);
    redis_tail_close(wrong.tail);
    CLOSE(f, r);
}

TEST_MAIN()
