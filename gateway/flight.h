/* flight.h - a ticket's call shared with other gateways through Redis (lua/flight.lua): of several that would ask for one exact key the
 * first leads, the others follow it and take the bytes it reads as if they came from an upstream of their own. So what is told to clients,
 * streams, errors and all, is forward.c's doing on both sides. It sends only to gateways that follow, from its first byte on.
 * Bounds: a leader that is silent for coalesce_wait_ms is given up. A ticket that has told no client anything yet asks anew who leads,
 * and after TRIES goes alone; a stream that a client has begun to read is cut. Redis away or slow: it goes alone, after one deadline.
 * While no other gateway has been heard of (flight_others.h) nothing is asked; a call begun just before one appears may be made there too.
 * Batch lines and requests that may not be coalesced have no part. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_FLIGHT_H
#define DEJA_GATEWAY_FLIGHT_H
#include "base/http_client.h"
#include "gateway/reply_fault.h"

struct gateway;
struct ticket;
struct flights;

struct flights *
flights_open(struct gateway *gw); /* NULL without Redis, or where it is switched off */
/* Has Redis told whether there are other gateways, and them of this one? NULL: nothing to know. */
bool flights_known(const struct flights *fs);
/* Whoever waits for another gateway's call, or to hear who makes it, ends with FAULT_DRAINING. */
void flights_refuse(struct flights *fs);
void flights_close(struct flights *fs); /* after its Redis; NULL is fine */

/* True: Redis is asked; ticket_lead or ticket_follow comes later. False: the ticket goes alone. */
bool flight_begin(struct ticket *t);
/* What t's call brings; nothing where t leads nobody. */
void flight_head(struct ticket *t, const struct http_reply_head *head);
void flight_body(struct ticket *t, struct str bytes);
void flight_done(struct ticket *t, enum err code, enum fault fault, bool head_seen);
bool flight_followed(const struct ticket *t); /* other gateways wait for what its call brings */
/* t has ended, or nobody is left here who waits for it. */
void flight_leave(struct ticket *t);

#endif
