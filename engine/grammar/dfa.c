/* dfa.c - see dfa.h. A state is a sorted set of the nodes that read something; sets are found again by hash. */
#include "engine/grammar/dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

/* Memory is paid in work too: 2 million edges at most. */
enum { WORK_AN_EDGE = 16 };

void dfa_fini(struct dfa *d)
{
    mem_free(d->state);
    mem_free(d->edge);
    mem_free(d->call);
    *d = (struct dfa){0};
}

/* Room for one more; the array doubles. Sizes are bounded by the budget. */
static void *grown(void *p, int n, int *cap, size_t size)
{
    if (n < *cap) return p;
    *cap = *cap ? 2 * *cap : 16;
    return xrealloc(p, (size_t)*cap * size);
}

int dfa_add_state(struct dfa *d, bool accept)
{
    d->state = grown(d->state, d->n_states, &d->cap_states, sizeof *d->state);
    d->state[d->n_states] =
        (struct dfa_state){.edge = d->n_edges, .call = d->n_calls, .accept = accept};
    return d->n_states++;
}

/* Neighbours that lead to the same place become one. */
void dfa_add_edge(struct dfa *d, struct dfa_edge edge)
{
    struct dfa_state *s = &d->state[d->n_states - 1];
    struct dfa_edge *last = s->n_edges ? &d->edge[d->n_edges - 1] : NULL;
    ASSERT(edge.lo <= edge.hi && (!last || last->hi < edge.lo));
    if (last && last->to == edge.to && last->hi + 1 == edge.lo) {
        last->hi = edge.hi;
        return;
    }
    d->edge = grown(d->edge, d->n_edges, &d->cap_edges, sizeof *d->edge);
    d->edge[d->n_edges++] = edge;
    s->n_edges++;
}

void dfa_add_call(struct dfa *d, struct dfa_call call)
{
    d->call = grown(d->call, d->n_calls, &d->cap_calls, sizeof *d->call);
    d->call[d->n_calls++] = call;
    d->state[d->n_states - 1].n_calls++;
}

/* The target for this byte with its flags, -1 when there is none. */
static int64_t target_of(const struct dfa *d, int state, uint8_t byte)
{
    const struct dfa_state *s = &d->state[state];
    for (int i = 0; i < s->n_edges; i++) {
        const struct dfa_edge *edge = &d->edge[s->edge + i];
        if (byte <= edge->hi) return byte >= edge->lo ? (int64_t)edge->to : -1;
    }
    return -1;
}

static enum err used_up(struct errmsg *e)
{
    return err_set(e, ERR_TOO_LARGE,
                   "too complex: its automaton would pass the bound (fewer or smaller "
                   "repetitions, values or properties would help)");
}

/* --- subset construction */
struct set {
    int *node;
    int n;
};
struct subset {
    const struct nfa *a;
    struct grammar_budget *budget;
    struct dfa *out;
    struct set *sets; /* [n_sets], index = state */
    int n_sets, cap_sets;
    int *slot; /* open addressing: set + 1, 0 = empty */
    int n_slots;
    int *mark, *stack; /* [a->n] */
    int round;
    struct set work; /* the set being made; room for a->n */
};

