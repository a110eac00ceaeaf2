/* test_http_client.c - the client against a scripted upstream on loopback: where replies end, the
 * pool, the one second try, time-outs, cancelling, pausing. */
#define _GNU_SOURCE
#include "base/http_client.h"

#include "tests/unit/base/client_rig.h"

struct bench {
    struct loop *loop;
    struct http_client *client;
    struct upstream up;
    struct http_origin origin;
};

static void bench_open(struct bench *b, const struct script *scripts, int n)
{
    struct errmsg e = {0};
    ASSERT(loop_new(&b->loop, &e) == OK);
    b->client = http_client_new(b->loop, NULL);
    upstream_open(&b->up, scripts, n);
    b->origin = origin_at("http://127.0.0.1", b->up.port);
}

static void bench_close(struct bench *b)
{
    upstream_close(&b->up);
    http_client_free(b->client);
    loop_free(b->loop);
}

#define OK_REPLY "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: one\r\n\r\nhi"

TEST(a_call_sends_what_it_was_given_and_delivers_head_body_and_end)
{
    static const struct script s[] = {{.replies = {OK_REPLY}}};
    struct bench b;
    struct outcome o;
    bench_open(&b, s, 1);
    memcpy(b.origin.base_path, "/v1", 4);
    outcome_init(&o, b.loop);
    struct http_header headers[] = {{STR("Authorization"), STR("Bearer k")},
                                    {STR("host"), STR("evil")},
                                    {STR("Content-Length"), STR("99")},
                                    {STR("Transfer-Encoding"), STR("chunked")}};
    struct http_call_options opt = get_from(&b.origin);
    opt.method = "POST";
    opt.headers = headers;
    opt.n_headers = 4;
    opt.body = STR("{\"a\":1}");
    run_call(b.client, &opt, &o);
    CHECK_INT(o.code, OK);
    CHECK_INT(o.n_done, 1);
    CHECK_INT(o.status, 200);
    CHECK_Z(o.x_a, "one");
    CHECK_STR(buf_view(&o.body), "hi");
    struct str sent = str_of(b.up.request);
    CHECK(str_starts(sent, STR("POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1:")));
    CHECK(str_ends(sent, STR("\r\n\r\n{\"a\":1}")));
    CHECK(str_find(sent, STR("Authorization: Bearer k\r\n")) > 0);
    CHECK(str_find(sent, STR("Content-Length: 7\r\n")) > 0);
    CHECK(str_find(sent, STR("evil")) < 0 && str_find(sent, STR("chunked")) < 0);
    outcome_fini(&o);
    bench_close(&b);
}

