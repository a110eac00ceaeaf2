/* schema_number.c - numbers within bounds as automata over their digits: digits are compared with those of a bound as long as all
 * before were equal ("tight"). Bounded numbers have no exponent. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema.h"

enum {
    WHOLE_MAX = 18,
    REAL_WHOLE_MAX = 15,
    FRACTION_MAX = 16,
    FRACTION_BOUND_MAX = 20,
    MULTIPLE_MAX = 1000
};

/* A bound, without its sign. */
struct decimal {
    char whole[WHOLE_MAX + 2], fraction[FRACTION_BOUND_MAX + 2]; /* digits, terminated */
    bool exclusive;
};
struct bound {
    bool given, negative;
    struct decimal d;
};

static bool is_zero(const struct decimal *d)
{
    return !strcmp(d->whole, "0") && strspn(d->fraction, "0") == strlen(d->fraction);
}

/* --- automaton of the numbers between two bounds of one sign */
struct between {
    struct nfa *a;
    const struct decimal *lo, *hi;
    int n_fraction; /* digits at most behind the point, 0 = integers */
    int next;
};
/* tight[0]: equal to lo so far, tight[1]: to hi. One node for each of the four. -1 = no way. */
typedef int tight_nodes[4];
enum { LO = 1, HI = 2 };

static void offer(struct nfa *a, int *ways, int node)
{
    if (node >= 0) *ways = *ways < 0 ? node : nfa_split(a, *ways, node);
}

/* One digit, then on to after[tightness there]. */
static int digit(struct nfa *a, int tight, int from, const char bounds[2], const tight_nodes after)
{
    int ways = -1;
    for (int d = from; d <= 9; d++) {
        int lo = bounds[0] - '0', hi = bounds[1] - '0';
        if ((tight & LO && d < lo) || (tight & HI && d > hi)) continue;
        int t = (tight & LO && d == lo ? LO : 0) | (tight & HI && d == hi ? HI : 0);
        if (after[t] >= 0)
            offer(a, &ways, nfa_bytes(a, (uint8_t)('0' + d), (uint8_t)('0' + d), 0, after[t]));
    }
    return ways;
}

static char fraction_digit(const struct decimal *d, int i)
{
    return i < (int)strlen(d->fraction) ? d->fraction[i] : '0';
}

static bool rest_is_zero(const struct decimal *d, int i)
{
    if (i >= (int)strlen(d->fraction)) return true;
    return strspn(d->fraction + i, "0") == strlen(d->fraction + i);
}

/* May the number end after i digits of the fraction? */
static bool may_stop(const struct between *x, int tight, int i)
{
    if (tight & LO && (!rest_is_zero(x->lo, i) || x->lo->exclusive)) return false;
    return !(tight & HI && rest_is_zero(x->hi, i) && x->hi->exclusive);
}

/* From the end of the whole part on. */
static void fractions(const struct between *x, tight_nodes out)
{
    tight_nodes after = {-1, -1, -1, -1}, here;
    for (int i = x->n_fraction; i >= 0; i--) {
        char bounds[2] = {fraction_digit(x->lo, i), fraction_digit(x->hi, i)};
        for (int t = 0; t < 4; t++) {
            here[t] = may_stop(x, t, i) ? x->next : -1;
            int more = i < x->n_fraction ? digit(x->a, t, 0, bounds, after) : -1;
            if (more >= 0 && !i) more = nfa_bytes(x->a, '.', '.', 0, more);
            offer(x->a, &here[t], more);
        }
        memcpy(after, here, sizeof after);
    }
    memcpy(out, after, sizeof after);
}

/* Numbers from lo to hi; -1 when there are none. */
static int between(const struct between *x)
{
    tight_nodes end, after, here;
    int n_lo = (int)strlen(x->lo->whole), n_hi = (int)strlen(x->hi->whole), ways = -1;
    fractions(x, end);
    for (int n = n_lo; n <= n_hi; n++) {
        memcpy(after, end, sizeof after);
        for (int i = n - 1; i >= 0; i--) {
            char bounds[2] = {n == n_lo ? x->lo->whole[i] : '0', n == n_hi ? x->hi->whole[i] : '9'};
            for (int t = 0; t < 4; t++)
                here[t] = digit(x->a, t, !i && n > 1, bounds, after);
            memcpy(after, here, sizeof after);
        }
        offer(x->a, &ways, after[(n == n_lo ? LO : 0) | (n == n_hi ? HI : 0)]);
    }
    return ways;
}

