/* api_keys.h - who is asking: a bearer token -> tenant. Keys are kept as SHA-256 only and looked up by digest, so neither a memory
 * dump of the table nor the time a look-up takes tells a key. Read once at start. Threading: read-only afterwards. */
#ifndef DEJA_GATEWAY_API_KEYS_H
#define DEJA_GATEWAY_API_KEYS_H
#include "base/str.h"

struct api_keys;
enum { TENANT_BYTES = 65 };

/* Lines `key tenant`, '#' comments. ERR_INVALID "keys.txt:3: ..." (never with the key in it), ERR_NOT_FOUND, ERR_TOO_LARGE. */
MUST enum err api_keys_load(struct api_keys **out, const char *path, struct errmsg *e);
MUST enum err api_keys_parse(struct api_keys **out, struct str text, const char *where,
                             struct errmsg *e);
void api_keys_free(struct api_keys *k);
/* The tenant (borrowed), or empty with p NULL when the key is unknown. */
struct str api_keys_find(const struct api_keys *k, struct str key);
size_t api_keys_count(const struct api_keys *k);
/* Without a table every bearer is a tenant of its own: "key-" and 24 hex digits of its digest; no bearer: "public". */
void api_keys_open_tenant(struct str bearer, char out[TENANT_BYTES]);
/* 127.0.0.0/8, ::1 or localhost: the only addresses where running without a table is allowed. */
bool address_is_loopback(const char *host);

#endif
