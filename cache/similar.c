/* similar.c - the semantic step of a look-up: texts known to mean the same need no vector; else the question's vector, the nearest texts
 * of its partitions, the decision chain on the entries they lead to, and the answer of the first that passes and is still there. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cache/coming.h"
#include "cache/lookup.h"
#include "cache/opinion.h"

static void go_on(struct cache_lookup *l);

/* --- the answer of an accepted entry */
static void next_answer(struct cache_lookup *l);

static bool fits(const struct cache_lookup *l, const struct accepted *a, const struct entry *e)
{
    struct hash128 part = partition_key(l->around.places[a->place]);
    if (hash_eq(part, l->k->partition)) return entry_fits_partition(e, l->k);
    return entry_fits_curated(e, l->k, part);
}

/* Is this the entry the index promised, and does its question still read as when it was judged? */
static bool is_promised(const struct cache_lookup *l, const struct accepted *a,
                        const struct entry *e)
{
    const struct question *own = partition_entry(l->around.places[a->place], e->id);
    return own && str_eq(own->text, e->question) && fits(l, a, e) && lookup_may_use(l, e);
}

static bool serve_accepted(struct cache_lookup *l, const struct entry *e)
{
    const struct accepted *a = &l->accepted[l->tried - 1];
    if (!is_promised(l, a, e)) return false;
    bool same_words = !strcmp(a->reason, "semantic:same") || !strcmp(a->reason, "semantic:wording");
    if (!same_words &&
        cache_quarantine_note(l->c, l, partition_entry(l->around.places[a->place], a->id))) {
        l->set_aside = true;
        return false;
    }
    struct cache_verdict served = {.question = e->question,
                                   .wording = {"", 0},
                                   .hit = true,
                                   .step = "hit",
                                   .reason = a->reason,
                                   .detail = "",
                                   .similarity = a->similarity,
                                   .threshold = a->threshold,
                                   .verifier = -1,
                                   .veto = -1,
                                   .rival = -1};
    hash_hex(e->id, served.entry_id);
    partition_touch(l->around.places[a->place], e->id);
    l->found.similarity = a->similarity;
    l->found.threshold = a->threshold;
    l->found.near = &served;
    bool own = !strcmp(a->reason, "curated");
    l->found.n_near = !same_words && !own;
    if (own) l->found.similarity = -1; /* as of every exact answer */
    if (lookup_serve(l, e, own ? CACHE_EXACT : CACHE_SEMANTIC, a->reason)) return true;
    l->found.near = NULL;
    l->found.n_near = 0;
    return false;
}

static void got_answer(void *arg, enum err code, const struct redis_reply *reply)
{
    struct cache_lookup *l = arg;
    l->pending--;
    if (!l->cb) {
        lookup_settle(l);
        return;
    }
    const struct accepted *a = &l->accepted[l->tried - 1];
    struct str values[N_ENTRY_FIELDS];
    struct entry e;
    struct errmsg why = {0};
    if (code != OK) {
        lookup_miss(l, "redis_unavailable");
        return;
    }
    bool there = cache_reply_values(reply, values);
    if (!there || entry_read(a->id, values, N_ENTRY_FIELDS, true, &e, &why) != OK) {
        if (there) {
            metric_add(l->c->m.corrupt, 1);
            log_limited(LOG_WARN, "cache", "an entry in Redis cannot be read: %s", why.text);
        }
        /* gone or spoilt: the index must not promise it again */
        partition_remove(l->around.places[a->place], a->id);
        next_answer(l);
        return;
    }
    lookup_remember(l, &e);
    if (!serve_accepted(l, &e)) next_answer(l);
}

static void next_answer(struct cache_lookup *l)
{
    while (l->tried < l->n_accepted && l->tried < ANSWERS_TRIED_MAX) {
        const struct accepted *a = &l->accepted[l->tried++];
        const struct entry *e = store_get(l->c->store, a->id);
        if (e && serve_accepted(l, e)) return;
        if (e || !l->c->redis) continue;
        l->pending++;
        cache_redis_read(l->c, a->id, false, true, got_answer, l);
        return;
    }
    l->n_accepted = l->tried = 0;
    if (l->curated_first)
        lookup_curated_over(l);
    else if (l->vec)
        lookup_miss(l, l->set_aside ? "quarantined" : "entry_gone");
    else
        go_on(l);
}

