/* mask.c - which tokens may come next. Where the innermost rule calls no other, most of the answer depends on its state alone (the inside
 * of a string allows nearly everything): that part is found once by a walk with one state a node, and kept; only the tokens that leave
 * the rule are followed through the frames below, each time the surroundings are new. Whole masks are kept by the whole stack.
 * Where the text is forced on, a token that is only the beginning of a longer one is left out: the text is the same, in fewer tokens and
 * in those the model has learnt it by ("first", not "f" "irs" "t").
 * Counters: the kept part of a counted rule knows how often each token counts, so that one walk serves every count. */
#include <string.h>

#include "base/mem.h"
#include "engine/grammar/grammar_private.h"

enum { KEY_WORDS_MAX = 4 + 3 * (GRAMMAR_DEPTH_MAX + 1), FORCED_BYTES = 64 };

/* The rule ends at this node of the trie. */
struct leaf_exit {
    uint32_t node;
    uint16_t count;
    bool checked; /* through an edge with ENOUGH */
};
/* What one state of a rule without calls decides alone. One block: bits, exits and tokens follow. */
struct leaf {
    uint32_t *stay; /* bit set of tokens that end inside the rule, if `left` allows */
    struct leaf_exit *exit;
    int32_t *token; /* those of stay by count: token[count_from[c] .. count_from[c + 1]] */
    int n_exits;
    bool counted;
    uint32_t count_from[TRIE_DEPTH_MAX + 3];
};

static void set_bit(uint32_t *bits, int32_t t)
{
    bits[t >> 5] |= 1u << (t & 31);
}
static void clear_bit(uint32_t *bits, int32_t t)
{
    bits[t >> 5] &= ~(1u << (t & 31));
}

static void set_tokens(const struct grammar_vocab *v, uint32_t node, uint32_t *bits)
{
    for (uint32_t i = v->node[node].token; i < v->node[node + 1].token; i++)
        set_bit(bits, v->tokens[i]);
}

/* The only byte that may follow, -1 when there are several, none, or the text may end or call a rule here. */
static int only_byte(const struct program *p, uint32_t state, uint32_t *to)
{
    const struct program_state *s = &p->state[state];
    const struct dfa_edge *edge = &p->edge[s->edge];
    if (s->n_edges != 1 || s->n_calls || s->accept || edge->lo != edge->hi) return -1;
    *to = edge->to;
    return edge->to == (edge->to & EDGE_STATE) ? edge->lo : -1;
}

/* Does a longer token lie on the way that is forced from here? */
static bool goes_on(const struct grammar *g, uint32_t node, uint32_t state)
{
    const struct grammar_vocab *v = g->vocab;
    for (int byte; (byte = only_byte(&g->program, state, &state)) >= 0;) {
        uint32_t end = v->node[node++].skip;
        while (node < end && v->node[node].byte != byte)
            node = v->node[node].skip;
        if (node >= end) return false;
        if (v->node[node].token != v->node[node + 1].token) return true;
    }
    return false;
}

/* --- the part one state decides */
struct leaf_walk {
    uint32_t *stay;
    uint16_t *count; /* [n_vocab] of tokens in stay */
    struct leaf_exit *exit;
    int n_exits, cap_exits;
    bool counted;
};

static void add_exit(struct leaf_walk *w, struct leaf_exit x)
{
    if (w->n_exits == w->cap_exits) {
        w->cap_exits = w->cap_exits ? 2 * w->cap_exits : 64;
        w->exit = xrealloc(w->exit, (size_t)w->cap_exits * sizeof *w->exit);
    }
    w->exit[w->n_exits++] = x;
}

