/* Goal: against a real redis-server: every callback comes exactly once, never inside the call; a frozen or dead server costs one time-out,
 * then nothing, and is found again by itself.
 * Method: a server of our own on a unix socket, killed, stopped and restarted; a fake one that answers nonsense. */
#include "base/redis.h"

#include <pthread.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "tests/check.h"
#include "tests/unit/base/redis_fixture.h"

struct tally { /* of callbacks */
    int n, ok, timeout, closed, unavailable, cancelled, full;
    int64_t integer;
    char text[256];
    enum redis_kind kind;
    uint64_t last_ms;
};

static void count(void *arg, enum err code, const struct redis_reply *reply)
{
    struct tally *t = arg;
    t->n++;
    t->ok += code == OK;
    t->timeout += code == ERR_TIMEOUT;
    t->closed += code == ERR_CLOSED;
    t->unavailable += code == ERR_UNAVAILABLE;
    t->cancelled += code == ERR_CANCELLED;
    t->full += code == ERR_FULL;
    t->last_ms = clock_ms();
    CHECK((code == OK) == (reply != NULL));
    if (!reply) return;
    t->kind = reply->kind;
    t->integer = reply->integer;
    snprintf(t->text, sizeof t->text, "%.*s", (int)reply->text.n,
             reply->text.p ? reply->text.p : "");
}

struct goal {
    const struct tally *t;
    int n;
};
static bool reached(void *arg)
{
    return ((struct goal *)arg)->t->n >= ((struct goal *)arg)->n;
}
static bool wait_for(struct fixture *f, const struct tally *t, int n, int ms)
{
    return fixture_until(f, reached, &(struct goal){t, n}, ms);
}

#define OPEN_WITH(f, r, timeout, ...)                                                              \
    struct fixture f = {.extra = {__VA_ARGS__}};                                                   \
    struct redis *r = NULL;                                                                        \
    if (!fixture_server_exists()) SKIP("redis-server is not installed");                           \
    log_set_level(LOG_ERROR);                                                                      \
    REQUIRE(fixture_open(&f));                                                                     \
    REQUIRE(redis_open(&r, f.loop,                                                                 \
                       &(struct redis_options){.url = f.url, .command_timeout_ms = timeout},       \
                       NULL) == OK);                                                               \
    CHECK(fixture_until(&f, fixture_usable, r, 3000));
/* Patient, so that a busy machine fails no test; those about time-outs use the default of 50 ms. */
#define OPEN(f, r, ...) OPEN_WITH(f, r, 2000, __VA_ARGS__)
#define CLOSE(f, r)                                                                                \
    redis_close(r);                                                                                \
    fixture_close(&f)

TEST(every_kind_of_reply_arrives)
{
    OPEN(f, r, NULL)
    struct tally t = {0};
    struct str binary = STR("a\0b\r\n");
    redis_commandf(r, 0, count, &t, "SET k:%s:%d%% %b", "x", 7, &binary);
    CHECK_INT(t.n, 0);
    CHECK(wait_for(&f, &t, 1, 3000));
    CHECK(t.kind == REDIS_STATUS && !strcmp(t.text, "OK"));
    redis_commandf(r, 0, count, &t, "STRLEN k:x:7%%");
    CHECK(wait_for(&f, &t, 2, 3000));
    CHECK(t.kind == REDIS_INTEGER && t.integer == 5);
    redis_commandf(r, 0, count, &t, "GET absent");
    CHECK(wait_for(&f, &t, 3, 3000));
    CHECK(t.kind == REDIS_NIL);
    redis_command(r, 2, (struct str[]){STR("INCR"), STR("k:x:7%")}, 0, count, &t);
    CHECK(wait_for(&f, &t, 4, 3000));
    CHECK(t.kind == REDIS_ERROR && strstr(t.text, "not an integer") && t.ok == 4);
    redis_commandf(r, 0, count, &t, "INCRBY n %lld", 1LL << 40);
    redis_commandf(r, 0, NULL, NULL, "INCR n");
    redis_commandf(r, 0, count, &t, "INCR n");
    CHECK(wait_for(&f, &t, 6, 3000));
    CHECK(t.integer == (1LL << 40) + 2);
    CLOSE(f, r);
}

