/* guard_parts.c - guards over which small word goes with which: who receives and who does, how many of what, everyone or who, a kind of
 * thing or the one at hand, must and can in which order. They hold between questions of which most of the content is the same, and are
 * hard. Pure. */
#include "cache/guard_rules.h"

/* ---- 给, 帮, 把, 让: who stands behind it ---- */

/* First marker of a way between people; n_units when there is none. *who: the content token right behind it ("my" between passed over),
 * GUARD_TOKENS_MAX when none does; *pronoun: one stands between, and it is followed by what is done. */
static size_t marker_at(const struct guard_text *t, const char *const *markers, size_t *who,
                        bool *pronoun)
{
    static const char *const inside[] = {"方", "什", "何", "了", "话", "象", "面", "止", NULL},
                             *const persons[] = {"我", "你", "您", "他", "她", "咱", NULL};
    for (size_t i = 0; i + 1 < t->n_units; i++) {
        size_t own = guard_content_at(t, i);
        if (!guard_unit_in(t, i, markers) || guard_unit_in(t, i + 1, inside) ||
            t->units[i + 1].clause_start ||
            (own < t->n && t->tokens[own].text.n > t->units[i].text.n)) /* 对方, 为难 */
            continue;
        size_t at = i + 1;
        bool person = guard_unit_in(t, at, persons);
        at += person;
        at += person && guard_unit_is(t, at, "们");
        at += person && guard_unit_is(t, at, "的");
        bool over = at < t->n_units && t->units[at].clause_start;
        *who = over ? GUARD_TOKENS_MAX : guard_content_at(t, at);
        *pronoun = person;
        return i;
    }
    return t->n_units;
}

/* In one text x stands behind the marker, in the other before it, where a pronoun or the deed takes the place. */
static bool turned_round(const struct comparison *c, bool b_first, const char *const *markers,
                         bool needs_pronoun)
{
    const struct guard_text *one = b_first ? c->b : c->a, *other = b_first ? c->a : c->b;
    size_t who, who_there, partner = GUARD_NO_PARTNER;
    bool pronoun, pronoun_there;
    size_t at = marker_at(one, markers, &who, &pronoun),
           there = marker_at(other, markers, &who_there, &pronoun_there);
    if (at == one->n_units || there == other->n_units || who >= one->n ||
        (needs_pronoun && !pronoun_there))
        return false;
    for (size_t i = 0; i < c->a->n && partner == GUARD_NO_PARTNER; i++) {
        size_t j = c->align.partner[i];
        if (j == GUARD_NO_PARTNER) continue;
        if (b_first ? j == who : i == who) partner = b_first ? i : j;
    }
    if (partner == GUARD_NO_PARTNER || partner == who_there || partner >= other->n) return false;
    struct str x = other->tokens[partner].text;
    bool given = x.n <= 3 && x.p + x.n == other->units[there].text.p; /* 发给我 is 给我发 */
    return !given && x.p < other->units[there].text.p;
}

bool guard_receiver_differs(struct comparison *c)
{
    static const char *const receives[] = {"给", "帮", "替", "为", "把", "向", "对", NULL},
                             *const does[] = {"让", "叫", "请", NULL};
    if (!(c->a->scripts & c->b->scripts & GS_HAN) || !guard_close(c)) return false;
    bool turned = false;
    for (int side = 0; side < 2; side++)
        turned =
            turned || turned_round(c, side, receives, true) || turned_round(c, side, does, false);
    return turned && guard_refuse_hard(c->out, "order", guard_none, guard_none);
}

/* ---- numbers and what they count ---- */

struct count {
    struct str number, what; /* what: the last character of 两次 */
};

static size_t counts_of(const struct guard_text *t, struct count *out, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n && n < max; i++) {
        const struct guard_token *k = &t->tokens[i];
        if (k->kind != GT_NUMBER || k->unit.n || k->text.n < 4) continue;
        out[n++] = (struct count){k->canon, str_sub(k->text, k->text.n - 3, k->text.n)};
    }
    return n;
}

/* How many of x are in y, each taken once; by number and by what is counted too when both is set. */
static size_t in_common(const struct count *x, const struct count *y, size_t n, bool number,
                        bool what)
{
    bool used[8] = {false};
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            if (used[j] || (number && !str_eq(x[i].number, y[j].number)) ||
                (what && !str_eq(x[i].what, y[j].what)))
                continue;
            used[j] = true;
            found++;
            break;
        }
    return found;
}

/* 一天两次每次一片, 一天一次每次两片 */
bool guard_counts_differ(struct comparison *c)
{
    enum { MAX = 8 };
    struct count a[MAX], b[MAX];
    if (!(c->a->scripts & c->b->scripts & GS_HAN) || !guard_close(c)) return false;
    size_t n = counts_of(c->a, a, MAX);
    if (n < 2 || counts_of(c->b, b, MAX) != n || in_common(a, b, n, true, false) != n ||
        in_common(a, b, n, false, true) != n || in_common(a, b, n, true, true) == n)
        return false;
    return guard_refuse_hard(c->out, "number", guard_none, guard_none);
}

