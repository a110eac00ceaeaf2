/* guard_words.c - guards over the words themselves: opposites, order, and the same sentence with a piece replaced or added. */
#include "cache/guard_rules.h"

static bool negated_form(struct str a,
                         struct str b) /* b = un-, dis-, in-, im-, ir-, non-, de- + a */
{
    static const char *const prefixes[] = {"un", "dis", "in", "im", "ir", "il", "non", "de", "mis"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        struct str p = str_of(prefixes[i]);
        if (a.n >= 4 && b.n == a.n + p.n && str_starts(b, p) && str_ends(b, a)) return true;
    }
    return false;
}

bool guard_opposites(struct comparison *c)
{
    const struct guard_alignment *al = &c->align;
    for (size_t i = 0; i < al->n_left_a; i++)
        for (size_t j = 0; j < al->n_left_b; j++) {
            const struct guard_token *a = &c->a->tokens[al->left_a[i]],
                                     *b = &c->b->tokens[al->left_b[j]];
            bool prefixed = a->kind == GT_WORD && b->kind == GT_WORD &&
                            (negated_form(a->text, b->text) || negated_form(b->text, a->text));
            if (!prefixed && !guard_lexicon_opposite(c->lexicon, a->canon, b->canon)) continue;
            if (guard_close(c)) guard_harden(c->out, "antonym");
            return guard_refuse(c->out, "antonym", a->text, b->text);
        }
    return false;
}

/* Tokens of a class, two or more of them on both sides, in another order. */
static bool sequence_differs(const struct guard_text *a, const struct guard_text *b,
                             uint32_t classes)
{
    struct str sa[8], sb[8];
    size_t na = 0, nb = 0;
    for (size_t i = 0; i < a->n && na < 8; i++)
        if ((a->tokens[i].classes & classes) || (classes == GC_QUANT && a->tokens[i].weak))
            sa[na++] = a->tokens[i].canon;
    for (size_t i = 0; i < b->n && nb < 8; i++)
        if ((b->tokens[i].classes & classes) || (classes == GC_QUANT && b->tokens[i].weak))
            sb[nb++] = b->tokens[i].canon;
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
    while (from + 1 < to)
        swap_tokens(&k[from++], &k[--to]);
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
    return str_eqz(s, "and") || str_eqz(s, "or") || str_eqz(s, "和") || str_eqz(s, "跟") ||
           str_eqz(s, "与") || str_eqz(s, "或") || str_eqz(s, "及");
}

static bool one_of(struct str s, const char *const *list)
{
    for (; *list; list++)
        if (str_eqz(s, *list)) return true;
    return false;
}

bool guard_is_inside(const struct guard_token *k)
{
    static const char *const inside[] = {"the",  "a",     "an",    "my",    "your",
                                         "our",  "their", "his",   "her",   "its",
                                         "this", "that",  "these", "those", NULL};
    return one_of(k->text, inside);
}

/* The preposition that governs a word: "from" for both words of "from my old account". Empty = guard_none. */
static struct str governor(const struct guard_text *t, size_t i)
{
    static const char *const prepositions[] = {
        "in",     "on",     "at",      "to",    "for",     "from",   "by",     "with",   "without",
        "of",     "than",   "as",      "into",  "onto",    "about",  "over",   "under",  "between",
        "before", "after",  "until",   "via",   "per",     "during", "within", "inside", "outside",
        "near",   "behind", "through", "since", "towards", NULL};
    bool has_object = i + 1 < t->n && !t->tokens[i + 1].clause_start &&
                      (t->tokens[i + 1].content || guard_is_inside(&t->tokens[i + 1]));
    if (has_object && one_of(t->tokens[i].text, prepositions))
        return t->tokens[i].text; /* "from" moves with its phrase */
    while (i > 0 && !t->tokens[i].clause_start) {
        const struct guard_token *k = &t->tokens[--i];
        if (one_of(k->text, prepositions)) return k->text;
        if (!k->content && !guard_is_inside(k)) break;
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
            if (al->partner[i] == GUARD_NO_PARTNER || al->partner[j] == GUARD_NO_PARTNER ||
                al->partner[i] < al->partner[j])
                continue;
            struct str gi = governor(c->a, i), gj = governor(c->a, j),
                       hi = governor(c->b, al->partner[i]), hj = governor(c->b, al->partner[j]);
            if (!str_eq(gi, hi) || !str_eq(gj, hj) || str_eq(gi, gj)) return false;
        }
    return true;
}

/* May the word before "and" be a whole member of the pair? Not when another word before it may describe it: red shirts and towels
 * are not red towels and shirts. A verb right behind "I", "to" or "how do I" is none. */
static bool begins_member(const struct guard_text *t, size_t i)
{
    while (i > 0 && !t->tokens[i].clause_start && guard_is_inside(&t->tokens[i - 1]))
        i--;
    if (i == 0 || t->tokens[i].clause_start || !t->tokens[i - 1].content) return true;
    if (one_of(t->tokens[i - 1].text, (const char *const[]){"from", "into", "without", NULL}))
        return true;
    if (str_ends(t->tokens[i - 1].text, STR("between"))) return true;
    if (i == 1 || t->tokens[i - 1].clause_start) return false;
    const struct guard_token *before = &t->tokens[i - 2];
    return (before->classes & (GC_PERSON1 | GC_PERSON2)) || str_eqz(before->text, "to") ||
           (before->word && before->word->question == GQ_HOW);
}

