/* guard.c - the chain of guards. Each returns true when it refuses and says what differs. Order: cheap and certain first. The
 * rules follow kinds of difference (a number, an opposite, an order), never single sentences; tests/unit/cache/test_guard.c prints
 * what they catch and what they cost. */
#include "cache/guard.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cache/guard_align.h"

const char *const guard_names[] = {"length", "script", "language", "identifier", "number", "unit", "currency", "time", "date", "relative_time", "negation", "quantifier",
                                   "question", "modality", "tense", "antonym", "order", "subject", "replaced_word", "added_word", "no_content", NULL};

struct guard {
    struct guard_lexicon *lexicon;
};
struct comparison {
    const struct guard *g;
    struct guard_text *a, *b;
    struct guard_alignment align;
    struct guard_verdict *out;
};

struct guard *guard_new(void)
{
    struct guard *g = xcalloc(1, sizeof *g);
    g->lexicon = guard_lexicon_new();
    return g;
}

void guard_free(struct guard *g)
{
    if (!g) return;
    guard_lexicon_free(g->lexicon);
    mem_free(g);
}

static bool refuse(struct guard_verdict *v, const char *name, struct str a, struct str b)
{
    v->refused_by = name;
    int n = snprintf(v->detail, sizeof v->detail, STR_FMT " / " STR_FMT, STR_ARG(a.n > 24 ? str_sub(a, 0, 24) : a), STR_ARG(b.n > 24 ? str_sub(b, 0, 24) : b));
    size_t cut = utf8_complete((struct str){v->detail, n < 0 ? 0 : strlen(v->detail)});
    v->detail[cut] = 0;
    return true;
}

static const struct str none = {"-", 1};

/* --- writing */
static bool script_differs(struct comparison *c)
{
    unsigned a = c->a->scripts, b = c->b->scripts;
    /* Latin words inside Chinese text are common, so Latin alone decides nothing once both have another script */
    unsigned mask = (a & b & ~(unsigned)GS_LATIN) ? ~(unsigned)GS_LATIN : ~0u;
    if ((a & mask) == (b & mask)) return false;
    return refuse(c->out, "script", none, none);
}

static int main_language(const struct guard_text *t)
{
    int best = 0, n = 1;
    for (int i = 1; i < 8; i++)
        if (t->foreign_words[i] > n && t->foreign_words[i] > t->english_words) best = i, n = t->foreign_words[i];
    return best ? best : t->english_words >= 2 ? 100 : 0;
}

static bool language_differs(struct comparison *c)
{
    int a = main_language(c->a), b = main_language(c->b);
    return a && b && a != b && refuse(c->out, "language", none, none);
}

/* --- things that must be equal one by one */
static const struct guard_token *unmatched(const struct guard_text *a, const struct guard_text *b, int kind, uint32_t classes)
{
    bool used[GUARD_TOKENS_MAX] = {0};
    for (size_t i = 0; i < a->n; i++) {
        const struct guard_token *k = &a->tokens[i];
        if ((classes ? !(k->classes & classes) || k->kind == GT_NUMBER : k->kind != kind) || k->weak) continue;
        bool found = false;
        for (size_t j = 0; j < b->n && !found; j++) {
            const struct guard_token *m = &b->tokens[j];
            bool same_kind = classes ? (m->classes & classes) && m->kind != GT_NUMBER : m->kind == kind;
            if (used[j] || !same_kind || !str_eq(k->canon, m->canon)) continue;
            used[j] = found = true;
        }
        if (!found) return k;
    }
    return NULL;
}

static bool multiset_differs(struct comparison *c, int kind, uint32_t classes, const char *name)
{
    const struct guard_token *a = unmatched(c->a, c->b, kind, classes), *b = unmatched(c->b, c->a, kind, classes);
    if (!a && !b) return false;
    return refuse(c->out, name, a ? a->text : none, b ? b->text : none);
}

/* Numbers by value; a number read as one may stand against nothing ("one message", "a message"). */
static bool numbers_differ(struct comparison *c)
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
                    if (used[j] || m->kind != GT_NUMBER || !str_eq(k->canon, m->canon) || (!pass && !str_eq(k->unit, m->unit))) continue;
                    used[j] = true;
                    found = m;
                }
            }
            if (!found && k->weak) continue;
            if (!found) return refuse(c->out, "number", k->text, none);
            if (!str_eq(found->unit, k->unit) && !(found->weak || k->weak))
                return refuse(c->out, str_starts(k->unit, STR("cur:")) || str_starts(found->unit, STR("cur:")) ? "currency" : "unit", k->text, found->text);
        }
    }
    return false;
}

