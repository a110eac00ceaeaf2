/* http_client_dial.c - see http_client_dial.h. A look-up thread shares only its struct lookup and the resolver's small
 * mailbox, which is counted, so that nobody has to wait for a name server at the end. */
#define _GNU_SOURCE
#include "base/http_client_dial.h"

#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

enum {
    ADDRESSES_MAX = 8,
    LOOKUPS_MAX = 16,
    CACHED_MAX = 64,
    CACHED_MS = 10000,
    NEXT_ADDRESS_MS = 250,
    STACK_BYTES = 256 << 10
};

struct addresses {
    struct sockaddr_storage at[ADDRESSES_MAX];
    int n;
};

struct cached {
    char host[256];
    struct addresses addresses;
    uint64_t until_ms;
};

/* Where a thread leaves its result. Counted: the resolver and every running thread hold it. */
struct mailbox {
    pthread_mutex_t lock; /* guards the two below */
    struct loop *loop;    /* NULL once the resolver is gone */
    int users;
};

struct lookup {
    struct mailbox *mailbox;
    struct resolver *resolver; /* NULL once it is gone; loop thread only */
    struct lookup *next;       /* running ones; loop thread only */
    struct dial *waiting;
    char host[256];
    struct addresses addresses; /* written by the thread before it posts */
    int failure;                /* of getaddrinfo */
};

struct resolver {
    struct loop *loop;
    struct mailbox *mailbox;
    struct lookup *lookups;
    int n_lookups;
    struct cached cached[CACHED_MAX];
    int cached_next;
};

struct dial {
    struct resolver *resolver;
    struct lookup *lookup; /* while waiting for it */
    struct dial *next;     /* in its list */
    struct loop_timer *timer;
    struct event *ev;
    int fd;
    struct addresses addresses;
    int i; /* address in work */
    int port;
    char host[256];
    struct errmsg why;
    void (*done)(void *arg, int fd, const struct errmsg *e);
    void *arg;
};

/* --- look-ups */

