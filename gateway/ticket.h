/* ticket.h - a miss in progress: one upstream call and everybody who waits for its answer (the riders). The first rider began it; others
 * with an equal request may board as long as it is listed. The answer is read once, whatever the riders asked for: frames go to a
 * tape that every streaming rider reads at its own speed, and a neutral answer is put together for the others and for the store.
 * A rider that leaves takes nobody with it. When the last one leaves, an answer worth storing is read to its end within a
 * budget, any other is cancelled. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_TICKET_H
#define DEJA_GATEWAY_TICKET_H
#include "base/sse.h"
#include "gateway/call.h"
#include "gateway/exchange.h"
#include "gateway/headers.h"

enum ticket_form { FORM_NONE, FORM_STREAM, FORM_WHOLE }; /* what the upstream sends */

struct ticket {
    struct gateway *gw;
    struct call *call;        /* NULL once it has ended */
    struct loop_timer *timer; /* budget after the last rider left; grace after [DONE] */
    struct exchange *riders;
    int n_riders;
    bool listed; /* in the join table */
    bool busy;   /* inside one of its own callbacks: do not free */

    struct cache_key key; /* the leader's */
    bool keyed, store;
    enum openai_kind kind;
    int64_t ttl_s;
    char tags[257];

    enum ticket_form form;
    int status;
    struct header_list headers; /* of the upstream's reply */
    struct buf body;            /* FORM_WHOLE */
    struct sse_reader *sse;     /* FORM_STREAM, and the next three */
    struct openai_collector *collector;
    struct tape tape;
    bool unfit; /* not to be stored: a frame was dropped, or is beyond what we can put together */
    bool done_seen, opened; /* [DONE] came; the first frame is on the tape */
    bool paused;
    bool ended; /* the outcome is told to all riders; the tape may still be read */
    uint64_t started_us, ended_us;
    char entry[37]; /* where the answer was stored, or "" */
    const char
        *refused; /* static text: why the cache would not keep it; NULL = kept, or not asked to */
};

/* Starts the call for x, its first rider. listed: equal requests may board (the key is free in the table then). */
void ticket_start(struct exchange *x, bool listed);
bool ticket_takes(const struct ticket *t); /* room for one more */
void ticket_board(struct ticket *t, struct exchange *x);
void ticket_leave(struct exchange *x);    /* its client has gone; fine without a ticket */
void ticket_writable(struct exchange *x); /* its client reads again */
void ticket_detach(struct exchange *x);   /* its reply, rendered for it alone, is over */

/* ticket.c, for forward.c: */
void ticket_feed_riders(
    struct ticket
        *t); /* opens streams that are due, writes what is new, ends those that have all */
void ticket_unlist(struct ticket *t);
void ticket_settle(struct ticket *t); /* frees t when neither riders nor call are left */
/* Every rider that has received nothing yet gets this error; streams are cut by the caller through the tape. Ends the ticket. */
void ticket_fail(struct ticket *t, const struct openai_error *e, uint64_t retry_ms);
void ticket_each(struct ticket *t,
                 void (*fn)(struct ticket *t, struct exchange *x)); /* fn may finish x */
void ticket_off(struct ticket *t,
                struct exchange *x); /* takes x out and ends it: its reply is over */
/* forward.c: the call's callbacks. */
extern const struct call_handler ticket_call_handler;
/* keep.c: stores the answer if it may be; fills t->entry. */
void ticket_keep(struct ticket *t, const struct openai_answer *a);

#endif
