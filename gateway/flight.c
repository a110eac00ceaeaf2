/* flight.c - see flight.h: what leader and follower share. Each gateway reads one stream, its inbox; a message names its flight. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/flight_internal.h"
#include "gateway/join_table.h"

enum {
    BEAT_MS = 5000,
    FIRST_BEAT_MS = 200, /* until Redis has answered one */
    OTHERS_FRESH_MS = 3 * BEAT_MS,
    INBOX_TTL_MS = 60000,
    SAY_MS = 1000
};

/* --- life of one */
static void free_flight(struct flight *f)
{
    if (f->prev)
        f->prev->next = f->next;
    else
        f->fs->all = f->next;
    if (f->next) f->next->prev = f->prev;
    loop_timer_free(f->timer);
    buf_fini(&f->head);
    buf_fini(&f->log);
    mem_free(f);
}

bool flight_list(struct flight *f, struct hash128 token)
{
    f->token = token;
    f->listed =
        !join_table_find(f->fs->by_token, token) && join_table_put(f->fs->by_token, token, f) == OK;
    return f->listed;
}

void flight_unlist(struct flight *f)
{
    if (f->listed) join_table_remove(f->fs->by_token, f->token, f);
    f->listed = false;
}

void flight_end(struct flight *f)
{
    if (f->over) return;
    f->over = true;
    flight_unlist(f);
    loop_timer_stop(f->timer);
    f->fs->log_bytes -= f->log.n;
    buf_clear(&f->log);
    if (f->t) {
        f->t->flight = NULL;
        f->t->store = f->store;
    }
    f->t = NULL;
    if (!f->waiting) free_flight(f);
}

void flight_called_back(struct flight *f)
{
    if (!--f->waiting && f->over) free_flight(f);
}

static void on_timer(void *arg)
{
    struct flight *f = arg;
    if (f->role == FLIGHT_LEADS)
        flight_lead_timer(f);
    else if (f->role == FLIGHT_FOLLOWS)
        flight_follow_timer(f);
}

void flight_say(struct flights *fs, struct hash128 token, const char *inbox, char kind,
                struct str d)
{
    char hex[33], word[2] = {kind, 0};
    hash_hex(token, hex);
    struct str argv[] = {STR("FCALL"), STR("deja_flight_say"), STR("1"), str_of(inbox),
                         str_of(hex),  str_of(word),           STR("0"), d};
    redis_command(fs->gw->redis, 8, argv, SAY_MS, NULL, NULL);
}

/* --- who leads? */
static void on_asked(void *arg, enum err code, const struct redis_reply *reply)
{
    struct flight *f = arg;
    bool leads = code != OK || reply->kind != REDIS_ARRAY || reply->n_items != 2;
    if (code == OK && reply->kind == REDIS_ERROR)
        log_limited(LOG_WARN, "gateway", "deja_flight_begin: " STR_FMT,
                    STR_ARG(str_sub(reply->text, 0, 160)));
    if (f->over) { /* nobody waits any more */
        struct hash128 theirs;
        char leader[FLIGHT_KEY_BYTES];
        if (!leads && hash_from_hex(reply->items[0].text, &theirs) == OK &&
            reply->items[1].text.n < sizeof leader) {
            str_copy(leader, sizeof leader, reply->items[1].text);
            flight_say(f->fs, theirs, leader, 'l', str_of(f->fs->inbox));
        }
        flight_called_back(f);
        return;
    }
    if (code == ERR_CANCELLED || !f->t) {
        flight_end(f);
    } else if (!leads) {
        flight_follow_begin(f, reply->items[0].text, reply->items[1].text);
    } else {
        flight_lead_begin(f); /* also when no answer came in time: Redis may have noted us */
    }
    flight_called_back(f);
}

void flight_ask(struct flight *f)
{
    struct flights *fs = f->fs;
    char hex[33], lease[16];
    struct hash128 token = {rng_u64(&fs->gw->rng), rng_u64(&fs->gw->rng)};
    flight_unlist(f);
    f->role = FLIGHT_ASKED;
    if (!redis_usable(fs->gw->redis) || !flight_list(f, token)) {
        struct ticket *t = f->t;
        metric_add(fs->alone, 1);
        flight_end(f);
        ticket_lead(t);
        return;
    }
    hash_hex(token, hex);
    snprintf(lease, sizeof lease, "%d", fs->gw->o.coalesce_wait_ms);
    struct str argv[] = {STR("FCALL"), STR("deja_flight_begin"), STR("1"),     str_of(f->lease),
                         str_of(hex),  str_of(fs->inbox),        str_of(lease)};
    f->waiting++;
    redis_command(fs->gw->redis, 7, argv, 0, on_asked, f);
}

bool flight_begin(struct ticket *t)
{
    struct flights *fs = t->gw->flights;
    char hex[33];
    if (!fs || !t->listed || t->batch || !redis_usable(fs->gw->redis)) return false;
    if (flight_others_none(&fs->others, clock_ms(), OTHERS_FRESH_MS)) return false;
    struct flight *f = xcalloc(1, sizeof *f);
    f->fs = fs;
    f->t = t;
    f->store = t->store;
    f->next = fs->all;
    if (fs->all) fs->all->prev = f;
    fs->all = f;
    f->timer = loop_timer_new(fs->gw->loop, on_timer, f);
    buf_init(&f->head, HEADERS_BYTES_MAX * 2);
    buf_init(&f->log, FLIGHT_LOG_BYTES);
    hash_hex(t->key.exact, hex);
    snprintf(f->lease, sizeof f->lease, "{%s}:flight:%s", fs->gw->o.ns, hex);
    t->flight = f;
    flight_ask(f);
    return true;
}

