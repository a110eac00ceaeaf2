/* json_rules.h - private to engine/grammar: the rules every JSON grammar shares. They are the first of each program and the same in
 * each, so that masks of their states can be shared by all.
 * White space: where JSON allows it after { [ , : and before } ], but no more than one space, or one line break and INDENT_MAX blanks:
 * a model may lay out its answer but cannot fill it with blanks. Numbers: at most 15 digits before the point, 16 behind, two of
 * exponent; integers at most 18 digits (they fit 64 bits).
 * Source: RFC 8259. */
#ifndef DEJA_ENGINE_GRAMMAR_JSON_RULES_H
#define DEJA_ENGINE_GRAMMAR_JSON_RULES_H
#include "engine/grammar/program.h"

enum json_rule {
    RULE_BLANK,  /* not empty; call it with json_blank */
    RULE_STRING, /* with its quotes; need/left count characters */
    RULE_KEY,    /* the same without \u escapes of what needs none: each text has one form */
    RULE_NUMBER,
    RULE_INTEGER,
    RULE_VALUE,
    RULE_OBJECT, /* any; need/left count members */
    RULE_ARRAY,  /* any; need/left count items */
    N_JSON_RULES
};
enum { INDENT_MAX = 40 };

/* Defines them all in a new program. */
void json_rules_define(struct program *p);
/* A rule without limits. */
struct callee json_callee(enum json_rule rule);

/* RULE_KEY's automaton. */
void json_key_dfa(struct dfa *out);
/* ":" and a value. */
int json_colon_value(struct nfa *a, struct callee value, int next);

/* Optional white space before next. */
int json_blank(struct nfa *a, int next);
/* The string's characters, quoted and escaped. */
int json_text(struct nfa *a, struct str text, int next);
/* "[" items "]" where item i is items[i] and every later one rest (rest.rule -1: there are none). Counted: call it with need = min.
 * Up to min items, or one more than n_items, the end is not even in the automaton, so that heights (program.h) are true. */
int json_array_of(struct nfa *a, const struct callee *items, int n_items, struct callee rest,
                  uint32_t min);
/* The rest of a map after its declared members: ("," key ":" value)* "}". Counted. key is a rule with quotes. */
int json_more_members(struct nfa *a, struct callee key, struct callee value, int next);

#endif
