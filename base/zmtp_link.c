/* zmtp_link.c - see zmtp_link.h. */
#include "base/zmtp_link.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/http_client_dial.h"
#include "base/mem.h"

enum {
    MESSAGE_BYTES_MAX = 16 << 20,
    CONNECT_MS = 5000,
    AGAIN_MS = 250,
    AGAIN_MAX_MS = 4000,
    PIECE = 64 * 1024
};

struct zmtp_link {
    struct loop *loop;
    enum zmtp_role role;
    struct zmtp_link_handler h;
    char host[256];
    int port, failures;
    struct resolver *resolver;
    struct dial *dial;
    struct bufferevent *bev;
    struct loop_timer *timer; /* the next try; until open: the end of this one */
    struct zmtp *wire;
    bool open;
};

static void lose(struct zmtp_link *k, const char *why)
{
    dial_cancel(k->dial);
    k->dial = NULL;
    if (k->bev) bufferevent_free(k->bev);
    k->bev = NULL;
    zmtp_free(k->wire);
    k->wire = NULL;
    k->open = false;
    int shift = k->failures < 4 ? k->failures++ : 4;
    int ms = AGAIN_MS << shift;
    loop_timer_arm(k->timer, (uint64_t)(ms < AGAIN_MAX_MS ? ms : AGAIN_MAX_MS));
    k->h.on_lost(k->h.arg, why);
}

static void on_message(void *arg, const struct str *parts, size_t n)
{
    struct zmtp_link *k = arg;
    k->h.on_message(k->h.arg, parts, n);
}

static enum err take(struct zmtp_link *k, struct str bytes)
{
    struct buf out;
    buf_init(&out, 4096);
    enum err code = zmtp_feed(k->wire, bytes, &out, on_message, k);
    if (out.n && bufferevent_write(k->bev, out.p, out.n)) code = ERR_FULL;
    buf_fini(&out);
    if (code != OK || k->open || !zmtp_is_open(k->wire)) return code;
    k->open = true;
    k->failures = 0;
    loop_timer_stop(k->timer);
    k->h.on_open(k->h.arg);
    return OK;
}

static void on_read(struct bufferevent *bev, void *arg)
{
    struct zmtp_link *k = arg;
    uint64_t entered = loop_enter(k->loop);
    char piece[PIECE];
    enum err code = OK;
    size_t n;
    while (code == OK && (n = bufferevent_read(bev, piece, sizeof piece)) > 0)
        code = take(k, (struct str){piece, n});
    if (code != OK)
        lose(k, code == ERR_UNSUPPORTED ? "it speaks another version or wants a password"
                                        : err_text(code));
    loop_leave(k->loop, entered);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) lose(arg, "closed by the other side");
}

static void on_dialled(void *arg, int fd, const struct errmsg *e)
{
    struct zmtp_link *k = arg;
    struct buf hello;
    k->dial = NULL;
    if (fd >= 0) k->bev = bufferevent_socket_new(loop_base(k->loop), fd, BEV_OPT_CLOSE_ON_FREE);
    if (!k->bev) {
        if (fd >= 0) close(fd);
        lose(k, fd >= 0 ? "no memory for a connection" : e->text);
        return;
    }
    k->wire = zmtp_new(k->role, MESSAGE_BYTES_MAX);
    bufferevent_setcb(k->bev, on_read, NULL, on_event, k);
    bufferevent_enable(k->bev, EV_READ | EV_WRITE);
    buf_init(&hello, 256);
    zmtp_greet(&hello);
    bufferevent_write(k->bev, hello.p, hello.n);
    buf_fini(&hello);
}

static void on_timer(void *arg)
{
    struct zmtp_link *k = arg;
    if (k->dial || k->bev) {
        lose(k, "no greeting in time");
        return;
    }
    loop_timer_arm(k->timer, CONNECT_MS);
    k->dial = dial_start(k->resolver, k->host, k->port, on_dialled, k);
}

enum err zmtp_link_open(struct zmtp_link **out, struct loop *l, enum zmtp_role role,
                        const char *endpoint, const struct zmtp_link_handler *h, struct errmsg *e)
{
    struct str rest = str_of(endpoint);
    int64_t port;
    ptrdiff_t colon = -1;
    *out = NULL;
    if (str_starts(rest, STR("tcp://"))) rest = str_sub(rest, 6, rest.n);
    for (size_t i = 0; i < rest.n; i++)
        if (rest.p[i] == ':') colon = (ptrdiff_t)i;
    if (colon <= 0 || colon >= 256 ||
        str_to_i64(str_sub(rest, (size_t)colon + 1, rest.n), 1, 65535, &port) != OK)
        return err_set(e, ERR_INVALID, "expected tcp://host:port, not %.80s", endpoint);
    struct zmtp_link *k = xcalloc(1, sizeof *k);
    *k = (struct zmtp_link){.loop = l, .role = role, .h = *h, .port = (int)port};
    memcpy(k->host, rest.p, (size_t)colon);
    k->resolver = resolver_new(l);
    k->timer = loop_timer_new(l, on_timer, k);
    loop_timer_arm(k->timer, 0);
    *out = k;
    return OK;
}

void zmtp_link_close(struct zmtp_link *k)
{
    if (!k) return;
    dial_cancel(k->dial);
    if (k->bev) bufferevent_free(k->bev);
    zmtp_free(k->wire);
    loop_timer_free(k->timer);
    resolver_free(k->resolver);
    mem_free(k);
}

bool zmtp_link_send(struct zmtp_link *k, const struct str *parts, size_t n)
{
    struct buf out;
    if (!k->open) return false;
    buf_init(&out, 1 << 20);
    zmtp_write(&out, parts, n);
    bool sent = !buf_failed(&out) && !bufferevent_write(k->bev, out.p, out.n);
    buf_fini(&out);
    return sent;
}