static void walk_leaf(const struct grammar *g, uint32_t start, struct leaf_walk *w)
{
    const struct grammar_vocab *v = g->vocab;
    const struct program *p = &g->program;
    uint32_t state[TRIE_DEPTH_MAX + 1] = {start};
    uint16_t count[TRIE_DEPTH_MAX + 1] = {0};
    bool checked[TRIE_DEPTH_MAX + 1] = {false};
    if (p->state[start].accept) add_exit(w, (struct leaf_exit){0, 0, false});
    for (uint32_t i = 1; i < v->n_nodes;) {
        const struct trie_node *n = &v->node[i];
        int d = n->depth;
        uint32_t to = program_next(p, state[d - 1], n->byte);
        if (!to) {
            i = n->skip;
            continue;
        }
        state[d] = to & EDGE_STATE;
        count[d] = (uint16_t)(count[d - 1] + (to & EDGE_COUNT ? 1 : 0));
        checked[d] = checked[d - 1] || to & EDGE_ENOUGH;
        w->counted |= (to & (EDGE_COUNT | EDGE_ENOUGH)) != 0;
        if (p->state[state[d]].accept) add_exit(w, (struct leaf_exit){i, count[d], checked[d]});
        bool whole = !checked[d] && n->token < n[1].token && !goes_on(g, i, state[d]);
        for (uint32_t k = n->token; k < n[1].token && whole; k++) {
            set_bit(w->stay, v->tokens[k]);
            w->count[v->tokens[k]] = count[d];
        }
        i++;
    }
}

/* Tokens by how often they count. */
static void sort_by_count(const struct grammar_vocab *v, const struct leaf_walk *w,
                          struct leaf *out)
{
    uint32_t *from = out->count_from;
    for (int t = 0; t < v->n_vocab; t++)
        if (w->stay[t >> 5] >> (t & 31) & 1) from[w->count[t] + 2]++;
    for (int c = 2; c < TRIE_DEPTH_MAX + 3; c++)
        from[c] += from[c - 1];
    for (int t = 0; t < v->n_vocab; t++)
        if (w->stay[t >> 5] >> (t & 31) & 1) out->token[from[w->count[t] + 1]++] = t;
}

static uint32_t popcount(const uint32_t *bits, int n_words)
{
    uint32_t n = 0;
    for (int i = 0; i < n_words; i++)
        n += (uint32_t)__builtin_popcount(bits[i]);
    return n;
}

static const struct leaf *pack(struct grammar_run *r, const struct grammar_vocab *v,
                               struct mask_key key, const struct leaf_walk *w)
{
    size_t bits = (size_t)v->n_words * sizeof *w->stay,
           exits = (size_t)w->n_exits * sizeof *w->exit,
           tokens = w->counted ? popcount(w->stay, v->n_words) * sizeof(int32_t) : 0;
    struct leaf *x = mask_cache_add(r->cache, key, sizeof *x + bits + exits + tokens);
    x->stay = (uint32_t *)(x + 1);
    x->exit = (struct leaf_exit *)((char *)x->stay + bits);
    x->token = (int32_t *)((char *)x->exit + exits);
    x->n_exits = w->n_exits;
    x->counted = w->counted;
    memcpy(x->stay, w->stay, bits);
    if (exits) memcpy(x->exit, w->exit, exits);
    if (tokens) sort_by_count(v, w, x);
    return x;
}

/* A key begins with whose state it is; those of the shared rules belong to the vocabulary. */
static int begin_key(uint32_t *word, const struct grammar *g, uint32_t state)
{
    uint64_t owner = state < g->n_shared ? g->vocab->id : g->id;
    word[0] = (uint32_t)owner;
    word[1] = (uint32_t)(owner >> 32);
    word[2] = state;
    return 3;
}

static const struct leaf *leaf_of(struct grammar_run *r, const struct grammar *g, uint32_t state)
{
    uint32_t word[3];
    struct mask_key key = {word, begin_key(word, g, state)};
    const struct leaf *known = mask_cache_find(r->cache, key);
    if (known) return known;
    struct leaf_walk w = {.stay = xcalloc((size_t)g->vocab->n_words, sizeof *w.stay),
                          .count = xcalloc((size_t)g->vocab->n_vocab, sizeof *w.count)};
    walk_leaf(g, state, &w);
    known = pack(r, g->vocab, key, &w);
    mem_free(w.stay);
    mem_free(w.count);
    mem_free(w.exit);
    return known;
}

