/* flight_lead.c - the leader's side of flight.h: what the call brings is kept while others may join, and sent to each gateway that has, one
 * piece at a time, so that pieces grow with the round trip. A piece that Redis did not confirm is sent again: its offset says what it is.
 * Bounds: LOG_BYTES_MAX are kept for late joiners, ALL_BYTES_MAX of all flights; beyond, nobody joins any more. A follower further behind
 * than BEHIND_BYTES_MAX is let go. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/flight_internal.h"

enum {
    PIECE_BYTES = 32 * 1024,
    LOG_BYTES_MAX = 1 << 20,
    ALL_BYTES_MAX = 64 << 20,
    BEHIND_BYTES_MAX = 8 << 20,
    LINGER_MS = 1000, /* a stored answer: for look-ups that missed just before it was */
    SEND_MS = 500
};

static void hold(struct flight *f, int lease_ms)
{
    char hex[33], lease[16];
    hash_hex(f->token, hex);
    snprintf(lease, sizeof lease, "%d", lease_ms);
    struct str argv[] = {STR("FCALL"), STR("deja_flight_hold"),
                         STR("1"),     str_of(f->lease),
                         str_of(hex),  str_of(lease)};
    redis_command(f->fs->gw->redis, 6, argv, SEND_MS, NULL, NULL);
}

static void close_to_others(struct flight *f)
{
    if (!f->closed) hold(f, 0);
    f->closed = true;
}

/* --- sending */
static void pump(struct flight_peer *p);

static bool all_sent(const struct flight *f)
{
    for (int i = 0; i < f->n_peers; i++)
        if (!f->peers[i].gone && !f->peers[i].end_sent) return false;
    return true;
}

static void on_sent(void *arg, enum err code, const struct redis_reply *reply)
{
    struct flight_peer *p = arg;
    struct flight *f = p->f;
    p->sending = false;
    bool good = code == OK && reply->kind == REDIS_INTEGER;
    if (good && !f->over) {
        if (p->kind == 'h') p->head_sent = true;
        if (p->kind == 'b') p->at += p->piece, metric_add(f->fs->bytes, (double)p->piece);
        if (p->kind == 'e') p->end_sent = true;
        pump(p);
        if (f->ended && f->closed && all_sent(f)) flight_end(f);
    }
    flight_called_back(f); /* what was not confirmed is sent again at the next beat */
}

static void send(struct flight_peer *p, char kind, uint64_t offset, struct str d)
{
    struct flight *f = p->f;
    char hex[33], word[2] = {kind, 0}, at[24];
    hash_hex(f->token, hex);
    snprintf(at, sizeof at, "%llu", (unsigned long long)offset);
    struct str argv[] = {STR("FCALL"), STR("deja_flight_say"), STR("1"),   str_of(p->inbox),
                         str_of(hex),  str_of(word),           str_of(at), d};
    p->kind = kind;
    p->piece = d.n;
    p->sending = true;
    f->waiting++;
    redis_command(f->fs->gw->redis, 8, argv, SEND_MS, on_sent, p);
}

static void pump(struct flight_peer *p)
{
    struct flight *f = p->f;
    size_t end = f->base + f->log.n;
    if (p->gone || p->sending || f->over) return;
    if (!p->gone && p->at < f->base) { /* what it needs is not there any more */
        p->gone = true;
        flight_say(f->fs, f->token, p->inbox, 'x', STR(""));
    } else if (f->head_seen && !p->head_sent) {
        send(p, 'h', 0, buf_view(&f->head));
    } else if (p->at < end) {
        size_t n = end - p->at;
        struct str piece = {f->log.p + (p->at - f->base), n < PIECE_BYTES ? n : PIECE_BYTES};
        send(p, 'b', p->at, piece);
    } else if (f->ended && !p->end_sent) {
        send(p, 'e', end, str_of(f->end));
    }
}

static void pump_all(struct flight *f)
{
    for (int i = 0; i < f->n_peers; i++)
        pump(&f->peers[i]);
}

/* --- the call */
void flight_lead_begin(struct flight *f)
{
    struct ticket *t = f->t;
    f->role = FLIGHT_LEADS;
    t->store = f->store;
    metric_add(f->fs->led, 1);
    loop_timer_arm(f->timer, (uint64_t)f->fs->gw->o.coalesce_wait_ms / 3 + 1);
    ticket_lead(t);
}

static struct flight *led_by(const struct ticket *t)
{
    return t->flight && t->flight->role == FLIGHT_LEADS ? t->flight : NULL;
}

bool flight_followed(const struct ticket *t)
{
    const struct flight *f = led_by(t);
    for (int i = 0; f && i < f->n_peers; i++)
        if (!f->peers[i].gone) return true;
    return false;
}

