/* test_httpd_storm.c - server and client against each other under a seed: handlers that reply at once, later, in pieces, cut
 * or never; callers that cancel, pause, leave. Invariants: every call ends exactly once, every request is answered or told
 * gone exactly once, whole replies carry the right bytes, nothing stays open. The sanitizer watches the order of frees. */
#define _GNU_SOURCE
#include "base/httpd.h"

#include "base/rng.h"
#include "tests/unit/base/client_rig.h"

enum { CALLS = 3000, AT_ONCE = 40, LEAVERS = 300 };

/* --- the server's side: what a handler does is written in the query by the caller, so that the caller knows */

enum manner {
    AT_ONCE_WHOLE,
    AT_ONCE_PIECES,
    LATER_WHOLE,
    LATER_PIECES,
    LATER_CUT,
    NEVER,
    N_MANNERS
};

static atomic_int n_taken, n_answered, n_gone;

struct task {
    struct rig *rig;
    struct http_req *req;
    struct loop_timer *timer;
    enum manner manner;
    size_t n, sent;
    bool started, blocked;
};

static void task_end(struct task *t)
{
    loop_timer_free(t->timer);
    mem_free(t);
}

static void task_gone(void *arg)
{
    atomic_fetch_add(&n_gone, 1);
    task_end(arg);
}

static void answered(struct task *t)
{
    atomic_fetch_add(&n_answered, 1);
    task_end(t);
}

static struct str bytes_of(size_t at, size_t n)
{
    static char bytes[70000];
    if (!bytes[0]) memset(bytes, 'b', sizeof bytes);
    return (struct str){bytes + at % 100, n};
}

static void write_some(void *arg)
{
    struct task *t = arg;
    struct http_req *r = t->req;
    if (!t->started) http_start(r, 200, "application/octet-stream");
    t->started = true;
    while (t->sent < t->n) {
        size_t n = t->n - t->sent < 7000 ? t->n - t->sent : 7000;
        t->sent += n;
        if (http_write(r, bytes_of(t->sent, n))) continue;
        t->blocked = true; /* on_writable goes on */
        return;
    }
    t->blocked = false;
    if (t->manner == LATER_CUT)
        http_abort(r);
    else
        http_end(r);
    answered(t);
}

static void writable(void *arg)
{
    if (((struct task *)arg)->blocked) write_some(arg);
}

static void act(void *arg)
{
    struct task *t = arg;
    if (t->manner != LATER_WHOLE) {
        write_some(t);
        return;
    }
    http_send(t->req, 200, NULL, bytes_of(0, t->n));
    answered(t);
}

static void on_request(void *arg, struct http_req *r)
{
    struct str query = http_req_query(r), part;
    int64_t manner = 0, n = 0, delay_ms = 0;
    atomic_fetch_add(&n_taken, 1);
    str_next(&query, '-', &part);
    ASSERT(str_to_i64(part, 0, N_MANNERS, &manner) == OK);
    str_next(&query, '-', &part);
    ASSERT(str_to_i64(part, 0, 60000, &n) == OK);
    ASSERT(str_to_i64(query, 0, 100, &delay_ms) == OK);
    if (manner == AT_ONCE_WHOLE) {
        http_send(r, 200, NULL, bytes_of(0, (size_t)n));
        atomic_fetch_add(&n_answered, 1);
        return;
    }
    struct task *t = xcalloc(1, sizeof *t);
    *t = (struct task){.rig = arg, .req = r, .manner = (enum manner)manner, .n = (size_t)n};
    t->timer = loop_timer_new(t->rig->loop, act, t);
    http_req_on_gone(r, task_gone, t);
    http_req_on_writable(r, writable, t);
    if (manner == AT_ONCE_PIECES)
        write_some(t);
    else if (manner != NEVER)
        loop_timer_arm(t->timer, (uint64_t)delay_ms);
}

/* --- the client's side */

struct storm {
    struct loop *loop;
    struct http_client *client;
    struct http_origin origin;
    struct rng rng;
    int n_started, n_ended, n_wrong;
};

struct caller {
    struct storm *storm;
    struct http_call *call;
    struct loop_timer *timer;
    enum manner manner;
    size_t n_wanted, n_seen;
    int n_ends;
    bool cancels, pauses, paused;
};

static void call_one(struct storm *s);

static void caller_timer(void *arg)
{
    struct caller *c = arg;
    if (c->paused) {
        c->paused = false;
        http_call_resume(c->call);
    }
    if (c->cancels) http_call_cancel(c->call);
}

static void caller_body(void *arg, struct str bytes)
{
    struct caller *c = arg;
    c->n_seen += bytes.n;
    if (!c->pauses || c->paused) return;
    c->pauses = false;
    c->paused = true;
    http_call_pause(c->call);
    loop_timer_arm(c->timer, 3);
}

static void caller_done(void *arg, enum err code, const struct errmsg *e)
{
    struct caller *c = arg;
    struct storm *s = c->storm;
    bool whole = c->manner != NEVER && c->manner != LATER_CUT;
    bool right = c->cancels ? code == OK || code == ERR_CANCELLED || (!whole && code)
                 : whole    ? code == OK
                            : code != OK;
    if (code == OK) right = right && c->n_seen == c->n_wanted;
    if (!right) {
        s->n_wrong++;
        printf("    manner %d, cancels %d: %s (%s), %zu of %zu bytes\n", (int)c->manner,
               (int)c->cancels, err_name(code), e->text, c->n_seen, c->n_wanted);
    }
    loop_timer_free(c->timer);
    mem_free(c);
    if (++s->n_ended == CALLS) loop_stop(s->loop);
    if (s->n_started < CALLS) call_one(s);
}

