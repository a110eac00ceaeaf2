/* Goal: whatever targets do and whenever a caller loses patience, a call ends exactly once, in bounded time, and gives back what it took.
 * Method: real sockets on one loop: three servers that behave by chance (seeds are printed), hundreds of calls with chance cancels, with
 * and without hedging; and the cases where two legs meet, one by one. */
#include "gateway/call.h"

#include "base/clock.h"
#include "base/httpd.h"
#include "base/metrics.h"
#include "gateway/gateway.h"
#include "gateway/queue.h"
#include "gateway/series.h"
#include "tests/check.h"

enum { N_SERVERS = 3, CALLS_MAX = 256 };
enum behaviour { WELL, SLOW, ERROR_500, BUSY_503, LIMIT_429, ABORT, CUT, SILENT, N_BEHAVIOURS };

struct rig;
struct server {
    struct rig *rig;
    struct httpd *httpd;
    enum behaviour always; /* N_BEHAVIOURS = by chance */
    int asked;
};
struct held { /* a request that is answered later, or never */
    struct rig *rig;
    struct http_req *r;
    struct loop_timer *timer;
    struct held *next;
};
struct one {
    struct rig *rig;
    struct call *call;
    struct loop_timer *patience;
    int heads, ends;
    enum err code;
    int status;
    bool cancel_in_head;
};
struct rig {
    struct gateway gw;
    struct server servers[N_SERVERS];
    struct rng rng;
    struct held *held;
    struct one calls[CALLS_MAX];
    int n_calls, n_ended;
    struct loop_timer *stop;
    bool out_of_time;
    char upstreams[256];
};

/* --- servers */
static void answer(struct http_req *r)
{
    http_send(r, 200, "application/json", STR("{\"a\":1}"));
}

static void on_gone(void *arg)
{
    ((struct held *)arg)->r = NULL;
}

static void answer_later(void *arg)
{
    struct held *h = arg;
    if (!h->r) return;
    http_req_on_gone(h->r, NULL, NULL);
    answer(h->r);
    h->r = NULL;
}

static void hold(struct rig *g, struct http_req *r, uint64_t ms)
{
    struct held *h = calloc(1, sizeof *h);
    *h = (struct held){.rig = g, .r = r, .next = g->held};
    g->held = h;
    http_req_on_gone(r, on_gone, h);
    if (!ms) return;
    h->timer = loop_timer_new(g->gw.loop, answer_later, h);
    loop_timer_arm(h->timer, ms);
}

static void on_request(void *arg, struct http_req *r)
{
    struct server *s = arg;
    struct rig *g = s->rig;
    s->asked++;
    enum behaviour b =
        s->always < N_BEHAVIOURS ? s->always : (enum behaviour)rng_below(&g->rng, N_BEHAVIOURS);
    switch (b) {
    case SLOW:
        hold(g, r, 1 + rng_below(&g->rng, 60));
        break;
    case SILENT:
        hold(g, r, 0);
        break;
    case ERROR_500:
    case BUSY_503:
    case LIMIT_429:
        if (rng_below(&g->rng, 2)) http_set_header(r, "retry-after-ms", STR("3"));
        http_send(r, b == ERROR_500 ? 500 : b == BUSY_503 ? 503 : 429, "text/plain", STR("no"));
        break;
    case ABORT:
        http_abort(r);
        break;
    case CUT:
        http_start(r, 200, "text/plain");
        (void)http_write(r, STR("half"));
        http_abort(r);
        break;
    default:
        answer(r);
    }
}

/* --- the rig */
static void on_stop(void *arg)
{
    struct rig *g = arg;
    g->out_of_time = true;
    loop_stop(g->gw.loop);
}

