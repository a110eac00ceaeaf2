/* eval_calibrate.c - `deja eval --calibrate`: what a deployment's own judged pairs say of the verifier, and how well that holds for pairs
 * it was not made from. See eval.h. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cache/eval.h"

#define Z 1.96 /* 95 % */
enum { TEXT_BYTES = 1024 };

static const char *const languages[2] = {"en", "zh"};

static struct calibrate_pair measure(struct evaluator *ev, const struct eval_pair *p)
{
    struct eval_explained x;
    eval_explain(ev, p->a, p->b, &x);
    return (struct calibrate_pair){.verifier = x.item.verifier < 0 ? 0 : x.item.verifier,
                                   .cosine = x.cosine,
                                   .refused = x.item.verifier < 0,
                                   .right = p->same};
}

static void shuffle(struct rng *r, struct calibrate_pair *p, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t k = (size_t)rng_below(r, i);
        struct calibrate_pair keep = p[i - 1];
        p[i - 1] = p[k];
        p[k] = keep;
    }
}

/* A calibration from the first own pairs, judged on the rest. */
static enum err split(struct eval_calibrated *out, const struct calibrate_pair *p, size_t own,
                      double max_wrong, struct errmsg *e)
{
    struct calibration c;
    size_t served[2] = {0, 0}, count[2] = {0, 0};
    enum err code = calibrate(&c, p, own, max_wrong, e);
    if (code) return code;
    for (size_t i = own; i < out->n; i++) {
        count[p[i].right]++;
        served[p[i].right] += calibration_serves(&c, &p[i]);
    }
    out->wrong += (double)served[0] / (double)(count[0] ? count[0] : 1);
    out->right += (double)served[1] / (double)(count[1] ? count[1] : 1);
    out->rest_wrong = count[0];
    out->rest_right = count[1];
    return OK;
}

static void calibrate_language(struct eval_calibrated *out, struct calibrate_pair *p, size_t n,
                               size_t own, size_t splits, const struct evaluator *ev)
{
    struct rng r;
    struct errmsg e = {0};
    rng_seed(&r, ev->seed);
    *out = (struct eval_calibrated){.n = n, .own = own && own < n ? own : n / 2};
    shuffle(&r, p, n);
    if (calibrate(&out->found, p, n, ev->knobs.max_error, &e) != OK) {
        memcpy(out->why_not, e.text, sizeof out->why_not);
        return;
    }
    out->done = true;
    for (size_t i = 0; i < splits; i++) {
        shuffle(&r, p, n);
        out->splits += split(out, p, out->own, ev->knobs.max_error, &e) == OK;
    }
    if (out->splits) out->right /= (double)out->splits, out->wrong /= (double)out->splits;
}

enum err eval_calibrate(struct evaluator *ev, const struct eval_file *f, size_t own, size_t splits,
                        struct eval_calibrated out[2], struct errmsg *e)
{
    struct evaluator plain = *ev;
    struct cache_knobs *k = &plain.knobs;
    if (f->kind != EVAL_PAIRS || !ev->verifier)
        return err_set(e, ERR_UNSUPPORTED, "%s: a calibration takes %s", f->name,
                       ev->verifier ? "pairs, {\"a\",\"b\",\"same\"} a line"
                                    : "an embedding model that has a verifier");
    k->likeness_refuses = k->same_words = false;
    k->verifier = plain.second_look = true;
    k->mode = KNOB_MODE_THRESHOLD;
    k->verifier_bias_en = k->verifier_bias_zh = k->verifier_cosine_en = k->verifier_cosine_zh = 0;
    k->verifier_weight_en = k->verifier_weight_zh = 1;
    struct calibrate_pair *pairs[2] = {xcalloc(f->n + 1, sizeof **pairs),
                                       xcalloc(f->n + 1, sizeof **pairs)};
    size_t n[2] = {0, 0};
    for (size_t i = 0; i < f->n; i++) {
        int zh = f->pairs[i].language == 'z';
        pairs[zh][n[zh]++] = measure(&plain, &f->pairs[i]);
    }
    for (int zh = 0; zh < 2; zh++) {
        calibrate_language(&out[zh], pairs[zh], n[zh], own, splits, ev);
        mem_free(pairs[zh]);
    }
    return OK;
}

/* --- telling */
/* The settings that make a gateway, or --set, decide so. */
static void settings(struct buf *out, const struct eval_calibrated c[2])
{
    int n = 0;
    for (int zh = 0; zh < 2; zh++) {
        const struct calibration *x = &c[zh].found;
        const char *l = languages[zh];
        if (!c[zh].done) continue;
        buf_printf(out,
                   "%sverifier_bias_%s=%.4f,verifier_weight_%s=%.4f,verifier_cosine_%s=%.4f,"
                   "verifier_%s=%.6f",
                   n++ ? "," : "", l, x->weighing.bias, l, x->weighing.weight, l,
                   x->weighing.cosine, l, x->threshold);
    }
    if (n) buf_z(out, ",likeness_refuses=no,same_words=no");
}

static void share(struct buf *out, double share, size_t n)
{
    double low, high;
    wilson(share * (double)n, (double)n, Z, &low, &high);
    buf_printf(out, "%.1f %% [%.1f, %.1f]", 100 * share, 100 * low, 100 * high);
}

void eval_calibrated_text(struct buf *out, const struct eval_calibrated c[2])
{
    for (int zh = 0; zh < 2; zh++) {
        const struct eval_calibrated *x = &c[zh];
        if (!x->n) continue;
        if (!x->done) {
            buf_printf(out, "  calibrated %s: not: %s\n", languages[zh], x->why_not);
            continue;
        }
        buf_printf(out, "  calibrated %s on %zu pairs, each judged without it: ", languages[zh],
                   x->n);
        share(out, (double)x->found.right / (double)x->found.n_right, x->found.n_right);
        buf_z(out, " of what may be served, wrong ");
        share(out, (double)x->found.wrong / (double)x->found.n_wrong, x->found.n_wrong);
        buf_char(out, '\n');
        if (!x->splits) continue;
        buf_printf(out, "    %zu times on %zu of them, the others judged: ", x->splits, x->own);
        share(out, x->right, x->rest_right);
        buf_z(out, ", wrong ");
        share(out, x->wrong, x->rest_wrong);
        buf_char(out, '\n');
    }
    if (!c[0].done && !c[1].done) return;
    buf_z(out, "  set ");
    settings(out, c);
    buf_char(out, '\n');
}

void eval_calibrated_json(struct buf *out, const struct eval_calibrated c[2])
{
    int n = 0;
    buf_z(out, "{\"calibrated\":{");
    for (int zh = 0; zh < 2; zh++) {
        const struct eval_calibrated *x = &c[zh];
        if (!x->done) continue;
        buf_printf(out,
                   "%s\"%s\":{\"pairs\":%zu,\"right\":%.5f,\"wrong\":%.5f,\"wrong_high\":%.5f,"
                   "\"splits\":%zu,\"own\":%zu,\"split_right\":%.5f,\"split_wrong\":%.5f}",
                   n++ ? "," : "", languages[zh], x->n,
                   (double)x->found.right / (double)x->found.n_right,
                   (double)x->found.wrong / (double)x->found.n_wrong, x->found.wrong_high,
                   x->splits, x->own, x->right, x->wrong);
    }
    buf_z(out, "},\"set\":\"");
    settings(out, c);
    buf_z(out, "\"}\n");
}
