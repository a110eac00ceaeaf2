/* grammar.c - a compiled grammar: from its description to a finished program. */
#include "engine/grammar/grammar.h"

#include "base/mem.h"
#include "engine/grammar/grammar_private.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema.h"

enum { CHOICES_MAX = 10000 };

uint64_t grammar_new_id(void)
{
    static _Atomic uint64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

struct making {
    struct program *p;
    struct grammar_budget budget;
    struct errmsg *e;
};

static enum err make_rule(struct making *m, struct nfa *a, int start, struct callee *out)
{
    struct dfa d;
    enum err code = dfa_from_nfa(&d, a, start, &m->budget, m->e);
    nfa_fini(a);
    if (code) return code;
    *out = (struct callee){program_reserve(m->p), 0, GRAMMAR_NO_LIMIT};
    program_define(m->p, out->rule, &d);
    dfa_fini(&d);
    return OK;
}

static enum err make_regex(struct making *m, struct str regex, struct callee *out)
{
    struct dfa d;
    enum err code = regex_to_dfa(&d, regex, REGEX_WHOLE, false, &m->budget, m->e);
    if (code) return code;
    *out = (struct callee){program_reserve(m->p), 0, GRAMMAR_NO_LIMIT};
    program_define(m->p, out->rule, &d);
    dfa_fini(&d);
    return OK;
}

static enum err make_choice(struct making *m, const json_t *choices, struct callee *out)
{
    struct nfa a;
    size_t n = json_array_size(choices);
    if (!n || n > CHOICES_MAX)
        return err_set(m->e, ERR_INVALID, "expected 1 to %d strings", CHOICES_MAX);
    nfa_init(&a);
    int end = nfa_accept(&a), ways = -1;
    for (size_t i = 0; i < n; i++) {
        struct str text = json_str(json_array_get(choices, i));
        if (!text.n) {
            nfa_fini(&a);
            return err_set(m->e, ERR_INVALID, "[%zu]: expected a string that is not empty", i);
        }
        int way = nfa_text(&a, text, end);
        ways = ways < 0 ? way : nfa_split(&a, ways, way);
    }
    return make_rule(m, &a, ways, out);
}

/* --- tool calls */
/* open name middle arguments close, for each tool. */
static int one_call(struct nfa *a, const struct grammar_calls *c, const struct callee *arguments,
                    int next)
{
    int ways = -1, after = nfa_text(a, c->close, next);
    for (int i = 0; i < c->n_tools; i++) {
        int way = nfa_text(a, c->middle, nfa_call(a, arguments[i], 0, after));
        way = nfa_text(a, c->open, nfa_text(a, c->tools[i].name, way));
        ways = ways < 0 ? way : nfa_split(a, ways, way);
    }
    return ways;
}

static int all_calls(struct nfa *a, const struct grammar_calls *c, const struct callee *arguments,
                     int next)
{
    next = nfa_text(a, c->end, next);
    if (c->many) {
        int again = nfa_head(a);
        nfa_close(a, again, nfa_text(a, c->between, one_call(a, c, arguments, again)), next);
        next = again;
    }
    return nfa_text(a, c->begin, one_call(a, c, arguments, next));
}

/* Any bytes that do not hold the trigger, which leads on to the calls. The states of the search for it (Knuth, Morris & Pratt 1977) are
 * heads[k]: its first k bytes have just been read. */
static void free_text(struct nfa *a, struct str trigger, const int *heads, int end, int calls)
{
    int border[GRAMMAR_TRIGGER_MAX] = {0}, n = (int)trigger.n;
    for (int i = 1, k = 0; i < n; i++) {
        while (k && trigger.p[i] != trigger.p[k])
            k = border[k - 1];
        if (trigger.p[i] == trigger.p[k]) k++;
        border[i] = k;
    }
    for (int k = 0; k < n; k++) {
        int ways = end;
        for (int byte = 0; byte < 256; byte++) {
            int j = k;
            while (j && (unsigned char)trigger.p[j] != byte)
                j = border[j - 1];
            if ((unsigned char)trigger.p[j] == byte) j++;
            int to = j == n ? calls : heads[j];
            ways = nfa_split(a, ways, nfa_bytes(a, (uint8_t)byte, (uint8_t)byte, 0, to));
        }
        nfa_close(a, heads[k], ways, ways);
    }
}

static int calls_in_text(struct nfa *a, const struct grammar_calls *c,
                         const struct callee *arguments)
{
    int heads[GRAMMAR_TRIGGER_MAX], end = nfa_accept(a);
    ASSERT(c->trigger.n <= GRAMMAR_TRIGGER_MAX);
    for (size_t k = 0; k < c->trigger.n; k++)
        heads[k] = nfa_head(a);
    free_text(a, c->trigger, heads, end, one_call(a, c, arguments, c->many ? heads[0] : end));
    return heads[0];
}

/* What a schema that could not be kept has left unfinished matches nothing, and nothing leads to it. */
static void close_rules(struct making *m, struct schema_build *b)
{
    struct dfa nothing = {0};
    dfa_add_state(&nothing, false);
    for (int r = 0; r < m->p->n_rules; r++)
        if (!m->p->rule[r].start) program_define(m->p, r, &nothing);
    dfa_fini(&nothing);
    b->n_memo = 0;
}

/* The arguments of a tool: an object, whatever its schema says.
 * Without strict a schema that cannot be kept is a wish: then any object will do. */
static enum err make_arguments(struct making *m, struct schema_build *b,
                               const struct grammar_tool *t, struct callee *out)
{
    *out = json_callee(RULE_OBJECT);
    if (!t->parameters) return OK;
    enum err code = schema_build_object(b, t->parameters, t->strict, t->path, out);
    if (t->strict || (code != ERR_UNSUPPORTED && code != ERR_TOO_LARGE)) return code;
    *out = json_callee(RULE_OBJECT);
    close_rules(m, b);
    if (m->e) m->e->text[0] = 0;
    return OK;
}

static enum err make_calls(struct making *m, struct schema_build *b, const struct grammar_calls *c,
                           const char *path, struct callee *out)
{
    struct callee *arguments = xcalloc((size_t)c->n_tools, sizeof *arguments), other = {-1, 0, 0};
    enum err code = OK;
    int start;
    for (int i = 0; i < c->n_tools && !code; i++)
        code = make_arguments(m, b, &c->tools[i], &arguments[i]);
    if (!code && c->or_schema)
        code = schema_build_root(b, c->or_schema, c->or_strict, path, &other);
    struct nfa a;
    nfa_init(&a);
    if (!code && c->trigger.n) {
        start = calls_in_text(&a, c, arguments);
        code = make_rule(m, &a, start, out);
    } else if (!code) {
        int end = nfa_accept(&a);
        start = all_calls(&a, c, arguments, end);
        if (c->or_schema) start = nfa_split(&a, start, nfa_call(&a, other, 0, end));
        code = make_rule(m, &a, start, out);
    }
    nfa_fini(&a);
    mem_free(arguments);
    return code;
}

static enum err make(struct making *m, const struct grammar_spec *spec, struct callee *out)
{
    struct schema_build b;
    enum err code = OK;
    schema_build_init(&b, m->p, &m->budget, m->e);
    switch (spec->kind) {
    case GRAMMAR_SCHEMA:
        *out = json_callee(RULE_OBJECT);
        if (spec->schema) code = schema_build_root(&b, spec->schema, spec->strict, spec->path, out);
        break;
    case GRAMMAR_REGEX:
        code = make_regex(m, spec->regex, out);
        break;
    case GRAMMAR_CHOICE:
        code = make_choice(m, spec->choices, out);
        break;
    case GRAMMAR_CALLS:
        code = make_calls(m, &b, &spec->calls, spec->path, out);
        break;
    }
    schema_build_fini(&b);
    return code;
}

enum err grammar_new(struct grammar **out, const struct grammar_vocab *v,
                     const struct grammar_spec *spec, struct errmsg *e)
{
    struct callee root = {0, 0, GRAMMAR_NO_LIMIT};
    struct grammar *g = xcalloc(1, sizeof *g);
    g->refs = 1;
    g->id = grammar_new_id();
    g->vocab = v;
    program_init(&g->program);
    json_rules_define(&g->program);
    g->n_shared = g->program.n_states;
    struct making m = {&g->program, {BUDGET_STATES, BUDGET_WORK}, e};
    enum err code = make(&m, spec, &root);
    if (!code) {
        code = program_finish(&g->program, root, &v->alphabet, e);
        if (code && spec->path && spec->kind == GRAMMAR_SCHEMA)
            code = err_prefix(e, code, "%s", spec->path);
    }
    *out = code ? NULL : g;
    if (code) grammar_unref(g);
    return code;
}

struct grammar *grammar_ref(struct grammar *g)
{
    atomic_fetch_add(&g->refs, 1);
    return g;
}

void grammar_unref(struct grammar *g)
{
    if (!g || atomic_fetch_sub(&g->refs, 1) > 1) return;
    program_fini(&g->program);
    mem_free(g);
}

size_t grammar_bytes(const struct grammar *g)
{
    const struct program *p = &g->program;
    return sizeof *g + p->cap_states * sizeof *p->state + p->cap_edges * sizeof *p->edge +
           p->cap_calls * sizeof *p->call + (size_t)p->cap_rules * sizeof *p->rule +
           (1u << 20) * sizeof *p->dense / 16;
}