/* --- deciding */
static void count_step(struct cache *c, const struct chain_item *x)
{
    if (x->hit) {
        metric_add(c->m.passed, 1);
        return;
    }
    metric_add(c->m.refused[x->step], 1);
    if (x->step != CHAIN_GUARDS) return;
    char label[64];
    snprintf(label, sizeof label, "guard=\"%s\"", x->guard.refused_by);
    metric_add(metrics_get(c->registry, METRIC_COUNTER, "deja_cache_guard_refusals_total", label,
                           "candidates a guard refused", 0, 0),
               1);
}

static void tell(const struct chain_item *x, struct cache_verdict *v)
{
    *v = (struct cache_verdict){.question = x->c.own->text,
                                .wording = x->c.q->text,
                                .hit = x->hit,
                                .step = x->hit ? "hit" : chain_step_names[x->step],
                                .reason = x->reason,
                                .detail = x->guard.detail,
                                .similarity = x->c.cosine,
                                .threshold = x->threshold,
                                .verifier = x->verifier,
                                .veto = x->c.veto,
                                .rival = x->c.rival,
                                .shared = x->guard.shared,
                                .contained = x->guard.contained};
    hash_hex(x->c.own->id, v->entry_id);
}

/* Another topic, or this very text was judged already: nothing to look at again. What only lies beside a vetoed text was not judged, and
 * may well be right: near a question stand many that ask something else. */
static bool is_near(const struct chain_item *x)
{
    return !x->hit && x->step != CHAIN_TOPIC && !x->text_vetoed;
}

_Static_assert((int)CACHE_NEAR_MAX >= (int)CANDIDATES_MAX,
               "all that was considered can be told of");

/* A miss with what was near. */
static void near_miss(struct cache_lookup *l, const struct chain_item *items, size_t n)
{
    struct cache_verdict near[CACHE_NEAR_MAX];
    for (size_t i = 0; i < n && l->found.n_near < CACHE_NEAR_MAX; i++)
        if (is_near(&items[i])) tell(&items[i], &near[l->found.n_near++]);
    l->found.near = near;
    lookup_finish(l);
}

/* The nearest one that was refused is told of, unless something is served. */
static void note_near_miss(struct cache_lookup *l, const struct chain_item *x)
{
    if (l->found.entry_id[0] || x->step == CHAIN_TOPIC) return;
    hash_hex(x->c.own->id, l->found.entry_id);
    l->found.similarity = x->c.cosine;
    l->found.threshold = x->threshold;
    lookup_say(l, x->reason);
}

static bool is_aside(const struct cache_lookup *l, struct hash128 entry)
{
    return marks_aside(l->c->marks, entry) == ASIDE_SET;
}

static void note_forbidden(const struct cache_lookup *l, struct chain_item *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        items[i].text_vetoed = nearby_forbids(&l->around, items[i].c.own->id);
        items[i].set_aside = is_aside(l, items[i].c.own->id);
    }
}

static bool likelier(const struct chain_item *a, const struct chain_item *b)
{
    return a->error >= 0 && a->error < b->error;
}

/* What was decided on, should it become known whether that was right: what is served, or the likeliest that no guard refused. */
static void note_decision(struct cache_lookup *l, const struct chain_item *items, size_t n,
                          const size_t *order)
{
    const struct chain_item *x = l->n_accepted ? &items[order[0]] : NULL;
    for (size_t i = 0; i < n && !l->n_accepted; i++)
        if (items[i].step > CHAIN_PLACES && (!x || likelier(&items[i], x))) x = &items[i];
    if (!x || x->guard.same) return; /* explained word by word: nothing to learn */
    recents_note(l->c->recents, &(struct recent){.question = l->k->exact,
                                                 .entry = x->c.own->id,
                                                 .text = recents_text(l->k->user_text),
                                                 .view = x->view,
                                                 .served = x->hit});
}

/* The guards look at two texts once, also when the candidates are gathered again. */
static void recall_guards(const struct cache_lookup *l, struct chain_item *items, size_t n)
{
    for (size_t i = 0; i < n && l->n_guarded; i++) {
        struct hash128 text = hash_bytes(0, items[i].c.q->text);
        for (size_t k = 0; k < l->n_guarded && !items[i].guarded; k++)
            if (hash_eq(l->guarded[k].text, text)) {
                items[i].guarded = true;
                items[i].guard = l->guarded[k].verdict;
            }
    }
}

static void keep_guards(struct cache_lookup *l, const struct chain_item *items, size_t n)
{
    l->n_guarded = 0;
    for (size_t i = 0; i < n; i++)
        if (items[i].checked)
            l->guarded[l->n_guarded++] =
                (struct guarded){hash_bytes(0, items[i].c.q->text), items[i].guard};
}

