/* bounds.h - what has been learnt, for each namespace of the requests one model (cache/bound.h), for each entry one record. Filled by
 * folding pieces of evidence in the order of their log, so every gateway holds the same. Bounded: the namespace and the entries heard of
 * longest ago are forgotten. Pure. Threading: the loop's thread. */
#ifndef DEJA_CACHE_BOUNDS_H
#define DEJA_CACHE_BOUNDS_H
#include "base/hash.h"
#include "cache/bound.h"

enum { BOUNDS_NAMESPACES_MAX = 64, BOUNDS_ENTRIES_MAX = 65536 };

struct evidence {
    struct hash128 entry;
    struct str ns; /* of the request */
    struct bound_view v;
    bool right;
    double weight; /* 0..1 */
};

struct bounds;
struct bounds *bounds_new(void);
void bounds_free(struct bounds *b);
void bounds_clear(struct bounds *b);
void bounds_learn(struct bounds *b, const struct evidence *e);
/* NULL: nothing is known there. Borrowed until the next bounds_learn. */
const struct bound *bounds_of(const struct bounds *b, struct str ns);
const struct bound_record *bounds_record(const struct bounds *b, struct hash128 entry);

/* Evidence as fields of a log item: entry ns right weight cosine floor rival agree verifier zh. */
enum { EVIDENCE_FIELDS = 10, EVIDENCE_TEXT_BYTES = 40 * EVIDENCE_FIELDS };
void evidence_write(const struct evidence *e, struct str names[EVIDENCE_FIELDS],
                    struct str values[EVIDENCE_FIELDS], char texts[EVIDENCE_TEXT_BYTES]);
/* fields: name, value, ... in any order, others ignored. ERR_CORRUPT: one is missing or no such number. Strings are borrowed. */
MUST enum err evidence_read(const struct str *fields, size_t n_fields, struct evidence *out);

#endif
