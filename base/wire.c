/* wire.c - see wire.h. */
#include "base/wire.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/loop_internal.h"

enum {
#ifdef DEJA_RARE
    READ_BYTES = 61,
#else
    READ_BYTES = LOOP_BYTES, /* of one read */
#endif
    WRITE_BYTES = 262144, /* of one write on the long way: other connections wait */
    KEPT_BYTES = 16384,   /* of buffers while nothing is in them: idle connections are many */
};

/* --- reading */
static void empty_kept(struct wire *w)
{
    if (w->kept.cap > KEPT_BYTES) buf_fini(&w->kept);
    buf_clear(&w->kept);
}

/* What a handler has left is moved out of the loop's memory. False: there is no memory. */
static bool keep_rest(struct wire *w)
{
    bool kept = w->kept.p && w->in.p >= w->kept.p && w->in.p <= w->kept.p + w->kept.n;
    if (!w->in.n) {
        empty_kept(w);
        w->in = (struct str){NULL, 0};
        return true;
    }
    if (kept) return true;
    buf_clear(&w->kept);
    buf_str(&w->kept, w->in);
    w->in = buf_view(&w->kept);
    return !buf_failed(&w->kept);
}

/* Adds bytes that lie in the loop's memory to what is there. */
static bool add_in(struct wire *w, struct str bytes)
{
    if (!w->in.n) return w->in = bytes, true;
    buf_consume(&w->kept, (size_t)(w->in.p - w->kept.p));
    buf_str(&w->kept, bytes);
    w->in = buf_view(&w->kept);
    return !buf_failed(&w->kept);
}

static void tell(struct wire *w, enum wire_event e)
{
    wire_reads(w, false);
    if (e == WIRE_BROKEN) wire_writes(w, false);
    w->handler->on_event(w->arg, e);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct wire *w = arg;
    struct loop *l = w->loop;
    uint64_t entered = loop_enter(l);
    char *bytes = loop_bytes(l);
    bool gone = false;
    ssize_t n = recv(fd, bytes, READ_BYTES, 0);
    int why = errno;
    w->gone = &gone;
    if (n < 0 && (why == EAGAIN || why == EINTR))
        ;
    else if (n <= 0)
        tell(w, n ? WIRE_BROKEN : WIRE_ENDED);
    else if (!add_in(w, (struct str){bytes, (size_t)n}))
        tell(w, WIRE_BROKEN);
    else
        w->handler->on_read(w->arg);
    if (!gone && !keep_rest(w)) tell(w, WIRE_BROKEN);
    if (!gone) w->gone = NULL;
    loop_leave(l, entered);
}

bool wire_silent(const struct wire *w)
{
    char byte;
    if (w->tls) return true; /* what comes there need not be for us */
    return recv(w->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EINTR);
}

struct str wire_in(const struct wire *w)
{
    struct evbuffer_iovec piece;
    if (!w->tls) return w->in;
    struct evbuffer *in = bufferevent_get_input(w->tls);
    if (!evbuffer_get_length(in) || evbuffer_peek(in, -1, NULL, &piece, 1) < 1)
        return (struct str){NULL, 0};
    return (struct str){piece.iov_base, piece.iov_len};
}

void wire_take(struct wire *w, size_t n)
{
    if (w->tls) {
        evbuffer_drain(bufferevent_get_input(w->tls), n);
        return;
    }
    ASSERT(n <= w->in.n);
    w->in.p += n;
    w->in.n -= n;
    if (!w->in.n && !w->gone) empty_kept(w);
}

void wire_reads(struct wire *w, bool on)
{
    if (w->tls) {
        if (on)
            bufferevent_enable(w->tls, EV_READ);
        else
            bufferevent_disable(w->tls, EV_READ);
        return;
    }
    if (w->reading == on || !w->open) return;
    w->reading = on;
    if (on)
        event_add(&w->read_ev, NULL);
    else
        event_del(&w->read_ev);
}

/* --- writing */
size_t wire_unsent(const struct wire *w)
{
    if (w->tls) return evbuffer_get_length(bufferevent_get_output(w->tls));
    return w->out.n - w->out_at;
}

bool wire_put(struct wire *w, struct str bytes)
{
    if (w->tls) return bufferevent_write(w->tls, bytes.p, bytes.n) == 0;
    if (w->out_at && w->out_at >= w->out.n - w->out_at) { /* worth moving */
        buf_consume(&w->out, w->out_at);
        w->out_at = 0;
    }
    buf_str(&w->out, bytes);
    if (buf_failed(&w->out)) return false;
    if (w->writing && !event_pending(&w->write_ev, EV_WRITE, NULL)) event_add(&w->write_ev, NULL);
    return true;
}

