/* guard_facts.c - guards over what must be equal one by one: writing, language, identifiers, numbers with their units, money, times,
 * dates. */
#include "cache/guard_rules.h"

bool guard_script_differs(struct comparison *c)
{
    unsigned a = c->a->scripts, b = c->b->scripts;
    /* Latin words inside Chinese text are common, so Latin alone decides nothing once both have another script */
    unsigned mask = (a & b & ~(unsigned)GS_LATIN) ? ~(unsigned)GS_LATIN : ~0u;
    if ((a & mask) == (b & mask)) return false;
    return guard_refuse(c->out, "script", guard_none, guard_none);
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
    return a && b && a != b && guard_refuse(c->out, "language", guard_none, guard_none);
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

static bool multiset_differs(struct comparison *c, int kind, uint32_t classes, const char *name)
{
    const struct guard_token *a = unmatched(c->a, c->b, kind, classes),
                             *b = unmatched(c->b, c->a, kind, classes);
    if (!a && !b) return false;
    return guard_refuse(c->out, name, a ? a->text : guard_none, b ? b->text : guard_none);
}

/* Numbers by value; a number read as one may stand against nothing ("one message", "a message"). */
bool guard_numbers_differ(struct comparison *c)
{
    const struct guard_text *t[2] = {c->a, c->b};
    for (int side = 0; side < 2; side++) {
        const struct guard_text *a = t[side], *b = t[1 - side];
        bool used[GUARD_TOKENS_MAX] = {0};
        for (size_t i = 0; i < a->n; i++) {
            const struct guard_token *k = &a->tokens[i];
            if (k->kind != GT_NUMBER) continue;
            const struct guard_token *found = NULL;
            for (int pass = 0; pass < 2 && !found; pass++) { /* same unit first */
                for (size_t j = 0; j < b->n && !found; j++) {
                    const struct guard_token *m = &b->tokens[j];
                    if (used[j] || m->kind != GT_NUMBER || !str_eq(k->canon, m->canon) ||
                        (!pass && !str_eq(k->unit, m->unit)))
                        continue;
                    used[j] = true;
                    found = m;
                }
            }
            if (!found && k->weak) continue;
            if (!found) return guard_refuse(c->out, "number", k->text, guard_none);
            if (!str_eq(found->unit, k->unit) && !(found->weak || k->weak))
                return guard_refuse(c->out,
                                    str_starts(k->unit, STR("cur:")) ||
                                            str_starts(found->unit, STR("cur:"))
                                        ? "currency"
                                        : "unit",
                                    k->text, found->text);
        }
    }
    return false;
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
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < t[side]->n; i++) {
            const struct guard_token *k = &t[side]->tokens[i];
            bool alone = k->word && (k->word->classes & GC_CURRENCY) && k->kind != GT_NUMBER &&
                         !(k->kind == GT_HAN && k->text.n <= 3);
            if (alone && !names_currency(t[1 - side], k->canon))
                return guard_refuse(c->out, "currency", k->text, guard_none);
        }
    return false;
}

bool guard_dates_differ(struct comparison *c)
{
    /* written dates and named days share one space: 元旦 is d:--01-01 in both */
    const struct guard_text *t[2] = {c->a, c->b};
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < t[side]->n; i++) {
            const struct guard_token *k = &t[side]->tokens[i];
            bool named = k->kind != GT_NUMBER && (k->classes & GC_DATE);
            if (k->kind != GT_DATE && !named) continue;
            bool found = false;
            for (size_t j = 0; j < t[1 - side]->n && !found; j++) {
                const struct guard_token *m = &t[1 - side]->tokens[j];
                if (m->kind != GT_DATE && !(m->kind != GT_NUMBER && (m->classes & GC_DATE)))
                    continue;
                struct str x = str_starts(k->canon, STR("date:--")) ? str_sub(k->canon, 6, 99)
                               : str_starts(k->canon, STR("d:"))    ? str_sub(k->canon, 2, 99)
                                                                    : k->canon;
                struct str y = str_starts(m->canon, STR("date:--")) ? str_sub(m->canon, 6, 99)
                               : str_starts(m->canon, STR("d:"))    ? str_sub(m->canon, 2, 99)
                                                                    : m->canon;
                found = str_eq(x, y);
            }
            if (!found) return guard_refuse(c->out, "date", k->text, guard_none);
        }
    return false;
}

bool guard_identifiers_differ(struct comparison *c)
{
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
