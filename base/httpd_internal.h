/* httpd_internal.h - what httpd.c (listener, life), httpd_conn.c (one connection) and httpd_reply.c (requests and
 * replies) share. Nobody else includes it. Who frees: a connection's memory goes only in httpd.c's kick event, never
 * under a caller of http_send and friends; a request's memory goes when its reply ends or its gone callback has
 * returned. */
#ifndef DEJA_BASE_HTTPD_INTERNAL_H
#define DEJA_BASE_HTTPD_INTERNAL_H
#include <event2/event.h>
#include <event2/listener.h>
#include <sys/socket.h>

#include "base/http_parse.h"
#include "base/httpd.h"
#include "base/wire.h"

enum conn_state {
    CONN_IDLE,    /* between requests: nothing but empty lines has come */
    CONN_HEAD,    /* some of a head has come */
    CONN_BODY,    /* some of a body is awaited */
    CONN_REQUEST, /* the handler owes a reply; reading only looks ahead and watches for the end */
    CONN_LAST,    /* the last reply is on its way out */
    CONN_LINGER, /* it is out and our side is shut: the rest of what comes is thrown away for a moment */
    CONN_DEAD, /* socket closed, memory waits for the kick event */
};

struct http_conn {
    struct httpd *server;
    struct http_conn *prev, *next; /* all living ones */
    struct http_conn *kick_next;
    bool kicked;
    enum conn_state state;
    struct wire wire;
    struct http_head head;
    struct http_body body_reader;
    struct buf body;
    size_t body_max;      /* of this request */
    struct http_req *req; /* in CONN_REQUEST */
    struct buf reply_headers;
    struct loop_timer *timer;
    uint64_t timer_ms;    /* when the timer is set to fire; 0 = not set */
    uint64_t deadline_ms; /* of the state; 0 = none */
    uint64_t stall_ms;    /* when a client that reads nothing is dropped; 0 = nothing is queued */
    uint64_t linger_ms;   /* hard end of lingering */
    uint64_t queued_bytes, stall_bytes; /* ever queued; out at the last look */
    uint64_t started_us;
    bool paused;     /* reading is off: enough was read ahead */
    bool in_handler; /* on_request is running */
    bool linger;     /* close gently: the client may still be sending */
    bool broken;     /* to be dropped by the kick event */
    bool hurried;    /* the server ends: it has a moment for its first request */
    struct sockaddr_storage peer;
    char peer_text[64];
};

struct http_local;
struct http_req {
    struct http_conn *conn;
    struct http_local *local; /* made inside the process: conn has no socket; else NULL */
    void (*gone)(void *arg);
    void *gone_arg;
    void (*writable)(void *arg);
    void *writable_arg;
    bool wants_writable; /* http_write answered false */
    bool started;
    bool chunked;
    bool is_head;
    bool length_told; /* http_tell_length */
    uint64_t length;
    bool without_body; /* HEAD, 204, 304: what is written is swallowed */
    bool close;        /* the connection ends with this reply */
};

struct httpd {
    struct loop *loop;
    struct httpd_options options; /* defaults filled in */
    struct httpd_handler handler;
    struct evconnlistener *listener;
    struct event *kick_ev;
    struct loop_timer *accept_timer; /* after a failed accept */
    int port;
    struct http_conn *conns;
    struct http_conn *kicks;
    int n_conns;
    struct httpd_stats stats;
    bool draining;
    void (*drained)(void *arg);
    void *drained_arg;
    struct loop_timer *drained_timer;
    int64_t date_s;
    char date[40];
    struct buf scratch; /* one reply head is put together at a time */
};

/* httpd.c */
const char *httpd_date(struct httpd *s); /* "Sun, 06 Nov 1994 08:49:37 GMT" of this second */
void conn_kick(struct http_conn *c);     /* has conn_continue run soon, from the loop */
void conn_unlink(struct http_conn *c);   /* out of the list of the living */

/* httpd_conn.c */
struct http_conn *conn_new(struct httpd *s, int fd, const struct sockaddr *peer, int peer_n);
void conn_free(struct http_conn *c);     /* memory only; the state is CONN_DEAD */
void conn_close(struct http_conn *c);    /* at once; tells the request's owner */
void conn_continue(struct http_conn *c); /* from the kick event */
void conn_write(struct http_conn *c, struct str bytes);
size_t conn_waiting(const struct http_conn *c); /* bytes not yet out */
/* The reply in work has been queued whole: next request, or the end. */
void conn_reply_done(struct http_conn *c, bool keep);
/* The reply in work stays unfinished: what is queued goes out, then the end; with reset nothing more goes out. */
void conn_abort(struct http_conn *c, bool reset);
/* Refuses what is being read: error reply, gentle close. */
void conn_refuse(struct http_conn *c, const struct http_refusal *why);

/* http_local.c: where replies to requests of the process itself go */
void local_start(struct http_local *l, int status);
bool local_write(struct http_local *l, struct str bytes);
void local_end(struct http_local *l, bool cut); /* the request is dead after it */

/* httpd_reply.c */
struct http_req *req_new(struct http_conn *c);
/* A whole error reply of the server itself, OpenAI's shape, Connection: close. */
void reply_error(struct http_conn *c, const struct http_refusal *why);

#endif
