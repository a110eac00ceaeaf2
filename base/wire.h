/* wire.h - the bytes of one connected socket on a loop: what has come and is not taken yet, what is to go out. Beside libevent's
 * bufferevents, which stay for TLS (a wire can lie over one), a plain wire asks the system once for each read and each write: bytes are
 * read into memory of the loop's and looked at there, only what nobody takes is copied.
 * Writing has a short way, wire_flush, that asks no epoll, and a long one, wire_writes(true), for when the socket takes no more.
 * Threading: the loop's thread. A handler may close its wire. */
#ifndef DEJA_BASE_WIRE_H
#define DEJA_BASE_WIRE_H
#include <event2/event_struct.h>

#include "base/buf.h"
#include "base/loop.h"

struct bufferevent;

enum wire_event {
    WIRE_CONNECTED, /* TLS: hands were shaken */
    WIRE_ENDED,     /* the other side sends no more */
    WIRE_BROKEN,    /* errno-like end, either way */
};
struct wire_handler {            /* called from the loop; arg is what wire_open was given */
    void (*on_read)(void *arg);  /* there is more in wire_in */
    void (*on_write)(void *arg); /* on the long way: no more than write_low bytes are left to go */
    void (*on_event)(void *arg, enum wire_event e);
};

struct wire {
    struct loop *loop;
    const struct wire_handler *handler;
    void *arg;
    int fd;
    bool open, reading, writing;
    bool *gone; /* set while a handler runs: is it closed meanwhile? */
    struct event read_ev, write_ev;
    struct str in;   /* not taken yet: in the loop's memory while a handler runs, else in kept */
    struct buf kept; /* of what came earlier */
    struct buf out;
    size_t out_at, write_low; /* out from here on */
    struct bufferevent *tls;  /* NULL: a plain socket */
};

/* Owns fd from here on; reading is on. */
void wire_open(struct wire *w, struct loop *l, int fd, const struct wire_handler *h, void *arg);
/* Over a bufferevent, which it owns; it reads and writes by itself, and flush does nothing. */
void wire_open_tls(struct wire *w, struct loop *l, struct bufferevent *bev,
                   const struct wire_handler *h, void *arg);
void wire_close(
    struct wire *w); /* closes the socket too; w's memory stays the caller's. Fine when not open. */
int wire_fd(const struct wire *w);

void wire_reads(struct wire *w, bool on);
struct str wire_in(const struct wire *w); /* over TLS there may be more behind it */
/* Between two exchanges, asked of the system: has nothing come, and has the other side not closed? Over TLS always true. */
bool wire_silent(const struct wire *w);
void wire_take(struct wire *w, size_t n); /* off the front of wire_in */
bool wire_put(struct wire *w,
              struct str bytes); /* to go out; false: no memory, nothing was added */
size_t wire_unsent(const struct wire *w);
/* Sends what the system takes now. False: the connection is broken. */
bool wire_flush(struct wire *w);
void wire_writes(struct wire *w, bool on);

#endif
