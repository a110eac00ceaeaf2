/* jinja_parse_expression.c - expressions by precedence, lowest first: choice, or, and, not, comparisons, + -, ~, * / // %,
 * unary, **, then filters, tests, calls and members. Chains of one level are kept flat, so that a long sum costs no depth. */
#include <string.h>

#include "engine/text/jinja_parser.h"

static struct jinja_node *parse_or(struct jinja_parser *p);

static struct jinja_node *make(struct jinja_parser *p, enum jinja_node_kind kind,
                               struct jinja_node *a)
{
    struct jinja_node *n = jinja_node_new(p, kind);
    n->a = a;
    return n;
}

struct jinja_node *jinja_parse_expression(struct jinja_parser *p)
{
    if (!jinja_enter(p)) return &p->spill;
    struct jinja_node *value = parse_or(p);
    for (int n = 0; !p->err && jinja_take_name(p, "if"); n++) {
        struct jinja_node *choice = make(p, JINJA_N_CHOICE, value);
        choice->b = parse_or(p);
        if (jinja_take_name(p, "else")) choice->c = jinja_parse_expression(p);
        value = choice;
        if (n == JINJA_NESTING_MAX)
            jinja_parser_fail(p, ERR_TOO_LARGE, "too many conditions in one expression");
    }
    p->depth--;
    return value;
}

static struct jinja_node *parse_not(struct jinja_parser *p);

static struct jinja_node *parse_logic(struct jinja_parser *p, const char *word, enum jinja_op op,
                                      struct jinja_node *(*part)(struct jinja_parser *))
{
    struct jinja_node *first = part(p);
    if (!jinja_at_name(p, word)) return first;
    struct jinja_items items = {NULL, 0, 0};
    struct jinja_node *n = jinja_node_new(p, JINJA_N_LOGIC);
    n->op = op;
    jinja_items_add(p, &items, first);
    while (!p->err && jinja_take_name(p, word))
        jinja_items_add(p, &items, part(p));
    jinja_items_keep(n, &items);
    return n;
}

static struct jinja_node *parse_and(struct jinja_parser *p)
{
    return parse_logic(p, "and", JINJA_AND, parse_not);
}
static struct jinja_node *parse_or(struct jinja_parser *p)
{
    return parse_logic(p, "or", JINJA_OR, parse_and);
}

struct level {
    struct {
        const char *text;
        enum jinja_op op;
    } ops[6];
    int n;
    struct jinja_node *(*part)(struct jinja_parser *);
    enum jinja_node_kind kind;
};

static bool take_op(struct jinja_parser *p, const struct level *l, enum jinja_op *op)
{
    for (int i = 0; i < l->n; i++) {
        if (!jinja_take_operator(p, l->ops[i].text)) continue;
        *op = l->ops[i].op;
        return true;
    }
    if (l->kind != JINJA_N_COMPARE) return false;
    if (jinja_take_name(p, "in")) {
        *op = JINJA_IN;
        return true;
    }
    bool not_in =
        jinja_at_name(p, "not") && p->at[1].kind == JINJA_T_NAME && str_eqz(p->at[1].text, "in");
    if (!not_in) return false;
    p->at += 2;
    *op = JINJA_NOT_IN;
    return true;
}

static struct jinja_node *parse_level(struct jinja_parser *p, const struct level *l)
{
    struct jinja_node *first = l->part(p), *chain = NULL;
    struct jinja_items items = {NULL, 0, 0};
    enum jinja_op op;
    while (!p->err && take_op(p, l, &op)) {
        if (!chain) chain = make(p, l->kind, first);
        struct jinja_node *step = jinja_node_new(p, JINJA_N_STEP);
        step->op = op;
        step->a = l->part(p);
        jinja_items_add(p, &items, step);
    }
    if (!chain) return first;
    jinja_items_keep(chain, &items);
    return chain;
}

