/* httpd.h - HTTP/1.1 server on libevent and llhttp (RFC 9110, 9112). Strict about framing (no smuggling),
 * capped everywhere, tells the handler the moment the client is gone, and passes back-pressure on.
 * Threading: everything on the loop's thread. Ownership: the server owns a request until its reply has ended or the
 * client left; the handler keeps the pointer until then and must let go when told. */
#ifndef DEJA_BASE_HTTPD_H
#define DEJA_BASE_HTTPD_H
#include "base/buf.h"
#include "base/loop.h"

struct httpd;
struct http_req;

struct httpd_options {
    const char *host;  /* "127.0.0.1" */
    int port;          /* 0 = any free one, see httpd_port */
    size_t header_max; /* bytes of request line + headers; 0 = 65536 -> 431 */
    int headers_max;   /* 0 = 100 -> 431 */
    size_t body_max;   /* 0 = 8 MiB -> 413, on the running count */
    /* May be NULL: how large the body of this one may be, asked when its head has come; r is for looking only (method, path, headers) */
    size_t (*body_max_of)(void *arg, const struct http_req *r);
    void *body_max_arg;
    int connections_max; /* 0 = 4096 -> 503 and close */
    int pipelined_max; /* requests read ahead on a connection, as 8 KiB each; 0 = 8: reading pauses beyond it */
    int idle_timeout_ms;   /* keep-alive without a request; 0 = 75000 */
    int header_timeout_ms; /* first byte to end of headers; 0 = 10000 -> 408 */
    int body_timeout_ms;   /* longest silence inside a body; 0 = 30000 -> 408 */
    int write_timeout_ms;  /* longest time a client may not read; 0 = 60000 -> connection dropped */
    size_t write_high; /* bytes queued to a client before http_write answers false; 0 = 256 KiB */
    bool reuse_port;   /* listeners on other loops of this process will join this port */
    bool
        joins_port; /* this one joins; without it a port that anybody has is refused, another process of ours too */
};

struct httpd_handler {
    /* A whole request has arrived (body included). Reply now or later with the calls below. */
    void (*on_request)(void *arg, struct http_req *r);
    void *arg;
};

/* ERR_UNAVAILABLE "port 8080 is in use", ... */
MUST enum err httpd_listen(struct httpd **out, struct loop *l, const struct httpd_options *o,
                           const struct httpd_handler *h, struct errmsg *e);
int httpd_port(const struct httpd *s);
/* Stops accepting (who has connected by now is still taken), closes idle connections, lets running replies end; drained(arg) when none is
 * left. A connection that has asked nothing yet has half a second to do so. */
void httpd_drain(struct httpd *s, void (*drained)(void *arg), void *arg);
/* At once; unanswered requests get gone. Not from inside on_request, gone or writable (drained is fine). */
void httpd_close(struct httpd *s);
struct httpd_stats {
    uint64_t connections, requests, rejected; /* totals */
    int open_connections, open_requests;
};
struct httpd_stats httpd_stats(const struct httpd *s);

/* --- the request: all borrowed, valid until the request ends */
struct str http_req_method(const struct http_req *r);
struct str http_req_path(const struct http_req *r);  /* without the query, percent-encoding kept */
struct str http_req_query(const struct http_req *r); /* without '?' */
struct str http_req_target(
    const struct http_req *r); /* path and query; scheme and host of an absolute one are gone */
struct str http_req_body(const struct http_req *r);
/* The body, the caller's from here on (buf_fini), for whoever reads it on another thread; http_req_body is empty afterwards. */
struct buf http_req_take_body(struct http_req *r);
/* First of that name, empty when absent (p NULL). */
struct str http_req_header(const struct http_req *r, const char *name);
int http_req_n_headers(const struct http_req *r);
void http_req_header_at(const struct http_req *r, int i, struct str *name, struct str *value);
struct str http_req_peer(const struct http_req *r);     /* "127.0.0.1:51234" */
uint64_t http_req_started_us(const struct http_req *r); /* clock_us of its first byte */

/* gone(arg) once, if the client leaves (or its connection breaks) before the reply has ended; r is dead after it.
 * Never from inside another call on r. An end of stream counts as leaving, so a client that only shuts its sending side
 * gets replies made at once but no later ones. Without a handler set the request just ends. */
void http_req_on_gone(struct http_req *r, void (*gone)(void *arg), void *arg);
/* writable(arg) each time the queue falls below write_high after http_write answered false. */
void http_req_on_writable(struct http_req *r, void (*writable)(void *arg), void *arg);

/* --- the reply. Headers set with http_set_header (copied; a later one of that name replaces it) before start/send. CR,
 * LF or NUL in them is a bug: they are replaced and an error is logged. Framing is the server's: Content-Length,
 * Transfer-Encoding, Date and hop-by-hop headers are ignored, but `Connection: close` ends the connection after the
 * reply. */
void http_set_header(struct http_req *r, const char *name, struct str value);
/* ... beside those of that name that are set: a field that comes several times (Set-Cookie). */
void http_add_header(struct http_req *r, const char *name, struct str value);
void http_set_headerf(struct http_req *r, const char *name, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* The whole reply at once; the request ends. Content-Length, Date, Connection are added. */
void http_send(struct http_req *r, int status, const char *content_type, struct str body);
/* Before http_start, for a request of HEAD: Content-Length is what GET would bring. Of other requests nothing is told. */
void http_tell_length(struct http_req *r, uint64_t bytes);
/* A reply in pieces (chunked; plain close-delimited for HTTP/1.0). */
void http_start(struct http_req *r, int status, const char *content_type);
/* Queues bytes (copied). False: more than write_high are waiting, stop until writable (the bytes are queued all the
 * same; beyond 4 x write_high the connection is dropped). */
bool http_write(struct http_req *r, struct str bytes);
void http_end(struct http_req *r); /* ends a started reply; r is dead after it */
void http_abort(struct http_req *
                    r); /* cuts the connection in the middle: the client sees an incomplete reply */

const char *http_status_text(int status);

#endif