/* Every currency named, as a unit or alone. Single characters (块) name one only behind a number. */
static bool names_currency(const struct guard_text *t, struct str canon)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct guard_token *k = &t->tokens[i];
        if (k->kind == GT_NUMBER ? str_eq(k->unit, canon) : k->word && (k->word->classes & GC_CURRENCY) && str_eq(k->canon, canon)) return true;
    }
    return false;
}

static bool currencies_differ(struct comparison *c)
{
    const struct guard_text *t[2] = {c->a, c->b};
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < t[side]->n; i++) {
            const struct guard_token *k = &t[side]->tokens[i];
            bool alone = k->word && (k->word->classes & GC_CURRENCY) && k->kind != GT_NUMBER && !(k->kind == GT_HAN && k->text.n <= 3);
            if (alone && !names_currency(t[1 - side], k->canon)) return refuse(c->out, "currency", k->text, none);
        }
    return false;
}

static bool dates_differ(struct comparison *c)
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
                if (m->kind != GT_DATE && !(m->kind != GT_NUMBER && (m->classes & GC_DATE))) continue;
                struct str x = str_starts(k->canon, STR("date:--")) ? str_sub(k->canon, 6, 99) : str_starts(k->canon, STR("d:")) ? str_sub(k->canon, 2, 99) : k->canon;
                struct str y = str_starts(m->canon, STR("date:--")) ? str_sub(m->canon, 6, 99) : str_starts(m->canon, STR("d:")) ? str_sub(m->canon, 2, 99) : m->canon;
                found = str_eq(x, y);
            }
            if (!found) return refuse(c->out, "date", k->text, none);
        }
    return false;
}

/* --- what is said as a whole */
static bool negation_differs(struct comparison *c)
{
    if (((c->a->negations ^ c->b->negations) & 1) == 0) return false;
    return refuse(c->out, "negation", none, none);
}

/* The content right behind "only": members only may, members may only. */
static struct str only_about(const struct guard_text *t)
{
    for (size_t i = 0; i < t->n; i++) {
        if (!t->tokens[i].word || t->tokens[i].word->quant != GK_ONLY) continue;
        for (size_t j = i + 1; j < t->n; j++)
            if (t->tokens[j].content) return t->tokens[j].canon;
        return (struct str){"", 0};
    }
    return (struct str){"", 0};
}

static bool has_weak_one(const struct guard_text *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->tokens[i].kind == GT_NUMBER && t->tokens[i].weak) return true;
    return false;
}

static bool quantifier_differs(struct comparison *c)
{
    const unsigned strong = ~(1u << GK_ANY | 1u << GK_MANY);
    unsigned a = c->a->quants & strong, b = c->b->quants & strong;
    if (a != b) return refuse(c->out, "quantifier", none, none);
    if (c->a->quants != c->b->quants && (has_weak_one(c->a) || has_weak_one(c->b))) return refuse(c->out, "quantifier", none, none);
    if ((a & 1u << GK_ONLY) && !str_eq(only_about(c->a), only_about(c->b))) return refuse(c->out, "quantifier", only_about(c->a), only_about(c->b));
    return false;
}

/* 多少 stands for how much, how many, how far: as vague as the other side needs it. */
static unsigned as_vague_as(unsigned mask, unsigned other)
{
    const unsigned amounts = 1u << GQ_HOWMUCH | 1u << GQ_HOWMANY | 1u << GQ_HOWFAR;
    if ((other & 1u << GQ_AMOUNT) && !(mask & 1u << GQ_AMOUNT) && (mask & amounts)) return (mask & ~amounts) | 1u << GQ_AMOUNT;
    return mask;
}

static const char *const question_names[] = {"", "how", "how much", "how many", "how long", "how often", "how far", "when", "where", "who", "why", "which", "what", "yes/no", "amount"};

static struct str question_text(unsigned mask)
{
    for (unsigned i = 1; i <= GQ_AMOUNT; i++)
        if (mask & 1u << i) return str_of(question_names[i]);
    return none;
}

