/* http_local.c - see http_local.h. The request hangs on a connection that has no socket; httpd_reply.c asks req->local before it writes. */
#include "base/http_local.h"

#include <string.h>

#include "base/clock.h"
#include "base/httpd_internal.h"
#include "base/mem.h"

enum { TEXT_BYTES_MAX = 256 * 1024, REPLY_HEADERS_MAX = 64 * 1024 };

struct http_local {
    struct http_conn conn;
    struct http_req *req; /* NULL: the handler has ended it, or was told that the client left */
    struct buf text, reply;
    struct loop_timer *timer;
    enum err code;
    int status;
    http_local_done *done;
    void *arg;
};

static void tell_gone(struct http_local *l)
{
    struct http_req *r = l->req;
    l->req = NULL;
    if (!r) return;
    if (r->gone) r->gone(r->gone_arg);
    mem_free(r);
}

static void on_timer(void *arg)
{
    struct http_local *l = arg;
    tell_gone(l); /* after an overflow; else it has ended */
    l->done(l->arg, l->code, l->status, l->code == OK ? buf_view(&l->reply) : STR(""));
}

static void over(struct http_local *l, enum err code)
{
    mem_free(l->req);
    l->req = NULL;
    if (l->code == OK) l->code = code;
    loop_timer_arm(l->timer, 0);
}

/* Copies method, path and headers into one text, then points into it (it moves while it grows). */
static void set_head(struct http_local *l, const struct http_local_request *q)
{
    struct http_head *h = &l->conn.head;
    size_t at = 0;
    buf_init(&l->text, TEXT_BYTES_MAX);
    buf_z(&l->text, q->method);
    buf_z(&l->text, q->path);
    for (size_t i = 0; i < q->n_headers; i++) {
        buf_str(&l->text, q->headers[i].name);
        buf_str(&l->text, q->headers[i].value);
    }
    ASSERT(!buf_failed(&l->text));
    struct str all = buf_view(&l->text);
    h->method = str_sub(all, at, strlen(q->method));
    at += h->method.n;
    h->target = h->path = str_sub(all, at, strlen(q->path));
    at += h->path.n;
    h->query = STR("");
    h->http_11 = true;
    h->fields = xcalloc(q->n_headers + 1, sizeof *h->fields);
    h->n_fields = (int)q->n_headers;
    for (size_t i = 0; i < q->n_headers; i++) {
        h->fields[i].name = str_sub(all, at, q->headers[i].name.n);
        at += h->fields[i].name.n;
        h->fields[i].value = str_sub(all, at, q->headers[i].value.n);
        at += h->fields[i].value.n;
    }
}

struct http_local *http_local_new(struct loop *loop, const struct http_local_request *q,
                                  http_local_done *done, void *arg)
{
    struct http_local *l = xcalloc(1, sizeof *l);
    l->done = done;
    l->arg = arg;
    l->timer = loop_timer_new(loop, on_timer, l);
    set_head(l, q);
    l->conn.body = (struct buf){.p = (char *)q->body.p, .n = q->body.n};
    l->conn.started_us = clock_us();
    memcpy(l->conn.peer_text, "inside", sizeof "inside");
    buf_init(&l->conn.reply_headers, REPLY_HEADERS_MAX);
    buf_init(&l->reply, q->body_max);
    l->req = req_new(&l->conn);
    l->req->local = l;
    return l;
}

struct http_req *http_local_req(struct http_local *l)
{
    ASSERT(l->req);
    return l->req;
}

struct str http_local_header(const struct http_local *l, const char *name)
{
    struct str rest = buf_view(&l->conn.reply_headers), line, key = str_of(name);
    while (str_next(&rest, '\n', &line))
        if (line.n > key.n && line.p[key.n] == ':' && str_ieq(str_sub(line, 0, key.n), key))
            return str_trim(str_sub(line, key.n + 1, line.n));
    return (struct str){0};
}

void http_local_free(struct http_local *l)
{
    if (!l) return;
    loop_timer_free(l->timer);
    tell_gone(l);
    mem_free(l->conn.head.fields);
    buf_fini(&l->conn.reply_headers);
    buf_fini(&l->text);
    buf_fini(&l->reply);
    mem_free(l);
}

/* --- for httpd_reply.c */
void local_start(struct http_local *l, int status)
{
    l->status = status;
}

bool local_write(struct http_local *l, struct str bytes)
{
    if (l->code != OK) return false;
    buf_str(&l->reply, bytes);
    if (!buf_failed(&l->reply)) return true;
    l->code = ERR_TOO_LARGE;
    loop_timer_arm(l->timer, 0); /* the handler is told from there: it is in the middle of a call */
    return false;
}

void local_end(struct http_local *l, bool cut)
{
    over(l, cut ? ERR_CLOSED : OK);
}
