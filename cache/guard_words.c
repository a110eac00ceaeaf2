/* guard_words.c - guards over the words themselves: opposites, and the same sentence with a piece replaced or added. */
#include "cache/guard_rules.h"

/* One letter more, less or other, the first one equal: wider than guard_typo, for here it only refuses. */
static bool nearly(struct str a, struct str b)
{
    size_t head, tail;
    guard_shared_ends(a, b, &head, &tail);
    return head && a.n - head - tail <= 1 && b.n - head - tail <= 1;
}

/* b = un-, dis-, in-, im-, ir-, non-, de- + a; also where a or b has a slip: unopened, opend */
static bool negated_form(struct str a, struct str b)
{
    static const char *const prefixes[] = {"un", "dis", "in", "im", "ir", "il", "non", "de", "mis"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        struct str p = str_of(prefixes[i]);
        if (a.n < 4 || b.n <= p.n || !str_starts(b, p)) continue;
        struct str base = str_sub(b, p.n, b.n);
        if (str_eq(base, a) || (base.n >= 6 && a.n >= 5 && nearly(base, a))) return true;
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
