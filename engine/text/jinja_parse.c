/* jinja_parse.c - statements, and the helpers both halves of the parser share. */
#include <string.h>

#include "base/err.h"
#include "engine/text/jinja_parser.h"

void jinja_parser_fail(struct jinja_parser *p, enum err err, const char *what)
{
    if (p->err) return;
    struct str t = p->at->text;
    if (t.n)
        p->err = err_set(p->e, err, "line %d: %s, near '%.*s'", p->at->line, what,
                         (int)(t.n < 40 ? t.n : 40), t.p);
    else
        p->err = err_set(p->e, err, "line %d: %s", p->at->line, what);
}

struct jinja_node *jinja_node_new(struct jinja_parser *p, enum jinja_node_kind kind)
{
    struct jinja_node *n = p->err ? NULL : arena_alloc(p->arena, sizeof *n);
    if (!n) {
        jinja_parser_fail(p, ERR_TOO_LARGE, "no memory for the template");
        p->spill = (struct jinja_node){.kind = JINJA_N_NONE};
        return &p->spill;
    }
    n->kind = kind;
    n->line = p->at->line;
    return n;
}

void jinja_items_add(struct jinja_parser *p, struct jinja_items *l, struct jinja_node *n)
{
    if (p->err) return;
    if (l->n == l->cap) {
        int cap = l->cap ? l->cap * 2 : 4;
        struct jinja_node **wider = arena_alloc(p->arena, (size_t)cap * sizeof *wider);
        if (!wider) {
            jinja_parser_fail(p, ERR_TOO_LARGE, "no memory for the template");
            return;
        }
        if (l->n) memcpy(wider, l->p, (size_t)l->n * sizeof *wider);
        l->p = wider;
        l->cap = cap;
    }
    l->p[l->n++] = n;
}

void jinja_items_keep(struct jinja_node *n, struct jinja_items *l)
{
    n->items = l->p;
    n->n_items = l->n;
}

bool jinja_at_operator(const struct jinja_parser *p, const char *op)
{
    return p->at->kind == JINJA_T_OPERATOR && str_eqz(p->at->text, op);
}
bool jinja_at_name(const struct jinja_parser *p, const char *name)
{
    return p->at->kind == JINJA_T_NAME && str_eqz(p->at->text, name);
}
bool jinja_take_operator(struct jinja_parser *p, const char *op)
{
    if (!jinja_at_operator(p, op)) return false;
    p->at++;
    return true;
}
bool jinja_take_name(struct jinja_parser *p, const char *name)
{
    if (!jinja_at_name(p, name)) return false;
    p->at++;
    return true;
}

void jinja_expect_operator(struct jinja_parser *p, const char *op)
{
    char what[32] = "expected ";
    if (p->err || jinja_take_operator(p, op)) return;
    strncat(what, op, 8);
    jinja_parser_fail(p, ERR_INVALID, what);
}

struct str jinja_expect_name(struct jinja_parser *p)
{
    if (p->at->kind == JINJA_T_NAME) return p->at++->text;
    jinja_parser_fail(p, ERR_INVALID, "expected a name");
    return (struct str){"", 0};
}

bool jinja_enter(struct jinja_parser *p)
{
    if (p->err) return false;
    if (p->depth == JINJA_NESTING_MAX) {
        jinja_parser_fail(p, ERR_TOO_LARGE, "nested too deeply");
        return false;
    }
    p->depth++;
    return true;
}

static void expect_block_end(struct jinja_parser *p)
{
    if (p->at->kind == JINJA_T_BLOCK_END)
        p->at++;
    else
        jinja_parser_fail(p, ERR_INVALID, "expected %}");
}

static struct jinja_node *parse_statement(struct jinja_parser *p);

/* Statements up to a tag that starts with one of the words (NULL-terminated), which is left current: at the word. Without
 * words: to the end of the template. */