TEST(thousands_in_flight_keep_their_order_and_the_bound_holds)
{
    OPEN(f, r, NULL)
    struct tally t = {0};
    for (int i = 0; i < 10100; i++)
        redis_commandf(r, 5000, count, &t, "INCR n");
    CHECK_INT(t.n, 0);
    CHECK(wait_for(&f, &t, 10100, 5000));
    CHECK(t.ok == 10000 && t.full == 100 && t.integer == 10000);
    struct redis_stats s = redis_stats(r);
    CHECK(s.commands == 10000 && s.refused == 100 && s.pending == 0 && s.timeouts == 0);
    CLOSE(f, r);
}

TEST(before_a_connection_commands_fail_at_once_but_not_inside_the_call)
{
    struct loop *l;
    struct redis *r;
    struct tally t = {0};
    struct errmsg e = {0};
    REQUIRE(loop_new(&l, NULL) == OK);
    CHECK_INT(redis_open(&r, l, &(struct redis_options){.url = "http://x"}, &e), ERR_INVALID);
    REQUIRE(redis_open(&r, l, &(struct redis_options){.url = "unix:/nonexistent/s"}, &e) == OK);
    redis_commandf(r, 0, count, &t, "PING");
    CHECK_INT(t.n, 0);
    struct fixture f = {.loop = l};
    CHECK(wait_for(&f, &t, 1, 3000));
    CHECK(t.unavailable == 1 && !redis_usable(r));
    redis_commandf(r, 0, count, &t, "PING");
    redis_close(r);
    CHECK(t.n == 2 && t.cancelled == 1);
    loop_free(l);
}

TEST(a_killed_server_ends_every_command_once_and_is_found_again)
{
    OPEN(f, r, NULL)
    int sent = 0;
    struct tally t = {0};
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2000; i++, sent++)
            redis_commandf(r, 2000, count, &t, "INCR n");
        if (round == 1) fixture_run(&f, 1); /* some are written, some may be answered */
        fixture_kill(&f);
        CHECK(wait_for(&f, &t, sent, 3000));
        CHECK(!redis_usable(r));
        redis_commandf(r, 0, count, &t, "PING");
        sent++;
        CHECK(wait_for(&f, &t, sent, 100));
        CHECK_INT(t.unavailable, round + 1);
        CHECK(fixture_start(&f));
        CHECK(fixture_until(&f, fixture_usable, r, 3000));
    }
    fixture_run(&f, 50);
    CHECK(t.n == sent && t.ok + t.closed + t.unavailable == sent);
    CHECK_INT(redis_stats(r).reconnects, 3);
    CLOSE(f, r);
}

TEST(a_short_freeze_costs_one_timeout_and_the_late_reply_is_dropped)
{
    OPEN_WITH(f, r, 0, NULL)
    struct tally t = {0}, after = {0};
    uint64_t start = clock_ms();
    kill(f.pid, SIGSTOP);
    redis_commandf(r, 0, count, &t, "INCR n");
    CHECK(wait_for(&f, &t, 1, 3000));
    CHECK_AT(t.timeout == 1 && t.last_ms - start >= 49, "timeout %d after %d ms", t.timeout,
             (int)(t.last_ms - start));
    CHECK(!redis_usable(r));
    for (int i = 0; i < 100; i++)
        redis_commandf(r, 0, count, &after, "INCR n");
    CHECK(wait_for(&f, &after, 100, 3000));
    CHECK(after.unavailable == 100);
    kill(f.pid, SIGCONT);
    CHECK(fixture_until(&f, fixture_usable, r, 3000));
    if (clock_ms() - start < 900)
        CHECK_INT(redis_stats(r).reconnects, 0); /* not so long that it counts as a hang */
    redis_commandf(r, 2000, count, &after, "INCR n");
    CHECK(wait_for(&f, &after, 101, 3000));
    CHECK(after.ok == 1 && after.integer == 2 && t.n == 1);
    CLOSE(f, r);
}

TEST(a_probe_that_is_answered_by_an_error_is_sent_again)
{
    OPEN_WITH(f, r, 0, NULL)
    struct tally t = {0};
    char allow[256];
    snprintf(allow, sizeof allow, "redis-cli -s %s ACL SETUSER default +ping >/dev/null", f.socket);
    redis_commandf(r, 2000, count, &t, "ACL SETUSER default -ping");
    CHECK(wait_for(&f, &t, 1, 3000) && t.ok == 1);
    kill(f.pid, SIGSTOP);
    redis_commandf(r, 0, count, &t, "INCR n");
    CHECK(wait_for(&f, &t, 2, 3000));
    kill(f.pid, SIGCONT);
    fixture_run(&f, 200);
    CHECK(!redis_usable(r)); /* PING is refused */
    CHECK(system(allow) == 0);
    CHECK(fixture_until(&f, fixture_usable, r, 5000));
    CLOSE(f, r);
}

