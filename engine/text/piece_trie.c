/* piece_trie.c - nodes in breadth-first order, the children of a node side by side and sorted: a step is a binary search within
 * a cache line or two. A double array would save the search, but costs its construction time at every start. */
#include "engine/text/piece_trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { NODES_MAX = 1 << 24 };

struct trie_node {
    uint32_t first; /* index of its first child */
    int32_t id;
    uint16_t n; /* children */
    unsigned char byte;
};
struct piece_trie {
    struct trie_node *nodes;
    size_t n, cap;
    uint32_t top[256]; /* the root's children by byte, 0 = none */
};
struct range { /* the sorted pieces below a node, which share its path of `depth` bytes */
    uint32_t lo, hi, depth;
};

static int by_text(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    size_t n = x->text.n < y->text.n ? x->text.n : y->text.n;
    int c = memcmp(x->text.p, y->text.p, n);
    return c ? c : (x->text.n > y->text.n) - (x->text.n < y->text.n);
}

static bool reserve(struct piece_trie *t, struct range **ranges)
{
    if (t->n + 256 <= t->cap) return true;
    size_t cap = t->cap ? t->cap * 2 : 4096;
    struct trie_node *nodes = try_realloc(t->nodes, cap * sizeof *nodes);
    if (nodes) t->nodes = nodes;
    struct range *wider = nodes ? try_realloc(*ranges, cap * sizeof *wider) : NULL;
    if (!wider) return false;
    *ranges = wider;
    t->cap = cap;
    return true;
}

/* Gives node i its children, one for each byte that follows in its range. */
static void branch(struct piece_trie *t, struct range *ranges, size_t i, const struct piece *pieces)
{
    struct range r = ranges[i];
    while (r.lo < r.hi && pieces[r.lo].text.n == r.depth)
        t->nodes[i].id = pieces[r.lo++].id;
    t->nodes[i].first = (uint32_t)t->n;
    while (r.lo < r.hi) {
        unsigned char byte = (unsigned char)pieces[r.lo].text.p[r.depth];
        uint32_t end = r.lo + 1;
        while (end < r.hi && (unsigned char)pieces[end].text.p[r.depth] == byte)
            end++;
        t->nodes[t->n] = (struct trie_node){.id = -1, .byte = byte};
        ranges[t->n++] = (struct range){r.lo, end, r.depth + 1};
        t->nodes[i].n++;
        r.lo = end;
    }
}

enum err piece_trie_new(struct piece_trie **out, struct piece *pieces, size_t n, struct errmsg *e)
{
    *out = NULL;
    struct piece_trie *t = xcalloc(1, sizeof *t);
    struct range *ranges = NULL;
    if (n) qsort(pieces, n, sizeof *pieces, by_text);
    enum err err = reserve(t, &ranges) ? OK : ERR_TOO_LARGE;
    if (!err) {
        t->nodes[0] = (struct trie_node){.id = -1};
        ranges[0] = (struct range){0, (uint32_t)n, 0};
        t->n = 1;
    }
    for (size_t i = 0; !err && i < t->n; i++) {
        if (t->n > NODES_MAX || !reserve(t, &ranges))
            err = ERR_TOO_LARGE;
        else
            branch(t, ranges, i, pieces);
    }
    mem_free(ranges);
    if (err) {
        piece_trie_free(t);
        return err_set(e, err, "the vocabulary is too large for a search tree");
    }
    for (uint32_t i = 0; i < t->nodes[0].n; i++)
        t->top[t->nodes[t->nodes[0].first + i].byte] = t->nodes[0].first + i;
    *out = t;
    return OK;
}

void piece_trie_free(struct piece_trie *t)
{
    if (!t) return;
    mem_free(t->nodes);
    mem_free(t);
}

uint32_t piece_trie_step(const struct piece_trie *t, uint32_t node, unsigned char byte)
{
    if (node == PIECE_TRIE_ROOT) return t->top[byte];
    uint32_t lo = t->nodes[node].first, hi = lo + t->nodes[node].n, end = hi;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (t->nodes[mid].byte < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < end && t->nodes[lo].byte == byte ? lo : PIECE_TRIE_ROOT;
}

int32_t piece_trie_id(const struct piece_trie *t, uint32_t node)
{
    return t->nodes[node].id;
}
