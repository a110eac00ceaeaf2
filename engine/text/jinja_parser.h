/* jinja_parser.h - what the two halves of the parser (statements, expressions) share. Private to them. After the first error
 * every function returns at once and yields nodes that are never used. */
#ifndef DEJA_ENGINE_TEXT_JINJA_PARSER_H
#define DEJA_ENGINE_TEXT_JINJA_PARSER_H
#include "engine/text/jinja_lex.h"
#include "engine/text/jinja_tree.h"

enum { JINJA_NESTING_MAX = 150 };

struct jinja_parser {
    struct arena *arena;
    struct jinja_token *at; /* the last one is JINJA_T_END and never passed */
    int depth, loops;       /* nesting now; loops around here */
    enum err err;
    struct errmsg *e;
    struct jinja_node spill; /* stands in for a node there was no memory for */
};
/* Nodes collected before their number is known. */
struct jinja_items {
    struct jinja_node **p;
    int n, cap;
};

void jinja_parser_fail(struct jinja_parser *p, enum err err,
                       const char *what); /* "line N: what, near 'token'" */
struct jinja_node *jinja_node_new(struct jinja_parser *p, enum jinja_node_kind kind);
void jinja_items_add(struct jinja_parser *p, struct jinja_items *l, struct jinja_node *n);
void jinja_items_keep(struct jinja_node *n, struct jinja_items *l);
bool jinja_at_operator(const struct jinja_parser *p, const char *op);
bool jinja_at_name(const struct jinja_parser *p, const char *name);
bool jinja_take_operator(struct jinja_parser *p, const char *op); /* passes it when it is there */
bool jinja_take_name(struct jinja_parser *p, const char *name);
void jinja_expect_operator(struct jinja_parser *p, const char *op);
struct str jinja_expect_name(struct jinja_parser *p);

struct jinja_node *jinja_parse_expression(struct jinja_parser *p); /* with "a if b else c" */
struct jinja_node *jinja_parse_tuple(struct jinja_parser *p,
                                     bool with_choice); /* one expression, or several with commas */
struct jinja_node *jinja_parse_target(struct jinja_parser *p); /* names, or one name.member */
struct jinja_node *
jinja_parse_filters(struct jinja_parser *p,
                    struct jinja_node *first);                /* name(args) | name.. at a name */
struct jinja_node *jinja_parse_unary(struct jinja_parser *p); /* a primary with its postfixes */
bool jinja_enter(struct jinja_parser
                     *p); /* one level deeper; false at the limit. Pair with p->depth-- when true */

#endif
