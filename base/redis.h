/* redis.h - the only hiredis user: one asynchronous link to one Redis (unix socket or TCP), that reconnects by itself.
 * Every command has a deadline; every callback fires exactly once. Redis >= 7, RESP2 (hiredis 0.14).
 * Threading: the loop's thread. Never blocks: names must be numeric or localhost, or are resolved off the loop. */
#ifndef DEJA_BASE_REDIS_H
#define DEJA_BASE_REDIS_H
#include "base/loop.h"

struct redis;

struct redis_options {
    const char *url;        /* "unix:/path.sock" or "redis://[:password@]host[:port][/db]" */
    int connect_timeout_ms; /* 0 = 500 */
    int command_timeout_ms; /* 0 = 50: what one look-up may cost a request */
    int backoff_first_ms;   /* 0 = 50, doubled with jitter up to backoff_max_ms */
    int backoff_max_ms;     /* 0 = 1000 */
    size_t pending_max;     /* commands in flight; 0 = 10000 -> ERR_FULL */
    int breaker_failures; /* time-outs in a row that open the breaker; 0 = 1: after one slow command the rest fail at once until a
                               * PING comes back */
    int heartbeat_ms;     /* PING when idle; 0 = 1000 */
};

enum redis_kind { REDIS_NIL, REDIS_STRING, REDIS_INTEGER, REDIS_ARRAY, REDIS_ERROR, REDIS_STATUS };
struct redis_reply { /* borrowed during the callback */
    enum redis_kind kind;
    struct str text; /* STRING, ERROR, STATUS */
    int64_t integer;
    const struct redis_reply *items;
    size_t n_items;
};
/* err OK: reply is there (it may be a REDIS_ERROR). ERR_TIMEOUT, ERR_CLOSED (unknown whether executed), ERR_UNAVAILABLE
 * (breaker open or not connected: not sent), ERR_CANCELLED (redis_close): reply is NULL. */
typedef void redis_callback(void *arg, enum err code, const struct redis_reply *reply);

MUST enum err redis_open(struct redis **out, struct loop *l, const struct redis_options *o,
                         struct errmsg *e);
void redis_close(struct redis *r);        /* callbacks fire with ERR_CANCELLED before it returns */
bool redis_usable(const struct redis *r); /* connected and breaker closed */
/* Once now if connected, and at each (re)connection. */
void redis_on_connect(struct redis *r, void (*fn)(void *arg), void *arg);

/* argv are binary-safe. timeout_ms 0 = command_timeout_ms. The callback comes exactly once, never before this returns.
 * cb may be NULL. */
void redis_command(struct redis *r, int argc, const struct str *argv, int timeout_ms,
                   redis_callback *cb, void *arg);
/* Convenience: words separated by blanks, %s C string, %b struct str *, %d int, %lld. At most 32 words. */
void redis_commandf(struct redis *r, int timeout_ms, redis_callback *cb, void *arg, const char *fmt,
                    ...);
/* MULTI..EXEC or a plain pipeline is just several redis_command calls in a row: order is kept. */
/* Loads a Functions library at every connection (FUNCTION LOAD REPLACE) before on_connect callbacks run, and again when a reply says that a
 * Function is not there (once a second at most). code is copied. */
void redis_use_library(struct redis *r, struct str code);

/* Tails a stream on a connection of its own (XREAD BLOCK): on_item per entry in order, from after_id ("0-0", or "$" = from now: the end of
 * the stream when first connected). Survives reconnects without loss or repeat. on_gap(arg) (may be NULL) when entries after our position
 * are gone, by trimming or because the stream was deleted or begun anew: reload then. Afterwards the tail goes on with what the stream
 * still holds. How it is known: before each read XINFO STREAM is compared with our position: everything after it must still be there by
 * id or by count (entries-added). An entry removed singly (XDEL) before it was read counts as a gap too: too careful, never too late by
 * more than one read. fields are borrowed during on_item. redis_tail_close may be called in a callback; none follows it. */
struct redis_tail;
typedef void redis_tail_item(void *arg, struct str id, const struct str *fields,
                             size_t n_fields /* name, value, ... */);
struct redis_tail *redis_tail_open(struct loop *l, const struct redis_options *o, struct str key,
                                   struct str after_id, redis_tail_item *on_item,
                                   void (*on_gap)(void *arg), void *arg);
void redis_tail_close(struct redis_tail *t);

struct redis_stats {
    uint64_t commands, timeouts, reconnects, refused;
    size_t pending;
};
struct redis_stats redis_stats(const struct redis *r);

#endif
