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
#include "gateway/ladder.h"

enum ticket_form { FORM_NONE, FORM_STREAM, FORM_WHOLE }; /* what the upstream sends */

struct flight;

struct ticket {
    struct gateway *gw;
    struct flight *flight;     /* shared with other gateways (flight.h); NULL: not, or no more */
    struct route_plan *plan;   /* NULL: nothing is known of targets' KV */
    struct limit_claim *limit; /* the leader's, until settled */
    struct call *call;         /* NULL once it has ended */
    struct call *over;         /* the one that has just ended, within its on_done */
    struct loop_timer *timer;  /* budget after the last rider left; grace after [DONE] */
    struct exchange *riders;
    int n_riders;
    struct exchange
        *behind; /* similar questions that wait for its answer: follow.h, and the next two */
    int n_behind;
    bool followable;
    bool listed; /* in the join table */
    bool batch;  /* begun by a patient request: it may be let wait, so clients do not board */
    bool busy;   /* inside one of its own callbacks: do not free */

    struct model_rules *rules; /* a reference: as the leader began */
    struct cache_key key;      /* the leader's */
    bool keyed, store;
    enum openai_kind kind;
    int64_t ttl_s;
    int trust; /* of the leader's key */
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
    bool moved;            /* another upstream than the first one asked answers */
    uint64_t retry_ms;     /* what the call that has ended said of when to come back; 0 = nothing */
    struct ladder *ladder; /* NULL until its call has failed */
    bool ended;            /* the outcome is told to all riders; the tape may still be read */
    uint64_t started_us, ended_us, queued_us, head_us;
    int64_t frames; /* on the tape, with usage's left out */
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

/* ticket.c, for forward.c: */
void ticket_feed_riders(
    struct ticket
        *t); /* opens streams that are due, writes what is new, ends those that have all */
void ticket_unlist(struct ticket *t);
/* The call came to so many tokens: charged to the leader's tenant in the queue. Nothing when they are not known. */
void ticket_spent(struct ticket *t, const struct openai_usage *u);
void ticket_settle(struct ticket *t); /* frees t when neither riders nor call are left */
void ticket_each(struct ticket *t,
                 void (*fn)(struct ticket *t, struct exchange *x)); /* fn may finish x */
/* Asks for model with this body, for x and the other riders; where the ticket has no claim on limits, on x's. */
void ticket_call(struct ticket *t, struct exchange *x, struct str model, struct str body);
/* What has come of an answer so far is forgotten; nothing of it is on the tape. */
void ticket_forget_answer(struct ticket *t);
/* A whole answer to one rider, in the form it asked for. It rides no more, and its stream is its own where it is still being written. */
void ticket_send_answer(struct ticket *t, struct exchange *x, const struct openai_answer *a);
/* How long x has waited for the call by now, or until its outcome was known, for x->upstream_us. */
void ticket_note_wait(const struct ticket *t, struct exchange *x);
void ticket_off(struct ticket *t,
                struct exchange *x); /* takes x out and ends it: its reply is over */
void ticket_let_go(struct ticket *t, struct exchange *x); /* takes x out, which goes on alone */
/* Who asks for the others: the rider that began it; when that is gone who has waited longest, who leads from now on. NULL: nobody rides. */
struct exchange *ticket_leader(struct ticket *t);
/* For flight.h. Asks an upstream, for one of those who wait; they wait for another gateway's call. */
void ticket_lead(struct ticket *t);
void ticket_follow(struct ticket *t);
/* For follow.h: somebody waits for it again; somebody is to read its stream. */
void ticket_wanted(struct ticket *t);
void ticket_ride(struct ticket *t, struct exchange *x);
void ticket_unread(struct ticket *t); /* nobody waits for it, here or elsewhere: it ends in time */
/* forward.c: the call's callbacks. */
extern const struct call_handler ticket_call_handler;
/* keep.c: stores the answer if it may be; fills t->entry. */
void ticket_keep(struct ticket *t, const struct openai_answer *a);

#endif
