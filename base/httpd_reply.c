/* httpd_reply.c - what a handler sees of a request and says in reply. Every call tolerates a connection that has died a
 * moment ago: it does nothing, and gone follows from the loop. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/httpd_internal.h"
#include "base/log.h"
#include "base/mem.h"

enum { HEADER_VALUE_MAX = 16384, JOINED_BYTES = 16384, QUEUE_FACTOR = 4 };

const char *http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } texts[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {402, "Payment Required"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {424, "Failed Dependency"},
        {425, "Too Early"},
        {426, "Upgrade Required"},
        {428, "Precondition Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
        {529, "Overloaded"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].status == status) return texts[i].text;
    return "Unknown";
}

/* --- the request */

struct http_req *req_new(struct http_conn *c)
{
    struct http_req *r = xcalloc(1, sizeof *r);
    r->conn = c;
    r->is_head = str_eqz(c->head.method, "HEAD");
    buf_clear(&c->reply_headers);
    return r;
}

struct str http_req_method(const struct http_req *r)
{
    return r->conn->head.method;
}
struct str http_req_path(const struct http_req *r)
{
    return r->conn->head.path;
}
struct str http_req_query(const struct http_req *r)
{
    return r->conn->head.query;
}
struct str http_req_target(const struct http_req *r)
{
    return r->conn->head.target;
}
struct str http_req_body(const struct http_req *r)
{
    return buf_view(&r->conn->body);
}
struct buf http_req_take_body(struct http_req *r)
{
    struct buf body = r->conn->body;
    buf_init(&r->conn->body, body.max);
    return body;
}
uint64_t http_req_started_us(const struct http_req *r)
{
    return r->conn->started_us;
}
int http_req_n_headers(const struct http_req *r)
{
    return r->conn->head.n_fields;
}

struct str http_req_header(const struct http_req *r, const char *name)
{
    return http_fields_find(r->conn->head.fields, (size_t)r->conn->head.n_fields, name);
}

void http_req_header_at(const struct http_req *r, int i, struct str *name, struct str *value)
{
    ASSERT(i >= 0 && i < r->conn->head.n_fields);
    *name = r->conn->head.fields[i].name;
    *value = r->conn->head.fields[i].value;
}

struct str http_req_peer(const struct http_req *r)
{
    struct http_conn *c = r->conn;
    char host[INET6_ADDRSTRLEN] = "?";
    if (!c->peer_text[0] && c->peer.ss_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)&c->peer;
        inet_ntop(AF_INET6, &a->sin6_addr, host, sizeof host);
        snprintf(c->peer_text, sizeof c->peer_text, "[%s]:%u", host, (unsigned)ntohs(a->sin6_port));
    } else if (!c->peer_text[0]) {
        const struct sockaddr_in *a = (const struct sockaddr_in *)&c->peer;
        inet_ntop(AF_INET, &a->sin_addr, host, sizeof host);
        snprintf(c->peer_text, sizeof c->peer_text, "%s:%u", host, (unsigned)ntohs(a->sin_port));
    }
    return str_of(c->peer_text);
}

void http_req_on_gone(struct http_req *r, void (*gone)(void *arg), void *arg)
{
    r->gone = gone;
    r->gone_arg = arg;
}

void http_req_on_writable(struct http_req *r, void (*writable)(void *arg), void *arg)
{
    r->writable = writable;
    r->writable_arg = arg;
}

/* --- reply headers: kept as text "Name: value\r\n", ready to be sent */

