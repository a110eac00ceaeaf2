/* guard_facts.c - guards over what must be equal one by one: writing, language, identifiers, numbers with their units, money, times,
 * dates. */
#include "cache/guard_rules.h"

bool guard_script_differs(struct comparison *c)
{
    unsigned a = c->a->scripts, b = c->b->scripts;
    /* Latin words inside Chinese text are common, so Latin alone decides nothing once both have another script */
    unsigned mask = (a & b & ~(unsigned)GS_LATIN) ? ~(unsigned)GS_LATIN : ~0u;
    if ((a & mask) == (b & mask)) return false;
    return guard_refuse_hard(c->out, "script", guard_none, guard_none);
}

static int main_language(const struct guard_text *t)
{
    int best = 0, n = 1;
    for (int i = 1; i < 8; i++)
        if (t->foreign_words[i] > n && t->foreign_words[i] > t->english_words)
            best = i, n = t->foreign_words[i];
    return best ? best : t->english_words >= 2 ? 100 : 0;
}

bool guard_language_differs(struct comparison *c)
{
    int a = main_language(c->a), b = main_language(c->b);
    if (!a || !b || a == b) return false;
    return guard_refuse_hard(c->out, "language", guard_none, guard_none);
}

static const struct guard_token *unmatched(const struct guard_text *a, const struct guard_text *b,
                                           int kind, uint32_t classes)
{
    bool used[GUARD_TOKENS_MAX] = {0};
    for (size_t i = 0; i < a->n; i++) {
        const struct guard_token *k = &a->tokens[i];
        if ((classes ? !(k->classes & classes) || k->kind == GT_NUMBER : k->kind != kind) ||
            k->weak)
            continue;
        bool found = false;
        for (size_t j = 0; j < b->n && !found; j++) {
            const struct guard_token *m = &b->tokens[j];
            bool same_kind =
                classes ? (m->classes & classes) && m->kind != GT_NUMBER : m->kind == kind;
            if (used[j] || !same_kind || !str_eq(k->canon, m->canon)) continue;
            used[j] = found = true;
        }
        if (!found) return k;
    }
    return NULL;
}

static bool refuse_named(struct comparison *c, const char *name, struct str a, struct str b)
{
    if (a.p != guard_none.p && b.p != guard_none.p) guard_harden(c->out, name);
    return guard_refuse(c->out, name, a, b);
}

static bool multiset_differs(struct comparison *c, int kind, uint32_t classes, const char *name)
{
    const struct guard_token *a = unmatched(c->a, c->b, kind, classes),
                             *b = unmatched(c->b, c->a, kind, classes);
    if (!a && !b) return false;
    return refuse_named(c, name, a ? a->text : guard_none, b ? b->text : guard_none);
}

/* A number of a that b has not, by value, the same unit preferred; one that b has with another unit goes to *unit_a, *unit_b. */
static const struct guard_token *number_unmatched(const struct guard_text *a,
                                                  const struct guard_text *b,
                                                  const struct guard_token **unit_a,
                                                  const struct guard_token **unit_b)
{
    bool used[GUARD_TOKENS_MAX] = {0};
    for (size_t i = 0; i < a->n; i++) {
        const struct guard_token *k = &a->tokens[i], *found = NULL;
        if (k->kind != GT_NUMBER) continue;
        for (int pass = 0; pass < 2 && !found; pass++) {
            for (size_t j = 0; j < b->n && !found; j++) {
                const struct guard_token *m = &b->tokens[j];
                if (used[j] || m->kind != GT_NUMBER || !str_eq(k->canon, m->canon) ||
                    (!pass && !str_eq(k->unit, m->unit)))
                    continue;
                used[j] = true;
                found = m;
            }
        }
        if (!found && !k->weak) return k;
        if (found && !str_eq(found->unit, k->unit) && !(found->weak || k->weak) && !*unit_a)
            *unit_a = k, *unit_b = found;
    }
    return NULL;
}

