/* http_client.h - HTTP/1.1 client on libevent and llhttp with a keep-alive pool per origin, HTTPS with
 * verification. Threading: the loop's thread. Exactly one on_done per call, never before http_call returns. */
#ifndef DEJA_BASE_HTTP_CLIENT_H
#define DEJA_BASE_HTTP_CLIENT_H
#include "base/buf.h"
#include "base/loop.h"

struct http_client;
struct http_call;

struct http_client_options {
    int idle_per_origin_max; /* 0 = 32 */
    int idle_timeout_ms;     /* 0 = 30000 */
    size_t header_max;       /* 0 = 64 KiB */
    const char *ca_file;     /* NULL = the system's store */
};
struct http_client *http_client_new(struct loop *l, const struct http_client_options *o);
/* Running calls end with ERR_CANCELLED, inside; their on_done must not start new ones. Goes before its loop. */
void http_client_free(struct http_client *c);
struct http_client_stats {
    uint64_t calls, connections, reused, retried; /* totals */
    int open_calls, idle_connections;
};
struct http_client_stats http_client_stats(const struct http_client *c);

struct http_origin { /* scheme://host[:port][/base] parsed once */
    bool tls;
    char host[256];
    int port;
    char base_path[256]; /* "" or "/v1", no trailing slash */
};
/* Begins with http:// or https://: not a file name. */
bool http_is_url(const char *text);
MUST enum err http_origin_parse(struct str url, struct http_origin *out, struct errmsg *e);

struct http_header {
    struct str name, value;
};
struct http_call_options {
    const struct http_origin *origin; /* copied */
    const char *method;
    const char *path;                  /* appended to origin.base_path */
    const struct http_header *headers; /* copied; Host, Content-Length, Connection are added */
    size_t n_headers;
    struct str body;        /* copied */
    int connect_timeout_ms; /* 0 = 500 (TLS handshake included: 3000) */
    int first_byte_timeout_ms; /* request sent -> reply; 0 = 60000. A head that has begun by then may take idle_timeout_ms more */
    int idle_timeout_ms; /* longest silence afterwards; 0 = 60000 */
    size_t body_max;     /* 0 = 64 MiB -> ERR_TOO_LARGE */
    bool
        retry_stale; /* a kept-alive connection that dies before any byte: try once on a fresh one */
};
struct http_reply_head {
    int status;
    const struct http_header *headers; /* borrowed during on_head */
    size_t n_headers;
};
struct http_call_handler {
    void (*on_head)(void *arg, const struct http_reply_head *head); /* may be NULL */
    void (*on_body)(void *arg, struct str bytes); /* as it arrives, de-chunked; may be NULL */
    /* err OK: the reply was complete. ERR_UNAVAILABLE: no connection (name, refusal, TLS, connect_timeout_ms): nothing
     * was sent. ERR_CLOSED: cut off (also a short Content-Length or unfinished chunk), ERR_TIMEOUT, ERR_TOO_LARGE,
     * ERR_CORRUPT (not HTTP), ERR_INVALID (the call's own method, path or headers), ERR_CANCELLED. e has a sentence,
     * never NULL. The client must not be freed from a callback; new calls may be made. */
    void (*on_done)(void *arg, enum err code, const struct errmsg *e);
    void *arg;
};
/* Never NULL. */
struct http_call *http_call(struct http_client *c, const struct http_call_options *o,
                            const struct http_call_handler *h);
void http_call_cancel(
    struct http_call *call); /* on_done(ERR_CANCELLED) follows; idempotent; dead after on_done */
/* Back-pressure: stop and go on reading the body. While paused no time-out runs and a cut is not noticed. */
void http_call_pause(struct http_call *call);
void http_call_resume(struct http_call *call);

struct str http_head_find(const struct http_reply_head *head,
                          const char *name); /* empty when absent */

#endif
