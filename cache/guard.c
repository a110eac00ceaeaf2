/* guard.c - the chain of guards. Each returns true when it refuses and says what differs. Order: cheap and certain first. The
 * rules follow kinds of difference (a number, an opposite, an order), never single sentences; tests/unit/cache/test_guard.c prints
 * what they catch and what they cost. */
#include "cache/guard.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "cache/guard_rules.h"

const char *const guard_names[] = {
    "length",        "script",     "language", "identifier",    "number",   "unit",
    "currency",      "time",       "date",     "relative_time", "negation", "quantifier",
    "question",      "modality",   "tense",    "antonym",       "order",    "subject",
    "replaced_word", "added_word", "link",     "no_content",    "name",     "ruled_out",
    "thing",         NULL};

/* From here on two questions are one sentence but for a word, and what a guard says of that word stands: among 4,131 lines of questions
 * that refuses 5 of 100 true rewordings and 22 of 100 near questions (0.5: 18 and 48; 0.9: 1 and 3). */
static const float SAME_SENTENCE = 0.7f;

/* What these find is never a matter of wording, however loosely people judge: "not only", "all", "unlock". */
static const char *const of_meaning[] = {"negation", "quantifier", "antonym",
                                         "modality", "subject",    NULL};

struct guard {
    struct guard_lexicon *lexicon;
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

void guard_simplify(const struct guard *g, struct str text, struct buf *out)
{
    while (text.n) {
        uint32_t code_point;
        char bytes[4];
        size_t n = utf8_decode(text, &code_point);
        uint32_t plain = n ? guard_lexicon_simplify(g->lexicon, code_point) : code_point;
        if (n && plain != code_point)
            buf_add(out, bytes, utf8_encode(plain, bytes));
        else
            buf_add(out, text.p, n ? n : 1);
        text = str_sub(text, n ? n : 1, text.n);
    }
}

uint32_t guard_bit(const char *name)
{
    for (uint32_t i = 0; guard_names[i]; i++)
        if (!strcmp(guard_names[i], name)) return 1u << i;
    return 0;
}

void guard_harden(struct guard_verdict *v, const char *name)
{
    v->hard |= guard_bit(name);
}

bool guard_refuse(struct guard_verdict *v, const char *name, struct str a, struct str b)
{
    v->fired |= guard_bit(name);
    if (v->refused_by[0]) return true; /* the first one is told of */
    v->refused_by = name;
    int n = snprintf(v->detail, sizeof v->detail, STR_FMT " / " STR_FMT,
                     STR_ARG(a.n > 24 ? str_sub(a, 0, 24) : a),
                     STR_ARG(b.n > 24 ? str_sub(b, 0, 24) : b));
    size_t cut = utf8_complete((struct str){v->detail, n < 0 ? 0 : strlen(v->detail)});
    v->detail[cut] = 0;
    return true;
}

bool guard_refuse_hard(struct guard_verdict *v, const char *name, struct str a, struct str b)
{
    guard_harden(v, name);
    return guard_refuse(v, name, a, b);
}

const struct str guard_none = {"-", 1};

typedef bool rule(struct comparison *c);
static rule *const rules[] = {
    guard_script_differs,      guard_language_differs,
    guard_identifiers_differ,  guard_numbers_differ,
    guard_currencies_differ,   guard_times_differ,
    guard_dates_differ,        guard_relative_times_differ,
    guard_negation_differs,    guard_quantifier_differs,
    guard_question_differs,    guard_modality_differs,
    guard_tense_differs,       guard_opposites,
    guard_order_differs,       guard_person_differs,
    guard_denied_differs,      guard_links_differ,
    guard_words_differ,        guard_nothing_to_compare,
    guard_names_differ,        guard_ruled_out_differs,
    guard_things_differ,       guard_ways_differ,
    guard_signs_differ,        guard_writing_differs,
    guard_asks_differ,         guard_deed_differs,
    guard_event_differs,       guard_duty_differs,
    guard_receiver_differs,    guard_counts_differ,
    guard_universal_differs,   guard_only_then_differs,
    guard_degree_differs,      guard_definition_differs,
    guard_modal_order_differs, guard_confused_words,
    guard_undone_differs,      guard_contrasted_differ,
};

/* All are asked, for the verifier wants to know of each; the first that is on is told of. */
static bool any_refuses(struct comparison *c, uint64_t off)
{
    bool any = false;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!rules[i](c)) continue;
        c->out->fired &= ~(uint32_t)off;
        c->out->hard &= ~(uint32_t)off;
        if (any || (c->out->fired & guard_bit(c->out->refused_by))) {
            any = true;
        } else { /* a guard that is off: the next one tells */
            c->out->refused_by = "";
            c->out->detail[0] = 0;
        }
    }
    return any;
}

