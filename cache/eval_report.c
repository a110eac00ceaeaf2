/* eval_report.c - what an evaluation found, for people and as JSON. See eval.h. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "cache/eval.h"

#define Z 1.96 /* 95 % */

static const char *const kind_names[] = {"pairs", "faq", "stream"};

static double ratio(const struct share *s)
{
    return s->n ? (double)s->hits / (double)s->n : 0;
}

/* "  served   12 of 160   7.5 % [4.3, 12.7]" */
static void line(struct buf *out, const char *what, const char *verb, const struct share *s)
{
    double low, high;
    if (!s->n) return;
    wilson((double)s->hits, (double)s->n, Z, &low, &high);
    buf_printf(out, "  %-34s %-6s %5zu of %5zu  %5.1f %%  [%.1f, %.1f]\n", what, verb, s->hits,
               s->n, 100 * ratio(s), 100 * low, 100 * high);
}

static const char *name_of(char language)
{
    return language == 'z' ? "zh" : "en";
}

static void categories(struct buf *out, const struct eval_result *r)
{
    for (size_t i = 0; i < r->n_categories; i++) {
        const struct eval_category *c = &r->categories[i];
        struct buf name;
        buf_init(&name, 128);
        buf_printf(&name, "  %s %s", name_of(c->language), c->name);
        line(out, name.p, "served", &c->same);
        line(out, name.p, "wrong", &c->differ);
        buf_fini(&name);
    }
}

static void precision(struct buf *out, const struct eval_result *r)
{
    buf_printf(out, "  %-34s", "precision at hit ratio");
    for (int i = 0; i < EVAL_RATIOS; i++) {
        if (r->precision[i] < 0)
            buf_printf(out, "  %.0f %%: -", 100 * eval_ratios[i]);
        else
            buf_printf(out, "  %.0f %%: %.3f", 100 * eval_ratios[i], r->precision[i]);
    }
    buf_char(out, '\n');
}

static void suggestion(struct buf *out, const struct eval_result *r)
{
    for (int zh = 0; zh < 2; zh++) {
        double low, high;
        if (r->suggested[zh] < 0) continue;
        const struct share *right = &r->suggested_right[zh], *wrong = &r->suggested_wrong[zh];
        wilson((double)wrong->hits, (double)wrong->n, Z, &low, &high);
        buf_printf(
            out,
            "  suggested  %s_%s %.4f: %.1f %% of what may be served, %zu of %zu wrong (up to "
            "%.1f %%)\n",
            r->by_verifier ? "verifier" : "threshold", zh ? "zh" : "en", r->suggested[zh],
            100 * ratio(right), wrong->hits, wrong->n, 100 * high);
    }
}

static void reasons(struct buf *out, const struct eval_result *r)
{
    if (!r->n_reasons) return;
    buf_printf(out, "  refused by");
    for (size_t i = 0; i < r->n_reasons; i++)
        buf_printf(out, "%s %s %zu", i ? "," : "", r->reasons[i].text, r->reasons[i].n);
    buf_char(out, '\n');
}

void eval_report_text(struct buf *out, const struct eval_file *f, const struct eval_result *r,
                      const char *policy)
{
    buf_printf(out, "%s: %zu %s, policy %s\n", f->name, f->n,
               f->kind == EVAL_PAIRS ? "pairs"
               : f->kind == EVAL_FAQ ? "questions"
                                     : "requests",
               policy);
    if (f->skipped) buf_printf(out, "  %zu lines are conversations: passed over\n", f->skipped);
    if (f->kind == EVAL_STREAM) {
        line(out, "requests", "served", &r->served);
        line(out, "of the served", "wrong", &r->wrong_served);
        buf_printf(out, "  learnt from %.0f pieces of evidence\n", r->evidence);
    } else {
        bool faq = f->kind == EVAL_FAQ;
        line(out, faq ? "question x other wording" : "the same", "served", &r->same);
        line(out, faq ? "question x near question" : "different", "wrong", &r->differ);
        line(out, "near question x other wording", "wrong", &r->near_wording);
        line(out, "all stored: own answer", "right", &r->right);
        line(out, "all stored: another's answer", "wrong", &r->wrong);
        line(out, "all stored but the own one", "wrong", &r->wrong_alone);
        if (r->n_categories > 1 || f->kind == EVAL_PAIRS) categories(out, r);
    }
    precision(out, r);
    suggestion(out, r);
    reasons(out, r);
}

