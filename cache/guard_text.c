/* guard_text.c - from units to tokens: the longest phrase of the lexicon, or a number, or the unit alone; then what the sentence
 * as a whole says (what is asked, negated, required, of how many), kept beside the tokens that carry content. */
#include "cache/guard_text.h"

#include <stdio.h>
#include <string.h>

struct str guard_text_keep(struct guard_text *t, struct str s)
{
    if (t->pool_n + s.n + 1 > sizeof t->pool) {
        t->too_long = true;
        return (struct str){"", 0};
    }
    char *p = t->pool + t->pool_n;
    if (s.n) memcpy(p, s.p, s.n);
    p[s.n] = 0; /* for sscanf */
    t->pool_n += s.n + 1;
    return (struct str){p, s.n};
}

static bool joins_with_blank(const struct guard_unit *a, const struct guard_unit *b)
{
    return a->kind != GU_HAN && b->kind != GU_HAN;
}

const struct guard_word *guard_text_phrase(const struct guard_text *t,
                                           const struct guard_lexicon *x, size_t i, size_t *n_units)
{
    char text[96];
    size_t ends[GUARD_PHRASE_HANS_MAX], n = 0, bytes = 0, words = 0;
    for (; n < GUARD_PHRASE_HANS_MAX && i + n < t->n_units && words < GUARD_PHRASE_WORDS_MAX; n++) {
        const struct guard_unit *u = &t->units[i + n];
        if ((n && u->clause_start) || u->kind == GU_SYMBOL || u->kind == GU_OTHER) break;
        bool blank = n && joins_with_blank(u - 1, u);
        if (bytes + u->text.n + 1 > sizeof text) break;
        if (blank) text[bytes++] = ' ';
        memcpy(text + bytes, u->text.p, u->text.n);
        bytes += u->text.n;
        ends[n] = bytes;
        words += u->kind != GU_HAN;
    }
    for (; n > 0; n--) {
        const struct guard_word *w = guard_lexicon_find(x, (struct str){text, ends[n - 1]});
        /* words that stand only in the list of opposites have no class, yet must be seen as one piece */
        if (w) {
            *n_units = n;
            return w;
        }
    }
    return NULL;
}

/* --- one token */
static struct guard_token *push(struct guard_text *t, struct guard_token k)
{
    if (t->n == GUARD_TOKENS_MAX) {
        t->too_long = true;
        return NULL;
    }
    t->tokens[t->n] = k;
    return &t->tokens[t->n++];
}

static struct str span(const struct guard_text *t, size_t i, size_t n)
{
    const struct guard_unit *first = &t->units[i], *last = &t->units[i + n - 1];
    bool folded = first->text.p >= t->folded && first->text.p < t->folded + sizeof t->folded &&
                  last->text.p >= first->text.p && last->text.p < t->folded + sizeof t->folded;
    return folded
               ? (struct str){first->text.p, (size_t)(last->text.p + last->text.n - first->text.p)}
               : first->text;
}

static bool is_vague_month(struct str s)
{
    return str_eqz(s, "may") || str_eqz(s, "march") || str_eqz(s, "mar") || str_eqz(s, "sep") ||
           str_eqz(s, "dec") || str_eqz(s, "jan");
}

static bool number_in(const struct guard_token *k, long long min, long long max, long long *v)
{
    return k->kind == GT_NUMBER && !k->unit.n && k->canon.n > 2 &&
           sscanf(k->canon.p, "%*c:%4lld", v) == 1 && *v >= min && *v <= max && k->canon.n < 7;
}

bool guard_one_of(struct str word, const char *const *list)
{
    for (; word.n && *list; list++)
        if (word.p[0] == (*list)[0] && str_eqz(word, *list)) return true;
    return false;
}

size_t guard_content_at(const struct guard_text *t, size_t i)
{
    for (size_t k = 0; i < t->n_units && k < t->n; k++)
        if (t->tokens[k].content && t->tokens[k].text.p == t->units[i].text.p) return k;
    return GUARD_TOKENS_MAX;
}

static bool month_context(const struct guard_text *t)
{
    static const char *const before[] = {"in",     "of",    "since", "until", "by",     "from",
                                         "during", "next",  "last",  "this",  "before", "after",
                                         "mid",    "early", "late",  "every", "each",   NULL};
    return t->n && guard_one_of(t->tokens[t->n - 1].text, before);
}

