/* http_client_dial.h - from a host name to a connected socket without blocking the loop. Private to http_client*.c.
 * Names are looked up with getaddrinfo on short-lived threads (so /etc/hosts, search domains and nsswitch hold), one a
 * name at a time, and remembered for ten seconds; addresses and "localhost" need no thread. Addresses are tried in
 * turn, a quarter of a second each while another is left. Threading: the loop's thread, apart from the look-up itself.
 */
#ifndef DEJA_BASE_HTTP_CLIENT_DIAL_H
#define DEJA_BASE_HTTP_CLIENT_DIAL_H
#include "base/loop.h"

struct resolver;
struct dial;

struct resolver *resolver_new(struct loop *l);
void resolver_free(struct resolver *r); /* never waits for a look-up; dials must have ended */

/* done(arg, fd, e) once, never before dial_start returns: fd is connected and the callee's, or -1 with a sentence in e.
 * The dial is dead then. */
struct dial *dial_start(struct resolver *r, const char *host, int port,
                        void (*done)(void *arg, int fd, const struct errmsg *e), void *arg);
void dial_cancel(struct dial *d); /* done will not be called; NULL is fine */

#endif
