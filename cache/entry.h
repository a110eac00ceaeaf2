/* entry.h - one stored answer: what was asked, in which scope, what was answered and what that cost. Kept in Redis as a hash of
 * named fields (readable with redis-cli), in process as one block of memory. The reader trusts nothing: lengths, numbers and the
 * vector are checked, and whether an entry fits a key is asked again on every hit. Pure; no clock.
 *
 * Fields, version 1: v check part tenant model kind q a created ttl tags ptok ctok lat emb, vec (f16, little endian), and, absent in
 * what earlier programs wrote, ns trust ep ah pin, net (what the verifier needs of the question: cache/opinion.c). The same list reads
 * judged wordings (cache/wording.h): they add role of not by. */
#ifndef DEJA_CACHE_ENTRY_H
#define DEJA_CACHE_ENTRY_H
#include "cache/cache.h"

enum entry_field {
    EF_VERSION,
    EF_CHECK,
    EF_PARTITION,
    EF_TENANT,
    EF_MODEL,
    EF_KIND,
    EF_QUESTION,
    EF_ANSWER,
    EF_CREATED,
    EF_TTL,
    EF_TAGS,
    EF_PROMPT_TOKENS,
    EF_COMPLETION_TOKENS,
    EF_LATENCY,
    EF_EMBEDDER,
    EF_VECTOR,
    EF_NS,
    EF_TRUST,
    EF_EPOCH,
    EF_ANSWER_HASH,
    EF_PINNED,
    EF_TOKENS,
    N_ENTRY_WRITTEN, /* of an entry; what follows is a wording's */
    EF_ROLE = N_ENTRY_WRITTEN,
    EF_OF,
    EF_NOT,
    EF_BY,
    N_ENTRY_FIELDS
};
extern const char *const entry_field_names[N_ENTRY_FIELDS];

enum {
    ENTRY_VERSION = 1,
    ENTRY_QUESTION_BYTES_MAX = 64 * 1024,
    ENTRY_ANSWER_BYTES_MAX = 16 << 20,
    ENTRY_NAME_BYTES_MAX = 512, /* tenant, model, tags, embedder */
    ENTRY_DIM_MAX = 4096
};
#define ENTRY_NEVER_S (INT64_C(1) << 40) /* a ttl that does not end; Redis is given none */

/* An entry is not replaced by one of less trust. */
enum entry_trust { TRUST_CLIENT = 0, TRUST_GATEWAY = 1, TRUST_REVIEWED = 5, TRUST_OPERATOR = 9 };

struct entry {
    struct hash128 id;               /* hash of the exact key; its hex is the entry's name */
    struct hash128 check, partition; /* partition zero = not for the semantic step */
    enum openai_kind kind;
    struct str tenant, model, question, answer /* JSON, neutral form */, tags, embedder;
    struct str vector; /* f16[dim] bytes; empty = none */
    struct str
        tokens;    /* cache_tokens_field of the question, on the way to Redis only; empty = none */
    struct str ns; /* of the request, "" = none */
    int trust;     /* enum entry_trust: who stored it */
    int64_t epoch; /* number of mass removals when it was asked for */
    bool pinned;   /* written by people (`deja seed`): never pushed out to make room */
    uint64_t answer_hash; /* of what is answered, without ids and times: entry_answer_hash */
    int64_t created_s, ttl_s, latency_ms, prompt_tokens, completion_tokens;
    size_t bytes;      /* memory held */
    uint64_t write_no; /* tells two versions of an entry apart in this process; not stored */
};

/* Deep copy into one block; NULL when memory is refused. Free with entry_free. */
struct entry *entry_copy(const struct entry *from);
void entry_free(struct entry *e);

/* Values in the order of the fields; a value with p NULL = absent. Strings of *out are borrowed from values. Fields from EF_VECTOR
 * on may be absent, and EF_ANSWER when need_answer is false. ERR_CORRUPT says which field; ERR_UNSUPPORTED: written by a later version. */
MUST enum err entry_read(struct hash128 id, const struct str *values, size_t n, bool need_answer,
                         struct entry *out, struct errmsg *e);
/* The values of an entry as Redis gets them, from N_ENTRY_WRITTEN on absent. texts: where numbers are written. */
enum { ENTRY_TEXTS_BYTES = 400 };
void entry_write(const struct entry *e, struct str values[N_ENTRY_FIELDS],
                 char texts[ENTRY_TEXTS_BYTES]);
/* The same for answers that say the same in the same words, whatever their ids, times and costs. Never 0. */
uint64_t entry_answer_hash(const struct openai_answer *a);

bool entry_expired(const struct entry *e, int64_t now_s);
/* May this entry answer exactly this key? Everything the key knows is compared. */
bool entry_fits_exact(const struct entry *e, const struct cache_key *k);
/* May it answer another wording of the question: same scope, model, kind, partition. */
bool entry_fits_partition(const struct entry *e, const struct cache_key *k);

/* May a curated answer that stands in this partition be given: of the tenant or of all ("*"), of the namespace, of the model or of any
 * (""), and no longer than the client wants. */
bool entry_fits_curated(const struct entry *e, const struct cache_key *k, struct hash128 partition);

/* f32[dim] <-> f16 bytes (little endian). unpack: ERR_CORRUPT unless 2*dim bytes, finite, of length 1 within 1 %; normalised anew. */
void entry_pack_vector(const float *v, size_t dim, unsigned char *out);
MUST enum err entry_unpack_vector(struct str bytes, size_t dim, float *out);

#endif