static struct jinja_node *parse_power(struct jinja_parser *p)
{
    static const struct level l = {{{"**", JINJA_POW}}, 1, jinja_parse_unary, JINJA_N_CHAIN};
    return parse_level(p, &l);
}
static struct jinja_node *parse_product(struct jinja_parser *p)
{
    static const struct level l = {
        {{"*", JINJA_MUL}, {"/", JINJA_DIV}, {"//", JINJA_FLOORDIV}, {"%", JINJA_MOD}},
        4,
        parse_power,
        JINJA_N_CHAIN};
    return parse_level(p, &l);
}
static struct jinja_node *parse_concat(struct jinja_parser *p)
{
    static const struct level l = {{{"~", JINJA_CONCAT}}, 1, parse_product, JINJA_N_CHAIN};
    return parse_level(p, &l);
}
static struct jinja_node *parse_sum(struct jinja_parser *p)
{
    static const struct level l = {
        {{"+", JINJA_ADD}, {"-", JINJA_SUB}}, 2, parse_concat, JINJA_N_CHAIN};
    return parse_level(p, &l);
}
static struct jinja_node *parse_compare(struct jinja_parser *p)
{
    static const struct level l = {{{"==", JINJA_EQ},
                                    {"!=", JINJA_NE},
                                    {"<=", JINJA_LE},
                                    {">=", JINJA_GE},
                                    {"<", JINJA_LT},
                                    {">", JINJA_GT}},
                                   6,
                                   parse_sum,
                                   JINJA_N_COMPARE};
    return parse_level(p, &l);
}

static struct jinja_node *parse_not(struct jinja_parser *p)
{
    if (!jinja_at_name(p, "not")) return parse_compare(p);
    if (!jinja_enter(p)) return &p->spill;
    p->at++;
    struct jinja_node *n = make(p, JINJA_N_UNARY, parse_not(p));
    n->op = JINJA_NOT;
    p->depth--;
    return n;
}

/* "[" has been passed. */
static struct jinja_node *parse_subscript(struct jinja_parser *p, struct jinja_node *a)
{
    struct jinja_node *part[3] = {NULL, NULL, NULL};
    int n_colons = 0;
    while (!p->err && !jinja_at_operator(p, "]")) {
        if (jinja_take_operator(p, ":")) {
            if (++n_colons > 2) jinja_parser_fail(p, ERR_INVALID, "a slice has at most two colons");
        } else if (part[n_colons]) {
            jinja_parser_fail(p, ERR_INVALID, "expected ]");
        } else {
            part[n_colons] = jinja_parse_tuple(p, true);
        }
    }
    jinja_expect_operator(p, "]");
    if (!n_colons) {
        if (!part[0]) jinja_parser_fail(p, ERR_INVALID, "an index is missing");
        struct jinja_node *n = make(p, JINJA_N_INDEX, a);
        n->b = part[0];
        return n;
    }
    struct jinja_node *n = make(p, JINJA_N_SLICE, a);
    n->n_items = 3;
    n->items = arena_alloc(p->arena, sizeof part);
    if (!n->items)
        jinja_parser_fail(p, ERR_TOO_LARGE, "no memory for the template");
    else
        memcpy(n->items, part, sizeof part);
    return n;
}

static struct jinja_node *parse_member(struct jinja_parser *p, struct jinja_node *a)
{
    if (p->at->kind == JINJA_T_INT) { /* x.0 is x[0] */
        struct jinja_node *n = make(p, JINJA_N_INDEX, a);
        n->b = jinja_node_new(p, JINJA_N_INT);
        n->b->i = p->at++->i;
        return n;
    }
    struct jinja_node *n = make(p, JINJA_N_MEMBER, a);
    n->text = jinja_expect_name(p);
    return n;
}

static void parse_arguments(struct jinja_parser *p, struct jinja_node *call)
{
    struct jinja_items items = {NULL, 0, 0};
    bool keywords = false;
    jinja_expect_operator(p, "(");
    while (!p->err && !jinja_at_operator(p, ")")) {
        if (items.n && !jinja_take_operator(p, ",")) {
            jinja_parser_fail(p, ERR_INVALID, "expected , or )");
            break;
        }
        if (jinja_at_operator(p, ")")) break;
        if (jinja_at_operator(p, "*") || jinja_at_operator(p, "**")) {
            jinja_parser_fail(p, ERR_UNSUPPORTED, "* and ** arguments are not supported");
            break;
        }
        bool keyword = p->at->kind == JINJA_T_NAME && p->at[1].kind == JINJA_T_OPERATOR &&
                       str_eqz(p->at[1].text, "=");
        if (keyword) {
            struct jinja_node *k = jinja_node_new(p, JINJA_N_KEYWORD);
            k->text = p->at->text;
            p->at += 2;
            k->a = jinja_parse_expression(p);
            jinja_items_add(p, &items, k);
        } else {
            if (keywords)
                jinja_parser_fail(p, ERR_INVALID,
                                  "a positional argument follows a keyword argument");
            jinja_items_add(p, &items, jinja_parse_expression(p));
        }
        keywords |= keyword;
    }
    jinja_expect_operator(p, ")");
    jinja_items_keep(call, &items);
}

