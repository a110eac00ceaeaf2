/* program.c - puts rules together and checks the whole: which states can end at all and how deep that goes, what each rule begins with. */
#include "engine/grammar/program.h"

#include <string.h>

#include "base/mem.h"

enum {
    DENSE_FROM_EDGES = 5,
    DENSE_CELLS_MAX = 1 << 20 /* 4 MiB; states beyond look through their edges */
};

void program_init(struct program *p)
{
    *p = (struct program){.n_states = 1, .cap_states = 64};
    p->state = xcalloc(p->cap_states, sizeof *p->state);
    p->state[0].dense = -1;
}

void program_fini(struct program *p)
{
    mem_free(p->state);
    mem_free(p->edge);
    mem_free(p->call);
    mem_free(p->rule);
    mem_free(p->dense);
    *p = (struct program){0};
}

int program_reserve(struct program *p)
{
    if (p->n_rules == GRAMMAR_RULES_MAX) {
        p->failed = true;
        return 0;
    }
    if (p->n_rules == p->cap_rules) {
        p->cap_rules = p->cap_rules ? 2 * p->cap_rules : 32;
        p->rule = xrealloc(p->rule, (size_t)p->cap_rules * sizeof *p->rule);
    }
    p->rule[p->n_rules] = (struct program_rule){0};
    return p->n_rules++;
}

static void *with_room(void *at, uint32_t n, uint32_t more, uint32_t *cap, size_t size)
{
    if (n + more <= *cap) return at;
    while (n + more > *cap)
        *cap = *cap ? 2 * *cap : 64;
    return xrealloc(at, *cap * size);
}

void program_define(struct program *p, int rule, const struct dfa *d)
{
    ASSERT(d->n_states > 0 && (p->failed || !p->rule[rule].start));
    if (p->failed) return;
    uint32_t states = (uint32_t)d->n_states, edges = (uint32_t)d->n_edges,
             calls = (uint32_t)d->n_calls;
    p->state = with_room(p->state, p->n_states, states, &p->cap_states, sizeof *p->state);
    p->edge = with_room(p->edge, p->n_edges, edges, &p->cap_edges, sizeof *p->edge);
    p->call = with_room(p->call, p->n_calls, calls, &p->cap_calls, sizeof *p->call);
    for (uint32_t i = 0; i < states; i++) {
        const struct dfa_state *s = &d->state[i];
        p->state[p->n_states + i] = (struct program_state){.edge = p->n_edges + (uint32_t)s->edge,
                                                           .call = p->n_calls + (uint32_t)s->call,
                                                           .n_edges = s->n_edges,
                                                           .n_calls = s->n_calls,
                                                           .dense = -1,
                                                           .accept = s->accept,
                                                           .leaf = !d->n_calls};
    }
    for (uint32_t i = 0; i < edges; i++) {
        p->edge[p->n_edges + i] = d->edge[i];
        p->edge[p->n_edges + i].to += p->n_states; /* flags are the high bits */
    }
    for (uint32_t i = 0; i < calls; i++) {
        p->call[p->n_calls + i] = d->call[i];
        p->call[p->n_calls + i].to += p->n_states;
    }
    p->rule[rule].start = p->n_states;
    p->rule[rule].leaf = !d->n_calls;
    p->n_states += states;
    p->n_edges += edges;
    p->n_calls += calls;
}

/* --- heights: least frames above a state until its rule has ended. Dijkstra with buckets: the cost of a way is the largest on it */
struct heights {
    struct program *p;
    uint32_t *in_from, *in;         /* edges and calls that lead to a state: in[in_from[s] ..] */
    uint32_t *caller_from, *caller; /* calls of a rule */
    uint32_t *edge_owner, *call_owner;
    int *rule_of_start; /* [n_states], -1 */
    uint32_t *queue, *later;
    uint32_t n_queue, n_later;
    int level;
};

