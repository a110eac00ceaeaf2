/* test_httpd.c - the server over real loopback sockets: framing errors, keep-alive, pipelining, streaming with a slow
 * reader, a client that leaves, time-outs. Timings are only upper bounds with much room. */
#include "base/httpd.h"

#include <stdatomic.h>

#include "tests/unit/base/net_rig.h"

enum { STREAM_BYTES = 16 << 20, PIECE_BYTES = 16384, WRITE_HIGH = 65536 };

static atomic_int n_gone, n_later, n_called;
static atomic_size_t streamed;

struct later {
    struct http_req *req;
    struct loop_timer *timer;
    size_t left;
    bool aborts;
};

static void later_free(struct later *x)
{
    loop_timer_free(x->timer);
    mem_free(x);
}

static void later_gone(void *arg)
{
    atomic_fetch_add(&n_gone, 1);
    later_free(arg);
}

static void later_reply(void *arg)
{
    struct later *x = arg;
    http_send(x->req, 200, "text/plain", STR("later"));
    atomic_fetch_add(&n_later, 1);
    later_free(x);
}

static struct later *later_new(struct rig *g, struct http_req *r, void (*fn)(void *))
{
    struct later *x = xcalloc(1, sizeof *x);
    x->req = r;
    x->timer = loop_timer_new(g->loop, fn, x);
    http_req_on_gone(r, later_gone, x);
    return x;
}

static void stream_more(void *arg)
{
    static char piece[PIECE_BYTES];
    struct later *x = arg;
    memset(piece, 's', sizeof piece);
    while (x->left) {
        bool room = http_write(x->req, (struct str){piece, sizeof piece});
        x->left -= sizeof piece;
        atomic_fetch_add(&streamed, sizeof piece);
        if (!room) return;
    }
    struct http_req *r = x->req;
    later_free(x);
    http_end(r);
}

static void stream_blindly(void *arg) /* ignores back-pressure */
{
    struct later *x = arg;
    static char piece[PIECE_BYTES];
    for (int i = 0; i < 64; i++)
        (void)http_write(x->req, (struct str){piece, sizeof piece});
}

static void stream_a_bit_then_abort(void *arg)
{
    struct later *x = arg;
    http_write(x->req, STR("some"));
    struct http_req *r = x->req;
    later_free(x);
    http_abort(r);
}

static void echo(struct http_req *r)
{
    struct str body = http_req_body(r), encoding = http_req_header(r, "content-encoding");
    struct buf b;
    buf_init(&b, 16 << 20);
    buf_printf(&b, STR_FMT " " STR_FMT " q=" STR_FMT " n=%zu body=", STR_ARG(http_req_method(r)),
               STR_ARG(http_req_path(r)), STR_ARG(http_req_query(r)), body.n);
    buf_str(&b, body);
    if (encoding.n) http_set_header(r, "X-Seen-Encoding", encoding);
    http_set_header(r, "X-Twice", STR("first"));
    http_set_header(r, "x-twice", STR("second"));
    http_set_header(r, "Content-Length", STR("1"));
    http_set_headerf(r, "X-Peer", STR_FMT, STR_ARG(http_req_peer(r)));
    http_send(r, 200, "text/plain", buf_view(&b));
    buf_fini(&b);
}

static void on_request(void *arg, struct http_req *r)
{
    struct rig *g = arg;
    struct str path = http_req_path(r);
    atomic_fetch_add(&n_called, 1);
    if (str_eqz(path, "/later")) {
        loop_timer_arm(later_new(g, r, later_reply)->timer, 30);
    } else if (str_eqz(path, "/never")) {
        later_new(g, r, later_reply);
    } else if (str_eqz(path, "/stream")) {
        struct later *x = later_new(g, r, stream_more);
        x->left = STREAM_BYTES;
        http_req_on_writable(r, stream_more, x);
        http_start(r, 200, "text/event-stream");
        stream_more(x);
    } else if (str_eqz(path, "/blind")) {
        struct later *x = later_new(g, r, stream_blindly);
        http_start(r, 200, "text/event-stream");
        loop_timer_arm(x->timer, 10);
        stream_blindly(x);
        stream_blindly(x);
    } else if (str_eqz(path, "/abort")) {
        http_start(r, 200, "text/event-stream");
        loop_timer_arm(later_new(g, r, stream_a_bit_then_abort)->timer, 5);
    } else if (str_eqz(path, "/small-stream")) {
        http_tell_length(r, 6);
        http_start(r, 200, "text/event-stream");
        http_write(r, STR("one"));
        http_write(r, STR(""));
        http_write(r, STR("two"));
        http_end(r);
    } else if (str_eqz(path, "/pad") || str_eqz(path, "/long")) {
        static char pad[16 << 20];
        http_send(r, 200, "text/plain",
                  (struct str){pad, str_eqz(path, "/pad") ? 32768 : sizeof pad});
    } else if (str_eqz(path, "/204")) {
        http_send(r, 204, NULL, STR(""));
    } else if (str_eqz(path, "/broken-header")) {
        http_set_header(r, "X-Bad", STR("a\r\nX-Injected: b"));
        http_send(r, 200, NULL, STR(""));
    } else {
        echo(r);
    }
}

