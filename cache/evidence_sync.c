/* evidence_sync.c - evidence on its way: from here to Redis' log of evidence, and from there, in its order, into cache/bounds.h. What
 * people say of an answer (deja_feedback) becomes evidence at the gateway that gave it lately and so knows what was measured. A process
 * reads the whole log when it starts or missed something, page by page, and follows from there. Without Redis it learns at once. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cache/answers.h"
#include "cache/cache_internal.h"

#define PAGE "500"

static uint64_t id_ms(struct str id, uint64_t *seq)
{
    struct str ms;
    int64_t a = 0, b = 0;
    if (!str_next(&id, '-', &ms) || str_to_i64(ms, 0, INT64_MAX, &a) != OK) a = 0;
    if (str_to_i64(id, 0, INT64_MAX, &b) != OK) b = 0;
    *seq = (uint64_t)b;
    return (uint64_t)a;
}

/* False: it was learnt of before. */
static bool step_to(struct cache *c, struct str id)
{
    uint64_t seq, ms = id_ms(id, &seq);
    if (ms < c->evidence_ms || (ms == c->evidence_ms && seq <= c->evidence_seq)) return false;
    c->evidence_ms = ms;
    c->evidence_seq = seq;
    return true;
}

static void learn(struct cache *c, const struct str *fields, size_t n_fields)
{
    struct evidence e;
    if (evidence_read(fields, n_fields, &e) != OK) {
        log_limited(LOG_WARN, "cache", "a piece of evidence cannot be read");
        return;
    }
    bounds_learn(c->bounds, &e);
    metric_add(e.right ? c->m.evidence_right : c->m.evidence_wrong, 1);
}

static void ask_page(struct cache *c);

static void learn_item(struct cache *c, const struct redis_reply *item)
{
    struct str fields[2 * (EVIDENCE_FIELDS + 4)];
    if (item->kind != REDIS_ARRAY || item->n_items != 2 || item->items[1].kind != REDIS_ARRAY)
        return;
    size_t n = item->items[1].n_items, max = sizeof fields / sizeof *fields;
    if (n > max) n = max;
    for (size_t i = 0; i < n; i++)
        fields[i] = item->items[1].items[i].text;
    if (step_to(c, item->items[0].text)) learn(c, fields, n);
}

static void got_page(void *arg, enum err code, const struct redis_reply *reply)
{
    struct cache *c = arg;
    bool more = false;
    if (!c->closed && code == OK && reply->kind == REDIS_ARRAY) {
        for (size_t i = 0; i < reply->n_items; i++)
            learn_item(c, &reply->items[i]);
        more = reply->n_items > 0;
        c->evidence_known = !more;
    }
    if (more)
        ask_page(c);
    else
        c->asked_evidence = false;
    cache_unref(c);
}

static void ask_page(struct cache *c)
{
    char key[KEY_BYTES_MAX], from[64];
    snprintf(from, sizeof from, "(%llu-%llu", (unsigned long long)c->evidence_ms,
             (unsigned long long)c->evidence_seq);
    struct str argv[] = {STR("XRANGE"),
                         cache_redis_key(c, key, "evidence", STR("")),
                         c->evidence_ms ? str_of(from) : STR("-"),
                         STR("+"),
                         STR("COUNT"),
                         STR(PAGE)};
    c->asked_evidence = true;
    cache_ref(c);
    redis_command(c->redis, 6, argv, 1000, got_page, c);
}

void cache_evidence_tick(struct cache *c)
{
    if (!c->evidence_known && !c->asked_evidence && c->tail) ask_page(c);
}

void cache_evidence_forget(struct cache *c)
{
    bounds_clear(c->bounds);
    c->evidence_known = false;
    c->evidence_ms = c->evidence_seq = 0;
}

void cache_evidence_follow(struct cache *c, struct str id, const struct str *fields,
                           size_t n_fields)
{
    if (c->evidence_known && step_to(c, id))
        learn(c, fields, n_fields); /* else a page will bring it */
}

/* once: of what is told to all gateways one takes it; the name of the telling, or empty. */
static void send(struct cache *c, const struct evidence *e, const char *by, struct str once)
{
    struct str argv[8 + 2 * EVIDENCE_FIELDS], names[EVIDENCE_FIELDS], values[EVIDENCE_FIELDS];
    char key[KEY_BYTES_MAX], texts[EVIDENCE_TEXT_BYTES];
    evidence_write(e, names, values, texts);
    int n = 0;
    argv[n++] = STR("FCALL");
    argv[n++] = STR("deja_evidence");
    argv[n++] = STR("1");
    argv[n++] = cache_redis_key(c, key, "log", STR(""));
    argv[n++] = str_of(c->source);
    argv[n++] = str_of(by);
    for (int i = 0; i < EVIDENCE_FIELDS; i++) {
        argv[n++] = names[i];
        argv[n++] = values[i];
    }
    argv[n++] = STR("once");
    argv[n++] = once;
    redis_command(c->redis, once.n ? n : n - 2, argv, 1000, NULL, NULL);
}

static void give(struct cache *c, struct str ns, const struct recent *x, bool right, const char *by)
{
    struct evidence e = {.entry = x->entry, .ns = ns, .v = x->view, .right = right, .weight = 1};
    if (c->redis) {
        send(c, &e, by, STR(""));
        return;
    }
    bounds_learn(c->bounds, &e);
    metric_add(right ? c->m.evidence_right : c->m.evidence_wrong, 1);
}

enum err cache_evidence_add(struct cache *c, const struct cache_key *k, struct str entry_id,
                            bool right, const char *by)
{
    struct hash128 entry;
    if (hash_from_hex(entry_id, &entry) != OK) return ERR_INVALID;
    const struct recent *x = recents_find(c->recents, k->exact, &entry);
    if (!x) return ERR_NOT_FOUND;
    give(c, k->ns, x, right, by);
    return OK;
}

void cache_evidence_from_feedback(struct cache *c, const struct cache_feedback *f)
{
    const struct recent *x =
        recents_latest(c->recents, f->entry, f->text.n ? recents_text(f->text) : 0);
    if (!x) return;
    struct evidence e = {
        .entry = f->entry, .ns = f->ns, .v = x->view, .right = f->right, .weight = 1};
    send(c, &e, "feedback", f->name);
}

void cache_evidence_from_answer(struct cache *c, const struct cache_key *k,
                                const struct openai_answer *a)
{
    const struct recent *x = recents_find(c->recents, k->exact, NULL);
    const struct entry *e = x && !x->served ? store_peek(c->store, x->entry) : NULL;
    struct openai_answer stored = {0};
    struct errmsg why = {0};
    if (!e || openai_answer_parse(&stored, e->kind, e->answer, &why) != OK) return;
    enum answers_verdict v = answers_compare(c->guard, answer_text(a), answer_text(&stored));
    if (v != ANSWERS_UNKNOWN) give(c, k->ns, x, v == ANSWERS_AGREE, "answer");
    openai_answer_fini(&stored);
    recents_drop(c->recents, k->exact);
}