static void mailbox_leave(struct mailbox *m)
{
    pthread_mutex_lock(&m->lock);
    bool last = --m->users == 0;
    pthread_mutex_unlock(&m->lock);
    if (!last) return;
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

static void take_addresses(const struct addrinfo *list, struct addresses *out)
{
    for (const struct addrinfo *a = list; a && out->n < ADDRESSES_MAX; a = a->ai_next) {
        if (a->ai_addrlen > sizeof out->at[0]) continue;
        memcpy(&out->at[out->n++], a->ai_addr, a->ai_addrlen);
    }
}

static int ask_system(const char *host, int flags, struct addresses *out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *found = NULL;
    out->n = 0;
    int failure = getaddrinfo(host, NULL, &hints, &found);
    if (failure) return failure;
    take_addresses(found, out);
    freeaddrinfo(found);
    return out->n ? 0 : EAI_NONAME;
}

static void lookup_done(void *arg);

static void *lookup_thread(void *arg)
{
    struct lookup *k = arg;
    struct mailbox *m = k->mailbox;
    k->failure = ask_system(k->host, 0, &k->addresses);
    pthread_mutex_lock(&m->lock);
    /* under the lock: the loop cannot be freed meanwhile, for the resolver goes first */
    bool sent = m->loop && loop_post_unbounded(m->loop, lookup_done, k) == OK;
    pthread_mutex_unlock(&m->lock);
    if (!sent) mem_free(k);
    mailbox_leave(m);
    return NULL;
}

static bool thread_start(struct lookup *k)
{
    pthread_attr_t attr;
    pthread_t thread;
    pthread_mutex_lock(&k->mailbox->lock);
    k->mailbox->users++;
    pthread_mutex_unlock(&k->mailbox->lock);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int failed = pthread_create(&thread, &attr, lookup_thread, k);
    pthread_attr_destroy(&attr);
    if (failed) mailbox_leave(k->mailbox);
    return !failed;
}

static struct cached *find_cached(struct resolver *r, const char *host)
{
    for (int i = 0; i < CACHED_MAX; i++)
        if (r->cached[i].until_ms > clock_ms() && !strcmp(r->cached[i].host, host))
            return &r->cached[i];
    return NULL;
}

static void remember(struct resolver *r, const struct lookup *k)
{
    struct cached *c = find_cached(r, k->host);
    if (!c) {
        c = &r->cached[r->cached_next];
        r->cached_next = (r->cached_next + 1) % CACHED_MAX;
    }
    memcpy(c->host, k->host, sizeof c->host);
    c->addresses = k->addresses;
    c->until_ms = clock_ms() + CACHED_MS;
}

static void forget(struct resolver *r, const char *host)
{
    struct cached *c = find_cached(r, host);
    if (c) c->until_ms = 0;
}

static void unlist(struct resolver *r, struct lookup *k)
{
    struct lookup **at = &r->lookups;
    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    r->n_lookups--;
}

static void try_next(void *arg);

static void lookup_done(void *arg)
{
    struct lookup *k = arg;
    if (k->resolver) {
        unlist(k->resolver, k);
        if (!k->failure) remember(k->resolver, k);
    }
    while (k->waiting) {
        struct dial *d = k->waiting;
        k->waiting = d->next; /* first: done may cancel others that wait */
        d->lookup = NULL;
        d->addresses = k->addresses;
        if (k->failure)
            err_set(&d->why, ERR_UNAVAILABLE, "the name %s is not known: %s", d->host,
                    gai_strerror(k->failure));
        try_next(d);
    }
    mem_free(k);
}

/* Joins or starts the look-up of d's host. False: why is set. */
static bool await_lookup(struct dial *d)
{
    struct resolver *r = d->resolver;
    struct lookup *k = r->lookups;
    while (k && strcmp(k->host, d->host))
        k = k->next;
    if (!k) {
        k = xcalloc(1, sizeof *k);
        k->mailbox = r->mailbox;
        k->resolver = r;
        memcpy(k->host, d->host, sizeof k->host);
        if (r->n_lookups >= LOOKUPS_MAX || !thread_start(k)) {
            mem_free(k);
            err_set(&d->why, ERR_UNAVAILABLE, "%s: too many name look-ups are running", d->host);
            return false;
        }
        k->next = r->lookups;
        r->lookups = k;
        r->n_lookups++;
    }
    d->next = k->waiting;
    k->waiting = d;
    d->lookup = k;
    return true;
}

struct resolver *resolver_new(struct loop *l)
{
    struct resolver *r = xcalloc(1, sizeof *r);
    r->loop = l;
    r->mailbox = xcalloc(1, sizeof *r->mailbox);
    r->mailbox->loop = l;
    r->mailbox->users = 1;
    pthread_mutex_init(&r->mailbox->lock, NULL);
    return r;
}

void resolver_free(struct resolver *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->mailbox->lock);
    r->mailbox->loop = NULL;
    /* inside the lock: a thread that posted has done so, one that has not frees its own */
    for (struct lookup *k = r->lookups; k; k = k->next)
        k->resolver = NULL;
    pthread_mutex_unlock(&r->mailbox->lock);
    mailbox_leave(r->mailbox);
    mem_free(r);
}

/* --- connecting */

static void drop_attempt(struct dial *d)
{
    loop_timer_stop(d->timer);
    if (d->ev) event_free(d->ev);
    d->ev = NULL;
    if (d->fd >= 0) close(d->fd);
    d->fd = -1;
}

static void dial_free(struct dial *d)
{
    drop_attempt(d);
    loop_timer_free(d->timer);
    mem_free(d);
}

static void finish(struct dial *d, int fd)
{
    void (*done)(void *, int, const struct errmsg *) = d->done;
    void *arg = d->arg;
    struct errmsg why = d->why;
    if (fd < 0) forget(d->resolver, d->host);
    dial_free(d);
    done(arg, fd, &why);
}

