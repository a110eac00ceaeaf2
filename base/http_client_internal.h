/* http_client_internal.h - what http_client.c (calls, pool) and http_client_conn.c (one connection) share. Nobody else
 * includes it.
 * Who frees: a call goes in call_finish only, which runs from the loop, never under http_call and friends; a connection
 * goes in conn_drop. After either, the caller touches neither again. */
#ifndef DEJA_BASE_HTTP_CLIENT_INTERNAL_H
#define DEJA_BASE_HTTP_CLIENT_INTERNAL_H
#include <event2/event.h>

#include "base/http_client.h"
#include "base/http_client_dial.h"
#include "base/http_parse.h"
#include "base/http_tls.h"
#include "base/wire.h"

struct client_conn;

/* All connections to one scheme, host and port that wait for work; newest first, for it is the least likely to be
 * stale. */
struct client_pool {
    struct client_pool *next;
    int n_calls; /* running ones; with no idle connection either, the pool may go */
    bool tls;
    char host[256];
    int port;
    struct client_conn *idle;
    int n_idle;
};

enum call_state {
    CALL_DIALLING, /* name, connect, TLS: bounded by connect_timeout_ms as a whole */
    CALL_SENDING,
    CALL_AWAITING, /* all is sent, the status line is awaited */
    CALL_BODY,
};

struct http_call {
    struct http_client *client;
    struct http_call *prev, *next; /* running ones */
    struct http_call *kick_next;
    bool kicked;
    struct client_pool *pool;
    struct http_origin origin;
    struct http_call_options options; /* numbers only; its pointers are stale */
    struct http_call_handler handler;
    struct buf request; /* head and body as sent, kept for a second try */
    bool is_head;
    enum call_state state;
    struct dial *dial;
    struct client_conn *conn;
    struct loop_timer *timer;
    uint64_t timer_ms, deadline_ms; /* 0 = none */
    size_t unsent_seen;             /* output at the last deadline, to tell slow from stuck */
    uint64_t body_bytes;
    int n_interim;
    bool any_received;
    bool head_late; /* its head had begun when its first byte was due */
    bool on_reused; /* its connection has served others before */
    bool retried;
    bool finished;
    bool paused;
    bool cancelled;
    struct errmsg failure; /* found inside http_call; code OK = none */
};

struct client_conn {
    struct http_client *client;
    struct client_pool *pool;
    struct client_conn *prev, *next; /* in pool->idle */
    struct wire wire;
    struct http_call *call; /* NULL = idle */
    bool ended;             /* nothing more will come, input may still be unread */
    bool broken;            /* and that end was no orderly one */
    uint64_t idle_since_ms;
    struct http_head head;
    struct http_body body;
};

struct http_client {
    struct loop *loop;
    struct http_client_options options;
    char *ca_file;
    struct http_tls *tls; /* made with the first https call */
    struct resolver *resolver;
    struct client_pool *pools;
    int n_pools;
    struct http_call *calls;
    struct http_call *kicks;
    struct event *kick_ev;
    struct loop_timer *sweep_timer;
    bool closing;
    struct http_client_stats stats;
};

/* http_client.c */
/* fmt may be NULL: nothing is said. */
void call_finish(struct http_call *call, enum err code, const char *fmt, ...) PRINTF_LIKE(3, 4);
void call_deadline(struct http_call *call, int after_ms); /* 0 = none */
void call_kick(struct http_call *call);
/* The connection has died before a byte of the reply: a second try on a fresh one, or the end of the call. */
void call_lost_early(struct http_call *call, const char *why);
void pool_put(struct client_conn *c); /* it is clean and waits for the next call, or is dropped */
void pool_remove(struct client_conn *c);

/* http_client_conn.c */
struct client_conn *conn_over(struct http_client *client, struct client_pool *pool,
                              int fd); /* NULL: fd is closed */
void conn_drop(struct client_conn *c);
void conn_send(struct client_conn *c, struct http_call *call);
void conn_take_input(struct client_conn *c);

#endif
