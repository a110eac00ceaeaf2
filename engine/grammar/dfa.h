/* dfa.h - private to engine/grammar: a deterministic automaton over bytes whose states may also call rules, and how it is made: from
 * an nfa by the subset construction, or as the product of two. Pure, allocation aside.
 * Source: Rabin & Scott 1959 (doi:10.1147/rd.32.0114). */
#ifndef DEJA_ENGINE_GRAMMAR_DFA_H
#define DEJA_ENGINE_GRAMMAR_DFA_H
#include "engine/grammar/nfa.h"

/* to: state | EDGE_COUNT | EDGE_ENOUGH. The edges of a state are sorted and apart. */
struct dfa_edge {
    uint8_t lo, hi;
    uint32_t to;
};
struct dfa_call {
    struct callee callee;
    uint32_t to; /* goes on there when the callee has ended */
};
struct dfa_state {
    int edge, n_edges; /* dfa->edge[edge ..] */
    int call, n_calls;
    bool accept;
};
struct dfa { /* state 0 is the start */
    struct dfa_state *state;
    int n_states, cap_states;
    struct dfa_edge *edge;
    int n_edges, cap_edges;
    struct dfa_call *call;
    int n_calls, cap_calls;
};

/* A budget shared by everything one grammar is made of: what a client sends may not cost more than this. */
struct grammar_budget {
    int states;   /* left */
    int64_t work; /* elementary steps left */
};
enum { BUDGET_STATES = 60000, BUDGET_WORK = 30000000 };

/* ERR_TOO_LARGE: the budget is used up, or the nfa is marked failed. *out needs dfa_fini on OK only. */
MUST enum err dfa_from_nfa(struct dfa *out, const struct nfa *a, int start,
                           struct grammar_budget *budget, struct errmsg *e);
/* Texts of a that are in b too (minus: that are not in b). Neither calls rules; flags are those of a. */
MUST enum err dfa_product(struct dfa *out, const struct dfa *a, const struct dfa *b, bool minus,
                          struct grammar_budget *budget, struct errmsg *e);
void dfa_fini(struct dfa *d);

/* Building by hand: states in order, each followed by its edges and calls. */
int dfa_add_state(struct dfa *d, bool accept);
void dfa_add_edge(struct dfa *d, struct dfa_edge edge); /* of the newest state */
void dfa_add_call(struct dfa *d, struct dfa_call call);

#endif