/* --- JSON */
static void member(struct buf *out, const char *name, const struct share *s)
{
    double low, high;
    wilson((double)s->hits, (double)s->n, Z, &low, &high);
    buf_printf(out, ",\"%s\":{\"hits\":%zu,\"n\":%zu,\"share\":%.5f,\"low\":%.5f,\"high\":%.5f}",
               name, s->hits, s->n, ratio(s), low, high);
}

void eval_report_json(struct buf *out, const struct eval_file *f, const struct eval_result *r,
                      const char *policy)
{
    buf_z(out, "{\"file\":");
    json_write_string(out, str_of(f->name));
    buf_printf(out, ",\"kind\":\"%s\",\"n\":%zu,\"policy\":", kind_names[f->kind], f->n);
    json_write_string(out, str_of(policy));
    if (f->kind == EVAL_STREAM) {
        member(out, "served", &r->served);
        member(out, "wrong_served", &r->wrong_served);
        buf_printf(out, ",\"evidence\":%.0f", r->evidence);
    } else {
        member(out, "same", &r->same);
        member(out, "differ", &r->differ);
    }
    if (f->kind == EVAL_FAQ) {
        member(out, "near_wording", &r->near_wording);
        member(out, "store_right", &r->right);
        member(out, "store_wrong", &r->wrong);
        member(out, "store_wrong_without_own", &r->wrong_alone);
    }
    buf_z(out, ",\"categories\":[");
    for (size_t i = 0; i < r->n_categories; i++) {
        buf_printf(out, "%s{\"language\":\"%s\",\"name\":", i ? "," : "",
                   name_of(r->categories[i].language));
        json_write_string(out, str_of(r->categories[i].name));
        member(out, "same", &r->categories[i].same);
        member(out, "differ", &r->categories[i].differ);
        buf_char(out, '}');
    }
    buf_z(out, "],\"precision\":{");
    for (int i = 0; i < EVAL_RATIOS; i++)
        if (r->precision[i] < 0)
            buf_printf(out, "%s\"%.2f\":null", i ? "," : "", eval_ratios[i]);
        else
            buf_printf(out, "%s\"%.2f\":%.4f", i ? "," : "", eval_ratios[i], r->precision[i]);
    buf_z(out, "},\"suggested\":{");
    for (int zh = 0, n = 0; zh < 2; zh++)
        if (r->suggested[zh] >= 0)
            buf_printf(out, "%s\"%s_%s\":%.4f", n++ ? "," : "",
                       r->by_verifier ? "verifier" : "threshold", zh ? "zh" : "en",
                       r->suggested[zh]);
    buf_z(out, "},\"refused\":{");
    for (size_t i = 0; i < r->n_reasons; i++)
        buf_printf(out, "%s\"%s\":%zu", i ? "," : "", r->reasons[i].text, r->reasons[i].n);
    buf_z(out, "}}\n");
}

/* --- two policies */
/* Two-sided p of equal shares (normal approximation with the pooled share). */
static double chance(const struct share *a, const struct share *b)
{
    double n = (double)a->n, m = (double)b->n;
    if (!a->n || !b->n) return 1;
    double p = (double)(a->hits + b->hits) / (n + m);
    double spread = sqrt(p * (1 - p) * (1 / n + 1 / m));
    return spread > 0 ? erfc(fabs(ratio(a) - ratio(b)) / spread / sqrt(2)) : 1;
}

static void compare(struct buf *out, const char *what, const struct share *a, const struct share *b)
{
    if (!a->n && !b->n) return;
    double p = chance(a, b);
    buf_printf(out, "  %-34s A %5.1f %% (%zu of %zu)   B %5.1f %% (%zu of %zu)   %s (p %.3f)\n",
               what, 100 * ratio(a), a->hits, a->n, 100 * ratio(b), b->hits, b->n,
               p >= 0.05             ? "no difference that chance would not make"
               : ratio(b) > ratio(a) ? "B is higher"
                                     : "A is higher",
               p);
}

void eval_report_compared(struct buf *out, const struct eval_file *f, const struct eval_result *a,
                          const struct eval_result *b)
{
    buf_printf(out, "%s: A against B\n", f->name);
    compare(out, "served: the same", &a->same, &b->same);
    compare(out, "wrong: different", &a->differ, &b->differ);
    compare(out, "wrong: near question x wording", &a->near_wording, &b->near_wording);
    compare(out, "all stored: own answer", &a->right, &b->right);
    compare(out, "all stored: another's answer", &a->wrong, &b->wrong);
    compare(out, "requests served", &a->served, &b->served);
    compare(out, "wrong of the served", &a->wrong_served, &b->wrong_served);
}