static struct jinja_node *parse_postfix(struct jinja_parser *p, struct jinja_node *n)
{
    for (int depth = 0; !p->err; depth++) {
        if (depth > JINJA_NESTING_MAX)
            jinja_parser_fail(p, ERR_TOO_LARGE, "too many members in one expression");
        if (jinja_take_operator(p, "."))
            n = parse_member(p, n);
        else if (jinja_take_operator(p, "["))
            n = parse_subscript(p, n);
        else if (jinja_at_operator(p, "("))
            parse_arguments(p, n = make(p, JINJA_N_CALL, n));
        else
            break;
    }
    return n;
}

static struct jinja_node *parse_brackets(struct jinja_parser *p)
{
    if (jinja_take_operator(p, "(")) {
        struct jinja_node *n;
        if (jinja_at_operator(p, ")"))
            n = jinja_node_new(p, JINJA_N_TUPLE);
        else
            n = jinja_parse_tuple(p, true);
        jinja_expect_operator(p, ")");
        return n;
    }
    bool dict = jinja_at_operator(p, "{");
    const char *close = dict ? "}" : "]";
    struct jinja_node *n = jinja_node_new(p, dict ? JINJA_N_DICT : JINJA_N_LIST);
    struct jinja_items items = {NULL, 0, 0};
    p->at++;
    while (!p->err && !jinja_at_operator(p, close)) {
        if (items.n) jinja_expect_operator(p, ",");
        if (jinja_at_operator(p, close)) break;
        jinja_items_add(p, &items, jinja_parse_expression(p));
        if (!dict) continue;
        jinja_expect_operator(p, ":");
        jinja_items_add(p, &items, jinja_parse_expression(p));
    }
    jinja_expect_operator(p, close);
    jinja_items_keep(n, &items);
    return n;
}

static struct jinja_node *parse_name(struct jinja_parser *p)
{
    static const struct {
        const char *name;
        enum jinja_node_kind kind;
        int64_t i;
    } words[] = {{"true", JINJA_N_BOOL, 1},  {"True", JINJA_N_BOOL, 1}, {"false", JINJA_N_BOOL, 0},
                 {"False", JINJA_N_BOOL, 0}, {"none", JINJA_N_NONE, 0}, {"None", JINJA_N_NONE, 0}};
    struct str name = p->at++->text;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!str_eqz(name, words[i].name)) continue;
        struct jinja_node *n = jinja_node_new(p, words[i].kind);
        n->i = words[i].i;
        return n;
    }
    struct jinja_node *n = jinja_node_new(p, JINJA_N_NAME);
    n->text = name;
    return n;
}

/* Neighbouring string literals are one. */
static struct jinja_node *parse_strings(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_STRING);
    n->text = p->at++->text;
    while (p->at->kind == JINJA_T_STRING && !p->err) {
        char *both = arena_alloc(p->arena, n->text.n + p->at->text.n + 1);
        if (!both) {
            jinja_parser_fail(p, ERR_TOO_LARGE, "no memory for the template");
            return n;
        }
        memcpy(both, n->text.p, n->text.n);
        memcpy(both + n->text.n, p->at->text.p, p->at->text.n);
        n->text = (struct str){both, n->text.n + p->at->text.n};
        p->at++;
    }
    return n;
}

static struct jinja_node *parse_primary(struct jinja_parser *p)
{
    struct jinja_node *n;
    switch (p->at->kind) {
    case JINJA_T_NAME:
        return parse_name(p);
    case JINJA_T_STRING:
        return parse_strings(p);
    case JINJA_T_INT:
        n = jinja_node_new(p, JINJA_N_INT);
        n->i = p->at++->i;
        return n;
    case JINJA_T_FLOAT:
        n = jinja_node_new(p, JINJA_N_FLOAT);
        n->f = p->at++->f;
        return n;
    default:
        break;
    }
    if (jinja_at_operator(p, "(") || jinja_at_operator(p, "[") || jinja_at_operator(p, "{"))
        return parse_brackets(p);
    jinja_parser_fail(p, ERR_INVALID, "expected an expression");
    return &p->spill;
}

struct jinja_node *jinja_parse_filters(struct jinja_parser *p, struct jinja_node *first)
{
    struct jinja_node *n = first;
    int depth = 0;
    do {
        struct jinja_node *f = make(p, JINJA_N_FILTER, n);
        f->text = jinja_expect_name(p);
        if (jinja_at_operator(p, "(")) parse_arguments(p, f);
        n = f;
        if (++depth > JINJA_NESTING_MAX)
            jinja_parser_fail(p, ERR_TOO_LARGE, "too many filters in one expression");
    } while (!p->err && jinja_take_operator(p, "|"));
    return n;
}

