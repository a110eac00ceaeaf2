/* json_rules.c - see json_rules.h. */
#include "engine/grammar/json_rules.h"

#include "base/json.h"

enum { REAL_DIGITS = 15, FRACTION_DIGITS = 16, INTEGER_DIGITS = 18 };

static const struct grammar_budget plenty = {BUDGET_STATES, BUDGET_WORK};

static void finish(struct dfa *out, struct nfa *a, int start)
{
    struct grammar_budget budget = plenty;
    struct errmsg e;
    enum err code = dfa_from_nfa(out, a, start, &budget, &e);
    ASSERT(!code);
    nfa_fini(a);
}

static void define(struct program *p, int rule, struct nfa *a, int start)
{
    struct dfa d;
    finish(&d, a, start);
    program_define(p, rule, &d);
    dfa_fini(&d);
}

struct callee json_callee(enum json_rule rule)
{
    return (struct callee){(int)rule, 0, GRAMMAR_NO_LIMIT};
}

int json_blank(struct nfa *a, int next)
{
    return nfa_split(a, next, nfa_call(a, (struct callee){RULE_BLANK, 0, INDENT_MAX}, 0, next));
}

/* Where next is open only once there is enough, so is what stands before it: else a run that wrote it could not go on. */
static int blank_if_enough(struct nfa *a, int next)
{
    struct callee blank = {RULE_BLANK, 0, INDENT_MAX};
    return nfa_split(a, next, nfa_call(a, blank, EDGE_ENOUGH, next));
}

int json_text(struct nfa *a, struct str text, int next)
{
    struct buf b;
    buf_init(&b, 6 * text.n + 8);
    json_write_string(&b, text);
    next = nfa_text(a, buf_view(&b), next);
    buf_fini(&b);
    return next;
}

static void define_blank(struct program *p)
{
    struct nfa a;
    nfa_init(&a);
    int end = nfa_accept(&a), more = nfa_head(&a);
    int space = nfa_bytes(&a, ' ', ' ', EDGE_COUNT, more),
        tab = nfa_bytes(&a, '\t', '\t', EDGE_COUNT, more);
    nfa_close(&a, more, nfa_split(&a, space, tab), end);
    define(p, RULE_BLANK, &a,
           nfa_split(&a, nfa_bytes(&a, ' ', ' ', 0, end), nfa_bytes(&a, '\n', '\n', 0, more)));
}

/* \uXXXX of anything but a surrogate. */
static int unicode_escape(struct nfa *a, int next)
{
    static const uint8_t hex[][2] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
    int at[5] = {[4] = next};
    for (int i = 3; i >= 1; i--) {
        at[i] = nfa_bytes(a, hex[0][0], hex[0][1], 0, at[i + 1]);
        for (int k = 1; k < 3; k++)
            at[i] = nfa_split(a, at[i], nfa_bytes(a, hex[k][0], hex[k][1], 0, at[i + 1]));
    }
    static const uint8_t not_d[][2] = {{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}};
    int low = nfa_bytes(a, '0', '7', 0, at[2]); /* after d */
    at[0] = nfa_split(a, nfa_bytes(a, 'd', 'd', 0, low), nfa_bytes(a, 'D', 'D', 0, low));
    for (int k = 0; k < 5; k++)
        at[0] = nfa_split(a, at[0], nfa_bytes(a, not_d[k][0], not_d[k][1], 0, at[1]));
    return nfa_bytes(a, 'u', 'u', 0, at[0]);
}

static void string_dfa(enum json_rule rule, struct dfa *out)
{
    static const char short_escapes[] = "\"\\bfnrt/";
    struct nfa a;
    nfa_init(&a);
    struct charset plain = {0};
    int end = nfa_bytes(&a, '"', '"', EDGE_ENOUGH, nfa_accept(&a)), loop = nfa_head(&a);
    int escape = -1;
    for (const char *c = short_escapes; *c; c++) {
        if (*c == '/' && rule == RULE_KEY) continue; /* only escapes that are needed */
        int one = nfa_bytes(&a, (uint8_t)*c, (uint8_t)*c, 0, loop);
        escape = escape < 0 ? one : nfa_split(&a, escape, one);
    }
    if (rule == RULE_STRING) escape = nfa_split(&a, escape, unicode_escape(&a, loop));
    charset_add(&plain, ' ', '"' - 1);
    charset_add(&plain, '"' + 1, '\\' - 1);
    charset_add(&plain, '\\' + 1, CHARSET_LAST);
    charset_tidy(&plain);
    int one = nfa_split(&a, nfa_char(&a, &plain, EDGE_COUNT, loop),
                        nfa_bytes(&a, '\\', '\\', EDGE_COUNT, escape));
    nfa_close(&a, loop, one, end);
    finish(out, &a, nfa_bytes(&a, '"', '"', 0, loop));
}

void json_key_dfa(struct dfa *out)
{
    string_dfa(RULE_KEY, out);
}

static void define_strings(struct program *p)
{
    for (enum json_rule rule = RULE_STRING; rule <= RULE_KEY; rule++) {
        struct dfa d;
        string_dfa(rule, &d);
        program_define(p, (int)rule, &d);
        dfa_fini(&d);
    }
}

