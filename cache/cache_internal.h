/* cache_internal.h - private to the files of cache.h: the cache itself, and what they call of each other. One thread: the loop's.
 * Everything in flight (a command, an embedding, a search) holds a reference; after cache_close callbacks find closed set, touch
 * nothing and let go, and the last one frees. */
#ifndef DEJA_CACHE_INTERNAL_H
#define DEJA_CACHE_INTERNAL_H
#include "base/workers.h"
#include "cache/cache.h"
#include "cache/bounds.h"
#include "cache/entry.h"
#include "cache/guard.h"
#include "cache/key.h"
#include "cache/chain.h"
#include "cache/crowd.h"
#include "cache/marks.h"
#include "cache/partition.h"
#include "cache/recent.h"
#include "cache/store.h"
#include "cache/uses.h"
#include "cache/verifier.h"
#include "cache/wording.h"
#include "cache/embed_watch.h"
#include "embeddings/embedder.h"
#include "engine/model/pair_net.h"

#ifdef DEJA_RARE /* rare paths made common */
enum { LOAD_BATCH = 3, LOAD_PAGE = 2, SEARCH_INLINE_MAX = 2 };
#else
enum {
    LOAD_BATCH = 200,
    LOAD_PAGE = 1000, /* ids asked for at a time: to read many at once would hold up the loop */
    SEARCH_INLINE_MAX = 4000 /* questions; a bigger partition is searched on a worker */
};
#endif
enum {
    LOG_ITEMS_MAX = 100000, /* of the stream of changes; further back a gateway reloads */
    PARTITIONS_MAX = 4096,
    PRELOAD_PARTITIONS = 16, /* the last used ones, at start */
    LOAD_IDS_MAX = 200000,   /* of one partition, about */
    TICK_MS = 200,
    START_TICK_MS =
        10, /* until it is known what of Redis may be used; START_TICKS_MAX times at most */
    START_TICKS_MAX = 500,
    KEY_BYTES_MAX = 192
};

struct cache_metrics {
    struct metric *exact, *semantic, *miss, *kept, *resent, *embed_ms, *index_entries, *unsaved,
        *loads, *gaps, *corrupt, *void_entries, *texts, *passed, *refused[N_CHAIN_STEPS],
        *evidence_right, *evidence_wrong, *set_aside, *aside, *bytes_entries, *bytes_index,
        *bytes_sketches;
};

struct cache {
    struct loop *loop;
    struct redis *redis;       /* NULL = memory only */
    struct embedder *embedder; /* NULL = no semantic step */
    struct workers *workers;
    struct metrics *registry;
    struct cache_options o;
    char ns[64], source[33]; /* source: this process in the log of changes */
    char *redis_url;
    struct key_rules rules;
    struct guard *guard;
    struct policy shipped;     /* of this embedder */
    struct verifier *verifier; /* NULL: the embedder has no net, or comes without a calibration */
    struct cache_knobs knobs;
    struct store *store;
    struct marks *marks;       /* what must not be used any more */
    struct partitions *coming; /* questions that are being asked; NULL without an embedder */
    uint64_t coming_seen;
    struct partitions *partitions; /* without an embedder texts only */
    size_t dim;
    struct redis_tail *tail;
    struct loop_timer *tick;
    bool was_usable, asked_position, preloaded, resending;
    bool marks_known; /* read from Redis, and kept since; until then nothing of Redis is used */
    bool asked_marks, sweeping;
    uint64_t marks_asked_ms;
    struct bounds *bounds; /* what was learnt from evidence */
    struct recents *recents;
    struct crowds *crowds; /* who was served lately, of each entry */
    struct uses uses;      /* since they were told */
    uint64_t uses_told_ms;
    int ticks;                           /* counted while starting */
    bool evidence_known, asked_evidence; /* the log of evidence is read to its end and followed */
    uint64_t evidence_ms, evidence_seq;  /* up to here in that log */
    bool closed;
    int refs;
    uint64_t write_no;
    struct cache_lookup *lookups;
    struct search_line { /* of look-ups that wait for the worker that searches */
        struct cache_lookup *first, *last;
        bool running, posted; /* a worker is at it; the next turn is on its way */
    } search_line;
    struct load *loads;
    struct embed_watch watch;        /* of the embedder */
    struct put_op *line, *line_last; /* entries that wait for the embedder */
    size_t n_line;
    struct cache_stats stats;
    struct cache_metrics m;
};

