/* redis_tail.c - follows one stream. See redis.h for what a gap is.
 * One round = XINFO STREAM and XREAD sent together: Redis serves them one after the other, so the look at the stream and the read that
 * follows see the same entries. A round that is not answered within ROUND_MS (BLOCK plus grace) means a hung connection. */
#include <stdio.h>
#include <string.h>

#include "base/http_client_dial.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/redis_conn.h"
#include "base/redis_reader.h"
#include "base/rng.h"

enum { BLOCK_MS = 1000, ROUND_MS = 3000, FAILED_MS = 1000, KEY_BYTES_MAX = 512 };
enum { COUNT_UNKNOWN = -1 };

struct redis_tail {
    struct loop *loop;
    struct resolver *resolver;
    struct redis_address address;
    struct redis_conn *conn;
    struct loop_timer *timer; /* next attempt, next round, or the end of patience with this one */
    enum { TAIL_RETRY, TAIL_PAUSE, TAIL_WAIT } timer_means;
    int connect_timeout_ms, backoff_first_ms, backoff_max_ms, attempts;
    char key[KEY_BYTES_MAX];
    size_t key_n;
    struct redis_id id; /* of the last entry handed on */
    bool from_now;      /* "$" not yet turned into an id */
    int64_t count;      /* entries ever added up to id, or COUNT_UNKNOWN */
    int awaited;        /* replies of this round still to come: 2 = XINFO, 1 = XREAD */
    bool failed;        /* an error reply in this round */
    bool
        went_back; /* the position moved back after this round's XREAD was sent: its items would leave a hole */
    redis_tail_item *on_item;
    void (*on_gap)(void *arg);
    void *arg;
    int depth;
    bool closed;
    struct rng rng;
};

static void destroy(struct redis_tail *t)
{
    redis_conn_close(t->conn);
    loop_timer_free(t->timer);
    resolver_free(t->resolver);
    mem_free(t);
}

static void leave(struct redis_tail *t)
{
    if (--t->depth == 0 && t->closed) destroy(t);
}

void redis_tail_close(struct redis_tail *t)
{
    if (!t || t->closed) return;
    t->closed = true;
    if (!t->depth) destroy(t);
}

static void arm(struct redis_tail *t, int means, uint64_t delay_ms)
{
    t->timer_means = means;
    loop_timer_arm(t->timer, delay_ms);
}

/* --- gap */
struct look { /* at the stream, from XINFO STREAM */
    bool exists, has_first;
    struct redis_id first, last; /* first entry there is; last id ever given */
    int64_t length, added;
};

static void gap(struct redis_tail *t)
{
    log_warn("redis", "tail: entries of the stream were missed");
    if (t->on_gap) t->on_gap(t->arg);
}

static void set_position(struct redis_tail *t, struct redis_id id, int64_t count)
{
    t->id = id;
    t->count = count;
}

/* Compares our position with the stream, and corrects it. */
static void compare(struct redis_tail *t, const struct look *s)
{
    struct redis_id zero = {0, 0};
    if (t->from_now) {
        t->from_now = false;
        set_position(t, s->exists ? s->last : zero, s->exists ? s->added : 0);
        return;
    }
    int behind = redis_id_compare(s->last, t->id);
    if (!s->exists || behind < 0) { /* gone, or begun anew with younger ids */
        bool had_some = redis_id_compare(t->id, zero) > 0;
        set_position(t, zero, 0);
        t->went_back = had_some;
        if (had_some) gap(t);
        return;
    }
    bool missed = false;
    if (behind == 0) {
        missed = t->count != COUNT_UNKNOWN && t->count != s->added;
        t->count = s->added;
    } else if (!s->has_first) {
        missed = true;
        set_position(t, s->last, s->added);
    } else if (redis_id_compare(s->first, t->id) > 0) {
        missed = t->count == COUNT_UNKNOWN || s->added - t->count != s->length;
        t->count = s->added - s->length;
    }
    if (missed) gap(t);
}

static int64_t integer_of(const struct redis_reply *v)
{
    return v->kind == REDIS_INTEGER ? v->integer : 0;
}

/* XINFO STREAM answers names and values in turn. False: not understood. */
static bool read_look(const struct redis_reply *reply, struct look *out)
{
    *out = (struct look){.exists = reply->kind == REDIS_ARRAY};
    bool has_last = false;
    for (size_t i = 0; i + 1 < reply->n_items; i += 2) {
        struct str name = reply->items[i].text;
        const struct redis_reply *v = &reply->items[i + 1];
        if (str_eqz(name, "length"))
            out->length = integer_of(v);
        else if (str_eqz(name, "entries-added"))
            out->added = integer_of(v);
        else if (str_eqz(name, "last-generated-id"))
            has_last = redis_id_parse(v->text, &out->last) == OK;
        else if (str_eqz(name, "first-entry") && v->n_items)
            out->has_first = redis_id_parse(v->items[0].text, &out->first) == OK;
    }
    if (reply->kind == REDIS_ERROR) return str_find(reply->text, STR("no such key")) >= 0;
    return has_last;
}

/* --- items */
enum { FIELDS_ON_STACK = 64 };

static bool hand_on(struct redis_tail *t, const struct redis_reply *entry)
{
    struct redis_id id;
    if (entry->n_items != 2 || redis_id_parse(entry->items[0].text, &id) ||
        redis_id_compare(id, t->id) <= 0)
        return false;
    const struct redis_reply *list = &entry->items[1];
    struct str few[FIELDS_ON_STACK], *fields = few;
    if (list->n_items > FIELDS_ON_STACK) fields = xcalloc(list->n_items, sizeof *fields);
    for (size_t i = 0; i < list->n_items; i++)
        fields[i] = list->items[i].text;
    set_position(t, id, t->count == COUNT_UNKNOWN ? COUNT_UNKNOWN : t->count + 1);
    t->from_now = false;
    t->on_item(t->arg, entry->items[0].text, fields, list->n_items);
    if (fields != few) mem_free(fields);
    return true;
}

