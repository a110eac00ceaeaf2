/* eval.h - replays question files against a policy without a server: what would have been served, and what of that would have been wrong.
 * The decision is the one look-ups make (cache/nearby.h, cache/chain.h), over an index in memory.
 * Kinds of lines, told apart by their members, one kind a file:
 *   pairs   {"a","b","same":bool,"lang"?,"category"?}
 *   faq     {"q","same":[..],"near":[..]}, or "differ":[{"q","why"}] in place of near; "answer" is not needed
 *   stream  {"q","answer"}: asked in this order; equal answers are the same answer
 * Threading: one thread; vectors are made by the embedder's. */
#ifndef DEJA_CACHE_EVAL_H
#define DEJA_CACHE_EVAL_H
#include "cache/chain.h"
#include "cache/nearby.h"
#include "cache/verifier.h"
#include "embeddings/embedder.h"

/* --- texts, each once, with what the embedder makes of it */
struct eval_texts;
struct eval_texts *eval_texts_new(struct embedder *em /* NULL = no vectors */);
void eval_texts_free(struct eval_texts *t);
int eval_texts_add(struct eval_texts *t, struct str text); /* copies; its index */
/* Makes all vectors. told: now and then, NULL = never. False: the embedder has failed for good. */
MUST bool eval_texts_embed(struct eval_texts *t, void (*told)(size_t done, size_t of));
struct str eval_text(const struct eval_texts *t, int i);
const float *eval_vector(const struct eval_texts *t, int i);  /* NULL = it got none */
double eval_cosine(const struct eval_texts *t, int a, int b); /* -1 when one has no vector */

/* --- files */
enum eval_kind { EVAL_PAIRS, EVAL_FAQ, EVAL_STREAM };
enum { EVAL_WORDINGS_MAX = 16, EVAL_CATEGORY_BYTES = 24 };
struct eval_pair {
    int a, b;
    bool same;
    char language, category[EVAL_CATEGORY_BYTES];
};
struct eval_faq {
    int q, same[EVAL_WORDINGS_MAX], near[EVAL_WORDINGS_MAX];
    int n_same, n_near;
    char language;
};
struct eval_ask {
    int q;
    uint64_t answer;
};
struct eval_file {
    const char *name; /* borrowed */
    enum eval_kind kind;
    size_t n, skipped; /* skipped: pairs that are more than two texts */
    struct eval_pair *pairs;
    struct eval_faq *faqs;
    struct eval_ask *asks;
};
/* *out needs eval_file_fini on OK only. ERR_NOT_FOUND, ERR_INVALID "file:line: ...". */
MUST enum err eval_read(struct eval_file *out, const char *path, struct eval_texts *t,
                        struct errmsg *e);
void eval_file_fini(struct eval_file *f);

/* --- running */
struct evaluator {
    struct embedder *embedder; /* NULL = words alone decide */
    struct eval_texts *texts;
    const struct guard *guard;
    const struct verifier *verifier; /* NULL = none */
    struct policy shipped;
    struct cache_knobs knobs;
    uint64_t seed; /* of the shadow samples of a stream; of the splits of a calibration */
    bool
        second_look; /* the verifier's second look decides whatever the first says, as where it is weighed anew */
};
struct share { /* of n */
    size_t n, hits;
};
enum { EVAL_CATEGORIES_MAX = 64, EVAL_REASONS_MAX = 48, EVAL_RATIOS = 6 };
extern const double eval_ratios[EVAL_RATIOS]; /* hit ratios at which precision is told */
struct eval_category {
    char name[EVAL_CATEGORY_BYTES], language;
    struct share same, differ;
};
struct eval_reason {
    char text[64];
    size_t n;
};
struct eval_result {
    struct share same, differ; /* pairs; faq: question x wording, question x near question */
    struct share near_wording; /* faq: near question x wording of the question: all wrong */
    struct share right, wrong,
        wrong_alone; /* faq, everything stored: own answer, another's; another's when the own is missing */
    struct share served, wrong_served; /* stream; wrong of the served */
    double precision[EVAL_RATIOS];     /* -1 = fewer would be served at any threshold */
    struct eval_category categories[EVAL_CATEGORIES_MAX];
    size_t n_categories;
    struct eval_reason reasons[EVAL_REASONS_MAX]; /* why what was refused was refused */
    size_t n_reasons;
    double evidence; /* stream: pieces learnt from */
    double suggested
        [2]; /* lowest score (en, zh) at which the share of wrong ones stays under max_error; -1 = cannot be told */
    struct share suggested_right[2], suggested_wrong[2];
    bool by_verifier; /* scores are the verifier's, not cosines */
};
void eval_run(struct evaluator *ev, const struct eval_file *f, struct eval_result *out);

/* One pair, step by step. */
struct eval_explained {
    struct chain_item item;          /* its pointers are gone */
    double cosine, floor, threshold; /* cosine -1 = no vectors */
};
void eval_explain(struct evaluator *ev, int stored, int asked, struct eval_explained *out);

/* --- weighing the verifier anew from a file's pairs (cache/calibrate.h) */
struct eval_calibrated { /* of one language */
    bool done;
    char why_not[160];
    struct calibration found; /* from all pairs */
    size_t n, own,
        splits; /* pairs; of these a calibration was made from, and the others judged, so many times */
    double right, wrong;           /* mean shares of what may be served, and of what may not */
    size_t rest_right, rest_wrong; /* judged each time, of each kind */
};
/* own: pairs to calibrate on, 0 = half. The knobs of ev count, but what is fitted here. The share of pairs that differ which may be served
 * is knobs.max_error. ERR_UNSUPPORTED: no pairs, or no verifier. */
MUST enum err eval_calibrate(struct evaluator *ev, const struct eval_file *f, size_t own,
                             size_t splits, struct eval_calibrated out[2], struct errmsg *e);
/* "verifier_bias_en=...,..." as --set reads it, and each name with its value for FCALL deja_config_set. */
void eval_calibrated_text(struct buf *out, const struct eval_calibrated c[2]);
void eval_calibrated_json(struct buf *out, const struct eval_calibrated c[2]);

/* --- telling */
void eval_report_text(struct buf *out, const struct eval_file *f, const struct eval_result *r,
                      const char *policy);
void eval_report_json(struct buf *out, const struct eval_file *f, const struct eval_result *r,
                      const char *policy);
/* Both policies on one file: where they differ, and whether by more than chance. */
void eval_report_compared(struct buf *out, const struct eval_file *f, const struct eval_result *a,
                          const struct eval_result *b);

#endif