static struct jinja_node *parse_body(struct jinja_parser *p, const char *const *until)
{
    struct jinja_items items = {NULL, 0, 0};
    struct jinja_node *block = jinja_node_new(p, JINJA_N_BLOCK);
    if (!jinja_enter(p)) return &p->spill;
    while (!p->err) {
        if (p->at->kind == JINJA_T_TEXT) {
            struct jinja_node *n = jinja_node_new(p, JINJA_N_TEXT);
            n->text = p->at++->text;
            jinja_items_add(p, &items, n);
        } else if (p->at->kind == JINJA_T_PRINT_BEGIN) {
            p->at++;
            struct jinja_node *n = jinja_node_new(p, JINJA_N_PRINT);
            n->a = jinja_parse_tuple(p, true);
            if (p->at->kind == JINJA_T_PRINT_END)
                p->at++;
            else
                jinja_parser_fail(p, ERR_INVALID, "expected }}");
            jinja_items_add(p, &items, n);
        } else if (p->at->kind == JINJA_T_BLOCK_BEGIN) {
            p->at++;
            bool end = false;
            for (int i = 0; until && until[i]; i++)
                end |= jinja_at_name(p, until[i]);
            if (end) break;
            jinja_items_add(p, &items, parse_statement(p));
        } else {
            if (until) jinja_parser_fail(p, ERR_INVALID, "a block is not closed");
            break;
        }
    }
    jinja_items_keep(block, &items);
    p->depth--;
    return block;
}

/* "WORD ... %}" has been read; the body up to endWORD, which is passed with its "%}". */
static struct jinja_node *parse_to_end(struct jinja_parser *p, const char *end)
{
    const char *const until[] = {end, NULL};
    expect_block_end(p);
    struct jinja_node *body = parse_body(p, until);
    if (!p->err) p->at++;
    if (p->at->kind == JINJA_T_NAME && strcmp(end, "endmacro") == 0)
        p->at++; /* {% endmacro name %} */
    expect_block_end(p);
    return body;
}

static struct jinja_node *parse_if(struct jinja_parser *p)
{
    static const char *const until[] = {"elif", "else", "endif", NULL};
    struct jinja_node *n = jinja_node_new(p, JINJA_N_IF);
    struct jinja_items items = {NULL, 0, 0};
    do {
        jinja_items_add(p, &items, jinja_parse_tuple(p, true));
        expect_block_end(p);
        jinja_items_add(p, &items, parse_body(p, until));
    } while (!p->err && jinja_take_name(p, "elif"));
    if (!p->err && jinja_take_name(p, "else")) {
        n->c = parse_to_end(p, "endif");
    } else if (!p->err) {
        p->at++;
        expect_block_end(p);
    }
    jinja_items_keep(n, &items);
    return n;
}

static struct jinja_node *parse_for(struct jinja_parser *p)
{
    static const char *const until[] = {"else", "endfor", NULL};
    struct jinja_node *n = jinja_node_new(p, JINJA_N_FOR);
    n->a = jinja_parse_target(p);
    if (!jinja_take_name(p, "in")) jinja_parser_fail(p, ERR_INVALID, "expected in");
    n->b = jinja_parse_tuple(p, false);
    if (jinja_take_name(p, "if")) {
        struct jinja_items one = {NULL, 0, 0};
        jinja_items_add(p, &one, jinja_parse_expression(p));
        jinja_items_keep(n, &one);
    }
    if (jinja_at_name(p, "recursive"))
        jinja_parser_fail(p, ERR_UNSUPPORTED, "recursive loops are not supported");
    expect_block_end(p);
    p->loops++;
    n->c = parse_body(p, until);
    p->loops--;
    if (!p->err && jinja_take_name(p, "else")) {
        n->d = parse_to_end(p, "endfor");
    } else if (!p->err) {
        p->at++;
        expect_block_end(p);
    }
    return n;
}

static struct jinja_node *parse_set(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_SET);
    n->a = jinja_parse_target(p);
    if (jinja_take_operator(p, "=")) {
        n->b = jinja_parse_tuple(p, true);
        expect_block_end(p);
        return n;
    }
    n->kind = JINJA_N_SET_BLOCK;
    if (jinja_take_operator(p, "|")) n->c = jinja_parse_filters(p, NULL);
    n->b = parse_to_end(p, "endset");
    return n;
}

static void parse_parameters(struct jinja_parser *p, struct jinja_node *macro)
{
    struct jinja_items items = {NULL, 0, 0};
    jinja_expect_operator(p, "(");
    while (!p->err && !jinja_at_operator(p, ")")) {
        if (items.n) jinja_expect_operator(p, ",");
        if (jinja_at_operator(p, ")")) break;
        struct jinja_node *k = jinja_node_new(p, JINJA_N_KEYWORD);
        k->text = jinja_expect_name(p);
        if (jinja_take_operator(p, "=")) k->a = jinja_parse_expression(p);
        jinja_items_add(p, &items, k);
    }
    jinja_expect_operator(p, ")");
    jinja_items_keep(macro, &items);
}

