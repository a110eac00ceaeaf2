/* redis_conn.h - private to redis*.c: one connection to one Redis, from dialling over AUTH, SELECT, FUNCTION LOAD and PING to its end. It
 * knows no deadlines of commands and does not reconnect: redis.c and redis_tail.c do. Threading: the loop's thread. */
#ifndef DEJA_BASE_REDIS_CONN_H
#define DEJA_BASE_REDIS_CONN_H
#include "base/redis.h"

struct redis_address { /* what a URL says */
    char path[108];    /* unix socket; "" = TCP */
    char host[256];
    int port;
    char user[64], password[256]; /* "" = none */
    int db;
};
/* "unix:/path.sock", "redis://[[user]:password@]host[:port][/db]". The password may hold %XX. ERR_INVALID says what is wrong. */
MUST enum err redis_address_parse(const char *url, struct redis_address *out, struct errmsg *e);

struct redis_conn;
struct resolver;
struct redis_conn_options {
    struct loop *loop;
    struct resolver *resolver;           /* of the loop; outlives the connection */
    const struct redis_address *address; /* borrowed for the connection's life */
    int connect_timeout_ms;              /* until on_open */
    struct str library;                  /* borrowed until on_open or on_closed; empty = none */
};
struct redis_conn_handler {
    void (*on_open)(void *arg); /* the greeting went well: commands may be sent */
    void (*on_reply)(void *arg,
                     const struct redis_reply *reply); /* one for each command, in order */
    /* Once, unless redis_conn_close came first; the connection is dead then. why is a sentence. */
    void (*on_closed)(void *arg, const char *why);
    void *arg;
};
/* Never NULL; the first callback comes later. */
struct redis_conn *redis_conn_open(const struct redis_conn_options *o,
                                   const struct redis_conn_handler *h);
/* Only between on_open and the end. ERR_FULL: more than 64 MiB wait to be written. */
MUST enum err redis_conn_send(struct redis_conn *c, int argc, const struct str *argv);
void redis_conn_close(
    struct redis_conn *c); /* no callback follows; may be called in one; NULL is fine */

enum {
    REDIS_TELL_AGAIN_MS = 60000
}; /* lines about what is tried several times a second: at the start, then so often */

#endif