/* ---- 谁都, 一个都没 ---- */

enum universal { UNIVERSAL_NONE, UNIVERSAL_ALL, UNIVERSAL_NOT_ONE };

static enum universal universal_of(const struct guard_text *t)
{
    static const char *const also[] = {"都", "也", NULL}, *const not [] = {"没", "不", "未", NULL};
    for (size_t i = 1; i + 1 < t->n_units; i++) {
        if (!guard_unit_in(t, i, also) || t->units[i].clause_start) continue;
        bool question = false;
        for (size_t k = 0; k < t->n; k++)
            question =
                question || (t->tokens[k].word && (t->tokens[k].classes & GC_QUESTION) &&
                             t->tokens[k].text.p + t->tokens[k].text.n == t->units[i].text.p);
        if (question) return UNIVERSAL_ALL;
        bool one = guard_unit_is(t, i - 1, "一") || (i > 1 && guard_unit_is(t, i - 2, "一")) ||
                   (i > 2 && guard_unit_is(t, i - 3, "一"));
        if (one && guard_unit_in(t, i + 1, not )) return UNIVERSAL_NOT_ONE;
    }
    return UNIVERSAL_NONE;
}

bool guard_universal_differs(struct comparison *c)
{
    if (!(c->a->scripts & c->b->scripts & GS_HAN) || !guard_close(c)) return false;
    const unsigned all = 1u << GK_ALL | 1u << GK_ANY;
    enum universal a = universal_of(c->a), b = universal_of(c->b);
    if (a == b || (a == UNIVERSAL_ALL && (c->b->quants & all)) ||
        (b == UNIVERSAL_ALL && (c->a->quants & all)))
        return false;
    return guard_refuse_hard(c->out, "quantifier", guard_none, guard_none);
}

/* ---- 才, 就 ---- */

static bool has_particle(const struct guard_text *t, const char *particle,
                         const char *const *before, const char *const *behind)
{
    for (size_t i = 0; i < t->n_units; i++) {
        bool first = t->units[i].clause_start,
             last = i + 1 >= t->n_units || t->units[i + 1].clause_start;
        if (guard_unit_is(t, i, particle) && (first || !i || !guard_unit_in(t, i - 1, before)) &&
            (last || !guard_unit_in(t, i + 1, behind)))
            return true;
    }
    return false;
}

static bool late(const struct guard_text *t)
{
    static const char *const before[] = {"刚", "口", "方", NULL},
                             *const behind[] = {"华", "干", "艺", NULL},
                             *const may[] = {"能", "会", "可", "行", "够", "有", "要", NULL};
    for (size_t i = 1; i < t->n_units; i++) /* 人才 */
        if (guard_unit_is(t, i, "才") && guard_unit_is(t, i - 1, "人") &&
            !guard_unit_in(t, i + 1, may))
            return false;
    return has_particle(t, "才", before, behind);
}

static bool soon(const struct guard_text *t)
{
    static const char *const before[] = {"成", "早", "高", NULL}, *const behind[] = {
                                                                      "业", "诊", "医", "餐", "读",
                                                                      "近", "职", "是", "算", NULL};
    return has_particle(t, "就", before, behind);
}

static bool either_particle(bool one_a, bool other_a, bool one_b, bool other_b)
{
    return (one_a && !other_a && other_b && !one_b) || (one_b && !other_b && other_a && !one_a);
}

static bool says(const struct guard_text *t, const char *word)
{
    return has_particle(t, word, (const char *const[]){NULL}, (const char *const[]){NULL});
}

/* 18岁才能买, 18岁就能买: not before; as early as. 也能用, 还能用: too; still. 又扣款了: once more. */
bool guard_only_then_differs(struct comparison *c)
{
    const struct guard_text *a = c->a, *b = c->b;
    if (!(a->scripts & b->scripts & GS_HAN) || !guard_close(c)) return false;
    if (!either_particle(late(a), soon(a), late(b), soon(b)) &&
        !either_particle(says(a, "也"), says(a, "还"), says(b, "也"), says(b, "还")) &&
        says(a, "又") == says(b, "又"))
        return false;
    return guard_refuse_hard(c->out, "quantifier", STR("才"), STR("就"));
}

/* ---- how old, how ---- */

bool guard_degree_differs(struct comparison *c)
{
    const unsigned how = 1u << GQ_HOW;
    if (!guard_close(c) || !(c->a->questions & c->b->questions & how)) return false;
    if (guard_asks_degree(c->a) == guard_asks_degree(c->b)) return false;
    return guard_refuse_hard(c->out, "question", STR("how much so"), STR("how"));
}

/* ---- what is a limit, what is my limit ---- */

enum { ASKS_KIND = 1, ASKS_OWN = 2 };

