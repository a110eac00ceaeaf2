/* test_httpd_life.c - listening, sharing a port between loops, the maximum of connections, drain, close. */
#define _GNU_SOURCE
#include "base/httpd.h"

#include <stdatomic.h>

#include "tests/unit/base/net_rig.h"

static atomic_int n_gone;

struct later {
    struct http_req *req;
    struct loop_timer *timer;
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
    later_free(x);
}

static void on_request(void *arg, struct http_req *r)
{
    struct rig *g = arg;
    struct str path = http_req_path(r);
    if (!str_eqz(path, "/later") && !str_eqz(path, "/never")) {
        http_set_headerf(r, "X-Port", "%d", httpd_port(g->server));
        http_send(r, 200, "text/plain", http_req_peer(r));
        return;
    }
    struct later *x = xcalloc(1, sizeof *x);
    x->req = r;
    x->timer = loop_timer_new(g->loop, later_reply, x);
    http_req_on_gone(r, later_gone, x);
    if (str_eqz(path, "/later")) loop_timer_arm(x->timer, 30);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"
#define GET_CLOSE(path) "GET " path " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

TEST(connections_over_the_maximum_get_503)
{
    struct rig g;
    struct answer a;
    struct httpd_options o = {0};
    o.connections_max = 2;
    rig_open(&g, o, on_request);
    int one = dial(g.port), two = dial(g.port);
    usleep(20000);
    ask(g.port, GET("/x"), &a, 3000);
    CHECK(first_status(&a) == 503 && a.closed && has(&a, "\"type\":\"server_error\""));
    answer_fini(&a);
    close(one);
    usleep(50000);
    ask(g.port, GET_CLOSE("/x"), &a, 3000);
    CHECK_INT(first_status(&a), 200);
    answer_fini(&a);
    close(two);
    rig_close(&g);
}

static atomic_int n_drained;
static void drained(void *arg)
{
    (void)arg;
    atomic_fetch_add(&n_drained, 1);
}
static void drain(void *arg)
{
    httpd_drain(arg, drained, NULL);
}

TEST(drain_lets_running_replies_end_closes_the_idle_and_accepts_no_more)
{
    struct rig g;
    struct answer a;
    rig_open(&g, (struct httpd_options){0}, on_request);
    atomic_store(&n_drained, 0);
    int idle = dial(g.port), busy = dial(g.port);
    send_z(busy, GET("/later"));
    send_z(idle, GET("/x"));
    answer_init(&a);
    receive(idle, &a, "\r\n\r\n127.0.0.1", 2000);
    answer_fini(&a);
    usleep(10000);
    rig_do(&g, drain, g.server);
    answer_init(&a);
    receive(idle, &a, NULL, 2000);
    CHECK(a.closed && a.bytes.n == 0);
    receive(busy, &a, NULL, 2000);
    CHECK(a.closed && has(&a, "later") && has(&a, "Connection: close"));
    answer_fini(&a);
    close(idle);
    close(busy);
    usleep(30000);
    CHECK_INT(atomic_load(&n_drained), 1);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)g.port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) != 0);
    close(fd);
    rig_close(&g);
}

static void block_and_drain(void *arg)
{
    usleep(100000); /* meanwhile clients connect, and nobody accepts */
    httpd_drain(arg, drained, NULL);
}

TEST(who_has_connected_before_the_drain_is_answered_and_who_asks_nothing_waits_for_nothing)
{
    struct rig g;
    struct answer a;
    rig_open(&g, (struct httpd_options){0}, on_request);
    atomic_store(&n_drained, 0);
    CHECK(loop_post(g.loop, block_and_drain, g.server) == OK);
    usleep(30000);
    int asks = dial(g.port), slow = dial(g.port), silent = dial(g.port), blank = dial(g.port);
    send_z(asks, GET("/x"));
    send_z(blank, "\r\n");
    usleep(150000);
    send_z(slow, GET("/x")); /* within its moment */
    int fds[] = {asks, slow, silent, blank};
    for (int i = 0; i < 4; i++) {
        answer_init(&a);
        receive(fds[i], &a, NULL, 2000);
        CHECK(a.closed);
        CHECK_INT(has(&a, "HTTP/1.1 200 OK") && has(&a, "Connection: close"), i < 2);
        answer_fini(&a);
        close(fds[i]);
    }
    usleep(30000);
    CHECK_INT(atomic_load(&n_drained), 1);
    rig_close(&g);
}

