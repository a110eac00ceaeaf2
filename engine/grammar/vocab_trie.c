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

/* The longest token that text begins with, and its length; -1 when there is none. */
static int32_t longest_token(const struct grammar_vocab *v, struct str text, size_t *length)
{
    uint32_t at = 0;
    int32_t found = -1;
    for (size_t i = 0; i < text.n; i++) {
        uint32_t child = at + 1, end = v->node[at].skip;
        while (child < end && v->node[child].byte != (uint8_t)text.p[i])
            child = v->node[child].skip;
        if (child >= end) break;
        at = child;
        if (v->node[at].token == v->node[at + 1].token) continue;
        found = v->tokens[v->node[at].token];
        *length = i + 1;
    }
    return found;
}

int vocab_usual_tokens(const struct grammar_vocab *v, struct str text, int32_t *out, int max)
{
    size_t at = 0, length = 0;
    int n = 0, usual = 0;
    if (max > VOCAB_DRAFT_MAX) max = VOCAB_DRAFT_MAX;
    if (v->encode && text.n) usual = v->encode(v->encode_arg, text, out, max);
    for (; n < usual && n < max; at += v->text[out[n++]].n) {
        bool fits = out[n] >= 0 && out[n] < v->n_tokens && v->text[out[n]].n &&
                    str_starts(str_sub(text, at, text.n), v->text[out[n]]);
        if (!fits) break; /* a tokenizer that changes texts, or a control token */
    }
    while (n < max && at < text.n) {
        out[n] = longest_token(v, str_sub(text, at, text.n), &length);
        if (out[n] < 0) return n;
        at += length;
        n++;
    }
    return n;
}

void grammar_vocab_encoder(struct grammar_vocab *v,
                           int (*encode)(void *arg, struct str text, int32_t *out, int max),
                           void *arg)
{
    v->encode = encode;
    v->encode_arg = arg;
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
