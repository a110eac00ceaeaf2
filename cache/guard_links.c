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
    LINK_OF,
    LINK_OBJECT /* pay for, wait for: the preposition belongs to the verb */
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
    static const char *const asking[] = {"wait", "waiting", "ask",  "asking", "pay",
                                         "call", "apply",   "care", NULL};
    while (i > 0 && !t->tokens[i].clause_start && guard_is_inside(&t->tokens[i - 1]))
        i--;
    if (i == 0 || t->tokens[i].clause_start) return LINK_NONE;
    struct str before = t->tokens[i - 1].text;
    if (str_ends(before, STR(" for")) && t->tokens[i - 1].content) return LINK_OBJECT;
    if (i > 1 && str_eqz(before, "for") && guard_one_of(t->tokens[i - 2].text, asking))
        return LINK_OBJECT;
    return link_of(before);
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
    if (either(a, b, LINK_FOR, LINK_OBJECT)) return false;
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

/* Wanted or had: "I want a loan", "I have a loan". Helping verbs ("have lost", "have to") say neither. */
static void wished_and_had(const struct guard_text *t, bool *wished, bool *had)
{
    *wished = *had = false;
    for (size_t i = 0; i < t->n_units; i++) {
        struct str s = t->units[i].text;
        *wished = *wished || str_eqz(s, "want") || str_eqz(s, "wants") || str_eqz(s, "need") ||
                  str_eqz(s, "needs");
        struct str next = i + 1 < t->n_units ? t->units[i + 1].text : (struct str){"", 0};
        bool object = str_eqz(next, "a") || str_eqz(next, "an") || str_eqz(next, "the") ||
                      str_eqz(next, "my") || str_eqz(next, "no");
        *had = *had || (object && (str_eqz(s, "have") || str_eqz(s, "has") || str_eqz(s, "had") ||
                                   str_eqz(s, "got")));
    }
}

static bool wish_differs(const struct guard_text *a, const struct guard_text *b)
{
    bool wished_a, had_a, wished_b, had_b;
    wished_and_had(a, &wished_a, &had_a);
    wished_and_had(b, &wished_b, &had_b);
    return (wished_a && !had_a && had_b && !wished_b) || (wished_b && !had_b && had_a && !wished_a);
}

/* 我想 and 我要 wish, 我有 and 我会 say what is. */
static bool wish_differs_in_chinese(const struct guard_text *a, const struct guard_text *b)
{
    const struct guard_text *t[2] = {a, b};
    int wish[2] = {-1, -1};
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i + 1 < t[side]->n_units && wish[side] < 0; i++) {
            struct str next = t[side]->units[i + 1].text;
            if (!str_eqz(t[side]->units[i].text, "我")) continue;
            wish[side] = str_eqz(next, "想") || str_eqz(next, "要")   ? 1
                         : str_eqz(next, "有") || str_eqz(next, "会") ? 0
                                                                      : -1;
        }
    return wish[0] >= 0 && wish[1] >= 0 && wish[0] != wish[1];
}

/* "Sell to children", "sell children": without "to" it is what is sold. */
static bool given_differs(const struct comparison *c, size_t i, size_t j)
{
    static const char *const giving[] = {"sell", "lend",  "rent",  "hire", "hand",
                                         "feed", "sells", "lends", NULL};
    bool to_a = i + 1 < c->a->n && str_eqz(c->a->tokens[i + 1].text, "to"),
         to_b = j + 1 < c->b->n && str_eqz(c->b->tokens[j + 1].text, "to");
    if (to_a == to_b || !guard_one_of(c->a->tokens[i].text, giving)) return false;
    size_t next_a = i + 1 + to_a, next_b = j + 1 + to_b;
    while (next_a < c->a->n && guard_is_inside(&c->a->tokens[next_a]))
        next_a++;
    while (next_b < c->b->n && guard_is_inside(&c->b->tokens[next_b]))
        next_b++;
    return next_a < c->a->n && c->align.partner[next_a] == next_b;
}

/* For you, with you, from you: the first of such, LINK_NONE when there is none. */
static enum link link_to_person(const struct guard_text *t)
{
    static const char *const persons[] = {"you", "me", "us", NULL};
    for (size_t i = 1; i < t->n_units; i++) {
        if (!guard_unit_in(t, i, persons) || t->units[i].clause_start) continue;
        enum link link = link_of(t->units[i - 1].text);
        if (link == LINK_FOR || link == LINK_WITH || link == LINK_FROM || link == LINK_ABOUT)
            return link;
    }
    return LINK_NONE;
}

static const struct guard_token *word_before(const struct guard_text *t, size_t i)
{
    return i > 0 && !t->tokens[i].clause_start ? &t->tokens[i - 1] : NULL;
}