/* Kinds of question that both spell out and that differ. Vague "what" stands for many. */
static bool question_differs(struct comparison *c)
{
    const unsigned vague = 1u << GQ_WHAT | 1u << GQ_WHICH;
    unsigned a = as_vague_as(c->a->questions, c->b->questions), b = as_vague_as(c->b->questions, c->a->questions);
    if (a & ~vague) a &= ~vague;
    if (b & ~vague) b &= ~vague;
    c->out->asks_alike = a == b || !a || !b;
    if (!a || !b || (a & b)) return false;
    if ((a & vague) && (b & vague)) return false;
    bool one_vague = (a & vague) || (b & vague);
    bool close = c->out->shared >= 0.5f;
    if (one_vague && !close) return false;
    return refuse(c->out, "question", question_text(a), question_text(b));
}

static unsigned duty(unsigned modals)
{
    return modals & 1u << GM_NEED ? (modals & ~(1u << GM_NEED)) | 1u << GM_MUST : modals;
}

static bool modality_differs(struct comparison *c)
{
    /* in how and where questions "can", "do" and "should" ask the same */
    const unsigned manner = 1u << GQ_HOW | 1u << GQ_WHERE, amount = 1u << GQ_HOWMANY | 1u << GQ_HOWMUCH | 1u << GQ_HOWLONG | 1u << GQ_HOWFAR;
    const unsigned open = ~(1u << GQ_YESNO), must = 1u << GM_MUST, can = 1u << GM_CAN;
    unsigned qa = c->a->questions, qb = c->b->questions;
    if ((qa | qb) & manner) return false;
    unsigned a = duty(c->a->modals), b = duty(c->b->modals);
    bool close = c->out->shared >= 0.5f;
    if (a && b && !(a & b)) return refuse(c->out, "modality", none, none);
    if (close && a && b && ((a ^ b) & must)) return refuse(c->out, "modality", none, none);
    if (close && (qa & qb & amount) && a != b) return refuse(c->out, "modality", none, none); /* how many may, how many do */
    if ((qa | qb) & open) return false;
    if (((c->a->modals & must) && !b) || ((c->b->modals & must) && !a)) return refuse(c->out, "modality", none, none);
    if (close && ((c->a->asks_be && !a && (b & can)) || (c->b->asks_be && !b && (a & can)))) return refuse(c->out, "modality", none, none); /* is it, can it be */
    return false;
}

static bool tense_differs(struct comparison *c)
{
    const unsigned can = 1u << GM_CAN;
    bool chinese = c->a->scripts & c->b->scripts & GS_HAN;
    if (chinese && c->out->shared >= 0.5f && c->a->past != c->b->past && ((c->a->past ? c->b : c->a)->modals & can) && !((c->a->past ? c->a : c->b)->modals & can))
        return refuse(c->out, "tense", none, none); /* 到账了吗, 能到账吗 */
    bool clash = (c->a->past && c->b->future && !c->b->past && !c->a->future) || (c->b->past && c->a->future && !c->a->past && !c->b->future);
    return clash && refuse(c->out, "tense", none, none);
}

/* --- words */
static bool negated_form(struct str a, struct str b) /* b = un-, dis-, in-, im-, ir-, non-, de- + a */
{
    static const char *const prefixes[] = {"un", "dis", "in", "im", "ir", "il", "non", "de", "mis"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        struct str p = str_of(prefixes[i]);
        if (a.n >= 4 && b.n == a.n + p.n && str_starts(b, p) && str_ends(b, a)) return true;
    }
    return false;
}

static bool opposites(struct comparison *c)
{
    const struct guard_alignment *al = &c->align;
    for (size_t i = 0; i < al->n_left_a; i++)
        for (size_t j = 0; j < al->n_left_b; j++) {
            const struct guard_token *a = &c->a->tokens[al->left_a[i]], *b = &c->b->tokens[al->left_b[j]];
            bool prefixed = a->kind == GT_WORD && b->kind == GT_WORD && (negated_form(a->text, b->text) || negated_form(b->text, a->text));
            if (prefixed || guard_lexicon_opposite(c->g->lexicon, a->canon, b->canon)) return refuse(c->out, "antonym", a->text, b->text);
        }
    return false;
}

/* Tokens of a class, two or more of them on both sides, in another order. */
static bool sequence_differs(const struct guard_text *a, const struct guard_text *b, uint32_t classes)
{
    struct str sa[8], sb[8];
    size_t na = 0, nb = 0;
    for (size_t i = 0; i < a->n && na < 8; i++)
        if ((a->tokens[i].classes & classes) || (classes == GC_QUANT && a->tokens[i].weak)) sa[na++] = a->tokens[i].canon;
    for (size_t i = 0; i < b->n && nb < 8; i++)
        if ((b->tokens[i].classes & classes) || (classes == GC_QUANT && b->tokens[i].weak)) sb[nb++] = b->tokens[i].canon;
    if (na < 2 || na != nb) return false;
    for (size_t i = 0; i < na; i++)
        if (!str_eq(sa[i], sb[i])) return true;
    return false;
}

