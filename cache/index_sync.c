/* index_sync.c - keeps what is in process in step with Redis. First the place in the log of changes is taken, then partitions are
 * loaded when somebody asks in them, then every change is followed: nothing can fall between. A trimmed or restarted log means that
 * everything Redis has is forgotten here and loaded anew when asked for. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cache/cache_internal.h"

/* --- reading entries into a partition */
struct load_waiter {
    struct load_waiter *next;
    void (*done)(void *arg);
    void *arg;
};
struct load {
    struct cache *c;
    struct partition *p;
    struct hash128 *ids; /* of one page */
    size_t n_ids, next_id, in_flight, added, seen;
    char cursor[24]; /* of the next page; "0" = there is none */
    bool paging;
    enum err code;
    struct load_waiter *waiters; /* whoever asked for the partition since */
    struct load *next;           /* of the cache's loads */
};
struct read_op {
    struct load *load;
    struct hash128 id;
};

static void corrupt(struct cache *c, const struct errmsg *why)
{
    metric_add(c->m.corrupt, 1);
    log_limited(LOG_WARN, "cache", "an entry in Redis cannot be read: %s", why->text);
}

/* A vector of ours that came with it; false = there is none, or it cannot be used. */
static bool read_vector(struct cache *c, struct str embedder, struct str bytes, float *vec)
{
    if (!bytes.n || !str_eq(embedder, c->rules.embedder_id)) return false;
    if (entry_unpack_vector(bytes, c->dim, vec) == OK) return true;
    corrupt(c, &(struct errmsg){.text = "entry field vec: not a unit vector of this embedder"});
    return false;
}

static bool add_wording(struct cache *c, struct partition *p, struct hash128 id,
                        const struct str *values, bool from_load)
{
    struct wording w;
    struct errmsg why = {0};
    float vec[ENTRY_DIM_MAX];
    if (wording_read(id, values, &w, &why) != OK) {
        corrupt(c, &why);
        return false;
    }
    if (!hash_eq(w.partition, partition_key(p)) || clock_wall_s() >= w.created_s + w.ttl_s)
        return false;
    struct question q = cache_question_of_wording(c, &w);
    bool known = read_vector(c, w.embedder, w.vector, vec);
    if (partition_add(p, &q, known ? vec : NULL, from_load) != OK) return false;
    if (!known) cache_put_vector(c, w.partition, id, w.text);
    return true;
}

static void add_read(struct cache *c, struct partition *p, struct hash128 id,
                     const struct redis_reply *reply, bool from_load, size_t *added)
{
    struct str values[N_ENTRY_FIELDS];
    struct entry e;
    struct errmsg why = {0};
    float vec[ENTRY_DIM_MAX];
    if (!cache_reply_values(reply, values)) return; /* expired meanwhile */
    if (wording_is(values)) {
        *added += add_wording(c, p, id, values, from_load);
        return;
    }
    if (entry_read(id, values, N_ENTRY_FIELDS, false, &e, &why) != OK) {
        corrupt(c, &why);
        return;
    }
    if (!hash_eq(e.partition, partition_key(p)) ||
        entry_expired(&e, clock_wall_s() - c->knobs.stale_if_error_s) || cache_is_void(c, &e))
        return;
    bool known = read_vector(c, e.embedder, e.vector, vec);
    if (!known && !e.pinned) return; /* whoever stored it is about to add the vector */
    struct question q = cache_question_of(c, &e);
    if (partition_add(p, &q, known ? vec : NULL, from_load) == OK)
        ++*added;
    else
        log_limited(LOG_WARN, "cache", "a question could not be indexed: the indexes are full");
    if (!known) cache_put_vector(c, e.partition, id, e.question);
}

static void finish_load(struct load *l)
{
    struct cache *c = l->c;
    bool live = !c->closed && !partition_forgotten(l->p);
    if (live) partition_set_state(l->p, l->code == OK ? PARTITION_LOADED : PARTITION_PARTIAL);
    if (live && l->added) log_debug("cache", "partition loaded entries=%zu", l->added);
    struct load **at = &c->loads;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    for (struct load_waiter *w = l->waiters, *next; w; w = next) {
        next = w->next;
        w->done(w->arg);
        mem_free(w);
    }
    partition_unref(l->p);
    mem_free(l->ids);
    mem_free(l);
    cache_unref(c);
}

