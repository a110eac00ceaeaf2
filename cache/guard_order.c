/* guard_order.c - the same words in another order: refused, unless grammar explains the order. What explains one: members of a pair
 * joined by "and", clauses, phrases with a preposition of their own, and constructions that say one thing in two ways. Each
 * construction moves tokens of one side to where the other has them and is taken only if then nothing is out of place. */
#include "cache/guard_rules.h"

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

/* Of the tokens [from, to) the first n go behind the rest; undone with to - from - n. */
static void turn(struct guard_text *t, size_t from, size_t to, size_t n)
{
    reverse(t->tokens, from, from + n);
    reverse(t->tokens, from + n, to);
    reverse(t->tokens, from, to);
}

/* Behind from stand left, middle and right tokens: left and right change places. Undone with right, middle, left. */
static void exchange(struct guard_text *t, size_t from, size_t left, size_t middle, size_t right)
{
    size_t to = from + left + middle + right;
    turn(t, from, to, left + middle);
    turn(t, from + right, to, left);
}

/* Where the content that ends before token i begins; i = there is none. */
static size_t content_before(const struct guard_text *t, size_t i)
{
    while (i > 0 && t->tokens[i - 1].content && !t->tokens[i].clause_start)
        i--;
    return i;
}

static bool joins_alike(struct str s)
{
    static const char *const joints[] = {"and", "or", "和", "跟", "与", "或", "及", NULL};
    return guard_one_of(s, joints);
}

bool guard_is_inside(const struct guard_token *k)
{
    static const char *const inside[] = {"the",  "a",     "an",    "my",    "your",
                                         "our",  "their", "his",   "her",   "its",
                                         "this", "that",  "these", "those", NULL};
    return guard_one_of(k->text, inside);
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
    if (has_object && guard_one_of(t->tokens[i].text, prepositions))
        return t->tokens[i].text; /* "from" moves with its phrase */
    while (i > 0 && !t->tokens[i].clause_start) {
        const struct guard_token *k = &t->tokens[--i];
        if (guard_one_of(k->text, prepositions)) return k->text;
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
    if (guard_one_of(t->tokens[i - 1].text, (const char *const[]){"from", "into", "without", NULL}))
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

/* 股票和基金: all content on both sides of the joint, up to the next word of grammar or one that is said of both, changes places. */
static bool han_members_swap(struct comparison *c, size_t at, struct guard_alignment *best)
{
    enum { MEMBER_MAX = 6 };
    static const char *const mutual[] = {"相距", "距离", "距",   "相差", "差",   "之间",
                                         "区别", "差别", "差异", "不同", "关系", NULL};
    struct guard_text *t = c->a;
    size_t from = content_before(t, at), to = at + 1;
    while (to < t->n && t->tokens[to].content && !t->tokens[to].clause_start &&
           !guard_one_of(t->tokens[to].text, mutual))
        to++;
    size_t left = at - from, right = to - at - 1;
    if (!left || !right || left > MEMBER_MAX || right > MEMBER_MAX) return false;
    exchange(t, from, left, 1, right);
    guard_align(c->a, c->b, best);
    if (!best->moved) return true;
    exchange(t, from, right, 1, left);
    return false;
}

/* The first n tokens of t go behind the rest. */
static bool turn_explains(struct comparison *c, struct guard_text *t, size_t n,
                          struct guard_alignment *best)
{
    turn(t, 0, t->n, n);
    guard_align(c->a, c->b, best);
    if (!best->moved) return true;
    turn(t, 0, t->n, t->n - n);
    return false;
}

static bool pairs_and_clauses_explain(struct comparison *c)
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
        found = t->how_at + 1 < t->n && other->how_at < other->n && t->how_at > other->how_at &&
                turn_explains(c, t, t->how_at + 1, &best);
    }
    for (size_t i = 1; i < c->a->n && !found; i++)
        found = c->a->tokens[i].clause_start && turn_explains(c, c->a, i, &best);
    if (found) c->align = best;
    return found;
}

