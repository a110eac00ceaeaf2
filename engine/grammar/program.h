/* program.h - private to engine/grammar: a compiled grammar. A rule is a deterministic automaton over bytes; its states may call other
 * rules, so that the whole is a pushdown automaton. A run holds stacks of frames; the one on top is inside a rule, those below wait
 * for it to end.
 * Every state that is kept can reach the end of its rule with at most `height` frames above it, and a run never enters a state whose
 * height would pass GRAMMAR_DEPTH_MAX: so a run is never stuck. Immutable once finished. */
#ifndef DEJA_ENGINE_GRAMMAR_PROGRAM_H
#define DEJA_ENGINE_GRAMMAR_PROGRAM_H
#include "engine/grammar/dfa.h"

enum { GRAMMAR_DEPTH_MAX = 48, GRAMMAR_RULES_MAX = 8192, PROGRAM_NO_HEIGHT = 255 };

struct byte_set {
    uint64_t bits[4];
};
static inline bool byte_set_has(const struct byte_set *s, uint8_t b)
{
    return s->bits[b >> 6] >> (b & 63) & 1;
}
static inline void byte_set_add(struct byte_set *s, int lo, int hi)
{
    for (int b = lo; b <= hi; b++)
        s->bits[b >> 6] |= (uint64_t)1 << (b & 63);
}

struct program_state {
    uint32_t edge, call; /* first of each */
    int n_edges, n_calls;
    int32_t dense; /* row of the table, -1 = look through the edges */
    uint8_t height;
    bool accept;
    bool leaf; /* its rule calls none */
};
struct program_rule {
    uint32_t start; /* 0 = not defined yet */
    bool leaf;
    struct byte_set first; /* bytes it may begin with */
};
struct program {
    struct program_state *state; /* [n_states]; 0 is no state */
    struct dfa_edge *edge;
    struct dfa_call *call;
    struct program_rule *rule;
    uint32_t n_states, n_edges, n_calls, cap_states, cap_edges, cap_calls;
    int n_rules, cap_rules;
    struct callee root;
    uint8_t class_of[256];
    int n_classes;
    uint32_t *dense; /* [rows][n_classes] targets with flags */
    bool failed;     /* over GRAMMAR_RULES_MAX rules */
};

void program_init(struct program *p);
void program_fini(struct program *p);
/* A rule to be defined later: rules may call each other and themselves. */
int program_reserve(struct program *p);
void program_define(struct program *p, int rule, const struct dfa *d);
/* Trims, measures, and refuses what cannot work: ERR_INVALID when nothing can match or a rule begins with itself; ERR_TOO_LARGE when
 * it needs more than GRAMMAR_DEPTH_MAX frames. Bytes outside the alphabet cannot be written: edges lose them. */
MUST enum err program_finish(struct program *p, struct callee root, const struct byte_set *alphabet,
                             struct errmsg *e);

/* Target with its flags, 0 = none. */
static inline uint32_t program_next(const struct program *p, uint32_t state, uint8_t byte)
{
    const struct program_state *s = &p->state[state];
    if (s->dense >= 0) return p->dense[(size_t)s->dense * (size_t)p->n_classes + p->class_of[byte]];
    const struct dfa_edge *edge = &p->edge[s->edge];
    for (int i = 0; i < s->n_edges; i++)
        if (byte <= edge[i].hi) return byte >= edge[i].lo ? edge[i].to : 0;
    return 0;
}

#endif