/* A list of ids by key: lists[from[k] .. from[k+1]]. Ids at or over n_edges are calls. */
static void invert(struct heights *h)
{
    const struct program *p = h->p;
    h->in_from = xcalloc((size_t)p->n_states + 2, sizeof *h->in_from);
    h->caller_from = xcalloc((size_t)p->n_rules + 2, sizeof *h->caller_from);
    for (uint32_t i = 0; i < p->n_edges; i++)
        h->in_from[(p->edge[i].to & EDGE_STATE) + 2]++;
    for (uint32_t i = 0; i < p->n_calls; i++) {
        h->in_from[(p->call[i].to & EDGE_STATE) + 2]++;
        h->caller_from[p->call[i].callee.rule + 2]++;
    }
    for (uint32_t s = 2; s < p->n_states + 2; s++)
        h->in_from[s] += h->in_from[s - 1];
    for (int r = 2; r < p->n_rules + 2; r++)
        h->caller_from[r] += h->caller_from[r - 1];
    h->in = xcalloc((size_t)p->n_edges + p->n_calls + 1, sizeof *h->in);
    h->caller = xcalloc((size_t)p->n_calls + 1, sizeof *h->caller);
    for (uint32_t i = 0; i < p->n_edges; i++)
        h->in[h->in_from[(p->edge[i].to & EDGE_STATE) + 1]++] = i;
    for (uint32_t i = 0; i < p->n_calls; i++) {
        h->in[h->in_from[(p->call[i].to & EDGE_STATE) + 1]++] = p->n_edges + i;
        h->caller[h->caller_from[p->call[i].callee.rule + 1]++] = i;
    }
}

static void set_owners(struct heights *h)
{
    const struct program *p = h->p;
    h->edge_owner = xcalloc((size_t)p->n_edges + 1, sizeof *h->edge_owner);
    h->call_owner = xcalloc((size_t)p->n_calls + 1, sizeof *h->call_owner);
    h->rule_of_start = xcalloc(p->n_states, sizeof *h->rule_of_start);
    for (uint32_t s = 0; s < p->n_states; s++) {
        h->rule_of_start[s] = -1;
        for (int i = 0; i < p->state[s].n_edges; i++)
            h->edge_owner[p->state[s].edge + (uint32_t)i] = s;
        for (int i = 0; i < p->state[s].n_calls; i++)
            h->call_owner[p->state[s].call + (uint32_t)i] = s;
    }
    for (int r = 0; r < p->n_rules; r++)
        h->rule_of_start[p->rule[r].start] = r;
}

static void relax(struct heights *h, uint32_t s, int height)
{
    struct program_state *x = &h->p->state[s];
    if (height > GRAMMAR_DEPTH_MAX || height >= x->height) return;
    x->height = (uint8_t)height;
    if (height <= h->level)
        h->queue[h->n_queue++] = s;
    else
        h->later[h->n_later++] = s;
}

static void relax_caller(struct heights *h, uint32_t call)
{
    const struct program *p = h->p;
    const struct dfa_call *c = &p->call[call];
    int after = p->state[c->to & EDGE_STATE].height,
        callee = p->state[p->rule[c->callee.rule].start].height;
    if (after == PROGRAM_NO_HEIGHT || callee == PROGRAM_NO_HEIGHT) return;
    relax(h, h->call_owner[call], after > callee + 1 ? after : callee + 1);
}

static void spread(struct heights *h, uint32_t s)
{
    const struct program *p = h->p;
    for (uint32_t i = h->in_from[s]; i < h->in_from[s + 1]; i++) {
        if (h->in[i] >= p->n_edges)
            relax_caller(h, h->in[i] - p->n_edges);
        else
            relax(h, h->edge_owner[h->in[i]], p->state[s].height);
    }
    int r = h->rule_of_start[s];
    if (r < 0) return;
    for (uint32_t i = h->caller_from[r]; i < h->caller_from[r + 1]; i++)
        relax_caller(h, h->caller[i]);
}

