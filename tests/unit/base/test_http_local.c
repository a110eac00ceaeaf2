/* Goal: a request made inside looks to a handler like one from a client, and its end comes once, from the loop, whatever the handler does.
 * Method: handlers that send, stream, cut, flood or keep quiet. */
#include "base/http_local.h"
#include "base/loop.h"
#include "base/mem.h"
#include "tests/check.h"

struct seen {
    struct loop *loop;
    int n_done, n_gone;
    enum err code;
    int status;
    char body[64];
};

static void on_done(void *arg, enum err code, int status, struct str body)
{
    struct seen *s = arg;
    s->n_done++;
    s->code = code;
    s->status = status;
    snprintf(s->body, sizeof s->body, STR_FMT, STR_ARG(body));
    loop_stop(s->loop);
}

static void on_gone(void *arg)
{
    ((struct seen *)arg)->n_gone++;
}

static struct http_local *begin(struct seen *s, size_t body_max)
{
    struct errmsg e = {0};
    static const struct http_header h[] = {{{"content-type", 12}, {"application/json", 16}},
                                           {{"authorization", 13}, {"Bearer k", 8}}};
    struct http_local_request q = {"POST", "/v1/x", h, 2, STR("{\"a\":1}"), body_max};
    *s = (struct seen){0};
    if (loop_new(&s->loop, &e) != OK) return NULL;
    struct http_local *l = http_local_new(s->loop, &q, on_done, s);
    http_req_on_gone(http_local_req(l), on_gone, s);
    return l;
}

static void end(struct seen *s, struct http_local *l)
{
    http_local_free(l);
    loop_free(s->loop);
}

TEST(handler_reads_method_path_headers_and_body_as_of_a_client)
{
    struct seen s;
    struct http_local *l = begin(&s, 100);
    struct http_req *r = http_local_req(l);
    struct str name, value;
    CHECK_STR(http_req_method(r), "POST");
    CHECK_STR(http_req_path(r), "/v1/x");
    CHECK_STR(http_req_target(r), "/v1/x");
    CHECK_INT(http_req_query(r).n, 0);
    CHECK_STR(http_req_header(r, "Authorization"), "Bearer k");
    CHECK_INT(http_req_n_headers(r), 2);
    http_req_header_at(r, 0, &name, &value);
    CHECK_STR(value, "application/json");
    CHECK_STR(http_req_body(r), "{\"a\":1}");
    CHECK_STR(http_req_peer(r), "inside");
    end(&s, l);
    CHECK_INT(s.n_gone, 1);
    CHECK_INT(s.n_done, 0);
}

TEST(reply_sent_whole_comes_back_from_the_loop_with_its_headers)
{
    struct seen s;
    struct http_local *l = begin(&s, 100);
    struct http_req *r = http_local_req(l);
    http_set_header(r, "Retry-After", STR("7"));
    http_set_header(r, "x-request-id", STR("req-1"));
    http_send(r, 429, "application/json", STR("slowly"));
    CHECK_INT(s.n_done, 0); /* not before the call has returned */
    loop_run(s.loop);
    CHECK_INT(s.n_done, 1);
    CHECK_INT(s.code, OK);
    CHECK_INT(s.status, 429);
    CHECK_STR(str_of(s.body), "slowly");
    CHECK_STR(http_local_header(l, "retry-after"), "7");
    CHECK_STR(http_local_header(l, "x-request-id"), "req-1");
    CHECK(!http_local_header(l, "x-none").p);
    end(&s, l);
    CHECK_INT(s.n_gone, 0);
}

TEST(reply_in_pieces_is_gathered_and_a_cut_one_is_told)
{
    struct seen s;
    struct http_local *l = begin(&s, 100);
    struct http_req *r = http_local_req(l);
    http_start(r, 200, "application/json");
    CHECK(http_write(r, STR("one ")));
    CHECK(http_write(r, STR("two")));
    http_end(r);
    loop_run(s.loop);
    CHECK_INT(s.code, OK);
    CHECK_STR(str_of(s.body), "one two");
    end(&s, l);
    l = begin(&s, 100);
    r = http_local_req(l);
    http_start(r, 200, NULL);
    CHECK(http_write(r, STR("half")));
    http_abort(r);
    loop_run(s.loop);
    CHECK_INT(s.code, ERR_CLOSED);
    CHECK_STR(str_of(s.body), "");
    end(&s, l);
}

TEST(reply_over_the_bound_ends_it_and_the_handler_sees_its_client_leave)
{
    struct seen s;
    struct http_local *l = begin(&s, 8);
    struct http_req *r = http_local_req(l);
    http_start(r, 200, NULL);
    CHECK(http_write(r, STR("12345678")));
    CHECK(!http_write(r, STR("9")));
    CHECK_INT(s.n_gone, 0);
    loop_run(s.loop);
    CHECK_INT(s.n_gone, 1);
    CHECK_INT(s.n_done, 1);
    CHECK_INT(s.code, ERR_TOO_LARGE);
    end(&s, l);
    l = begin(&s, 8);
    http_send(http_local_req(l), 200, NULL, STR("123456789"));
    loop_run(s.loop);
    CHECK_INT(s.n_done, 1);
    CHECK_INT(s.n_gone, 0);
    CHECK_INT(s.code, ERR_TOO_LARGE);
    end(&s, l);
}

TEST_MAIN()