/* 1 June 2025, June 1st, June 2025, June. Returns units used, 0 = not a month here. */
static size_t read_month(struct guard_text *t, const struct guard_lexicon *x, size_t i,
                         const struct guard_word *w)
{
    long long day = 0, year = 0, v = 0;
    size_t used = 1, back = 0;
    if (t->n && number_in(&t->tokens[t->n - 1], 1, 31, &day))
        back = 1;
    else if (t->n > 1 && str_eqz(t->tokens[t->n - 1].text, "of") &&
             number_in(&t->tokens[t->n - 2], 1, 31, &day))
        back = 2;
    for (int k = 0; k < 2 && i + used < t->n_units; k++) {
        struct guard_token next = {0};
        size_t n = t->units[i + used].kind == GU_DIGITS || t->units[i + used].kind == GU_WORD
                       ? guard_number_read(t, x, i + used, &next)
                       : 0;
        if (n && !day && number_in(&next, 1, 31, &v))
            day = v, used += n;
        else if (n && !year && number_in(&next, 1900, 2199, &v))
            year = v, used += n;
        else
            break;
    }
    if (!back && used == 1 && is_vague_month(t->units[i].text) && !month_context(t)) return 0;
    char text[24];
    int n = snprintf(text, sizeof text, "d:");
    if (year) n += snprintf(text + n, sizeof text - (size_t)n, "%lld", year);
    n += snprintf(text + n, sizeof text - (size_t)n, "-%02d-", w->month);
    if (day) n += snprintf(text + n, sizeof text - (size_t)n, "%02lld", day);
    t->n -= back;
    struct str text_of_date = span(t, i, used);
    const char *first = t->tokens[t->n].text.p;
    if (back && first >= t->folded && first < text_of_date.p) { /* 5 May */
        text_of_date.n += (size_t)(text_of_date.p - first);
        text_of_date.p = first;
    }
    push(t, (struct guard_token){.text = text_of_date,
                                 .canon = guard_text_keep(t, (struct str){text, (size_t)n}),
                                 .kind = GT_DATE,
                                 .weight = 2,
                                 .content = true});
    return used;
}

static bool clause_ends(const struct guard_text *t, size_t i)
{
    return i >= t->n_units || t->units[i].clause_start;
}

static bool is_soft_unit(const struct guard_text *t, const struct guard_lexicon *x, size_t i)
{
    const struct guard_word *w = i < t->n_units ? guard_lexicon_find(x, t->units[i].text) : NULL;
    return w && (w->classes & GC_SOFT);
}

static bool is_pronoun(const struct guard_text *t, const struct guard_lexicon *x, size_t i)
{
    const struct guard_word *w = i < t->n_units ? guard_lexicon_find(x, t->units[i].text) : NULL;
    return w && (w->classes & (GC_PERSON1 | GC_PERSON2)) && !str_starts(w->phrase, STR("my")) &&
           !str_starts(w->phrase, STR("your"));
}

/* 还 is "still" before these, else "pay back". */
static bool is_still(const struct guard_text *t, size_t i)
{
    static const char *const before[] = {"能", "有", "可", "要", "是", "会",   "在",
                                         "需", "得", "用", "没", "不", "让",   "算",
                                         "差", "未", "应", "该", "想", "没有", NULL};
    return str_eqz(t->units[i].text, "还") && i + 1 < t->n_units &&
           guard_one_of(t->units[i + 1].text, before);
}

/* Chinese question forms: 能不能, 需不需要 (returns 2: skip the first half), a 不 or 没 at the end (returns 1). */
static size_t read_a_not_a(struct guard_text *t, size_t i)
{
    const struct guard_unit *u = &t->units[i];
    if (u->kind != GU_HAN) return 0;
    if (i + 2 < t->n_units && !u[1].clause_start && !u[2].clause_start &&
        (str_eqz(u[1].text, "不") || str_eqz(u[1].text, "没")) && str_eq(u->text, u[2].text)) {
        t->questions |= 1u << GQ_YESNO;
        return 2;
    }
    if ((str_eqz(u->text, "不") || str_eqz(u->text, "没")) && i && clause_ends(t, i + 1)) {
        t->questions |= 1u << GQ_YESNO;
        return 1;
    }
    if (str_eqz(u->text, "没") && i && !u->clause_start && i + 1 < t->n_units &&
        str_eqz(u[1].text, "有") && clause_ends(t, i + 2)) {
        for (size_t k = i; k-- > 0 && !t->units[k + 1].clause_start;) /* 有充电器没有 */
            if (str_eqz(t->units[k].text, "有")) {
                t->questions |= 1u << GQ_YESNO;
                return 2;
            }
    }
    return 0;
}