static bool is_servers_own(struct str name)
{
    static const char *const own[] = {
        "content-length", "transfer-encoding", "connection", "keep-alive", "date", "upgrade", "te",
        "trailer",        "proxy-connection"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (str_ieq(name, str_of(own[i]))) return true;
    return false;
}

static void remove_header(struct buf *headers, struct str name)
{
    size_t at = 0;
    while (at < headers->n) {
        struct str rest = str_sub(buf_view(headers), at, headers->n), line;
        str_next(&rest, '\n', &line);
        size_t line_n = line.n + 1;
        if (line.n > name.n && line.p[name.n] == ':' && str_ieq(str_sub(line, 0, name.n), name)) {
            memmove(headers->p + at, headers->p + at + line_n, headers->n - at - line_n);
            headers->n -= line_n;
        } else {
            at += line_n;
        }
    }
}

static void put_header(struct http_req *r, const char *name, struct str value, bool alone)
{
    struct buf *headers = &r->conn->reply_headers;
    struct str key = str_of(name);
    ASSERT(!r->started);
    if (str_ieq(key, STR("connection")) && str_ieq(str_trim(value), STR("close"))) r->close = true;
    if (is_servers_own(key)) return;
    bool clean = http_token_ok(key) && http_value_ok(value);
    if (!clean)
        log_limited(LOG_ERROR, "http", "bug: reply header \"%s\" holds a line break or is no token",
                    name);
    if (!http_token_ok(key)) return;
    if (alone) remove_header(headers, key);
    size_t before = headers->n;
    buf_str(headers, key);
    buf_z(headers, ": ");
    size_t value_at = headers->n;
    buf_str(headers, value);
    buf_z(headers, "\r\n");
    if (buf_failed(headers)) {
        log_limited(LOG_ERROR, "http", "reply header \"%s\" left out: too many bytes of headers",
                    name);
        headers->n = before;
        headers->failed = false;
        return;
    }
    if (clean) return;
    for (size_t i = value_at; i < headers->n - 2; i++)
        if (strchr("\r\n", headers->p[i]))
            headers->p[i] = ' '; /* NUL included: strchr finds the terminator */
}

void http_set_header(struct http_req *r, const char *name, struct str value)
{
    put_header(r, name, value, true);
}

void http_add_header(struct http_req *r, const char *name, struct str value)
{
    put_header(r, name, value, false);
}

void http_set_headerf(struct http_req *r, const char *name, const char *fmt, ...)
{
    char value[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
    http_set_header(r, name,
                    (struct str){value, (size_t)n < sizeof value ? (size_t)n : sizeof value - 1});
}

/* --- the reply */

/* Status line and the headers of every reply, into the server's scratch buffer. */
static struct buf *begin_head(struct http_conn *c, int status, const char *content_type)
{
    struct buf *out = &c->server->scratch;
    buf_clear(out);
    buf_z(out, "HTTP/1.1 ");
    buf_u64(out, (uint64_t)status);
    buf_char(out, ' ');
    buf_z(out, http_status_text(status));
    buf_z(out, "\r\nDate: ");
    buf_z(out, httpd_date(c->server));
    if (content_type) {
        buf_z(out, "\r\nContent-Type: ");
        buf_z(out, content_type);
    }
    buf_z(out, "\r\n");
    buf_str(out, buf_view(&c->reply_headers));
    return out;
}

static void add_connection(struct buf *out, const struct http_conn *c, bool keep)
{
    if (!keep)
        buf_z(out, "Connection: close\r\n");
    else if (!c->head.http_11)
        buf_z(out, "Connection: keep-alive\r\n");
}

static void add_length(struct buf *out, uint64_t n)
{
    buf_z(out, "Content-Length: ");
    buf_u64(out, n);
    buf_z(out, "\r\n");
}

static bool has_no_body(int status)
{
    return status == 204 || status == 304 || status < 200;
}

static bool keeps(const struct http_req *r)
{
    return r->conn->head.keep_alive && !r->close && !r->conn->server->draining;
}

void http_send(struct http_req *r, int status, const char *content_type, struct str body)
{
    struct http_conn *c = r->conn;
    ASSERT(!r->started && status >= 200 && status <= 599);
    if (r->local) {
        local_start(r->local, status);
        local_write(r->local, body);
        local_end(r->local, false);
        return;
    }
    if (c->state == CONN_DEAD) return;
    bool keep = keeps(r);
    struct buf *out = begin_head(c, status, content_type);
    if (!has_no_body(status)) add_length(out, body.n);
    add_connection(out, c, keep);
    buf_z(out, "\r\n");
    if (r->is_head || has_no_body(status)) body.n = 0;
    bool joined =
        body.n <= JOINED_BYTES; /* one copy into one chain; a big body gets a chain of its own */
    if (joined) buf_str(out, body);
    ASSERT(!buf_failed(out));
    conn_write(c, buf_view(out));
    if (!joined) conn_write(c, body);
    conn_reply_done(c, keep);
}

void http_tell_length(struct http_req *r, uint64_t bytes)
{
    ASSERT(!r->started);
    r->length_told = r->is_head;
    r->length = bytes;
}

void http_start(struct http_req *r, int status, const char *content_type)
{
    struct http_conn *c = r->conn;
    ASSERT(!r->started && status >= 200 && status <= 599);
    r->started = true;
    if (r->local) return local_start(r->local, status);
    r->without_body = r->is_head || has_no_body(status);
    r->chunked = c->head.http_11 && !has_no_body(status);
    if (!r->chunked && !r->without_body)
        r->close = true; /* the end of the connection ends the body */
    if (c->state == CONN_DEAD) return;
    struct buf *out = begin_head(c, status, content_type);
    if (r->length_told && !has_no_body(status))
        add_length(out, r->length);
    else if (r->chunked)
        buf_z(out, "Transfer-Encoding: chunked\r\n");
    add_connection(out, c, keeps(r));
    buf_z(out, "\r\n");
    ASSERT(!buf_failed(out));
    conn_write(c, buf_view(out));
}

static void write_chunk(struct http_conn *c, struct str bytes)
{
    static const char hex[] = "0123456789abcdef";
    char size[18];
    size_t i = sizeof size, left = bytes.n;
    size[--i] = '\n';
    size[--i] = '\r';
    do
        size[--i] = hex[left & 15];
    while (left >>= 4);
    conn_write(c, (struct str){size + i, sizeof size - i});
    conn_write(c, bytes);
    conn_write(c, STR("\r\n"));
}

bool http_write(struct http_req *r, struct str bytes)
{
    struct http_conn *c = r->conn;
    ASSERT(r->started);
    if (r->local) return local_write(r->local, bytes);
    if (c->state == CONN_DEAD || c->broken) return false;
    size_t high = c->server->options.write_high;
    if (conn_waiting(c) > QUEUE_FACTOR * high) {
        log_limited(LOG_WARN, "http",
                    "connection dropped: %zu bytes wait for a client that reads too slowly",
                    conn_waiting(c));
        c->broken = true;
        conn_kick(c);
        return false;
    }
    if (bytes.n && !r->without_body) {
        if (r->chunked)
            write_chunk(c, bytes);
        else
            conn_write(c, bytes);
    }
    if (conn_waiting(c) <= high && !c->broken) return true;
    r->wants_writable = true;
    return false;
}

void http_end(struct http_req *r)
{
    struct http_conn *c = r->conn;
    ASSERT(r->started);
    if (r->local) return local_end(r->local, false);
    if (c->state == CONN_DEAD) return;
    if (r->chunked && !r->without_body) conn_write(c, STR("0\r\n\r\n"));
    conn_reply_done(c, keeps(r));
}

void http_abort(struct http_req *r)
{
    if (r->local) return local_end(r->local, true);
    /* without chunks (or a head) a plain end would pass for a whole reply */
    conn_abort(r->conn, !r->started || !r->chunked);
}

void reply_error(struct http_conn *c, const struct http_refusal *why)
{
    struct buf body;
    buf_init(&body, 1024);
    buf_printf(
        &body, "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":\"%s\"}}",
        why->message, why->status == 503 ? "server_error" : "invalid_request_error", why->code);
    buf_clear(&c->reply_headers);
    struct buf *out = begin_head(c, why->status, "application/json");
    add_length(out, body.n);
    buf_z(out, "Connection: close\r\n\r\n");
    if (!str_eqz(c->head.method, "HEAD")) buf_str(out, buf_view(&body));
    conn_write(c, buf_view(out));
    buf_fini(&body);
}
