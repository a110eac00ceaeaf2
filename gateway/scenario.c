/* scenario.c - see scenario.h. */
#include "gateway/scenario.h"

#include <string.h>

#include "base/mem.h"

static const char *const number_names[N_SCENARIO_NUMBERS] = {
    "prompt_tokens", "prompt_bytes", "max_tokens", "messages", "inflight", "load"};
static const char *const word_names[N_SCENARIO_WORDS] = {"class", "tenant", "stream"};
/* What a word can be at all (NULL = anything), and how that is said. */
static const char *const word_values[N_SCENARIO_WORDS] = {"online|batch", NULL, "yes|no"};
static const char *const word_expected[N_SCENARIO_WORDS] = {"online or batch after class", NULL,
                                                            "yes or no after stream"};

enum op { OP_GREATER, OP_LEAST, OP_LESS, OP_MOST, OP_IS, OP_IS_NOT };
static const char *const op_signs[] = {">", ">=", "<", "<=", "=", "!="};
enum { N_OPS = sizeof op_signs / sizeof *op_signs };

struct condition {
    int number, word; /* one of them; the other -1 */
    enum op op;
    int64_t value;
    struct str values; /* a|b */
};
struct rule {
    struct str model, target;
    int line;
    struct condition conditions[SCENARIO_CONDITIONS_MAX];
    int n_conditions;
};
struct scenario {
    char *text;
    struct rule *rules;
    int n;
};

static bool is_one_of(struct str value, struct str values)
{
    struct str one;
    while (str_next(&values, '|', &one))
        if (str_eq(one, value)) return true;
    return false;
}

static bool is_of(const struct rule *r, struct str model)
{
    return str_eqz(r->model, "*") || str_eq(r->model, model);
}

/* --- reading */
static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_sign(char c)
{
    return c == '>' || c == '<' || c == '=' || c == '!';
}

/* The next word, sign or arrow; model names may hold '-' and '>' never stands in them. */
static bool next_token(struct str *rest, struct str *token)
{
    size_t i = 0;
    while (rest->n && is_blank(*rest->p))
        *rest = str_sub(*rest, 1, rest->n);
    if (!rest->n) return false;
    if (str_starts(*rest, STR("->"))) {
        i = 2;
    } else if (is_sign(*rest->p)) {
        while (i < rest->n && is_sign(rest->p[i]))
            i++;
    } else {
        while (i < rest->n && !is_blank(rest->p[i]) && !is_sign(rest->p[i]) &&
               !str_starts(str_sub(*rest, i, 2), STR("->")))
            i++;
    }
    *token = str_sub(*rest, 0, i);
    *rest = str_sub(*rest, i, rest->n);
    return true;
}

static enum err bad(struct errmsg *e, struct str token, const char *expected)
{
    return err_set(e, ERR_INVALID, "\"" STR_FMT "\": expected %s", STR_ARG(str_sub(token, 0, 40)),
                   expected);
}

static int find_name(struct str name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (str_eqz(name, names[i])) return i;
    return -1;
}

/* a|b: every one of them there, and such as the word can be. */
static enum err check_values(int word, struct str values, struct errmsg *e)
{
    struct str rest = values, one;
    bool whole = !str_ends(values, STR("|"));
    while (whole && str_next(&rest, '|', &one))
        whole = one.n > 0;
    if (!whole) return bad(e, values, "a word on each side of |");
    for (rest = values; word_values[word] && str_next(&rest, '|', &one);)
        if (!is_one_of(one, str_of(word_values[word]))) return bad(e, one, word_expected[word]);
    return OK;
}

static bool is_name(struct str s)
{
    return s.n && !is_sign(*s.p) && !str_eqz(s, "->") && !str_eqz(s, "when") && !str_eqz(s, "and");
}

static enum err read_condition(struct condition *c, struct str *rest, struct errmsg *e)
{
    struct str name = {0}, sign = {0}, value = {0};
    if (!next_token(rest, &name)) return bad(e, STR(""), "a condition after when or and");
    c->number = find_name(name, number_names, N_SCENARIO_NUMBERS);
    c->word = find_name(name, word_names, N_SCENARIO_WORDS);
    if (c->number < 0 && c->word < 0)
        return bad(e, name,
                   "prompt_tokens, prompt_bytes, max_tokens, messages, inflight, load, class, "
                   "tenant or stream");
    if (!next_token(rest, &sign)) return bad(e, name, "> >= < <= = or != after it");
    int op = find_name(sign, op_signs, N_OPS);
    if (op < 0 || (c->word >= 0 && op < OP_IS))
        return bad(e, sign, c->word >= 0 ? "= or !=" : "> >= < <= = or !=");
    c->op = (enum op)op;
    if (!next_token(rest, &value)) return bad(e, sign, "a value after it");
    if (c->word >= 0) {
        c->values = value;
        if (!is_name(value)) return bad(e, value, "a word");
        return check_values(c->word, value, e);
    }
    if (str_to_i64(value, 0, INT64_MAX / 2, &c->value) != OK)
        return bad(e, value, "a whole number");
    return OK;
}

