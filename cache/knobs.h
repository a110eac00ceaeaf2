/* knobs.h - everything about the cache's policy, and the limits on tenants, that may change while it runs, as one plain struct and one
 * table of what each field is called, what it may be and what it means. The table is the only source: options, Redis Functions, the admin
 * page, experiments and docs/config.md read and check values through it, so a name means the same on every path. A look-up is given one
 * struct of knobs and asks nothing else. Pure. Threading: a struct belongs to whoever holds it; the table is read-only.
 *
 * To add a knob: a field here, a row in knobs.c; nothing else lists them. */
#ifndef DEJA_CACHE_KNOBS_H
#define DEJA_CACHE_KNOBS_H
#include "base/buf.h"

enum knob_mode { KNOB_MODE_THRESHOLD, KNOB_MODE_BOUND };
enum knob_join { KNOB_JOIN_NO, KNOB_JOIN_WHOLE, KNOB_JOIN_LIVE };
enum knob_curated { KNOB_CURATED_NO, KNOB_CURATED_PLAIN, KNOB_CURATED_ANY_SYSTEM };

struct cache_knobs {
    /* what is looked up */
    bool exact, semantic;
    int64_t curated; /* enum knob_curated */
    double temperature_max;
    int64_t max_age_s;
    /* what counts as the same question */
    int64_t mode; /* enum knob_mode */
    double threshold_en, threshold_zh, floor;
    double max_error;
    bool verifier;
    double verifier_en, verifier_zh;
    double verifier_bias_en, verifier_bias_zh, verifier_weight_en, verifier_weight_zh,
        verifier_cosine_en, verifier_cosine_zh; /* cache/calibrate.h */
    bool likeness_refuses;
    bool verifier_stored;
    int64_t top_k, verify_top;
    bool same_words, vetoes;
    double rival_margin;
    int64_t trust_min;
    int64_t quarantine_questions;
    double quarantine_cosine;
    uint64_t guards_off; /* bit i: the guard guard_names[i] is off */
    /* what is kept */
    int64_t ttl_s, stale_if_error_s, redis_bytes_max;
    /* what is learnt afterwards */
    double shadow_percent;
    bool judge, judge_refused, judge_hits;
    int64_t judge_top;
    double judge_band, judge_yes, judge_no;
    int64_t judge_per_min;
    int64_t near_misses, near_miss_top;
    bool near_miss_text;
    /* where a miss goes */
    int64_t join_similar; /* enum knob_join */
    bool route_prefix, route_shared;
    double route_load_weight;
    int64_t route_prefill_tokens;
    /* how much of the batches runs beside clients */
    int64_t batch_concurrency, batch_minimum, batch_yield;
    /* what tokens cost, for reports and budgets */
    double price_prompt, price_completion;
    /* what a tenant may use (gateway/limit_rules.h); 0 = no limit */
    int64_t limit_requests_per_min, limit_requests_per_day, limit_tokens_per_min,
        limit_tokens_per_day, limit_concurrency;
    double limit_budget_day, limit_budget_month;
    bool limit_shadow, limit_hit_tokens, limit_stream_usage;
    int64_t limit_answer_tokens;
};

/* Does a question of the same words hit without being measured? In mode bound only when the pair was judged: the promise is a share of
 * wrong answers, and the same words bring some where labels are fine (2 to 4 % on Banking77). */
static inline bool knobs_same_words(const struct cache_knobs *k, bool judged)
{
    return k->same_words && (judged || k->mode != KNOB_MODE_BOUND);
}

enum knob_type { KNOB_BOOL, KNOB_INT, KNOB_FLOAT, KNOB_CHOICE };
/* Which scopes beside global a knob may be set in (lua/config.lua). CACHE: ns and arm; LIMIT: tenant, model, tenant/model and all;
 * PRICE: those of CACHE, and model. */
enum knob_family { KNOB_CACHE, KNOB_LIMIT, KNOB_PRICE };
struct knob {
    char name[40];
    enum knob_type type;
    double min, max, preset; /* preset of a CHOICE: index into choices; of a BOOL: 0 or 1 */
    const char *unit;        /* "s", "%", "cosine", "" */
    const char *choices;     /* CHOICE: words separated by blanks, else "" */
    const char *help;        /* one sentence for people */
    size_t offset;           /* of the field; of a guard: of guards_off */
    int bit;                 /* a guard's bit, else -1 */
    enum knob_family family;
};
enum { KNOB_TEXT_BYTES = 40 };
/* Knobs that are texts, for everybody or not at all, and no part of struct cache_knobs. Whoever reads them owns their form
 * (gateway/model_rules.h). */
struct knob_text {
    const char *name, *example, *help;
};
enum { KNOB_TEXTS = 2 };
extern const struct knob_text knob_texts[KNOB_TEXTS];

size_t knobs_count(void);
/* i < knobs_count(). */
struct knob knob_at(size_t i);
/* ERR_NOT_FOUND names the nearest one. */
MUST enum err knob_find(struct str name, struct knob *out, struct errmsg *e);

struct cache_knobs knobs_default(void);
/* Reads text as the knob's type and range into *k; a refused value changes nothing and e says what would be right.
 * Booleans: yes no on off true false 1 0. "default" is the table's default. */
MUST enum err knobs_set(struct cache_knobs *k, struct str name, struct str value, struct errmsg *e);
/* One row's value, as a number; the second checks nothing. */
MUST enum err knob_parse(const struct knob *of, struct str value, double *out, struct errmsg *e);
double knob_get(const struct cache_knobs *k, const struct knob *of);
void knob_put(struct cache_knobs *k, const struct knob *of, double v);
/* The value as knobs_set reads it back. */
void knob_format(const struct cache_knobs *k, const struct knob *of, char out[KNOB_TEXT_BYTES]);

/* The table as a call in Lua, `knobs({{name=...,type=...,...},...})`, for checks inside Redis (lua/config.lua). */
void knobs_write_lua(struct buf *out);
/* The table for people, in Markdown. */
void knobs_write_markdown(struct buf *out);

#endif