TEST(a_long_freeze_is_a_lost_connection_and_heals_by_itself)
{
    OPEN_WITH(f, r, 0, NULL)
    struct tally slow = {0}, t = {0};
    kill(f.pid, SIGSTOP);
    redis_commandf(r, 0, count, &t, "INCR n");
    redis_commandf(r, 900, count, &slow, "INCR n");
    CHECK(wait_for(&f, &t, 1, 3000));
    CHECK(wait_for(&f, &slow, 1, 1500));
    CHECK(t.timeout == 1 && slow.timeout + slow.closed == 1);
    fixture_run(&f, 800);
    kill(f.pid, SIGCONT);
    CHECK(fixture_until(&f, fixture_usable, r, 3000));
    CHECK_INT(redis_stats(r).reconnects, 1);
    redis_commandf(r, 2000, count, &t, "PING");
    CHECK(wait_for(&f, &t, 2, 3000));
    CHECK(t.ok == 1 && slow.n == 1);
    CLOSE(f, r);
}

TEST(an_idle_link_notices_a_freeze_before_a_request_does)
{
    OPEN_WITH(f, r, 0, NULL)
    kill(f.pid, SIGSTOP);
    fixture_run(&f, 1400);
    CHECK(!redis_usable(r));
    kill(f.pid, SIGCONT);
    CHECK(fixture_until(&f, fixture_usable, r, 3000));
    CLOSE(f, r);
}

TEST(a_command_that_may_take_long_is_not_a_hang)
{
    OPEN(f, r, NULL)
    struct tally t = {0};
    redis_commandf(r, 4000, count, &t, "BLPOP nothing 2");
    CHECK(wait_for(&f, &t, 1, 4000));
    CHECK(t.ok == 1 && t.kind == REDIS_NIL);
    CHECK_INT(redis_stats(r).reconnects, 0);
    CLOSE(f, r);
}

static void add_one(void *arg)
{
    ++*(int *)arg;
}

TEST(password_database_and_library_are_ready_before_on_connect)
{
    char url[160], port[16];
    int tcp = 20000 + getpid() % 20000, connects = 0;
    snprintf(port, sizeof port, "%d", tcp);
    struct fixture f = {.extra = {"--requirepass", "p@ss", "--port", port}};
    struct redis *r;
    struct tally t = {0};
    if (!fixture_server_exists()) SKIP("redis-server is not installed");
    log_set_level(LOG_ERROR);
    REQUIRE(fixture_open(&f));
    static const char *const wrong[] = {"redis://localhost:", "redis://:wrong@127.0.0.1:"};
    for (int i = 0; i < 2; i++) {
        struct buf b;
        buf_init(&b, 100);
        buf_printf(&b, "%s%d", wrong[i], tcp);
        snprintf(url, sizeof url, "%s", b.p);
        buf_fini(&b);
        REQUIRE(redis_open(&r, f.loop, &(struct redis_options){.url = url}, NULL) == OK);
        fixture_run(&f, 150);
        CHECK(!redis_usable(r));
        redis_close(r);
    }
    snprintf(url, sizeof url, "redis://:p%%40ss@localhost:%d/3", tcp);
    REQUIRE(redis_open(&r, f.loop, &(struct redis_options){.url = url, .command_timeout_ms = 2000},
                       NULL) == OK);
    redis_use_library(
        r, STR("#!lua name=t\nredis.register_function('three', function() return 3 end)"));
    redis_on_connect(r, add_one, &connects);
    CHECK(fixture_until(&f, fixture_usable, r, 3000));
    redis_commandf(r, 0, count, &t, "FCALL three 0");
    CHECK(wait_for(&f, &t, 1, 3000));
    CHECK(t.kind == REDIS_INTEGER && t.integer == 3);
    redis_commandf(r, 0, count, &t, "CLIENT INFO");
    CHECK(wait_for(&f, &t, 2, 3000));
    CHECK(strstr(t.text, " db=3 "));
    CHECK_INT(connects, 1);
    redis_on_connect(r, add_one, &connects);
    CHECK_INT(connects, 1);
    fixture_run(&f, 20);
    CHECK_INT(connects, 2);
    fixture_kill(&f);
    fixture_run(&f, 20);
    CHECK(fixture_start(&f));
    CHECK(fixture_until(&f, fixture_usable, r, 3000));
    fixture_run(&f, 20);
    CHECK_INT(connects, 4);
    redis_commandf(r, 0, count, &t, "FCALL three 0");
    CHECK(wait_for(&f, &t, 3, 3000));
    CHECK_INT(t.integer, 3);
    /* removed under a connection that lives: one command says so, and it is there again */
    redis_commandf(r, 0, NULL, NULL, "FUNCTION FLUSH");
    redis_commandf(r, 0, count, &t, "FCALL three 0");
    redis_commandf(r, 0, count, &t, "FCALL three 0");
    CHECK(wait_for(&f, &t, 5, 3000));
    CHECK(t.kind == REDIS_ERROR);
    redis_commandf(r, 0, count, &t, "FCALL three 0");
    CHECK(wait_for(&f, &t, 6, 3000));
    CHECK(t.kind == REDIS_INTEGER && t.integer == 3);
    CHECK_INT(connects, 4);
    CLOSE(f, r);
}

