/* nfa.h - private to engine/grammar: a nondeterministic automaton over bytes, built from its end to its beginning: every call takes the
 * node that comes after and returns the node it made, so a concatenation is read right to left. Nodes may also call another rule of
 * the program (program.h). Pure, allocation aside. Bounded: past NFA_NODES_MAX the automaton is marked failed and stays sound to
 * extend; look once at the end.
 * Source: Thompson 1968 (doi:10.1145/363347.363387); UTF-8 ranges as in Unicode 15, table 3-7. */
#ifndef DEJA_ENGINE_GRAMMAR_NFA_H
#define DEJA_ENGINE_GRAMMAR_NFA_H
#include "base/str.h"
#include "engine/grammar/charset.h"

enum { NFA_NODES_MAX = 400000 };
#define GRAMMAR_NO_LIMIT UINT32_MAX

/* Counting: a frame of the run (see program.h) has `need` and `left`. An edge with COUNT is open while left > 0 and takes one off both;
 * one with ENOUGH is open once need is 0. */
enum { EDGE_COUNT = 1u << 31, EDGE_ENOUGH = 1u << 30, EDGE_STATE = (1u << 30) - 1 };

enum nfa_kind {
    NFA_BYTE,
    NFA_CALL,
    NFA_SPLIT, /* a or b, nothing read */
    NFA_BEGIN, /* nothing read: open at the very beginning */
    NFA_END,   /* nothing read: open at the very end */
    NFA_ACCEPT
};
struct nfa_node {
    uint8_t kind, lo, hi;
    uint32_t flags; /* EDGE_COUNT, EDGE_ENOUGH */
    int a, b;       /* next; other way of a split, or index of the call */
};
/* A rule to be run here, with the limits its counter starts from. */
struct callee {
    int rule;
    uint32_t need, left;
};
struct nfa {
    struct nfa_node *node;
    int n, cap;
    struct callee *call;
    int n_calls, cap_calls;
    bool
        json; /* characters are written as inside a JSON string: quotes, backslashes and controls escaped */
    bool failed;
};

void nfa_init(struct nfa *a);
void nfa_fini(struct nfa *a);

int nfa_accept(struct nfa *a);
int nfa_begin(struct nfa *a, int next);
int nfa_end(struct nfa *a, int next);
int nfa_bytes(struct nfa *a, uint8_t lo, uint8_t hi, uint32_t flags, int next);
int nfa_split(struct nfa *a, int one, int other);
/* A split whose ways come later: a loop's head. */
int nfa_head(struct nfa *a);
void nfa_close(struct nfa *a, int head, int one, int other);
int nfa_call(struct nfa *a, struct callee c, uint32_t flags, int next);
/* These very bytes. */
int nfa_text(struct nfa *a, struct str bytes, int next);
/* One character of the set as UTF-8, escaped where a->json asks for it; flags go to its first byte. An empty set matches nothing. */
int nfa_char(struct nfa *a, const struct charset *set, uint32_t flags, int next);
/* A node that leads nowhere. */
int nfa_never(struct nfa *a);

#endif
