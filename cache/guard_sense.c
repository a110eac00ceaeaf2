/* guard_sense.c - guards over what a question says as a whole: what is denied, of how many, what is asked, what may or must be, when,
 * and who does it. */
#include <string.h>

#include "cache/guard_rules.h"

bool guard_negation_differs(struct comparison *c)
{
    if (((c->a->negations ^ c->b->negations) & 1) == 0) return false;
    return guard_refuse(c->out, "negation", guard_none, guard_none);
}

/* The content right behind "only": members only may, members may only. */
static struct str only_about(const struct guard_text *t)
{
    for (size_t i = 0; i < t->n; i++) {
        if (!t->tokens[i].word || t->tokens[i].word->quant != GK_ONLY) continue;
        if (i + 1 < t->n && (t->tokens[i + 1].classes & (GC_PERSON1 | GC_PERSON2)) &&
            !guard_is_inside(&t->tokens[i + 1]))
            return t->tokens[i + 1].canon; /* only I can see this */
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

/* Not all of them, all of them not; 不都, 都不. */
enum reach { REACH_NONE, REACH_NOT_ALL, REACH_ALL_NOT };
static enum reach reach_of_not(const struct guard_text *t)
{
    bool all = false;
    for (size_t i = 0; i < t->n; i++) {
        const struct guard_token *k = &t->tokens[i];
        if (k->classes & GC_NEG && all) return REACH_ALL_NOT;
        if (!k->word || k->word->quant != GK_ALL) continue;
        if (i > 0 && t->tokens[i - 1].classes & GC_NEG) return REACH_NOT_ALL;
        all = true;
    }
    return REACH_NONE;
}

/* 不都, 都不; 不一定, 一定不; 不太, 太不: what the "not" reaches. */
static enum reach reach_in_chinese(const struct guard_text *t)
{
    static const char *const reached[] = {"都", "全", "很", "太", "总", NULL};
    for (size_t i = 0; i < t->n_units; i++) {
        if (!guard_unit_is(t, i, "不")) continue;
        bool certain = guard_unit_is(t, i + 1, "一") && guard_unit_is(t, i + 2, "定");
        if (certain || guard_unit_in(t, i + 1, reached)) return REACH_NOT_ALL;
        bool never = i > 1 && guard_unit_is(t, i - 1, "定") && guard_unit_is(t, i - 2, "一");
        if (never || (i && guard_unit_in(t, i - 1, reached))) return REACH_ALL_NOT;
    }
    return REACH_NONE;
}

bool guard_quantifier_differs(struct comparison *c)
{
    enum reach reach_a = reach_of_not(c->a), reach_b = reach_of_not(c->b);
    if (!reach_a) reach_a = reach_in_chinese(c->a);
    if (!reach_b) reach_b = reach_in_chinese(c->b);
    if (reach_a && reach_b && reach_a != reach_b)
        return guard_refuse_hard(c->out, "quantifier", STR("not all"), STR("all not"));
    const unsigned strong = ~(1u << GK_ANY);
    unsigned a = c->a->quants & strong, b = c->b->quants & strong;
    if (a != b) return guard_refuse(c->out, "quantifier", guard_none, guard_none);
    if (c->a->quants != c->b->quants && (has_weak_one(c->a) || has_weak_one(c->b)))
        return guard_refuse(c->out, "quantifier", guard_none, guard_none);
    if ((a & 1u << GK_ONLY) && !str_eq(only_about(c->a), only_about(c->b)))
        return guard_refuse(c->out, "quantifier", only_about(c->a), only_about(c->b));
    return false;
}

/* 多少 stands for how much, how many, how far, and "when" for what time and what day: as vague as the other side needs it. */
static unsigned as_vague_as(unsigned mask, unsigned other)
{
    const unsigned amounts = 1u << GQ_HOWMUCH | 1u << GQ_HOWMANY | 1u << GQ_HOWFAR;
    const unsigned times = 1u << GQ_CLOCK | 1u << GQ_DAY | 1u << GQ_MONTH | 1u << GQ_YEAR;
    if ((other & 1u << GQ_AMOUNT) && !(mask & 1u << GQ_AMOUNT) && (mask & amounts))
        mask = (mask & ~amounts) | 1u << GQ_AMOUNT;
    if ((other & 1u << GQ_WHEN) && !(mask & 1u << GQ_WHEN) && (mask & times))
        mask = (mask & ~times) | 1u << GQ_WHEN;
    return mask;
}

static const char *const question_names[] = {
    "",       "how",   "how much",  "how many", "how long",   "how often", "how far",
    "when",   "where", "who",       "why",      "which",      "what",      "yes/no",
    "amount", "speed", "what time", "what day", "what month", "what year", "what like"};

static struct str question_text(unsigned mask)
{
    for (unsigned i = 1; i <= GQ_OPINION; i++)
        if (mask & 1u << i) return str_of(question_names[i]);
    return guard_none;
}

static bool says_whose(const struct guard_text *t)
{
    for (size_t i = 0; i < t->n_units; i++)
        if (str_eqz(t->units[i].text, "whose")) return true;
    return false;
}

/* Kinds of question that both spell out and that differ. Vague "what" stands for many. */
bool guard_question_differs(struct comparison *c)
{
    if (guard_close(c) && says_whose(c->a) != says_whose(c->b) &&
        (c->a->questions & c->b->questions & 1u << GQ_WHO))
        return guard_refuse_hard(c->out, "question", STR("whose"), STR("who"));
    const unsigned vague = 1u << GQ_WHAT | 1u << GQ_WHICH;
    unsigned a = as_vague_as(c->a->questions, c->b->questions),
             b = as_vague_as(c->b->questions, c->a->questions);
    if (a & ~vague) a &= ~vague;
    if (b & ~vague) b &= ~vague;
    c->out->asks_alike = a == b || !a || !b;
    if (!a || !b || (a & b)) return false;
    if ((a & vague) && (b & vague)) return false;
    bool one_vague = (a & vague) || (b & vague);
    bool close = guard_close(c);
    if (one_vague && !close) return false;
    return guard_refuse(c->out, "question", question_text(a), question_text(b));
}

static unsigned duty(unsigned modals)
{
    return modals & 1u << GM_NEED ? (modals & ~(1u << GM_NEED)) | 1u << GM_MUST : modals;
}

/* "Is there parking", "can I park". */
static bool offers_doing(const struct comparison *c)
{
    for (size_t i = 0; i < c->a->n; i++) {
        size_t j = c->align.partner[i];
        if (j == GUARD_NO_PARTNER || j >= c->b->n) continue;
        for (int side = 0; side < 2; side++) {
            const struct guard_text *t = side ? c->b : c->a, *other = side ? c->a : c->b;
            size_t at = side ? j : i, there = side ? i : j;
            if (at > 0 && str_eqz(t->tokens[at - 1].text, "there") &&
                str_ends(t->tokens[at].text, STR("ing")) &&
                !str_ends(other->tokens[there].text, STR("ing")) && at + 1 < t->n &&
                there + 1 < other->n &&
                guard_tokens_equal(&t->tokens[at + 1], &other->tokens[there + 1]))
                return memchr(other->persons, '1', other->n_persons) != NULL;
        }
    }
    return false;
}

/* An amount, not a way. */
bool guard_asks_degree(const struct guard_text *t)
{
    static const char *const degrees[] = {
        "old",      "young",    "big",       "large",     "small",     "heavy",     "tall",
        "high",     "low",      "wide",      "deep",      "thick",     "slow",      "late",
        "early",    "close",    "near",      "safe",      "secure",    "good",      "bad",
        "hard",     "easy",     "difficult", "strong",    "hot",       "cold",      "warm",
        "loud",     "bright",   "dark",      "full",      "busy",      "likely",    "sure",
        "clean",    "new",      "fresh",     "common",    "important", "different", "popular",
        "accurate", "reliable", "healthy",   "dangerous", "cheap",     "short",     "serious",
        "strict",   "flexible", NULL};
    for (size_t i = 0; i + 1 < t->n_units; i++)
        if (guard_unit_is(t, i, "how") && guard_unit_in(t, i + 1, degrees)) return true;
    return false;
}

bool guard_modality_differs(struct comparison *c)
{
    /* in how and where questions "can", "do" and "should" ask the same */
    const unsigned manner = 1u << GQ_HOW | 1u << GQ_WHERE,
                   amount =
                       1u << GQ_HOWMANY | 1u << GQ_HOWMUCH | 1u << GQ_HOWLONG | 1u << GQ_HOWFAR;
    const unsigned open = ~(1u << GQ_YESNO), must = 1u << GM_MUST, can = 1u << GM_CAN,
                   should = 1u << GM_SHOULD;
    unsigned qa = c->a->questions, qb = c->b->questions;
    unsigned a = duty(c->a->modals), b = duty(c->b->modals);
    bool close = guard_close(c);
    if (close && (qa & qb & 1u << GQ_WHERE) && a && b && ((a ^ b) & must))
        return guard_refuse(c->out, "modality", guard_none,
                            guard_none); /* where I can, where I must */
    if (close && (a | should) != (b | should) && guard_asks_degree(c->a) && guard_asks_degree(c->b))
        return guard_refuse(c->out, "modality", guard_none, guard_none);
    if ((qa | qb) & manner) return false;
    if (a && b && !(a & b)) return guard_refuse(c->out, "modality", guard_none, guard_none);
    if (close && a && b && ((a ^ b) & must))
        return guard_refuse(c->out, "modality", guard_none, guard_none);
    if (close && (qa & qb & amount) && (a | should) != (b | should))
        return guard_refuse(c->out, "modality", guard_none,
                            guard_none); /* how many may, how many do */
    if ((qa | qb) & open) return false;
    if (close && !(qa | qb) && ((a ^ b) & can))
        return guard_refuse(c->out, "modality", guard_none, guard_none); /* I want to, I can */
    if (((c->a->modals & (must | should)) && !b) || ((c->b->modals & (must | should)) && !a))
        return guard_refuse(c->out, "modality", guard_none, guard_none);
    if (close && !offers_doing(c) &&
        ((c->a->asks_be && !a && (b & can)) || (c->b->asks_be && !b && (a & can))))
        return guard_refuse(c->out, "modality", guard_none, guard_none); /* is it, can it be */
    return false;
}

/* Did, was, has ...ed against do, is, will. "Why was it declined" and "why is it declined" are asked about the same event. */
static bool english_tense_differs(const struct guard_text *a, const struct guard_text *b)
{
    if ((a->scripts | b->scripts) & GS_HAN || ((a->questions | b->questions) & 1u << GQ_WHY))
        return false;
    bool past_a = a->past || a->perfect, past_b = b->past || b->perfect;
    return past_a != past_b && ((past_a ? b : a)->present || (past_a ? b : a)->future);
}

static bool asks_if_done(const struct guard_text *t)
{
    if (t->past) return true;
    for (size_t i = 0; i < t->n_units; i++)
        if (str_eqz(t->units[i].text, "没") || str_eqz(t->units[i].text, "了")) return true;
    return false;
}

/* 什么时候修好的: it is done, against 什么时候修. */
static bool asks_when_it_was(const struct guard_text *t)
{
    return (t->questions & 1u << GQ_WHEN) && t->n > 1 && str_eqz(t->tokens[t->n - 1].text, "的") &&
           t->tokens[t->n - 2].content;
}

bool guard_tense_differs(struct comparison *c)
{
    const unsigned can = 1u << GM_CAN;
    bool chinese = c->a->scripts & c->b->scripts & GS_HAN;
    if (chinese && guard_close(c) && c->a->past != c->b->past &&
        ((c->a->past ? c->b : c->a)->modals & can) && !((c->a->past ? c->a : c->b)->modals & can))
        return guard_refuse(c->out, "tense", guard_none, guard_none); /* 到账了吗, 能到账吗 */
    if (guard_close(c) && english_tense_differs(c->a, c->b))
        return guard_refuse(c->out, "tense", guard_none, guard_none);
    if (chinese && guard_close(c) &&
        ((c->a->past && !asks_if_done(c->b)) || (c->b->past && !asks_if_done(c->a))))
        return guard_refuse(c->out, "tense", guard_none, guard_none); /* 钱退了吗, 钱退吗 */
    bool was_a = asks_when_it_was(c->a), was_b = asks_when_it_was(c->b);
    if (chinese && guard_close(c) && was_a != was_b && !asks_if_done(was_a ? c->b : c->a))
        return guard_refuse(c->out, "tense", guard_none, guard_none);
    if (chinese && guard_close(c) && c->a->future != c->b->future)
        return guard_refuse(c->out, "tense", guard_none, guard_none); /* 将要, 正在 */
    bool clash = (c->a->past && c->b->future && !c->b->past && !c->a->future) ||
                 (c->b->past && c->a->future && !c->a->past && !c->b->future);
    return clash && guard_refuse(c->out, "tense", guard_none, guard_none);
}

/* "I" or "how do I" without "me", "me" without "I": who can I bill, who can bill me. */
static bool only_case(const struct guard_text *t, const char *one, const char *other)
{
    bool has = false;
    for (size_t i = 0; i < t->n; i++) {
        struct str s = t->tokens[i].text, last = s;
        for (ptrdiff_t at; (at = str_find_char(last, ' ')) >= 0;)
            last = str_sub(last, (size_t)at + 1, last.n);
        if (str_eqz(last, other)) return false;
        has = has || str_eqz(s, one) || str_eqz(last, one);
    }
    return has;
}

/* Who does it: can I cancel, can you cancel; can I call you, can you call me. How-questions use "you" for anyone. */
bool guard_person_differs(struct comparison *c)
{
    const struct guard_text *a = c->a, *b = c->b;
    if (!guard_close(c) || !a->n_persons || !b->n_persons) return false;
    if ((only_case(a, "i", "me") && only_case(b, "me", "i")) ||
        (only_case(b, "i", "me") && only_case(a, "me", "i")))
        return guard_refuse(c->out, "subject", STR("I"), STR("me"));
    if (a->persons[0] == b->persons[0]) return false;
    bool both_a = memchr(a->persons, '1', a->n_persons) && memchr(a->persons, '2', a->n_persons);
    bool both_b = memchr(b->persons, '1', b->n_persons) && memchr(b->persons, '2', b->n_persons);
    if ((a->questions & b->questions & 1u << GQ_HOW) && !both_a && !both_b) return false;
    return guard_refuse(c->out, "subject", guard_none, guard_none);
}

static bool same_persons(const struct guard_text *a, const struct guard_text *b)
{
    for (const char *p = "123"; *p; p++)
        if (a->n_persons && b->n_persons &&
            !memchr(a->persons, *p, a->n_persons) != !memchr(b->persons, *p, b->n_persons))
            return false;
    return true;
}

/* What is denied: the content behind each "not", before it for endings such as 不了. */
static struct str denied_at(const struct guard_text *t, size_t i)
{
    bool ending = (t->tokens[i].classes & GC_UNABLE) && t->tokens[i].kind == GT_HAN &&
                  !str_eqz(t->tokens[i].text, "不能") && !str_eqz(t->tokens[i].text, "不让") &&
                  !str_eqz(t->tokens[i].text, "不可以") &&
                  str_find(t->tokens[i].text, STR("不")) >= 0;
    if (ending)
        for (size_t j = i; j-- > 0;)
            if (t->tokens[j].content) return t->tokens[j].canon;
    for (size_t j = i + 1; !ending && j < t->n; j++)
        if (t->tokens[j].content) return t->tokens[j].canon;
    return (struct str){"", 0};
}

/* "Why isn't the heater on" and "why is the heater not on": the first "not" has changed places with the subject. */
static bool asks_inverted(const struct guard_text *t)
{
    if (t->negations != 1 || !(t->questions & ~(1u << GQ_YESNO))) return false;
    for (size_t i = 2; i + 1 < t->n_units; i++)
        if (t->units[i].contracted && str_eqz(t->units[i].text, "not")) return true;
    return false;
}

static bool denies_last(const struct guard_text *t)
{
    size_t last = t->n;
    while (last > 0 && !t->tokens[last - 1].content)
        last--;
    if (t->negations != 1 || last < 2) return false;
    for (size_t i = last - 1; i-- > 0;) {
        if (t->tokens[i].classes & GC_NEG) return true;
        if (t->tokens[i].content) return false;
    }
    return false;
}

bool guard_denied_differs(struct comparison *c)
{
    const struct guard_text *t[2] = {c->a, c->b};
    if (!guard_close(c)) return false;
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < t[side]->n; i++) {
            if (!(t[side]->tokens[i].classes & GC_NEG)) continue;
            struct str what = denied_at(t[side], i);
            bool found = false;
            for (size_t j = 0; j < t[1 - side]->n && !found; j++)
                found = (t[1 - side]->tokens[j].classes & GC_NEG) &&
                        str_eq(denied_at(t[1 - side], j), what);
            if (!found && asks_inverted(t[side]) && denies_last(t[1 - side])) found = true;
            if (!found && asks_inverted(t[1 - side]) && denies_last(t[side])) found = true;
            if (!found && (t[1 - side]->negations || t[side]->negations > 1)) {
                bool twice = i && (t[side]->tokens[i - 1].classes & GC_NEG); /* not impossible */
                bool twice_next = i + 1 < t[side]->n && (t[side]->tokens[i + 1].classes & GC_NEG);
                if (!twice && !twice_next)
                    return guard_refuse(c->out, "negation", what, guard_none);
            }
        }
    return false;
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
    if (((as_vague_as(a->all_questions, b->all_questions) ^
          as_vague_as(b->all_questions, a->all_questions)) &
         ~light) == 0)
        return true;
    /* "why can't I", "I can't" */
    return unable(a) && unable(b) &&
           !((a->all_questions | b->all_questions) & ~(light | 1u << GQ_WHY));
}

bool guard_ask_the_same(struct comparison *c)
{
    const struct guard_text *a = c->a, *b = c->b;
    if (!question_explained(a, b)) {
        guard_refuse(c->out, "question", question_text(a->questions), question_text(b->questions));
        return false;
    }
    /* how do I, how do you: anyone */
    bool anyone = a->n_persons && b->n_persons && !memchr(a->persons, '3', a->n_persons) &&
                  (a->questions & b->questions & 1u << GQ_HOW);
    if (!anyone && !same_persons(a, b)) {
        guard_refuse(c->out, "subject", guard_none, guard_none);
        return false;
    }
    return true;
}
