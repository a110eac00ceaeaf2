/* join_table.c - see join_table.h. */
#include "gateway/join_table.h"

#include "base/hash_map.h"

struct joined {
    struct hash128 key;
    void *value;
};
struct join_table {
    struct hash_map map;
    size_t max;
};

struct join_table *join_table_new(size_t entries_max)
{
    struct join_table *t = xcalloc(1, sizeof *t);
    t->max = entries_max ? entries_max : 1;
    hash_map_init(&t->map, sizeof(struct joined), t->max);
    return t;
}

void join_table_free(struct join_table *t)
{
    if (!t) return;
    hash_map_fini(&t->map);
    mem_free(t);
}

void *join_table_find(const struct join_table *t, struct hash128 key)
{
    const struct joined *j = hash_map_find(&t->map, key);
    return j ? j->value : NULL;
}

enum err join_table_put(struct join_table *t, struct hash128 key, void *value)
{
    ASSERT(value);
    if (t->map.n == t->max) return ERR_FULL;
    struct joined *j = hash_map_add(&t->map, key);
    ASSERT(!j->value);
    j->value = value;
    return OK;
}

void join_table_remove(struct join_table *t, struct hash128 key, const void *value)
{
    struct joined *j = hash_map_find(&t->map, key);
    if (j && j->value == value) hash_map_remove(&t->map, j);
}