/* One side says it in a way of its own, the other in the usual one. */
struct construction {
    struct guard_text *text, *usual;
    bool usual_is_b;
};

/* The token of usual that text's i-th is aligned with; GUARD_NO_PARTNER when none. */
static size_t partner_of(const struct comparison *c, const struct construction *s, size_t i)
{
    if (s->usual_is_b) return c->align.partner[i];
    for (size_t j = 0; j < c->a->n; j++)
        if (c->align.partner[j] == i) return j;
    return GUARD_NO_PARTNER;
}

/* Nothing out of place any more? */
static bool settles(struct comparison *c)
{
    guard_align(c->a, c->b, &c->align);
    return !c->align.moved;
}

static bool governed_by(const struct guard_text *t, size_t i, const char *const *prepositions)
{
    return i < t->n && guard_one_of(governor(t, i), prepositions);
}

/* The hotel's phone number, the phone number of the hotel. */
static bool owner_explains(struct comparison *c, const struct construction *s)
{
    static const char *const of[] = {"of", "for", "in", "at", NULL};
    struct guard_text *t = s->text;
    for (size_t i = 0; i + 1 < t->n; i++) {
        if (!t->tokens[i].owner || !t->tokens[i].content) continue;
        for (size_t to = i + 2;
             to <= t->n && t->tokens[to - 1].content && !t->tokens[to - 1].clause_start; to++) {
            turn(t, i, to, 1);
            if (settles(c) && governed_by(s->usual, partner_of(c, s, to - 1), of)) return true;
            turn(t, i, to, to - i - 1);
        }
    }
    return false;
}

static bool says_there_is(const struct guard_text *t)
{
    for (size_t i = 1; i < t->n; i++)
        if (str_eqz(t->tokens[i].text, "there") &&
            (t->tokens[i - 1].classes & GC_AUX || str_eqz(t->tokens[i - 1].text, "s")))
            return true;
    return false;
}

/* Do the rooms have a desk, is there a desk in the rooms. */
static bool having_explains(struct comparison *c, const struct construction *s)
{
    static const char *const in[] = {"in", "at", "on", "with", NULL};
    struct guard_text *t = s->text;
    if (!says_there_is(s->usual)) return false;
    for (size_t i = 1; i + 1 < t->n; i++) {
        struct str have = t->tokens[i].text;
        if (!str_eqz(have, "have") && !str_eqz(have, "has")) continue;
        size_t from = content_before(t, i), what = i + 1, to;
        while (what < t->n && guard_is_inside(&t->tokens[what]))
            what++;
        for (to = what; to < t->n && t->tokens[to].content && !t->tokens[to].clause_start;)
            to++;
        if (from == i || to == what) continue;
        turn(t, from, to, what - from);
        if (settles(c) && governed_by(s->usual, partner_of(c, s, to - 1 - (what - i)), in))
            return true;
        turn(t, from, to, to - what);
    }
    return false;
}

/* The usual side has the verb of the moved passive in front of what it is done to, nothing but "the" or "my" between. */
static bool does_to(const struct comparison *c, const struct construction *s)
{
    const struct guard_text *t = s->text;
    for (size_t k = 0; k + 1 < t->n; k++) {
        if (!t->tokens[k].content || !guard_is_participle(t->tokens[k].text)) continue;
        size_t verb = partner_of(c, s, k), object = partner_of(c, s, k + 1);
        if (verb >= s->usual->n || object >= s->usual->n) return false;
        while (object > verb + 1 && guard_is_inside(&s->usual->tokens[object - 1]))
            object--;
        return object == verb + 1 && !guard_is_done_to(s->usual, verb);
    }
    return false;
}

/* "Can my order be cancelled", "my card is lost": that whoever may do it, or did it, is the one who asks. "If my train is cancelled" is
 * not: that may be anyone's doing. */