static void swap_tokens(struct guard_token *x, struct guard_token *y)
{
    struct guard_token keep = *x;
    *x = *y;
    *y = keep;
}

static void reverse(struct guard_token *k, size_t from, size_t to)
{
    while (from + 1 < to) swap_tokens(&k[from++], &k[--to]);
}

/* The tokens up to and with at go behind the rest; undone by rotating at the rest's length. */
static void rotate(struct guard_text *t, size_t at)
{
    reverse(t->tokens, 0, at);
    reverse(t->tokens, at, t->n);
    reverse(t->tokens, 0, t->n);
}

static bool joins_alike(struct str s)
{
    return str_eqz(s, "and") || str_eqz(s, "or") || str_eqz(s, "和") || str_eqz(s, "跟") || str_eqz(s, "与") || str_eqz(s, "或") || str_eqz(s, "及");
}

static bool one_of(struct str s, const char *const *list)
{
    for (; *list; list++)
        if (str_eqz(s, *list)) return true;
    return false;
}

/* The preposition that governs a word: "from" for both words of "from my old account". Empty = none. */
static struct str governor(const struct guard_text *t, size_t i)
{
    static const char *const prepositions[] = {"in", "on", "at", "to", "for", "from", "by", "with", "without", "of", "than", "as", "into", "onto", "about", "over", "under", "between",
                                               "before", "after", "until", "via", "per", "during", "within", "inside", "outside", "near", "behind", "through", "since", "towards", NULL};
    static const char *const inside[] = {"the", "a", "an", "my", "your", "our", "their", "his", "her", "its", "this", "that", "these", "those", NULL};
    while (i > 0 && !t->tokens[i].clause_start) {
        const struct guard_token *k = &t->tokens[--i];
        if (one_of(k->text, prepositions)) return k->text;
        if (!k->content && !one_of(k->text, inside)) break;
    }
    return (struct str){"", 0};
}

/* A phrase with a preposition of its own may stand anywhere: "in Python, how do I", "from Humla into Tonebox". Every pair of words
 * in another order must have one in such a phrase that is governed alike on both sides, and never two under the same preposition. */
static bool phrases_moved(const struct comparison *c)
{
    const struct guard_alignment *al = &c->align;
    for (size_t i = 0; i < c->a->n; i++)
        for (size_t j = i + 1; j < c->a->n; j++) {
            if (al->partner[i] == GUARD_NO_PARTNER || al->partner[j] == GUARD_NO_PARTNER || al->partner[i] < al->partner[j]) continue;
            struct str gi = governor(c->a, i), gj = governor(c->a, j), hi = governor(c->b, al->partner[i]), hj = governor(c->b, al->partner[j]);
            if (!str_eq(gi, hi) || !str_eq(gj, hj) || str_eq(gi, gj)) return false;
        }
    return true;
}

/* Orders that mean the same: A and B, B and A; clauses; phrases with a preposition; in Chinese O 怎么 V, 怎么 V O. True when one of them explains everything that moved;
 * the alignment is then the better one. */
static bool order_explained(struct comparison *c)
{
    struct guard_alignment best;
    struct guard_text *t = c->a;
    bool found = false;
    for (size_t i = 1; i + 1 < t->n && !found; i++) {
        if (!joins_alike(t->tokens[i].text) || !t->tokens[i - 1].content || !t->tokens[i + 1].content) continue;
        swap_tokens(&t->tokens[i - 1], &t->tokens[i + 1]);
        guard_align(c->a, c->b, &best);
        found = !best.moved;
        if (!found) swap_tokens(&t->tokens[i - 1], &t->tokens[i + 1]);
    }
    for (int side = 0; side < 2 && !found && (c->a->scripts & c->b->scripts & GS_HAN); side++) {
        t = side ? c->b : c->a;
        const struct guard_text *other = side ? c->a : c->b;
        if (t->how_at >= t->n || other->how_at >= other->n || t->how_at <= other->how_at || t->how_at + 1 >= t->n) continue;
        size_t rest = t->n - t->how_at - 1;
        rotate(t, t->how_at + 1);
        guard_align(c->a, c->b, &best);
        found = !best.moved;
        if (!found) rotate(t, rest);
    }
    for (size_t i = 1; i < c->a->n && !found; i++) {
        if (!c->a->tokens[i].clause_start) continue;
        size_t rest = c->a->n - i;
        rotate(c->a, i);
        guard_align(c->a, c->b, &best);
        found = !best.moved;
        if (!found) rotate(c->a, rest);
    }
    if (found) c->align = best;
    else if (!(c->a->scripts & GS_HAN) && phrases_moved(c)) c->align.moved = 0, found = true;
    return found;
}