static int compare_ints(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

enum place { AT_BEGIN = 1, AT_END = 2 };

/* Adds the node and all that can be reached without reading to the work set. */
static void close_over(struct subset *s, int node, int place)
{
    int n = 0;
    s->stack[n++] = node;
    while (n) {
        int i = s->stack[--n];
        if (s->mark[i] == s->round) continue;
        s->mark[i] = s->round;
        s->budget->work--;
        const struct nfa_node *x = &s->a->node[i];
        bool passes =
            (x->kind == NFA_BEGIN && place & AT_BEGIN) || (x->kind == NFA_END && place & AT_END);
        if (x->kind == NFA_SPLIT && s->mark[x->b] != s->round) s->stack[n++] = x->b;
        if ((x->kind == NFA_SPLIT || passes) && s->mark[x->a] != s->round) s->stack[n++] = x->a;
        if (x->kind != NFA_SPLIT && x->kind != NFA_BEGIN) s->work.node[s->work.n++] = i;
    }
}

static void begin_set(struct subset *s)
{
    s->round++;
    s->work.n = 0;
}

static uint64_t hash_set(const struct set *x)
{
    return hash_bytes(x->n, (struct str){(const char *)x->node, (size_t)x->n * sizeof(int)}).lo;
}

static void rehash(struct subset *s)
{
    mem_free(s->slot);
    s->n_slots = s->n_slots ? 2 * s->n_slots : 256;
    s->slot = xcalloc((size_t)s->n_slots, sizeof *s->slot);
    for (int i = 0; i < s->n_sets; i++) {
        size_t k = hash_set(&s->sets[i]) & (size_t)(s->n_slots - 1);
        while (s->slot[k])
            k = (k + 1) & (size_t)(s->n_slots - 1);
        s->slot[k] = i + 1;
    }
}

/* The state of the work set, new or known. */
static int state_of_work(struct subset *s)
{
    qsort(s->work.node, (size_t)s->work.n, sizeof(int), compare_ints);
    if (2 * (s->n_sets + 1) > s->n_slots) rehash(s);
    size_t k = hash_set(&s->work) & (size_t)(s->n_slots - 1);
    for (; s->slot[k]; k = (k + 1) & (size_t)(s->n_slots - 1)) {
        const struct set *x = &s->sets[s->slot[k] - 1];
        if (x->n == s->work.n && !memcmp(x->node, s->work.node, (size_t)x->n * sizeof(int)))
            return s->slot[k] - 1;
    }
    s->sets = grown(s->sets, s->n_sets, &s->cap_sets, sizeof *s->sets);
    struct set *x = &s->sets[s->n_sets];
    x->n = s->work.n;
    x->node = xmalloc((size_t)(x->n ? x->n : 1) * sizeof(int));
    if (x->n) memcpy(x->node, s->work.node, (size_t)x->n * sizeof(int));
    s->budget->states--;
    s->budget->work -= 4 * x->n; /* memory too: sets hold at most a quarter of the budget */
    s->slot[k] = s->n_sets + 1;
    return s->n_sets++;
}

/* Where all nodes of the state that read this byte lead: -1 = nowhere. */
static int64_t target_of_byte(struct subset *s, const struct set *from, int byte)
{
    bool any = false;
    uint32_t flags = 0;
    begin_set(s);
    s->budget->work -= from->n;
    for (int i = 0; i < from->n; i++) {
        const struct nfa_node *x = &s->a->node[from->node[i]];
        if (x->kind != NFA_BYTE || byte < x->lo || byte > x->hi) continue;
        ASSERT(!any || flags == x->flags); /* rules are built so */
        any = true;
        flags = x->flags;
        close_over(s, x->a, 0);
    }
    return any ? (int64_t)((uint32_t)state_of_work(s) | flags) : -1;
}

static void add_edges(struct subset *s, int state)
{
    bool cut[257] = {[0] = true};
    struct set from = s->sets[state];
    for (int i = 0; i < from.n; i++) {
        const struct nfa_node *x = &s->a->node[from.node[i]];
        if (x->kind == NFA_BYTE) cut[x->lo] = cut[x->hi + 1] = true;
    }
    for (int lo = 0; lo < 256;) {
        int hi = lo;
        while (hi < 255 && !cut[hi + 1])
            hi++;
        int64_t to =
            s->budget->work > 0 && s->budget->states > 0 ? target_of_byte(s, &from, lo) : -1;
        if (to >= 0) {
            dfa_add_edge(s->out, (struct dfa_edge){(uint8_t)lo, (uint8_t)hi, (uint32_t)to});
            s->budget->work -= WORK_AN_EDGE;
        }
        lo = hi + 1;
    }
}

/* Nodes that call the same rule in the same way go on together. */
static void add_calls(struct subset *s, int state)
{
    struct set from = s->sets[state];
    for (int i = 0; i < from.n; i++) {
        const struct nfa_node *first = &s->a->node[from.node[i]];
        bool seen = first->kind != NFA_CALL;
        for (int k = 0; k < i && !seen; k++) {
            const struct nfa_node *x = &s->a->node[from.node[k]];
            seen = x->kind == NFA_CALL && x->b == first->b && x->flags == first->flags;
        }
        s->budget->work -= i;
        if (seen || s->budget->work <= 0) continue;
        begin_set(s);
        for (int k = i; k < from.n; k++) {
            const struct nfa_node *x = &s->a->node[from.node[k]];
            if (x->kind == NFA_CALL && x->b == first->b && x->flags == first->flags)
                close_over(s, x->a, 0);
        }
        uint32_t to = (uint32_t)state_of_work(s) | first->flags;
        dfa_add_call(s->out, (struct dfa_call){s->a->call[first->b], to});
    }
}

/* May the text end here? Marks of its own, so that the nodes behind an END are not taken into the set. */
static bool accepts(struct subset *s, const struct set *x, int place)
{
    bool found = false;
    begin_set(s);
    for (int i = 0; i < x->n; i++)
        if (s->a->node[x->node[i]].kind == NFA_END || s->a->node[x->node[i]].kind == NFA_ACCEPT)
            close_over(s, x->node[i], place | AT_END);
    for (int i = 0; i < s->work.n && !found; i++)
        found = s->a->node[s->work.node[i]].kind == NFA_ACCEPT;
    return found;
}

enum err dfa_from_nfa(struct dfa *out, const struct nfa *a, int start,
                      struct grammar_budget *budget, struct errmsg *e)
{
    *out = (struct dfa){0};
    if (a->failed) return used_up(e);
    struct subset s = {.a = a, .budget = budget, .out = out};
    s.mark = xcalloc((size_t)a->n, sizeof *s.mark);
    s.stack = xcalloc(2 * (size_t)a->n + 2, sizeof *s.stack);
    s.work.node = xcalloc((size_t)a->n, sizeof *s.work.node);
    begin_set(&s);
    close_over(&s, start, AT_BEGIN);
    state_of_work(&s);
    for (int i = 0; i < s.n_sets && budget->states > 0 && budget->work > 0; i++) {
        struct set x = s.sets[i];
        dfa_add_state(out, accepts(&s, &x, i ? 0 : AT_BEGIN));
        add_edges(&s, i);
        add_calls(&s, i);
    }
    bool whole = out->n_states == s.n_sets && budget->states > 0 && budget->work > 0;
    for (int i = 0; i < s.n_sets; i++)
        mem_free(s.sets[i].node);
    mem_free(s.sets);
    mem_free(s.slot);
    mem_free(s.mark);
    mem_free(s.stack);
    mem_free(s.work.node);
    if (whole) return OK;
    dfa_fini(out);
    return used_up(e);
}

/* --- product */
struct pair {
    int a, b; /* b: -1 = b has no way on */
};
struct product {
    const struct dfa *a, *b;
    struct pair *pairs;
    int n, cap;
    int *slot, n_slots;
};

static size_t hash_pair(struct pair p, int n_slots)
{
    uint64_t x = ((uint64_t)(uint32_t)p.a << 32 | (uint32_t)p.b) * 0x9E3779B97F4A7C15u;
    return (size_t)(x >> 32) & (size_t)(n_slots - 1);
}

static int pair_state(struct product *p, struct pair x)
{
    if (2 * (p->n + 1) > p->n_slots) {
        mem_free(p->slot);
        p->n_slots = p->n_slots ? 2 * p->n_slots : 256;
        p->slot = xcalloc((size_t)p->n_slots, sizeof *p->slot);
        for (int i = 0; i < p->n; i++) {
            size_t k = hash_pair(p->pairs[i], p->n_slots);
            while (p->slot[k])
                k = (k + 1) & (size_t)(p->n_slots - 1);
            p->slot[k] = i + 1;
        }
    }
    size_t k = hash_pair(x, p->n_slots);
    for (; p->slot[k]; k = (k + 1) & (size_t)(p->n_slots - 1)) {
        struct pair y = p->pairs[p->slot[k] - 1];
        if (y.a == x.a && y.b == x.b) return p->slot[k] - 1;
    }
    p->pairs = grown(p->pairs, p->n, &p->cap, sizeof *p->pairs);
    p->pairs[p->n] = x;
    p->slot[k] = p->n + 1;
    return p->n++;
}

static void product_edges(struct product *p, struct dfa *out, struct pair from, bool minus)
{
    for (int byte = 0; byte < 256; byte++) {
        int64_t a = target_of(p->a, from.a, (uint8_t)byte),
                b = from.b >= 0 ? target_of(p->b, from.b, (uint8_t)byte) : -1;
        if (a < 0 || (b < 0 && !minus)) continue;
        struct pair to = {(int)(a & EDGE_STATE), b < 0 ? -1 : (int)(b & EDGE_STATE)};
        uint32_t flags = (uint32_t)a & ~(uint32_t)EDGE_STATE;
        dfa_add_edge(out, (struct dfa_edge){(uint8_t)byte, (uint8_t)byte,
                                            (uint32_t)pair_state(p, to) | flags});
    }
}

enum err dfa_product(struct dfa *out, const struct dfa *a, const struct dfa *b, bool minus,
                     struct grammar_budget *budget, struct errmsg *e)
{
    ASSERT(!a->n_calls && !b->n_calls);
    *out = (struct dfa){0};
    struct product p = {.a = a, .b = b};
    pair_state(&p, (struct pair){0, 0});
    for (int i = 0; i < p.n && budget->states > 0 && budget->work > 0; i++) {
        struct pair x = p.pairs[i];
        bool in_b = x.b >= 0 && b->state[x.b].accept;
        dfa_add_state(out, a->state[x.a].accept && in_b != minus);
        product_edges(&p, out, x, minus);
        budget->states--;
        budget->work -= 256 + WORK_AN_EDGE * out->state[i].n_edges;
    }
    bool whole = out->n_states == p.n && budget->states > 0 && budget->work > 0;
    mem_free(p.pairs);
    mem_free(p.slot);
    if (whole) return OK;
    dfa_fini(out);
    return used_up(e);
}
