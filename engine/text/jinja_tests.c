/* jinja_tests.c - what may stand after "is". */
#include <string.h>

#include "engine/text/jinja_eval.h"
#include "engine/text/unicode.h"

static bool is_cased(struct jinja_run *r, struct jinja_value v, bool lower)
{
    v = jinja_to_string(r, v);
    struct str s = r->err ? STR("") : jinja_flat(r, v.s);
    bool any = false;
    if (!jinja_charge(r, s.n)) return false;
    for (size_t i = 0; i < s.n;) {
        uint32_t code;
        i += unicode_next(s, i, &code);
        enum unicode_class class = unicode_class(code);
        if (class == (lower ? UC_LU : UC_LL) || class == UC_LT) return false;
        any |= class == (lower ? UC_LL : UC_LU);
    }
    return any;
}

static bool divisible(struct jinja_run *r, struct jinja_value v, struct jinja_value by)
{
    struct jinja_value rest = jinja_arithmetic(r, JINJA_MOD, v, by);
    return !r->err && !jinja_truth(rest);
}

/* Tests of one value. -1: no such test. */
static int test_value(struct jinja_run *r, struct str name, struct jinja_value v)
{
    enum jinja_kind k = v.kind;
    bool sequence = k == JINJA_STRING || k == JINJA_LIST || k == JINJA_TUPLE || k == JINJA_DICT;
    const struct {
        const char *name;
        bool holds;
    } kinds[] = {{"defined", k != JINJA_UNDEFINED},
                 {"undefined", k == JINJA_UNDEFINED},
                 {"none", k == JINJA_NONE},
                 {"string", k == JINJA_STRING},
                 {"mapping", k == JINJA_DICT},
                 {"iterable", sequence || k == JINJA_UNDEFINED || k == JINJA_LOOP},
                 {"sequence", sequence || k == JINJA_UNDEFINED},
                 {"boolean", k == JINJA_BOOL},
                 {"true", k == JINJA_BOOL && v.b},
                 {"false", k == JINJA_BOOL && !v.b},
                 {"number", jinja_is_number(v)},
                 {"integer", k == JINJA_INT},
                 {"float", k == JINJA_FLOAT},
                 {"callable", k == JINJA_MACRO || k == JINJA_METHOD || k == JINJA_FUNCTION ||
                                  k == JINJA_NAMESPACE || k == JINJA_UNDEFINED},
                 {"escaped", k == JINJA_STRING && v.s->markup}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (str_eqz(name, kinds[i].name)) return kinds[i].holds;
    if (str_eqz(name, "filter")) return k == JINJA_STRING && jinja_is_filter(jinja_flat(r, v.s));
    if (str_eqz(name, "odd")) return !divisible(r, v, jinja_int(2));
    if (str_eqz(name, "even")) return divisible(r, v, jinja_int(2));
    if (str_eqz(name, "lower")) return is_cased(r, v, true);
    if (str_eqz(name, "upper")) return is_cased(r, v, false);
    return -1;
}

static bool is_same(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    if (a.kind != b.kind) return false;
    if (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE || a.kind == JINJA_DICT ||
        a.kind == JINJA_NAMESPACE)
        return a.list == b.list;
    return jinja_equal(r, a, b);
}

bool jinja_test(struct jinja_run *r, struct str name, struct jinja_value v,
                const struct jinja_args *args)
{
    static const struct {
        const char *name;
        enum jinja_op op;
    } compare[] = {
        {"eq", JINJA_EQ},          {"equalto", JINJA_EQ}, {"==", JINJA_EQ}, {"ne", JINJA_NE},
        {"!=", JINJA_NE},          {"lt", JINJA_LT},      {"<", JINJA_LT},  {"lessthan", JINJA_LT},
        {"le", JINJA_LE},          {"<=", JINJA_LE},      {"gt", JINJA_GT}, {">", JINJA_GT},
        {"greaterthan", JINJA_GT}, {"ge", JINJA_GE},      {">=", JINJA_GE}, {"in", JINJA_IN}};
    if (r->err) return false;
    int simple = test_value(r, name, v);
    if (simple >= 0) return simple;
    if (args->n == 0) {
        jinja_fail(r, ERR_UNSUPPORTED, "test '%.*s' is unknown, or lacks its argument",
                   (int)(name.n < 40 ? name.n : 40), name.p);
        return false;
    }
    for (size_t i = 0; i < sizeof compare / sizeof compare[0]; i++)
        if (str_eqz(name, compare[i].name)) return jinja_compare(r, compare[i].op, v, args->at[0]);
    if (str_eqz(name, "divisibleby")) return divisible(r, v, args->at[0]);
    if (str_eqz(name, "sameas")) return is_same(r, v, args->at[0]);
    jinja_fail(r, ERR_UNSUPPORTED, "test '%.*s' is not supported", (int)(name.n < 40 ? name.n : 40),
               name.p);
    return false;
}
