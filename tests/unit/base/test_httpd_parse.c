/* test_httpd_parse.c - heads and bodies as bytes. Every case is fed whole, cut in two at every byte, and byte by byte; the
 * answer must not depend on the cut. Framing that two readers could see differently must be refused. */
#include "base/http_parse.h"
#include "base/mem.h"
#include "tests/check.h"

enum { HEADER_MAX = 2048, HEADERS_MAX = 12, BODY_MAX = 100 };

struct outcome {
    int status; /* 0 = accepted, -1 = more wanted */
    size_t used;
    int n_fields;
    bool keep_alive, expects;
    char body[256];
    size_t body_n;
};

/* One request from the pieces in[0..cut) and in[cut..n), step bytes at a time. */
static struct outcome feed(struct str in, size_t cut, size_t step)
{
    struct outcome o = {.status = -1};
    struct http_head h;
    struct http_body b = {0};
    struct http_refusal why = {0};
    bool head_done = false;
    http_head_init(&h, false, HEADER_MAX, HEADERS_MAX);
    while (o.used < in.n && o.status == -1) {
        size_t until = o.used < cut ? cut : in.n, n = until - o.used, used = 0;
        if (n > step) n = step;
        /* a copy of exactly n bytes, so that a read past the end is seen by the sanitizer */
        char *piece = xmalloc(n);
        memcpy(piece, in.p + o.used, n);
        struct str content = {NULL, 0}, bytes = {piece, n};
        if (!head_done) {
            enum err result = http_head_feed(&h, bytes, &used, &why);
            if (result == OK) {
                head_done = true;
                http_body_begin(&b, h.framing, h.length);
            } else if (result == ERR_INVALID) {
                o.status = why.status;
            }
        } else if (http_body_step(&b, bytes, &used, &content)) {
            o.status = 400;
        }
        if (o.body_n + content.n <= BODY_MAX)
            memcpy(o.body + o.body_n, content.p ? content.p : "", content.n);
        o.body_n += content.n;
        if (head_done && b.framing == HTTP_BODY_CHUNKED && o.body_n + b.left > BODY_MAX)
            o.status = 413;
        if (head_done && b.done && o.status == -1) o.status = 0;
        o.used += used;
        mem_free(piece);
    }
    o.n_fields = h.n_fields;
    o.keep_alive = h.keep_alive;
    o.expects = h.expects_continue;
    http_head_fini(&h);
    return o;
}

#define POST "POST /v1/x HTTP/1.1\r\nHost: a\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"
#define BYTES(lit) lit, sizeof(lit) - 1