/* Numbers by value; a number read as one may stand against nothing ("one message", "a message"). */
bool guard_numbers_differ(struct comparison *c)
{
    const struct guard_token *unit_a = NULL, *unit_b = NULL;
    const struct guard_token *a = number_unmatched(c->a, c->b, &unit_a, &unit_b),
                             *b = number_unmatched(c->b, c->a, &unit_b, &unit_a);
    if (a || b)
        return refuse_named(c, "number", a ? a->text : guard_none, b ? b->text : guard_none);
    if (!unit_a) return false;
    bool money = str_starts(unit_a->unit, STR("cur:")) || str_starts(unit_b->unit, STR("cur:"));
    struct str one = unit_a->unit.n ? unit_a->text : guard_none,
               other = unit_b->unit.n ? unit_b->text : guard_none;
    return refuse_named(c, money ? "currency" : "unit", one, other);
}

/* Every currency named, as a unit or alone. Single characters (块) name one only behind a number. */
static bool names_currency(const struct guard_text *t, struct str canon)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct guard_token *k = &t->tokens[i];
        if (k->kind == GT_NUMBER
                ? str_eq(k->unit, canon)
                : k->word && (k->word->classes & GC_CURRENCY) && str_eq(k->canon, canon))
            return true;
    }
    return false;
}

bool guard_currencies_differ(struct comparison *c)
{
    const struct guard_text *t[2] = {c->a, c->b};
    struct str unnamed[2] = {guard_none, guard_none};
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < t[side]->n; i++) {
            const struct guard_token *k = &t[side]->tokens[i];
            bool alone = k->word && (k->word->classes & GC_CURRENCY) && k->kind != GT_NUMBER &&
                         !(k->kind == GT_HAN && k->text.n <= 3);
            if (alone && !names_currency(t[1 - side], k->canon)) unnamed[side] = k->text;
        }
    if (unnamed[0].p == guard_none.p && unnamed[1].p == guard_none.p) return false;
    return refuse_named(c, "currency", unnamed[0], unnamed[1]);
}

static struct str date_of(const struct guard_token *k)
{
    return str_starts(k->canon, STR("date:--")) ? str_sub(k->canon, 6, 99)
           : str_starts(k->canon, STR("d:"))    ? str_sub(k->canon, 2, 99)
                                                : k->canon;
}

static bool is_date(const struct guard_token *k)
{
    return k->kind == GT_DATE || (k->kind != GT_NUMBER && (k->classes & GC_DATE));
}

/* Written dates and named days share one space: 元旦 is d:--01-01 in both. */
bool guard_dates_differ(struct comparison *c)
{
    const struct guard_text *t[2] = {c->a, c->b};
    struct str missing[2] = {guard_none, guard_none};
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < t[side]->n; i++) {
            if (!is_date(&t[side]->tokens[i])) continue;
            bool found = false;
            for (size_t j = 0; j < t[1 - side]->n && !found; j++)
                found = is_date(&t[1 - side]->tokens[j]) &&
                        str_eq(date_of(&t[side]->tokens[i]), date_of(&t[1 - side]->tokens[j]));
            if (!found) missing[side] = t[side]->tokens[i].text;
        }
    if (missing[0].p == guard_none.p && missing[1].p == guard_none.p) return false;
    return refuse_named(c, "date", missing[0], missing[1]);
}

/* 3,14 and 314, a.b and ab: an identifier of one side without its signs is a token of the other. */
static bool sign_is_lost(const struct guard_text *a, const struct guard_text *b)
{
    char bare[64];
    for (size_t i = 0; i < a->n; i++) {
        struct str s = a->tokens[i].text;
        size_t n = 0;
        if (a->tokens[i].kind != GT_IDENT || s.n > sizeof bare) continue;
        for (size_t k = 0; k < s.n; k++)
            if ((s.p[k] >= 'a' && s.p[k] <= 'z') || (s.p[k] >= '0' && s.p[k] <= '9'))
                bare[n++] = s.p[k];
        for (size_t j = 0; j < b->n && n < s.n; j++)
            if (str_eq(b->tokens[j].text, (struct str){bare, n})) return true;
    }
    return false;
}

bool guard_identifiers_differ(struct comparison *c)
{
    if (sign_is_lost(c->a, c->b) || sign_is_lost(c->b, c->a)) {
        return guard_refuse_hard(c->out, "identifier", guard_none, guard_none);
    }
    return multiset_differs(c, GT_IDENT, 0, "identifier");
}

bool guard_times_differ(struct comparison *c)
{
    return multiset_differs(c, GT_TIME, 0, "time");
}

bool guard_relative_times_differ(struct comparison *c)
{
    return multiset_differs(c, -1, GC_WHEN, "relative_time");
}