static void attempt_failed(struct dial *d, int number)
{
    err_set(&d->why, ERR_UNAVAILABLE, "no connection to %s port %d: %s", d->host, d->port,
            strerror(number));
    drop_attempt(d);
    d->i++;
    try_next(d);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct dial *d = arg;
    struct loop *l = d->resolver->loop;
    uint64_t entered = loop_enter(l);
    int number = 0;
    socklen_t n = sizeof number;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &n)) number = errno;
    if (number) {
        attempt_failed(d, number);
    } else {
        int connected = d->fd;
        d->fd = -1;
        finish(d, connected);
    }
    loop_leave(l, entered);
}

/* errno's number, or 0 when the attempt is on its way. */
static int begin_attempt(struct dial *d)
{
    struct sockaddr_storage *a = &d->addresses.at[d->i];
    socklen_t n =
        a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int one = 1;
    if (a->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)a)->sin6_port = htons((uint16_t)d->port);
    else
        ((struct sockaddr_in *)a)->sin_port = htons((uint16_t)d->port);
    d->fd = socket(a->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (d->fd < 0) return errno;
    setsockopt(d->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(d->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    if (connect(d->fd, (struct sockaddr *)a, n) && errno != EINPROGRESS) return errno;
    d->ev = event_new(loop_base(d->resolver->loop), d->fd, EV_WRITE, on_writable, d);
    if (!d->ev || event_add(d->ev, NULL)) return ENOMEM;
    return 0;
}

/* Starts on the next address; without one, the end. Runs from the loop only. */
static void try_next(void *arg)
{
    struct dial *d = arg;
    if (d->ev) { /* the timer: this address is slow and another is left */
        err_set(&d->why, ERR_UNAVAILABLE, "no connection to %s port %d: no answer", d->host,
                d->port);
        drop_attempt(d);
        d->i++;
    }
    for (; d->i < d->addresses.n; d->i++) {
        int number = begin_attempt(d);
        if (!number) {
            if (d->i + 1 < d->addresses.n) loop_timer_arm(d->timer, NEXT_ADDRESS_MS);
            return;
        }
        err_set(&d->why, ERR_UNAVAILABLE, "no connection to %s port %d: %s", d->host, d->port,
                strerror(number));
        drop_attempt(d);
    }
    finish(d, -1);
}

static void local_addresses(struct addresses *out)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&out->at[0];
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&out->at[1];
    *v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    out->n = 2;
}

/* Addresses known without asking anybody. */
static bool known_addresses(struct dial *d)
{
    struct cached *c = find_cached(d->resolver, d->host);
    if (c) d->addresses = c->addresses;
    if (c) return true;
    if (!strcasecmp(d->host, "localhost")) {
        local_addresses(&d->addresses);
        return true;
    }
    return ask_system(d->host, AI_NUMERICHOST, &d->addresses) == 0;
}

struct dial *dial_start(struct resolver *r, const char *host, int port,
                        void (*done)(void *arg, int fd, const struct errmsg *e), void *arg)
{
    struct dial *d = xcalloc(1, sizeof *d);
    d->resolver = r;
    d->fd = -1;
    d->port = port;
    d->done = done;
    d->arg = arg;
    ASSERT(strlen(host) < sizeof d->host);
    memcpy(d->host, host, strlen(host));
    d->timer = loop_timer_new(r->loop, try_next, d);
    /* the first connect() and every failure come from the loop: no callback before we return */
    if (known_addresses(d) || !await_lookup(d)) loop_timer_arm(d->timer, 0);
    return d;
}

void dial_cancel(struct dial *d)
{
    if (!d) return;
    if (d->lookup) {
        struct dial **at = &d->lookup->waiting;
        while (*at != d)
            at = &(*at)->next;
        *at = d->next;
    }
    dial_free(d);
}
