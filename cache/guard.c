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
    "replaced_word", "added_word", "link",     "no_content",    NULL};

/* From here on two questions are one sentence but for a word, and what a guard says of that word stands: among 4,131 lines of questions
 * that refuses 5 of 100 true rewordings and 22 of 100 near questions (0.5: 18 and 48; 0.9: 1 and 3). */
static const float SAME_SENTENCE = 0.7f;

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

const struct str guard_none = {"-", 1};

typedef bool rule(struct comparison *c);
static rule *const rules[] = {
    guard_script_differs,     guard_language_differs,
    guard_identifiers_differ, guard_numbers_differ,
    guard_currencies_differ,  guard_times_differ,
    guard_dates_differ,       guard_relative_times_differ,
    guard_negation_differs,   guard_quantifier_differs,
    guard_question_differs,   guard_modality_differs,
    guard_tense_differs,      guard_opposites,
    guard_order_differs,      guard_person_differs,
    guard_denied_differs,     guard_links_differ,
    guard_words_differ,       guard_nothing_to_compare,
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

void guard_check_without(const struct guard *g, uint64_t off, struct str query, struct str stored,
                         struct guard_verdict *out)
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
        guard_harden(out, "length");
        guard_refuse(out, "length", guard_none, guard_none);
        return;
    }
    struct comparison c = {.lexicon = g->lexicon, .a = &a, .b = &b, .out = out};
    guard_align(&a, &b, &c.align);
    int longer = c.align.weight_a > c.align.weight_b ? c.align.weight_a : c.align.weight_b;
    int shorter = c.align.weight_a + c.align.weight_b - longer;
    out->shared = longer ? (float)c.align.shared / (float)longer : 0;
    out->contained = shorter ? (float)c.align.shared / (float)shorter : 0;
    if (any_refuses(&c, off)) {
        if (out->shared >= SAME_SENTENCE) out->hard |= out->fired;
        return;
    }
    bool explained = !c.align.n_left_a && !c.align.n_left_b && !c.align.moved;
    if (explained && !guard_ask_the_same(&c)) return;
    out->allowed = true;
    out->same = explained;
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