/* --- what the sentence says as a whole */
static void note_question(struct guard_text *t, struct guard_token *k, bool *clause_asked)
{
    const struct guard_word *w = k->word;
    t->all_questions |= 1u << w->question;
    if (*clause_asked) {
        k->asks_also =
            true; /* "what happens when ..." asks what, not when: the rest is content like any other */
        return;
    }
    *clause_asked = true;
    t->questions |= 1u << w->question;
}

static void note(struct guard_text *t, struct guard_token *k, bool *clause_asked)
{
    const struct guard_word *w = k->word;
    if (w->classes & GC_QUESTION) note_question(t, k, clause_asked);
    if (w->question == GQ_WHERE && str_find(w->phrase, STR(" can ")) > 0) t->modals |= 1u << GM_CAN;
    if (w->classes & GC_QUANT) t->quants |= 1u << w->quant;
    /* "I need", 我要 tell a wish; what is needed is asked in questions */
    bool wish =
        w->modal == GM_NEED && t->n && (t->tokens[t->n - 1].classes & GC_PERSON1) && !t->questions;
    if ((w->classes & GC_MODAL) && !wish) t->modals |= 1u << w->modal;
    if (w->classes & GC_NEG) t->negations++;
    if ((w->classes & GC_UNABLE) && t->n && (t->tokens[t->n - 1].classes & GC_NEG))
        t->modals |= 1u << GM_CAN; /* not impossible */
    if (w->classes & GC_YESNO_END) t->questions |= 1u << GQ_YESNO;
    if (w->classes & GC_PAST) t->past = true;
    if (w->classes & GC_FUTURE) t->future = true;
    if (w->classes & GC_ENGLISH) t->english_words++;
    if ((w->classes & GC_FOREIGN) && w->language < 8) t->foreign_words[w->language]++;
    bool they = str_eqz(k->text, "they") || str_eqz(k->text, "them") || str_eqz(k->text, "their");
    if (((w->classes & (GC_PERSON1 | GC_PERSON2)) || they) && t->n_persons < GUARD_PERSONS_MAX)
        t->persons[t->n_persons++] = they ? '3' : w->classes & GC_PERSON1 ? '1' : '2';
}

static bool points_out(struct str s)
{
    return str_eqz(s, "每") || str_eqz(s, "这") || str_eqz(s, "那") || str_eqz(s, "某") ||
           str_eqz(s, "该") || str_eqz(s, "各");
}

static bool carries_content(const struct guard_text *t, const struct guard_token *k)
{
    if (k->kind == GT_NUMBER) return !k->weak;
    if (!k->word || k->asks_also) return true;
    uint32_t c = k->word->classes;
    if (k->kind == GT_IDENT || (c & GC_DROP && !(c & ~(uint32_t)(GC_DROP | GC_KNOWN))))
        return true;                                      /* IT; 急 of 急诊 */
    if ((c & GC_UNABLE) && (c & GC_SYNONYM)) return true; /* 打不开 says what cannot be done */
    if (c & (GC_PERSON3 | GC_SYNONYM)) return !(c & GC_SOFT) || (c & GC_PERSON3);
    if (c & (GC_SOFT | GC_DROP | GC_QUESTION | GC_QUANT | GC_MODAL | GC_NEG | GC_YESNO_END |
             GC_WHEN | GC_WEAK_WHEN))
        return false;
    if ((c & GC_MEASURE) && !(c & (GC_UNIT | GC_CURRENCY)) && t->n && t->tokens[t->n - 1].word &&
        ((t->tokens[t->n - 1].word->classes & (GC_QUESTION | GC_QUANT)) ||
         points_out(t->tokens[t->n - 1].text)))
        return false; /* 哪张, 每次 */
    return true;
}

