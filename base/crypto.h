/* crypto.h - the only OpenSSL user beside the TLS part of http_client: SHA-256, HMAC, constant-time compare.
 * Any thread. */
#ifndef DEJA_BASE_CRYPTO_H
#define DEJA_BASE_CRYPTO_H
#include "base/str.h"

void sha256_bytes(struct str bytes, uint8_t out[32]);
void sha256_hex(struct str bytes, char out[65]);
void hmac_sha256(struct str key, struct str bytes, uint8_t out[32]);
bool equal_constant_time(struct str a, struct str b);

#endif
