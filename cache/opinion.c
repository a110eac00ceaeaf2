/* opinion.c - see opinion.h. What comes back is kept by the wording's text: candidates may be gone or others by then, so the chain is run
 * again and takes what fits. */
#include "cache/opinion.h"

#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

struct asked {
    struct cache_lookup *l;
    struct cache *c;
    void (*resume)(struct cache_lookup *l);
    enum err code;
    int n;
    struct opinion opinions[EMBEDDER_COMPARE_MAX];
};

static struct hash128 hash_of(const struct chain_item *x)
{
    return hash_bytes(0, x->c.q->text);
}

static void back(void *arg) /* the loop's thread */
{
    struct asked *a = arg;
    struct cache_lookup *l = a->l;
    struct cache *c = a->c;
    l->pending--;
    for (int i = 0; i < a->n && !a->code && l->n_opinions < CANDIDATES_MAX; i++)
        l->opinions[l->n_opinions++] = a->opinions[i];
    void (*resume)(struct cache_lookup * l) = a->resume;
    mem_free(a);
    if (l->cb)
        resume(l);
    else
        lookup_settle(l);
    cache_unref(c);
}

static void compared(void *arg, enum err code, const struct embedder_opinion *opinions,
                     int n) /* the embedder's thread */
{
    struct asked *a = arg;
    a->code = code;
    for (int i = 0; i < n; i++) {
        a->opinions[i].alone = opinions[i].alone;
        a->opinions[i].joint = opinions[i].joint;
        a->opinions[i].has_joint = true;
    }
    /* a full queue of posts cannot be waited for here: the look-up is lost to its caller's own deadline */
    if (loop_post(a->c->loop, back, a) != OK)
        log_limited(LOG_ERROR, "cache", "a comparison could not be handed to the loop");
}

/* After the first look alone: is it plain that the second would be in vain? Then its opinion is noted. */
static bool is_hopeless(struct cache_lookup *l, const struct chain_item *x, const void *sketch)
{
    struct cache *c = l->c;
    uint8_t other[PAIR_SKETCH_MAX];
    float vector[PAIR_SKETCH_MAX];
    struct opinion o = {.text = hash_of(x)};
    if (!sketch || c->dim > PAIR_SKETCH_MAX ||
        !embedder_recall_sketch(c->embedder, x->c.q->text, vector, other) ||
        embedder_score(c->embedder, sketch, other, x->c.cosine, &o.alone) != OK)
        return false;
    struct verifier_view v = {.guard = &x->guard, .cosine = x->c.cosine, .alone = o.alone};
    if (verifier_probability(c->verifier, &v) >=
        verifier_thresholds_of(c->verifier, x->guard.language)->first)
        return false;
    l->opinions[l->n_opinions++] = o;
    return true;
}

bool opinions_ask(struct cache_lookup *l, const struct chain_item *items, size_t n,
                  void (*resume)(struct cache_lookup *l))
{
    struct cache *c = l->c;
    struct str texts[EMBEDDER_COMPARE_MAX];
    double cosines[EMBEDDER_COMPARE_MAX];
    uint8_t sketch[PAIR_SKETCH_MAX];
    float vector[PAIR_SKETCH_MAX];
    if (l->asked || !c->verifier || !l->knobs.verifier) return false;
    l->asked = true;
    bool own = c->dim <= PAIR_SKETCH_MAX &&
               embedder_recall_sketch(c->embedder, l->k->user_text, vector, sketch);
    struct asked *a = xcalloc(1, sizeof *a);
    for (size_t i = 0; i < n && a->n < EMBEDDER_COMPARE_MAX; i++) {
        if (!items[i].open || is_hopeless(l, &items[i], own ? sketch : NULL)) continue;
        a->opinions[a->n].text = hash_of(&items[i]);
        cosines[a->n] = items[i].c.cosine;
        texts[a->n++] = items[i].c.q->text;
    }
    a->l = l;
    a->c = c;
    a->resume = resume;
    l->pending++;
    cache_ref(c);
    if (a->n && embedder_compare(c->embedder, l->k->user_text, texts, cosines, a->n,
                                 c->o.embed_deadline_ms, compared, a) == OK)
        return true;
    l->pending--;
    cache_unref(c);
    mem_free(a);
    return false;
}

static const struct opinion *opinion_of(const struct cache_lookup *l, const struct chain_item *x)
{
    struct hash128 text = hash_of(x);
    for (size_t i = 0; i < l->n_opinions; i++)
        if (hash_eq(l->opinions[i].text, text)) return &l->opinions[i];
    return NULL;
}

void opinions_fill(const struct cache_lookup *l, struct chain_item *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct chain_item *x = &items[i];
        const struct opinion *o = x->open ? opinion_of(l, x) : NULL;
        if (!o) continue;
        struct verifier_view v = {.guard = &x->guard,
                                  .cosine = x->c.cosine,
                                  .alone = o->alone,
                                  .has_joint = o->has_joint,
                                  .joint = o->joint};
        x->verifier = verifier_probability(l->c->verifier, &v);
    }
}