/* [[key, [[id, [name, value, ...]], ...]]], or nil when nothing came within BLOCK_MS. */
static bool take_items(struct redis_tail *t, const struct redis_reply *reply)
{
    if (reply->kind == REDIS_NIL || t->went_back) return true;
    if (reply->kind != REDIS_ARRAY || reply->n_items != 1 || reply->items[0].n_items != 2)
        return false;
    const struct redis_reply *entries = &reply->items[0].items[1];
    for (size_t i = 0; i < entries->n_items && !t->closed; i++)
        if (!hand_on(t, &entries->items[i])) return false;
    return true;
}

/* --- rounds */
static void start_round(struct redis_tail *t)
{
    char id[48];
    struct str key = {t->key, t->key_n};
    if (t->from_now)
        snprintf(id, sizeof id, "$");
    else
        snprintf(id, sizeof id, "%llu-%llu", (unsigned long long)t->id.ms,
                 (unsigned long long)t->id.seq);
    struct str look[] = {STR("XINFO"), STR("STREAM"), key};
    struct str read[] = {STR("XREAD"), STR("BLOCK"),   STR("1000"), STR("COUNT"),
                         STR("256"),   STR("STREAMS"), key,         str_of(id)};
    _Static_assert(BLOCK_MS == 1000, "as the command says");
    t->awaited = 2;
    t->failed = t->went_back = false;
    arm(t, TAIL_WAIT, ROUND_MS);
    enum err sent = redis_conn_send(t->conn, 3, look);
    if (!sent) sent = redis_conn_send(t->conn, 8, read);
    ASSERT(sent == OK); /* an idle connection takes two small commands */
}

static void on_reply(void *arg, const struct redis_reply *reply)
{
    struct redis_tail *t = arg;
    struct look look;
    t->depth++;
    bool first = t->awaited-- == 2;
    bool ok = first ? read_look(reply, &look) : take_items(t, reply);
    if (ok && first) compare(t, &look);
    if (!ok && !t->closed) {
        t->failed = true;
        log_limited(LOG_WARN, "redis", "tail: " STR_FMT,
                    STR_ARG(reply->kind == REDIS_ERROR ? str_sub(reply->text, 0, 200)
                                                       : STR("an answer of another form")));
    }
    if (!t->awaited && !t->closed) {
        if (t->failed)
            arm(t, TAIL_PAUSE, FAILED_MS);
        else
            start_round(t);
    }
    leave(t);
}

static void on_open(void *arg)
{
    struct redis_tail *t = arg;
    t->attempts = 0;
    start_round(t);
}

static void try_later(struct redis_tail *t)
{
    uint64_t most = (uint64_t)t->backoff_max_ms,
             delay = (uint64_t)t->backoff_first_ms << (t->attempts < 16 ? t->attempts : 16);
    if (delay > most) delay = most;
    t->attempts++;
    arm(t, TAIL_RETRY, delay / 2 + rng_below(&t->rng, delay / 2 + 1));
}

static void on_closed(void *arg, const char *why)
{
    struct redis_tail *t = arg;
    static struct log_site told; /* tails of a process are lost together */
    if (log_site_open(&told, REDIS_TELL_AGAIN_MS, NULL))
        log_warn("redis", "tail: connection lost: %s", why);
    t->conn = NULL;
    try_later(t);
}

static void on_timer(void *arg)
{
    struct redis_tail *t = arg;
    struct redis_conn_options o = {
        t->loop, t->resolver, &t->address, t->connect_timeout_ms, {NULL, 0}};
    if (t->timer_means == TAIL_PAUSE) {
        start_round(t);
    } else if (t->timer_means == TAIL_WAIT) {
        redis_conn_close(t->conn);
        on_closed(t, "it hangs");
    } else {
        t->conn =
            redis_conn_open(&o, &(struct redis_conn_handler){on_open, on_reply, on_closed, t});
    }
}

struct redis_tail *redis_tail_open(struct loop *l, const struct redis_options *o, struct str key,
                                   struct str after_id, redis_tail_item *on_item,
                                   void (*on_gap)(void *arg), void *arg)
{
    struct redis_tail *t = xcalloc(1, sizeof *t);
    ASSERT(key.n < sizeof t->key);
    enum err code = redis_address_parse(o->url, &t->address, NULL);
    ASSERT(code == OK); /* the link with the same URL has been opened before */
    memcpy(t->key, key.p, key.n);
    t->key_n = key.n;
    t->from_now = str_eqz(after_id, "$");
    if (!t->from_now && redis_id_parse(after_id, &t->id))
        log_warn("redis", "tail: \"" STR_FMT "\" is no stream id: reading from the start",
                 STR_ARG(after_id));
    t->count = t->id.ms || t->id.seq ? COUNT_UNKNOWN : 0;
    t->loop = l;
    t->resolver = resolver_new(l);
    t->connect_timeout_ms = o->connect_timeout_ms > 0 ? o->connect_timeout_ms : 500;
    t->backoff_first_ms = o->backoff_first_ms > 0 ? o->backoff_first_ms : 50;
    t->backoff_max_ms = o->backoff_max_ms > 0 ? o->backoff_max_ms : 1000;
    t->on_item = on_item;
    t->on_gap = on_gap;
    t->arg = arg;
    rng_seed(&t->rng, rng_entropy());
    t->timer = loop_timer_new(l, on_timer, t);
    arm(t, TAIL_RETRY, 0);
    return t;
}