static void call_one(struct storm *s)
{
    struct caller *c = xcalloc(1, sizeof *c);
    char path[64];
    static const char *const methods[] = {"GET", "POST"};
    s->n_started++;
    c->storm = s;
    c->manner = (enum manner)rng_below(&s->rng, N_MANNERS);
    c->n_wanted = (size_t)rng_below(&s->rng, rng_below(&s->rng, 2) ? 60000 : 50);
    c->cancels = rng_below(&s->rng, 4) == 0;
    c->pauses = rng_below(&s->rng, 3) == 0;
    c->timer = loop_timer_new(s->loop, caller_timer, c);
    snprintf(path, sizeof path, "/x?%d-%zu-%d", (int)c->manner, c->n_wanted,
             (int)rng_below(&s->rng, 8));
    struct http_call_options opt = get_from(&s->origin);
    opt.method = methods[rng_below(&s->rng, 2)];
    opt.path = path;
    opt.body = bytes_of(0, opt.method[0] == 'P' ? (size_t)rng_below(&s->rng, 20000) : 0);
    opt.retry_stale = true;
    opt.connect_timeout_ms = opt.idle_timeout_ms =
        20000; /* a loaded machine must not decide the test */
    opt.first_byte_timeout_ms = c->manner == NEVER ? 15 : 20000;
    struct http_call_handler h = {NULL, caller_body, caller_done, c};
    c->call = http_call(s->client, &opt, &h);
    if (c->cancels) loop_timer_arm(c->timer, rng_below(&s->rng, 10));
}

/* Waits until all n_connections that carried something were accepted and are gone again: only then is nothing more on its
 * way into a handler. */
static void settle(struct rig *g, uint64_t n_connections)
{
    uint64_t until_ms = clock_ms() + 20000;
    struct httpd_stats stats = rig_stats(g);
    while ((stats.connections < n_connections || stats.open_connections) && clock_ms() < until_ms) {
        usleep(2000);
        stats = rig_stats(g);
    }
    CHECK_INT(stats.open_connections, 0);
    CHECK_INT(stats.open_requests, 0);
    CHECK_INT(atomic_load(&n_taken), stats.requests);
    CHECK_INT(atomic_load(&n_taken), atomic_load(&n_answered) + atomic_load(&n_gone));
}

TEST(every_call_ends_once_and_every_request_is_answered_or_told_gone_once)
{
    struct rig g;
    struct errmsg e = {0};
    struct storm s = {0};
    atomic_store(&n_taken, 0), atomic_store(&n_answered, 0), atomic_store(&n_gone, 0);
    rig_open(&g, (struct httpd_options){.write_high = 16384}, on_request);
    ASSERT(loop_new(&s.loop, &e) == OK);
    struct http_client_options options = {.idle_per_origin_max = 8};
    s.client = http_client_new(s.loop, &options);
    s.origin = origin_at("http://127.0.0.1", g.port);
    rng_seed(&s.rng, 20260131);
    for (int i = 0; i < AT_ONCE; i++)
        call_one(&s);
    loop_run(s.loop);
    CHECK_INT(s.n_ended, CALLS);
    CHECK_INT(s.n_wrong, 0);
    CHECK_INT(http_client_stats(s.client).open_calls, 0);
    uint64_t n_connections = http_client_stats(s.client).connections;
    http_client_free(s.client);
    loop_free(s.loop);
    settle(&g, n_connections);
    rig_close(&g);
}

/* Raw clients that leave in the middle of anything, pipelined requests included. */
TEST(clients_that_leave_at_any_byte_leave_nothing_behind)
{
    struct rig g;
    struct rng rng;
    atomic_store(&n_taken, 0), atomic_store(&n_answered, 0), atomic_store(&n_gone, 0);
    rig_open(&g, (struct httpd_options){.write_high = 16384, .pipelined_max = 1}, on_request);
    rng_seed(&rng, 7);
    for (int i = 0; i < LEAVERS; i++) {
        struct buf wire;
        buf_init(&wire, 1 << 20);
        int n_requests = 1 + (int)rng_below(&rng, 4);
        for (int k = 0; k < n_requests; k++)
            buf_printf(&wire,
                       "POST /x?%d-%d-%d HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
                       (int)rng_below(&rng, N_MANNERS), (int)rng_below(&rng, 60000),
                       (int)rng_below(&rng, 4));
        int fd = dial(g.port);
        size_t n = rng_below(&rng, 3) ? wire.n : (size_t)rng_below(&rng, wire.n);
        send_all(fd, wire.p, n);
        if (rng_below(&rng, 2)) usleep((unsigned)rng_below(&rng, 6000));
        char some[4096];
        if (rng_below(&rng, 2)) (void)!recv(fd, some, sizeof some, MSG_DONTWAIT);
        struct linger hard = {1, 0};
        if (rng_below(&rng, 3) == 0) setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        if (rng_below(&rng, 3) == 0) shutdown(fd, SHUT_WR);
        close(fd);
        buf_fini(&wire);
    }
    settle(&g, LEAVERS);
    rig_close(&g);
}

TEST_MAIN()
