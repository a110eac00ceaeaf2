/* Goal: a link opens, brings messages, tells when it is lost and comes back; wrong endpoints are refused. Method: a listener on
 * loopback that speaks the protocol by hand. A real publisher: tests/integration/test_vllm_events.py. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/loop.h"
#include "base/zmtp_link.h"
#include "tests/check.h"

struct peer {
    struct loop *loop;
    struct loop_timer *timer;
    int listener, fd, connects, opened, lost, ticks;
    char got[32];
};

static void hello(int fd)
{
    char g[64] = {0};
    g[0] = (char)0xff;
    g[9] = 0x7f;
    g[10] = 3;
    memcpy(g + 12, "NULL", 4);
    CHECK(write(fd, g, sizeof g) == sizeof g);
    CHECK(write(fd, "\4\x19\5READY\13Socket-Type\0\0\0\3PUB", 27) == 27);
    CHECK(write(fd, "\1\2kv\0\3abc", 9) == 9);
}

static void on_tick(void *arg)
{
    struct peer *p = arg;
    if (p->fd < 0) {
        p->fd = accept4(p->listener, NULL, NULL, SOCK_NONBLOCK);
        if (p->fd >= 0) p->connects++, hello(p->fd);
    } else if (p->got[0] && p->connects == 1) {
        close(p->fd); /* once: the link must come back */
        p->fd = -1;
        p->got[0] = 0;
    }
    if ((p->connects == 2 && p->got[0]) || ++p->ticks > 2000) loop_stop(p->loop);
    loop_timer_arm(p->timer, 5);
}

static void on_open(void *arg)
{
    ((struct peer *)arg)->opened++;
}
static void on_message(void *arg, const struct str *parts, size_t n)
{
    struct peer *p = arg;
    snprintf(p->got, sizeof p->got, "%zu %.*s %.*s", n, (int)parts[0].n, parts[0].p,
             (int)parts[n - 1].n, parts[n - 1].p);
}
static void on_lost(void *arg, const char *why)
{
    struct peer *p = arg;
    CHECK(why && *why);
    p->lost++;
}

TEST(a_lost_link_comes_back)
{
    struct peer p = {.fd = -1};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    struct zmtp_link *k;
    char endpoint[40];
    p.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    REQUIRE(!bind(p.listener, (struct sockaddr *)&a, sizeof a) && !listen(p.listener, 4));
    REQUIRE(!getsockname(p.listener, (struct sockaddr *)&a, &len));
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%d", ntohs(a.sin_port));
    REQUIRE(loop_new(&p.loop, NULL) == OK);
    p.timer = loop_timer_new(p.loop, on_tick, &p);
    loop_timer_arm(p.timer, 1);
    struct zmtp_link_handler h = {on_open, on_message, on_lost, &p};
    REQUIRE(zmtp_link_open(&k, p.loop, ZMTP_SUB, endpoint, &h, NULL) == OK);
    CHECK(!zmtp_link_send(k, &(struct str){"x", 1}, 1)); /* not yet */
    loop_run(p.loop);
    CHECK_INT(p.connects, 2);
    CHECK_INT(p.opened, 2);
    CHECK_INT(p.lost, 1);
    CHECK_AT(!strcmp(p.got, "2 kv abc"), "%s", p.got);
    CHECK(zmtp_link_send(k, &(struct str){"x", 1}, 1));
    zmtp_link_close(k);
    loop_timer_free(p.timer);
    loop_free(p.loop);
    close(p.fd);
    close(p.listener);
}

TEST(endpoints_that_are_none_are_refused)
{
    static const char *const bad[] = {
        "", "tcp://", "tcp://host", "tcp://host:0", "tcp://host:70000", "tcp://:5557", "host:x"};
    struct zmtp_link_handler h = {on_open, on_message, on_lost, NULL};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct zmtp_link *k = NULL;
        struct errmsg e;
        CHECK_AT(zmtp_link_open(&k, NULL, ZMTP_SUB, bad[i], &h, &e) == ERR_INVALID && !k, "%s",
                 bad[i]);
    }
}

TEST_MAIN()