static bool is_own_doing(const struct guard_text *t, size_t from, size_t verb)
{
    if (str_eqz(t->tokens[verb].text, "lost") || str_eqz(t->tokens[verb].text, "forgotten"))
        return true;
    while (from > 0 && guard_is_inside(&t->tokens[from - 1]))
        from--;
    return from > 0 && t->tokens[from - 1].clause_start &&
           (t->tokens[from - 1].classes & GC_MODAL) && str_eqz(t->tokens[verb - 1].text, "be");
}

/* Can my order be cancelled, can I cancel my order; my card is lost, I lost my card. Not where it is said by whom. */
static bool passive_explains(struct comparison *c, const struct construction *s)
{
    struct guard_text *t = s->text;
    for (size_t i = 1; i < t->n; i++) {
        size_t end = i;
        if (!t->tokens[i].content || !guard_is_done_to(t, i) ||
            (i + 1 < t->n && str_eqz(t->tokens[i + 1].text, "by")))
            continue;
        while (end > 0 && !t->tokens[end - 1].content && !t->tokens[end].clause_start)
            end--;
        size_t from = content_before(t, end);
        if (from == end || !is_own_doing(t, from, i)) continue;
        turn(t, from, i + 1, i - from);
        bool found = settles(c);
        if (!found) {
            struct guard_alignment kept = c->align;
            found = pairs_and_clauses_explain(c);
            if (!found) c->align = kept;
        }
        if (found && does_to(c, s)) {
            c->voice_explained = true;
            return true;
        }
        if (found) return false; /* refused, whatever the places are now */
        turn(t, from, i + 1, 1);
    }
    return false;
}

/* 订单可以取消吗, 能不能取消订单: what it is done to stands first. Not one who may do it himself: 客户可以退款吗. */
static bool topic_explains(struct comparison *c, const struct construction *s)
{
    static const char *const actors[] = {
        "人", "员", "师", "生", "客", "主", "东", "户", "友", "商", "方", "司", "行", "家", "店",
        "妈", "爸", "哥", "弟", "姐", "妹", "子", "女", "儿", "猫", "狗", "板", "事", "民", "者"};
    struct guard_text *t = s->text;
    size_t n = 0, first = 0, to;
    if (!(c->a->scripts & c->b->scripts & GS_HAN)) return false;
    while (first < s->usual->n && !s->usual->tokens[first].content &&
           !(s->usual->tokens[first].classes & GC_MODAL))
        first++;
    if (first < s->usual->n && s->usual->tokens[first].content) return false;
    while (n < t->n && t->tokens[n].content && (!n || !t->tokens[n].clause_start))
        n++;
    if (!n || n >= t->n || !(t->tokens[n].classes & GC_MODAL)) return false;
    for (size_t i = 0; i < sizeof actors / sizeof *actors; i++)
        if (str_ends(t->tokens[n - 1].text, str_of(actors[i]))) return false;
    for (to = n; to < t->n && !t->tokens[to].clause_start;)
        to++;
    turn(t, 0, to, n);
    if (settles(c)) return true;
    turn(t, 0, to, to - n);
    return false;
}

static bool is_after_be(const struct guard_text *t, size_t i)
{
    static const char *const be[] = {"is", "are", "was", "were", NULL};
    return i > 0 && i < t->n && guard_one_of(t->tokens[i - 1].text, be);
}

/* Which is the best phone for trips, which phone is best for trips. */
static bool best_explains(struct comparison *c, const struct construction *s)
{
    struct guard_text *t = s->text;
    for (size_t i = 2; i + 1 < t->n; i++) {
        struct str word = t->tokens[i].text;
        size_t from = i;
        if (!t->tokens[i].content || (!str_ends(word, STR("est")) && !str_eqz(word, "worst")))
            continue;
        while (from > 0 && guard_is_inside(&t->tokens[from - 1]))
            from--;
        if (from < 2 || !is_after_be(t, from) || !(t->tokens[from - 2].classes & GC_QUESTION))
            continue;
        for (size_t to = i + 2;
             to <= t->n && t->tokens[to - 1].content && !t->tokens[to - 1].clause_start; to++) {
            turn(t, i, to, 1);
            size_t there = settles(c) ? partner_of(c, s, to - 1) : GUARD_NO_PARTNER;
            while (there > 0 && there < s->usual->n &&
                   guard_is_inside(&s->usual->tokens[there - 1]))
                there--;
            if (is_after_be(s->usual, there)) return true;
            turn(t, i, to, to - i - 1);
        }
    }
    return false;
}