static struct httpd_options small(void)
{
    return (struct httpd_options){
        .header_max = 4096, .headers_max = 20, .body_max = 100000, .write_high = WRITE_HIGH};
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"
#define GET_CLOSE(path) "GET " path " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

TEST(a_request_gets_its_reply_with_length_date_and_the_set_headers)
{
    struct rig g;
    struct answer a;
    rig_open(&g, small(), on_request);
    ask(g.port,
        "POST /p%20q?x=1 HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nConnection: "
        "close\r\nContent-Length: 3\r\n\r\nabc",
        &a, 3000);
    CHECK_INT(first_status(&a), 200);
    CHECK(has(&a, "POST /p%20q q=x=1 n=3 body=abc"));
    CHECK(has(&a, "X-Seen-Encoding: gzip\r\n"));
    CHECK(has(&a, "x-twice: second\r\n") && !has(&a, "first"));
    CHECK(has(&a, "Content-Length: 30\r\n") && !has(&a, "Content-Length: 1\r\n"));
    CHECK(has(&a, "\r\nDate: ") && has(&a, " GMT\r\n") && has(&a, "Connection: close\r\n"));
    CHECK(has(&a, "X-Peer: 127.0.0.1:"));
    CHECK(a.closed);
    answer_fini(&a);
    ask(g.port, "HEAD /h HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", &a, 3000);
    CHECK(has(&a, "Content-Length: ") && str_ends(buf_view(&a.bytes), STR("\r\n\r\n")));
    answer_fini(&a);
    ask(g.port, GET_CLOSE("/204"), &a, 3000);
    CHECK(first_status(&a) == 204 && !has(&a, "Content-Length"));
    answer_fini(&a);
    ask(g.port, GET_CLOSE("/broken-header"), &a, 3000);
    CHECK(has(&a, "X-Bad: a  X-Injected: b\r\n"));
    answer_fini(&a);
    rig_close(&g);
}

TEST(a_refused_request_gets_one_json_error_and_the_connection_closes)
{
    static const struct {
        const char *request;
        int status;
    } cases[] = {
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: "
         "chunked\r\n\r\n0\r\n\r\n" GET("/smuggled"),
         400},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" GET(
             "/smuggled"),
         501},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 4\r\n\r\n" GET("/smuggled"), 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nContent-Length: 5\r\n\r\n{}  12", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
         400},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}xx0\r\n\r\n" GET(
             "/smuggled"),
         400},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n", 413},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\nExpect: 100-continue\r\n\r\n",
         413},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nExpect: tea\r\n\r\n", 417},
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"get / HTTP/1.1\r\nHost: a\r\n\r\n", 501},
        {"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505},
        {"\x16\x03\x01\x02", 400},
        {"GET / HTTP/1.1\r\nHost: "
         "a\r\n1:\r\n2:\r\n3:\r\n4:\r\n5:\r\n6:\r\n7:\r\n8:\r\n9:\r\n1:\r\n2:\r\n3:\r\n4:\r\n5:"
         "\r\n6:\r\n7:\r\n8:\r\n9:\r\n1:\r\n2:\r\n\r\n",
         431},
    };
    struct rig g;
    rig_open(&g, small(), on_request);
    int called_before = atomic_load(&n_called);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct answer a;
        uint64_t start_ms = clock_ms();
        ask(g.port, cases[i].request, &a, 3000);
        CHECK_AT(first_status(&a) == cases[i].status, "%zu: status %d, not %d", i, first_status(&a),
                 cases[i].status);
        CHECK_AT(count_answers(&a) == 1, "%zu: %d answers", i, count_answers(&a));
        CHECK(a.closed && clock_ms() - start_ms < 1500);
        CHECK(has(&a, "{\"error\":{\"message\":\"") &&
              has(&a, "\"type\":\"invalid_request_error\",\"param\":null,\"code\":\""));
        answer_fini(&a);
    }
    CHECK_INT(atomic_load(&n_called), called_before);
    CHECK_INT(rig_stats(&g).rejected, sizeof cases / sizeof cases[0]);
    rig_close(&g);
}