TEST(closing_the_server_tells_the_owners_of_unanswered_requests)
{
    struct rig g;
    rig_open(&g, (struct httpd_options){0}, on_request);
    atomic_store(&n_gone, 0);
    int fd = dial(g.port), other = dial(g.port);
    send_z(fd, GET("/never"));
    send_z(other, GET("/x"));
    usleep(30000);
    rig_close(&g);
    CHECK_INT(atomic_load(&n_gone), 1);
    close(fd);
    close(other);
}

TEST(a_port_in_use_and_a_wrong_host_are_errors_with_a_sentence)
{
    struct rig g;
    struct errmsg e = {0};
    struct httpd *second = NULL;
    rig_open(&g, (struct httpd_options){0}, on_request);
    struct httpd_options o = {.port = g.port};
    struct httpd_handler h = {on_request, NULL};
    CHECK_INT(httpd_listen(&second, g.loop, &o, &h, &e), ERR_UNAVAILABLE);
    CHECK(strstr(e.text, "is in use"));
    o.reuse_port =
        true; /* of ours or not: only one that says it joins may share, and only where that was offered */
    CHECK_INT(httpd_listen(&second, g.loop, &o, &h, &e), ERR_UNAVAILABLE);
    o.joins_port = true;
    CHECK_INT(httpd_listen(&second, g.loop, &o, &h, &e), ERR_UNAVAILABLE);
    o = (struct httpd_options){.host = "256.1.1.1"};
    CHECK_INT(httpd_listen(&second, g.loop, &o, &h, &e), ERR_INVALID);
    o = (struct httpd_options){.port = 70000};
    CHECK_INT(httpd_listen(&second, g.loop, &o, &h, &e), ERR_RANGE);
    rig_close(&g);
    httpd_close(NULL);
}

TEST(loops_share_a_port_that_was_offered_and_both_serve)
{
    enum { ASKED = 60 };
    struct rig one, two;
    struct answer a;
    rig_open(&one, (struct httpd_options){.reuse_port = true}, on_request);
    rig_open(&two, (struct httpd_options){.port = one.port, .reuse_port = true, .joins_port = true},
             on_request);
    CHECK_INT(two.port, one.port);
    for (int i = 0; i < ASKED; i++) {
        ask(one.port, GET_CLOSE("/x"), &a, 3000);
        CHECK_INT(first_status(&a), 200);
        answer_fini(&a);
    }
    uint64_t n_one = rig_stats(&one).requests, n_two = rig_stats(&two).requests;
    CHECK_INT(n_one + n_two, ASKED);
    CHECK_AT(n_one && n_two, "%d and %d", (int)n_one, (int)n_two);
    rig_close(&one);
    rig_close(&two);
}

TEST(a_client_over_ipv6_is_named_and_known_as_local)
{
    struct rig g;
    struct answer a;
    int probe = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool there = probe >= 0 && bind(probe, (struct sockaddr *)&any, sizeof any) == 0;
    if (probe >= 0) close(probe);
    if (!there) SKIP("this machine has no IPv6 loopback");
    rig_open(&g, (struct httpd_options){.host = "::1"}, on_request);
    any.sin6_port = htons((uint16_t)g.port);
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    REQUIRE(connect(fd, (struct sockaddr *)&any, sizeof any) == 0);
    answer_init(&a);
    send_z(fd, GET_CLOSE("/x"));
    receive(fd, &a, NULL, 3000);
    CHECK(has(&a, "\r\n\r\n[::1]:"));
    answer_fini(&a);
    close(fd);
    rig_close(&g);
}

TEST_MAIN()
