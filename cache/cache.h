/* cache.h - is there a right answer already, and may it be used? Exact look-up (in-process LRU, then Redis), semantic look-up
 * (embedding -> index inside the partition -> guards -> policy), and keeping new answers. Truth is Redis; what is in process can be
 * rebuilt from it. A failure of Redis, embedder or index is a miss with a reason, never an error to the caller.
 * Threading: the loop's thread; embedding and index work happen on other threads and come back through the loop. */
#ifndef DEJA_CACHE_CACHE_H
#define DEJA_CACHE_CACHE_H
#include "base/hash.h"
#include "base/loop.h"
#include "base/openai.h"
#include "base/redis.h"
#include "base/metrics.h"
#include "cache/knobs.h"

struct cache;
struct embedder;
struct workers;

struct cache_options {
    const char *ns;           /* Redis key space, "deja" */
    bool exact, semantic;     /* switches */
    double threshold;         /* lowest cosine that may count; 0 = the embedder's own default */
    double max_temperature;   /* semantic step is skipped above; 1.0 */
    int64_t ttl_s;            /* absolute age; 86400 */
    int64_t stale_if_error_s; /* kept beyond it, for look-ups with stale_s; 3600 */
    size_t entry_bytes_max;   /* 256 KiB */
    size_t memory_bytes_max;  /* in-process entries; 256 MiB */
    size_t entries_max;       /* index entries; 1000000 */
    int embed_deadline_ms;    /* 50 */
    int redis_deadline_ms;    /* 50 */
    uint64_t secret;          /* keys the hashes; same on all replicas (kept in Redis) */
    const char *
        redis_url; /* of the same Redis, for the connection that tails the log of changes; NULL = changes made by other
                                * replicas are seen by exact look-ups only */
};

MUST enum err cache_open(struct cache **out, struct loop *l,
                         struct redis *redis /* NULL = memory only */,
                         struct embedder *embedder /* NULL = no semantic step */,
                         struct workers *workers, struct metrics *metrics,
                         const struct cache_options *o, struct errmsg *e);
void cache_close(struct cache *c);

/* What of a request counts. Made once per request, from the parsed body after the "cache" member was taken out. */
struct cache_key {
    struct hash128 exact, partition;
    struct hash128
        check; /* a second hash of all that counts, with another seed: compared with the stored one on every hit */
    /* where curated answers (`deja seed`) for such a question would stand: of the tenant, of all tenants; zero = the request is not
     * plain enough for one: more than a system prompt and one question, tools, a format... */
    struct hash128 curated[2];
    bool
        has_system; /* it brings a system prompt: the knob `curated` says whether such a request gets a curated answer */
    enum openai_kind kind;
    struct str tenant, model, ns; /* owned by the key */
    int64_t epoch;                /* mass removals known when the request came */
    int max_tokens;               /* -1 = not given */
    double temperature;
    bool semantic_allowed; /* else why_not says which rule */
    const char *why_not;   /* static text: "tools", "n", "temperature"... */
    struct str user_text;  /* the last user text (owned by the key: cache_key_fini) */
    char lang_hint;        /* 'z', 'e' or 0 */
    char *owned;
};
struct cache_scope {
    struct str tenant; /* always counts */
    struct str ns;     /* x-deja-namespace or the body's; "" = none */
    struct str model;  /* after alias resolution */
};
MUST enum err cache_key_make(struct cache *c, const struct openai_request *r,
                             const struct cache_scope *scope, struct cache_key *out);
void cache_key_fini(struct cache_key *k);