struct closing {
    struct redis *r;
    struct tally *t;
    int n;
};

static void close_inside(void *arg, enum err code, const struct redis_reply *reply)
{
    struct closing *c = arg;
    (void)code, (void)reply;
    c->n++;
    redis_commandf(c->r, 0, count, c->t, "PING");
    redis_close(c->r);
}

TEST(closing_cancels_what_waits_even_inside_a_callback)
{
    OPEN(f, r, NULL)
    struct tally t = {0};
    for (int i = 0; i < 100; i++)
        redis_commandf(r, 0, count, &t, "PING");
    redis_close(r);
    CHECK(t.n == 100 && t.cancelled == 100);
    REQUIRE(redis_open(&r, f.loop,
                       &(struct redis_options){.url = f.url, .command_timeout_ms = 2000},
                       NULL) == OK);
    CHECK(fixture_until(&f, fixture_usable, r, 3000));
    struct tally after = {0};
    struct closing c = {r, &after, 0};
    redis_commandf(r, 0, close_inside, &c, "PING");
    redis_commandf(r, 0, count, &after, "PING");
    CHECK(wait_for(&f, &after, 2, 3000));
    CHECK(c.n == 1 && after.cancelled == 2);
    fixture_close(&f);
}

/* --- a peer that is no Redis */
struct fake {
    int fd;
    const char *bytes;
    size_t n;
};

/* Answers the greeting properly, then sends the bytes, for each connection until the listener is shut down. */
static void *serve(void *arg)
{
    struct fake *k = arg;
    int c;
    while ((c = accept(k->fd, NULL, NULL)) >= 0) {
        char in[512];
        if (read(c, in, sizeof in) > 0 && write(c, "+PONG\r\n", 7) == 7)
            (void)!write(c, k->bytes, k->n);
        usleep(20000);
        close(c);
    }
    return NULL;
}

static void check_fake(const char *bytes, size_t n)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct fixture f = {0};
    struct redis *r;
    struct tally t = {0};
    pthread_t thread;
    memcpy(f.folder, "/tmp/deja_redis_XXXXXX", 23);
    REQUIRE(mkdtemp(f.folder) && loop_new(&f.loop, NULL) == OK);
    snprintf(to.sun_path, sizeof to.sun_path, "%s/s", f.folder);
    snprintf(f.url, sizeof f.url, "unix:%s", to.sun_path);
    struct fake k = {socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), bytes, n};
    REQUIRE(bind(k.fd, (struct sockaddr *)&to, sizeof to) == 0 && listen(k.fd, 8) == 0);
    pthread_create(&thread, NULL, serve, &k);
    REQUIRE(redis_open(&r, f.loop, &(struct redis_options){.url = f.url}, NULL) == OK);
    for (int i = 0; i < 10; i++) {
        fixture_run(&f, 15);
        redis_commandf(r, 0, count, &t, "GET k");
    }
    CHECK(wait_for(&f, &t, 10, 2000));
    CHECK(t.n == 10 && !t.ok);
    redis_close(r);
    fixture_run(&f, 5); /* libevent closes the socket in the next turn */
    shutdown(k.fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(k.fd);
    fixture_close(&f);
}

TEST(nonsense_from_a_peer_is_a_lost_connection)
{
    static const struct str rows[] = {
        STR("+OK\r\n+OK\r\n"),
        STR("%1\r\n"),
        STR("*1152921504606846976\r\n"),
        STR("$9223372036854775807\r\n"),
        STR("\0\0\0"),
        STR("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n")};
    log_set_level(LOG_ERROR);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_fake(rows[i].p, rows[i].n);
}

TEST_MAIN()
