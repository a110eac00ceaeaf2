/* Goal: bytes come and go whole and in order whatever is left untaken, and a handler may close its wire. Method: pairs of sockets
 * on a loop, driven by libevent's own turns. TLS is tested through the client (test_http_client_tls.c). */
#include "base/wire.h"

#include <event2/event.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tests/check.h"

struct end {
    struct wire wire;
    struct buf got;
    size_t take; /* bytes off each read; 0 = nothing */
    int reads, writes;
    int event; /* -1 = none */
    bool closes;
};

static struct loop *loop;
static int far; /* the other side's descriptor */

static void on_read(void *arg)
{
    struct end *e = arg;
    struct str in = wire_in(&e->wire);
    size_t n = in.n < e->take ? in.n : e->take;
    e->reads++;
    buf_str(&e->got, str_sub(in, 0, n));
    wire_take(&e->wire, n);
    if (e->closes) wire_close(&e->wire);
}

static void on_write(void *arg)
{
    struct end *e = arg;
    e->writes++;
    if (!wire_unsent(&e->wire)) wire_writes(&e->wire, false);
}

static void on_event(void *arg, enum wire_event event)
{
    struct end *e = arg;
    e->event = (int)event;
    if (e->closes) wire_close(&e->wire);
}

static void begin(struct end *e)
{
    static const struct wire_handler handler = {on_read, on_write, on_event};
    int fds[2];
    struct errmsg why = {0};
    ASSERT(loop_new(&loop, &why) == OK);
    ASSERT(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds));
    far = fds[1];
    *e = (struct end){.event = -1, .take = SIZE_MAX};
    buf_init(&e->got, 16 << 20);
    wire_open(&e->wire, loop, fds[0], &handler, e);
}

static void end(struct end *e)
{
    wire_close(&e->wire);
    wire_close(&e->wire); /* fine when it is closed */
    buf_fini(&e->got);
    if (far >= 0) close(far);
    loop_free(loop);
}

/* What is due runs, nothing is waited for. */
static void turn(void)
{
    for (int i = 0; i < 3; i++)
        event_base_loop(loop_base(loop), EVLOOP_NONBLOCK);
}

static void say(struct str s)
{
    ASSERT(write(far, s.p, s.n) == (ssize_t)s.n);
}

TEST(what_is_not_taken_stays_in_front_of_what_comes)
{
    struct end e;
    begin(&e);
    e.take = 2;
    say(STR("abc"));
    turn();
    CHECK_STR(wire_in(&e.wire), "c");
    say(STR("defg"));
    turn();
    CHECK_STR(buf_view(&e.got), "abcd");
    CHECK_STR(wire_in(&e.wire), "efg");
    wire_take(&e.wire, 1); /* between callbacks */
    CHECK_STR(wire_in(&e.wire), "fg");
    wire_take(&e.wire, 2);
    CHECK_INT(wire_in(&e.wire).n, 0);
    e.take = 0;
    say(STR("x"));
    turn();
    say(STR("y"));
    turn();
    CHECK_STR(wire_in(&e.wire), "xy");
    end(&e);
}

TEST(a_long_text_in_pieces_of_any_length_arrives_as_it_was)
{
    struct end e;
    struct rng rng;
    struct buf sent;
    begin(&e);
    rng_seed(&rng, 5);
    buf_init(&sent, 16 << 20);
    while (sent.n < 1 << 20) {
        char piece[5000];
        size_t n = 1 + rng_below(&rng, sizeof piece);
        for (size_t i = 0; i < n; i++)
            piece[i] = (char)rng_u64(&rng);
        buf_add(&sent, piece, n);
        say((struct str){piece, n});
        e.take = rng_below(&rng, 9000);
        turn();
    }
    buf_str(&e.got, wire_in(&e.wire));
    CHECK_INT(e.got.n, sent.n);
    CHECK(str_eq(buf_view(&e.got), buf_view(&sent)));
    buf_fini(&sent);
    end(&e);
}

TEST(nothing_is_read_while_reading_is_off)
{
    struct end e;
    begin(&e);
    wire_reads(&e.wire, false);
    say(STR("abc"));
    turn();
    CHECK_INT(e.reads, 0);
    wire_reads(&e.wire, true);
    turn();
    CHECK_STR(buf_view(&e.got), "abc");
    end(&e);
}

TEST(bytes_and_an_end_that_nobody_has_read_are_noticed)
{
    struct end e;
    begin(&e);
    CHECK(wire_silent(&e.wire));
    say(STR("a"));
    CHECK(!wire_silent(&e.wire));
    turn();
    CHECK(wire_silent(&e.wire));
    CHECK_STR(buf_view(&e.got), "a"); /* looking took nothing */
    close(far);
    far = -1;
    CHECK(!wire_silent(&e.wire));
    end(&e);
}

TEST(a_handler_may_close_its_wire)
{
    struct end e;
    for (int by_end = 0; by_end < 2; by_end++) {
        begin(&e);
        e.closes = true;
        e.take = 1;
        if (by_end)
            close(far), far = -1;
        else
            say(STR("abc"));
        turn();
        CHECK(!e.wire.open);
        CHECK_INT(e.event, by_end ? WIRE_ENDED : -1);
        end(&e);
    }
}

TEST(the_end_is_told_once_after_the_bytes_before_it)
{
    struct end e;
    begin(&e);
    say(STR("abc"));
    shutdown(far, SHUT_WR);
    turn();
    turn();
    CHECK_STR(buf_view(&e.got), "abc");
    CHECK_INT(e.event, WIRE_ENDED);
    e.event = -1;
    turn();
    CHECK_INT(e.event, -1);
    end(&e);
}

/* Reads what has come at the far side; returns the bytes. */
static size_t drain(struct buf *all)
{
    char piece[65536];
    ssize_t n;
    size_t before = all->n;
    while ((n = read(far, piece, sizeof piece)) > 0)
        buf_add(all, piece, (size_t)n);
    return all->n - before;
}

TEST(what_a_socket_does_not_take_at_once_goes_out_the_long_way)
{
    struct end e;
    struct buf sent, came;
    begin(&e);
    buf_init(&sent, 16 << 20);
    buf_init(&came, 16 << 20);
    for (int i = 0; i < 200000; i++)
        buf_printf(&sent, "%d,", i);
    e.wire.write_low = 1000;
    REQUIRE(wire_put(&e.wire, str_sub(buf_view(&sent), 0, 700000)) && wire_flush(&e.wire));
    CHECK(wire_unsent(&e.wire) > 1000 && e.writes == 0);
    wire_writes(&e.wire, true);
    REQUIRE(wire_put(&e.wire, str_sub(buf_view(&sent), 700000, sent.n)));
    turn();
    CHECK_INT(e.writes, 0); /* nobody has read yet */
    for (int i = 0; i < 1000 && (drain(&came) || wire_unsent(&e.wire)); i++)
        turn();
    drain(&came);
    CHECK(e.writes > 0);
    CHECK(!e.wire.writing);
    CHECK(str_eq(buf_view(&came), buf_view(&sent)));
    buf_fini(&sent);
    buf_fini(&came);
    end(&e);
}

TEST(a_broken_socket_is_told)
{
    struct end e;
    begin(&e);
    wire_reads(&e.wire, false);
    close(far);
    far = -1;
    REQUIRE(wire_put(&e.wire, STR("abc")));
    CHECK(!wire_flush(&e.wire));
    wire_writes(&e.wire, true);
    turn();
    CHECK_INT(e.event, WIRE_BROKEN);
    end(&e);
}

TEST_MAIN()
