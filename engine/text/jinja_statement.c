/* jinja_statement.c - runs statements: output, scopes, loops, macros. */
#include <string.h>

#include "engine/text/chat_template.h"
#include "engine/text/jinja_eval.h"

/* --- output */

static void emit_span(struct jinja_run *r, struct jinja_span span)
{
    if (r->err || !span.n) return;
    if (r->capture) {
        jinja_build(r, r->capture, span);
        return;
    }
    buf_add(&r->text, span.p, span.n);
    if (buf_failed(&r->text)) {
        jinja_fail(r, ERR_TOO_LARGE, "the rendered text is longer than %zu bytes", r->text.max);
        return;
    }
    struct chat_segment *last = r->n_segments ? &r->segments[r->n_segments - 1] : NULL;
    if (last && last->is_content == span.content) {
        last->n += span.n;
        return;
    }
    if (r->n_segments == r->cap_segments) {
        size_t cap = r->cap_segments ? r->cap_segments * 2 : 16;
        struct chat_segment *wider = try_realloc(r->segments, cap * sizeof *wider);
        if (!wider) {
            jinja_fail(r, ERR_TOO_LARGE, "no memory for the rendered text");
            return;
        }
        r->segments = wider;
        r->cap_segments = cap;
    }
    r->segments[r->n_segments++] = (struct chat_segment){r->text.n - span.n, span.n, span.content};
}

static void emit(struct jinja_run *r, struct jinja_value v)
{
    v = jinja_to_string(r, v);
    for (size_t i = 0; !r->err && i < v.s->n_spans && jinja_charge(r, 0); i++)
        emit_span(r, v.s->spans[i]);
}

/* --- scopes */

struct jinja_value *jinja_frame_find(struct jinja_run *r, struct str name)
{
    size_t seen = 0;
    struct jinja_value *found = NULL;
    for (struct jinja_frame *f = r->frame; f && !found; f = f->parent) {
        for (size_t i = 0; i < f->n && !found; i++)
            if (str_eq(f->vars[i].name, name)) found = &f->vars[i].value;
        seen += f->n + 1;
    }
    return jinja_charge(r, seen) ? found : NULL;
}

void jinja_frame_set(struct jinja_run *r, struct jinja_frame *f, struct str name,
                     struct jinja_value v)
{
    if (r->err || !jinja_charge(r, f->n)) return;
    for (size_t i = 0; i < f->n; i++) {
        if (!str_eq(f->vars[i].name, name)) continue;
        f->vars[i].value = v;
        return;
    }
    if (f->n == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 4;
        struct jinja_frame_var *wider = jinja_alloc(r, cap * sizeof *wider);
        if (!wider) return;
        if (f->n) memcpy(wider, f->vars, f->n * sizeof *wider);
        f->vars = wider;
        f->cap = cap;
    }
    f->vars[f->n++] = (struct jinja_frame_var){name, v};
}

/* A new scope inside `parent`; NULL after an error. */
static struct jinja_frame *frame_in(struct jinja_run *r, struct jinja_frame *parent)
{
    struct jinja_frame *f = jinja_alloc(r, sizeof *f);
    if (f) f->parent = parent;
    return f;
}

static void assign(struct jinja_run *r, const struct jinja_node *target, struct jinja_value v)
{
    if (r->err) return;
    if (target->kind == JINJA_N_NAME) {
        jinja_frame_set(r, r->frame, target->text, v);
        return;
    }
    if (target->kind == JINJA_N_MEMBER) {
        struct jinja_value *space = jinja_frame_find(r, target->a->text);
        if (!space || space->kind != JINJA_NAMESPACE)
            jinja_fail(r, ERR_INVALID, "only members of a namespace can be set");
        else
            jinja_dict_set(r, space->dict, jinja_text(r, target->text, false), v);
        return;
    }
    struct jinja_value items = jinja_items_of(r, v);
    if (r->err) return;
    if (items.list->n != (size_t)target->n_items) {
        jinja_fail(r, ERR_INVALID, "expected %d values to unpack, not %zu", target->n_items,
                   items.list->n);
        return;
    }
    for (int i = 0; i < target->n_items; i++)
        assign(r, target->items[i], items.list->at[i]);
}