/* Orders that mean the same. True when one explains everything that moved; the alignment is then the better one. */
static bool order_explained(struct comparison *c)
{
    typedef bool explains(struct comparison * c, const struct construction *s);
    static explains *const constructions[] = {owner_explains, having_explains, passive_explains,
                                              topic_explains, best_explains};
    if (pairs_and_clauses_explain(c)) return true;
    if (!(c->a->scripts & GS_HAN) && phrases_moved(c)) {
        c->align.moved = 0;
        return true;
    }
    struct guard_alignment kept = c->align;
    for (size_t i = 0; i < sizeof constructions / sizeof *constructions; i++)
        for (int side = 0; side < 2; side++) {
            struct construction s = {side ? c->b : c->a, side ? c->a : c->b, !side};
            if (constructions[i](c, &s)) return true;
        }
    c->align = kept;
    return false;
}

static bool compares(const struct guard_text *t, size_t *from, size_t *word, size_t *other,
                     size_t *to)
{
    for (size_t i = 1; i + 1 < t->n; i++) {
        bool than = str_eqz(t->tokens[i].text, "than"), bi = str_eqz(t->tokens[i].text, "比");
        if (!than && !bi) continue;
        *word = than ? i - 1 : 0;
        *from = than ? i - 1 : i;
        while (*from > 0 && !t->tokens[*from].clause_start)
            --*from;
        if (than && (t->tokens[*from].classes & GC_AUX)) ++*from;
        for (*to = i + 1; *to < t->n && !t->tokens[*to].clause_start;)
            ++*to;
        *other = i + 1;
        if (bi) { /* A 比 B 贵 */
            *word = *to;
            while (*word > *other && !t->tokens[*word - 1].content)
                --*word;
            *to = --*word;
        }
        return *from < (than ? *word : i) && *other < *to;
    }
    return false;
}

/* Is tea cheaper than coffee, is coffee dearer than tea: A's places are changed and the word is the other's. */
void guard_turn_comparison(struct comparison *c)
{
    size_t from, word, other, to, from_b, word_b, other_b, to_b;
    struct guard_text *t = c->a;
    if (!compares(t, &from, &word, &other, &to) ||
        !compares(c->b, &from_b, &word_b, &other_b, &to_b) ||
        !guard_lexicon_opposite(c->lexicon, t->tokens[word].canon, c->b->tokens[word_b].canon))
        return;
    size_t first_end = word < other ? word : other - 1, left = first_end - from,
           middle = other - first_end, right = to - other;
    struct guard_token kept = t->tokens[word];
    t->tokens[word] = c->b->tokens[word_b];
    exchange(t, from, left, middle, right);
    guard_align(c->a, c->b, &c->align);
    if (!c->align.moved && !c->align.n_left_a && !c->align.n_left_b) return;
    exchange(t, from, right, middle, left);
    t->tokens[word] = kept;
    guard_align(c->a, c->b, &c->align);
}

bool guard_order_differs(struct comparison *c)
{
    bool close = guard_close(c);
    if (close && c->align.moved) (void)order_explained(c);
    if (close && c->align.moved) {
        if (!c->align.n_left_a && !c->align.n_left_b) guard_harden(c->out, "order");
        return guard_refuse(c->out, "order", guard_none, guard_none);
    }
    /* in the morning but not in the evening; all of them, not one */
    const uint32_t classes[] = {GC_WHEN, GC_QUANT};
    for (int i = 0; i < 2; i++)
        if (close && sequence_differs(c->a, c->b, classes[i]))
            return guard_refuse(c->out, "order", guard_none, guard_none);
    return false;
}