static const struct ending_case {
    const char *title, *method;
    struct script script;
    enum err code;
    int status;
    const char *body;
} endings[] = {
    {"counted body", "GET", {.replies = {OK_REPLY}, .ending = ENDS_BY_STALL}, OK, 200, "hi"},
    {"counted body, byte by byte",
     "GET",
     {.replies = {OK_REPLY}, .ending = ENDS_BY_STALL, .step = 1},
     OK,
     200,
     "hi"},
    {"counted body cut",
     "GET",
     {.replies = {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi"}},
     ERR_CLOSED,
     200,
     "hi"},
    {"counted body reset",
     "GET",
     {.replies = {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi"}, .ending = ENDS_BY_RESET},
     ERR_CLOSED,
     200,
     "hi"},
    {"chunked",
     "GET",
     {.replies =
          {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1;x\r\n!\r\n0\r\n\r\n"},
      .ending = ENDS_BY_STALL,
      .step = 1},
     OK,
     200,
     "hi!"},
    {"chunked without the last chunk",
     "GET",
     {.replies = {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"}},
     ERR_CLOSED,
     200,
     "hi"},
    {"chunked cut inside the last chunk",
     "GET",
     {.replies = {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n"}},
     ERR_CLOSED,
     200,
     "hi"},
    {"chunked badly",
     "GET",
     {.replies = {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhi"}},
     ERR_CORRUPT,
     200,
     ""},
    {"ended by the connection", "GET", {.replies = {"HTTP/1.1 200 OK\r\n\r\nhi"}}, OK, 200, "hi"},
    {"ended by a reset instead",
     "GET",
     {.replies = {"HTTP/1.1 200 OK\r\n\r\nhi"}, .ending = ENDS_BY_RESET},
     ERR_CLOSED,
     200,
     "hi"},
    {"HTTP/1.0", "GET", {.replies = {"HTTP/1.0 200 OK\r\n\r\nhi"}}, OK, 200, "hi"},
    {"204",
     "GET",
     {.replies = {"HTTP/1.1 204 No Content\r\n\r\n"}, .ending = ENDS_BY_STALL},
     OK,
     204,
     ""},
    {"304 with a length",
     "GET",
     {.replies = {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"},
      .ending = ENDS_BY_STALL},
     OK,
     304,
     ""},
    {"HEAD",
     "HEAD",
     {.replies = {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"}, .ending = ENDS_BY_STALL},
     OK,
     200,
     ""},
    {"HEAD of a chunked reply",
     "HEAD",
     {.replies = {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
      .ending = ENDS_BY_STALL},
     OK,
     200,
     ""},
    {"interim replies",
     "POST",
     {.replies = {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" OK_REPLY},
      .ending = ENDS_BY_STALL},
     OK,
     200,
     "hi"},
    {"an upgrade nobody asked for",
     "GET",
     {.replies = {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"}},
     ERR_CORRUPT,
     0,
     ""},
    {"error status",
     "GET",
     {.replies = {"HTTP/1.1 503 Busy\r\nContent-Length: 1\r\n\r\n!"}},
     OK,
     503,
     "!"},
    {"closed before any reply", "GET", {.replies = {""}}, ERR_CLOSED, 0, ""},
    {"closed inside the head", "GET", {.replies = {"HTTP/1.1 200 OK\r\nConte"}}, ERR_CLOSED, 0, ""},
    {"not HTTP", "GET", {.replies = {"220 mail.example ESMTP\r\n\r\n"}}, ERR_CORRUPT, 0, ""},
    {"two lengths",
     "GET",
     {.replies = {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nhi"}},
     ERR_CORRUPT,
     0,
     ""},
    {"length and chunks",
     "GET",
     {.replies = {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nhi"}},
     ERR_CORRUPT,
     0,
     ""},
    {"larger than allowed by its length",
     "GET",
     {.replies = {"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\nhi"}},
     ERR_TOO_LARGE,
     0,
     ""},
    {"larger than allowed as it comes",
     "GET",
     {.replies = {"HTTP/1.1 200 OK\r\n\r\n"}, .bulk = 200},
     ERR_TOO_LARGE,
     200,
     ""},
};

TEST(a_reply_is_whole_only_when_its_framing_says_so)
{
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const struct ending_case *c = &endings[i];
        struct bench b;
        struct outcome o;
        bench_open(&b, &c->script, 1);
        outcome_init(&o, b.loop);
        struct http_call_options opt = get_from(&b.origin);
        opt.method = c->method;
        opt.body_max = 100;
        run_call(b.client, &opt, &o);
        CHECK_AT(o.code == c->code, "%s: %s (%s), not %s", c->title, err_name(o.code), o.e.text,
                 err_name(c->code));
        CHECK_AT(o.status == c->status, "%s: status %d", c->title, o.status);
        if (c->code != ERR_TOO_LARGE)
            CHECK_AT(str_eqz(buf_view(&o.body), c->body), "%s: body", c->title);
        CHECK_INT(o.n_done, 1);
        CHECK(o.code == OK || o.e.text[0]);
        outcome_fini(&o);
        bench_close(&b);
    }
}

TEST(a_header_larger_than_allowed_ends_the_call)
{
    static char big[70000];
    memset(big, 'x', sizeof big - 1);
    memcpy(big, "HTTP/1.1 200 OK\r\nX: ", 20);
    struct script s[] = {{.replies = {big}, .ending = ENDS_BY_STALL}};
    struct bench b;
    struct outcome o;
    bench_open(&b, s, 1);
    outcome_init(&o, b.loop);
    struct http_call_options opt = get_from(&b.origin);
    run_call(b.client, &opt, &o);
    CHECK_INT(o.code, ERR_TOO_LARGE);
    outcome_fini(&o);
    bench_close(&b);
}

static void call_times(struct bench *b, struct outcome *o, int n)
{
    struct http_call_options opt = get_from(&b->origin);
    opt.retry_stale = true;
    for (int i = 0; i < n; i++)
        run_call(b->client, &opt, o);
}

TEST(a_connection_is_used_again_and_not_when_told_or_dirty)
{
    static const struct script kept[] = {
        {.replies = {OK_REPLY, OK_REPLY, OK_REPLY}, .ending = ENDS_BY_STALL}};
    static const struct script told[] = {
        {.replies = {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
         .ending = ENDS_BY_STALL},
        {.replies = {OK_REPLY}}};
    static const struct script dirty[] = {{.replies = {OK_REPLY "junk"}, .ending = ENDS_BY_STALL},
                                          {.replies = {OK_REPLY}}};
    static const struct {
        const struct script *scripts;
        int n, calls, reused;
    } cases[] = {{kept, 1, 3, 2}, {told, 2, 2, 0}, {dirty, 2, 2, 0}};
    for (size_t i = 0; i < 3; i++) {
        struct bench b;
        struct outcome o;
        bench_open(&b, cases[i].scripts, cases[i].n);
        outcome_init(&o, b.loop);
        call_times(&b, &o, cases[i].calls);
        CHECK_INT(o.code, OK);
        CHECK_INT(o.n_heads, cases[i].calls);
        CHECK_INT(http_client_stats(b.client).reused, cases[i].reused);
        CHECK_INT(http_client_stats(b.client).connections, cases[i].n);
        outcome_fini(&o);
        bench_close(&b);
    }
}

static void stop_loop(void *arg)
{
    loop_stop(arg);
}
static void run_for(struct loop *l, uint64_t ms)
{
    struct loop_timer *t = loop_timer_new(l, stop_loop, l);
    loop_timer_arm(t, ms);
    loop_run(l);
    loop_timer_free(t);
}

TEST(a_stale_connection_is_replaced_once_only_when_nothing_had_come)
{
    static const struct script stale[] = {{.replies = {OK_REPLY}, .hang_up_on_next = true},
                                          {.replies = {OK_REPLY}}};
    static const struct script partial[] = {{.replies = {OK_REPLY, "HTTP/1.1 2"}},
                                            {.replies = {OK_REPLY}}};
    static const struct script fresh[] = {{.replies = {""}}, {.replies = {OK_REPLY}}};
    static const struct {
        const struct script *scripts;
        int calls;
        bool retry;
        enum err code;
        int retried;
    } cases[] = {{stale, 2, true, OK, 1},
                 {stale, 2, false, ERR_CLOSED, 0},
                 {partial, 2, true, ERR_CLOSED, 0},
                 {fresh, 1, true, ERR_CLOSED, 0}};
    for (size_t i = 0; i < 4; i++) {
        struct bench b;
        struct outcome o;
        bench_open(&b, cases[i].scripts, 2);
        outcome_init(&o, b.loop);
        struct http_call_options opt = get_from(&b.origin);
        opt.retry_stale = cases[i].retry;
        for (int k = 0; k < cases[i].calls; k++)
            run_call(b.client, &opt, &o);
        CHECK_AT(o.code == cases[i].code, "case %zu: %s", i, err_name(o.code));
        CHECK_INT(http_client_stats(b.client).retried, cases[i].retried);
        outcome_fini(&o);
        bench_close(&b);
    }
}

TEST(an_idle_connection_that_closes_or_grows_old_leaves_the_pool)
{
    static const struct script closes[] = {{.replies = {OK_REPLY}}};
    static const struct script stays[] = {{.replies = {OK_REPLY}, .ending = ENDS_BY_STALL}};
    for (int old = 0; old < 2; old++) {
        struct bench b;
        struct outcome o;
        bench_open(&b, old ? stays : closes, 1);
        http_client_free(b.client);
        struct http_client_options options = {.idle_timeout_ms = old ? 40 : 0};
        b.client = http_client_new(b.loop, &options);
        outcome_init(&o, b.loop);
        call_times(&b, &o, 1);
        CHECK(http_client_stats(b.client).idle_connections == 1 || !old);
        run_for(b.loop, 150);
        CHECK_INT(http_client_stats(b.client).idle_connections, 0);
        outcome_fini(&o);
        bench_close(&b);
    }
}

TEST(each_silence_has_its_time_out)
{
    static const struct script no_reply[] = {{.replies = {""}, .ending = ENDS_BY_STALL}};
    static const struct script no_end[] = {
        {.replies = {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi"}, .ending = ENDS_BY_STALL}};
    static const struct script half_head[] = {
        {.replies = {"HTTP/1.1 200 OK\r\nContent-"}, .ending = ENDS_BY_STALL}};
    const struct script *const scripts[] = {no_reply, no_end, half_head};
    for (size_t i = 0; i < 3; i++) {
        struct bench b;
        struct outcome o;
        bench_open(&b, scripts[i], 1);
        outcome_init(&o, b.loop);
        struct http_call_options opt = get_from(&b.origin);
        opt.first_byte_timeout_ms = opt.idle_timeout_ms = 60;
        uint64_t start_ms = clock_ms();
        run_call(b.client, &opt, &o);
        CHECK_INT(o.code, ERR_TIMEOUT);
        CHECK(clock_ms() - start_ms >= 60 && clock_ms() - start_ms < 1500);
        outcome_fini(&o);
        bench_close(&b);
    }
}

TEST(a_head_that_began_in_time_may_end_later)
{
    static const struct script s[] = {
        {.replies = {OK_REPLY}, .step = sizeof OK_REPLY / 2, .pause_ms = 150}};
    struct bench b;
    struct outcome o;
    bench_open(&b, s, 1);
    outcome_init(&o, b.loop);
    struct http_call_options opt = get_from(&b.origin);
    opt.first_byte_timeout_ms = 60;
    opt.idle_timeout_ms = 5000;
    run_call(b.client, &opt, &o);
    CHECK_INT(o.code, OK);
    CHECK_INT(o.status, 200);
    outcome_fini(&o);
    bench_close(&b);
}

TEST(a_peer_that_takes_no_byte_of_the_request_times_out)
{
    int port, fd = listen_local(8, &port); /* the kernel accepts, nobody reads */
    static const struct script none[] = {{.replies = {""}}};
    struct bench b;
    struct outcome o;
    bench_open(&b, none, 1);
    struct http_origin origin = origin_at("http://127.0.0.1", port);
    outcome_init(&o, b.loop);
    static char big[16 << 20];
    memset(big, 'x', sizeof big);
    struct http_call_options opt = get_from(&origin);
    opt.method = "POST";
    opt.body = (struct str){big, sizeof big};
    opt.idle_timeout_ms = 100;
    opt.first_byte_timeout_ms = 60000;
    run_call(b.client, &opt, &o);
    CHECK_INT(o.code, ERR_TIMEOUT);
    CHECK(strstr(o.e.text, "took no byte"));
    outcome_fini(&o);
    bench_close(&b);
    close(fd);
}

TEST(no_connection_is_unavailable_with_the_reason)
{
    static const struct script none[] = {{.replies = {""}}};
    int port, fd = listen_local(0, &port), fill[8];
    struct bench b;
    struct outcome o;
    bench_open(&b, none, 1);
    for (int i = 0; i < 8; i++) { /* fills the backlog, so that the next connect gets no answer */
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(fill[i], (struct sockaddr *)&a, sizeof a);
    }
    usleep(20000);
    struct http_origin silent = origin_at("http://127.0.0.1", port);
    outcome_init(&o, b.loop);
    struct http_call_options opt = get_from(&silent);
    opt.connect_timeout_ms = 80;
    run_call(b.client, &opt, &o);
    CHECK_INT(o.code, ERR_UNAVAILABLE);
    CHECK_AT(strstr(o.e.text, "within 80 ms"), "%s", o.e.text);
    for (int i = 0; i < 8; i++)
        close(fill[i]);
    close(fd);
    run_call(b.client, &opt, &o); /* nobody listens now */
    CHECK_INT(o.code, ERR_UNAVAILABLE);
    CHECK_AT(strstr(o.e.text, "refused"), "%s", o.e.text);
    struct http_origin unknown = origin_at("http://no-such-host.invalid", 80);
    opt.origin = &unknown;
    opt.connect_timeout_ms = 3000;
    run_call(b.client, &opt, &o);
    CHECK_INT(o.code, ERR_UNAVAILABLE);
    CHECK_AT(strstr(o.e.text, "no-such-host.invalid"), "%s", o.e.text);
    outcome_fini(&o);
    bench_close(&b);
}

TEST(a_name_is_looked_up_without_blocking_and_localhost_needs_no_thread)
{
    static const struct script s[] = {{.replies = {OK_REPLY}, .ending = ENDS_BY_STALL},
                                      {.replies = {OK_REPLY}}};
    struct bench b;
    struct outcome o;
    bench_open(&b, s, 2);
    outcome_init(&o, b.loop);
    struct http_origin local = origin_at("http://LOCALHOST", b.up.port);
    struct http_call_options opt = get_from(&local);
    run_call(b.client, &opt, &o);
    CHECK_AT(o.code == OK, "%s", o.e.text);
    /* two look-ups of one name at once, both abandoned: the client must not wait for the name
     * server */
    struct http_origin unknown = origin_at("http://no-such-host.invalid", 80);
    opt.origin = &unknown;
    o.stop_when_done = false;
    struct http_call_handler h = out_handler(&o);
    http_call_cancel(http_call(b.client, &opt, &h));
    (void)http_call(b.client, &opt, &h);
    uint64_t start_ms = clock_ms();
    bench_close(&b);
    CHECK(clock_ms() - start_ms < 1000);
    CHECK_INT(o.n_done, 3);
    outcome_fini(&o);
}

TEST(a_call_can_be_cancelled_at_any_time_and_more_than_once)
{
    static const struct script s[] = {
        {.replies = {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi"}, .ending = ENDS_BY_STALL}};
    for (int when = 0; when < 4; when++) {
        struct bench b;
        struct outcome o;
        bench_open(&b, s, 1);
        outcome_init(&o, b.loop);
        o.cancel_in_head = when == 1;
        o.cancel_in_body = when == 2;
        struct http_call_options opt = get_from(&b.origin);
        struct http_call_handler h = out_handler(&o);
        o.call = http_call(b.client, &opt, &h);
        if (when == 3) {
            o.stop_when_done = false;
            run_for(b.loop, 50);
        }
        if (when == 0 || when == 3) {
            http_call_cancel(o.call);
            http_call_cancel(o.call);
            CHECK_INT(o.n_done, 0);
            o.stop_when_done = true;
        }
        loop_run(b.loop);
        CHECK_INT(o.code, ERR_CANCELLED);
        CHECK_INT(o.n_done, 1);
        CHECK_INT(o.body.n, when >= 2 ? 2 : 0);
        outcome_fini(&o);
        bench_close(&b);
    }
}

TEST(a_paused_call_holds_the_upstream_back_and_goes_on_where_it_was)
{
    enum { BULK = 16 << 20 };
    static const struct script s[] = {{.replies = {"HTTP/1.1 200 OK\r\n\r\n"}, .bulk = BULK}};
    struct bench b;
    struct outcome o;
    bench_open(&b, s, 1);
    outcome_init(&o, b.loop);
    o.pause_in_body = true;
    struct http_call_options opt = get_from(&b.origin);
    opt.idle_timeout_ms = 100; /* must not count while paused */
    struct http_call_handler h = out_handler(&o);
    o.call = http_call(b.client, &opt, &h);
    run_for(b.loop, 250);
    CHECK_INT(o.n_done, 0);
    CHECK_AT(o.body.n > 0 && o.body.n <= 65536, "%zu bytes delivered", o.body.n);
    size_t sent = atomic_load(&b.up.bulk_sent);
    CHECK_AT(sent < BULK, "the upstream sent all %zu bytes", sent);
    o.pause_in_body = false;
    http_call_resume(o.call);
    loop_run(b.loop);
    CHECK_INT(o.code, OK);
    CHECK_INT(o.body.n, BULK);
    outcome_fini(&o);
    bench_close(&b);
}

TEST(a_call_that_cannot_be_sent_is_invalid)
{
    static const struct script none[] = {{.replies = {""}}};
    struct bench b;
    struct outcome o;
    bench_open(&b, none, 1);
    outcome_init(&o, b.loop);
    struct http_header bad_value = {STR("X"), STR("a\r\nY: b")}, bad_name = {STR("X Y"), STR("a")};
    struct http_call_options base = get_from(&b.origin), cases[5] = {base, base, base, base, base};
    cases[0].headers = &bad_value, cases[0].n_headers = 1;
    cases[1].headers = &bad_name, cases[1].n_headers = 1;
    cases[2].path = "/a b";
    cases[3].path = "a";
    cases[4].method = "GE T";
    for (int i = 0; i < 5; i++) {
        run_call(b.client, &cases[i], &o);
        CHECK_INT(o.code, ERR_INVALID);
    }
    CHECK_INT(http_client_stats(b.client).connections, 0);
    outcome_fini(&o);
    bench_close(&b);
}

TEST(freeing_the_client_ends_running_calls_as_cancelled)
{
    static const struct script s[] = {{.replies = {""}, .ending = ENDS_BY_STALL}};
    struct bench b;
    struct outcome o;
    bench_open(&b, s, 1);
    outcome_init(&o, b.loop);
    struct http_call_options opt = get_from(&b.origin);
    struct http_call_handler h = out_handler(&o);
    (void)http_call(b.client, &opt, &h);
    (void)http_call(b.client, &opt, &h);
    run_for(b.loop, 30);
    bench_close(&b);
    CHECK_INT(o.n_done, 2);
    CHECK_INT(o.code, ERR_CANCELLED);
    outcome_fini(&o);
}

TEST_MAIN()