static void rig_open(struct rig *g, uint64_t seed)
{
    struct errmsg e = {0};
    *g = (struct rig){0};
    rng_seed(&g->rng, seed);
    rng_seed(&g->gw.rng, seed + 1);
    CHECK_INT(loop_new(&g->gw.loop, &e), OK);
    g->gw.metrics = metrics_new();
    g->gw.series = series_new(g->gw.metrics);
    for (int i = 0; i < N_SERVERS; i++) {
        struct httpd_options o = {.host = "127.0.0.1"};
        struct httpd_handler h = {on_request, &g->servers[i]};
        size_t n = strlen(g->upstreams);
        g->servers[i] = (struct server){.rig = g, .always = N_BEHAVIOURS};
        CHECK_INT(httpd_listen(&g->servers[i].httpd, g->gw.loop, &o, &h, &e), OK);
        snprintf(g->upstreams + n, sizeof g->upstreams - n, "http://127.0.0.1:%d\n",
                 httpd_port(g->servers[i].httpd));
    }
    g->gw.o = (struct gateway_options){.upstreams = g->upstreams,
                                       .upstreams_file = "",
                                       .upstream_key = "k",
                                       .engine_url = "",
                                       .gateway_key = "",
                                       .probe = "off",
                                       .probe_model = "",
                                       .upstream_connect_ms = 500,
                                       .upstream_first_byte_ms = 80,
                                       .upstream_idle_ms = 80,
                                       .upstream_total_ms = 400,
                                       .upstream_retries = 2,
                                       .upstream_backoff_ms = 1,
                                       .upstream_retry_wait_ms = 20,
                                       .retry_budget_percent = 100,
                                       .breaker_failures = 3,
                                       .breaker_error_percent = 50,
                                       .breaker_open_ms = 20,
                                       .probe_ms = 1000,
                                       .body_bytes_max = 1 << 20};
    g->stop = loop_timer_new(g->gw.loop, on_stop, g);
}

static void rig_start(struct rig *g)
{
    struct errmsg e = {0};
    struct http_client_options client = {0};
    g->gw.client = http_client_new(g->gw.loop, &client);
    CHECK_INT(
        upstreams_open(&g->gw.upstreams, g->gw.loop, g->gw.client, &g->gw.o, g->gw.metrics, &e),
        OK);
    g->gw.queue = queue_open(&g->gw);
}

static void rig_close(struct rig *g)
{
    CHECK(!g->gw.calls);
    for (int i = 0; i < N_SERVERS; i++) {
        CHECK_INT(upstreams_at(g->gw.upstreams, i)->inflight, 0);
        httpd_close(g->servers[i].httpd);
    }
    while (g->held) {
        struct held *h = g->held;
        g->held = h->next;
        loop_timer_free(h->timer);
        free(h);
    }
    for (int i = 0; i < g->n_calls; i++)
        loop_timer_free(g->calls[i].patience);
    http_client_free(g->gw.client);
    queue_close(g->gw.queue);
    upstreams_close(g->gw.upstreams);
    loop_timer_free(g->stop);
    series_free(g->gw.series);
    metrics_free(g->gw.metrics);
    loop_free(g->gw.loop);
}

/* --- callers */
static void on_head(void *arg, const struct http_reply_head *head)
{
    struct one *x = arg;
    x->heads++;
    x->status = head->status;
    if (x->cancel_in_head) call_cancel(x->call);
}

static void on_body(void *arg, struct str bytes)
{
    struct one *x = arg;
    (void)bytes;
    CHECK(x->heads == 1 && !x->ends);
}

static void on_done(void *arg, enum err code, enum fault fault, bool head_seen)
{
    struct one *x = arg;
    (void)fault, (void)head_seen;
    x->ends++;
    x->code = code;
    x->call = NULL;
    if (++x->rig->n_ended == x->rig->n_calls) loop_stop(x->rig->gw.loop);
}

static void out_of_patience(void *arg)
{
    struct one *x = arg;
    if (x->call) call_cancel(x->call);
    if (x->call) call_cancel(x->call);
}

static struct one *begin(struct rig *g, bool repeatable, uint64_t patience_ms)
{
    struct one *x = &g->calls[g->n_calls++];
    struct header_list headers;
    headers_init(&headers);
    struct call_request r = {.method = "POST",
                             .path = STR("/v1/chat/completions"),
                             .headers = &headers,
                             .model = STR("m"),
                             .body = STR("{\"model\":\"m\"}"),
                             .repeatable = repeatable};
    struct call_handler h = {.on_head = on_head, .on_body = on_body, .on_done = on_done, .arg = x};
    x->rig = g;
    x->call = call_start(&g->gw, &r, &h);
    CHECK(!x->ends);
    if (patience_ms) {
        x->patience = loop_timer_new(g->gw.loop, out_of_patience, x);
        loop_timer_arm(x->patience, patience_ms);
    }
    headers_fini(&headers);
    return x;
}

