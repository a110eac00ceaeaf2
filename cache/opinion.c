/* opinion.c - see opinion.h. What comes back is kept by the wording's text: candidates may be gone or others by then, so the chain is run
 * again and takes what fits. What the net needs of a stored text comes from Redis, where it was put with the text, unless it is remembered;
 * what had to be computed is put there, so that no process does it again. */
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
    int n, reading; /* replies of Redis still to come */
    struct opinion opinions[EMBEDDER_COMPARE_MAX];
    struct hash128 ids[EMBEDDER_COMPARE_MAX]; /* of entry or wording */
    struct str texts[EMBEDDER_COMPARE_MAX];   /* owned, as the tokens are */
    struct str tokens[EMBEDDER_COMPARE_MAX];
    bool missing[EMBEDDER_COMPARE_MAX]; /* Redis has none that are of use */
    double cosines[EMBEDDER_COMPARE_MAX];
};
struct reading {
    struct asked *a;
    int at;
};

static struct hash128 hash_of(const struct chain_item *x)
{
    return hash_bytes(0, x->c.q->text);
}

static struct str own(struct str s)
{
    return (struct str){xstrndup(s.n ? s.p : "", s.n), s.n};
}

static void free_asked(struct asked *a)
{
    for (int i = 0; i < a->n; i++) {
        mem_free((void *)(uintptr_t)a->texts[i].p);
        mem_free((void *)(uintptr_t)a->tokens[i].p);
    }
    mem_free(a);
}

static uint64_t text_hash(struct str text)
{
    return hash_bytes(0x746f6b, text).lo;
}

size_t cache_tokens_field(struct cache *c, struct str text, uint8_t out[TOKENS_FIELD_BYTES])
{
    uint64_t h = text_hash(text);
    size_t n = embedder_recall_tokens(c->embedder, text, out + sizeof h);
    memcpy(out, &h, sizeof h);
    return n ? n + sizeof h : 0;
}

/* The tokens of a field that is of this text and made with these weights; empty otherwise. */
static struct str tokens_of_field(const struct cache *c, struct str field, struct str text)
{
    uint64_t h = text_hash(text);
    struct str tokens = str_sub(field, sizeof h, field.n);
    bool ours = field.n > sizeof h && !memcmp(field.p, &h, sizeof h) &&
                embedder_tokens_fit(c->embedder, tokens);
    return ours ? tokens : (struct str){"", 0};
}

void cache_share_tokens(struct cache *c, struct hash128 id, struct str text)
{
    char key[KEY_BYTES_MAX], hex[33];
    uint8_t field[TOKENS_FIELD_BYTES];
    if (!c->redis || !redis_usable(c->redis)) return;
    size_t n = cache_tokens_field(c, text, field);
    if (!n) return;
    hash_hex(id, hex);
    struct str argv[] = {STR("FCALL"),
                         STR("deja_tokens"),
                         STR("1"),
                         cache_redis_key(c, key, "e:", str_of(hex)),
                         {(char *)field, n}};
    redis_command(c->redis, sizeof argv / sizeof *argv, argv, 1000, NULL, NULL);
}

/* The look-up goes on, with opinions or without. */
static void end(struct asked *a)
{
    struct cache_lookup *l = a->l;
    struct cache *c = a->c;
    l->pending--;
    for (int i = 0; i < a->n && !a->code && l->n_opinions < 2 * CANDIDATES_MAX; i++)
        l->opinions[l->n_opinions++] = a->opinions[i];
    for (int i = 0; i < a->n && !a->code && !c->closed; i++)
        if (a->missing[i]) cache_share_tokens(c, a->ids[i], a->texts[i]);
    void (*resume)(struct cache_lookup * l) = a->resume;
    free_asked(a);
    if (l->cb)
        resume(l);
    else
        lookup_settle(l);
    cache_unref(c);
}

static void back(void *arg) /* the loop's thread */
{
    end(arg);
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
    if (loop_post_unbounded(a->c->loop, back, a) != OK) /* the embedder's queue is bounded */
        log_limited(LOG_ERROR, "cache", "a comparison came after the end of the loop");
}