bool guard_is_done_to(const struct guard_text *t, size_t i)
{
    static const char *const helpers[] = {"be",    "is",  "are",  "am",  "was",     "were", "been",
                                          "being", "get", "gets", "got", "getting", NULL};
    const struct guard_token *k = word_before(t, i);
    struct str verb = t->tokens[i].text;
    bool locked = str_starts(verb, STR("locked out"));
    return k && guard_one_of(k->text, helpers) && (locked || guard_is_participle(verb));
}

static bool is_done_by(const struct guard_text *t, size_t i)
{
    const struct guard_token *k = word_before(t, i);
    bool actor = k && ((k->classes & (GC_PERSON1 | GC_PERSON2)) || str_eqz(k->text, "to") ||
                       str_ends(k->text, STR(" i")) || str_ends(k->text, STR(" you")) ||
                       str_ends(k->text, STR(" we")));
    /* I locked it; not "was I charged" */
    static const char *const be[] = {"is", "are", "am", "was", "were", "been", NULL};
    bool alone = k && (str_eqz(k->text, "i") || str_eqz(k->text, "we")) &&
                 (k->clause_start || i < 2 || !guard_one_of(t->tokens[i - 2].text, be));
    return actor && (alone || !guard_is_participle(t->tokens[i].text));
}

/* The word of content right before both is one and the same: the tenant be evicted, the tenant evict. */
static bool same_subject(const struct comparison *c, size_t i, size_t j)
{
    while (i > 0 && !c->a->tokens[i].clause_start && !c->a->tokens[i - 1].content)
        i--;
    while (j > 0 && !c->b->tokens[j].clause_start && !c->b->tokens[j - 1].content)
        j--;
    return i > 0 && j > 0 && !c->a->tokens[i].clause_start && !c->b->tokens[j].clause_start &&
           c->align.partner[i - 1] == j - 1;
}

/* When do I pay, when do I get paid. */
static bool voice_differs(const struct comparison *c, size_t i, size_t j)
{
    bool to_a = guard_is_done_to(c->a, i), to_b = guard_is_done_to(c->b, j);
    if (to_a == to_b) return false;
    if (to_a ? is_done_by(c->b, j) : is_done_by(c->a, i)) return true;
    struct str active = to_a ? c->b->tokens[j].text : c->a->tokens[i].text;
    return !guard_is_participle(active) && same_subject(c, i, j);
}

/* 这里, 那里 */
static bool points(const struct guard_text *t, struct str at)
{
    for (size_t i = 0; i + 1 < t->n_units; i++)
        if (str_eq(t->units[i].text, at) &&
            (str_eqz(t->units[i + 1].text, "里") || str_eqz(t->units[i + 1].text, "边") ||
             str_eqz(t->units[i + 1].text, "儿")))
            return true;
    return false;
}

bool guard_links_differ(struct comparison *c)
{
    if (!guard_close(c)) return false;
    if (wish_differs(c->a, c->b) || wish_differs_in_chinese(c->a, c->b))
        return guard_refuse(c->out, "link", STR("want"), STR("have"));
    bool here_a = points(c->a, STR("这")), here_b = points(c->b, STR("这"));
    if (here_a != here_b && points(here_a ? c->b : c->a, STR("那")))
        return guard_refuse(c->out, "link", STR("这里"), STR("那里"));
    enum link person_a = link_to_person(c->a), person_b = link_to_person(c->b);
    if (person_a && person_b && person_a != person_b &&
        (person_a == LINK_FOR || person_b == LINK_FOR))
        return guard_refuse_hard(c->out, "link", STR("for you"), STR("with you"));
    size_t ands_a, ors_a, ands_b, ors_b;
    count_joints(c->a, &ands_a, &ors_a);
    count_joints(c->b, &ands_b, &ors_b);
    if ((ands_a > ands_b && ors_b > ors_a) || (ands_b > ands_a && ors_a > ors_b))
        return guard_refuse(c->out, "link", STR("and"), STR("or"));
    for (size_t i = 0; i < c->a->n; i++) {
        size_t j = c->align.partner[i];
        if (j == GUARD_NO_PARTNER || j >= c->b->n) continue;
        if (!c->voice_explained && voice_differs(c, i, j))
            return guard_refuse(c->out, "link", c->a->tokens[i].text, c->b->tokens[j].text);
        if (given_differs(c, i, j))
            return guard_refuse_hard(c->out, "link", STR("to"), c->a->tokens[i].text);
        /* "for opening", "to open": a verb in another form takes another preposition */
        if (c->a->tokens[i].kind == GT_WORD && !str_eq(c->a->tokens[i].text, c->b->tokens[j].text))
            continue;
        if (links_clash(link_before(c->a, i), link_before(c->b, j), &c->a->tokens[i]))
            return guard_refuse(c->out, "link", c->a->tokens[i].text, c->b->tokens[j].text);
    }
    return false;
}