/* "from you", "to me": who is at which end of a way */
static bool is_end_of_way(const struct guard_text *t, const struct guard_token *k)
{
    bool person = str_eqz(k->text, "you") || str_eqz(k->text, "me") || str_eqz(k->text, "us");
    return person && t->n &&
           (str_eqz(t->tokens[t->n - 1].text, "from") || str_eqz(t->tokens[t->n - 1].text, "to"));
}

/* 亲, 急, 喂 are politeness when they stand alone, else part of a word: 亲子, 急诊, 喂奶. */
static bool inside_word(const struct guard_text *t, size_t i, size_t n)
{
    struct str s = t->units[i].text;
    bool short_one =
        n == 1 && (str_eqz(s, "亲") || str_eqz(s, "急") || str_eqz(s, "喂") || str_eqz(s, "嗨"));
    return short_one && !(t->units[i].clause_start && clause_ends(t, i + 1)) &&
           !(clause_ends(t, i + 1) && i + 1 >= t->n_units);
}

static bool asks_opinion(struct str s) /* what is it like, when nothing follows */
{
    return str_eqz(s, "怎么样") || str_eqz(s, "咋样") || str_eqz(s, "怎样") || str_eqz(s, "如何");
}

static void push_word(struct guard_text *t, const struct guard_lexicon *x, size_t i, size_t n,
                      const struct guard_word *w, bool *clause_asked)
{
    const struct guard_unit *u = &t->units[i];
    if (str_eqz(u->text, "right") && u->clause_start && clause_ends(t, i + 1))
        return; /* "..., right?" */
    struct guard_token k = {
        .text = span(t, i, n), .word = w, .clause_start = u->clause_start, .capital = u->capital};
    k.owner = t->units[i + n - 1].owner;
    for (size_t j = i; j < i + n; j++)
        k.accented = k.accented || t->units[j].accented;
    k.kind = (uint8_t)(u->kind == GU_IDENT    ? GT_IDENT
                       : u->kind == GU_HAN    ? GT_HAN
                       : u->kind == GU_SYMBOL ? GT_SYMBOL
                       : u->kind == GU_OTHER  ? GT_OTHER
                                              : GT_WORD);
    if (!w && k.kind == GT_WORD) { /* an inflection of a known word? */
        size_t n_stems = guard_stems(t, u->text, k.stems);
        for (size_t s = 1; s < n_stems && !w; s++)
            w = guard_lexicon_find(x, k.stems[s]);
        if (w && (w->classes & (GC_SYNONYM | GC_UNIT | GC_CURRENCY)) == 0 && !w->thing)
            w = NULL; /* only names of things and actions inflect */
        k.word = w;
    }
    k.canon = w ? w->canon : k.text;
    if (w && str_starts(w->canon, STR("date:--"))) { /* 元旦 and 1月1日 are one */
        char date[24];
        int m = snprintf(date, sizeof date, "d:" STR_FMT, STR_ARG(str_sub(w->canon, 6, 16)));
        k.canon = guard_text_keep(t, (struct str){date, (size_t)m});
    }
    k.weight = k.kind == GT_HAN && n == 1 ? 1 : 2;
    if (w) {
        k.classes = w->classes;
        if (w->classes & GC_DROP && !(w->classes & GC_SYNONYM) && !inside_word(t, i, n)) return;
        note(t, &k, clause_asked);
        if (w->question == GQ_HOW && k.kind == GT_HAN && clause_ends(t, i + n) &&
            asks_opinion(k.text)) {
            t->questions = (t->questions & ~(1u << GQ_HOW)) | 1u << GQ_OPINION;
            t->all_questions |= 1u << GQ_OPINION;
        }
        if ((w->classes & GC_YESNO_END) && !(w->classes & GC_SYNONYM)) return;
        if (w->classes & GC_KNOWN && !(w->classes & ~(uint32_t)(GC_KNOWN | GC_ENGLISH)) &&
            k.kind == GT_WORD && !k.stems[1].n)
            guard_stems(t, u->text, k.stems);
    }
    k.content = carries_content(t, &k) || is_end_of_way(t, &k);
    push(t, k);
}

