/* bench_null.c - an upstream that costs next to nothing, for bench_gateway.py: answers every POST at once with one canned chat completion
 * of about a kilobyte, or, when the body asks for a stream, with 19 events in one write. One thread, epoll, requests read only as far as
 * their length. Never to be used for anything else: it understands no HTTP beyond that.
 *   bench_null PORT */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"

enum { CONNECTIONS_MAX = 4096, REQUEST_BYTES_MAX = 16384, EVENTS = 19, BATCH = 256 };

struct connection {
    size_t n;
    char bytes[REQUEST_BYTES_MAX];
};
static struct connection *connections[CONNECTIONS_MAX];
static struct buf whole, stream;

static void add_reply(struct buf *out, const char *type, const struct buf *body)
{
    buf_init(out, 65536);
    buf_printf(out, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", type,
               body->n);
    buf_str(out, buf_view(body));
}

static void make_replies(void)
{
    struct buf body;
    buf_init(&body, 65536);
    buf_z(&body,
          "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"m\","
          "\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":110,\"total_tokens\":130},"
          "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"");
    for (int i = 0; i < 8; i++)
        buf_z(&body, "Shipping to Norway costs 79 kroner and takes three to five working days. ");
    buf_z(&body, "\"},\"finish_reason\":\"stop\",\"logprobs\":null}]}");
    add_reply(&whole, "application/json", &body);
    buf_clear(&body);
    for (int i = 0; i < EVENTS - 1; i++)
        buf_printf(
            &body,
            "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,"
            "\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word%d of the "
            "answer\"},\"finish_reason\":%s}]}\n\n",
            i, i == EVENTS - 2 ? "\"stop\"" : "null");
    buf_z(&body, "data: [DONE]\n\n");
    add_reply(&stream, "text/event-stream", &body);
    buf_fini(&body);
}

/* Bytes of the whole request at the start of c, or 0. */
static size_t request_bytes(struct connection *c)
{
    char *end = memmem(c->bytes, c->n, "\r\n\r\n", 4);
    if (!end) return 0;
    size_t head = (size_t)(end - c->bytes) + 4, body = 0;
    *end = 0;
    char *length = strcasestr(c->bytes, "\r\ncontent-length:");
    if (length) body = strtoul(length + 17, NULL, 10);
    *end = '\r';
    return c->n >= head + body ? head + body : 0;
}

static void drop(int fd)
{
    mem_free(connections[fd]);
    connections[fd] = NULL;
    close(fd);
}

static void serve(int fd)
{
    struct connection *c = connections[fd];
    ssize_t got = read(fd, c->bytes + c->n, sizeof c->bytes - c->n);
    if (got <= 0) {
        drop(fd);
        return;
    }
    c->n += (size_t)got;
    for (size_t n; (n = request_bytes(c));) {
        bool streams = memmem(c->bytes, n, "\"stream\":true", 13) ||
                       memmem(c->bytes, n, "\"stream\": true", 14);
        const char *reply = streams ? stream.p : whole.p;
        size_t n_reply = streams ? stream.n : whole.n;
        if (write(fd, reply, n_reply) != (ssize_t)n_reply) {
            drop(fd);
            return;
        }
        c->n -= n;
        memmove(c->bytes, c->bytes + n, c->n);
    }
    if (c->n == sizeof c->bytes) drop(fd);
}

static void welcome(int listener, int poll)
{
    int one = 1, fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= CONNECTIONS_MAX || !(connections[fd] = try_calloc(1, sizeof **connections))) {
            close(fd);
            continue;
        }
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        epoll_ctl(poll, EPOLL_CTL_ADD, fd, &e);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)(argc == 2 ? atoi(argv[1]) : 0)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1,
        poll = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener}, ready[BATCH];
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (argc != 2 || bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1024)) {
        perror("bench_null PORT");
        return 1;
    }
    make_replies();
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(poll, ready, BATCH, -1);
        for (int i = 0; i < n; i++)
            if (ready[i].data.fd == listener)
                welcome(listener, poll);
            else if (connections[ready[i].data.fd])
                serve(ready[i].data.fd);
    }
}
