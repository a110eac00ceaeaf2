/* lookup.h - private to find.c and similar.c: one look-up on its way. It lives until its last command, embedding or search has come
 * back, also when cancelled. Threading: the loop's thread; a search may fill in hits on a worker meanwhile. */
#ifndef DEJA_CACHE_LOOKUP_H
#define DEJA_CACHE_LOOKUP_H
#include "cache/cache_internal.h"
#include "cache/chain.h"

enum {
    PLACES_MAX = 3, /* curated answers of the tenant, of all tenants, and what was asked before */
    ANSWERS_TRIED_MAX = 3,
    SEARCHES_MAX = 16,                      /* more than one when what has expired is in the way */
    HITS_OF_PLACE_MAX = CANDIDATES_MAX + 16 /* judged texts lie between the questions */
};

/* An entry that passed: its answer is fetched next. */
struct accepted {
    struct hash128 id;
    int place;
    double similarity, threshold;
    char reason[32];
};
/* What the verifier's nets say of the question and one wording. */
struct opinion {
    struct hash128 text; /* of the wording */
    float alone, joint;
    bool has_joint;
};
struct cache_lookup {
    struct cache *c;
    const struct cache_key *k; /* borrowed while cb is set */
    struct cache_lookup_options o;
    struct cache_knobs knobs;
    void (*cb)(void *arg, const struct cache_found *found);
    void *arg;
    int pending;              /* callbacks that will still come */
    struct cache_found found; /* what a miss will say */

    struct partition *places[PLACES_MAX]; /* held while set */
    int n_places;
    struct loop_timer *patience; /* for partitions that are being loaded */
    int loads;                   /* still waited for */
    bool starts_by_timer, texts_tried;
    int searches;
    float *vec;
    struct vector_hit hits[PLACES_MAX][HITS_OF_PLACE_MAX];
    size_t n_hits[PLACES_MAX];
    struct hash128 vetoed[WORDING_VETOES_MAX]; /* entries the question's own text must not get */
    size_t n_vetoed;
    struct opinion opinions[CANDIDATES_MAX];
    size_t n_opinions;
    bool asked; /* the verifier, once */
    struct accepted accepted[CANDIDATES_MAX];
    size_t n_accepted, tried;
    struct cache_lookup *next, *prev;
};

/* find.c */
void lookup_settle(struct cache_lookup *l); /* frees it when nothing is outstanding */
void lookup_finish(struct cache_lookup *l); /* the one callback: found as it stands */
void lookup_miss(struct cache_lookup *l, const char *reason);
void lookup_say(struct cache_lookup *l, const char *reason);
/* True when the entry could be read and the look-up is over. */
bool lookup_serve(struct cache_lookup *l, const struct entry *e, enum cache_result result,
                  const char *reason);
/* Neither too old for anybody concerned nor removed with others. */
bool lookup_may_use(const struct cache_lookup *l, const struct entry *e);
/* Keeps a copy of what came from Redis. */
void lookup_remember(struct cache_lookup *l, struct entry *e);

/* similar.c: the semantic step; ends the look-up some time. */
void lookup_similar(struct cache_lookup *l);

#endif
