/* partition.h - the questions that may stand for each other as far as everything around them goes: one vector index for each
 * partition hash, made when first used, the least recently used one forgotten first. Holds texts and vectors, never answers: the
 * questions of entries, and texts judged to ask the same or not.
 * Threading: the loop's thread, but partition_search and partition_search_many may run on a worker while the loop goes on adding and
 * removing. */
#ifndef DEJA_CACHE_PARTITION_H
#define DEJA_CACHE_PARTITION_H
#include "cache/entry.h"
#include "cache/marks.h"
#include "embeddings/vector_index.h"

enum partition_state {
    PARTITION_PARTIAL, /* holds what this process has seen; what Redis has is not loaded */
    PARTITION_LOADING,
    PARTITION_LOADED
};
/* A stored question, or a judged text (cache/wording.h). */
struct question {
    struct hash128 id;    /* of the entry, or of the judged text */
    struct hash128 entry; /* whose answer it leads to; zero = none: it only forbids */
    bool judged;
    int trust;       /* of the entry: enum entry_trust; own questions, and the next two */
    uint64_t answer; /* entry_answer_hash */
    struct mark_scope scope;
    int64_t expires_s;
    struct str text;
    uint64_t normal;              /* guard_normal of text; 0 = none */
    bool used;                    /* partition_touch since the trimming came by */
    const struct hash128 *vetoed; /* entries whose answer this text never gets */
    size_t n_vetoed;
};
struct partition;
struct partitions;

struct partitions_options {
    size_t dim;            /* 0: texts only, no vectors */
    size_t entries_max;    /* over all partitions */
    size_t partitions_max; /* 4096 */
};
struct partitions *partitions_new(const struct partitions_options *o);
void partitions_free(struct partitions *p);
/* Partitions that are forgotten are freed bit by bit: up to max questions now, whenever there is time. */
void partitions_dig(struct partitions *p, size_t max);
/* Counts as use. NULL: unknown and not to be made, or no index could be made. */
struct partition *partitions_get(struct partitions *p, struct hash128 key, bool make);
void partitions_forget_all(struct partitions *p); /* those a search is using go when it ends */
bool partitions_remove_id(struct partitions *p, struct hash128 id); /* from whichever holds it */
size_t partitions_entries(const struct partitions *p);
size_t partitions_bytes(const struct partitions *p);
/* Makes them fit: partitions not used for long are forgotten, then questions that led to no answer since they were last looked at, at most
 * max of them; those of operators and judged texts stay. While it does not fit, partition_add takes no others. */
void partitions_trim(struct partitions *p, size_t bytes_max, size_t max);

enum partition_state partition_state(const struct partition *x);
void partition_set_state(struct partition *x,
                         enum partition_state s); /* LOADING starts noting removals */
/* Keeps a partition from being freed (a search or a load in flight). */
void partition_ref(struct partition *x);
void partition_unref(struct partition *x);
bool partition_forgotten(
    const struct partition *x); /* dropped from the table since: let go of it */
struct hash128 partition_key(const struct partition *x);

/* Copies q. An id added again is replaced. vec NULL: found by its text alone until partition_give_vector. from_load: not when it was
 * removed since loading began. ERR_FULL, ERR_INVALID (vector): what was there under the id is as before. */
MUST enum err partition_add(struct partition *x, const struct question *q, const float *vec,
                            bool from_load);
/* ERR_NOT_FOUND, else as above. */
MUST enum err partition_give_vector(struct partition *x, struct hash128 id, const float *vec);
bool partition_remove(struct partition *x, struct hash128 id);
void partition_touch(struct partition *x, struct hash128 entry); /* it was served */
/* Borrowed until the next add or remove; NULL when it is gone. */
const struct question *partition_question(const struct partition *x, uint64_t label);
/* The own question of an entry, NULL when the entry is not here. */
const struct question *partition_entry(const struct partition *x, struct hash128 entry);
/* Questions whose text is exactly this, then (with normal != 0) others of this normal form: *walk starts as zero, NULL ends.
 * Nothing may be added or removed meanwhile. */
struct partition_walk {
    size_t at;
    bool begun, by_normal;
};
const struct question *partition_same_text(const struct partition *x, struct str text,
                                           uint64_t normal, struct partition_walk *walk);
size_t partition_count(const struct partition *x);  /* all that is in it */
size_t partition_judged(const struct partition *x); /* judged texts among them */
size_t partition_search(struct partition *x, const float *vec, size_t k, struct vector_hit *hits);
void partition_search_many(struct partition *x, struct vector_query *queries, size_t n);

#endif