/* --- bounds */
static const struct decimal zero = {.whole = "0"};

static struct decimal largest(int whole, int fraction)
{
    struct decimal d = {{0}, {0}, false};
    memset(d.whole, '9', (size_t)whole);
    memset(d.fraction, '9', (size_t)fraction);
    return d;
}

static enum err read_bound(struct schema_build *b, const json_t *schema, const char *name,
                           struct bound *out)
{
    const json_t *v = json_object_get(schema, name);
    char text[64];
    if (!v) return OK;
    if (!json_is_number(v)) return schema_refuse(b, ERR_INVALID, "%s: expected a number", name);
    double n = json_number_value(v);
    bool lower = strstr(name, "inimum") != NULL;
    if (fabs(n) >= 1e15) {
        if ((n > 0) == lower)
            return schema_refuse(b, ERR_UNSUPPORTED, "%s: beyond 15 digits is not supported", name);
        return OK; /* wider than what is written anyway */
    }
    int places = 0;
    do
        snprintf(text, sizeof text, "%.*f", places, fabs(n));
    while (strtod(text, NULL) != fabs(n) && ++places <= FRACTION_BOUND_MAX);
    if (places > FRACTION_BOUND_MAX)
        return schema_refuse(b, ERR_UNSUPPORTED, "%s: more than %d decimals are not supported",
                             name, FRACTION_BOUND_MAX);
    struct str fraction = str_of(text), whole;
    str_next(&fraction, '.', &whole);
    struct bound x = {.given = true, .negative = n < 0};
    memcpy(x.d.whole, whole.p, whole.n);
    if (fraction.n) memcpy(x.d.fraction, fraction.p, fraction.n);
    x.d.exclusive = !strncmp(name, "exclusive", 9);
    *out = x;
    return OK;
}

/* "minimum" and "exclusiveMinimum" together: the tighter one. */
static enum err read_side(struct schema_build *b, const json_t *schema, bool lower,
                          struct bound *out)
{
    const char *open = lower ? "exclusiveMinimum" : "exclusiveMaximum",
               *closed = lower ? "minimum" : "maximum";
    enum err code = read_bound(b, schema, closed, out);
    const json_t *x = json_object_get(schema, open), *y = json_object_get(schema, closed);
    double difference = json_number_value(x) - json_number_value(y);
    if (code || !x) return code;
    if (y && json_is_number(x) && (lower ? difference < 0 : difference > 0)) return OK;
    return read_bound(b, schema, open, out);
}

/* The integer at or inside a bound: what lies between two integers is cut off. */
static void to_integer(struct bound *x, bool lower)
{
    if (!x->given) return;
    int64_t n = strtoll(x->d.whole, NULL, 10);
    bool part = !rest_is_zero(&x->d, 0);
    if (x->negative) n = -n;
    bool up = lower == !x->negative; /* away from zero */
    if (part ? up : x->d.exclusive) n += lower ? 1 : -1;
    struct bound whole = {.given = true, .negative = n < 0};
    snprintf(whole.d.whole, sizeof whole.d.whole, "%lld", (long long)(n < 0 ? -n : n));
    *x = whole;
}

/* Digits behind the point: as many as usual, but so few near an open bound that no text is read back as the bound itself. */
static int fraction_digits(const struct bound *lo, const struct bound *hi)
{
    int n = FRACTION_MAX, least = 1;
    const struct bound *sides[] = {lo, hi};
    for (int i = 0; i < 2; i++) {
        if (!sides[i]->given) continue;
        int room = REAL_WHOLE_MAX - (int)strlen(sides[i]->d.whole),
            have = (int)strlen(sides[i]->d.fraction);
        if (sides[i]->d.exclusive && room < n) n = room;
        if (have > least) least = have;
    }
    return n > least ? n : least;
}

