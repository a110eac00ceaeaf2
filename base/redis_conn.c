/* redis_conn.c - see redis_conn.h. The greeting's commands are sent in one go once the socket stands; their replies come first and are
 * counted off here. A connection that is closed inside one of its own callbacks is freed when the outermost one returns. */
#define _GNU_SOURCE
#include "base/redis_conn.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/http_client_dial.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/redis_reader.h"

enum {
    OUTPUT_MAX = 64 << 20,
    REPLY_BYTES_MAX = 256 << 20,
    ELEMENTS_MAX = 1 << 20,
    COMMAND_BYTES_MAX = 512 << 20
};
enum greeting { GREET_AUTH, GREET_SELECT, GREET_LIBRARY, GREET_PING, GREETINGS };

struct redis_conn {
    struct redis_conn_options o;
    struct redis_conn_handler h;
    struct loop_timer *timer; /* until open; for a unix socket also the first step */
    struct dial *dial;
    struct bufferevent *bev;
    struct redis_reader *reader;
    struct buf command; /* kept between sends */
    enum greeting greetings[GREETINGS];
    int n_greetings, greeting_i;
    bool open, closed;
    int depth; /* callbacks of libevent on the stack */
};

static void destroy(struct redis_conn *c)
{
    loop_timer_free(c->timer);
    if (c->dial) dial_cancel(c->dial);
    if (c->bev) bufferevent_free(c->bev);
    redis_reader_free(c->reader);
    buf_fini(&c->command);
    mem_free(c);
}

static void leave(struct redis_conn *c)
{
    if (--c->depth == 0 && c->closed) destroy(c);
}

void redis_conn_close(struct redis_conn *c)
{
    if (!c || c->closed) return;
    c->closed = true;
    if (!c->depth) destroy(c);
}

/* The end from inside: tells the holder. */
static void fail(struct redis_conn *c, const char *why)
{
    if (c->closed) return;
    c->closed = true;
    c->h.on_closed(c->h.arg, why);
}

/* --- greeting */
static void put(struct redis_conn *c, int argc, const struct str *argv)
{
    buf_clear(&c->command);
    redis_write_command(&c->command, argc, argv);
    ASSERT(!buf_failed(&c->command));
    bufferevent_write(c->bev, c->command.p, c->command.n);
}

static void greet(struct redis_conn *c, enum greeting kind, int argc, const struct str *argv)
{
    c->greetings[c->n_greetings++] = kind;
    put(c, argc, argv);
}

static void send_greetings(struct redis_conn *c)
{
    const struct redis_address *a = c->o.address;
    char db[16];
    snprintf(db, sizeof db, "%d", a->db);
    if (*a->user)
        greet(c, GREET_AUTH, 3, (struct str[]){STR("AUTH"), str_of(a->user), str_of(a->password)});
    else if (*a->password)
        greet(c, GREET_AUTH, 2, (struct str[]){STR("AUTH"), str_of(a->password)});
    if (a->db) greet(c, GREET_SELECT, 2, (struct str[]){STR("SELECT"), str_of(db)});
    if (c->o.library.n)
        greet(c, GREET_LIBRARY, 4,
              (struct str[]){STR("FUNCTION"), STR("LOAD"), STR("REPLACE"), c->o.library});
    greet(c, GREET_PING, 1, (struct str[]){STR("PING")});
}

/* Redis reads its data yet: the library goes with the next connection. */
static void tell_loading(const char *why)
{
    static struct log_site told;
    if (log_site_open(&told, REDIS_TELL_AGAIN_MS, NULL)) log_info("redis", "%s", why);
}

static void take_greeting(struct redis_conn *c, const struct redis_reply *reply)
{
    static const char *const names[] = {"AUTH", "SELECT", "FUNCTION LOAD", "PING"};
    enum greeting kind = c->greetings[c->greeting_i++];
    bool full = kind == GREET_PING && str_starts(reply->text, STR("MISCONF")); /* it reads */
    bool ok = reply->kind != REDIS_ERROR || full;
    char why[200];
    if (!ok)
        snprintf(why, sizeof why, "%s: " STR_FMT, names[kind],
                 STR_ARG(str_sub(reply->text, 0, 150)));
    /* A library that does not load (a read-only replica, a script error) leaves a Redis that still answers everything else. */
    if (!ok && kind == GREET_LIBRARY && str_starts(reply->text, STR("LOADING")))
        tell_loading(why);
    else if (!ok && kind == GREET_LIBRARY)
        log_limited(LOG_ERROR, "redis", "%s", why);
    else if (!ok)
        fail(c, why);
    if (c->closed || c->greeting_i < c->n_greetings) return;
    c->open = true;
    loop_timer_stop(c->timer);
    c->h.on_open(c->h.arg);
}

