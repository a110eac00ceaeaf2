/* coming.c - see coming.h. A question is listed with the vector its own look-up made; one that is not remembered is made anew. */
#include "cache/coming.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

static const struct partition *listed(const struct cache_lookup *l)
{
    if (l->o.coming == COMING_NO || !l->c->coming) return NULL;
    return partitions_get(l->c->coming, l->k->partition, false);
}

/* --- beginning and end */
struct awaited {
    struct cache *c;
    struct hash128 partition, id;
};

static void got_vector(void *arg, enum err code, const float *vec)
{
    struct awaited *a = arg;
    struct cache *c = a->c;
    struct partition *p =
        c->closed || code != OK ? NULL : partitions_get(c->coming, a->partition, false);
    if (p && partition_give_vector(p, a->id, vec) == OK) c->coming_seen++;
    mem_free(a);
}

static void embed(struct cache *c, const struct question *q, struct hash128 partition)
{
    struct awaited *a = xcalloc(1, sizeof *a);
    *a = (struct awaited){c, partition, q->id};
    if (cache_embed(c, q->text, c->o.embed_deadline_ms, got_vector, a) != OK) mem_free(a);
}

bool cache_coming_begin(struct cache *c, const struct cache_key *k, int trust, struct str tags)
{
    float vec[ENTRY_DIM_MAX];
    bool similar = c->coming && k->semantic_allowed && k->kind == OPENAI_CHAT &&
                   k->user_text.n <= ENTRY_QUESTION_BYTES_MAX;
    struct partition *p = similar ? partitions_get(c->coming, k->partition, true) : NULL;
    if (!p) return false;
    struct question q = {.id = k->exact,
                         .entry = k->exact,
                         .trust = trust,
                         .scope = {marks_name("tenant", k->tenant), marks_name("model", k->model),
                                   marks_name("ns", k->ns), tags, k->epoch},
                         .expires_s = ENTRY_NEVER_S,
                         .text = k->user_text,
                         .normal = guard_normal(c->guard, k->user_text)};
    bool known = c->dim <= ENTRY_DIM_MAX && embedder_recall(c->embedder, q.text, vec);
    if (partition_add(p, &q, known ? vec : NULL, false) != OK) return false;
    c->coming_seen++;
    if (!known) embed(c, &q, k->partition);
    return true;
}

void cache_coming_end(struct cache *c, const struct cache_key *k)
{
    struct partition *p = c->coming ? partitions_get(c->coming, k->partition, false) : NULL;
    if (p) partition_remove(p, k->exact);
}

uint64_t cache_coming_seen(const struct cache *c)
{
    return c->coming_seen;
}

bool cache_coming_any(const struct cache *c, const struct cache_key *k)
{
    const struct partition *p = c->coming ? partitions_get(c->coming, k->partition, false) : NULL;
    return p && partition_count(p);
}

/* --- deciding */
bool coming_any(const struct cache_lookup *l)
{
    const struct partition *p = listed(l);
    return p && partition_count(p);
}

static bool usable(const struct cache_lookup *l, const struct question *q)
{
    return q && !hash_eq(q->id, l->k->exact) && !marks_void(l->c->marks, &q->scope);
}

enum { TEXTS_MAX = NEARBY_TEXTS_MAX + CANDIDATES_MAX };

/* What is stored and what is coming, best first; a stored wording of one that is coming leads to it. */
static size_t merge(const struct cache_lookup *l, const struct partition *p,
                    const struct near_text *texts, size_t n, struct near_text *out)
{
    struct vector_hit hits[CANDIDATES_MAX];
    size_t n_hits =
        partition_search((struct partition *)(uintptr_t)p, l->vec, CANDIDATES_MAX, hits);
    size_t count = 0, at = 0;
    for (size_t i = 0; i < n_hits; i++) {
        const struct question *q = partition_question(p, hits[i].id);
        if (!usable(l, q)) continue;
        while (at < n && texts[at].cosine >= (double)hits[i].score)
            out[count++] = texts[at++];
        out[count++] = (struct near_text){q, q, (double)hits[i].score};
    }
    while (at < n)
        out[count++] = texts[at++];
    for (size_t i = 0; i < count; i++) {
        const struct question *own =
            out[i].own || !out[i].q->judged ? NULL : partition_entry(p, out[i].q->entry);
        if (usable(l, own)) out[i].own = own;
    }
    return count;
}

size_t coming_gather(struct cache_lookup *l, const struct near_text *texts, size_t n,
                     struct chain_item *items)
{
    struct near_text all[TEXTS_MAX];
    struct candidate found[CANDIDATES_MAX];
    const struct partition *p = listed(l);
    if (!p || !partition_count(p)) return 0;
    size_t count = candidates_gather(all, merge(l, p, texts, n, all), found, CANDIDATES_MAX);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (found[i].own == partition_entry(p, found[i].own->id))
            items[kept++] = (struct chain_item){.c = found[i]};
    return kept;
}

/* Where there is a verifier nobody follows without its yes: one that came while it was asked has none. */
static bool is_sure(const struct cache_lookup *l, const struct chain_item *x)
{
    return !l->c->verifier || !l->knobs.verifier || x->verifier >= 0 || x->guard.same;
}

bool coming_serve(struct cache_lookup *l, const struct chain_item *items, const size_t *order,
                  size_t n_hits)
{
    const struct chain_item *x = NULL;
    for (size_t i = 0; i < n_hits && !x; i++)
        if (is_sure(l, &items[order[i]])) x = &items[order[i]];
    if (!x || cache_quarantine_note(l->c, l, x->c.own)) return false;
    if (!x->guard.same)
        recents_note(l->c->recents, &(struct recent){.question = l->k->exact,
                                                     .entry = x->c.own->id,
                                                     .text = recents_text(l->k->user_text),
                                                     .view = x->view,
                                                     .served = true});
    const char *by = strchr(x->reason, ':');
    l->found.result = CACHE_COMING;
    l->found.similarity = x->c.cosine;
    l->found.threshold = x->threshold;
    hash_hex(x->c.own->id, l->found.entry_id);
    snprintf(l->found.reason, sizeof l->found.reason, "in_flight:%.40s", by ? by + 1 : x->reason);
    lookup_finish(l);
    return true;
}