static int both_signs(struct nfa *a, const struct bound *lo, const struct bound *hi, bool integer)
{
    struct decimal most = largest(integer ? WHOLE_MAX : REAL_WHOLE_MAX, integer ? 0 : FRACTION_MAX),
                   none = zero;
    struct between x = {.a = a, .n_fraction = integer ? 0 : fraction_digits(lo, hi)};
    int ways = -1;
    x.next = nfa_accept(a);
    bool lo_positive = lo->given && !lo->negative, hi_negative = hi->given && hi->negative;
    if (!hi_negative) {
        x.lo = lo_positive ? &lo->d : &zero;
        x.hi = hi->given ? &hi->d : &most;
        offer(a, &ways, between(&x));
    }
    if (lo_positive) return ways; /* minus zero is zero, and zero has been offered */
    none.exclusive = hi->given && is_zero(&hi->d) && hi->d.exclusive;
    x.lo = hi_negative ? &hi->d : &none;
    x.hi = lo->given ? &lo->d : &most;
    int minus = between(&x);
    if (minus >= 0) offer(a, &ways, nfa_bytes(a, '-', '-', 0, minus));
    return ways;
}

/* --- multiples: the remainder as the state */
static void multiples_dfa(int n, struct dfa *out)
{
    *out = (struct dfa){0};
    for (int s = 0; s <= n; s++) { /* 0: before any digit; 1 + remainder */
        dfa_add_state(out, s == 1);
        if (!s) dfa_add_edge(out, (struct dfa_edge){'-', '-', 0});
        for (int d = 0; d <= 9; d++) {
            uint32_t to = 1 + (uint32_t)((10 * (s ? s - 1 : 0) + d) % n);
            dfa_add_edge(out, (struct dfa_edge){(uint8_t)('0' + d), (uint8_t)('0' + d), to});
        }
    }
}

static enum err keep_multiples(struct schema_build *b, const json_t *multiple, bool *integer,
                               struct dfa *d)
{
    double n = json_number_value(multiple);
    if (!json_is_number(multiple) || !(n > 0))
        return schema_refuse(b, ERR_INVALID, "multipleOf: expected a number above 0");
    if (n != floor(n) || n > MULTIPLE_MAX)
        return schema_refuse(b, ERR_UNSUPPORTED, "multipleOf: only integers up to %d are supported",
                             MULTIPLE_MAX);
    *integer = true;
    if (!d) return OK;
    struct dfa multiples, product;
    multiples_dfa((int)n, &multiples);
    enum err code = dfa_product(&product, d, &multiples, false, b->budget, b->e);
    dfa_fini(&multiples);
    if (code) return err_prefix(b->e, code, STR_FMT, STR_ARG(buf_view(&b->path)));
    dfa_fini(d);
    *d = product;
    return OK;
}

static enum err bounded(struct schema_build *b, struct bound sides[2], bool integer,
                        const json_t *multiple, struct callee *out)
{
    struct nfa a;
    struct dfa d;
    if (integer) {
        to_integer(&sides[0], true);
        to_integer(&sides[1], false);
    }
    nfa_init(&a);
    int start = both_signs(&a, &sides[0], &sides[1], integer);
    if (start < 0) {
        nfa_fini(&a);
        return schema_refuse(b, ERR_INVALID, "no number lies within its bounds");
    }
    enum err code = dfa_from_nfa(&d, &a, start, b->budget, b->e);
    nfa_fini(&a);
    if (code) return err_prefix(b->e, code, STR_FMT, STR_ARG(buf_view(&b->path)));
    if (multiple) code = keep_multiples(b, multiple, &integer, &d);
    if (!code) *out = (struct callee){schema_rule_of(b, &d), 0, GRAMMAR_NO_LIMIT};
    dfa_fini(&d);
    return code;
}

enum err schema_number(struct schema_build *b, const json_t *schema, bool integer,
                       struct callee *out)
{
    struct bound sides[2] = {{0}};
    const json_t *multiple = json_object_get(schema, "multipleOf");
    enum err code = read_side(b, schema, true, &sides[0]);
    if (!code) code = read_side(b, schema, false, &sides[1]);
    if (!code && multiple) code = keep_multiples(b, multiple, &integer, NULL);
    if (code) return code;
    if (sides[0].given || sides[1].given || multiple)
        return bounded(b, sides, integer, multiple, out);
    *out = json_callee(integer ? RULE_INTEGER : RULE_NUMBER);
    return OK;
}