/* A and B, B and A: single English words, articles between. */
static bool members_swap(struct comparison *c, size_t at, struct guard_alignment *best)
{
    struct guard_text *t = c->a;
    size_t right = at + 1;
    while (right < t->n && guard_is_inside(&t->tokens[right]))
        right++;
    if (right >= t->n || !t->tokens[right].content || !t->tokens[at - 1].content ||
        !begins_member(t, at - 1))
        return false;
    swap_tokens(&t->tokens[at - 1], &t->tokens[right]);
    guard_align(c->a, c->b, best);
    if (!best->moved) return true;
    swap_tokens(&t->tokens[at - 1], &t->tokens[right]);
    return false;
}

/* 股票和基金: all content on both sides of the joint, up to the next word of grammar, changes places. */
static bool han_members_swap(struct comparison *c, size_t at, struct guard_alignment *best)
{
    enum { MEMBER_MAX = 6 };
    struct guard_text *t = c->a;
    size_t from = at, to = at + 1;
    while (from > 0 && t->tokens[from - 1].content && !t->tokens[from].clause_start)
        from--;
    while (to < t->n && t->tokens[to].content && !t->tokens[to].clause_start)
        to++;
    size_t left = at - from, right = to - at - 1;
    if (!left || !right || left > MEMBER_MAX || right > MEMBER_MAX) return false;
    reverse(t->tokens, from, to); /* B joint A, each backwards */
    reverse(t->tokens, from, from + right);
    reverse(t->tokens, to - left, to);
    guard_align(c->a, c->b, best);
    if (!best->moved) return true;
    reverse(t->tokens, from, to);
    reverse(t->tokens, from, from + left);
    reverse(t->tokens, to - right, to);
    return false;
}

/* Orders that mean the same: A and B, B and A; clauses; phrases with a preposition; in Chinese O 怎么 V, 怎么 V O. True when one of
 * them explains everything that moved; the alignment is then the better one. */
static bool order_explained(struct comparison *c)
{
    struct guard_alignment best;
    struct guard_text *t = c->a;
    bool found = false;
    for (size_t i = 1; i + 1 < t->n && !found; i++)
        found =
            joins_alike(t->tokens[i].text) &&
            (c->a->scripts & GS_HAN ? han_members_swap(c, i, &best) : members_swap(c, i, &best));
    for (int side = 0; side < 2 && !found && (c->a->scripts & c->b->scripts & GS_HAN); side++) {
        t = side ? c->b : c->a;
        const struct guard_text *other = side ? c->a : c->b;
        if (t->how_at >= t->n || other->how_at >= other->n || t->how_at <= other->how_at ||
            t->how_at + 1 >= t->n)
            continue;
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
    if (found)
        c->align = best;
    else if (!(c->a->scripts & GS_HAN) && phrases_moved(c))
        c->align.moved = 0, found = true;
    return found;
}

bool guard_order_differs(struct comparison *c)
{
    bool close = guard_close(c);
    if (close && c->align.moved) (void)order_explained(c);
    const struct guard_text *a = c->a, *b = c->b;
    if (close && c->align.moved) {
        if (!c->align.n_left_a && !c->align.n_left_b) guard_harden(c->out, "order");
        return guard_refuse(c->out, "order", guard_none, guard_none);
    }
    /* in the morning but not in the evening; all of them, not one */
    const uint32_t classes[] = {GC_WHEN, GC_QUANT};
    for (int i = 0; i < 2; i++)
        if (close && sequence_differs(a, b, classes[i]))
            return guard_refuse(c->out, "order", guard_none, guard_none);
    return false;
}

bool guard_words_differ(struct comparison *c)
{
    const struct guard_alignment *al = &c->align;
    if (!al->n_left_a && !al->n_left_b) return false;
    struct str a = al->n_left_a ? c->a->tokens[al->left_a[0]].text : guard_none,
               b = al->n_left_b ? c->b->tokens[al->left_b[0]].text : guard_none;
    int longer = al->frame_a > al->frame_b ? al->frame_a : al->frame_b;
    /* the same sentence but for a piece: what true rewordings never look like */
    bool skeleton = al->frame * 2 >= longer;
    if (!skeleton &&
        (c->a->scripts & c->b->scripts &
         GS_HAN)) { /* cut into words otherwise, the characters may still be the same */
        size_t units = c->a->n_units > c->b->n_units ? c->a->n_units : c->b->n_units;
        skeleton = guard_align_units(c->a, c->b) * 5 >= units * 3;
    }
    bool bare = !al->shared &&
                (al->n_a <= 1 || al->n_b <= 1); /* one word against others: nothing else to go by */
    if (al->n_left_a && al->n_left_b && (guard_close(c) || skeleton || bare))
        return guard_refuse(c->out, "replaced_word", a, b);
    bool contained = al->shared > 0; /* all of one, and something more: "abroad", "for students" */
    if ((!al->n_left_a || !al->n_left_b) && (contained || skeleton))
        return guard_refuse(c->out, "added_word", a, b);
    return false;
}

/* Texts without any content word ("and then?", "yes") are the same only when they are equal token by token. */
bool guard_nothing_to_compare(struct comparison *c)
{
    if (c->align.n_a && c->align.n_b) return false;
    if (!c->align.n_a && !c->align.n_b && c->align.all_in_order == c->align.all_a &&
        c->align.all_a == c->align.all_b && c->align.all_a)
        return false;
    return guard_refuse(c->out, "no_content", guard_none, guard_none);
}