static void run(struct rig *g)
{
    loop_timer_arm(g->stop, 20000);
    loop_run(g->gw.loop);
    CHECK(!g->out_of_time);
    loop_timer_arm(g->stop, 5); /* dropped legs end too */
    loop_run(g->gw.loop);
    g->out_of_time = false;
    for (int i = 0; i < g->n_calls; i++)
        CHECK_AT(g->calls[i].ends == 1 && g->calls[i].heads <= 1, "call %d: %d heads, %d ends", i,
                 g->calls[i].heads, g->calls[i].ends);
}

static void by_chance(uint64_t seed, int hedge_ms)
{
    struct rig g;
    int before = check_failures;
    rig_open(&g, seed);
    g.gw.o.upstream_hedge_ms = hedge_ms;
    rig_start(&g);
    for (int i = 0; i < 120; i++) {
        struct one *x = begin(&g, rng_below(&g.rng, 4) > 0,
                              rng_below(&g.rng, 3) ? 0 : 1 + rng_below(&g.rng, 120));
        x->cancel_in_head = rng_below(&g.rng, 8) == 0;
    }
    run(&g);
    rig_close(&g);
    if (check_failures != before)
        printf("    seed %llu hedge %d\n", (unsigned long long)seed, hedge_ms);
}

TEST(every_call_ends_once_whatever_targets_and_callers_do)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        by_chance(seed, 0);
        by_chance(seed, 10);
    }
}

TEST(faster_of_two_legs_is_taken_and_the_slower_one_let_go)
{
    struct rig g;
    rig_open(&g, 1);
    g.gw.o.upstream_hedge_ms = 10;
    rig_start(&g);
    for (int i = 0; i < N_SERVERS; i++)
        g.servers[i].always = i == 0 ? SILENT : WELL;
    for (int i = 0; i < 6; i++)
        begin(&g, true, 0);
    run(&g);
    for (int i = 0; i < 6; i++)
        CHECK_AT(g.calls[i].code == OK && g.calls[i].status == 200, "call %d", i);
    CHECK(metric_value(g.gw.series->hedges_won) >= 1);
    rig_close(&g);
}

TEST(when_both_legs_fail_the_call_ends_with_an_error)
{
    struct rig g;
    rig_open(&g, 1);
    g.gw.o.upstream_hedge_ms = 5;
    g.gw.o.upstream_retries = 1;
    rig_start(&g);
    for (int i = 0; i < N_SERVERS; i++)
        g.servers[i].always = SILENT;
    begin(&g, true, 0);
    run(&g);
    CHECK_INT(g.calls[0].code, ERR_TIMEOUT);
    CHECK_INT(g.calls[0].heads, 0);
    rig_close(&g);
}

TEST(what_may_have_been_carried_out_is_not_sent_twice)
{
    struct rig g;
    rig_open(&g, 1);
    g.gw.o.upstream_hedge_ms = 5;
    rig_start(&g);
    for (int i = 0; i < N_SERVERS; i++)
        g.servers[i].always = ABORT;
    begin(&g, false, 0);
    run(&g);
    CHECK_INT(g.servers[0].asked + g.servers[1].asked + g.servers[2].asked, 1);
    CHECK(g.calls[0].code != OK);
    rig_close(&g);
}

TEST(all_targets_are_asked_before_a_call_fails)
{
    struct rig g;
    rig_open(&g, 1);
    rig_start(&g);
    for (int i = 0; i < N_SERVERS; i++)
        g.servers[i].always = ERROR_500;
    begin(&g, true, 0);
    run(&g);
    for (int i = 0; i < N_SERVERS; i++)
        CHECK_INT(g.servers[i].asked, 1);
    CHECK_INT(g.calls[0].status, 500); /* the last one's words go on */
    rig_close(&g);
}

