/* zmtp_link.h - one connection to one ZeroMQ publisher or router, which comes back by itself when it is lost.
 * Threading: the loop's thread. */
#ifndef DEJA_BASE_ZMTP_LINK_H
#define DEJA_BASE_ZMTP_LINK_H
#include "base/loop.h"
#include "base/zmtp.h"

struct zmtp_link;
struct zmtp_link_handler {
    void (*on_open)(void *arg); /* messages may be sent; a SUB gets what is published from now on */
    void (*on_message)(void *arg, const struct str *parts, size_t n);
    void (*on_lost)(void *arg,
                    const char *why); /* after on_open, or each time it does not get there */
    void *arg;
};
/* "tcp://host:port". ERR_INVALID says what is wrong. */
MUST enum err zmtp_link_open(struct zmtp_link **out, struct loop *l, enum zmtp_role role,
                             const char *endpoint, const struct zmtp_link_handler *h,
                             struct errmsg *e);
void zmtp_link_close(
    struct zmtp_link *k); /* no callback follows; not from within one. NULL is fine */
/* False: not open now. */
bool zmtp_link_send(struct zmtp_link *k, const struct str *parts, size_t n);

#endif
