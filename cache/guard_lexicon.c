/* guard_lexicon.c - reads the word lists into one table of phrases, one set of opposite pairs, one list of contractions and one
 * map of characters. A line is `directive phrase|phrase|...`:
 *   syn head|alt..      alternatives share the head's meaning
 *   ant a|b|c           a is the opposite of b and of c (synonyms are followed)
 *   soft drop neg unable known aux past future yesno english measure p1 p2 p3 place make out   the class of that name
 *   thing:n             of kind n, and still what it is itself
 *   state:n cased:n loan   struct guard_word
 *   q:x quant:x modal:x when:x weak:x unit:x cur:x num:x ord:x month:x date:x clock:x foreign:x   a class with a code
 *   contraction short=long|...
 * The first directive that gives a phrase a meaning wins; classes add up. */
#include "cache/guard_lexicon.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

static const char *const word_lists[] = {
#include "cache/guard_data/grammar_en.inc"
    ,
#include "cache/guard_data/grammar_zh.inc"
    ,
#include "cache/guard_data/synonyms_en.inc"
    ,
#include "cache/guard_data/synonyms_zh.inc"
    ,
#include "cache/guard_data/opposites_en.inc"
    ,
#include "cache/guard_data/opposites_zh.inc"
    ,
#include "cache/guard_data/known_en.inc"
    ,
#include "cache/guard_data/names_en.inc"
    ,
#include "cache/guard_data/things_en.inc"
    ,
#include "cache/guard_data/writing_en.inc"
    ,
#include "cache/guard_data/states_en.inc"
};
static const char variant_pairs[] =
#include "cache/guard_data/zh_variants.inc"
    ;

enum {
    SLOTS = 1 << 15,
    OPPOSITE_SLOTS = 1 << 13,
    CONTRACTIONS_MAX = 512,
    VARIANTS_MAX = 4096,
    ARENA_BYTES = 4 << 20,
    CONFLICTS_MAX = 64
};

/* Which first bytes go with which lengths in a set of phrases: most of what is not in it is seen here. */
enum { SHAPES = 1 << 13 };
struct shapes {
    uint32_t lengths[SHAPES]; /* by the first four bytes: bit n = some of n bytes, 31 = of more */
};

struct opposite {
    struct str a, b;
};
struct contraction {
    struct str from, to;
};
struct variant {
    uint32_t from, to;
};
struct guard_lexicon {
    struct arena *arena;
    struct guard_word **slots; /* open addressing, SLOTS of them */
    uint16_t *
        tags; /* of the phrases there: most of what stands in the way of another is seen here; 0 = free */
    size_t n_words;
    struct shapes words, opposed, contracted; /* phrases of slots, opposites, contractions */
    struct opposite *opposites;               /* open addressing, OPPOSITE_SLOTS of them */
    size_t n_opposites;
    struct contraction contractions[CONTRACTIONS_MAX];
    size_t n_contractions;
    struct variant variants[VARIANTS_MAX]; /* sorted by from */
    size_t n_variants;
    struct str conflicts[CONFLICTS_MAX];
    size_t n_conflicts;
};

static struct str keep(struct guard_lexicon *x, struct str s)
{
    char *p = arena_strndup(x->arena, s.p, s.n);
    ASSERT(p); /* the lists are ours, so the bound is a matter of the build */
    return (struct str){p, s.n};
}

static uint32_t *lengths_of(struct shapes *s, struct str phrase)
{
    uint32_t first = 0;
    memcpy(&first, phrase.p, phrase.n < sizeof first ? phrase.n : sizeof first);
    return &s->lengths[first * 0x9E3779B1u >> 19];
}

static uint32_t length_bit(struct str phrase)
{
    return UINT32_C(1) << (phrase.n < 31 ? phrase.n : 31);
}

static void shape_add(struct shapes *s, struct str phrase)
{
    if (phrase.n) *lengths_of(s, phrase) |= length_bit(phrase);
}

/* False: phrase was never added. */
static bool shape_fits(const struct shapes *s, struct str phrase)
{
    return phrase.n && (*lengths_of((struct shapes *)(uintptr_t)s, phrase) & length_bit(phrase));
}