static void load_more(struct load *l);

static void loaded_one(void *arg, enum err code, const struct redis_reply *reply)
{
    struct read_op *r = arg;
    struct load *l = r->load;
    l->in_flight--;
    if (code != OK)
        l->code = code;
    else if (!l->c->closed && !partition_forgotten(l->p))
        add_read(l->c, l->p, r->id, reply, true, &l->added);
    mem_free(r);
    if (l->in_flight <= LOAD_BATCH / 2) load_more(l);
}

static void ask_page(struct load *l);

static void load_more(struct load *l)
{
    if (l->paging) return;
    bool over = l->c->closed || partition_forgotten(l->p) || l->code != OK;
    if (over || l->next_id == l->n_ids) {
        if (!over && strcmp(l->cursor, "0") != 0 && l->seen < LOAD_IDS_MAX)
            ask_page(l);
        else if (!l->in_flight)
            finish_load(l);
        return;
    }
    size_t room = LOAD_BATCH - l->in_flight, left = l->n_ids - l->next_id;
    size_t n = left < room ? left : room;
    l->in_flight += n; /* Redis is never left without a question to answer */
    for (size_t i = 0; i < n; i++) {
        struct read_op *r = xcalloc(1, sizeof *r);
        *r = (struct read_op){.load = l, .id = l->ids[l->next_id++]};
        cache_redis_read(l->c, r->id, true, false, loaded_one, r);
    }
}

/* cursor, {id, expiry, ...}: in no order, some ids perhaps twice */
static void loaded_ids(void *arg, enum err code, const struct redis_reply *reply)
{
    struct load *l = arg;
    l->paging = false;
    const struct redis_reply *page =
        code == OK && reply->kind == REDIS_ARRAY && reply->n_items == 2 ? &reply->items[1] : NULL;
    if (!page || page->kind != REDIS_ARRAY || reply->items[0].text.n >= sizeof l->cursor) {
        l->code = code != OK ? code : ERR_IO;
        load_more(l);
        return;
    }
    snprintf(l->cursor, sizeof l->cursor, STR_FMT, STR_ARG(reply->items[0].text));
    mem_free(l->ids);
    l->ids = page->n_items ? try_calloc(page->n_items / 2, sizeof *l->ids) : NULL;
    l->n_ids = l->next_id = 0;
    for (size_t i = 0; i + 1 < page->n_items && l->ids; i += 2) {
        double expires;
        if (str_to_f64(page->items[i + 1].text, &expires) == OK &&
            expires > (double)clock_wall_s() &&
            hash_from_hex(page->items[i].text, &l->ids[l->n_ids]) == OK)
            l->n_ids++;
    }
    l->seen += l->n_ids;
    load_more(l);
}

static void ask_page(struct load *l)
{
    char key[KEY_BYTES_MAX], hex[33], count[16];
    hash_hex(partition_key(l->p), hex);
    snprintf(count, sizeof count, "%d", LOAD_PAGE);
    struct str argv[] = {STR("ZSCAN"), cache_redis_key(l->c, key, "p:", str_of(hex)),
                         str_of(l->cursor), STR("COUNT"), str_of(count)};
    l->paging = true;
    redis_command(l->c->redis, sizeof argv / sizeof *argv, argv, 1000, loaded_ids, l);
}

static struct load *begin_load(struct cache *c, struct partition *p)
{
    struct load *l = xcalloc(1, sizeof *l);
    *l = (struct load){.c = c, .p = p, .next = c->loads, .cursor = "0"};
    c->loads = l;
    cache_ref(c);
    partition_ref(p);
    partition_set_state(p, PARTITION_LOADING);
    metric_add(c->m.loads, 1);
    ask_page(l);
    return l;
}

bool cache_await_partition(struct cache *c, struct partition *p, void (*done)(void *arg), void *arg)
{
    struct load *l = c->loads;
    while (l && l->p != p)
        l = l->next;
    if (!l) {
        if (!c->redis || !cache_sync_ready(c) || !redis_usable(c->redis) ||
            partition_state(p) != PARTITION_PARTIAL)
            return false;
        l = begin_load(c, p);
    }
    struct load_waiter *w = xcalloc(1, sizeof *w);
    *w = (struct load_waiter){l->waiters, done, arg};
    l->waiters = w;
    return true;
}