void guard_check(const struct guard *g, struct str query, struct str stored,
                 struct guard_verdict *out)
{
    guard_check_without(g, 0, query, stored, out);
}

struct guard_reading {
    struct str text;
    struct guard_text read;
    struct guard_token kept[GUARD_TOKENS_MAX]; /* tokens may change places during a check */
};

struct guard_reading *guard_read(const struct guard *g, struct str text)
{
    struct guard_reading *r = xmalloc(sizeof *r);
    r->text = text;
    guard_text_read(&r->read, g->lexicon, text);
    return r;
}

void guard_reading_free(struct guard_reading *r)
{
    mem_free(r);
}

/* c: both texts, in order. */
static void check(struct comparison *c, uint64_t off)
{
    struct guard_verdict *out = c->out;
    if (c->a->too_long || c->b->too_long) {
        guard_refuse_hard(out, "length", guard_none, guard_none);
        return;
    }
    guard_align(c->a, c->b, &c->align);
    guard_turn_comparison(c);
    int longer = c->align.weight_a > c->align.weight_b ? c->align.weight_a : c->align.weight_b;
    int shorter = c->align.weight_a + c->align.weight_b - longer;
    out->shared = longer ? (float)c->align.shared / (float)longer : 0;
    out->contained = shorter ? (float)c->align.shared / (float)shorter : 0;
    if (any_refuses(c, off)) {
        if (out->shared < SAME_SENTENCE) return;
        out->hard_by_likeness = out->fired & ~out->hard;
        for (int i = 0; of_meaning[i]; i++)
            out->hard_by_likeness &= ~guard_bit(of_meaning[i]);
        out->hard |= out->fired;
        return;
    }
    bool explained = !c->align.n_left_a && !c->align.n_left_b && !c->align.moved;
    if (explained && !guard_ask_the_same(c)) return;
    out->allowed = true;
    out->same = explained;
}

void guard_check_read(const struct guard *g, uint64_t off, struct guard_reading *query,
                      struct str stored, struct guard_verdict *out)
{
    struct guard_text other, *own = &query->read;
    struct str text = query->text;
    *out = (struct guard_verdict){.refused_by = "", .language = guard_language(text)};
    guard_text_read(&other, g->lexicon, stored);
    /* one fixed order of the two, so that ties in the alignment fall the same way whoever asks */
    size_t n = text.n < stored.n ? text.n : stored.n;
    int order = n ? memcmp(text.p, stored.p, n) : 0;
    bool swap = order > 0 || (order == 0 && text.n > stored.n);
    struct comparison c = {.lexicon = g->lexicon,
                           .a = swap ? &other : own,
                           .b = swap ? own : &other,
                           .text_a = swap ? stored : text,
                           .text_b = swap ? text : stored,
                           .out = out};
    memcpy(query->kept, own->tokens, own->n * sizeof *own->tokens);
    check(&c, off);
    memcpy(own->tokens, query->kept, own->n * sizeof *own->tokens);
}

void guard_check_without(const struct guard *g, uint64_t off, struct str query, struct str stored,
                         struct guard_verdict *out)
{
    struct guard_reading *r = guard_read(g, query);
    guard_check_read(g, off, r, stored, out);
    guard_reading_free(r);
}

uint64_t guard_normal(const struct guard *g, struct str text)
{
    struct guard_text t;
    uint64_t sum = 0; /* order does not count: the guards judge it */
    guard_text_read(&t, g->lexicon, text);
    if (t.too_long) return 0;
    for (size_t i = 0; i < t.n; i++) {
        const struct guard_token *k = &t.tokens[i];
        if (k->content) sum += hash_bytes(k->kind, k->canon).lo ^ hash_bytes(0x756e, k->unit).hi;
    }
    return sum;
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
