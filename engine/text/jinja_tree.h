/* jinja_tree.h - the parsed template: one node type, whose parts depend on its kind. Private to the room. Everything lives in
 * the template's arena and is never changed after parsing; any thread may read. */
#ifndef DEJA_ENGINE_TEXT_JINJA_TREE_H
#define DEJA_ENGINE_TEXT_JINJA_TREE_H
#include "base/mem.h"
#include "base/str.h"

enum jinja_node_kind {
    /* expressions */
    JINJA_N_NONE,
    JINJA_N_BOOL,    /* i */
    JINJA_N_INT,     /* i */
    JINJA_N_FLOAT,   /* f */
    JINJA_N_STRING,  /* text */
    JINJA_N_NAME,    /* text */
    JINJA_N_LIST,    /* items */
    JINJA_N_TUPLE,   /* items */
    JINJA_N_DICT,    /* items: key, value, key, value.. */
    JINJA_N_UNARY,   /* op, a */
    JINJA_N_CHAIN,   /* a, then items of STEP: left to right arithmetic or ~ */
    JINJA_N_COMPARE, /* a, then items of STEP: a < b <= c.. */
    JINJA_N_STEP,    /* op, a */
    JINJA_N_LOGIC,   /* op (AND, OR), items */
    JINJA_N_CHOICE,  /* a if b else c (c may be NULL) */
    JINJA_N_MEMBER,  /* a . text */
    JINJA_N_INDEX,   /* a [ b ] */
    JINJA_N_SLICE,   /* a [ items[0] : items[1] : items[2] ], each may be NULL */
    JINJA_N_CALL,    /* a ( items ), items may be KEYWORD */
    JINJA_N_KEYWORD, /* text = a */
    JINJA_N_FILTER,  /* a (NULL: the block's text) | text ( items ) */
    JINJA_N_TEST,    /* a is text ( items ), i = negated */
    /* statements */
    JINJA_N_TEXT,  /* text */
    JINJA_N_PRINT, /* a */
    JINJA_N_BLOCK, /* items */
    JINJA_N_IF,    /* items: condition, body, condition, body..; c = else body or NULL */
    JINJA_N_FOR, /* a = target, b = sequence, c = body, d = else or NULL, items[0] = condition where n_items */
    JINJA_N_SET,        /* a = target, b = value */
    JINJA_N_SET_BLOCK,  /* a = target, b = body, c = filters or NULL */
    JINJA_N_MACRO,      /* text = name, items: KEYWORD parameters (a = default or NULL), b = body */
    JINJA_N_CALL_BLOCK, /* a = call, b = MACRO that caller() runs */
    JINJA_N_FILTER_BLOCK, /* a = filters, b = body */
    JINJA_N_WITH,         /* items: target, value, target, value..; b = body */
    JINJA_N_BREAK,
    JINJA_N_CONTINUE
};
enum jinja_op {
    JINJA_ADD,
    JINJA_SUB,
    JINJA_MUL,
    JINJA_DIV,
    JINJA_FLOORDIV,
    JINJA_MOD,
    JINJA_POW,
    JINJA_CONCAT,
    JINJA_NOT,
    JINJA_AND,
    JINJA_OR,
    JINJA_EQ,
    JINJA_NE,
    JINJA_LT,
    JINJA_LE,
    JINJA_GT,
    JINJA_GE,
    JINJA_IN,
    JINJA_NOT_IN
};

struct jinja_node {
    enum jinja_node_kind kind;
    enum jinja_op op;
    int line, n_items;
    struct jinja_node *a, *b, *c, *d;
    struct jinja_node **items;
    struct str text;
    int64_t i;
    double f;
};

/* The template's statements as one BLOCK. ERR_INVALID, ERR_UNSUPPORTED (include, import..) or ERR_TOO_LARGE with the line;
 * nesting deeper than 150 is refused. */
MUST enum err jinja_parse(struct arena *arena, struct str source, struct jinja_node **out,
                          struct errmsg *e);

#endif