/* Its place, or the free one where it would stand. */
static size_t slot_of(const struct guard_lexicon *x, struct str phrase, uint16_t *tag)
{
    uint64_t h = hash_bytes(0, phrase).lo;
    size_t i = (size_t)h & (SLOTS - 1);
    *tag = (uint16_t)(h >> 48 | 1);
    while (x->tags[i] && (x->tags[i] != *tag || !str_eq(x->slots[i]->phrase, phrase)))
        i = (i + 1) & (SLOTS - 1);
    return i;
}

const struct guard_word *guard_lexicon_find(const struct guard_lexicon *x, struct str phrase)
{
    uint16_t tag;
    return shape_fits(&x->words, phrase) ? x->slots[slot_of(x, phrase, &tag)] : NULL;
}

static struct guard_word *intern(struct guard_lexicon *x, struct str phrase)
{
    uint16_t tag;
    size_t at = slot_of(x, phrase, &tag);
    if (x->slots[at]) return x->slots[at];
    ASSERT(x->n_words < SLOTS * 3 / 4);
    struct guard_word *w = arena_alloc(x->arena, sizeof *w);
    ASSERT(w);
    w->phrase = keep(x, phrase);
    x->slots[at] = w;
    shape_add(&x->words, w->phrase);
    x->tags[at] = tag;
    x->n_words++;
    return w;
}

/* The pair as one key, the smaller first, so that order does not matter. */
static struct opposite *opposite_slot(const struct guard_lexicon *x, struct str a, struct str b)
{
    uint64_t ha = hash_bytes(0, a).lo, hb = hash_bytes(0, b).lo;
    size_t i = (size_t)(ha ^ hb) & (OPPOSITE_SLOTS - 1);
    for (;; i = (i + 1) & (OPPOSITE_SLOTS - 1)) {
        struct opposite *o = &x->opposites[i];
        if (!o->a.n) return o;
        if ((str_eq(o->a, a) && str_eq(o->b, b)) || (str_eq(o->a, b) && str_eq(o->b, a))) return o;
    }
}

bool guard_lexicon_opposite(const struct guard_lexicon *x, struct str canon_a, struct str canon_b)
{
    if (!shape_fits(&x->opposed, canon_a) || !shape_fits(&x->opposed, canon_b)) return false;
    return opposite_slot(x, canon_a, canon_b)->a.n > 0;
}

static struct str canon_of(struct guard_lexicon *x, struct str phrase)
{
    struct guard_word *w = intern(x, phrase);
    if (!w->canon.n) w->canon = w->phrase;
    return w->canon;
}

static void add_opposites(struct guard_lexicon *x, struct str list)
{
    struct str a, b;
    if (!str_next(&list, '|', &a)) return;
    struct str ca = canon_of(x, a);
    while (str_next(&list, '|', &b)) {
        struct str cb = canon_of(x, b);
        if (str_eq(ca, cb)) continue;
        ASSERT(x->n_opposites < OPPOSITE_SLOTS / 2);
        struct opposite *o = opposite_slot(x, ca, cb);
        if (!o->a.n) x->n_opposites++;
        *o = (struct opposite){ca, cb};
        shape_add(&x->opposed, ca);
        shape_add(&x->opposed, cb);
    }
}

static void add_synonyms(struct guard_lexicon *x, struct str list)
{
    struct str head, alt;
    if (!str_next(&list, '|', &head)) return;
    struct guard_word *h = intern(x, head);
    if (!h->canon.n) h->canon = h->phrase;
    h->classes |= GC_SYNONYM | GC_KNOWN;
    while (str_next(&list, '|', &alt)) {
        struct guard_word *w = intern(x, alt);
        if (w->canon.n && !str_eq(w->canon, h->canon) && (w->classes & GC_SYNONYM) &&
            x->n_conflicts < CONFLICTS_MAX)
            x->conflicts[x->n_conflicts++] = w->phrase;
        if (!w->canon.n) w->canon = h->canon;
        w->classes |= GC_SYNONYM | GC_KNOWN;
    }
}

static void add_contractions(struct guard_lexicon *x, struct str list)
{
    struct str item, from;
    while (str_next(&list, '|', &item)) {
        if (!str_next(&item, '=', &from)) continue;
        ASSERT(x->n_contractions < CONTRACTIONS_MAX);
        if (!from.n) continue;
        x->contractions[x->n_contractions++] = (struct contraction){keep(x, from), keep(x, item)};
        shape_add(&x->contracted, from);
    }
}

