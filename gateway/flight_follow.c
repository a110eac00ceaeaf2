/* flight_follow.c - the follower's side of flight.h: what the leader's upstream said is given to the ticket as if its own had. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/flight_internal.h"

enum { TRIES = 3, AWAY_MS_MAX = 30000 };

static void arm(struct flight *f)
{
    f->heard_ms = clock_ms();
    f->away = true;
    loop_timer_arm(f->timer, (uint64_t)f->fs->gw->o.coalesce_wait_ms);
}

void flight_follow_begin(struct flight *f, struct str token, struct str leader)
{
    struct hash128 theirs;
    struct ticket *t = f->t;
    flight_unlist(f);
    f->at = 0;
    f->head_seen = false;
    f->tries++;
    bool good = leader.n < sizeof f->leader && hash_from_hex(token, &theirs) == OK &&
                flight_list(f, theirs);
    if (!good) {
        metric_add(f->fs->alone, 1);
        flight_end(f);
        ticket_lead(t);
        return;
    }
    f->role = FLIGHT_FOLLOWS;
    t->store = false; /* the leader stores it */
    str_copy(f->leader, sizeof f->leader, leader);
    if (f->tries == 1) metric_add(f->fs->followed, 1);
    arm(f);
    ticket_follow(t);
}

void flight_leave(struct ticket *t)
{
    struct flight *f = t->flight;
    if (!f) return;
    if (f->role == FLIGHT_LEADS) { /* its call would have said so: the ticket ends without */
        flight_done(t, ERR_CANCELLED, FAULT_NONE, false);
        return;
    }
    if (f->role == FLIGHT_FOLLOWS)
        flight_say(f->fs, f->token, f->leader, 'l', str_of(f->fs->inbox));
    if (f->role == FLIGHT_ASKED) { /* should it lead by the answer to come, others must not wait */
        char hex[33];
        hash_hex(f->token, hex);
        redis_commandf(f->fs->gw->redis, 0, NULL, NULL, "FCALL deja_flight_hold 1 %s %s 0",
                       f->lease, hex);
    }
    flight_end(f);
}

static bool has_readers(const struct ticket *t)
{
    for (const struct exchange *x = t->riders; x; x = x->rider_next)
        if (x->streaming) return true;
    return false;
}

/* Nothing more will come of it. */
static void lost(struct flight *f)
{
    struct ticket *t = f->t;
    metric_add(f->fs->lost, 1);
    if (t->opened && has_readers(t)) {
        flight_end(f);
        ticket_call_handler.on_done(t, ERR_CLOSED, FAULT_CLOSED, true);
        return;
    }
    if (t->opened) { /* frames that nobody has read */
        size_t most = t->tape.bytes.max;
        tape_fini(&t->tape);
        tape_init(&t->tape, most);
        t->opened = false;
    }
    ticket_forget_answer(t);
    flight_unlist(f);
    if (f->tries < TRIES) {
        flight_ask(f);
        return;
    }
    metric_add(f->fs->alone, 1);
    flight_end(f);
    ticket_lead(t);
}

/* --- what comes */
static bool take_head(struct flight *f, struct str text)
{
    struct http_header headers[HEADERS_MAX];
    struct http_reply_head head = {.headers = headers};
    struct str line, name;
    char status[8];
    if (f->head_seen) return true;
    if (!str_next(&text, '\n', &line) || line.n >= sizeof status) return false;
    str_copy(status, sizeof status, line);
    head.status = atoi(status);
    while (str_next(&text, '\n', &line) && head.n_headers < HEADERS_MAX) {
        if (!str_next(&line, ':', &name)) continue;
        headers[head.n_headers++] = (struct http_header){name, line};
    }
    if (head.status < 100) return false;
    f->head_seen = true;
    ticket_call_handler.on_head(f->t, &head);
    return true;
}

static bool take_body(struct flight *f, uint64_t offset, struct str bytes)
{
    struct ticket *t = f->t;
    if (!f->head_seen || offset > f->at) return false;
    uint64_t known = f->at - offset;
    if (known >= bytes.n) return true; /* sent twice */
    f->at = offset + bytes.n;
    ticket_call_handler.on_body(t, (struct str){bytes.p + known, bytes.n - (size_t)known});
    if (t->ended || t->ladder || t->call || !t->n_riders) {
        flight_leave(t);
        ticket_settle(t);
    }
    return true;
}

static bool take_end(struct flight *f, uint64_t bytes, struct str text)
{
    struct ticket *t = f->t;
    int code, fault, head_seen;
    char words[32];
    str_copy(words, sizeof words, text);
    if (sscanf(words, "%d %d %d", &code, &fault, &head_seen) != 3 || bytes != f->at) return false;
    if (!head_seen || !f->head_seen || code == ERR_CANCELLED || fault < 0) return false;
    if (fault == FAULT_DRAINING) return false; /* that gateway ends, this one does not */
    flight_end(f);
    t->store = false; /* the leader has stored it */
    ticket_call_handler.on_done(t, (enum err)code, (enum fault)fault, true);
    return true;
}

void flight_follow_take(struct flight *f, char kind, uint64_t offset, struct str bytes)
{
    bool good = kind == 'h'   ? take_head(f, bytes)
                : kind == 'b' ? (arm(f), take_body(f, offset, bytes))
                : kind == 'e' ? take_end(f, offset, bytes)
                              : kind == 'r';
    if (!good)
        lost(f);
    else if (kind == 'h' || kind == 'r')
        arm(f);
}

/* Silence. A stream that a client reads is given twice the time, which shows whether it is Redis that is silent; and while it is, more. */
void flight_follow_timer(struct flight *f)
{
    struct ticket *t = f->t;
    bool away = !redis_usable(f->fs->gw->redis);
    bool patient = t->opened && has_readers(t) && clock_ms() - f->heard_ms < AWAY_MS_MAX;
    if (patient && (away || f->away)) {
        f->away = away;
        loop_timer_arm(f->timer, (uint64_t)f->fs->gw->o.coalesce_wait_ms);
        return;
    }
    lost(f);
}
