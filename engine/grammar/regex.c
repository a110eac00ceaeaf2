/* regex.c - from a parsed expression to an automaton. */
#include "engine/grammar/regex.h"

#include "base/mem.h"
#include "engine/grammar/regex_tree.h"

struct build {
    const struct regex_tree *tree;
    struct nfa *a;
    struct grammar_budget *budget;
};

static int build(struct build *b, int node, int next);

static int build_char(struct build *b, uint32_t c, int next)
{
    struct charset one = {.n = 1, .range[0] = {c, c}};
    return nfa_char(b->a, &one, 0, next);
}

static int build_repeat(struct build *b, const struct regex_node *x, int next)
{
    int first = next;
    if (x->max == REGEX_NO_MAX) {
        first = nfa_head(b->a);
        nfa_close(b->a, first, build(b, x->last, first), next);
    }
    /* (part (part (part)?)?)? */
    for (int i = x->min; i < x->max && !b->a->failed; i++)
        first = nfa_split(b->a, build(b, x->last, first), next);
    for (int i = 0; i < x->min && !b->a->failed; i++)
        first = build(b, x->last, first);
    return first;
}

/* Recursion: as deep as groups are nested, which the parser bounds. */
static int build(struct build *b, int node, int next)
{
    const struct regex_node *x = &b->tree->node[node];
    if (--b->budget->work <= 0) b->a->failed = true;
    if (b->a->failed) return next;
    int ways = -1;
    switch (x->kind) {
    case REGEX_CHAR:
        return build_char(b, x->code_point, next);
    case REGEX_SET:
        return nfa_char(b->a, &b->tree->set[x->set], 0, next);
    case REGEX_CAT:
        for (int i = x->last; i >= 0; i = b->tree->node[i].previous)
            next = build(b, i, next);
        return next;
    case REGEX_ALT:
        for (int i = x->last; i >= 0; i = b->tree->node[i].previous) {
            int way = build(b, i, next);
            ways = ways < 0 ? way : nfa_split(b->a, way, ways);
        }
        return ways;
    case REGEX_REPEAT:
        return build_repeat(b, x, next);
    case REGEX_BEGIN:
        return nfa_begin(b->a, next);
    case REGEX_END:
        return nfa_end(b->a, next);
    }
    return next;
}

/* Any number of any characters. */
static int build_anything(struct nfa *a, int next)
{
    struct charset all = {0};
    charset_add(&all, 0, CHARSET_LAST);
    charset_tidy(&all);
    int head = nfa_head(a);
    nfa_close(a, head, nfa_char(a, &all, 0, head), next);
    return head;
}

enum err regex_to_dfa(struct dfa *out, struct str pattern, enum regex_use use, bool json,
                      struct grammar_budget *budget, struct errmsg *e)
{
    struct regex_tree tree;
    enum err code = regex_parse(&tree, pattern, e);
    if (code) return code;
    struct nfa a;
    nfa_init(&a);
    a.json = json;
    struct build b = {&tree, &a, budget};
    int next = nfa_accept(&a);
    if (use == REGEX_FIND) next = build_anything(&a, next);
    next = build(&b, tree.root, next);
    if (use == REGEX_FIND) next = build_anything(&a, next);
    code = dfa_from_nfa(out, &a, next, budget, e);
    nfa_fini(&a);
    regex_tree_fini(&tree);
    return code;
}

/* The one part that is repeated, -1 when there is more to it. */
static int repeated_part(const struct regex_tree *t, enum regex_use use)
{
    int sequence = t->node[t->root].last, part = -1;
    bool begin = use == REGEX_WHOLE, end = begin, only = t->node[sequence].previous < 0;
    for (int i = t->node[sequence].last; i >= 0 && only; i = t->node[i].previous) {
        enum regex_kind kind = t->node[i].kind;
        if (kind == REGEX_END && part < 0)
            end = true;
        else if (kind == REGEX_BEGIN && t->node[i].previous < 0)
            begin = true;
        else if (kind == REGEX_REPEAT && part < 0)
            part = i;
        else
            only = false;
    }
    return only && begin && end ? part : -1;
}

bool regex_is_repeat(struct str pattern, enum regex_use use, struct charset *set, uint32_t *min,
                     uint32_t *max)
{
    struct regex_tree t;
    struct errmsg e;
    if (regex_parse(&t, pattern, &e)) return false;
    int part = repeated_part(&t, use);
    const struct regex_node *x = part >= 0 ? &t.node[part] : NULL,
                            *what = x ? &t.node[x->last] : NULL;
    bool is = what && what->kind == REGEX_SET;
    if (is) {
        *set = t.set[what->set];
        *min = (uint32_t)x->min;
        *max = x->max == REGEX_NO_MAX ? GRAMMAR_NO_LIMIT : (uint32_t)x->max;
    }
    regex_tree_fini(&t);
    return is && set->n;
}