TEST(an_engine_that_computes_prompts_for_others_answers_only_when_no_other_can)
{
    struct rig g;
    rig_open(&g, 1);
    rig_start(&g);
    for (int i = 0; i < N_SERVERS; i++)
        g.servers[i].always = WELL;
    upstreams_at(g.gw.upstreams, 0)->prefill_only = true;
    for (int i = 0; i < 6; i++)
        begin(&g, true, 0);
    run(&g);
    CHECK_INT(g.servers[0].asked, 0);
    CHECK_INT(upstreams_targets(g.gw.upstreams, STR("m")), 6);
    g.servers[1].always = g.servers[2].always = ERROR_500;
    begin(&g, true, 0);
    run(&g);
    CHECK_INT(g.servers[0].asked, 1);
    CHECK_INT(g.calls[6].status, 200);
    upstreams_at(g.gw.upstreams, 1)->prefill_only = true;
    upstreams_at(g.gw.upstreams, 2)->prefill_only = true;
    CHECK_INT(upstreams_targets(g.gw.upstreams, STR("m")), 7);
    rig_close(&g);
}

TEST(who_computes_a_prompt_for_another_is_chosen_by_what_it_holds_and_its_work)
{
    struct rig g;
    float matched[UPSTREAMS_MAX] = {0, 0.5f, 0};
    struct upstream_want want = {.matched = matched, .load_weight = 1, .prompt_tokens = 20000};
    struct upstream_refusal no;
    rig_open(&g, 1);
    rig_start(&g);
    struct upstreams *u = g.gw.upstreams;
    for (int i = 1; i < N_SERVERS; i++)
        upstreams_at(u, i)->prefill_only = true;
    struct upstream *own = upstreams_pick(u, &want, &no);
    REQUIRE(own == upstreams_at(u, 0));
    CHECK_NEAR(own->work, 20000, 1);
    CHECK(!upstreams_pick_helper(u, &want, 0, 0));
    CHECK_NEAR(own->work, 20000, 100);                                  /* it fades */
    CHECK(upstreams_pick_helper(u, &want, 6, 0) == upstreams_at(u, 1)); /* it holds half */
    CHECK_NEAR(own->work, 0, 1);
    CHECK_NEAR(upstreams_at(u, 1)->work, 10000, 1);
    CHECK_INT(upstreams_at(u, 1)->inflight, 0);
    CHECK(upstreams_pick_helper(u, &want, 6, 0) == upstreams_at(u, 2)); /* the other has work now */
    upstream_pause(upstreams_at(u, 2), 60000, true);
    CHECK(!upstreams_pick_helper(u, &want, 4, 0));
    upstream_done(own);
    rig_close(&g);
}

TEST(spent_budget_stops_retries_and_hedges)
{
    struct rig g;
    rig_open(&g, 1);
    g.gw.o.retry_budget_percent = 0;
    g.gw.o.upstream_hedge_ms = 1;
    rig_start(&g);
    for (int i = 0; i < N_SERVERS; i++)
        g.servers[i].always = i ? WELL : ERROR_500;
    for (int i = 0; i < 6; i++)
        begin(&g, true, 0);
    run(&g);
    CHECK_INT(g.servers[0].asked + g.servers[1].asked + g.servers[2].asked, 6);
    rig_close(&g);
}

TEST(calls_left_at_the_end_of_the_program_end_then)
{
    struct rig g;
    rig_open(&g, 1);
    rig_start(&g);
    for (int i = 0; i < N_SERVERS; i++)
        g.servers[i].always = SILENT;
    for (int i = 0; i < 5; i++)
        begin(&g, true, 0);
    calls_end(&g.gw);
    for (int i = 0; i < 5; i++)
        CHECK(g.calls[i].ends == 1 && g.calls[i].code == ERR_CANCELLED);
    loop_run(g.gw.loop); /* their ends have stopped it already */
    loop_timer_arm(g.stop, 20);
    loop_run(g.gw.loop);
    rig_close(&g);
}

TEST_MAIN()
