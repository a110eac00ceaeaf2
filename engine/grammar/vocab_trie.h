/* vocab_trie.h - private to engine/grammar: the tokens' bytes as a trie in one array, parents before children, so that a walk is a
 * loop that either goes to the next node or skips a subtree. Immutable. Tokens longer than TRIE_DEPTH_MAX bytes are left out. */
#ifndef DEJA_ENGINE_GRAMMAR_VOCAB_TRIE_H
#define DEJA_ENGINE_GRAMMAR_VOCAB_TRIE_H
#include "engine/grammar/grammar.h"
#include "engine/grammar/program.h"

enum { TRIE_DEPTH_MAX = 255 };

struct trie_node {
    uint32_t skip;  /* first node after the subtree */
    uint32_t token; /* tokens that end here: tokens[token .. next node's token] */
    uint8_t byte, depth;
};
struct grammar_vocab {
    struct trie_node *node; /* [n_nodes + 1]; 0 is the root, the last one only bounds token */
    uint32_t n_nodes;
    int32_t *tokens;
    int n_vocab, n_words;
    uint32_t longest; /* bytes of a token */
    uint64_t id;      /* of this vocabulary, for caches */
    int32_t *ends;
    int n_ends;
    struct str *text; /* [n_tokens] of each token, into bytes */
    int n_tokens;
    char *bytes;
    struct byte_set alphabet; /* bytes that are tokens of their own */
    int (*encode)(void *arg, struct str text, int32_t *out, int max); /* or NULL */
    void *encode_arg;
};

enum { VOCAB_DRAFT_MAX = 64 };
/* The usual tokens of a text, which they make up exactly; at most max (up to VOCAB_DRAFT_MAX). */
int vocab_usual_tokens(const struct grammar_vocab *v, struct str text, int32_t *out, int max);

#endif
