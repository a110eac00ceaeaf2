/* lookup.h - private to find.c, curated.c, places.c and similar.c: one look-up on its way. It lives until its last command, embedding
 * or search has come back, also when cancelled. Threading: the loop's thread; a search may fill in hits on a worker meanwhile. */
#ifndef DEJA_CACHE_LOOKUP_H
#define DEJA_CACHE_LOOKUP_H
#include "cache/cache_internal.h"
#include "cache/chain.h"
#include "cache/nearby.h"

enum {
    ANSWERS_TRIED_MAX = 3,
    SEARCHES_MAX = 16 /* more than one when what has expired is in the way */
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
/* What the guards say of the question and one wording. */
struct guarded {
    struct hash128 text; /* of the wording */
    struct guard_verdict verdict;
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

    struct nearby around;        /* its places are held */
    struct loop_timer *patience; /* for partitions that are being loaded */
    bool loading;                /* partitions are waited for; then one of: */
    void (*when_loaded)(struct cache_lookup *l), (*when_late)(struct cache_lookup *l);
    bool curated_first; /* before the exact step: among the curated answers only */
    bool texts_tried;
    int searches;
    float *vec;
    struct guarded guarded[2 * CANDIDATES_MAX]; /* while the verifier is asked; as for the next */
    size_t n_guarded;
    struct opinion opinions[2 * CANDIDATES_MAX]; /* of what is stored, and of what is coming */
    size_t n_opinions;
    bool asked;     /* the verifier, once */
    bool set_aside; /* what would have been served, by this very question */
    struct accepted accepted[CANDIDATES_MAX];
    size_t n_accepted, tried;
    struct cache_lookup *next, *prev;
    struct cache_lookup *behind; /* in the line of those that wait for a search */
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

void lookup_exact(struct cache_lookup *l);

/* places.c: the partitions the answer may stand in, curated ones first. */
void lookup_take_curated(struct cache_lookup *l);
void lookup_take_place(struct cache_lookup *l, struct hash128 key);
/* Loads what is not loaded of them; then, or when patience is over, one of the two goes on, maybe before this returns. */
void lookup_await_places(struct cache_lookup *l, void (*when_loaded)(struct cache_lookup *l),
                         void (*when_late)(struct cache_lookup *l));

/* curated.c: what people wrote for this very question comes before what a model said; else the exact step. */
void lookup_curated(struct cache_lookup *l);
void lookup_curated_over(struct cache_lookup *l); /* nothing there: on to the exact step */

/* similar.c: the semantic step; ends the look-up some time. */
void lookup_similar(struct cache_lookup *l);
/* Decides on what the search has found; ends the look-up some time. */
void lookup_judge(struct cache_lookup *l);
/* A judged or own text that reads as the question: its entry is accepted, what it forbids is noted. */
void lookup_note_text(struct cache_lookup *l, int place, const struct question *q);
/* Serves the first accepted entry that can be served. False when none may be; true: one is or its answer is on its way, and should none
 * turn out to be there, the next step goes on. */
bool lookup_serve_texts(struct cache_lookup *l);

/* search.c: fills in hits by l->vec, now or on a worker together with those of other look-ups, and goes on to lookup_judge. */
void lookup_search(struct cache_lookup *l);

#endif
