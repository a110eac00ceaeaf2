/* regex_tree.h - private to engine/grammar/regex*.c: a parsed expression. Nodes lie in one array; the parts of a sequence or an
 * alternation form a list, last part first, because automata are built from their end. */
#ifndef DEJA_ENGINE_GRAMMAR_REGEX_TREE_H
#define DEJA_ENGINE_GRAMMAR_REGEX_TREE_H
#include "engine/grammar/charset.h"
#include "engine/grammar/dfa.h"

enum regex_kind {
    REGEX_CHAR,   /* one code point */
    REGEX_SET,    /* one of a set */
    REGEX_CAT,    /* parts one after the other; none = the empty text */
    REGEX_ALT,    /* one of the parts */
    REGEX_REPEAT, /* the part, min to max times */
    REGEX_BEGIN,
    REGEX_END
};
enum {
    REGEX_NODES_MAX = 20000,
    REGEX_SETS_MAX = 2000,
    REGEX_REPEAT_MAX = 10000,
    REGEX_NO_MAX = -1
};

struct regex_node {
    enum regex_kind kind;
    uint32_t code_point;
    int set;      /* index in sets */
    int min, max; /* max: REGEX_NO_MAX */
    int last;     /* last part, -1 = none */
    int previous; /* the part before this one in its list, -1 = none */
};
struct regex_tree {
    struct regex_node *node;
    int n, cap, root;
    struct charset *set;
    int n_sets, cap_sets;
};

/* regex_parse.c */
MUST enum err regex_parse(struct regex_tree *out, struct str pattern, struct errmsg *e);
void regex_tree_fini(struct regex_tree *t);

#endif