/* --- socket */
static bool on_reply(void *arg, const struct redis_reply *reply)
{
    struct redis_conn *c = arg;
    if (c->open)
        c->h.on_reply(c->h.arg, reply);
    else
        take_greeting(c, reply);
    return !c->closed;
}

static void on_read(struct bufferevent *bev, void *arg)
{
    struct redis_conn *c = arg;
    struct evbuffer *in = bufferevent_get_input(bev);
    struct evbuffer_iovec piece;
    struct errmsg e = {0};
    c->depth++;
    /* an emptied buffer may still show one empty piece */
    while (!c->closed && evbuffer_get_length(in) && evbuffer_peek(in, -1, NULL, &piece, 1) > 0) {
        enum err code = redis_reader_feed(c->reader, (struct str){piece.iov_base, piece.iov_len},
                                          on_reply, c, &e);
        if (code && code != ERR_CANCELLED)
            fail(c, e.text);
        else if (!code)
            evbuffer_drain(in, piece.iov_len);
    }
    leave(c);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct redis_conn *c = arg;
    (void)bev;
    c->depth++;
    if (what & BEV_EVENT_EOF)
        fail(c, "closed by the server");
    else if (what & BEV_EVENT_ERROR)
        fail(c, strerror(EVUTIL_SOCKET_ERROR()));
    leave(c);
}

static void start(struct redis_conn *c, int fd)
{
    c->bev = bufferevent_socket_new(loop_base(c->o.loop), fd, BEV_OPT_CLOSE_ON_FREE);
    if (!c->bev) {
        close(fd);
        fail(c, "no memory for a connection");
        return;
    }
    bufferevent_setcb(c->bev, on_read, NULL, on_event, c);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    send_greetings(c);
}

static void on_dialled(void *arg, int fd, const struct errmsg *e)
{
    struct redis_conn *c = arg;
    c->depth++;
    c->dial = NULL;
    if (fd >= 0)
        start(c, fd);
    else
        fail(c, e->text);
    leave(c);
}

/* A unix socket connects at once or not at all; a full backlog (EAGAIN) is a refusal too. */
static void connect_unix(struct redis_conn *c)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    memcpy(to.sun_path, c->o.address->path, sizeof to.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0) {
        start(c, fd);
        return;
    }
    const char *why = strerror(errno);
    if (fd >= 0) close(fd);
    fail(c, why);
}

static void on_timer(void *arg)
{
    struct redis_conn *c = arg;
    c->depth++;
    if (*c->o.address->path && !c->bev) {
        loop_timer_arm(c->timer, (uint64_t)c->o.connect_timeout_ms);
        connect_unix(c);
    } else {
        fail(c, c->bev ? "no answer to the greeting in time" : "no connection in time");
    }
    leave(c);
}

struct redis_conn *redis_conn_open(const struct redis_conn_options *o,
                                   const struct redis_conn_handler *h)
{
    struct redis_conn *c = xcalloc(1, sizeof *c);
    c->o = *o;
    c->h = *h;
    c->reader = redis_reader_new(REPLY_BYTES_MAX, ELEMENTS_MAX);
    buf_init(&c->command, COMMAND_BYTES_MAX);
    c->timer = loop_timer_new(o->loop, on_timer, c);
    bool local = *o->address->path;
    loop_timer_arm(c->timer, local ? 0 : (uint64_t)o->connect_timeout_ms);
    if (!local)
        c->dial = dial_start(o->resolver, o->address->host, o->address->port, on_dialled, c);
    return c;
}

enum err redis_conn_send(struct redis_conn *c, int argc, const struct str *argv)
{
    ASSERT(c->open && !c->closed);
    if (evbuffer_get_length(bufferevent_get_output(c->bev)) > OUTPUT_MAX) return ERR_FULL;
    buf_clear(&c->command);
    redis_write_command(&c->command, argc, argv);
    if (buf_failed(&c->command) || bufferevent_write(c->bev, c->command.p, c->command.n))
        return ERR_FULL;
    if (c->command.cap > 1 << 20) buf_fini(&c->command);
    return OK;
}