TEST(a_body_over_the_cap_is_answered_although_the_client_goes_on_sending)
{
    struct rig g;
    struct answer a;
    static char bulk[3 << 20];
    rig_open(&g, small(), on_request);
    for (int chunked = 0; chunked < 2; chunked++) {
        int fd = dial(g.port);
        memset(bulk, 'x', sizeof bulk);
        send_z(fd, chunked ? "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
                             "chunked\r\n\r\n18\r\n111111111111111111111111\r\n300000\r\n"
                           : "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3045728\r\n\r\n");
        CHECK(send_all(fd, bulk, sizeof bulk));
        answer_init(&a);
        receive(fd, &a, NULL, 3000);
        CHECK_INT(first_status(&a), 413);
        CHECK(a.closed && !a.reset);
        answer_fini(&a);
        close(fd);
    }
    rig_close(&g);
}

TEST(pipelined_requests_are_answered_in_order_however_late_the_first)
{
    struct rig g;
    struct answer a;
    rig_open(&g, small(), on_request);
    ask(g.port, GET("/later") GET("/second") GET("/204") GET_CLOSE("/last") GET("/ignored"), &a,
        3000);
    CHECK_INT(count_answers(&a), 4);
    struct str s = buf_view(&a.bytes);
    ptrdiff_t at1 = str_find(s, STR("later")), at2 = str_find(s, STR("/second")),
              at3 = str_find(s, STR("/last"));
    CHECK(at1 > 0 && at2 > at1 && at3 > at2);
    CHECK(a.closed && !has(&a, "/ignored"));
    answer_fini(&a);
    rig_close(&g);
}

TEST(a_flood_of_pipelined_requests_is_read_only_as_fast_as_it_is_answered)
{
    struct rig g;
    struct answer a;
    struct httpd_options o = small();
    o.pipelined_max = 1;
    rig_open(&g, o, on_request);
    struct buf b;
    buf_init(&b, 1 << 20);
    for (int i = 0; i < 2000; i++)
        buf_z(&b, i == 0 ? GET("/later") : GET("/x"));
    buf_z(&b, GET_CLOSE("/end"));
    ask(g.port, b.p, &a, 3000);
    CHECK_INT(count_answers(&a), 2001);
    CHECK(a.closed);
    answer_fini(&a);
    buf_fini(&b);
    rig_close(&g);
}

TEST(requests_are_held_back_while_nobody_reads_the_replies)
{
    enum { N = 1500 };
    struct rig g;
    struct answer a;
    rig_open(&g, small(), on_request);
    struct buf b;
    buf_init(&b, 1 << 20);
    for (int i = 1; i < N; i++)
        buf_z(&b, GET("/pad"));
    buf_z(&b, GET_CLOSE("/pad"));
    atomic_store(&n_called, 0);
    int fd = dial(g.port);
    CHECK(send_all(fd, b.p, b.n));
    usleep(300000);
    CHECK_AT(atomic_load(&n_called) < N / 2, "%d replies were made for nobody",
             atomic_load(&n_called));
    answer_init(&a);
    receive(fd, &a, NULL, 3000);
    CHECK(a.closed);
    CHECK_INT(count_answers(&a), N);
    answer_fini(&a);
    buf_fini(&b);
    close(fd);
    rig_close(&g);
}

TEST(a_reply_still_on_its_way_is_not_an_idle_connection)
{
    struct rig g;
    struct answer a;
    struct httpd_options o = small();
    o.idle_timeout_ms = 100;
    rig_open(&g, o, on_request);
    int fd = dial(g.port);
    send_z(fd, GET("/long"));
    usleep(400000);
    answer_init(&a);
    receive(fd, &a, NULL, 3000);
    CHECK_AT(a.bytes.n > 16 << 20, "%zu bytes came", a.bytes.n);
    CHECK(a.closed); /* afterwards it is */
    answer_fini(&a);
    close(fd);
    rig_close(&g);
}

