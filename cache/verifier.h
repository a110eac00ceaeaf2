/* verifier.h - how likely is it that the answer to one question also answers another? Weighs what the pair net, the vectors and the
 * guards say into one calibrated probability. Two looks: the first costs next to nothing (sketches remembered beside vectors), the second
 * runs both questions through the net together and is only asked about candidates the first lets through.
 *
 *   guard_check(..)                                     v.same: the answer may be used, no verifier needed
 *   if ((name = verifier_refuses(&v, true))) ..               refused by a hard guard, whatever else
 *   embedder_score(em, sketch_q, sketch_e, cosine, &x.alone)     not OK: no opinion, so no hit
 *   if (verifier_is_hopeless(vf, &x)) ..                a miss, no second look
 *   embedder_compare(em, query, candidates..)           x.joint, x.has_joint = true
 *   p = verifier_judge(vf, &x); a hit from ->hit on              policies may ask for more
 *
 * Thresholds are calibrated per request: for the best of the three nearest candidates. Weights and thresholds come with the net
 * (embedder_calibration), so that retrained ones replace all of it at once.
 * Pure after verifier_new; any number of threads. */
#ifndef DEJA_CACHE_VERIFIER_H
#define DEJA_CACHE_VERIFIER_H
#include "cache/guard.h"

struct verifier;

/* calibration: JSON as train/calibrate.py writes it. ERR_UNSUPPORTED: empty, the embedder has no net; ERR_CORRUPT: damaged, or
 * features and guards this program does not know. *e says which. */
MUST enum err verifier_new(struct verifier **out, struct str calibration, struct errmsg *e);
void verifier_free(struct verifier *vf); /* NULL is fine */

struct verifier_view {
    const struct guard_verdict *guard;
    double cosine;
    float alone; /* embedder_score */
    bool has_joint;
    float joint; /* embedder_compare */
};

/* The guard that refuses whatever the verifier would say, NULL = none. likeness: so do those that are hard because most of the words are
 * the same (guard_verdict.hard_by_likeness). */
const char *verifier_refuses(const struct guard_verdict *v, bool likeness);
/* 0..1; 0 when a number is not finite. Takes the hard guards as any other: ask verifier_refuses first. */
double verifier_probability(const struct verifier *vf, const struct verifier_view *x);

/* After the first look, whatever x says of the second: not worth one. */
bool verifier_is_hopeless(const struct verifier *vf, const struct verifier_view *x);
/* The probability that decides: of the second look where the first allows one, so that nothing hangs on whether the first was taken
 * beforehand or comes with the second; else of the first. */
double verifier_judge(const struct verifier *vf, const struct verifier_view *x);

struct verifier_thresholds {
    double first; /* below it after the first look: not worth a second */
    double alone; /* a hit after the first look, where no second is to be had */
    double hit;   /* a hit after the second look */
};
/* language: of guard_verdict. Shipped: at most 1 of 200 requests of the held-back domains got a wrong answer, with every near
 * question stored too (docs/verifier.md). Borrowed. */
const struct verifier_thresholds *verifier_thresholds_of(const struct verifier *vf, char language);

#endif