/* --- following the log */
struct change_op {
    struct cache *c;
    struct partition *p;
    struct hash128 id;
};

static void changed_entry(void *arg, enum err code, const struct redis_reply *reply)
{
    struct change_op *o = arg;
    size_t added = 0;
    if (!o->c->closed && !partition_forgotten(o->p)) {
        if (code == OK)
            add_read(o->c, o->p, o->id, reply, true, &added);
        else
            partition_set_state(o->p, PARTITION_PARTIAL); /* missed one: load anew when asked */
    }
    partition_unref(o->p);
    cache_unref(o->c);
    mem_free(o);
}

static void follow_put(struct cache *c, struct hash128 id, struct str part, bool judged)
{
    struct hash128 key;
    store_remove(c->store, id); /* an older answer held here must not outlive the new one */
    if (hash_from_hex(part, &key) != OK) return;
    struct partition *p = partitions_get(c->partitions, key, false);
    /* where nobody has asked, loading will find an answer; a judgement counts for what is here already */
    if (!p || (partition_state(p) == PARTITION_PARTIAL && !judged)) return;
    struct change_op *o = xcalloc(1, sizeof *o);
    *o = (struct change_op){c, p, id};
    cache_ref(c);
    partition_ref(p);
    cache_redis_read(c, id, true, false, changed_entry, o);
}

static void follow_del(struct cache *c, struct hash128 id, struct str part, struct str denied)
{
    struct hash128 key;
    store_remove(c->store, id);
    if (denied.n) cache_marks_deny(c, id, denied);
    struct partition *p =
        hash_from_hex(part, &key) == OK ? partitions_get(c->partitions, key, false) : NULL;
    if (p)
        partition_remove(p, id);
    else
        partitions_remove_id(c->partitions, id);
}

static void forget_here(struct cache *c)
{
    store_drop_saved(c->store);
    partitions_forget_all(c->partitions);
}

struct change {
    struct str op, id, part, src, scope, epoch, left, judged, deny, eid, state, ns, text, right;
};

static void read_change(const struct str *fields, size_t n_fields, struct change *out)
{
    const struct {
        const char *name;
        struct str *to;
    } known[] = {{"op", &out->op},     {"id", &out->id},         {"part", &out->part},
                 {"src", &out->src},   {"scope", &out->scope},   {"epoch", &out->epoch},
                 {"left", &out->left}, {"judged", &out->judged}, {"deny", &out->deny},
                 {"eid", &out->eid},   {"state", &out->state},   {"ns", &out->ns},
                 {"text", &out->text}, {"right", &out->right}};
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i + 1 < n_fields; i += 2)
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            if (str_eqz(fields[i], known[k].name)) *known[k].to = fields[i + 1];
}

static void on_change(void *arg, struct str stream_id, const struct str *fields, size_t n_fields)
{
    struct cache *c = arg;
    struct change x;
    struct hash128 id;
    read_change(fields, n_fields, &x);
    if (str_eqz(x.op, "epoch"))
        forget_here(c);
    else if (str_eqz(x.op, "evidence"))
        cache_evidence_follow(c, x.eid, fields, n_fields);
    else if (str_eqz(x.op, "aside") && hash_from_hex(x.id, &id) == OK)
        cache_quarantine_follow(c, id, x.state);
    else if (str_eqz(x.op, "feedback") && hash_from_hex(x.id, &id) == OK)
        cache_evidence_from_feedback(c, &(struct cache_feedback){.entry = id,
                                                                 .name = stream_id,
                                                                 .ns = x.ns,
                                                                 .text = x.text,
                                                                 .right = str_eqz(x.right, "1")});
    else if (str_eqz(x.op, "forget"))
        cache_marks_follow(c, x.scope, x.epoch, x.left);
    else if (str_eqz(x.src, c->source) || hash_from_hex(x.id, &id) != OK)
        return; /* our own doing, or nothing we know */
    else if (str_eqz(x.op, "put"))
        follow_put(c, id, x.part, x.judged.n > 0);
    else if (str_eqz(x.op, "del"))
        follow_del(c, id, x.part, x.deny);
}

