/* vocab_trie.c - see vocab_trie.h. Tokens are sorted by their bytes; nodes then come out in order. */
#include "engine/grammar/vocab_trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/grammar/grammar_private.h"

struct entry {
    struct str text;
    int32_t token;
};

static int by_text(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = memcmp(x->text.p, y->text.p, x->text.n < y->text.n ? x->text.n : y->text.n);
    if (order) return order;
    if (x->text.n != y->text.n) return x->text.n < y->text.n ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

static size_t common(struct str a, struct str b)
{
    size_t n = 0;
    while (n < a.n && n < b.n && a.p[n] == b.p[n])
        n++;
    return n;
}

/* Ends the open nodes deeper than depth. */
static void close_nodes(struct grammar_vocab *v, uint32_t *open, size_t *depth, size_t to)
{
    for (; *depth > to; --*depth)
        v->node[open[*depth]].skip = v->n_nodes;
}

static void fill(struct grammar_vocab *v, const struct entry *sorted, int n)
{
    uint32_t open[TRIE_DEPTH_MAX + 1] = {0};
    size_t depth = 0;
    struct str before = {"", 0};
    v->n_nodes = 1;
    for (int i = 0; i < n; i++) {
        struct str text = sorted[i].text;
        size_t shared = common(before, text);
        close_nodes(v, open, &depth, shared);
        while (depth < text.n) {
            open[++depth] = v->n_nodes;
            v->node[v->n_nodes++] = (struct trie_node){
                .token = (uint32_t)i, .byte = (uint8_t)text.p[depth - 1], .depth = (uint8_t)depth};
        }
        v->tokens[i] = sorted[i].token;
        if (text.n == 1) byte_set_add(&v->alphabet, (uint8_t)text.p[0], (uint8_t)text.p[0]);
        before = text;
    }
    close_nodes(v, open, &depth, 0);
    v->node[0].skip = v->n_nodes;
    v->node[v->n_nodes].token = (uint32_t)n;
}

static bool is_end(const struct grammar_vocab *v, int32_t token)
{
    for (int i = 0; i < v->n_ends; i++)
        if (v->ends[i] == token) return true;
    return false;
}

struct grammar_vocab *grammar_vocab_new(const struct str *token, int n_tokens, int n_vocab,
                                        const int32_t *ends, int n_ends)
{
    ASSERT(n_vocab >= n_tokens && n_tokens > 0);
    struct grammar_vocab *v = xcalloc(1, sizeof *v);
    struct entry *sorted = xcalloc((size_t)n_tokens, sizeof *sorted);
    size_t n_bytes = 0, n_nodes = 2;
    for (int i = 0; i < n_tokens; i++)
        n_bytes += token[i].n;
    v->id = grammar_new_id();
    v->n_vocab = n_vocab;
    v->n_words = (n_vocab + 31) / 32;
    v->n_ends = n_ends;
    v->ends = xcalloc((size_t)n_ends + 1, sizeof *v->ends);
    if (n_ends) memcpy(v->ends, ends, (size_t)n_ends * sizeof *ends);
    v->text = xcalloc((size_t)n_tokens, sizeof *v->text);
    v->n_tokens = n_tokens;
    v->bytes = xmalloc(n_bytes + 1);
    int n = 0;
    for (int i = 0, at = 0; i < n_tokens; at += (int)token[i++].n) {
        if (!token[i].n || token[i].n > TRIE_DEPTH_MAX || is_end(v, i)) continue;
        memcpy(v->bytes + at, token[i].p, token[i].n);
        v->text[i] = (struct str){v->bytes + at, token[i].n};
        sorted[n++] = (struct entry){v->text[i], i};
        n_nodes += token[i].n;
        if (token[i].n > v->longest) v->longest = (uint32_t)token[i].n;
    }
    qsort(sorted, (size_t)n, sizeof *sorted, by_text);
    v->node = xcalloc(n_nodes, sizeof *v->node);
    v->tokens = xcalloc((size_t)n + 1, sizeof *v->tokens);
    fill(v, sorted, n);
    v->node = xrealloc(v->node, (v->n_nodes + 1) * sizeof *v->node);
    mem_free(sorted);
    return v;
}

void grammar_vocab_free(struct grammar_vocab *v)
{
    if (!v) return;
    mem_free(v->node);
    mem_free(v->tokens);
    mem_free(v->ends);
    mem_free(v->text);
    mem_free(v->bytes);
    mem_free(v);
}
