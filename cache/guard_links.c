/* guard_links.c - guards over the small words that tie the others together: a bus to the airport is not a bus at the airport, a
 * passport and a visa are not a passport or a visa. Prepositions that often stand for each other (in and with, of and for) pass. */
#include "cache/guard_rules.h"

enum link {
    LINK_NONE,
    LINK_PLACE,
    LINK_TO,
    LINK_FROM,
    LINK_FOR,
    LINK_BY,
    LINK_WITH,
    LINK_AS,
    LINK_ABOUT,
    LINK_OF
};

static enum link link_of(struct str s)
{
    static const struct {
        const char *text;
        enum link link;
    } links[] = {{"in", LINK_PLACE},        {"on", LINK_PLACE},   {"at", LINK_PLACE},
                 {"to", LINK_TO},           {"into my", LINK_TO}, {"onto my", LINK_TO},
                 {"from my", LINK_FROM},    {"from", LINK_FROM},  {"for", LINK_FOR},
                 {"by", LINK_BY},           {"with", LINK_WITH},  {"as", LINK_AS},
                 {"about", LINK_ABOUT},     {"of", LINK_OF},      {"regarding", LINK_ABOUT},
                 {"concerning", LINK_ABOUT}};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (str_eqz(s, links[i].text)) return links[i].link;
    return LINK_NONE;
}

/* What ties token i to what stands before it. */
static enum link link_before(const struct guard_text *t, size_t i)
{
    while (i > 0 && !t->tokens[i].clause_start && guard_is_inside(&t->tokens[i - 1]))
        i--;
    return i > 0 && !t->tokens[i].clause_start ? link_of(t->tokens[i - 1].text) : LINK_NONE;
}

static bool either(enum link a, enum link b, enum link x, enum link y)
{
    return (a == x && b == y) || (a == y && b == x);
}

static bool is_span(const struct guard_token *k) /* "a week" is read like "weekly" */
{
    return k->kind == GT_NUMBER || (k->classes & GC_UNIT) || str_eqz(k->canon, "daily") ||
           str_eqz(k->canon, "weekly") || str_eqz(k->canon, "monthly") ||
           str_eqz(k->canon, "yearly") || str_eqz(k->canon, "hourly");
}

static bool links_clash(enum link a, enum link b, const struct guard_token *k)
{
    if (a == LINK_NONE || b == LINK_NONE || a == b) return false;
    if (a == LINK_OF || b == LINK_OF) return false; /* the price of, for; the capital of, in */
    bool counted = k->kind == GT_NUMBER || k->kind == GT_DATE || k->kind == GT_TIME ||
                   (k->classes & (GC_UNIT | GC_DATE));
    if (either(a, b, LINK_PLACE, LINK_WITH)) return false;     /* in Python, with Python */
    if (either(a, b, LINK_PLACE, LINK_ABOUT)) return false;    /* tips on, about */
    if (either(a, b, LINK_WITH, LINK_BY)) return counted;      /* with a card, by card */
    if (either(a, b, LINK_PLACE, LINK_BY)) return counted;     /* by Monday, on Monday */
    if (either(a, b, LINK_PLACE, LINK_FOR)) return is_span(k); /* for a week, in a week */
    return true;
}

static bool is_and(struct str s)
{
    return str_eqz(s, "and") || str_eqz(s, "和") || str_eqz(s, "跟") || str_eqz(s, "与") ||
           str_eqz(s, "及");
}

static bool is_or(struct str s)
{
    return str_eqz(s, "or") || str_eqz(s, "或") || str_eqz(s, "或者") || str_eqz(s, "还是");
}

/* Joints between two words of content; clauses may be joined as one likes. */
static void count_joints(const struct guard_text *t, size_t *ands, size_t *ors)
{
    *ands = *ors = 0;
    for (size_t i = 1; i + 1 < t->n; i++) {
        size_t j = i + 1;
        while (j + 1 < t->n && guard_is_inside(&t->tokens[j]))
            j++;
        if (!t->tokens[i - 1].content || !t->tokens[j].content || t->tokens[i].clause_start)
            continue;
        *ands += is_and(t->tokens[i].text);
        *ors += is_or(t->tokens[i].text);
    }
}

bool guard_links_differ(struct comparison *c)
{
    if (!guard_close(c)) return false;
    size_t ands_a, ors_a, ands_b, ors_b;
    count_joints(c->a, &ands_a, &ors_a);
    count_joints(c->b, &ands_b, &ors_b);
    if ((ands_a > ands_b && ors_b > ors_a) || (ands_b > ands_a && ors_a > ors_b))
        return guard_refuse(c->out, "link", STR("and"), STR("or"));
    for (size_t i = 0; i < c->a->n; i++) {
        size_t j = c->align.partner[i];
        if (j == GUARD_NO_PARTNER || j >= c->b->n) continue;
        /* "for opening", "to open": a verb in another form takes another preposition */
        if (c->a->tokens[i].kind == GT_WORD && !str_eq(c->a->tokens[i].text, c->b->tokens[j].text))
            continue;
        if (links_clash(link_before(c->a, i), link_before(c->b, j), &c->a->tokens[i]))
            return guard_refuse(c->out, "link", c->a->tokens[i].text, c->b->tokens[j].text);
    }
    return false;
}
