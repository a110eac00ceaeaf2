/* join_table.h - which exact keys have a miss in progress. Pure: values are opaque. Bounded by what it was made for. */
#ifndef DEJA_GATEWAY_JOIN_TABLE_H
#define DEJA_GATEWAY_JOIN_TABLE_H
#include "base/hash.h"

struct join_table;
struct join_table *join_table_new(size_t entries_max);
void join_table_free(struct join_table *t);
void *join_table_find(const struct join_table *t, struct hash128 key); /* NULL: none */
/* ERR_FULL: over the bound, nothing was changed. The key must be free. */
MUST enum err join_table_put(struct join_table *t, struct hash128 key, void *value);
void join_table_remove(struct join_table *t, struct hash128 key,
                       const void *value); /* only if it holds value */

#endif
