/* guard_writing.c - a guard over the same words written otherwise where that makes them others: accents (resume, résumé),
 * capitals (polish, Polish), commas and dashes between words (eggs, milk and chocolate; eggs, milk chocolate; Mon-Fri;
 * Mon, Fri). What people leave out in a hurry is no difference: accents of loan words and names, capitals of most words,
 * commas of clauses. Refuses as "identifier". Pure. */
#include "cache/guard_rules.h"

/* May the accents of this word be left out? */
static bool may_lose_accents(const struct guard_token *k)
{
    const struct guard_word *w = k->word;
    if (w && (w->loan || (w->classes & (GC_PLACE | GC_MAKE)))) return true;
    return k->capital && !k->clause_start && !w;
}

static bool accents_differ(const struct guard_token *a, const struct guard_token *b)
{
    return a->accented != b->accented && str_eq(a->text, b->text) &&
           !may_lose_accents(a->accented ? a : b);
}

static bool capitals_differ(const struct comparison *c, const struct guard_token *a,
                            const struct guard_token *b)
{
    const struct guard_word *w = a->word ? a->word : b->word;
    if (!w || !w->cased || a->capital == b->capital || !str_eq(a->text, b->text)) return false;
    const struct guard_token *capital = a->capital ? a : b;
    const struct guard_text *large = a->capital ? c->a : c->b, *small = a->capital ? c->b : c->a;
    if (capital->clause_start || (large->n > 3 && !guard_capitals_tell(large))) return false;
    return w->cased == GUARD_CASE_ALWAYS || small->writer_minds_case;
}

enum joint { JOINT_UNKNOWN, JOINT_NONE, JOINT_COMMA, JOINT_RANGE, JOINT_BOTH };

static bool follows_between(const struct guard_text *t, size_t i)
{
    for (size_t k = 0; k <= 3 && k <= i; k++)
        if (str_ends(t->tokens[i - k].text, STR("between"))) return true;
    return false;
}

/* Of the text between two tokens that stand side by side. */
static enum joint joint_between(const struct guard_text *t, const struct guard_token *a,
                                const struct guard_token *b)
{
    const char *from = a->text.p + a->text.n, *to = b->text.p, *end = t->folded + t->folded_n;
    if (from < t->folded || from > end || to < from || to > end) return JOINT_UNKNOWN;
    enum joint joint = JOINT_NONE;
    for (; from < to; from++) {
        /* not side by side any more, or with a word between that says nothing */
        bool word = (*from >= 'a' && *from <= 'z') || (*from >= '0' && *from <= '9') ||
                    (unsigned char)*from >= 0x80;
        if (word || *from == '/') return JOINT_UNKNOWN;
        if (*from == '-')
            joint = JOINT_RANGE;
        else if (*from != ' ' || a->kind == GT_HAN) /* in Chinese a blank is one */
            joint = JOINT_COMMA;
    }
    return joint;
}

/* What stands between token i and the next one of content, *next. */
static enum joint joint_behind(const struct guard_text *t, size_t i, size_t *next)
{
    static const char *const both[] = {"and", "or", "&", "和", "跟", "与", "及", "或", NULL},
                             *const range[] = {"to",   "till", "until", "through",
                                               "thru", "至",   "到",    NULL};
    enum joint joint = JOINT_UNKNOWN;
    for (*next = i + 1; *next < t->n && !t->tokens[*next].content; ++*next) {
        if (guard_one_of(t->tokens[*next].text, both)) joint = JOINT_BOTH;
        if (!joint && guard_one_of(t->tokens[*next].text, range)) joint = JOINT_RANGE;
    }
    if (*next >= t->n) return JOINT_UNKNOWN;
    if (joint == JOINT_BOTH && follows_between(t, i)) return JOINT_RANGE;
    if (joint) return joint;
    return *next > i + 1 ? JOINT_NONE : joint_between(t, &t->tokens[i], &t->tokens[i + 1]);
}

/* A day, a time, a number, a name: what "from .. to" may stand between. */
static bool may_bound(const struct guard_token *k)
{
    return k->kind == GT_NUMBER || k->kind == GT_DATE || k->kind == GT_TIME || k->capital ||
           (k->classes & (GC_DATE | GC_MONTH | GC_PLACE | GC_CLOCK));
}

/* "Eggs, milk and flour": behind token i the list goes on to an "and". */
static bool counts_up(const struct guard_text *t, size_t i)
{
    size_t next = i;
    for (int steps = 0; steps < 4; steps++, i = next) {
        enum joint joint = joint_behind(t, i, &next);
        if (next >= t->n) return false;
        if (steps && joint == JOINT_BOTH) return true;
        if (next > i + 1) return false;
    }
    return false;
}

/* Nothing but the signs between the words tells them apart. */
static bool same_tokens(const struct comparison *c)
{
    for (size_t i = 0; i < c->a->n && i < c->b->n; i++)
        if (!str_eq(c->a->tokens[i].text, c->b->tokens[i].text)) return false;
    return c->a->n == c->b->n;
}

static bool joints_differ(const struct comparison *c, size_t i, size_t j)
{
    size_t next_a, next_b;
    enum joint a = joint_behind(c->a, i, &next_a), b = joint_behind(c->b, j, &next_b);
    if (a == b || !a || !b || c->align.partner[next_a] != next_b) return false;
    bool bound = may_bound(&c->a->tokens[i]) && may_bound(&c->a->tokens[next_a]);
    if (a == JOINT_RANGE || b == JOINT_RANGE) return bound && a != JOINT_NONE && b != JOINT_NONE;
    static const char *const clause[] = {"but",      "because", "since", "while",
                                         "although", "though",  NULL};
    if (a == JOINT_BOTH || b == JOINT_BOTH || next_a > i + 1 || next_b > j + 1 ||
        guard_one_of(c->a->tokens[next_a].text, clause))
        return false;
    /* a comma against nothing: clauses are cut as one likes, lists are not */
    if (c->a->scripts & c->b->scripts & GS_HAN)
        return str_find(a == JOINT_COMMA ? c->text_a : c->text_b, STR("、")) >= 0;
    return same_tokens(c) || counts_up(a == JOINT_COMMA ? c->a : c->b, a == JOINT_COMMA ? i : j);
}

/* "No, refunds are possible", "no refunds are possible". */
static bool answers_no(struct str text)
{
    text = str_trim(text);
    return str_starts(text, STR("No,")) || str_starts(text, STR("no,")) ||
           str_starts(text, STR("不，")) || str_starts(text, STR("不,"));
}

bool guard_writing_differs(struct comparison *c)
{
    if (answers_no(c->text_a) != answers_no(c->text_b))
        return guard_refuse_hard(c->out, "identifier", STR("no,"), guard_none);
    for (size_t i = 0; i < c->a->n; i++) {
        size_t j = c->align.partner[i];
        if (j == GUARD_NO_PARTNER || j >= c->b->n) continue;
        const struct guard_token *a = &c->a->tokens[i], *b = &c->b->tokens[j];
        if (accents_differ(a, b) || capitals_differ(c, a, b) || joints_differ(c, i, j))
            return guard_refuse_hard(c->out, "identifier", a->text, b->text);
    }
    return false;
}