static bool order_differs(struct comparison *c)
{
    bool close = c->out->shared >= 0.5f;
    if (close && c->align.moved) (void)order_explained(c);
    const struct guard_text *a = c->a, *b = c->b;
    if (close && c->align.moved) return refuse(c->out, "order", none, none);
    /* in the morning but not in the evening; all of them, not one */
    const uint32_t classes[] = {GC_WHEN, GC_QUANT};
    for (int i = 0; i < 2; i++)
        if (close && sequence_differs(a, b, classes[i])) return refuse(c->out, "order", none, none);
    return false;
}

/* Who does it: can I cancel, can you cancel; can I call you, can you call me. How-questions use "you" for anyone. */
static bool person_differs(struct comparison *c)
{
    const struct guard_text *a = c->a, *b = c->b;
    if (c->out->shared < 0.5f || !a->n_persons || !b->n_persons || a->persons[0] == b->persons[0]) return false;
    bool both_a = memchr(a->persons, '1', a->n_persons) && memchr(a->persons, '2', a->n_persons);
    bool both_b = memchr(b->persons, '1', b->n_persons) && memchr(b->persons, '2', b->n_persons);
    if ((a->questions & b->questions & 1u << GQ_HOW) && !both_a && !both_b) return false;
    return refuse(c->out, "subject", none, none);
}

static bool same_persons(const struct guard_text *a, const struct guard_text *b)
{
    for (const char *p = "123"; *p; p++)
        if (a->n_persons && b->n_persons && !memchr(a->persons, *p, a->n_persons) != !memchr(b->persons, *p, b->n_persons)) return false;
    return true;
}

/* What is denied: the content behind each "not", before it for endings such as 不了. */
static struct str denied_at(const struct guard_text *t, size_t i)
{
    bool ending = (t->tokens[i].classes & GC_UNABLE) && t->tokens[i].kind == GT_HAN && !str_eqz(t->tokens[i].text, "不能") && !str_eqz(t->tokens[i].text, "不让") &&
                  !str_eqz(t->tokens[i].text, "不可以") && str_find(t->tokens[i].text, STR("不")) >= 0;
    if (ending)
        for (size_t j = i; j-- > 0;)
            if (t->tokens[j].content) return t->tokens[j].canon;
    for (size_t j = i + 1; !ending && j < t->n; j++)
        if (t->tokens[j].content) return t->tokens[j].canon;
    return (struct str){"", 0};
}

static bool denied_differs(struct comparison *c)
{
    const struct guard_text *t[2] = {c->a, c->b};
    if (c->out->shared < 0.5f) return false;
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < t[side]->n; i++) {
            if (!(t[side]->tokens[i].classes & GC_NEG)) continue;
            struct str what = denied_at(t[side], i);
            bool found = false;
            for (size_t j = 0; j < t[1 - side]->n && !found; j++)
                found = (t[1 - side]->tokens[j].classes & GC_NEG) && str_eq(denied_at(t[1 - side], j), what);
            if (!found && (t[1 - side]->negations || t[side]->negations > 1)) {
                bool twice = i && (t[side]->tokens[i - 1].classes & GC_NEG); /* not impossible */
                bool twice_next = i + 1 < t[side]->n && (t[side]->tokens[i + 1].classes & GC_NEG);
                if (!twice && !twice_next) return refuse(c->out, "negation", what, none);
            }
        }
    return false;
}

static bool words_differ(struct comparison *c)
{
    const struct guard_alignment *al = &c->align;
    if (!al->n_left_a && !al->n_left_b) return false;
    struct str a = al->n_left_a ? c->a->tokens[al->left_a[0]].text : none, b = al->n_left_b ? c->b->tokens[al->left_b[0]].text : none;
    int longer = al->frame_a > al->frame_b ? al->frame_a : al->frame_b;
    /* the same sentence but for a piece: what true rewordings never look like */
    bool skeleton = al->frame * 2 >= longer;
    if (!skeleton && (c->a->scripts & c->b->scripts & GS_HAN)) { /* cut into words otherwise, the characters may still be the same */
        size_t units = c->a->n_units > c->b->n_units ? c->a->n_units : c->b->n_units;
        skeleton = guard_align_units(c->a, c->b) * 5 >= units * 3;
    }
    bool bare = !al->shared && (al->n_a <= 1 || al->n_b <= 1); /* one word against others: nothing else to go by */
    if (al->n_left_a && al->n_left_b && (c->out->shared >= 0.5f || skeleton || bare)) return refuse(c->out, "replaced_word", a, b);
    if ((!al->n_left_a || !al->n_left_b) && (c->out->shared >= 0.5f || skeleton)) return refuse(c->out, "added_word", a, b);
    return false;
}