static void measure(struct program *p)
{
    struct heights h = {.p = p};
    set_owners(&h);
    invert(&h);
    /* a state is queued when it accepts, and at most once for each edge and twice for each call */
    size_t most = (size_t)p->n_states + p->n_edges + 2 * (size_t)p->n_calls;
    h.queue = xcalloc(most, sizeof *h.queue);
    h.later = xcalloc(most, sizeof *h.later);
    for (uint32_t s = 1; s < p->n_states; s++) {
        p->state[s].height = PROGRAM_NO_HEIGHT;
        if (p->state[s].accept) relax(&h, s, 0);
    }
    for (; h.level <= GRAMMAR_DEPTH_MAX; h.level++) {
        for (uint32_t i = 0; i < h.n_queue; i++)
            spread(&h, h.queue[i]);
        uint32_t n = h.n_later;
        h.n_queue = h.n_later = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t s = h.later[i];
            if (p->state[s].height == h.level + 1)
                h.queue[h.n_queue++] = s;
            else if (p->state[s].height > h.level + 1)
                h.later[h.n_later++] = s;
        }
    }
    mem_free(h.in_from);
    mem_free(h.in);
    mem_free(h.caller_from);
    mem_free(h.caller);
    mem_free(h.edge_owner);
    mem_free(h.call_owner);
    mem_free(h.rule_of_start);
    mem_free(h.queue);
    mem_free(h.later);
}

/* --- trimming */
static void keep_alphabet(struct program *p, const struct byte_set *alphabet)
{
    bool all = true;
    for (int i = 0; i < 4; i++)
        all &= alphabet->bits[i] == UINT64_MAX;
    if (all) return;
    struct dfa_edge *old = p->edge;
    p->edge = NULL;
    p->n_edges = p->cap_edges = 0;
    for (uint32_t s = 0; s < p->n_states; s++) {
        const struct dfa_edge *from = old ? &old[p->state[s].edge] : NULL;
        int n = p->state[s].n_edges;
        p->state[s].edge = p->n_edges;
        for (int i = 0; i < n; i++)
            for (int lo = from[i].lo, hi; lo <= from[i].hi; lo = hi + 1) {
                for (hi = lo; hi < from[i].hi && byte_set_has(alphabet, (uint8_t)(hi + 1)) ==
                                                     byte_set_has(alphabet, (uint8_t)lo);)
                    hi++;
                if (!byte_set_has(alphabet, (uint8_t)lo)) continue;
                p->edge = with_room(p->edge, p->n_edges, 1, &p->cap_edges, sizeof *p->edge);
                p->edge[p->n_edges++] = (struct dfa_edge){(uint8_t)lo, (uint8_t)hi, from[i].to};
            }
        p->state[s].n_edges = (int)(p->n_edges - p->state[s].edge);
    }
    mem_free(old);
}

static bool dead(const struct program *p, uint32_t to)
{
    return p->state[to & EDGE_STATE].height == PROGRAM_NO_HEIGHT;
}

static void drop_dead(struct program *p)
{
    for (uint32_t s = 1; s < p->n_states; s++) {
        struct program_state *x = &p->state[s];
        int n = 0;
        for (int i = 0; i < x->n_edges; i++)
            if (!dead(p, p->edge[x->edge + (uint32_t)i].to))
                p->edge[x->edge + (uint32_t)n++] = p->edge[x->edge + (uint32_t)i];
        x->n_edges = n;
        n = 0;
        for (int i = 0; i < x->n_calls; i++) {
            const struct dfa_call *c = &p->call[x->call + (uint32_t)i];
            if (!dead(p, c->to) && !dead(p, p->rule[c->callee.rule].start))
                p->call[x->call + (uint32_t)n++] = *c;
        }
        x->n_calls = n;
    }
}

/* --- what rules begin with */
enum mark { UNSEEN, OPEN, CLOSED };