/* Yes/no questions by their first word: "Is ...", "..., can I ...". The "not" of "isn't" at that place asks, it does not deny. */
static void note_clause_start(struct guard_text *t, const struct guard_lexicon *x, size_t i)
{
    const struct guard_unit *u = &t->units[i];
    const struct guard_word *w =
        u->clause_start && u->kind == GU_WORD ? guard_lexicon_find(x, u->text) : NULL;
    if (!w || !(w->classes & GC_AUX)) return;
    bool negated =
        i + 1 < t->n_units && str_eqz(t->units[i + 1].text, "not") && t->units[i + 1].contracted;
    if (!is_soft_unit(t, x, i + (negated ? 2 : 1)) && !negated && i + 1 < t->n_units &&
        t->units[i + 1].kind == GU_WORD) {
        const struct guard_word *next = guard_lexicon_find(x, t->units[i + 1].text);
        if (next && (next->classes & GC_NEG)) return; /* "Do not open": an order */
    }
    t->questions |= 1u << GQ_YESNO;
    bool be = str_eqz(u->text, "is") || str_eqz(u->text, "are") || str_eqz(u->text, "was");
    t->asks_be = t->asks_be || be;
    bool rhetorical = be || ((str_eqz(u->text, "do") || str_eqz(u->text, "does")) &&
                             is_pronoun(t, x, i + 2)); /* don't I need */
    if (negated && rhetorical && is_soft_unit(t, x, i + 2)) t->negations--;
}

static void join_currency_and_clock(struct guard_text *t)
{
    if (t->n < 2) return;
    struct guard_token *a = &t->tokens[t->n - 2], *b = &t->tokens[t->n - 1];
    if (!a->word) return;
    if ((a->word->classes & GC_CURRENCY) && b->kind == GT_NUMBER && !b->unit.n) {
        b->unit = a->word->canon;
        b->classes |= GC_CURRENCY;
        b->weak = false;
        b->content = true;
        if (b->canon.n > 3 && str_find_char(b->canon, '.') > 0)
            while (b->canon.n > 3 &&
                   (str_ends(b->canon, STR("0")) || str_ends(b->canon, STR(".")))) {
                bool dot = str_ends(b->canon, STR("."));
                b->canon.n--;
                if (dot) break;
            }
        *a = *b;
        t->n--;
    } else if ((a->word->classes & GC_CLOCK) && (a->word->classes & GC_WHEN) &&
               b->kind == GT_TIME) {
        long long hour, minute;
        if (sscanf(b->canon.p, "t:%2lld:%2lld", &hour, &minute) != 2) return;
        if (a->word->clock == 12 && hour < 12) hour += 12;
        char text[16];
        int n = snprintf(text, sizeof text, "t:%02lld:%02lld", hour, minute);
        b->canon = guard_text_keep(t, (struct str){text, (size_t)n});
        *a = *b;
        t->n--;
    }
}

static size_t read_number(struct guard_text *t, const struct guard_lexicon *x, size_t i,
                          size_t phrase_units)
{
    struct guard_token k = {.clause_start = t->units[i].clause_start};
    size_t n = guard_number_read(t, x, i, &k);
    if (!n || (phrase_units > 1 && n <= phrase_units)) return 0;
    k.text = span(t, i, n);
    k.weight = 2;
    k.content = !k.weak;
    push(t, k);
    join_currency_and_clock(t);
    return n;
}

/* Returns the units used. Half a year is six months, half an hour 30 minutes. */
static size_t push_number_phrase(struct guard_text *t, size_t i, size_t n,
                                 const struct guard_word *w)
{
    char text[24];
    struct str unit =
        i + n < t->n_units && w->number == 1 ? t->units[i + n].text : (struct str){"", 0};
    bool year = str_eqz(unit, "year"), hour = str_eqz(unit, "hour");
    int m = w->number % 2 ? snprintf(text, sizeof text, "n:%d.5", w->number / 2)
                          : snprintf(text, sizeof text, "n:%d", w->number / 2);
    push(t, (struct guard_token){.text = span(t, i, n),
                                 .canon = guard_text_keep(t, (struct str){text, (size_t)m}),
                                 .kind = GT_NUMBER,
                                 .weight = 2,
                                 .content = true});
    if ((!year && !hour) || !t->n) return n;
    t->tokens[t->n - 1].canon = year ? STR("n:6") : STR("n:30");
    t->tokens[t->n - 1].unit = year ? STR("unit:month") : STR("unit:minute");
    return n + 1;
}