void lookup_judge(struct cache_lookup *l)
{
    struct cache *c = l->c;
    struct near_text texts[NEARBY_TEXTS_MAX];
    struct candidate found[CANDIDATES_MAX];
    struct chain_item items[2 * CANDIDATES_MAX] = {0}; /* stored ones, then those coming */
    size_t order[CANDIDATES_MAX];
    size_t n_texts = nearby_texts(&l->around, clock_wall_s(), texts);
    if (l->searches < SEARCHES_MAX &&
        nearby_is_crowded(&l->around)) { /* what has expired took places */
        lookup_search(l);
        return;
    }
    size_t n = candidates_gather(texts, n_texts, found, (size_t)l->knobs.top_k);
    if (l->o.coming == COMING_ONLY) n = 0;
    struct chain_rules rules = {.guard = c->guard,
                                .knobs = &l->knobs,
                                .policy = policy_with(&c->shipped, &l->knobs),
                                .client_min = l->o.threshold_min,
                                .bounds = c->bounds,
                                .ns = l->k->ns,
                                .has_verifier = c->verifier != NULL};
    lookup_say(l, n ? "below_floor" : "empty");
    for (size_t i = 0; i < n; i++)
        items[i].c = found[i];
    size_t n_coming = coming_gather(l, texts, n_texts, items + n);
    note_forbidden(l, items, n + n_coming);
    recall_guards(l, items, n + n_coming);
    size_t open = chain_screen(&rules, l->k->user_text, items, n) +
                  chain_screen(&rules, l->k->user_text, items + n, n_coming);
    if (open && opinions_ask(l, items, n + n_coming, lookup_judge)) {
        keep_guards(l, items, n + n_coming);
        return; /* and once more with what it says */
    }
    opinions_fill(l, items, n + n_coming);
    l->n_accepted = chain_settle(&rules, items, n, order);
    if (!l->n_accepted && n_coming) {
        size_t n_hits = chain_settle(&rules, items + n, n_coming, order);
        for (size_t i = 0; i < n_coming; i++)
            count_step(c, &items[n + i]);
        if (coming_serve(l, items + n, order, n_hits)) return;
    }
    for (size_t i = 0; i < l->n_accepted; i++) {
        const struct chain_item *x = &items[order[i]];
        l->accepted[i] = (struct accepted){.id = x->c.own->id,
                                           .place = nearby_place(&l->around, x->c.q),
                                           .similarity = x->c.cosine,
                                           .threshold = x->threshold};
        snprintf(l->accepted[i].reason, sizeof l->accepted[i].reason, "%.31s", x->reason);
    }
    for (size_t i = 0; i < n; i++) {
        struct cache_verdict v;
        tell(&items[i], &v);
        if (l->o.explain)
            l->o.explain(l->arg, &v);
        else
            count_step(c, &items[i]);
        if (!items[i].hit) note_near_miss(l, &items[i]);
    }
    note_decision(l, items, n, order);
    if (l->n_accepted)
        next_answer(l);
    else
        near_miss(l, items, n);
}

/* --- the same text, or all words of it explained: no vector needed */
static void accept_text(struct cache_lookup *l, int place, const struct question *q)
{
    if (l->n_accepted == CANDIDATES_MAX || (!q->entry.hi && !q->entry.lo)) return;
    bool own = !q->judged && !hash_eq(partition_key(l->around.places[place]), l->k->partition) &&
               str_eq(q->text, l->k->user_text);
    if (!own && !knobs_same_words(&l->knobs, q->judged)) return;
    struct accepted *a = &l->accepted[l->n_accepted++];
    *a = (struct accepted){.id = q->entry, .place = place, .similarity = 1};
    snprintf(a->reason, sizeof a->reason, "%s",
             own         ? "curated"
             : q->judged ? "semantic:wording"
                         : "semantic:same");
}

void lookup_note_text(struct cache_lookup *l, int place, const struct question *q)
{
    nearby_note_vetoes(&l->around, q);
    accept_text(l, place, q);
}

static void drop_forbidden(struct cache_lookup *l)
{
    int64_t now = clock_wall_s();
    size_t kept = 0;
    for (size_t i = 0; i < l->n_accepted; i++) {
        struct accepted a = l->accepted[i];
        const struct question *own = nearby_alive(
            &l->around, a.place, partition_entry(l->around.places[a.place], a.id), now);
        bool aside = !strcmp(a.reason, "semantic:same") && is_aside(l, a.id);
        if (own && !aside && own->trust >= l->knobs.trust_min &&
            !(l->knobs.vetoes && nearby_forbids(&l->around, a.id)))
            l->accepted[kept++] = a;
    }
    l->n_accepted = kept;
}