static enum err find_first(struct program *p, int rule, uint8_t *mark, int depth, struct errmsg *e)
{
    struct program_rule *r = &p->rule[rule];
    if (mark[rule] == CLOSED) return OK;
    if (mark[rule] == OPEN || depth > 200)
        return err_set(e, ERR_INVALID,
                       "a schema that refers to itself with no object or array between (or through "
                       "too many references)");
    mark[rule] = OPEN;
    const struct program_state *s = &p->state[r->start];
    for (int i = 0; i < s->n_edges; i++) {
        const struct dfa_edge *edge = &p->edge[s->edge + (uint32_t)i];
        byte_set_add(&r->first, edge->lo, edge->hi);
    }
    for (int i = 0; i < s->n_calls; i++) {
        int callee = p->call[s->call + (uint32_t)i].callee.rule;
        enum err code = find_first(p, callee, mark, depth + 1, e);
        if (code) return code;
        for (int k = 0; k < 4; k++)
            r->first.bits[k] |= p->rule[callee].first.bits[k];
    }
    mark[rule] = CLOSED;
    return OK;
}

static enum err find_all_first(struct program *p, struct errmsg *e)
{
    uint8_t *mark = xcalloc((size_t)p->n_rules + 1, 1);
    enum err code = OK;
    for (int r = 0; r < p->n_rules && !code; r++)
        code = find_first(p, r, mark, 0, e);
    mem_free(mark);
    return code;
}

/* --- tables for states with many edges */
static void find_classes(struct program *p)
{
    bool cut[257] = {[0] = true};
    for (uint32_t s = 1; s < p->n_states; s++)
        for (int i = 0; p->state[s].n_edges >= DENSE_FROM_EDGES && i < p->state[s].n_edges; i++) {
            const struct dfa_edge *edge = &p->edge[p->state[s].edge + (uint32_t)i];
            cut[edge->lo] = cut[edge->hi + 1] = true;
        }
    p->n_classes = 0;
    for (int b = 0; b < 256; b++) {
        if (cut[b]) p->n_classes++;
        p->class_of[b] = (uint8_t)(p->n_classes - 1);
    }
}

static void fill_tables(struct program *p)
{
    size_t rows = 0;
    find_classes(p);
    for (uint32_t s = 1; s < p->n_states; s++)
        if (p->state[s].n_edges >= DENSE_FROM_EDGES) rows++;
    size_t most = DENSE_CELLS_MAX / (size_t)p->n_classes;
    if (rows > most) rows = most;
    p->dense = xcalloc(rows * (size_t)p->n_classes + 1, sizeof *p->dense);
    size_t row = 0;
    for (uint32_t s = 1; s < p->n_states && row < rows; s++) {
        struct program_state *x = &p->state[s];
        if (x->n_edges < DENSE_FROM_EDGES) continue;
        uint32_t *at = p->dense + row * (size_t)p->n_classes;
        for (int i = 0; i < x->n_edges; i++) {
            const struct dfa_edge *edge = &p->edge[x->edge + (uint32_t)i];
            for (int c = p->class_of[edge->lo]; c <= p->class_of[edge->hi]; c++)
                at[c] = edge->to;
        }
        x->dense = (int32_t)row++;
    }
}

enum err program_finish(struct program *p, struct callee root, const struct byte_set *alphabet,
                        struct errmsg *e)
{
    if (p->failed)
        return err_set(e, ERR_TOO_LARGE, "too large: more than %d rules", GRAMMAR_RULES_MAX);
    for (int r = 0; r < p->n_rules; r++)
        ASSERT(p->rule[r].start);
    p->root = root;
    keep_alphabet(p, alphabet);
    measure(p);
    int height = p->state[p->rule[root.rule].start].height;
    if (height == PROGRAM_NO_HEIGHT)
        return err_set(e, ERR_INVALID,
                       "nothing can match it (or only what is nested deeper than %d)",
                       GRAMMAR_DEPTH_MAX);
    if (height >= GRAMMAR_DEPTH_MAX)
        return err_set(e, ERR_TOO_LARGE, "nested too deep: at most %d levels",
                       GRAMMAR_DEPTH_MAX - 1);
    drop_dead(p);
    enum err code = find_all_first(p, e);
    if (!code) fill_tables(p);
    return code;
}
