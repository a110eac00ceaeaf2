/* wording.h - a judged text: another wording of an entry's question, and a question that must never get certain entries' answers. One
 * record for a text in a partition, kept in Redis beside the entries (lua/wordings.lua writes it); it outlives them, since what two
 * questions mean does not change when an answer is made anew. The reader trusts nothing. Pure.
 *
 * Fields, version 2 of the format in cache/entry.h: v role=w part tenant model ns q of not by created ttl, emb and vec when some
 * program has made the vector. */
#ifndef DEJA_CACHE_WORDING_H
#define DEJA_CACHE_WORDING_H
#include "cache/entry.h"

enum { WORDING_VERSION = 2, WORDING_TEXT_BYTES_MAX = 1024, WORDING_VETOES_MAX = 64 };

struct wording {
    struct hash128 id, partition;
    struct hash128 of; /* the entry whose answer this text gets; zero = none */
    struct hash128 vetoed[WORDING_VETOES_MAX];
    size_t n_vetoed;
    struct str text, by; /* by: "person", "judge", "seed", "feedback" */
    struct str tenant, model, ns, embedder, vector;
    int64_t created_s, ttl_s;
};

/* Are these the fields of a wording (well formed or not)? */
bool wording_is(const struct str values[N_ENTRY_FIELDS]);
/* Values in the order of enum entry_field. Strings of *out are borrowed. ERR_CORRUPT, ERR_UNSUPPORTED: see entry_read. */
MUST enum err wording_read(struct hash128 id, const struct str values[N_ENTRY_FIELDS],
                           struct wording *out, struct errmsg *e);

#endif