/* COMING: a similar question is being asked, and the answer will do: entry_id is the exact key (hex) of it. */
enum cache_result { CACHE_MISS, CACHE_EXACT, CACHE_SEMANTIC, CACHE_COMING };
/* May a look-up say so? ONLY: it looks at nothing else, once more before the upstream is asked. */
enum cache_coming { COMING_NO, COMING_TOO, COMING_ONLY };
/* An entry that was considered: what the decision chain (cache/chain.h) said of it. */
struct cache_verdict {
    char entry_id[36];
    struct str question, wording; /* of the entry; the nearest text that leads to it */
    bool hit;
    const char *step; /* where it was refused: "topic" "veto" "trust" "guards" ...; "hit" */
    const char *reason, *detail; /* detail: what a guard saw differ, for people; holds their text */
    double similarity, threshold, verifier, veto, rival; /* -1 = none */
    double shared, contained;                            /* content words, 0..1 */
};
enum { CACHE_NEAR_MAX = 16 };
struct cache_found {
    enum cache_result result;
    const struct openai_answer *answer; /* hits; borrowed during the callback */
    struct str
        json; /* hits: the same as JSON, where it is at hand; else p NULL. Borrowed until the cache is used again */
    char entry_id[36]; /* hits and near misses, "" otherwise */
    int64_t age_s;
    int64_t stale_s;   /* hits: seconds past its lifetime; 0 = fresh */
    double similarity; /* semantic hits and near misses, else -1 */
    double threshold;  /* used */
    char reason
        [64]; /* "exact", "curated", "semantic:policy", "guard:number", "guard:negation", "below_threshold", "embedder_timeout",
                                 * "redis_unavailable", "skipped:tools", "empty"... */
    /* hits by meaning: the one that is served. Misses: the refused entries worth a second look, nearest first; of step "veto" (not the
     * question itself was judged, a text nearer than any wording was) the guards were not asked. Borrowed. */
    const struct cache_verdict *near;
    size_t n_near;
};
struct cache_lookup_options {
    bool skip_exact, skip_semantic;
    double threshold_min; /* client's x-deja-threshold: can only tighten; 0 = none */
    int64_t max_age_s;    /* -1 = any */
    int64_t
        stale_s; /* answers up to this long past their lifetime will do: nothing better can be had; 0 = no. The knob max_age_s
                      * does not count then */
    uint64_t
        asker; /* whoever asks, as a hash; 0 = not known. So that nobody alone has an entry set aside */
    enum cache_coming coming;
    const struct cache_knobs *knobs; /* copied; NULL = those the cache was opened with */
    /* To see what would happen: every entry considered, before cb; such a look-up counts nowhere. NULL = a real one. Its argument is
     * the look-up's; what it is given is borrowed. */
    void (*explain)(void *arg, const struct cache_verdict *v);
};
struct cache_lookup;
/* cb exactly once, never before this returns, unless cancelled. vec for a later keep is carried inside key's lookup: see cache_keep. */
struct cache_lookup *cache_find(struct cache *c, const struct cache_key *k,
                                const struct cache_lookup_options *o,
                                void (*cb)(void *arg, const struct cache_found *found), void *arg);
/* No callback follows. NULL is fine. */
void cache_find_cancel(struct cache_lookup *l);

struct cache_keep_options {
    int64_t ttl_s;      /* 0 = default */
    struct str tags;    /* "a,b" or empty */
    int64_t latency_ms; /* what the answer cost, for saved-cost accounting */
    int trust; /* of whoever it comes from, 0..9 (enum entry_trust): an entry is not replaced by one of less trust */
};
/* Stores a copy if it may be stored (complete, finish_reason stop or tool_calls, within size...). *why_not gets a static text
 * otherwise ("length", "empty", "too_large"...). Embedding for the index happens off the loop and is reused from the look-up when
 * it is recent. Returns the entry id in id_out[36] ("" when refused). */
MUST enum err cache_keep(struct cache *c, const struct cache_key *k, const struct openai_answer *a,
                         const struct cache_keep_options *o, char id_out[36], const char **why_not);
/* May it be given to a similar question: would it be kept, and calls no tools? */
bool cache_fits_similar(const struct openai_answer *a);

/* The question of k is being asked, by somebody of this trust: until the end, look-ups with o.coming may be told to wait for it. k is
 * copied where needed. False: similar questions cannot follow it (not plain enough, no embedder, or no room). */
bool cache_coming_begin(struct cache *c, const struct cache_key *k, int trust, struct str tags);
void cache_coming_end(struct cache *c, const struct cache_key *k);
/* Grows with each; and: is there one that k's question could follow? */
uint64_t cache_coming_seen(const struct cache *c);
bool cache_coming_any(const struct cache *c, const struct cache_key *k);

/* guard_simplify with the cache's lists. */
void cache_simplify(const struct cache *c, struct str text, struct buf *out);
/* Would a guard refuse an answer to one question for the other, whatever a verifier said? */
bool cache_guards_refuse(const struct cache *c, const struct cache_knobs *k, struct str stored,
                         struct str asked);

/* It became known whether the answer of an entry is right for a question that was looked up lately: by a shadow sample, by feedback, by a
 * judge ("shadow", "feedback", "judge", "person"). Mode "bound" learns from it, on every gateway. ERR_NOT_FOUND: too long ago, or the
 * entry was not what the look-up decided on; ERR_INVALID: no id. */
MUST enum err cache_evidence_add(struct cache *c, const struct cache_key *k, struct str entry_id,
                                 bool right, const char *by);
/* What is known in a namespace of requests, and what may be served at a bound. */
struct cache_bound_report {
    double n, right, wrong; /* evidence */
    double limit;           /* predicted error below which is served; 0 = nothing yet */
    double served_share;    /* of the evidence: how much lies below it */
    double error, error_low, error_high; /* share of wrong ones there, Wilson 95 % */
};
void cache_bound_report(const struct cache *c, struct str ns, double max_error,
                        struct cache_bound_report *out);

/* The knobs look-ups go by that bring none. Threading: as all here. */
const struct cache_knobs *cache_knobs_now(const struct cache *c);
void cache_knobs_use(struct cache *c, const struct cache_knobs *k); /* copied */

struct cache_stats {
    uint64_t entries, bytes, exact_hits, semantic_hits, misses, near_misses, kept, refused;
    bool redis_usable, embedder_usable, synced; /* synced: the index has caught up with the log */
    bool redis_known; /* Redis has said once since the start what may be used; true without Redis */
};
void cache_stats(struct cache *c, struct cache_stats *out);

#endif
