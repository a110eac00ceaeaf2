/* key.h - what of a request counts. Everything in the body does, unless it stands on a short list of fields that cannot change the
 * answer; unknown fields count. Two hashes of the canonical form come out: `exact` over everything, `partition` over everything but
 * the last user text, which is what may be worded differently. Values are tagged and length-prefixed, so that moving a boundary
 * between fields or messages changes the hash. Pure. */
#ifndef DEJA_CACHE_KEY_H
#define DEJA_CACHE_KEY_H
#include "cache/cache.h"

struct key_rules {
    uint64_t secret;
    struct str embedder_id; /* "" = no semantic step */
    size_t text_bytes_max;  /* longer user texts are for the exact cache only */
};
/* ERR_TOO_LARGE: canonical form over 16 MiB. */
MUST enum err key_make(const struct key_rules *rules, const struct openai_request *r,
                       const struct cache_scope *scope, struct cache_key *out);
/* The canonical body the hashes are made from; with_text false = the last user text left out. For tests and for people. */
MUST enum err key_canonical(const struct openai_request *r, bool with_text, struct buf *out);
/* The partition of curated answers of a tenant ("*" = of all) and namespace: the same under every embedder, since people wrote them. */
struct hash128 key_curated(uint64_t secret, struct str tenant, struct str ns);
/* The id of a curated entry. scope->model "" = for any model. */
struct hash128 key_curated_entry(uint64_t secret, const struct cache_scope *scope,
                                 struct str question);
/* Program text, markup, tables, stack traces: too precise for similarity. */
bool key_looks_like_code(struct str text);

#endif