static void on_gap(void *arg)
{
    struct cache *c = arg;
    log_warn("cache", "the log of changes was lost or begun anew: what Redis holds is loaded again "
                      "when asked for");
    metric_add(c->m.gaps, 1);
    forget_here(c);
    c->marks_known = false;
    c->ticks = 0;
    loop_timer_arm(c->tick, 0); /* asked for again at once */
    cache_evidence_forget(c);
}

/* --- getting in step */
static void preloaded_one(void *arg)
{
    cache_unref(arg);
}

static void on_parts(void *arg, enum err code, const struct redis_reply *reply)
{
    struct cache *c = arg;
    for (size_t i = 0; code == OK && !c->closed && reply->kind == REDIS_ARRAY && i < reply->n_items;
         i++) {
        struct hash128 key;
        struct partition *p = hash_from_hex(reply->items[i].text, &key) == OK
                                  ? partitions_get(c->partitions, key, true)
                                  : NULL;
        if (!p) continue;
        cache_ref(c);
        if (!cache_await_partition(c, p, preloaded_one, c)) cache_unref(c);
    }
    cache_unref(c);
}

static void preload(struct cache *c)
{
    char key[KEY_BYTES_MAX], last[16];
    if (c->preloaded) return;
    c->preloaded = true;
    snprintf(last, sizeof last, "%d", PRELOAD_PARTITIONS - 1);
    struct str argv[] = {STR("ZREVRANGE"), cache_redis_key(c, key, "parts", STR("")), STR("0"),
                         str_of(last)};
    cache_ref(c);
    redis_command(c->redis, 4, argv, 1000, on_parts, c);
}

static void on_position(void *arg, enum err code, const struct redis_reply *reply)
{
    struct cache *c = arg;
    c->asked_position = false;
    if (!c->closed && code == OK && reply->kind == REDIS_ARRAY && !c->tail) {
        struct str at = STR("0-0");
        if (reply->n_items && reply->items[0].kind == REDIS_ARRAY && reply->items[0].n_items)
            at = reply->items[0].items[0].text;
        struct redis_options o = {.url = c->redis_url};
        char key[KEY_BYTES_MAX];
        c->tail = redis_tail_open(c->loop, &o, cache_redis_key(c, key, "log", STR("")), at,
                                  on_change, on_gap, c);
        preload(c);
    }
    cache_unref(c);
}

static void ask_position(struct cache *c)
{
    char key[KEY_BYTES_MAX];
    struct str argv[] = {STR("XREVRANGE"), cache_redis_key(c, key, "log", STR("")),
                         STR("+"),         STR("-"),
                         STR("COUNT"),     STR("1")};
    c->asked_position = true;
    cache_ref(c);
    redis_command(c->redis, 6, argv, 500, on_position, c);
}

bool cache_sync_ready(const struct cache *c)
{
    return c->tail != NULL;
}

static void on_tick(void *arg)
{
    struct cache *c = arg;
    bool starting = c->redis && !c->marks_known && c->ticks++ < START_TICKS_MAX;
    loop_timer_arm(c->tick, starting ? START_TICK_MS : TICK_MS);
    cache_put_waiting(c);
    cache_budget_tick(c);
    metric_set(c->m.index_entries, (double)partitions_entries(c->partitions));
    if (!c->redis) return;
    bool usable = redis_usable(c->redis);
    if (usable) cache_marks_tick(c), cache_evidence_tick(c), cache_budget_redis_tick(c);
    if (usable && !c->tail && !c->asked_position && c->redis_url) ask_position(c);
    if (usable != c->was_usable) {
        c->was_usable = usable;
        if (usable) c->marks_known = false; /* who knows what went by */
        if (usable)
            log_info("cache", "Redis is there");
        else
            log_warn("cache",
                     "Redis is away: answers are kept in process and written when it returns");
    }
    cache_write_unsaved(c);
}

void cache_sync_start(struct cache *c)
{
    c->was_usable = c->redis && redis_usable(c->redis);
    c->tick = loop_timer_new(c->loop, on_tick, c);
    loop_timer_arm(c->tick, 0);
}

void cache_sync_stop(struct cache *c)
{
    if (c->tick) loop_timer_free(c->tick);
    c->tick = NULL;
    if (c->tail) redis_tail_close(c->tail);
    c->tail = NULL;
}
