/* api_keys.h - who is asking: a bearer token -> tenant. Keys are kept as SHA-256 only and looked up by digest, so neither a memory
 * dump of the table nor the time a look-up takes tells a key. Read once at start. Threading: read-only afterwards. */
#ifndef DEJA_GATEWAY_API_KEYS_H
#define DEJA_GATEWAY_API_KEYS_H
#include "base/str.h"

struct api_keys;
enum { TENANT_BYTES = 65 };

/* Whose request it is, and its place among the others. */
struct api_grant {
    char tenant[TENANT_BYTES];
    double weight; /* of the tenant in the queue: 0.01..100, 1 unless said */
    bool batch;    /* every request of this key waits in the batch class */
    int trust;     /* what answers to its requests are stored with: 0..5, 1 unless said */
    int min_trust; /* it is given similar answers of writers from this trust on only; 0 unless said */
};

/* Lines `key tenant [weight=N] [class=online|batch] [trust=0..5] [min_trust=0..9]`, '#' comments.
 * ERR_INVALID "keys.txt:3: ..." (never with the key in it), ERR_NOT_FOUND, ERR_TOO_LARGE. */
MUST enum err api_keys_load(struct api_keys **out, const char *path, struct errmsg *e);
MUST enum err api_keys_parse(struct api_keys **out, struct str text, const char *where,
                             struct errmsg *e);
void api_keys_free(struct api_keys *k);
/* NULL: the key is unknown. */
const struct api_grant *api_keys_find(const struct api_keys *k, struct str key);
size_t api_keys_count(const struct api_keys *k);
/* Of a request whose key is not known any more (a line of a batch): the least trust and the highest min_trust of the tenant's keys; 1
 * and 0 of a tenant that has none. */
void api_keys_of_tenant(const struct api_keys *k, const char *tenant, int *trust, int *min_trust);
/* Without a table every bearer is a tenant of its own: "key-" and 24 hex digits of its digest; no bearer: "public". */
void api_keys_open_tenant(struct str bearer, char out[TENANT_BYTES]);
/* 127.0.0.0/8, ::1 or localhost: the only addresses where running without a table is allowed. */
bool address_is_loopback(const char *host);

#endif