static unsigned asks_what_is(const struct guard_text *t)
{
    static const char *const article[] = {"a", "an", NULL}, *const be[] = {"is", "are", NULL},
                             *const own[] = {"my", "your", "our", NULL},
                             *const person[] = {"我", "你", "您", "们", NULL};
    unsigned found = 0;
    for (size_t i = 0; i + 1 < t->n_units; i++) {
        if (guard_unit_is(t, i, "what") && guard_unit_in(t, i + 1, be)) {
            if (guard_unit_in(t, i + 2, article)) found |= ASKS_KIND;
            if (guard_unit_in(t, i + 2, own)) found |= ASKS_OWN;
        }
        if (guard_unit_is(t, i, "什") && guard_unit_is(t, i + 1, "么") &&
            (guard_unit_is(t, i + 2, "是") || guard_unit_is(t, i + 2, "叫")))
            found |= ASKS_KIND;
        if (guard_unit_in(t, i, person) && guard_unit_is(t, i + 1, "的")) found |= ASKS_OWN;
    }
    return found;
}

bool guard_definition_differs(struct comparison *c)
{
    unsigned a = asks_what_is(c->a), b = asks_what_is(c->b);
    const unsigned what = 1u << GQ_WHAT;
    if (!guard_close(c) || !(c->a->questions & c->b->questions & what)) return false;
    if (!((a == ASKS_KIND && b == ASKS_OWN) || (a == ASKS_OWN && b == ASKS_KIND))) return false;
    return guard_refuse_hard(c->out, "question", STR("what is a"), STR("what is my"));
}

/* ---- must I stay or can I go ---- */

static size_t modals_of(const struct guard_text *t, uint8_t *out, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n && n < max; i++) {
        const struct guard_word *w = t->tokens[i].word;
        if (!w || !(w->classes & GC_MODAL) || !w->modal) continue;
        out[n++] = w->modal == GM_NEED ? (uint8_t)GM_MUST : w->modal;
    }
    return n;
}

bool guard_modal_order_differs(struct comparison *c)
{
    enum { MAX = 8 };
    uint8_t a[MAX], b[MAX];
    if (!guard_close(c)) return false;
    size_t n = modals_of(c->a, a, MAX);
    if (n != 2 || modals_of(c->b, b, MAX) != n || a[0] == a[1] || a[0] != b[1] || a[1] != b[0])
        return false;
    return guard_refuse_hard(c->out, "order", guard_none, guard_none);
}

/* ---- desert, dessert ---- */

/* One letter more, less or other, or two that changed places. */
static bool one_slip_apart(struct str a, struct str b)
{
    size_t head, tail;
    guard_shared_ends(a, b, &head, &tail);
    size_t x = a.n - head - tail, y = b.n - head - tail;
    return (x <= 1 && y <= 1) ||
           (x == 2 && y == 2 && a.p[head] == b.p[head + 1] && a.p[head + 1] == b.p[head]);
}

/* The one word that differs is another that is spelled nearly the same: vectors and pieces of words take them for one. */
bool guard_confused_words(struct comparison *c)
{
    const struct guard_alignment *al = &c->align;
    if (al->n_left_a != 1 || al->n_left_b != 1 || !guard_close(c)) return false;
    const struct guard_token *a = &c->a->tokens[al->left_a[0]], *b = &c->b->tokens[al->left_b[0]];
    bool known = a->word && b->word && (a->classes & b->classes & GC_KNOWN);
    if (!known || a->kind != GT_WORD || b->kind != GT_WORD || a->text.n < 4 || b->text.n < 4 ||
        !one_slip_apart(a->text, b->text))
        return false;
    return guard_refuse_hard(c->out, "replaced_word", a->text, b->text);
}

/* ---- forgot to, refuses to ---- */

/* All that one side says more is that it was not done. */
bool guard_undone_differs(struct comparison *c)
{
    static const char *const undone[] = {
        "忘记",     "忘",     "拒绝",   "拒收",     "避免",   "防止",    "跳过",    "停止",
        "阻止",     "放弃",   "错过",   "forgot",   "forget", "avoid",   "prevent", "skip",
        "skipping", "refuse", "missed", "avoiding", "stop",   "stopped", NULL};
    const struct guard_alignment *al = &c->align;
    if (al->n_left_a + al->n_left_b != 1 || !guard_close(c)) return false;
    const struct guard_token *k =
        al->n_left_a ? &c->a->tokens[al->left_a[0]] : &c->b->tokens[al->left_b[0]];
    if (!guard_one_of(k->canon, undone) && !guard_one_of(k->text, undone)) return false;
    return guard_refuse_hard(c->out, "added_word", k->text, guard_none);
}

/* ---- words that stand for each other, both in one sentence ---- */

/* "Is the fee part of the price": where both are said they are two things, in an order. */
bool guard_contrasted_differ(struct comparison *c)
{
    if (!guard_close(c) || c->a->n != c->b->n) return false;
    for (size_t i = 0; i < c->a->n; i++)
        for (size_t j = i + 1; j < c->a->n; j++) {
            const struct guard_token *x = &c->a->tokens[i], *y = &c->a->tokens[j];
            if (!x->content || !y->content || !guard_equal(x->canon, y->canon) ||
                guard_equal(x->text, y->text))
                continue;
            if (guard_equal(c->b->tokens[i].text, y->text) &&
                guard_equal(c->b->tokens[j].text, x->text))
                return guard_refuse_hard(c->out, "order", x->text, y->text);
        }
    return false;
}