/* --- the inbox */
static void on_item(void *arg, struct str id, const struct str *fields, size_t n)
{
    struct flights *fs = arg;
    struct hash128 token;
    char offset[24];
    str_copy(fs->read_to, sizeof fs->read_to, id);
    if (n != 8 || hash_from_hex(fields[1], &token) != OK || fields[3].n != 1) return;
    char kind = fields[3].p[0];
    if (kind == 'n') {
        flight_others_heard(&fs->others);
        metric_set(fs->others_seen, fs->others.n);
        return;
    }
    str_copy(offset, sizeof offset, fields[5]);
    struct flight *f = join_table_find(fs->by_token, token);
    if (f && f->role != FLIGHT_FOLLOWS) /* a join may come before we know that we lead */
        flight_lead_take(f, kind, fields[7]);
    else if (f)
        flight_follow_take(f, kind, strtoull(offset, NULL, 10), fields[7]);
    else if (kind == 'j' && fields[7].n < FLIGHT_KEY_BYTES) {
        char inbox[FLIGHT_KEY_BYTES];
        str_copy(inbox, sizeof inbox, fields[7]);
        flight_say(fs, token, inbox, 'x', STR(""));
    }
}

static void on_here(void *arg, enum err code, const struct redis_reply *reply)
{
    struct flights *fs = arg;
    fs->asking = false;
    if (code != OK) return;
    bool told =
        reply->kind == REDIS_ARRAY && reply->n_items == 2; /* else it cannot be written to */
    flight_others_told(&fs->others, told ? (int)reply->items[0].integer : 1,
                       told && reply->items[1].integer == 1, clock_ms());
    metric_set(fs->others_seen, fs->others.n);
}

static void on_beat(void *arg)
{
    struct flights *fs = arg;
    loop_timer_arm(fs->beat, fs->others.told_ms ? BEAT_MS : FIRST_BEAT_MS);
    if (!redis_usable(fs->gw->redis)) return;
    if (!fs->asking) {
        fs->asking = true;
        redis_commandf(fs->gw->redis, SAY_MS, on_here, fs, "FCALL deja_flight_here 1 %s %s %d",
                       fs->gateways, fs->inbox, OTHERS_FRESH_MS);
    }
    if (!fs->read_to[0]) return;
    redis_commandf(fs->gw->redis, SAY_MS, NULL, NULL, "XTRIM %s MINID %s", fs->inbox, fs->read_to);
    redis_commandf(fs->gw->redis, SAY_MS, NULL, NULL, "PEXPIRE %s %d", fs->inbox, INBOX_TTL_MS);
}

/* --- all of them */
struct flights *flights_open(struct gateway *gw)
{
    char id[33];
    if (!gw->redis || !gw->o.coalesce_wait_ms || !gw->o.coalesce_max) return NULL;
    struct flights *fs = xcalloc(1, sizeof *fs);
    fs->gw = gw;
    const char *name = "deja_flight_total",
               *help = "misses by their part in a call shared by gateways";
    fs->led = metrics_get(gw->metrics, METRIC_COUNTER, name, "part=\"led\"", help, 0, 0);
    fs->followed = metrics_get(gw->metrics, METRIC_COUNTER, name, "part=\"followed\"", help, 0, 0);
    fs->lost = metrics_get(gw->metrics, METRIC_COUNTER, name, "part=\"lost\"", help, 0, 0);
    fs->alone = metrics_get(gw->metrics, METRIC_COUNTER, name, "part=\"alone\"", help, 0, 0);
    fs->bytes = metrics_get(gw->metrics, METRIC_COUNTER, "deja_flight_sent_bytes_total", "",
                            "bytes of answers sent to gateways that follow", 0, 0);
    fs->by_token = join_table_new((size_t)gw->o.inflight_max * 2);
    hash_hex((struct hash128){rng_u64(&gw->rng), rng_u64(&gw->rng)}, id);
    snprintf(fs->inbox, sizeof fs->inbox, "{%s}:flight:in:%s", gw->o.ns, id);
    snprintf(fs->gateways, sizeof fs->gateways, "{%s}:flight:gateways", gw->o.ns);
    fs->others_seen = metrics_get(gw->metrics, METRIC_GAUGE, "deja_flight_gateways", "",
                                  "other gateways that a call could be shared with", 0, 0);
    struct redis_options o = {.url = gw->o.redis};
    fs->tail = redis_tail_open(gw->loop, &o, str_of(fs->inbox), STR("0-0"), on_item, NULL, fs);
    fs->beat = loop_timer_new(gw->loop, on_beat, fs);
    loop_timer_arm(fs->beat, FIRST_BEAT_MS);
    return fs;
}

bool flights_known(const struct flights *fs)
{
    return !fs || fs->others.told_ms;
}

static struct flight *without_call(const struct flights *fs)
{
    struct flight *f = fs->all;
    while (f && (f->over || !f->t || f->role == FLIGHT_LEADS))
        f = f->next;
    return f;
}

void flights_refuse(struct flights *fs)
{
    for (struct flight *f; fs && (f = without_call(fs));) {
        struct ticket *t = f->t;
        flight_leave(t);
        ticket_call_handler.on_done(t, ERR_UNAVAILABLE, FAULT_DRAINING, true);
    }
}

void flights_close(struct flights *fs)
{
    if (!fs) return;
    redis_tail_close(fs->tail);
    loop_timer_free(fs->beat);
    for (struct flight *f = fs->all, *next; f; f = next) {
        next = f->next;
        flight_end(f);
    }
    ASSERT(!fs->all); /* Redis has called back for all */
    join_table_free(fs->by_token);
    mem_free(fs);
}
