/* schema_string.c - strings: lengths alone use the shared rule and its counter; patterns and formats become automata, and what must hold
 * together is their product. */
#include <string.h>

#include "engine/grammar/regex.h"
#include "engine/grammar/schema.h"

/* Formats as they are written, not as far as their standards would stretch. Dates have the days of their month and year. */
#define HOUR "([01][0-9]|2[0-3])"
#define SIXTY "[0-5][0-9]"
#define YEAR "([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
#define FOURTH "(0[48]|[2468][048]|[13579][26])"
#define LEAP "([0-9]{2}" FOURTH "|" FOURTH "00)"
#define DAY                                                                                        \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"      \
    "02-(0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define TIME HOUR ":" SIXTY ":" SIXTY "(\\.[0-9]{1,9})?(Z|[+-]" HOUR ":" SIXTY ")"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define HEX "[0-9a-fA-F]"
/* at most 63 characters, and no two hyphens together as the encoded names of other alphabets have them */
#define LABEL "[A-Za-z0-9](-?[A-Za-z0-9]){0,31}"
#define ANY_LABEL "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
#define ATOM "[A-Za-z0-9_+-]+"
static const struct {
    const char *name, *regex;
} formats[] = {
    {"date", DAY},
    {"time", TIME},
    {"date-time", DAY "T" TIME},
    {"uuid", HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}"},
    {"email", ATOM "(\\." ATOM ")*@" ANY_LABEL "(\\." ANY_LABEL ")+"},
    {"ipv4", OCTET "(\\." OCTET "){3}"},
    {"hostname", LABEL "(\\." LABEL "){0,2}"},
    {"uri", "https?://" ANY_LABEL "(\\." ANY_LABEL ")*(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~-]*)*"
            "(\\?[A-Za-z0-9._~=&-]*)?(#[A-Za-z0-9._~-]*)?"},
};

static const char *regex_of_format(struct str name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (str_eqz(name, formats[i].name)) return formats[i].regex;
    return NULL;
}

struct content { /* what stands between the quotes */
    struct dfa d;
    bool any; /* nothing demanded yet */
};

static enum err demand(struct schema_build *b, struct content *c, struct dfa *more)
{
    struct dfa product;
    if (c->any) {
        c->d = *more;
        c->any = false;
        return OK;
    }
    enum err code = dfa_product(&product, &c->d, more, false, b->budget, b->e);
    dfa_fini(more);
    if (code) return err_prefix(b->e, code, STR_FMT, STR_ARG(buf_view(&b->path)));
    dfa_fini(&c->d);
    c->d = product;
    return OK;
}

static enum err demand_regex(struct schema_build *b, struct content *c, struct str regex,
                             enum regex_use use, const char *keyword)
{
    struct dfa d;
    enum err code = regex_to_dfa(&d, regex, use, true, b->budget, b->e);
    if (!code) return demand(b, c, &d);
    size_t mark = schema_push(b, keyword);
    code = err_prefix(b->e, code, STR_FMT, STR_ARG(buf_view(&b->path)));
    schema_pop(b, mark);
    return code;
}

static enum err demand_length(struct schema_build *b, struct content *c, uint32_t least,
                              uint32_t most)
{
    struct nfa a;
    struct charset all = {0};
    struct dfa d;
    charset_add(&all, 0, CHARSET_LAST);
    charset_tidy(&all);
    nfa_init(&a);
    a.json = true;
    int end = nfa_accept(&a), at = end;
    if (most == GRAMMAR_NO_LIMIT) {
        at = nfa_head(&a);
        nfa_close(&a, at, nfa_char(&a, &all, 0, at), end);
    }
    for (uint32_t i = least; i < most && most != GRAMMAR_NO_LIMIT && !a.failed; i++)
        at = nfa_split(&a, nfa_char(&a, &all, 0, at), end);
    for (uint32_t i = 0; i < least && !a.failed; i++)
        at = nfa_char(&a, &all, 0, at);
    enum err code = dfa_from_nfa(&d, &a, at, b->budget, b->e);
    nfa_fini(&a);
    if (code) return err_prefix(b->e, code, STR_FMT, STR_ARG(buf_view(&b->path)));
    return demand(b, c, &d);
}