static enum err compare(struct asked *a)
{
    struct cache *c = a->c;
    return embedder_compare(c->embedder, a->l->k->user_text, a->texts, a->cosines, a->tokens, a->n,
                            c->o.embed_deadline_ms, compared, a);
}

/* --- what Redis has of the texts */
static void got_tokens(void *arg, enum err code, const struct redis_reply *reply)
{
    struct reading *r = arg;
    struct asked *a = r->a;
    struct cache *c = a->c;
    if (code == OK && !c->closed && reply->kind != REDIS_ERROR) {
        struct str field = reply->kind == REDIS_STRING ? reply->text : (struct str){"", 0};
        struct str tokens = tokens_of_field(c, field, a->texts[r->at]);
        a->missing[r->at] = !tokens.n;
        if (tokens.n) a->tokens[r->at] = own(tokens);
    }
    mem_free(r);
    if (--a->reading) return;
    if (c->closed || !a->l->cb) a->code = ERR_CANCELLED;
    if (!a->code) a->code = compare(a);
    if (a->code) end(a);
}

static void read_tokens(struct asked *a, int at)
{
    char key[KEY_BYTES_MAX], hex[33];
    struct reading *r = xcalloc(1, sizeof *r);
    *r = (struct reading){a, at};
    hash_hex(a->ids[at], hex);
    struct str argv[] = {STR("HGET"), cache_redis_key(a->c, key, "e:", str_of(hex)),
                         str_of(entry_field_names[EF_TOKENS])};
    a->reading++;
    redis_command(a->c->redis, 3, argv, 0, got_tokens, r);
}

/* True: replies will come, never before this returns. */
static bool read_missing(struct asked *a)
{
    uint8_t bytes[EMBEDDER_TOKENS_BYTES];
    struct cache *c = a->c;
    if (!c->redis || !redis_usable(c->redis)) return false;
    for (int i = 0; i < a->n; i++)
        if (!embedder_recall_tokens(c->embedder, a->texts[i], bytes)) read_tokens(a, i);
    return a->reading > 0;
}

/* --- asking */
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
    struct policy p = policy_with(&c->shipped, &l->knobs);
    if (policy_is_calibrated(&p, x->guard.language)) return false;
    if (!verifier_is_hopeless(c->verifier, &v)) return false;
    l->opinions[l->n_opinions++] = o;
    return true;
}

bool opinions_ask(struct cache_lookup *l, const struct chain_item *items, size_t n,
                  void (*resume)(struct cache_lookup *l))
{
    struct cache *c = l->c;
    uint8_t sketch[PAIR_SKETCH_MAX];
    float vector[PAIR_SKETCH_MAX];
    if (l->asked || !c->verifier || !l->knobs.verifier) return false;
    l->asked = true;
    bool known = c->dim <= PAIR_SKETCH_MAX &&
                 embedder_recall_sketch(c->embedder, l->k->user_text, vector, sketch);
    struct asked *a = xcalloc(1, sizeof *a);
    for (size_t i = 0; i < n && a->n < EMBEDDER_COMPARE_MAX; i++) {
        if (!items[i].open || is_hopeless(l, &items[i], known ? sketch : NULL)) continue;
        a->opinions[a->n].text = hash_of(&items[i]);
        a->ids[a->n] = items[i].c.q->id;
        a->cosines[a->n] = items[i].c.cosine;
        a->texts[a->n++] = own(items[i].c.q->text);
    }
    a->l = l;
    a->c = c;
    a->resume = resume;
    l->pending++;
    cache_ref(c);
    if (a->n && (read_missing(a) || compare(a) == OK)) return true;
    l->pending--;
    cache_unref(c);
    free_asked(a);
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
    struct policy p = policy_with(&l->c->shipped, &l->knobs);
    for (size_t i = 0; i < n; i++) {
        struct chain_item *x = &items[i];
        const struct opinion *o = x->open ? opinion_of(l, x) : NULL;
        if (!o) continue;
        struct verifier_view v = {.guard = &x->guard,
                                  .cosine = x->c.cosine,
                                  .alone = o->alone,
                                  .has_joint = o->has_joint,
                                  .joint = o->joint};
        x->verifier = policy_is_calibrated(&p, x->guard.language)
                          ? verifier_probability(l->c->verifier, &v)
                          : verifier_judge(l->c->verifier, &v);
    }
}
