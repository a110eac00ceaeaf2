/* http_tls.h - TLS for outgoing connections: one SSL_CTX a client, TLS 1.2 or newer, the peer's certificate and name
 * always verified, SNI sent. Private to http_client*.c. Threading: the loop's thread. */
#ifndef DEJA_BASE_HTTP_TLS_H
#define DEJA_BASE_HTTP_TLS_H
#include "base/err.h"

struct http_tls;
struct event_base;
struct bufferevent;

/* ca_file NULL: the system's store. ERR_INVALID when the file holds no certificate. */
MUST enum err http_tls_new(struct http_tls **out, const char *ca_file, struct errmsg *e);
void http_tls_free(struct http_tls *t); /* NULL is fine */
/* A bufferevent that shakes hands over the connected fd and owns it; callbacks are deferred to the loop. NULL when out
 * of memory (fd stays the caller's). */
struct bufferevent *http_tls_connect(struct http_tls *t, struct event_base *base, int fd,
                                     const char *host);
/* Why the handshake or connection failed, as one sentence: what is wrong with the certificate, if that is it. */
void http_tls_explain(struct bufferevent *bev, const char *host, struct errmsg *e);

#endif
