/* Goal: thousands of calls over few connections lose nothing. Method: our client against our own
 * server, both on one loop. */
#define _GNU_SOURCE
#include "base/http_client.h"
#include "base/httpd.h"
#include "tests/unit/base/client_rig.h"

static void serve(void *arg, struct http_req *r)
{
    (void)arg;
    struct str body = http_req_body(r);
    http_start(r, 200, "text/plain");
    for (size_t at = 0; at < body.n; at += 1000)
        http_write(r, str_sub(body, at, 1000));
    http_end(r);
}

struct crowd {
    struct loop *loop;
    struct http_client *client;
    struct http_origin origin;
    int n_started, n_ended, n_wrong;
};
struct member {
    struct crowd *crowd;
    size_t n_sent, n_seen;
};
enum { CALLS = 2000, AT_ONCE = 50 };

static void member_start(struct crowd *c);
static void member_body(void *arg, struct str bytes)
{
    ((struct member *)arg)->n_seen += bytes.n;
}
static void member_done(void *arg, enum err code, const struct errmsg *e)
{
    (void)e;
    struct member *m = arg;
    struct crowd *c = m->crowd;
    if (code || m->n_seen != m->n_sent) c->n_wrong++;
    mem_free(m);
    if (++c->n_ended == CALLS) loop_stop(c->loop);
    if (c->n_started < CALLS) member_start(c);
}
static void member_start(struct crowd *c)
{
    static char bytes[8192];
    struct member *m = xcalloc(1, sizeof *m);
    m->crowd = c;
    m->n_sent = (size_t)c->n_started++ * 37 % sizeof bytes;
    struct http_call_options opt = get_from(&c->origin);
    opt.method = "POST";
    opt.body = (struct str){bytes, m->n_sent};
    opt.retry_stale = true;
    struct http_call_handler h = {NULL, member_body, member_done, m};
    (void)http_call(c->client, &opt, &h);
}

TEST(thousands_of_calls_over_few_connections_lose_nothing)
{
    struct rig g;
    struct errmsg e = {0};
    struct crowd c = {0};
    rig_open(&g, (struct httpd_options){0}, serve);
    ASSERT(loop_new(&c.loop, &e) == OK);
    c.client = http_client_new(c.loop, NULL);
    c.origin = origin_at("http://127.0.0.1", g.port);
    for (int i = 0; i < AT_ONCE; i++)
        member_start(&c);
    loop_run(c.loop);
    CHECK_INT(c.n_ended, CALLS);
    CHECK_INT(c.n_wrong, 0);
    struct http_client_stats stats = http_client_stats(c.client);
    CHECK_INT(stats.open_calls, 0);
    CHECK_AT(stats.connections < 10 * AT_ONCE, "%llu connections",
             (unsigned long long)stats.connections);
    CHECK(stats.idle_connections <= 32);
    http_client_free(c.client);
    loop_free(c.loop);
    rig_close(&g);
    http_client_free(NULL);
}

TEST(urls_become_origins_or_an_error_with_a_sentence)
{
    static const struct {
        const char *url, *host, *base;
        int port;
        bool tls;
    } good[] = {
        {"http://a", "a", "", 80, false},
        {"HTTPS://API.Example.com/v1/", "api.example.com", "/v1", 443, true},
        {"http://127.0.0.1:8000/v1//", "127.0.0.1", "/v1", 8000, false},
        {"http://[::1]:9/x/y", "::1", "/x/y", 9, false},
        {"https://[2001:db8::1]", "2001:db8::1", "", 443, true},
    };
    static const char *const bad[] = {"",
                                      "a",
                                      "ftp://a",
                                      "http://",
                                      "http://:80",
                                      "http://a:",
                                      "http://a:0",
                                      "http://a:65536",
                                      "http://a:x",
                                      "http://u:p@a",
                                      "http://a?q",
                                      "http://a/b?q",
                                      "http://a/#f",
                                      "http://a b",
                                      "http://a/b c",
                                      "http://[::1",
                                      "http://[]",
                                      "http://[::1]x",
                                      "http://::1",
                                      "http://a\r\nb"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct http_origin o;
        CHECK_INT(http_origin_parse(str_of(good[i].url), &o, NULL), OK);
        CHECK_Z(o.host, good[i].host);
        CHECK_Z(o.base_path, good[i].base);
        CHECK_INT(o.port, good[i].port);
        CHECK_INT(o.tls, good[i].tls);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct http_origin o;
        struct errmsg e = {0};
        CHECK_AT(http_origin_parse(str_of(bad[i]), &o, &e) != OK, "\"%s\" was taken", bad[i]);
        CHECK(e.text[0]);
    }
}

TEST_MAIN()