/* Runs a body in a scope of its own and returns what it printed. */
static struct jinja_value capture(struct jinja_run *r, struct jinja_frame *scope,
                                  const struct jinja_node *body)
{
    struct jinja_builder text = {NULL, 0, 0, 0};
    struct jinja_builder *outer = r->capture;
    struct jinja_frame *before = r->frame;
    if (!scope) return jinja_undefined(NULL);
    r->capture = &text;
    r->frame = scope;
    jinja_exec(r, body);
    r->frame = before;
    r->capture = outer;
    return jinja_built(r, &text);
}

static struct jinja_value apply_filters(struct jinja_run *r, const struct jinja_node *filters,
                                        struct jinja_value text)
{
    struct jinja_value outer = r->block_text;
    r->block_text = text;
    struct jinja_value v = jinja_eval(r, filters);
    r->block_text = outer;
    return v;
}

/* --- loops */

/* Of the items those for which the loop's condition holds. */
static struct jinja_value filter_items(struct jinja_run *r, const struct jinja_node *n,
                                       struct jinja_value items)
{
    struct jinja_value out = jinja_list_new(r, JINJA_LIST);
    struct jinja_frame *outer = r->frame, *scope = frame_in(r, outer);
    for (size_t i = 0; !r->err && i < items.list->n; i++) {
        scope->n = 0;
        r->frame = scope;
        assign(r, n->a, items.list->at[i]);
        bool take = jinja_truth(jinja_eval(r, n->items[0]));
        r->frame = outer;
        if (take) jinja_list_add(r, out, items.list->at[i]);
    }
    return out;
}

static void run_loop(struct jinja_run *r, const struct jinja_node *n, struct jinja_loop *loop)
{
    struct jinja_frame *outer = r->frame, *scope = NULL;
    for (loop->i = 0; !r->err && loop->i < loop->n; loop->i++) {
        if (!scope || scope->kept) scope = frame_in(r, outer);
        if (!scope) break;
        scope->n = 0;
        r->frame = scope;
        jinja_frame_set(r, scope, STR("loop"),
                        (struct jinja_value){.kind = JINJA_LOOP, .loop = loop});
        assign(r, n->a, loop->items[loop->i]);
        jinja_exec(r, n->c);
        r->frame = outer;
        bool stop = r->flow == JINJA_BREAKING;
        r->flow = JINJA_GO;
        if (stop) break;
    }
}

static void exec_for(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_value items = jinja_eval(r, n->b);
    items = jinja_items_of(r, items);
    if (!r->err && n->n_items) items = filter_items(r, n, items);
    struct jinja_loop *loop = jinja_alloc(r, sizeof *loop);
    if (!loop || r->err) return;
    if (items.list->n == 0) {
        if (n->d) jinja_exec(r, n->d);
        return;
    }
    *loop = (struct jinja_loop){.items = items.list->at, .n = items.list->n};
    run_loop(r, n, loop);
}

/* --- macros */

static struct jinja_value macro_value(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_macro *m = jinja_alloc(r, sizeof *m);
    if (!m) return jinja_undefined(NULL);
    *m = (struct jinja_macro){n, r->frame};
    for (struct jinja_frame *f = r->frame; f && !f->kept; f = f->parent)
        f->kept = true;
    return (struct jinja_value){.kind = JINJA_MACRO, .macro = m};
}

static const struct jinja_value *named_argument(const struct jinja_args *args, struct str name)
{
    for (size_t i = 0; i < args->n_named; i++)
        if (str_eq(args->named[i].name, name)) return &args->named[i].value;
    return NULL;
}

static void bind_parameters(struct jinja_run *r, const struct jinja_node *n,
                            const struct jinja_args *args)
{
    struct jinja_frame *scope = r->frame;
    for (int i = 0; i < n->n_items && !r->err; i++) {
        const struct jinja_node *p = n->items[i];
        const struct jinja_value *given =
            (size_t)i < args->n ? &args->at[i] : named_argument(args, p->text);
        struct jinja_value v = given  ? *given
                               : p->a ? jinja_eval(r, p->a)
                                      : jinja_undefined(&p->text);
        jinja_frame_set(r, scope, p->text, v);
    }
    struct jinja_value rest = jinja_list_new(r, JINJA_TUPLE), named = jinja_dict_new(r, JINJA_DICT);
    for (size_t i = (size_t)n->n_items; i < args->n && !r->err; i++)
        jinja_list_add(r, rest, args->at[i]);
    for (size_t i = 0; i < args->n_named && !r->err; i++) {
        struct str name = args->named[i].name;
        bool known = false;
        for (int k = 0; k < n->n_items; k++)
            known |= str_eq(n->items[k]->text, name);
        if (known) continue;
        if (str_eqz(name, "caller"))
            jinja_frame_set(r, scope, name, args->named[i].value);
        else
            jinja_dict_set(r, named.dict, jinja_text(r, name, false), args->named[i].value);
    }
    jinja_frame_set(r, scope, STR("varargs"), rest);
    jinja_frame_set(r, scope, STR("kwargs"), named);
}