/* 0 or a number of up to n digits that does not begin with 0. */
static int whole_digits(struct nfa *a, int n, int next)
{
    int more = next;
    for (int i = 1; i < n; i++)
        more = nfa_split(a, nfa_bytes(a, '0', '9', 0, more), next);
    return nfa_split(a, nfa_bytes(a, '0', '0', 0, next), nfa_bytes(a, '1', '9', 0, more));
}

/* One to n digits. */
static int some_digits(struct nfa *a, int n, int next)
{
    int more = next;
    for (int i = 1; i < n; i++)
        more = nfa_split(a, nfa_bytes(a, '0', '9', 0, more), next);
    return nfa_bytes(a, '0', '9', 0, more);
}

static void define_numbers(struct program *p)
{
    struct nfa a;
    nfa_init(&a);
    int end = nfa_accept(&a), digits = some_digits(&a, 2, end);
    int sign = nfa_split(
        &a, digits,
        nfa_split(&a, nfa_bytes(&a, '+', '+', 0, digits), nfa_bytes(&a, '-', '-', 0, digits)));
    int exponent = nfa_split(
        &a, end, nfa_split(&a, nfa_bytes(&a, 'e', 'e', 0, sign), nfa_bytes(&a, 'E', 'E', 0, sign)));
    int fraction = nfa_split(
        &a, exponent, nfa_bytes(&a, '.', '.', 0, some_digits(&a, FRACTION_DIGITS, exponent)));
    int whole = whole_digits(&a, REAL_DIGITS, fraction);
    define(p, RULE_NUMBER, &a, nfa_split(&a, whole, nfa_bytes(&a, '-', '-', 0, whole)));
    nfa_init(&a);
    whole = whole_digits(&a, INTEGER_DIGITS, nfa_accept(&a));
    define(p, RULE_INTEGER, &a, nfa_split(&a, whole, nfa_bytes(&a, '-', '-', 0, whole)));
}

int json_array_of(struct nfa *a, const struct callee *items, int n_items, struct callee rest,
                  uint32_t min)
{
    int close = nfa_bytes(a, ']', ']', EDGE_ENOUGH, nfa_accept(a)), end = json_blank(a, close);
    uint32_t fixed = n_items > 1 ? (uint32_t)n_items : 1; /* items after which all are alike */
    int after = end;
    if (rest.rule >= 0) {
        int loop = nfa_head(a), item = json_blank(a, nfa_call(a, rest, 0, loop));
        int comma = nfa_bytes(a, ',', ',', EDGE_COUNT, item);
        nfa_close(a, loop, comma, min > fixed + 1 ? blank_if_enough(a, close) : end);
        after = min > fixed ? comma : loop;
    }
    for (uint32_t i = fixed - 1; i > 0; i--) {
        int item = json_blank(a, nfa_call(a, items[i], 0, after));
        after = nfa_bytes(a, ',', ',', EDGE_COUNT, item);
        if (i >= min) after = nfa_split(a, end, after);
    }
    int first = end;
    if (n_items || rest.rule >= 0) {
        first = json_blank(a, nfa_call(a, n_items ? items[0] : rest, EDGE_COUNT, after));
        if (!min) first = nfa_split(a, end, first);
    }
    return nfa_bytes(a, '[', '[', 0, first);
}

int json_colon_value(struct nfa *a, struct callee value, int next)
{
    return nfa_bytes(a, ':', ':', 0, json_blank(a, nfa_call(a, value, 0, next)));
}

int json_more_members(struct nfa *a, struct callee key, struct callee value, int next)
{
    int again = nfa_head(a);
    int member = nfa_call(a, key, 0, json_colon_value(a, value, again));
    nfa_close(a, again, nfa_bytes(a, ',', ',', EDGE_COUNT, json_blank(a, member)), next);
    return again;
}

static void define_containers(struct program *p)
{
    struct nfa a;
    nfa_init(&a);
    struct callee value = json_callee(RULE_VALUE);
    define(p, RULE_ARRAY, &a, json_array_of(&a, NULL, 0, value, 0));
    nfa_init(&a);
    int end = json_blank(&a, nfa_bytes(&a, '}', '}', EDGE_ENOUGH, nfa_accept(&a)));
    int more = json_more_members(&a, json_callee(RULE_STRING), value, end);
    int first =
        nfa_call(&a, json_callee(RULE_STRING), EDGE_COUNT, json_colon_value(&a, value, more));
    define(p, RULE_OBJECT, &a,
           nfa_bytes(&a, '{', '{', 0, nfa_split(&a, end, json_blank(&a, first))));
}

static void define_value(struct program *p)
{
    static const enum json_rule rules[] = {RULE_STRING, RULE_NUMBER, RULE_OBJECT, RULE_ARRAY};
    static const char *const words[] = {"true", "false", "null"};
    struct nfa a;
    nfa_init(&a);
    int end = nfa_accept(&a), ways = nfa_text(&a, STR("true"), end);
    for (int i = 1; i < 3; i++)
        ways = nfa_split(&a, ways, nfa_text(&a, str_of(words[i]), end));
    for (int i = 0; i < 4; i++)
        ways = nfa_split(&a, ways, nfa_call(&a, json_callee(rules[i]), 0, end));
    define(p, RULE_VALUE, &a, ways);
}

void json_rules_define(struct program *p)
{
    for (int i = 0; i < N_JSON_RULES; i++)
        program_reserve(p);
    define_blank(p);
    define_strings(p);
    define_numbers(p);
    define_value(p);
    define_containers(p);
}
