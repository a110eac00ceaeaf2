/* route_chain.h - how a prompt is cut into blocks for each target: by token ids as the target's engine names its blocks, where that is
 * known, else by pieces of the request's text, which at least finds again what this gateway has sent there before. Targets with the
 * same way of naming share a chain. Pure. */
#ifndef DEJA_GATEWAY_ROUTE_CHAIN_H
#define DEJA_GATEWAY_ROUTE_CHAIN_H
#include "base/json.h"
#include "base/prefix_hash.h"
#include "cache/prefix_index.h"

/* How one target names the blocks of this request. */
struct route_naming {
    bool by_tokens;
    struct prefix_origin origin;
    int block_tokens;
};
struct route_chains {
    int n;                   /* different ones */
    int of[PREFIX_PODS_MAX]; /* target -> chain, -1 = none */
    struct {
        struct route_naming naming;
        struct hash128 *blocks;
        size_t n_blocks;
    } chain[PREFIX_PODS_MAX];
};
/* Pieces of text: 256 bytes are about 64 tokens. Longer prompts are known by their first 256 KiB. */
enum { ROUTE_PIECE_BYTES = 256, ROUTE_TEXT_MAX = 256 * 1024 };

/* naming[i] for target i, of n; those with blocks of 0 tokens take no part. ids: token ids, n_ids of them. text: see route_text. */
void route_chains_make(struct route_chains *c, const struct route_naming *naming, int n,
                       const int32_t *ids, size_t n_ids, struct str text);
void route_chains_fini(struct route_chains *c);
/* Appends what stands for a request of unknown tokens: tools, then messages or prompt, in order, so that a longer conversation begins
 * with the shorter one. */
void route_text(struct buf *out, const json_t *tools, const json_t *messages, const json_t *prompt);

#endif
