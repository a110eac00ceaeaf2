/* piece_trie.h - a trie over the bytes of a set of pieces, to find all that start at a place in one walk. Private to the room.
 * Immutable after construction; any thread. */
#ifndef DEJA_ENGINE_TEXT_PIECE_TRIE_H
#define DEJA_ENGINE_TEXT_PIECE_TRIE_H
#include "base/str.h"

struct piece {
    struct str text; /* not empty */
    int32_t id;      /* >= 0 */
};
struct piece_trie;

/* Sorts pieces in place; their bytes are not needed afterwards. ERR_TOO_LARGE beyond 2^24 nodes (about one a byte). */
MUST enum err piece_trie_new(struct piece_trie **out, struct piece *pieces, size_t n,
                             struct errmsg *e);
void piece_trie_free(struct piece_trie *t);
#define PIECE_TRIE_ROOT 0u
/* The node below `node` for byte, or PIECE_TRIE_ROOT when no piece goes on so. */
uint32_t piece_trie_step(const struct piece_trie *t, uint32_t node, unsigned char byte);
int32_t piece_trie_id(const struct piece_trie *t,
                      uint32_t node); /* the piece that ends here, or -1 */

#endif