/* --- the part that depends on what lies below */
/* Tokens of the subtree (without its root), read from this alternative on. */
static void walk(struct grammar_run *r, const struct grammar *g, uint32_t root, uint32_t config,
                 uint32_t *bits)
{
    const struct grammar_vocab *v = g->vocab;
    int base = v->node[root].depth;
    r->set[base].config[0] = config;
    r->set[base].n = 1;
    r->frames_at[base] = r->n_frames;
    for (uint32_t i = root + 1; i < v->node[root].skip;) {
        const struct trie_node *n = &v->node[i];
        r->n_frames = r->frames_at[n->depth - 1];
        struct config_set *to = &r->set[n->depth];
        run_step(r, &g->program, &r->set[n->depth - 1], n->byte, to);
        if (!to->n) {
            i = n->skip;
            continue;
        }
        r->frames_at[n->depth] = r->n_frames;
        bool part =
            to->n == 1 && n->token < n[1].token && goes_on(g, i, r->frame[to->config[0]].state);
        if (!part) set_tokens(v, i, bits);
        i++;
    }
    r->n_frames = r->frames_at[base];
}

/* Copies the tokens that count at most `left` times, by the shorter way. */
static void copy_counted(const struct grammar_vocab *v, const struct leaf *x, uint32_t left,
                         uint32_t *bits)
{
    size_t n_bytes = (size_t)v->n_words * sizeof *bits;
    if (!x->counted || left >= TRIE_DEPTH_MAX) {
        memcpy(bits, x->stay, n_bytes);
        return;
    }
    uint32_t fit = x->count_from[left + 1], all = x->count_from[TRIE_DEPTH_MAX + 1];
    if (fit < all / 2) {
        memset(bits, 0, n_bytes);
        for (uint32_t i = 0; i < fit; i++)
            set_bit(bits, x->token[i]);
    } else {
        memcpy(bits, x->stay, n_bytes);
        for (uint32_t i = fit; i < all; i++)
            clear_bit(bits, x->token[i]);
    }
}

static void mask_of_leaf(struct grammar_run *r, const struct grammar *g, uint32_t config,
                         uint32_t *bits)
{
    const struct frame f = r->frame[config];
    const struct leaf *x = leaf_of(r, g, f.state);
    copy_counted(g->vocab, x, f.left, bits);
    for (int i = 0; i < x->n_exits; i++) {
        const struct leaf_exit *end = &x->exit[i];
        if (end->count > f.left || (end->checked && end->count < f.need)) continue;
        if (end->checked) set_tokens(g->vocab, end->node, bits);
        if (f.parent) walk(r, g, end->node, f.parent, bits);
    }
}

static uint32_t clamp_need(const struct grammar_vocab *v, uint32_t n)
{
    return n > v->longest ? v->longest : n;
}
static uint32_t clamp_left(const struct grammar_vocab *v, uint32_t n)
{
    return n >= v->longest ? GRAMMAR_NO_LIMIT : n;
}

/* The stack as a key; counters beyond what one token can count are all alike. */
static int stack_key(const struct grammar *g, const struct kept_frame *x, int depth, uint32_t *word)
{
    int n = begin_key(word, g, UINT32_MAX);
    for (int i = 0; i < depth; i++) {
        word[n++] = x[i].state;
        word[n++] = clamp_need(g->vocab, x[i].need);
        word[n++] = clamp_left(g->vocab, x[i].left);
    }
    return n;
}

struct whole_mask {
    int n_allowed;
    uint32_t bits[];
};

/* Counters that change with each token would fill the cache with masks seen once. */
static bool worth_keeping(const struct grammar *g, const struct kept_frame *top)
{
    return !g->program.state[top->state].leaf ||
           (clamp_left(g->vocab, top->left) == GRAMMAR_NO_LIMIT && !top->need);
}

