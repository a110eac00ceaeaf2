/* guard_asks.c - a guard over what the answer would have to be, in English: one of several against yes or no, whoever does it against
 * whom it is done to, and which state a thing has come to. These hold however freely the rest is worded, so they are hard. Pure. */
#include "cache/guard_rules.h"

static bool is_doer(struct str s)
{
    static const char *const doers[] = {"i", "we", "you", "u", "they", "he", "she", NULL};
    return guard_one_of(s, doers);
}

static bool is_helper(struct str s)
{
    static const char *const helpers[] = {"do",     "does", "did", "can",  "could",
                                          "should", "must", "may", "will", NULL};
    return guard_one_of(s, helpers);
}

/* "Who do I pay": someone else is asked for than in "who pays". */
static bool asks_whom(const struct guard_text *t)
{
    for (size_t i = 0; i + 2 < t->n_units; i++) {
        bool who = str_eqz(t->units[i].text, "who") || str_eqz(t->units[i].text, "whom");
        struct str next = t->units[i + 1].text;
        if (who && (str_eqz(next, "to") || (is_helper(next) && is_doer(t->units[i + 2].text))))
            return true;
    }
    return false;
}

/* Yes or no is the answer, also where only the question mark tells. */
static bool asks_yes_or_no(const struct guard_text *t)
{
    if (t->questions) return t->questions == 1u << GQ_YESNO;
    return t->n_units > 1 && t->units[t->n_units - 1].question_end;
}

static bool asks_which(const struct guard_text *t)
{
    return t->questions & 1u << GQ_WHICH;
}

/* "This one or that one": then "which" and "is it this one" may be one question. */
static bool names_alternatives(const struct guard_text *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (str_eqz(t->tokens[i].text, "or") || str_eqz(t->tokens[i].text, "vs")) return true;
    return false;
}

/* Delivered, signed, come; not "pay", which only "did" makes one. */
static bool ends_a_state(struct str word)
{
    static const char *const irregular[] = {
        "come",        "came",        "arrive",     "sent",         "paid",
        "paid out",    "paid back",   "given back", "brought back", "sent out",
        "sent back",   "called off",  "put off",    "handed over",  "handed in",
        "printed out", "turned down", "frozen",     "stolen",       "broken",
        "built",       "found",       "lost",       "set up",       NULL};
    return guard_one_of(word, irregular) || str_ends(word, STR("ed"));
}

/* The state that is asked for: the only one named, and said of the thing by "was", "has been" or "did"; 0 = none. */
static unsigned state_asked(const struct guard_text *t, struct str *word)
{
    unsigned state = 0;
    bool did = false;
    if (!asks_yes_or_no(t) && t->questions) return 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct guard_token *k = &t->tokens[i];
        did = did || str_eqz(k->text, "did");
        if (!k->word || !k->word->state) continue;
        if (i + 1 < t->n && str_eqz(t->tokens[i + 1].text, "back")) return 0;
        if (!did && !ends_a_state(k->text)) continue;
        if (state && state != k->word->state) return 0;
        bool open = did || k->clause_start || i + 1 == t->n || t->tokens[i + 1].clause_start;
        for (size_t j = 0; j < i && !open; j++)
            open = (t->tokens[j].classes & GC_AUX) != 0;
        if (!open) continue;
        state = k->word->state;
        *word = k->text;
    }
    return state;
}

/* --- how long something takes, or how long somebody has to do it */
enum span { SPAN_NONE, SPAN_TAKES, SPAN_LEFT };

static bool unit_is(const struct guard_text *t, size_t i, const char *const *words)
{
    return i < t->n_units && guard_one_of(t->units[i].text, words);
}

/* Of "how long do I have to return it" what follows "I": who has to wait, or may expect something, asks how long that takes. */
static bool is_left(const struct guard_text *t, size_t i, bool may)
{
    static const char *const has[] = {"have", "got", "get", NULL}, *const to[] = {"to", NULL},
                             *const passes[] = {"wait", "expect", "be", "take", NULL};
    if (!may && !unit_is(t, i++, has)) return false;
    if (!may && unit_is(t, i, to)) i++;
    return i < t->n_units && !unit_is(t, i, passes);
}

static enum span span_asked(const struct guard_text *t)
{
    static const char *const how[] = {"how", NULL}, *const span[] = {"long", "days", "weeks", NULL},
                             *const many[] = {"many", NULL},
                             *const takes[] = {"take", "takes", "taking", NULL},
                             *const may[] = {"can", "could", "may", NULL},
                             *const asks[] = {"do", "have", "can", "could", "may", NULL};
    for (size_t i = 0; i + 2 < t->n_units; i++) {
        if (!unit_is(t, i, how)) continue;
        size_t at = i + 1 + unit_is(t, i + 1, many);
        if (!unit_is(t, at, span)) continue;
        if (unit_is(t, at + 1, asks) && at + 2 < t->n_units && is_doer(t->units[at + 2].text) &&
            is_left(t, at + 3, unit_is(t, at + 1, may)))
            return SPAN_LEFT;
        for (size_t k = at + 1; k < t->n_units; k++)
            if (unit_is(t, k, takes)) return SPAN_TAKES;
    }
    return SPAN_NONE;
}

bool guard_asks_differ(struct comparison *c)
{
    struct str a = guard_none, b = guard_none;
    if ((c->a->scripts | c->b->scripts) & GS_HAN) return false;
    unsigned state_a = state_asked(c->a, &a), state_b = state_asked(c->b, &b);
    if (state_a && state_b && state_a != state_b) {
        return guard_refuse_hard(c->out, "thing", a, b);
    }
    bool which =
        (asks_which(c->a) && asks_yes_or_no(c->b)) || (asks_which(c->b) && asks_yes_or_no(c->a));
    if (which && !names_alternatives(c->a) && !names_alternatives(c->b)) {
        return guard_refuse_hard(c->out, "question", STR("which"), STR("yes/no"));
    }
    enum span span_a = span_asked(c->a), span_b = span_asked(c->b);
    if (span_a && span_b && span_a != span_b)
        return guard_refuse_hard(c->out, "question", STR("how long it takes"),
                                 STR("how long there is for it"));
    if (!guard_close(c) || asks_whom(c->a) == asks_whom(c->b) ||
        !(c->a->questions & c->b->questions & 1u << GQ_WHO))
        return false;
    return guard_refuse_hard(c->out, "subject", STR("who"), STR("whom"));
}