/* False too while the embedder hangs. */
bool cache_embedder_usable(const struct cache *c);
void cache_ref(struct cache *c);
void cache_unref(struct cache *c);

/* "deja:{ns}:" + kind + tail, terminated. */
struct str cache_redis_key(const struct cache *c, char out[KEY_BYTES_MAX], const char *kind,
                           struct str tail);
/* HMGET of an entry's fields, all but the vector unless with_vector; replies come in the order of enum entry_field. */
void cache_redis_read(struct cache *c, struct hash128 id, bool with_vector, bool with_answer,
                      redis_callback *cb, void *arg);
/* Fields of such a reply; false when the entry is not there or the reply is no such array. */
bool cache_reply_values(const struct redis_reply *reply, struct str values[N_ENTRY_FIELDS]);

/* Was it asked for before a mass removal that concerns it? */
bool cache_is_void(const struct cache *c, const struct entry *e);
/* An entry's place in the index. Borrows from e. */
struct question cache_question_of(const struct cache *c, const struct entry *e);
struct question cache_question_of_wording(const struct cache *c, const struct wording *w);

/* put.c */
/* A judged text that came without a vector of ours gets one, here and in Redis. */
void cache_put_vector(struct cache *c, struct hash128 partition, struct hash128 id,
                      struct str text);
void cache_put(struct cache *c, const struct entry *e,
               bool similar); /* similar: into its partition's index too */
void cache_put_waiting(struct cache *c);
void cache_put_drop_line(struct cache *c);

/* opinion.c */
/* What the verifier's net needs of a text, where it is remembered, as the field net: behind a hash of the text. 0 = not remembered. */
enum { TOKENS_FIELD_BYTES = 8 + EMBEDDER_TOKENS_BYTES };
size_t cache_tokens_field(struct cache *c, struct str text, uint8_t out[TOKENS_FIELD_BYTES]);
/* To Redis, beside the text. */
void cache_share_tokens(struct cache *c, struct hash128 id, struct str text);

/* budget.c */
void cache_budget_tick(struct cache *c);
void cache_budget_redis_tick(struct cache *c);

/* keep.c */
void cache_write(struct cache *c,
                 const struct entry *e);   /* to Redis; the store learns when it is there */
void cache_write_unsaved(struct cache *c); /* one after the other */

/* embed.c: vector of text on the loop's thread, exactly once, never before this returns; vec NULL unless OK */
typedef void cache_embedded(void *arg, enum err code, const float *vec);
MUST enum err cache_embed(struct cache *c, struct str text, int deadline_ms, cache_embedded *done,
                          void *arg);

/* marks_sync.c: the marks as Redis has them. tick: asks when they are not known, sweeps when something is left to delete. */
void cache_marks_tick(struct cache *c);
void cache_marks_follow(struct cache *c, struct str scope, struct str epoch, struct str left);
void cache_marks_deny(struct cache *c, struct hash128 entry, struct str answer_hex);

/* quarantine.c */
struct cache_lookup;
/* The answer of own, an entry's question, is about to be given to a similar one. True: no, the entry is set aside from now on. */
MUST bool cache_quarantine_note(struct cache *c, const struct cache_lookup *l,
                                const struct question *own);
void cache_quarantine_follow(struct cache *c, struct hash128 entry, struct str state);

/* evidence_sync.c */
void cache_evidence_tick(struct cache *c);
void cache_evidence_forget(struct cache *c); /* and read again */
void cache_evidence_follow(struct cache *c, struct str id, const struct str *fields,
                           size_t n_fields);
/* What somebody said of an entry's answer, as the log tells it; name: of the telling. text empty = of what was served last. */
struct cache_feedback {
    struct hash128 entry;
    struct str name, ns, text;
    bool right;
};
void cache_evidence_from_feedback(struct cache *c, const struct cache_feedback *f);
/* A question that was not served got this answer from the model: was the candidate's the same? */
void cache_evidence_from_answer(struct cache *c, const struct cache_key *k,
                                const struct openai_answer *a);

/* index_sync.c */
void cache_sync_start(struct cache *c);
void cache_sync_stop(struct cache *c);
bool cache_sync_ready(
    const struct cache *c); /* changes are being tailed: what is loaded from now on stays right */
/* Loads the partition from Redis unless that is under way; done comes once it is over, well or not (the state tells), never before
 * this returns, also after cache_close. False: cannot be loaded now, and done will not come. */
MUST bool cache_await_partition(struct cache *c, struct partition *p, void (*done)(void *arg),
                                void *arg);

#endif