static bool send_some(struct wire *w, size_t most)
{
    size_t n = wire_unsent(w);
    if (n > most) n = most;
    ssize_t sent = n ? send(w->fd, w->out.p + w->out_at, n, MSG_NOSIGNAL) : 0;
    if (sent < 0) return errno == EAGAIN || errno == EINTR || errno == ENOBUFS;
    w->out_at += (size_t)sent;
    if (w->out_at < w->out.n) return true;
    if (w->out.cap > KEPT_BYTES) buf_fini(&w->out);
    buf_clear(&w->out);
    w->out_at = 0;
    return true;
}

bool wire_flush(struct wire *w)
{
    return w->tls || send_some(w, SIZE_MAX);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct wire *w = arg;
    struct loop *l = w->loop;
    uint64_t entered = loop_enter(l);
    if (!send_some(w, WRITE_BYTES)) {
        tell(w, WIRE_BROKEN);
    } else {
        if (!wire_unsent(w)) event_del(&w->write_ev); /* again with the next byte */
        if (wire_unsent(w) <= w->write_low) w->handler->on_write(w->arg);
    }
    loop_leave(l, entered);
}

void wire_writes(struct wire *w, bool on)
{
    if (w->tls || w->writing == on || !w->open) return;
    w->writing = on;
    if (on)
        event_add(&w->write_ev, NULL);
    else
        event_del(&w->write_ev);
}

/* --- TLS */
static void call(struct wire *w, void (*fn)(void *arg))
{
    struct loop *l = w->loop; /* w may be gone afterwards */
    uint64_t entered = loop_enter(l);
    fn(w->arg);
    loop_leave(l, entered);
}

static void on_tls_read(struct bufferevent *bev, void *arg)
{
    (void)bev;
    struct wire *w = arg;
    call(w, w->handler->on_read);
}

static void on_tls_write(struct bufferevent *bev, void *arg)
{
    (void)bev;
    struct wire *w = arg;
    call(w, w->handler->on_write);
}

static void on_tls_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    struct wire *w = arg;
    struct loop *l = w->loop;
    uint64_t entered = loop_enter(l);
    enum wire_event e = what & BEV_EVENT_CONNECTED ? WIRE_CONNECTED
                        : what & BEV_EVENT_ERROR   ? WIRE_BROKEN
                                                   : WIRE_ENDED;
    w->handler->on_event(w->arg, e);
    loop_leave(l, entered);
}

/* --- life */
static void init(struct wire *w, struct loop *l, const struct wire_handler *h, void *arg)
{
    *w = (struct wire){.loop = l, .handler = h, .arg = arg, .fd = -1, .open = true};
    buf_init(&w->kept, SIZE_MAX / 4);
    buf_init(&w->out, SIZE_MAX / 4);
}

void wire_open(struct wire *w, struct loop *l, int fd, const struct wire_handler *h, void *arg)
{
    init(w, l, h, arg);
    w->fd = fd;
    event_assign(&w->read_ev, loop_base(l), fd, EV_READ | EV_PERSIST, on_readable, w);
    event_assign(&w->write_ev, loop_base(l), fd, EV_WRITE | EV_PERSIST, on_writable, w);
    wire_reads(w, true);
}

void wire_open_tls(struct wire *w, struct loop *l, struct bufferevent *bev,
                   const struct wire_handler *h, void *arg)
{
    init(w, l, h, arg);
    w->tls = bev;
    bufferevent_setcb(bev, on_tls_read, on_tls_write, on_tls_event, w);
    bufferevent_set_max_single_read(bev, READ_BYTES);
    bufferevent_enable(bev, EV_READ | EV_WRITE);
}

int wire_fd(const struct wire *w)
{
    return w->tls ? bufferevent_getfd(w->tls) : w->fd;
}

void wire_close(struct wire *w)
{
    if (!w->open) return;
    w->open = false;
    if (w->gone) *w->gone = true;
    w->gone = NULL;
    w->in = (struct str){NULL, 0};
    buf_fini(&w->kept);
    buf_fini(&w->out);
    w->out_at = 0;
    if (w->tls) {
        bufferevent_free(w->tls);
        w->tls = NULL;
        return;
    }
    event_del(&w->read_ev);
    event_del(&w->write_ev);
    close(w->fd);
    w->fd = -1;
}