void flight_head(struct ticket *t, const struct http_reply_head *head)
{
    struct flight *f = led_by(t);
    if (!f) return;
    f->head_seen = true;
    buf_printf(&f->head, "%d\n", head->status);
    for (size_t i = 0; i < head->n_headers; i++) {
        buf_str(&f->head, head->headers[i].name);
        buf_char(&f->head, ':');
        buf_str(&f->head, head->headers[i].value);
        buf_char(&f->head, '\n');
    }
    if (buf_failed(&f->head))
        flight_done(t, ERR_CANCELLED, FAULT_NONE, false);
    else
        pump_all(f);
}

/* Nobody joins any more: what all have is forgotten. */
static void forget_log(struct flight *f)
{
    size_t end = f->base + f->log.n, least = end;
    for (int i = 0; i < f->n_peers; i++) {
        struct flight_peer *p = &f->peers[i];
        if (!p->gone && end - p->at > BEHIND_BYTES_MAX) {
            p->gone = true;
            flight_say(f->fs, f->token, p->inbox, 'x', STR(""));
        }
        if (!p->gone && p->at < least) least = p->at;
    }
    if (least == f->base) return;
    f->fs->log_bytes -= least - f->base;
    buf_consume(&f->log, least - f->base);
    f->base = least;
}

void flight_body(struct ticket *t, struct str bytes)
{
    struct flight *f = led_by(t);
    if (!f) return;
    buf_str(&f->log, bytes);
    f->fs->log_bytes += bytes.n;
    if (f->log.n > LOG_BYTES_MAX || f->fs->log_bytes > ALL_BYTES_MAX) close_to_others(f);
    if (f->closed) forget_log(f);
    if (buf_failed(&f->log))
        flight_done(t, ERR_CANCELLED, FAULT_NONE, false);
    else
        pump_all(f);
}

void flight_done(struct ticket *t, enum err code, enum fault fault, bool head_seen)
{
    struct flight *f = led_by(t);
    if (!f) return;
    f->t = NULL;
    t->flight = NULL;
    f->ended = true;
    f->heard_ms = clock_ms();
    snprintf(f->end, sizeof f->end, "%d %d %d", (int)code, (int)fault, head_seen);
    bool linger = t->entry[0] && !f->closed;
    int linger_ms =
        t->ttl_s < 2 ? LINGER_MS / 2 : LINGER_MS; /* who joins late gets no old answer */
    if (linger)
        hold(f, linger_ms);
    else
        close_to_others(f);
    pump_all(f);
    if (!linger && all_sent(f))
        flight_end(f);
    else
        loop_timer_arm(f->timer, (uint64_t)linger_ms + SEND_MS);
}

/* --- what others say, and time */
static struct flight_peer *peer_of(struct flight *f, struct str inbox)
{
    for (int i = 0; i < f->n_peers; i++)
        if (str_eqz(inbox, f->peers[i].inbox)) return &f->peers[i];
    return NULL;
}

static void join(struct flight *f, struct str inbox)
{
    struct flight_peer *p = peer_of(f, inbox);
    char name[FLIGHT_KEY_BYTES];
    str_copy(name, sizeof name, inbox);
    if (inbox.n >= sizeof name || (!p && f->n_peers == FLIGHT_PEERS_MAX) || f->base) {
        flight_say(f->fs, f->token, name, 'x', STR(""));
        return;
    }
    if (!p) p = &f->peers[f->n_peers++];
    bool sending = p->sending;
    *p = (struct flight_peer){.f = f};
    memcpy(p->inbox, name, sizeof name);
    if (sending) { /* it has left and come again while something was on its way: the next beat sends */
        p->gone = true;
        flight_say(f->fs, f->token, name, 'x', STR(""));
        p->sending = true;
    }
    pump(p);
}

void flight_lead_take(struct flight *f, char kind, struct str inbox)
{
    if (kind == 'j') join(f, inbox);
    if (kind != 'l') return;
    struct flight_peer *p = peer_of(f, inbox);
    if (p) p->gone = true;
    if (f->t && !flight_followed(f->t)) ticket_unread(f->t);
}

void flight_lead_timer(struct flight *f)
{
    int wait = f->fs->gw->o.coalesce_wait_ms;
    if (f->ended) {
        close_to_others(f);
        bool late = clock_ms() - f->heard_ms > (uint64_t)wait + LINGER_MS;
        if (late || all_sent(f)) {
            flight_end(f);
            return;
        }
    } else if (!f->closed) {
        hold(f, wait);
    }
    for (int i = 0; i < f->n_peers; i++) {
        struct flight_peer *p = &f->peers[i];
        if (!p->gone && !p->sending) flight_say(f->fs, f->token, p->inbox, 'r', STR(""));
        pump(p);
    }
    loop_timer_arm(f->timer, (uint64_t)wait / 3 + 1);
}