/* Texts without any content word ("and then?", "yes") are the same only when they are equal token by token. */
static bool empty_and_different(struct comparison *c)
{
    if (c->align.n_a && c->align.n_b) return false;
    if (!c->align.n_a && !c->align.n_b && c->align.all_in_order == c->align.all_a && c->align.all_a == c->align.all_b && c->align.all_a) return false;
    return refuse(c->out, "no_content", none, none);
}

static bool unable(const struct guard_text *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->tokens[i].classes & GC_UNABLE) return true;
    return false;
}

/* What only a question says ("when", "how much") may not be missing on the other side when nothing else tells them apart. */
static bool question_explained(const struct guard_text *a, const struct guard_text *b)
{
    const unsigned light = 1u << GQ_HOW | 1u << GQ_WHAT | 1u << GQ_YESNO | 1u << GQ_WHICH;
    if (((as_vague_as(a->all_questions, b->all_questions) ^ as_vague_as(b->all_questions, a->all_questions)) & ~light) == 0) return true;
    /* "why can't I", "I can't" */
    return unable(a) && unable(b) && !((a->all_questions | b->all_questions) & ~(light | 1u << GQ_WHY));
}

static bool any_refuses(struct comparison *c)
{
    return script_differs(c) || language_differs(c) || multiset_differs(c, GT_IDENT, 0, "identifier") || numbers_differ(c) || currencies_differ(c) ||
           multiset_differs(c, GT_TIME, 0, "time") || dates_differ(c) || multiset_differs(c, -1, GC_WHEN, "relative_time") || negation_differs(c) ||
           quantifier_differs(c) || question_differs(c) || modality_differs(c) || tense_differs(c) || opposites(c) || order_differs(c) || person_differs(c) || denied_differs(c) || words_differ(c) ||
           empty_and_different(c);
}

void guard_check(const struct guard *g, struct str query, struct str stored, struct guard_verdict *out)
{
    memset(out, 0, sizeof *out);
    out->refused_by = "";
    out->language = guard_language(query);
    struct guard_text a, b;
    /* one fixed order of the two, so that ties in the alignment fall the same way whoever asks */
    size_t n = query.n < stored.n ? query.n : stored.n;
    int order = n ? memcmp(query.p, stored.p, n) : 0;
    bool swap = order > 0 || (order == 0 && query.n > stored.n);
    guard_text_read(&a, g->lexicon, swap ? stored : query);
    guard_text_read(&b, g->lexicon, swap ? query : stored);
    if (a.too_long || b.too_long) {
        refuse(out, "length", none, none);
        return;
    }
    struct comparison c = {.g = g, .a = &a, .b = &b, .out = out};
    guard_align(&a, &b, &c.align);
    int longer = c.align.weight_a > c.align.weight_b ? c.align.weight_a : c.align.weight_b;
    int shorter = c.align.weight_a + c.align.weight_b - longer;
    out->shared = longer ? (float)c.align.shared / (float)longer : 0;
    out->contained = shorter ? (float)c.align.shared / (float)shorter : 0;
    if (any_refuses(&c)) return;
    bool explained = !c.align.n_left_a && !c.align.n_left_b && !c.align.moved;
    if (explained && !question_explained(&a, &b)) {
        refuse(out, "question", question_text(a.questions), question_text(b.questions));
        return;
    }
    bool one_each = a.n_persons && b.n_persons && !memchr(a.persons, '3', a.n_persons) && (a.questions & b.questions & 1u << GQ_HOW);
    if (explained && !one_each && !same_persons(&a, &b)) {
        refuse(out, "subject", none, none);
        return;
    }
    out->allowed = true;
    out->same = explained;
}

char guard_language(struct str text)
{
    while (text.n) {
        uint32_t c;
        size_t n = utf8_decode(text, &c);
        if (n && c >= 0x3400 && c <= 0x9FFF) return 'z';
        text = str_sub(text, n ? n : 1, text.n);
    }
    return 'e';
}