static bool symbol_counts(struct str s)
{
    return s.n == 1 && strchr("=<>^+%", s.p[0]) != NULL;
}

/* "what does it cost", "how much is it", "how much does it cost": the price is asked once. */
static void settle_price(struct guard_text *t)
{
    bool what = t->questions & 1u << GQ_WHAT,
         how_much = t->questions & (1u << GQ_HOWMUCH | 1u << GQ_AMOUNT);
    for (size_t i = 0; i < t->n && (what || how_much); i++) {
        struct guard_token *k = &t->tokens[i];
        if (!str_eqz(k->canon, "fee") && !str_eqz(k->canon, "费用")) continue;
        k->content = false;
        if (!how_much) {
            t->questions = (t->questions & ~(1u << GQ_WHAT)) | 1u << GQ_HOWMUCH;
            t->all_questions = (t->all_questions & ~(1u << GQ_WHAT)) | 1u << GQ_HOWMUCH;
        }
    }
}

/* "what does it mean", "what is the meaning of": what it is. A mean temperature stays one. */
static void settle_meaning(struct guard_text *t)
{
    if (!(t->questions & 1u << GQ_WHAT)) return;
    for (size_t i = 0; i < t->n; i++) {
        struct guard_token *k = &t->tokens[i];
        bool asked =
            str_eqz(k->canon, "meaning") && (i + 1 == t->n || str_eqz(t->tokens[i + 1].text, "of"));
        if (asked && i) k->content = false;
    }
}

bool guard_is_participle(struct str s)
{
    static const char *const irregular[] = {
        "been",      "gone",   "done",   "left",      "sent",    "paid",   "got",    "gotten",
        "made",      "taken",  "come",   "sold",      "lost",    "won",    "had",    "met",
        "seen",      "begun",  "bought", "found",     "given",   "frozen", "stolen", "broken",
        "written",   "chosen", "hidden", "forgotten", "built",   "held",   "kept",   "told",
        "withdrawn", "shown",  "spent",  "lent",      "brought", "caught", NULL};
    return guard_one_of(s, irregular) || (s.n > 3 && str_ends(s, STR("ed")));
}

/* "I have insurance", not "I have lost", "do I have", "have to". */
static bool has_now(const struct guard_text *t, size_t i)
{
    static const char *const helper[] = {"do", "does",   "did",   "can",  "could", "will", "would",
                                         "to", "should", "might", "must", "may",   "not",  NULL},
                             *const behind[] = {"to",   "been",     "not",   "got", "already",
                                                "just", "never",    "ever",  "i",   "we",
                                                "you",  "they",     "he",    "she", "it",
                                                "also", "recently", "still", NULL};
    static const char *const who[] = {"i", "we", "they", "he", "she", NULL};
    if (!guard_unit_is(t, i, "have") && !guard_unit_is(t, i, "has")) return false;
    if (!i || t->units[i].clause_start || !guard_unit_in(t, i - 1, who)) return false;
    if (i > 1 && !t->units[i - 1].clause_start && guard_unit_in(t, i - 2, helper)) return false;
    return i + 1 < t->n_units && !t->units[i + 1].clause_start &&
           !guard_unit_in(t, i + 1, behind) && !guard_is_participle(t->units[i + 1].text);
}

static void note_english_tense(struct guard_text *t)
{
    bool have = false;
    for (size_t i = 0; i < t->n_units; i++) {
        struct str s = t->units[i].text;
        if (have && guard_is_participle(s)) t->perfect = true;
        bool owns =
            i && (str_eqz(s, "a") || str_eqz(s, "an") || str_eqz(s, "my") || str_eqz(s, "no"));
        struct str before = i ? t->units[i - 1].text : s;
        if (owns && (str_eqz(before, "have") || str_eqz(before, "has"))) t->present = true;
        have = (have && !t->units[i].clause_start) || str_eqz(s, "have") || str_eqz(s, "has");
        if (str_eqz(s, "is") || str_eqz(s, "are") || str_eqz(s, "am") || str_eqz(s, "do") ||
            str_eqz(s, "does") || has_now(t, i))
            t->present = true;
    }
}