/* Of the tokens that lie within what is forced only the usual one stays; those that reach beyond it do too. */
static void keep_usual(struct grammar_run *r, const struct grammar *g, uint32_t config,
                       uint32_t *bits)
{
    const struct grammar_vocab *v = g->vocab;
    char bytes[FORCED_BYTES];
    int32_t usual;
    r->set[0].config[0] = config;
    r->set[0].n = 1;
    struct str text = {bytes, run_forced(r, &g->program, bytes, sizeof bytes)};
    if (text.n < 2 || vocab_usual_tokens(v, text, &usual, 1) != 1) return;
    uint32_t node = 0;
    for (size_t i = 0; i < text.n; i++) {
        uint32_t end = v->node[node++].skip;
        while (node < end && v->node[node].byte != (uint8_t)text.p[i])
            node = v->node[node].skip;
        if (node >= end) break;
        for (uint32_t k = v->node[node].token; k < v->node[node + 1].token; k++)
            clear_bit(bits, v->tokens[k]);
    }
    set_bit(bits, usual);
}

static void compute(struct grammar_run *r, const struct grammar *g, const struct kept_frame *x,
                    int depth, uint32_t *bits)
{
    run_reset(r);
    uint32_t top = run_load(r, x, depth);
    if (g->program.state[x[depth - 1].state].leaf) {
        mask_of_leaf(r, g, top, bits);
    } else {
        memset(bits, 0, (size_t)g->vocab->n_words * sizeof *bits);
        walk(r, g, 0, top, bits);
    }
    if (g->vocab->encode) keep_usual(r, g, top, bits);
    for (int i = 0; i < g->vocab->n_ends && run_may_end(r, &g->program, top); i++)
        set_bit(bits, g->vocab->ends[i]);
}

static const uint32_t *mask_of_stack(struct grammar_run *r, const struct grammar *g,
                                     const struct kept_frame *x, int depth, int *n_allowed)
{
    uint32_t word[KEY_WORDS_MAX];
    struct mask_key key = {word, stack_key(g, x, depth, word)};
    struct whole_mask *known = mask_cache_find(r->cache, key);
    if (!known) {
        size_t n_bytes = (size_t)g->vocab->n_words * sizeof *r->one;
        compute(r, g, x, depth, r->one);
        *n_allowed = (int)popcount(r->one, g->vocab->n_words);
        if (!worth_keeping(g, &x[depth - 1])) return r->one;
        known = mask_cache_add(r->cache, key, sizeof *known + n_bytes);
        known->n_allowed = *n_allowed;
        memcpy(known->bits, r->one, n_bytes);
    }
    *n_allowed = known->n_allowed;
    return known->bits;
}

static void make_room(struct grammar_run *r, int n_words)
{
    if (n_words <= r->n_words) return;
    r->n_words = n_words;
    r->bits = xrealloc(r->bits, (size_t)n_words * sizeof *r->bits);
    r->one = xrealloc(r->one, (size_t)n_words * sizeof *r->one);
}

const uint32_t *grammar_mask(struct grammar_run *r, const struct grammar_state *s, int *n_allowed)
{
    const struct grammar *g = s->g;
    const struct kept_frame *at = s->frame;
    int n_words = g->vocab->n_words, n = 0;
    make_room(r, n_words);
    if (s->n_stacks == 1) {
        const uint32_t *bits = mask_of_stack(r, g, at, s->depth[0], &n);
        if (n_allowed) *n_allowed = n;
        return bits;
    }
    memset(r->bits, 0, (size_t)n_words * sizeof *r->bits);
    for (int i = 0; i < s->n_stacks; at += s->depth[i++]) {
        const uint32_t *bits = mask_of_stack(r, g, at, s->depth[i], &n);
        for (int w = 0; w < n_words; w++)
            r->bits[w] |= bits[w];
    }
    if (n_allowed) *n_allowed = (int)popcount(r->bits, n_words);
    return r->bits;
}