static void explain_texts(struct cache_lookup *l)
{
    for (size_t i = 0; i < l->n_accepted; i++) {
        const struct accepted *a = &l->accepted[i];
        const struct question *own = partition_entry(l->around.places[a->place], a->id);
        struct cache_verdict v = {.question = own->text,
                                  .wording = l->k->user_text,
                                  .hit = true,
                                  .step = "hit",
                                  .reason = a->reason,
                                  .detail = "",
                                  .similarity = 1,
                                  .verifier = -1,
                                  .veto = -1,
                                  .rival = -1,
                                  .shared = 1,
                                  .contained = 1};
        hash_hex(a->id, v.entry_id);
        l->o.explain(l->arg, &v);
    }
}

bool lookup_serve_texts(struct cache_lookup *l)
{
    drop_forbidden(l);
    if (!l->n_accepted) return false;
    if (l->o.explain)
        explain_texts(l);
    else
        metric_add(l->c->m.texts, 1);
    next_answer(l);
    return true;
}

static void note_text(void *arg, int place, const struct question *q)
{
    lookup_note_text(arg, place, q);
}

static bool try_texts(struct cache_lookup *l)
{
    l->texts_tried = true;
    nearby_same(&l->around, l->c->guard, l->knobs.guards_off, l->k->user_text, note_text, l);
    /* a client that wants a least similarity gets it measured; without same_words so is the equal curated text, which accept_text
     * lets through for the curated step */
    if (!l->knobs.same_words || l->o.threshold_min > 0 || l->o.coming == COMING_ONLY)
        l->n_accepted = 0;
    return lookup_serve_texts(l);
}

/* --- the vector and the partitions, whichever comes first */
static void got_vector(void *arg, enum err code, const float *vec)
{
    struct cache_lookup *l = arg;
    l->pending--;
    if (!l->cb) {
        lookup_settle(l);
        return;
    }
    if (code != OK) {
        lookup_miss(l, code == ERR_TIMEOUT       ? "embedder_timeout"
                       : code == ERR_TOO_LARGE   ? "skipped:long_text"
                       : code == ERR_UNSUPPORTED ? "skipped:unknown_script"
                                                 : "embedder_unavailable");
        return;
    }
    l->vec = xmalloc(l->c->dim * sizeof *vec);
    memcpy(l->vec, vec, l->c->dim * sizeof *vec);
    lookup_search(l);
}

static void embed(struct cache_lookup *l)
{
    l->pending++;
    enum err code = cache_embed(l->c, l->k->user_text, l->c->o.embed_deadline_ms, got_vector, l);
    if (code == OK) return;
    l->pending--;
    lookup_miss(l, code == ERR_FULL        ? "embedder_busy"
                   : code == ERR_TOO_LARGE ? "skipped:long_text"
                                           : "embedder_unavailable");
}

/* Everything that will be loaded is. */
static void go_on(struct cache_lookup *l)
{
    bool empty = true, complete = true;
    for (int i = 0; i < l->around.n_places; i++) {
        empty = empty && !partition_count(l->around.places[i]);
        complete = complete && partition_state(l->around.places[i]) == PARTITION_LOADED;
    }
    if (empty && !coming_any(l))
        lookup_miss(l, complete ? "empty" : "index_loading");
    else if (l->texts_tried || !try_texts(l))
        embed(l);
}

static void not_loaded(struct cache_lookup *l)
{
    lookup_miss(l, "index_loading"); /* what is not there yet might forbid what is */
}

void lookup_similar(struct cache_lookup *l)
{
    struct cache *c = l->c;
    if (l->o.skip_semantic || !l->knobs.semantic || !c->embedder) {
        if (!l->found.reason[0])
            lookup_say(l, l->o.skip_semantic || !l->knobs.semantic ? "no_entry"
                                                                   : "skipped:no_embedder");
        lookup_finish(l);
        return;
    }
    if (l->k->temperature > l->knobs.temperature_max) {
        lookup_miss(l, "skipped:temperature");
        return;
    }
    if (!l->k->semantic_allowed) {
        snprintf(l->found.reason, sizeof l->found.reason, "skipped:%s",
                 l->k->why_not ? l->k->why_not : "not_allowed");
        lookup_finish(l);
        return;
    }
    lookup_take_curated(l);
    lookup_take_place(l, l->k->partition);
    if (!l->around.n_places)
        lookup_miss(l, "index_unavailable");
    else
        lookup_await_places(l, go_on, not_loaded);
}