struct str guard_lexicon_contraction(const struct guard_lexicon *x, struct str word)
{
    if (!shape_fits(&x->contracted, word)) return (struct str){NULL, 0};
    for (size_t i = 0; i < x->n_contractions; i++)
        if (str_eq(x->contractions[i].from, word)) return x->contractions[i].to;
    return (struct str){NULL, 0};
}

/* name of a code -> its number, from a list in the order of the enum; 0 when unknown */
static uint8_t code_in(const char *const *names, size_t n, struct str code)
{
    for (size_t i = 0; i < n; i++)
        if (str_eqz(code, names[i])) return (uint8_t)(i + 1);
    return 0;
}

struct directive {
    const char *name;
    uint32_t classes;
};
static const struct directive directives[] = {
    {"soft", GC_SOFT},
    {"drop", GC_DROP},
    {"neg", GC_NEG},
    {"unable", GC_NEG | GC_UNABLE},
    {"known", GC_KNOWN},
    {"aux", GC_AUX},
    {"past", GC_PAST},
    {"future", GC_FUTURE},
    {"yesno", GC_YESNO_END},
    {"english", GC_ENGLISH},
    {"measure", GC_MEASURE},
    {"p1", GC_PERSON1},
    {"p2", GC_PERSON2},
    {"p3", GC_PERSON3},
    {"q", GC_QUESTION},
    {"quant", GC_QUANT},
    {"modal", GC_MODAL},
    {"when", GC_WHEN},
    {"weak", GC_WEAK_WHEN},
    {"unit", GC_UNIT},
    {"cur", GC_CURRENCY},
    {"num", GC_NUMBER},
    {"ord", GC_NUMBER | GC_ORDINAL},
    {"month", GC_MONTH},
    {"date", GC_DATE},
    {"clock", GC_CLOCK},
    {"foreign", GC_FOREIGN},
    {"place", GC_PLACE},
    {"make", GC_MAKE},
    {"out", GC_RULES_OUT},
};

static void set_code(struct guard_word *w, uint32_t classes, struct str code)
{
    static const char *const questions[] = {"how",    "howmuch", "howmany", "howlong", "howoften",
                                            "howfar", "when",    "where",   "who",     "why",
                                            "which",  "what",    "yesno",   "amount",  "howfast",
                                            "clock",  "day",     "month",   "year"};
    static const char *const quants[] = {"all",    "any",     "some",   "no",   "only", "both",
                                         "either", "atleast", "atmost", "most", "many", "few"};
    static const char *const modals[] = {"can", "must", "should", "need"};
    static const char *const languages[] = {"fr", "de", "es", "it", "pt", "nl"};
    int64_t n = 0;
    double half = 0;
    if (classes & GC_QUESTION)
        w->question = code_in(questions, sizeof questions / sizeof *questions, code);
    if (classes & GC_QUANT) w->quant = code_in(quants, 12, code);
    if (classes & GC_MODAL) w->modal = code_in(modals, 4, code);
    if (classes & GC_FOREIGN) w->language = code_in(languages, 6, code);
    if ((classes & GC_NUMBER) && str_to_f64(code, &half) == OK) w->number = (int32_t)(half * 2);
    if ((classes & GC_MONTH) && str_to_i64(code, 1, 12, &n) == OK) w->month = (uint8_t)n;
    if ((classes & GC_CLOCK) && str_to_i64(code, 0, 12, &n) == OK) w->clock = (uint8_t)n;
}

static void add_class(struct guard_lexicon *x, struct str directive, struct str list)
{
    struct str name, code = directive;
    str_next(&code, ':', &name);
    const struct directive *d = NULL;
    for (size_t i = 0; i < sizeof directives / sizeof *directives; i++)
        if (str_eqz(name, directives[i].name)) d = &directives[i];
    ASSERT(d);
    /* one canonical form per code, so that "each" and "every" are equal; words without a code stand for themselves */
    bool has_code = name.n != directive.n;
    struct str shared = has_code ? keep(x, directive) : (struct str){NULL, 0}, phrase;
    while (str_next(&list, '|', &phrase)) {
        struct guard_word *w = intern(x, phrase);
        w->classes |= d->classes | GC_KNOWN;
        if (!w->canon.n && has_code) w->canon = shared;
        if (has_code) set_code(w, d->classes, code);
    }
}