static struct jinja_node *parse_macro(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_MACRO);
    int loops = p->loops;
    p->loops = 0;
    n->text = jinja_expect_name(p);
    parse_parameters(p, n);
    n->b = parse_to_end(p, "endmacro");
    p->loops = loops;
    return n;
}

static struct jinja_node *parse_call_block(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_CALL_BLOCK);
    n->b = jinja_node_new(p, JINJA_N_MACRO);
    n->b->text = STR("caller");
    if (jinja_at_operator(p, "(")) parse_parameters(p, n->b);
    n->a = jinja_parse_expression(p);
    if (!p->err && n->a->kind != JINJA_N_CALL)
        jinja_parser_fail(p, ERR_INVALID, "{% call %} needs a call");
    int loops = p->loops;
    p->loops = 0;
    n->b->b = parse_to_end(p, "endcall");
    p->loops = loops;
    return n;
}

static struct jinja_node *parse_with(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_WITH);
    struct jinja_items items = {NULL, 0, 0};
    while (!p->err && p->at->kind != JINJA_T_BLOCK_END) {
        if (items.n) jinja_expect_operator(p, ",");
        struct jinja_node *name = jinja_node_new(p, JINJA_N_NAME);
        name->text = jinja_expect_name(p);
        jinja_items_add(p, &items, name);
        jinja_expect_operator(p, "=");
        jinja_items_add(p, &items, jinja_parse_expression(p));
    }
    jinja_items_keep(n, &items);
    n->b = parse_to_end(p, "endwith");
    return n;
}

static struct jinja_node *parse_filter_block(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_FILTER_BLOCK);
    n->a = jinja_parse_filters(p, NULL);
    n->b = parse_to_end(p, "endfilter");
    return n;
}

static struct jinja_node *parse_jump(struct jinja_parser *p, enum jinja_node_kind kind)
{
    if (!p->loops) jinja_parser_fail(p, ERR_INVALID, "break or continue outside of a loop");
    struct jinja_node *n = jinja_node_new(p, kind);
    expect_block_end(p);
    return n;
}

/* At the word after "{%". */
static struct jinja_node *parse_statement(struct jinja_parser *p)
{
    if (jinja_take_name(p, "if")) return parse_if(p);
    if (jinja_take_name(p, "for")) return parse_for(p);
    if (jinja_take_name(p, "set")) return parse_set(p);
    if (jinja_take_name(p, "macro")) return parse_macro(p);
    if (jinja_take_name(p, "call")) return parse_call_block(p);
    if (jinja_take_name(p, "with")) return parse_with(p);
    if (jinja_take_name(p, "filter")) return parse_filter_block(p);
    if (jinja_take_name(p, "break")) return parse_jump(p, JINJA_N_BREAK);
    if (jinja_take_name(p, "continue")) return parse_jump(p, JINJA_N_CONTINUE);
    if (jinja_take_name(p, "generation"))
        return parse_to_end(p, "endgeneration"); /* marks text for training only */
    bool known = jinja_at_name(p, "include") || jinja_at_name(p, "import") ||
                 jinja_at_name(p, "from") || jinja_at_name(p, "extends") ||
                 jinja_at_name(p, "block") || jinja_at_name(p, "do") ||
                 jinja_at_name(p, "autoescape") || jinja_at_name(p, "trans");
    jinja_parser_fail(p, known ? ERR_UNSUPPORTED : ERR_INVALID,
                      known ? "this tag is not supported" : "unknown tag");
    return &p->spill;
}

enum err jinja_parse(struct arena *arena, struct str source, struct jinja_node **out,
                     struct errmsg *e)
{
    struct jinja_tokens tokens;
    *out = NULL;
    enum err err = jinja_lex(arena, source, &tokens, e);
    if (err) return err;
    struct jinja_parser p = {.arena = arena, .at = tokens.at, .e = e};
    struct jinja_node *root = parse_body(&p, NULL);
    mem_free(tokens.at);
    if (!p.err) *out = root;
    return p.err;
}
