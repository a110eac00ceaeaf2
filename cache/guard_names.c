/* guard_names.c - guards over who and what is named: another place, make or person is another question however alike the rest is, and
 * so is a question about what is ruled out against one about what is let in. Names are known from a list (countries, makes), or by a
 * capital inside a sentence that has small letters elsewhere. */
#include "cache/guard_rules.h"

enum { NAME_BYTES_MIN = 2, INSIDE_BYTES_MIN = 4, OPENING_BYTES_MIN = 4 };
enum name_kind { NAME_NONE, NAME_PLACE, NAME_MAKE, NAME_UNKNOWN, NAME_OPENING };

/* "How Do I Pay My Bill" says nothing by its capitals, neither does a text without small letters. */
bool guard_capitals_tell(const struct guard_text *t)
{
    size_t inner = 0, capital = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct guard_token *k = &t->tokens[i];
        if (k->clause_start || k->kind != GT_WORD) continue;
        inner++;
        capital += k->capital;
    }
    return capital * 2 <= inner;
}

static enum name_kind kind_of(const struct guard_token *k, bool by_capitals)
{
    const uint32_t plain = GC_KNOWN | GC_SYNONYM;
    if (k->kind != GT_WORD || !k->content || k->text.n < NAME_BYTES_MIN) return NAME_NONE;
    if (k->classes & GC_PLACE) return NAME_PLACE;
    if (k->classes & GC_MAKE) return NAME_MAKE;
    if (!k->capital || !by_capitals) return NAME_NONE;
    /* every sentence opens with a capital: there only a word that no list knows may be a name */
    if (k->clause_start) return k->word || k->text.n < OPENING_BYTES_MIN ? NAME_NONE : NAME_OPENING;
    return k->classes & ~plain ? NAME_NONE : NAME_UNKNOWN;
}

/* ApplePay for Apple Pay: the letters stand in the other text, blanks left out. */
static bool stands_inside(struct str name, const struct guard_text *t)
{
    char text[GUARD_TEXT_BYTES_MAX];
    size_t n = 0;
    if (name.n < INSIDE_BYTES_MIN) return false;
    for (size_t i = 0; i < t->folded_n && n < sizeof text; i++)
        if (t->folded[i] != ' ' && t->folded[i] != '-') text[n++] = t->folded[i];
    return str_find((struct str){text, n}, name) >= 0;
}

static bool is_named(const struct guard_token *k, const struct guard_text *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (guard_tokens_equal(k, &t->tokens[i])) return true;
    return stands_inside(k->text, t);
}

/* Another one of a kind: a dishwasher for a microwave, my son for my wife. What only one side names is left to the verifier. */
static uint32_t things_missing(const struct guard_text *a, const struct guard_text *b,
                               struct str *first)
{
    uint32_t kinds = 0;
    for (size_t i = 0; i < a->n; i++) {
        const struct guard_token *k = &a->tokens[i];
        if (!k->word || !k->word->thing || is_named(k, b)) continue;
        if (!kinds) *first = k->text;
        kinds |= 1u << k->word->thing;
    }
    return kinds;
}

/* What is bought and sold is one kind against another too: no guitar is a bicycle. */
static uint32_t and_goods(uint32_t kinds)
{
    const uint32_t goods = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5 | 1u << 14;
    return kinds & goods ? kinds | goods : kinds;
}

bool guard_things_differ(struct comparison *c)
{
    struct str a = guard_none, b = guard_none;
    if (!(and_goods(things_missing(c->a, c->b, &a)) & and_goods(things_missing(c->b, c->a, &b))))
        return false;
    return guard_refuse_hard(c->out, "thing", a, b);
}

/* "To Y", "into Y", "> Y", 到Y, 给Y: where something goes. */
static bool is_target(const struct guard_text *t, size_t i)
{
    static const char *const ways[] = {"to", "into", "onto", ">",  "into my", "onto my", "到",
                                       "去", "至",   "往",   "飞", "成",      "换成",    "给"};
    if (!t->tokens[i].content || t->tokens[i].kind == GT_NUMBER) return false;
    while (i > 0 && guard_is_inside(&t->tokens[i - 1]))
        i--;
    for (size_t w = 0; i > 0 && w < sizeof ways / sizeof *ways; w++)
        if (str_eqz(t->tokens[i - 1].text, ways[w])) return true;
    return false;
}

/* A target of a that b names, but as no target. */
static struct str target_elsewhere(const struct guard_text *a, const struct guard_text *b)
{
    for (size_t i = 0; i < a->n; i++) {
        bool named = false, target = false;
        for (size_t j = 0; is_target(a, i) && j < b->n; j++) {
            if (!guard_tokens_equal(&a->tokens[i], &b->tokens[j])) continue;
            named = true;
            target = target || is_target(b, j);
        }
        if (named && !target) return a->tokens[i].text;
    }
    return guard_none;
}

/* From X to Y and X from Y, whatever else is said: each side's target is the other's origin. */
bool guard_ways_differ(struct comparison *c)
{
    struct str a = target_elsewhere(c->a, c->b), b = target_elsewhere(c->b, c->a);
    if (a.p == guard_none.p || b.p == guard_none.p) return false;
    return guard_refuse_hard(c->out, "order", a, b);
}

/* What a names and b does not: bit 1 << kind; *first is one of them. */
static unsigned names_missing(const struct guard_text *a, const struct guard_text *b,
                              struct str *first)
{
    unsigned kinds = 0;
    bool by_capitals = guard_capitals_tell(a);
    for (size_t i = 0; i < a->n; i++) {
        enum name_kind kind = kind_of(&a->tokens[i], by_capitals);
        if (!kind || is_named(&a->tokens[i], b)) continue;
        if (!kinds) *first = a->tokens[i].text;
        kinds |= 1u << kind;
    }
    return kinds;
}

bool guard_names_differ(struct comparison *c)
{
    struct str a = guard_none, b = guard_none;
    unsigned in_a = names_missing(c->a, c->b, &a), in_b = names_missing(c->b, c->a, &b);
    const unsigned opening = 1u << NAME_OPENING;
    if (!(in_a & ~opening) && !(in_b & ~opening)) return false;
    bool either_unknown = (in_a | in_b) & (1u << NAME_UNKNOWN);
    if (in_a && in_b && ((in_a & in_b & ~opening) || either_unknown)) guard_harden(c->out, "name");
    return guard_refuse(c->out, "name", a, b);
}

/* Verbs that rule out, without a "not": a warranty that excludes water against one that has water in it. */
static const struct guard_token *rules_out(const struct guard_text *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->tokens[i].classes & GC_RULES_OUT) return &t->tokens[i];
    return NULL;
}

bool guard_ruled_out_differs(struct comparison *c)
{
    const struct guard_token *a = rules_out(c->a), *b = rules_out(c->b);
    if (!a == !b) return false;
    /* "not covered" and "excluded" are one */
    if ((c->a->negations ^ c->b->negations) & 1) return false;
    if (guard_close(c)) guard_harden(c->out, "ruled_out");
    return guard_refuse(c->out, "ruled_out", a ? a->text : guard_none, b ? b->text : guard_none);
}
