/* route_chain.c - see route_chain.h. */
#include "gateway/route_chain.h"

#include <string.h>

#include "base/mem.h"

static bool same_naming(const struct route_naming *a, const struct route_naming *b)
{
    return a->by_tokens == b->by_tokens && a->block_tokens == b->block_tokens &&
           a->origin.seed == b->origin.seed && hash_eq(a->origin.root, b->origin.root) &&
           hash_eq(a->origin.adapter, b->origin.adapter) && hash_eq(a->origin.salt, b->origin.salt);
}

static size_t pieces_chain(const struct prefix_origin *o, struct str text, struct hash128 *out)
{
    struct {
        struct hash128 parent;
        char piece[ROUTE_PIECE_BYTES];
    } in;
    size_t n = text.n / ROUTE_PIECE_BYTES;
    in.parent = prefix_hash_start(o);
    for (size_t i = 0; i < n; i++) {
        memcpy(in.piece, text.p + i * ROUTE_PIECE_BYTES, ROUTE_PIECE_BYTES);
        in.parent = out[i] = hash_bytes(o->seed, (struct str){(const char *)&in, sizeof in});
    }
    return n;
}

static int find_or_make(struct route_chains *c, const struct route_naming *naming,
                        const int32_t *ids, size_t n_ids, struct str text)
{
    for (int i = 0; i < c->n; i++)
        if (same_naming(&c->chain[i].naming, naming)) return i;
    size_t max =
        naming->by_tokens ? n_ids / (size_t)naming->block_tokens : text.n / ROUTE_PIECE_BYTES;
    if (max > PREFIX_CHAIN_MAX) max = PREFIX_CHAIN_MAX;
    int i = c->n++;
    c->chain[i].naming = *naming;
    c->chain[i].blocks = xcalloc(max + 1, sizeof(struct hash128));
    text = str_sub(text, 0, max * ROUTE_PIECE_BYTES);
    c->chain[i].n_blocks = naming->by_tokens
                               ? prefix_hash_chain(&naming->origin, naming->block_tokens, ids,
                                                   n_ids, c->chain[i].blocks, max)
                               : pieces_chain(&naming->origin, text, c->chain[i].blocks);
    return i;
}

void route_chains_make(struct route_chains *c, const struct route_naming *naming, int n,
                       const int32_t *ids, size_t n_ids, struct str text)
{
    c->n = 0;
    for (int i = 0; i < PREFIX_PODS_MAX; i++)
        c->of[i] = i < n && naming[i].block_tokens > 0
                       ? find_or_make(c, &naming[i], ids, n_ids, text)
                       : -1;
}

void route_chains_fini(struct route_chains *c)
{
    for (int i = 0; i < c->n; i++)
        mem_free(c->chain[i].blocks);
    c->n = 0;
}

static void add(struct buf *out, const json_t *v)
{
    if (!v || out->n >= ROUTE_TEXT_MAX) return;
    json_write(out, v);
    buf_char(out, '\n');
}

void route_text(struct buf *out, const json_t *tools, const json_t *messages, const json_t *prompt)
{
    size_t i;
    const json_t *m;
    add(out, tools);
    json_array_foreach(messages, i, m) add(out, m);
    if (json_is_string(prompt))
        buf_str(out, str_sub(json_str(prompt), 0, ROUTE_TEXT_MAX));
    else
        add(out, prompt);
}