static enum err read_rule(struct rule *r, struct str line, struct errmsg *e)
{
    struct str token = {0};
    enum err code = OK;
    *r = (struct rule){0};
    if (str_ieq(line, STR("none")))
        return bad(e, line, "no other line, ; or comment beside it: none stands alone");
    if (!next_token(&line, &r->model) || !is_name(r->model)) return bad(e, r->model, "a model");
    bool more = next_token(&line, &token);
    if (more && str_eqz(token, "when")) {
        do {
            if (r->n_conditions == SCENARIO_CONDITIONS_MAX)
                return err_set(e, ERR_INVALID, "more than %d conditions", SCENARIO_CONDITIONS_MAX);
            code = read_condition(&r->conditions[r->n_conditions++], &line, e);
            if (code != OK) return code;
            more = next_token(&line, &token);
        } while (more && str_eqz(token, "and"));
    }
    if (!more || !str_eqz(token, "->"))
        return bad(e, more ? token : STR(""), r->n_conditions ? "and or ->" : "when or ->");
    token = (struct str){0};
    if (!next_token(&line, &r->target) || !is_name(r->target))
        return bad(e, r->target, "a model after ->");
    if (str_eqz(r->target, "*"))
        return bad(e, r->target, "the name of a model after ->: * stands for any only before it");
    return next_token(&line, &token) ? bad(e, token, "the end of the line") : OK;
}

static struct str without_comment(struct str line)
{
    for (size_t i = 0; i < line.n; i++)
        if (line.p[i] == '#' && (!i || is_blank(line.p[i - 1]))) return str_sub(line, 0, i);
    return line;
}

/* A model may lead to itself to be left out of what later rules say; else the rule changes nothing. */
static enum err check_changes(const struct scenario *s, struct errmsg *e)
{
    for (int i = 0; i < s->n; i++) {
        const struct rule *r = &s->rules[i];
        int k = i + 1;
        if (!str_eq(r->model, r->target)) continue;
        while (k < s->n && !is_of(&s->rules[k], r->model))
            k++;
        if (k < s->n) continue;
        (void)bad(e, r->target,
                  "another model after ->: it leads to itself, and no later line is of it or of *");
        return err_prefix(e, ERR_INVALID, "rule in line %d", r->line);
    }
    return OK;
}

enum err scenario_parse(struct scenario **out, struct str text, struct errmsg *e)
{
    struct scenario *s = xcalloc(1, sizeof *s);
    struct str rest, line;
    int line_no = 0;
    enum err code = OK;
    *out = NULL;
    s->text = xstrndup(text.n ? text.p : "", text.n);
    s->rules = xcalloc(SCENARIO_RULES_MAX, sizeof *s->rules);
    rest = (struct str){s->text, text.n};
    while (code == OK && str_next(&rest, '\n', &line)) {
        line_no++;
        line = str_trim(without_comment(line));
        if (!line.n) continue;
        if (s->n == SCENARIO_RULES_MAX)
            code = err_set(e, ERR_TOO_LARGE, "more than %d rules", SCENARIO_RULES_MAX);
        else
            code = read_rule(&s->rules[s->n], line, e);
        if (code != OK)
            (void)err_prefix(e, code, "rule in line %d", line_no);
        else
            s->rules[s->n++].line = line_no;
    }
    if (code == OK) code = check_changes(s, e);
    if (code == OK && s->n)
        *out = s;
    else
        scenario_free(s);
    return code;
}

void scenario_free(struct scenario *s)
{
    if (!s) return;
    mem_free(s->rules);
    mem_free(s->text);
    mem_free(s);
}

/* --- deciding */
static bool holds(const struct condition *c, const struct scenario_facts *f)
{
    if (c->word >= 0) return is_one_of(f->words[c->word], c->values) == (c->op == OP_IS);
    int64_t v = f->numbers[c->number];
    if (v < 0) return false;
    switch (c->op) {
    case OP_GREATER:
        return v > c->value;
    case OP_LEAST:
        return v >= c->value;
    case OP_LESS:
        return v < c->value;
    case OP_MOST:
        return v <= c->value;
    case OP_IS:
        return v == c->value;
    case OP_IS_NOT:
        break;
    }
    return v != c->value;
}

struct str scenario_name(const struct scenario *s, int i)
{
    return s && i < s->n ? s->rules[i].model : (struct str){0};
}

struct str scenario_target(const struct scenario *s, int i)
{
    return s && i < s->n ? s->rules[i].target : (struct str){0};
}

bool scenario_concerns(const struct scenario *s, struct str model)
{
    for (int i = 0; s && i < s->n; i++)
        if (is_of(&s->rules[i], model)) return true;
    return false;
}

struct str scenario_model(const struct scenario *s, struct str model,
                          const struct scenario_facts *f)
{
    for (int i = 0; s && i < s->n; i++) {
        const struct rule *r = &s->rules[i];
        int k = 0;
        if (!is_of(r, model)) continue;
        while (k < r->n_conditions && holds(&r->conditions[k], f))
            k++;
        if (k == r->n_conditions) return r->target;
    }
    return model;
}