struct jinja_value jinja_call_macro(struct jinja_run *r, const struct jinja_macro *m,
                                    const struct jinja_args *args)
{
    struct jinja_frame *scope = frame_in(r, m->scope), *before = r->frame;
    if (!scope) return jinja_undefined(NULL);
    r->frame = scope;
    bind_parameters(r, m->node, args);
    r->frame = before;
    enum jinja_flow flow = r->flow;
    struct jinja_value v = capture(r, scope, m->node->b);
    r->flow = flow;
    return v;
}

static void exec_call_block(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_value callee = jinja_eval(r, n->a->a);
    struct jinja_args given = jinja_eval_args(r, n->a), args = given;
    args.named = jinja_alloc(r, (given.n_named + 1) * sizeof *args.named);
    if (!args.named || r->err) return;
    if (given.n_named) memcpy(args.named, given.named, given.n_named * sizeof *args.named);
    args.named[args.n_named++] = (struct jinja_frame_var){STR("caller"), macro_value(r, n->b)};
    emit(r, jinja_call(r, callee, &args));
}

/* --- the rest */

static void exec_if(struct jinja_run *r, const struct jinja_node *n)
{
    for (int i = 0; i + 1 < n->n_items && !r->err; i += 2) {
        if (!jinja_truth(jinja_eval(r, n->items[i]))) continue;
        if (!r->err) jinja_exec(r, n->items[i + 1]);
        return;
    }
    if (n->c && !r->err) jinja_exec(r, n->c);
}

static void exec_with(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_frame *outer = r->frame, *scope = frame_in(r, outer);
    if (!scope) return;
    for (int i = 0; i + 1 < n->n_items && !r->err; i += 2) /* values see the outer scope only */
        jinja_frame_set(r, scope, n->items[i]->text, jinja_eval(r, n->items[i + 1]));
    r->frame = scope;
    jinja_exec(r, n->b);
    r->frame = outer;
}

static void exec_node(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_value v;
    switch (n->kind) {
    case JINJA_N_TEXT:
        emit_span(r, (struct jinja_span){n->text.p, n->text.n, false});
        break;
    case JINJA_N_PRINT:
        emit(r, jinja_eval(r, n->a));
        break;
    case JINJA_N_BLOCK:
        for (int i = 0; i < n->n_items && !r->err && r->flow == JINJA_GO; i++)
            jinja_exec(r, n->items[i]);
        break;
    case JINJA_N_IF:
        exec_if(r, n);
        break;
    case JINJA_N_FOR:
        exec_for(r, n);
        break;
    case JINJA_N_SET:
        assign(r, n->a, jinja_eval(r, n->b));
        break;
    case JINJA_N_SET_BLOCK:
        v = capture(r, frame_in(r, r->frame), n->b);
        assign(r, n->a, n->c && !r->err ? apply_filters(r, n->c, v) : v);
        break;
    case JINJA_N_MACRO:
        jinja_frame_set(r, r->frame, n->text, macro_value(r, n));
        break;
    case JINJA_N_CALL_BLOCK:
        exec_call_block(r, n);
        break;
    case JINJA_N_FILTER_BLOCK:
        v = capture(r, frame_in(r, r->frame), n->b);
        if (!r->err) emit(r, apply_filters(r, n->a, v));
        break;
    case JINJA_N_WITH:
        exec_with(r, n);
        break;
    case JINJA_N_BREAK:
        r->flow = JINJA_BREAKING;
        break;
    case JINJA_N_CONTINUE:
        r->flow = JINJA_CONTINUING;
        break;
    default:
        jinja_fail(r, ERR_UNSUPPORTED, "not a statement");
        break;
    }
}

void jinja_exec(struct jinja_run *r, const struct jinja_node *n)
{
    if (!jinja_enter_depth(r)) return;
    r->line = n->line;
    exec_node(r, n);
    r->depth--;
}
