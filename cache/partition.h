/* partition.h - the questions that may stand for each other as far as everything around them goes: one vector index for each
 * partition hash, made when first used, the least recently used one forgotten first. Holds texts and vectors, never answers.
 * Threading: the loop's thread, but partition_search may run on a worker while the loop goes on adding and removing. */
#ifndef DEJA_CACHE_PARTITION_H
#define DEJA_CACHE_PARTITION_H
#include "cache/entry.h"
#include "embeddings/vector_index.h"

enum partition_state {
    PARTITION_PARTIAL, /* holds what this process has seen; what Redis has is not loaded */
    PARTITION_LOADING,
    PARTITION_LOADED
};
struct question {
    struct hash128 id;
    int64_t expires_s;
    struct str text; /* owned by the question */
};
struct partition;
struct partitions;

struct partitions_options {
    size_t dim;
    size_t entries_max;    /* over all partitions */
    size_t partitions_max; /* 4096 */
};
struct partitions *partitions_new(const struct partitions_options *o);
void partitions_free(struct partitions *p);
/* Counts as use. NULL: unknown and not to be made, or no index could be made. */
struct partition *partitions_get(struct partitions *p, struct hash128 key, bool make);
void partitions_forget_all(struct partitions *p); /* those a search is using go when it ends */
bool partitions_remove_id(struct partitions *p, struct hash128 id); /* from whichever holds it */
size_t partitions_entries(const struct partitions *p);
size_t partitions_bytes(const struct partitions *p);

enum partition_state partition_state(const struct partition *x);
void partition_set_state(struct partition *x,
                         enum partition_state s); /* LOADING starts noting removals */
/* Keeps a partition from being freed (a search or a load in flight). */
void partition_ref(struct partition *x);
void partition_unref(struct partition *x);
bool partition_forgotten(
    const struct partition *x); /* dropped from the table since: let go of it */
struct hash128 partition_key(const struct partition *x);

/* An id added again is replaced. from_load: not when it was removed since loading began. ERR_FULL, ERR_INVALID (vector). */
MUST enum err partition_add(struct partition *x, const struct entry *e, const float *vec,
                            bool from_load);
bool partition_remove(struct partition *x, struct hash128 id);
/* Borrowed until the next add or remove; NULL when it is gone. */
const struct question *partition_question(const struct partition *x, uint64_t label);
size_t partition_count(const struct partition *x);
size_t partition_search(struct partition *x, const float *vec, size_t k, struct vector_hit *hits);

#endif