static const struct request_case {
    const char *title, *in;
    size_t n;
    int status;
    const char *body; /* when accepted */
} requests[] = {
    {"plain GET", BYTES("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 0, ""},
    {"GET with a query", BYTES("GET /a/b?c=d&e HTTP/1.1\r\nHost: a\r\n\r\n"), 0, ""},
    {"two empty lines before", BYTES("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 0, ""},
    {"three empty lines before", BYTES("\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, ""},
    {"bare LF before", BYTES("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, ""},
    {"CR without LF before", BYTES("\rGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, ""},
    {"body by length", BYTES(POST "Content-Length: 4\r\n\r\nbody"), 0, "body"},
    {"body of no length", BYTES(POST "\r\n"), 0, ""},
    {"length zero", BYTES(POST "Content-Length: 0\r\n\r\n"), 0, ""},
    {"length with a leading zero and blanks", BYTES(POST "Content-Length:   02  \r\n\r\n{}"), 0,
     "{}"},
    {"short body", BYTES(POST "Content-Length: 5\r\n\r\nbody"), -1, ""},
    {"Content-Length and Transfer-Encoding",
     BYTES(POST "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400, ""},
    {"Transfer-Encoding and Content-Length",
     BYTES(POST "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"), 400, ""},
    {"two lengths that differ", BYTES(POST "Content-Length: 6\r\nContent-Length: 5\r\n\r\n"), 400,
     ""},
    {"two lengths that agree", BYTES(POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"), 400,
     ""},
    {"list of lengths", BYTES(POST "Content-Length: 5, 5\r\n\r\n"), 400, ""},
    {"length with plus", BYTES(POST "Content-Length: +2\r\n\r\n{}"), 400, ""},
    {"negative length", BYTES(POST "Content-Length: -1\r\n\r\n{}"), 400, ""},
    {"empty length", BYTES(POST "Content-Length: \r\n\r\n{}"), 400, ""},
    {"hexadecimal length", BYTES(POST "Content-Length: 0x2\r\n\r\n{}"), 400, ""},
    {"length above 64 bit", BYTES(POST "Content-Length: 99999999999999999999999\r\n\r\n{}"), 400,
     ""},
    {"gzip, chunked", BYTES(POST "Transfer-Encoding: gzip, chunked\r\n\r\n"), 501, ""},
    {"xchunked", BYTES(POST "Transfer-Encoding: xchunked\r\n\r\n"), 501, ""},
    {"chunked twice",
     BYTES(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), 400, ""},
    {"identity", BYTES(POST "Transfer-Encoding: identity\r\n\r\n"), 501, ""},
    {"chunked in HTTP/1.0", BYTES("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
     400, ""},
    {"chunked", BYTES(CHUNKED "2\r\n{}\r\n3;x=1\r\nabc\r\n0\r\n\r\n"), 0, "{}abc"},
    {"Chunked in capitals",
     BYTES(POST "transfer-encoding: CHUNKED\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n"), 0, "0123456789"},
    {"chunked with trailers", BYTES(CHUNKED "1\r\na\r\n0\r\nX-A: b\r\nX-C:\r\n\r\n"), 0, "a"},
    {"folded trailer", BYTES(CHUNKED "1\r\na\r\n0\r\nX-A: b\r\n c\r\n\r\n"), 400, ""},
    {"trailer with bare LF", BYTES(CHUNKED "1\r\na\r\n0\r\nX-A: b\n\r\n"), 400, ""},
    {"trailer without a name", BYTES(CHUNKED "1\r\na\r\n0\r\n: b\r\n\r\n"), 400, ""},
    {"last chunk then bare LF", BYTES(CHUNKED "1\r\na\r\n0\r\n\n"), 400, ""},
    {"last chunk then CR and something", BYTES(CHUNKED "1\r\na\r\n0\r\n\rX"), 400, ""},
    {"unfinished chunk", BYTES(CHUNKED "3\r\nab"), -1, ""},
    {"chunk size with 0x", BYTES(CHUNKED "0x2\r\n{}\r\n0\r\n\r\n"), 400, ""},
    {"negative chunk size", BYTES(CHUNKED "-2\r\n{}\r\n0\r\n\r\n"), 400, ""},
    {"chunk size with a blank before", BYTES(CHUNKED " 2\r\n{}\r\n0\r\n\r\n"), 400, ""},
    {"chunk size with a blank after", BYTES(CHUNKED "2 \r\n{}\r\n0\r\n\r\n"), 400, ""},
    {"chunk size of many zeros", BYTES(CHUNKED "00000000000000002\r\n{}\r\n0\r\n\r\n"), 400, ""},
    {"empty chunk size", BYTES(CHUNKED "\r\n{}\r\n0\r\n\r\n"), 400, ""},
    {"huge chunk size", BYTES(CHUNKED "7fffffffffffffff\r\n{}\r\n0\r\n\r\n"), 413, ""},
    {"chunk size over 63 bit", BYTES(CHUNKED "ffffffffffffffff\r\n{}\r\n0\r\n\r\n"), 413, ""},
    {"bare LF after the chunk size", BYTES(CHUNKED "2\n{}\r\n0\r\n\r\n"), 400, ""},
    {"CR and something after the chunk size", BYTES(CHUNKED "2\rx{}\r\n0\r\n\r\n"), 400, ""},
    {"something in place of CRLF after a chunk", BYTES(CHUNKED "2\r\n{}xx0\r\n\r\n"), 400, ""},
    {"chunk longer than its size", BYTES(CHUNKED "1\r\n{}\r\n0\r\n\r\n"), 400, ""},
    {"bare LF in a chunk extension", BYTES(CHUNKED "2;a\n{}\r\n0\r\n\r\n"), 400, ""},
    {"control byte in a chunk extension", BYTES(CHUNKED "2;a\x01\r\n{}\r\n0\r\n\r\n"), 400, ""},
    {"no Host", BYTES("GET / HTTP/1.1\r\n\r\n"), 400, ""},
    {"two Hosts", BYTES("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n"), 400, ""},
    {"Host with a path", BYTES("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"), 400, ""},
    {"Host with a blank", BYTES("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), 400, ""},
    {"Host of an IPv6 literal", BYTES("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"), 0, ""},
    {"no Host in HTTP/1.0", BYTES("GET / HTTP/1.0\r\n\r\n"), 0, ""},
    {"folded header", BYTES(POST "X-A: 1\r\n  folded\r\n\r\n"), 400, ""},
    {"first header folded", BYTES("GET / HTTP/1.1\r\n Host: a\r\n\r\n"), 400, ""},
    {"header without a colon", BYTES(POST "NoColon\r\n\r\n"), 400, ""},
    {"header without a name", BYTES(POST ": x\r\n\r\n"), 400, ""},
    {"blank before the colon", BYTES(POST "X-A : x\r\n\r\n"), 400, ""},
    {"blank before the colon of the length", BYTES(POST "Content-Length : 2\r\n\r\n{}"), 400, ""},
    {"bare LF in the head", BYTES(POST "X-A: b\nX-C: d\r\n\r\n"), 400, ""},
    {"bare LF at the end of the head", BYTES(POST "\n"), 400, ""},
    {"CR inside a value", BYTES(POST "X-A: b\rc\r\n\r\n"), 400, ""},
    {"NUL in a value", BYTES(POST "X-A: b\0c\r\n\r\n"), 400, ""},
    {"control byte in a value", BYTES(POST "X-A: \x01\r\n\r\n"), 400, ""},
    {"bytes over 0x7F in a value", BYTES(POST "X-A: \xe4\xbd\xa0\r\n\r\n"), 0, ""},
    {"tab and blanks around a value", BYTES(POST "X-A:\t b \t\r\n\r\n"), 0, ""},
    {"lower-case method", BYTES("post / HTTP/1.1\r\nHost: a\r\n\r\n"), 501, ""},
    {"unknown method", BYTES("BREW / HTTP/1.1\r\nHost: a\r\n\r\n"), 501, ""},
    {"CONNECT", BYTES("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"), 501, ""},
    {"method that is no token", BYTES("G(T / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, ""},
    {"two blanks after the method", BYTES("GET  / HTTP/1.1\r\nHost: a\r\n\r\n"), 400, ""},
    {"two blanks after the target", BYTES("GET /  HTTP/1.1\r\nHost: a\r\n\r\n"), 400, ""},
    {"blank in the target", BYTES("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"), 400, ""},
    {"tab in the target", BYTES("GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n"), 400, ""},
    {"byte over 0x7F in the target", BYTES("GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n"), 400, ""},
    {"fragment in the target", BYTES("GET /#f HTTP/1.1\r\nHost: a\r\n\r\n"), 400, ""},
    {"target without a slash", BYTES("GET a HTTP/1.1\r\nHost: a\r\n\r\n"), 400, ""},
    {"absolute form", BYTES("GET http://h:80/p?q HTTP/1.1\r\nHost: a\r\n\r\n"), 0, ""},
    {"absolute form of another scheme", BYTES("GET ftp://h/p HTTP/1.1\r\nHost: a\r\n\r\n"), 400,
     ""},
    {"star with OPTIONS", BYTES("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), 0, ""},
    {"star with GET", BYTES("GET * HTTP/1.1\r\nHost: a\r\n\r\n"), 400, ""},
    {"HTTP/0.9", BYTES("GET /\r\n\r\n"), 400, ""},
    {"HTTP/1.2", BYTES("GET / HTTP/1.2\r\nHost: a\r\n\r\n"), 505, ""},
    {"HTTP/2.0", BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505, ""},
    {"blank after the version", BYTES("GET / HTTP/1.1 \r\nHost: a\r\n\r\n"), 400, ""},
    {"another protocol", BYTES("GET / ICY/1.1\r\nHost: a\r\n\r\n"), 400, ""},
    {"hello of TLS", BYTES("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), 400, ""},
    {"upgrade is ignored",
     BYTES("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"), 0, ""},
    {"upgrade with a body",
     BYTES(POST "Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}"), 0, "{}"},
    {"expectation of 100", BYTES(POST "Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n{}"), 0,
     "{}"},
    {"another expectation", BYTES(POST "Expect: miracle\r\n\r\n"), 417, ""},
    {"as many headers as allowed",
     BYTES("GET / HTTP/1.1\r\nHost: a\r\n1: \r\n2: \r\n3: \r\n4: \r\n5: \r\n6: \r\n7: \r\n8: "
           "\r\n9: \r\n10: \r\n11: \r\n\r\n"),
     0, ""},
    {"one header too many",
     BYTES("GET / HTTP/1.1\r\nHost: a\r\n1: \r\n2: \r\n3: \r\n4: \r\n5: \r\n6: \r\n7: \r\n8: "
           "\r\n9: \r\n10: \r\n11: \r\n12: \r\n"),
     431, ""},
};
enum { N_REQUESTS = sizeof requests / sizeof requests[0] };

static void check_outcome(const struct request_case *c, struct outcome o, size_t cut, size_t step)
{
    CHECK_AT(o.status == c->status, "%s: cut at %zu, step %zu: status %d, not %d", c->title, cut,
             step, o.status, c->status);
    if (c->status) return;
    struct str body = {o.body, o.body_n};
    CHECK_AT(str_eqz(body, c->body), "%s: cut at %zu: body \"" STR_FMT "\"", c->title, cut,
             STR_ARG(body));
    CHECK_AT(o.used == c->n, "%s: cut at %zu: %zu of %zu bytes used", c->title, cut, o.used, c->n);
}

TEST(every_request_gets_the_same_answer_whole_cut_in_two_anywhere_and_byte_by_byte)
{
    for (size_t i = 0; i < N_REQUESTS; i++) {
        struct str in = {requests[i].in, requests[i].n};
        for (size_t cut = 0; cut < in.n; cut++)
            check_outcome(&requests[i], feed(in, cut, in.n), cut, in.n);
        check_outcome(&requests[i], feed(in, 0, 1), 0, 1);
    }
}

TEST(what_follows_a_request_is_left_alone)
{
    struct str in = STR(CHUNKED "2\r\n{}\r\n0\r\n\r\nGET /next");
    for (size_t cut = 0; cut < in.n; cut++) {
        struct outcome o = feed(in, cut, in.n);
        CHECK_INT(o.status, 0);
        CHECK_INT(in.n - o.used, 9);
    }
}

TEST(a_head_over_its_bound_is_refused_and_one_at_the_bound_is_not)
{
    static char text[HEADER_MAX + 100];
    for (int over = 0; over < 2; over++) {
        struct buf b;
        buf_init(&b, sizeof text);
        buf_z(&b, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
        while (b.n < HEADER_MAX - 4 + (size_t)over)
            buf_char(&b, 'x');
        buf_z(&b, "\r\n\r\n");
        CHECK_INT(feed(buf_view(&b), 0, b.n).status, over ? 431 : 0);
        CHECK_INT(feed(buf_view(&b), 0, 100).status, over ? 431 : 0);
        buf_fini(&b);
    }
}

TEST(a_chunk_extension_and_trailers_are_bounded)
{
    struct buf b;
    buf_init(&b, 100000);
    buf_z(&b, CHUNKED "2;");
    while (b.n < 5000)
        buf_char(&b, 'x');
    CHECK_INT(feed(buf_view(&b), 0, b.n).status, 400);
    buf_clear(&b);
    buf_z(&b, CHUNKED "0\r\n");
    while (b.n < 20000)
        buf_z(&b, "X-A: b\r\n");
    CHECK_INT(feed(buf_view(&b), 0, b.n).status, 400);
    buf_fini(&b);
}

struct head_case {
    const char *in, *path, *query;
    bool keep_alive, expects;
};

TEST(path_query_and_persistence_are_read_from_the_head)
{
    static const struct head_case cases[] = {
        {"GET /a?b?c HTTP/1.1\r\nHost: h\r\n\r\n", "/a", "b?c", true, false},
        {"GET /%41?  HTTP/1.1\r\nHost: h\r\n\r\n", NULL, NULL, false, false},
        {"GET /a? HTTP/1.1\r\nHost: h\r\nConnection: foo, Close\r\n\r\n", "/a", "", false, false},
        {"GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", "/", "", true, false},
        {"GET HTTPS://h?x HTTP/1.1\r\nHost: h\r\n\r\n", "/", "x", true, false},
        {"GET http://h/y/z?x HTTP/1.1\r\nHost: h\r\n\r\n", "/y/z", "x", true, false},
        {"GET / HTTP/1.0\r\n\r\n", "/", "", false, false},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "/", "", true, false},
        {"GET / HTTP/1.1\r\nHost:\r\nConnection: a\r\nConnection: close\r\n\r\n", "/", "", false,
         false},
        {"PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n", "/", "", true, true},
        {"PUT / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", "/", "", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct http_head h;
        struct http_refusal why;
        size_t used;
        http_head_init(&h, false, HEADER_MAX, HEADERS_MAX);
        enum err result = http_head_feed(&h, str_of(cases[i].in), &used, &why);
        CHECK_INT(result, cases[i].path ? OK : ERR_INVALID);
        if (result == OK) {
            CHECK_STR(h.path, cases[i].path);
            CHECK_STR(h.query, cases[i].query);
            CHECK_INT(h.keep_alive, cases[i].keep_alive);
            CHECK_INT(h.expects_continue, cases[i].expects);
        }
        http_head_fini(&h);
    }
}

TEST(fields_are_found_by_name_trimmed_and_in_order)
{
    struct http_head h;
    struct http_refusal why;
    size_t used;
    http_head_init(&h, false, HEADER_MAX, HEADERS_MAX);
    struct str in = STR(
        "GET / HTTP/1.1\r\nHost: h\r\nX-A:  one  two \r\nx-a: 2\r\nEmpty:\r\nTe: a, b ,c\r\n\r\n");
    REQUIRE(http_head_feed(&h, in, &used, &why) == OK);
    size_t n = (size_t)h.n_fields;
    CHECK_INT(n, 5);
    CHECK_STR(http_fields_find(h.fields, n, "x-A"), "one  two");
    CHECK_STR(http_fields_find(h.fields, n, "empty"), "");
    CHECK(http_fields_find(h.fields, n, "empty").p != NULL);
    CHECK(http_fields_find(h.fields, n, "absent").p == NULL);
    CHECK(http_fields_have_token(h.fields, n, "te", "B"));
    CHECK(!http_fields_have_token(h.fields, n, "te", "d"));
    http_head_clear(&h);
    CHECK_INT(h.n_fields, 0);
    CHECK(!http_head_begun(&h));
    http_head_fini(&h);
}

TEST(reply_heads_say_how_their_body_ends)
{
    static const struct {
        const char *in;
        int status, framing;
        bool keep_alive;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, HTTP_BODY_LENGTH, true},
        {"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n", 200, HTTP_BODY_LENGTH, true},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, HTTP_BODY_CHUNKED, true},
        {"HTTP/1.1 200 OK\r\n\r\n", 200, HTTP_BODY_TO_CLOSE, false},
        {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n", 200,
         HTTP_BODY_LENGTH, true},
        {"HTTP/1.1 204 No Content\r\n\r\n", 204, HTTP_BODY_NONE, true},
        {"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", 304, HTTP_BODY_NONE, true},
        {"HTTP/1.1 100 Continue\r\n\r\n", 100, HTTP_BODY_NONE, true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 0, 0, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 0, 0, false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", 0, 0, false},
        {"HTTP/1.1 2000 OK\r\n\r\n", 0, 0, false},
        {"HTTP/1.1 099 OK\r\n\r\n", 0, 0, false},
        {"HTTP/2 200\r\n\r\n", 0, 0, false},
        {"SSH-2.0-OpenSSH_9.2\r\n\r\n", 0, 0, false},
        {"<html>", 0, 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct http_head h;
        struct http_refusal why;
        size_t used;
        http_head_init(&h, true, HEADER_MAX, HEADERS_MAX);
        enum err result = http_head_feed(&h, str_of(cases[i].in), &used, &why);
        CHECK_AT(result == (cases[i].status ? OK : ERR_INVALID), "%s: %s", cases[i].in,
                 err_name(result));
        if (result == OK) {
            CHECK_INT(h.status, cases[i].status);
            CHECK_INT(h.framing, cases[i].framing);
            CHECK_INT(h.keep_alive, cases[i].keep_alive);
        }
        http_head_fini(&h);
    }
}

TEST_MAIN()