/* "is" has been passed. The argument of a test may stand without brackets: x is divisibleby 3. */
static struct jinja_node *parse_test(struct jinja_parser *p, struct jinja_node *a)
{
    struct jinja_node *n = make(p, JINJA_N_TEST, a);
    n->i = jinja_take_name(p, "not");
    n->text = jinja_expect_name(p);
    enum jinja_token_kind k = p->at->kind;
    bool word = k == JINJA_T_NAME && !jinja_at_name(p, "else") && !jinja_at_name(p, "or") &&
                !jinja_at_name(p, "and") && !jinja_at_name(p, "is") && !jinja_at_name(p, "if") &&
                !jinja_at_name(p, "in") && !jinja_at_name(p, "not");
    if (jinja_at_operator(p, "(")) {
        parse_arguments(p, n);
    } else if (word || k == JINJA_T_STRING || k == JINJA_T_INT || k == JINJA_T_FLOAT ||
               jinja_at_operator(p, "[") || jinja_at_operator(p, "{")) {
        struct jinja_items one = {NULL, 0, 0};
        jinja_items_add(p, &one, parse_postfix(p, parse_primary(p)));
        jinja_items_keep(n, &one);
    }
    return n;
}

static struct jinja_node *parse_signed(struct jinja_parser *p)
{
    bool minus = jinja_at_operator(p, "-");
    if (!minus && !jinja_at_operator(p, "+")) return parse_postfix(p, parse_primary(p));
    if (!jinja_enter(p)) return &p->spill;
    p->at++;
    struct jinja_node *n = make(p, JINJA_N_UNARY, parse_signed(p));
    n->op = minus ? JINJA_SUB : JINJA_ADD;
    p->depth--;
    return n;
}

struct jinja_node *jinja_parse_unary(struct jinja_parser *p)
{
    struct jinja_node *n = parse_signed(p);
    for (int depth = 0; !p->err; depth++) {
        if (depth > JINJA_NESTING_MAX)
            jinja_parser_fail(p, ERR_TOO_LARGE, "too many filters in one expression");
        if (jinja_take_operator(p, "|"))
            n = jinja_parse_filters(p, n);
        else if (jinja_take_name(p, "is"))
            n = parse_test(p, n);
        else if (jinja_at_operator(p, "("))
            parse_arguments(p, n = make(p, JINJA_N_CALL, n));
        else
            break;
    }
    return n;
}

struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, bool with_choice)
{
    struct jinja_node *first = with_choice ? jinja_parse_expression(p) : parse_or(p);
    if (!jinja_at_operator(p, ",")) return first;
    struct jinja_items items = {NULL, 0, 0};
    struct jinja_node *n = jinja_node_new(p, JINJA_N_TUPLE);
    jinja_items_add(p, &items, first);
    while (!p->err && jinja_take_operator(p, ",")) {
        bool end = p->at->kind == JINJA_T_PRINT_END || p->at->kind == JINJA_T_BLOCK_END ||
                   jinja_at_operator(p, ")") || jinja_at_operator(p, "]") || jinja_at_name(p, "in");
        if (end) break;
        jinja_items_add(p, &items, with_choice ? jinja_parse_expression(p) : parse_or(p));
    }
    jinja_items_keep(n, &items);
    return n;
}

struct jinja_node *jinja_parse_target(struct jinja_parser *p)
{
    struct jinja_items items = {NULL, 0, 0};
    bool round = jinja_take_operator(p, "("), tuple = false;
    do {
        if (items.n && p->at->kind != JINJA_T_NAME) break; /* a comma at the end */
        struct jinja_node *n = jinja_node_new(p, JINJA_N_NAME);
        n->text = jinja_expect_name(p);
        if (jinja_take_operator(p, ".")) {
            struct jinja_node *m = make(p, JINJA_N_MEMBER, n);
            m->text = jinja_expect_name(p);
            n = m;
        }
        jinja_items_add(p, &items, n);
    } while (!p->err && jinja_take_operator(p, ",") && (tuple = true));
    if (round) jinja_expect_operator(p, ")");
    if (!items.n || p->err) return &p->spill;
    if (!tuple) return items.p[0];
    struct jinja_node *n = jinja_node_new(p, JINJA_N_TUPLE);
    jinja_items_keep(n, &items);
    return n;
}
