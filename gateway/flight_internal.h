/* flight_internal.h - private to flight*.c: one flight, from the question to Redis to its end. */
#ifndef DEJA_GATEWAY_FLIGHT_INTERNAL_H
#define DEJA_GATEWAY_FLIGHT_INTERNAL_H
#include "base/redis.h"
#include "gateway/flight.h"
#include "gateway/flight_others.h"
#include "gateway/gateway.h"
#include "gateway/ticket.h"

/* Kinds of messages: j join (bytes: the follower's inbox), l leave (the same), h head, b body bytes from offset, r at work, e end (offset:
 * bytes in all; "code fault"), x no such flight or no more of it, n another gateway is there. */
enum { FLIGHT_PEERS_MAX = 32, FLIGHT_KEY_BYTES = 256, FLIGHT_LOG_BYTES = 64 << 20 };

struct flight;
struct flight_peer { /* a gateway that follows */
    struct flight *f;
    char inbox[FLIGHT_KEY_BYTES];
    size_t at; /* of the body: sent and confirmed */
    size_t piece;
    bool head_sent, end_sent, sending, gone;
    char kind; /* what is being sent */
};

struct flights {
    struct gateway *gw;
    struct redis_tail *tail;
    struct loop_timer *beat;
    struct join_table *by_token;
    struct flight *all;
    char inbox[FLIGHT_KEY_BYTES], read_to[48], gateways[FLIGHT_KEY_BYTES];
    struct flight_others others;
    bool asking; /* the answer to a beat is to come */
    size_t log_bytes;
    struct metric *led, *followed, *lost, *alone, *bytes, *others_seen;
};

enum flight_role { FLIGHT_ASKED, FLIGHT_LEADS, FLIGHT_FOLLOWS };
struct flight {
    struct flights *fs;
    struct flight *prev, *next;
    struct ticket *t; /* NULL: it has left */
    enum flight_role role;
    struct hash128 token;
    char lease[FLIGHT_KEY_BYTES];
    struct loop_timer *timer;
    int waiting; /* callbacks of Redis to come */
    bool over, listed;
    int tries;
    bool store; /* what the ticket had */

    struct buf head, log; /* leads: the log from byte base on */
    size_t base;
    bool head_seen, closed, ended; /* closed: nobody may join any more */
    char end[32];
    struct flight_peer peers[FLIGHT_PEERS_MAX];
    int n_peers;

    size_t at; /* follows: bytes taken */
    uint64_t heard_ms;
    bool away; /* Redis was, or may have been, when we last looked */
    char leader[FLIGHT_KEY_BYTES];
};

/* flight.c */
void flight_end(struct flight *f); /* frees it once Redis has called back */
void flight_called_back(struct flight *f);
/* False: the table is full, or a flight of this very gateway has the token (it leads an equal call that nobody may join here). */
MUST bool flight_list(struct flight *f, struct hash128 token);
void flight_unlist(struct flight *f);
void flight_say(struct flights *fs, struct hash128 token, const char *inbox, char kind,
                struct str d);
void flight_ask(struct flight *f);
/* flight_lead.c */
void flight_lead_begin(struct flight *f);
void flight_lead_take(struct flight *f, char kind, struct str inbox);
void flight_lead_timer(struct flight *f);
/* flight_follow.c */
void flight_follow_begin(struct flight *f, struct str token, struct str leader);
void flight_follow_take(struct flight *f, char kind, uint64_t offset, struct str bytes);
void flight_follow_timer(struct flight *f);

#endif