TEST(expect_continue_is_answered_before_the_body_and_only_once_wanted)
{
    struct rig g;
    struct answer a;
    rig_open(&g, small(), on_request);
    int fd = dial(g.port);
    answer_init(&a);
    send_z(fd, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    receive(fd, &a, "\r\n\r\n", 3000);
    CHECK_STR(buf_view(&a.bytes), "HTTP/1.1 100 Continue\r\n\r\n");
    buf_clear(&a.bytes);
    send_z(fd, "{}");
    receive(fd, &a, "body={}", 3000);
    CHECK_INT(first_status(&a), 200);
    buf_clear(&a.bytes);
    send_z(fd, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n[]");
    receive(fd, &a, "body=[]", 3000);
    CHECK_INT(first_status(&a), 200); /* the body was there already */
    answer_fini(&a);
    close(fd);
    rig_close(&g);
}

TEST(http_1_0_closes_unless_asked_to_keep_alive_and_streams_to_the_end)
{
    struct rig g;
    struct answer a;
    rig_open(&g, small(), on_request);
    ask(g.port, "GET /x HTTP/1.0\r\n\r\n", &a, 3000);
    CHECK(first_status(&a) == 200 && a.closed && has(&a, "Connection: close"));
    answer_fini(&a);
    ask(g.port, "GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /y HTTP/1.0\r\n\r\n", &a,
        3000);
    CHECK(count_answers(&a) == 2 && a.closed && has(&a, "Connection: keep-alive"));
    answer_fini(&a);
    ask(g.port, "GET /small-stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &a, 3000);
    CHECK(a.closed && str_ends(buf_view(&a.bytes), STR("\r\n\r\nonetwo")) && !has(&a, "chunked"));
    answer_fini(&a);
    rig_close(&g);
}

TEST(a_streamed_reply_is_chunked_and_the_connection_lives_on)
{
    struct rig g;
    struct answer a;
    rig_open(&g, small(), on_request);
    ask(g.port,
        GET("/small-stream") "HEAD /small-stream HTTP/1.1\r\nHost: a\r\n\r\n" GET_CLOSE("/x"), &a,
        3000);
    CHECK(has(
        &a,
        "Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n"));
    CHECK_INT(count_answers(&a), 3);
    CHECK_INT(count_of(buf_view(&a.bytes), "3\r\none"), 1); /* not for HEAD */
    answer_fini(&a);
    ask(g.port, "HEAD /small-stream HTTP/1.1\r\nHost: a\r\n\r\n" GET_CLOSE("/x"), &a, 3000);
    CHECK(count_answers(&a) == 2 && has(&a, "Content-Length: 6\r\n") && !has(&a, "chunked"));
    answer_fini(&a);
    rig_close(&g);
}

TEST(a_slow_reader_holds_the_writer_back_and_still_gets_every_byte)
{
    struct rig g;
    struct answer a;
    rig_open(&g, small(), on_request);
    atomic_store(&streamed, 0);
    int fd = dial(g.port);
    send_z(fd, GET_CLOSE("/stream"));
    usleep(200000);
    size_t before_reading = atomic_load(&streamed);
    /* the kernel's buffers of both sides (several MiB) plus write_high, far from all of it */
    CHECK_AT(before_reading < STREAM_BYTES,
             "all %zu bytes were made for a client that reads nothing", before_reading);
    answer_init(&a);
    receive(fd, &a, NULL, 3000);
    CHECK(a.closed && has(&a, "\r\n0\r\n\r\n"));
    CHECK_INT(count_of(buf_view(&a.bytes), "4000\r\n"), STREAM_BYTES / PIECE_BYTES);
    answer_fini(&a);
    close(fd);
    CHECK_INT(atomic_load(&streamed), STREAM_BYTES);
    rig_close(&g);
}

static bool gone_within(int wanted, int wait_ms)
{
    uint64_t until_ms = clock_ms() + (uint64_t)wait_ms;
    while (atomic_load(&n_gone) < wanted && clock_ms() < until_ms)
        usleep(1000);
    return atomic_load(&n_gone) == wanted;
}

TEST(a_writer_that_ignores_back_pressure_loses_the_connection_and_is_told)
{
    struct rig g;
    rig_open(&g, small(), on_request);
    atomic_store(&n_gone, 0);
    int fd = dial(g.port), small_buffer = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small_buffer, sizeof small_buffer);
    send_z(fd, GET("/blind"));
    CHECK(gone_within(1, 3000));
    close(fd);
    CHECK_INT(rig_stats(&g).open_connections, 0);
    rig_close(&g);
}

TEST(a_client_that_leaves_while_the_reply_is_awaited_is_noticed_at_once)
{
    struct rig g;
    rig_open(&g, small(), on_request);
    for (int how = 0; how < 3; how++) {
        atomic_store(&n_gone, 0);
        int fd = dial(g.port);
        send_z(fd, GET("/never"));
        usleep(30000);
        CHECK_INT(rig_stats(&g).open_requests, 1);
        uint64_t start_us = clock_us();
        struct linger hard = {1, 0};
        if (how == 1) setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard); /* a reset */
        if (how == 2)
            shutdown(fd, SHUT_WR); /* counts as leaving: see httpd_conn.c */
        else
            close(fd);
        CHECK(gone_within(1, 2000));
        CHECK_AT(clock_us() - start_us < 500000, "noticed after %llu us",
                 (unsigned long long)(clock_us() - start_us));
        if (how == 2) close(fd);
        CHECK_INT(rig_stats(&g).open_requests, 0);
    }
    rig_close(&g);
}

TEST(a_client_that_leaves_behind_a_flood_of_pipelined_bytes_is_noticed_too)
{
    struct rig g;
    struct httpd_options o = small();
    o.pipelined_max = 1;
    rig_open(&g, o, on_request);
    atomic_store(&n_gone, 0);
    static char junk[60000];
    int fd = dial(g.port);
    send_z(fd, GET("/never"));
    memset(junk, 'j', sizeof junk);
    send_all(fd, junk, sizeof junk);
    usleep(50000);
    close(fd);
    CHECK(gone_within(1, 3000));
    rig_close(&g);
}

TEST(a_half_closed_client_still_gets_replies_that_are_made_at_once)
{
    struct rig g;
    struct answer a;
    rig_open(&g, small(), on_request);
    int fd = dial(g.port);
    send_z(fd, GET("/one") GET("/two"));
    shutdown(fd, SHUT_WR);
    answer_init(&a);
    receive(fd, &a, NULL, 3000);
    CHECK(count_answers(&a) == 2 && a.closed);
    answer_fini(&a);
    close(fd);
    fd = dial(g.port);
    send_z(fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\n{");
    shutdown(fd, SHUT_WR);
    answer_init(&a);
    receive(fd, &a, NULL, 3000);
    CHECK(a.closed || a.reset); /* never left hanging */
    answer_fini(&a);
    close(fd);
    rig_close(&g);
}

TEST(an_aborted_stream_ends_without_its_last_chunk_and_tells_nobody_twice)
{
    struct rig g;
    struct answer a;
    rig_open(&g, small(), on_request);
    atomic_store(&n_gone, 0);
    ask(g.port, GET("/abort"), &a, 3000);
    CHECK(has(&a, "4\r\nsome\r\n") && !has(&a, "0\r\n\r\n"));
    CHECK(a.closed);
    answer_fini(&a);
    ask(g.port, "GET /abort HTTP/1.0\r\n\r\n", &a, 3000);
    CHECK(a.reset); /* a plain end would look like a whole reply */
    answer_fini(&a);
    CHECK_INT(atomic_load(&n_gone), 0);
    rig_close(&g);
}

TEST(silent_clients_are_timed_out_at_every_stage)
{
    struct rig g;
    struct answer a;
    struct httpd_options o = small();
    o.idle_timeout_ms = 60;
    o.header_timeout_ms = 80;
    o.body_timeout_ms = 80;
    o.write_timeout_ms = 150;
    rig_open(&g, o, on_request);
    ask(g.port, "", &a, 3000);
    CHECK(a.closed && a.bytes.n == 0);
    answer_fini(&a);
    ask(g.port, "GET / HT", &a, 3000);
    CHECK(first_status(&a) == 408 && a.closed);
    answer_fini(&a);
    ask(g.port, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n{", &a, 3000);
    CHECK(first_status(&a) == 408 && a.closed);
    answer_fini(&a);
    ask(g.port, GET("/x"), &a, 3000);
    CHECK(first_status(&a) == 200 && a.closed);
    answer_fini(&a);
    atomic_store(&n_gone, 0);
    int fd = dial(g.port), small_buffer = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small_buffer, sizeof small_buffer);
    send_z(fd, GET("/stream"));
    CHECK(gone_within(1, 3000));
    close(fd);
    rig_close(&g);
}

TEST(a_head_sent_byte_by_byte_cannot_outlast_its_deadline)
{
    struct rig g;
    struct answer a;
    struct httpd_options o = small();
    o.header_timeout_ms = 150;
    rig_open(&g, o, on_request);
    int fd = dial(g.port);
    uint64_t start_ms = clock_ms();
    bool open = true;
    for (int i = 0; open && i < 300; i++) {
        open = send_z(fd, i == 0 ? "GET / HTTP/1.1\r\nX: " : "x");
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 10) == 1) break;
    }
    CHECK_AT(clock_ms() - start_ms < 1500, "it took %llu ms",
             (unsigned long long)(clock_ms() - start_ms));
    answer_init(&a);
    receive(fd, &a, NULL, 3000);
    CHECK_INT(first_status(&a), 408);
    answer_fini(&a);
    close(fd);
    rig_close(&g);
}

TEST_MAIN()