/* Where the clause's "how", "when" or "where" stands: 信用卡怎么注销 and 怎么注销信用卡 are one. */
static bool asks_manner(unsigned question)
{
    return question == GQ_HOW || question == GQ_WHERE ||
           (question >= GQ_CLOCK && question <= GQ_YEAR) || question == GQ_WHEN;
}

static void note_how(struct guard_text *t)
{
    t->how_at = GUARD_TOKENS_MAX;
    for (size_t i = 0; i < t->n && t->how_at == GUARD_TOKENS_MAX; i++)
        if (t->tokens[i].word && (t->tokens[i].classes & GC_QUESTION) &&
            asks_manner(t->tokens[i].word->question))
            t->how_at = i;
}

static bool explains(const struct guard_text *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (str_starts(t->tokens[i].text, STR("explain")) ||
            str_starts(t->tokens[i].text, STR("describe")))
            return true;
    return false;
}

void guard_text_read(struct guard_text *t, const struct guard_lexicon *x, struct str text)
{
    /* the arrays hold what has been put there */
    memset(&t->n, 0, offsetof(struct guard_text, units) - offsetof(struct guard_text, n));
    t->n_units = t->folded_n = t->pool_n = 0;
    if (text.n > GUARD_TEXT_BYTES_MAX) {
        t->too_long = true;
        return;
    }
    guard_units_read(t, x, text);
    bool clause_asked = false;
    size_t i = 0;
    while (i < t->n_units && !t->too_long) {
        const struct guard_unit *u = &t->units[i];
        size_t n = 1, used;
        if (u->clause_start) clause_asked = false;
        const struct guard_word *w =
            u->kind == GU_SYMBOL ? guard_lexicon_find(x, u->text) : guard_text_phrase(t, x, i, &n);
        if (w && n > 1 && (w->classes & GC_YESNO_END) && !clause_ends(t, i + n) &&
            !str_starts(w->phrase, STR("难道")) && !str_starts(w->phrase, STR("岂")) &&
            (str_ends(w->phrase, STR("没")) || str_ends(w->phrase, STR("没有")) ||
             str_ends(w->phrase, STR("不")))) {
            n = 1; /* 了没 asks only at the end: 咬了没出血 */
            w = guard_lexicon_find(x, u->text);
        }
        if (w && n == 2 && str_eqz(w->phrase, "to me") && !explains(t)) {
            n = 1; /* "explain it to me" is politeness, "send it to me" is not */
            w = guard_lexicon_find(x, u->text);
        }
        bool dropped = w && (w->classes & GC_DROP) && !(w->classes & GC_SYNONYM);
        if (!dropped)
            note_clause_start(t, x, i);
        else if (u->clause_start && i + n < t->n_units)
            t->units[i + n].clause_start = true;
        if ((u->kind == GU_SYMBOL && !w && !symbol_counts(u->text)) || (n == 1 && is_still(t, i))) {
            i++;
        } else if (!(w && (w->classes & GC_YESNO_END)) && (used = read_a_not_a(t, i)) > 0) {
            if (used == 2 && w && n > 2 && (w->classes & GC_MODAL)) { /* 该不该 asks what 该 says */
                push_word(t, x, i, n, w, &clause_asked);
                used = n;
            }
            i += used;
        } else if (w && n > 1 && (w->classes & GC_NUMBER) && u->kind == GU_WORD &&
                   !(w->classes & GC_SOFT)) {
            i += push_number_phrase(t, i, n, w); /* a dozen, half an */
        } else if (w && n == 1 && (w->classes & GC_MONTH) && (used = read_month(t, x, i, w)) > 0) {
            i += used;
        } else if ((u->kind == GU_DIGITS || u->kind == GU_HAN || u->kind == GU_WORD) &&
                   (used = read_number(t, x, i, w ? n : 0)) > 0) {
            i += used;
        } else {
            push_word(t, x, i, w ? n : 1, w, &clause_asked);
            i += w ? n : 1;
        }
    }
    settle_price(t);
    settle_meaning(t);
    note_english_tense(t);
    note_how(t);
}