/* thing:n, state:n, cased:n, loan: says more of a word, and nothing of its meaning */
static void add_trait(struct guard_lexicon *x, struct str directive, struct str list)
{
    struct str name, phrase;
    int64_t n = 0;
    str_next(&directive, ':', &name);
    bool thing = str_eqz(name, "thing"), cased = str_eqz(name, "cased"),
         state = str_eqz(name, "state");
    if (thing) ASSERT(str_to_i64(directive, 1, GUARD_THINGS_MAX, &n) == OK);
    if (state) ASSERT(str_to_i64(directive, 1, GUARD_STATES_MAX, &n) == OK);
    if (cased) ASSERT(str_to_i64(directive, 1, GUARD_CASE_ALWAYS, &n) == OK);
    while (str_next(&list, '|', &phrase)) {
        struct guard_word *w = intern(x, phrase);
        w->classes |= GC_KNOWN;
        if (thing)
            w->thing = (uint8_t)n;
        else if (state)
            w->state = (uint8_t)n;
        else if (cased)
            w->cased = (uint8_t)n;
        else
            w->loan = true;
    }
}

static void read_list(struct guard_lexicon *x, struct str text)
{
    struct str line, directive;
    while (str_next(&text, '\n', &line)) {
        if (!str_next(&line, ' ', &directive) || !directive.n) continue;
        if (str_eqz(directive, "syn"))
            add_synonyms(x, line);
        else if (str_eqz(directive, "ant"))
            add_opposites(x, line);
        else if (str_eqz(directive, "contraction"))
            add_contractions(x, line);
        else if (str_starts(directive, STR("thing:")) || str_starts(directive, STR("state:")) ||
                 str_starts(directive, STR("cased:")) || str_eqz(directive, "loan"))
            add_trait(x, directive, line);
        else
            add_class(x, directive, line);
    }
}

static void read_variants(struct guard_lexicon *x)
{
    struct str s = {variant_pairs, sizeof variant_pairs - 1};
    while (s.n) {
        uint32_t from, to;
        size_t n = utf8_decode(s, &from);
        size_t m = n ? utf8_decode(str_sub(s, n, s.n), &to) : 0;
        ASSERT(n && m && x->n_variants < VARIANTS_MAX);
        ASSERT(!x->n_variants || x->variants[x->n_variants - 1].from < from);
        x->variants[x->n_variants++] = (struct variant){from, to};
        s = str_sub(s, n + m, s.n);
    }
}

uint32_t guard_lexicon_simplify(const struct guard_lexicon *x, uint32_t code_point)
{
    size_t lo = 0, hi = code_point < x->variants[0].from ? 0 : x->n_variants;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (x->variants[mid].from < code_point)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < x->n_variants && x->variants[lo].from == code_point ? x->variants[lo].to
                                                                    : code_point;
}

struct guard_lexicon *guard_lexicon_new(void)
{
    struct guard_lexicon *x = xcalloc(1, sizeof *x);
    x->arena = arena_new(ARENA_BYTES);
    x->slots = xcalloc(SLOTS, sizeof *x->slots);
    x->tags = xcalloc(SLOTS, sizeof *x->tags);
    x->opposites = xcalloc(OPPOSITE_SLOTS, sizeof *x->opposites);
    for (size_t i = 0; i < sizeof word_lists / sizeof *word_lists; i++)
        read_list(x, str_of(word_lists[i]));
    for (size_t i = 0; i < SLOTS; i++) {
        struct guard_word *w = x->slots[i];
        if (w && !w->canon.n) w->canon = w->phrase;
        const struct guard_word *head = w && !w->thing ? guard_lexicon_find(x, w->canon) : NULL;
        if (head) w->thing = head->thing; /* a bike is a thing as a bicycle is */
    }
    read_variants(x);
    return x;
}

void guard_lexicon_free(struct guard_lexicon *x)
{
    if (!x) return;
    mem_free(x->slots);
    mem_free(x->tags);
    mem_free(x->opposites);
    arena_free(x->arena);
    mem_free(x);
}

size_t guard_lexicon_conflicts(const struct guard_lexicon *x, struct str *first)
{
    if (x->n_conflicts && first) *first = x->conflicts[0];
    return x->n_conflicts;
}

size_t guard_lexicon_count(const struct guard_lexicon *x)
{
    return x->n_words;
}