/* Quotes around it: no state that may end has a quote as its next byte, since quotes inside are escaped. */
static int quoted_rule(struct schema_build *b, const struct dfa *in)
{
    struct dfa out = {0};
    int last = in->n_states + 1;
    dfa_add_state(&out, false);
    dfa_add_edge(&out, (struct dfa_edge){'"', '"', 1});
    for (int i = 0; i < in->n_states; i++) {
        bool ends = in->state[i].accept, put = false;
        dfa_add_state(&out, false);
        for (int k = 0; k <= in->state[i].n_edges; k++) {
            struct dfa_edge edge = {0};
            if (k < in->state[i].n_edges) edge = in->edge[in->state[i].edge + k];
            if (ends && !put && (k == in->state[i].n_edges || edge.lo > '"')) {
                dfa_add_edge(&out, (struct dfa_edge){'"', '"', (uint32_t)last});
                put = true;
            }
            edge.to++;
            if (k < in->state[i].n_edges) dfa_add_edge(&out, edge);
        }
    }
    dfa_add_state(&out, true);
    int rule = schema_rule_of(b, &out);
    dfa_fini(&out);
    return rule;
}

static bool empty(const struct dfa *d)
{
    for (int i = 0; i < d->n_states; i++)
        if (d->state[i].accept) return false;
    return true;
}

static enum err content_of(struct schema_build *b, const json_t *schema, struct content *c,
                           uint32_t least, uint32_t most)
{
    const json_t *pattern = json_object_get(schema, "pattern"),
                 *format = json_object_get(schema, "format");
    enum err code = OK;
    if (pattern && !json_is_string(pattern))
        return schema_refuse(b, ERR_INVALID, "pattern: expected a string");
    if (format && !json_is_string(format))
        return schema_refuse(b, ERR_INVALID, "format: expected a string");
    const char *regex = regex_of_format(json_str(format));
    if (format && !regex && b->strict)
        return schema_refuse(b, ERR_UNSUPPORTED,
                             "format \"%.40s\" is not supported: expected date, time, date-time, "
                             "uuid, email, ipv4, hostname or uri",
                             json_string_value(format));
    if (regex) code = demand_regex(b, c, str_of(regex), REGEX_WHOLE, "format");
    if (!code && pattern) code = demand_regex(b, c, json_str(pattern), REGEX_FIND, "pattern");
    bool bounded = least > 0 || most != GRAMMAR_NO_LIMIT;
    if (!code && !c->any && bounded) code = demand_length(b, c, least, most);
    if (!code && !c->any && empty(&c->d))
        code = schema_refuse(b, ERR_INVALID, "nothing can match its pattern, format and lengths");
    return code;
}

/* One set of characters, any number of them within the counters. */
static enum err repeat_rule(struct schema_build *b, const struct charset *set, int *rule)
{
    struct nfa a;
    nfa_init(&a);
    a.json = true;
    int end = nfa_bytes(&a, '"', '"', EDGE_ENOUGH, nfa_accept(&a)), loop = nfa_head(&a);
    nfa_close(&a, loop, nfa_char(&a, set, EDGE_COUNT, loop), end);
    return schema_rule(b, &a, nfa_bytes(&a, '"', '"', 0, loop), rule);
}

enum err schema_string(struct schema_build *b, const json_t *schema, struct callee *out)
{
    uint32_t least = 0, most = GRAMMAR_NO_LIMIT;
    struct content c = {.any = true};
    enum err code = schema_count(b, schema, "minLength", &least);
    if (!code) code = schema_count(b, schema, "maxLength", &most);
    if (!code && least > most) code = schema_refuse(b, ERR_INVALID, "minLength is above maxLength");
    struct charset set;
    uint32_t from, to;
    struct str pattern = json_member_str(schema, "pattern");
    if (!code && pattern.p && !json_object_get(schema, "format") &&
        regex_is_repeat(pattern, REGEX_FIND, &set, &from, &to)) {
        *out = (struct callee){0, from > least ? from : least, to < most ? to : most};
        if (out->need > out->left)
            return schema_refuse(b, ERR_INVALID, "nothing can match its pattern and lengths");
        return repeat_rule(b, &set, &out->rule);
    }
    if (!code) code = content_of(b, schema, &c, least, most);
    if (!code && c.any)
        *out = (struct callee){RULE_STRING, least, most};
    else if (!code)
        *out = (struct callee){quoted_rule(b, &c.d), 0, GRAMMAR_NO_LIMIT};
    dfa_fini(&c.d);
    return code;
}
