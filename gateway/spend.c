/* spend.c - see spend.h. */
#include "gateway/spend.h"

#include <string.h>

#include "base/mem.h"
#include "gateway/exchange.h"
#include "gateway/limit_rules.h"
#include "gateway/settings.h"
#include "gateway/tuning.h"

enum { MODEL_BYTES = 128 };

/* Where tokens come from; the index of a row's series. */
static const char *const from[2] = {"upstream", "cache"};

struct row {
    char model[MODEL_BYTES];
    uint64_t version; /* of the settings its prices were read from, plus one; 0 = not yet */
    struct limit_price price;
    struct metric *prompt[2], *completion[2], *money[2], *per_1k;
};

struct spend {
    struct metrics *m;
    int n;
    struct row rows[SPEND_MODELS + 1]; /* the last is "other" */
};

struct spend *spend_new(struct metrics *m)
{
    struct spend *s = xcalloc(1, sizeof *s);
    s->m = m;
    return s;
}

void spend_free(struct spend *s)
{
    mem_free(s);
}

static struct metric *series(struct spend *s, const struct row *r, const char *name,
                             const char *help, const char *const labels[2])
{
    struct buf b;
    buf_init(&b, 1024);
    metrics_label(&b, "model", str_of(r->model));
    if (labels[0]) metrics_label(&b, "from", str_of(labels[0]));
    if (labels[1]) metrics_label(&b, "kind", str_of(labels[1]));
    bool gauge = !labels[0];
    struct metric *made =
        metrics_get(s->m, gauge ? METRIC_GAUGE : METRIC_COUNTER, name, b.p ? b.p : "", help, 0, 0);
    buf_fini(&b);
    return made;
}

static void make_row(struct spend *s, struct row *r, struct str model)
{
    str_copy(r->model, sizeof r->model, model);
    for (int i = 0; i < 2; i++) {
        r->prompt[i] = series(s, r, "deja_tokens_total",
                              "tokens of answers, by model and where they came from",
                              (const char *const[2]){from[i], "prompt"});
        r->completion[i] = series(s, r, "deja_tokens_total",
                                  "tokens of answers, by model and where they came from",
                                  (const char *const[2]){from[i], "completion"});
    }
}

static struct row *row_of(struct spend *s, struct str model)
{
    for (int i = 0; i < s->n; i++)
        if (str_eqz(model, s->rows[i].model)) return &s->rows[i];
    struct row *r = &s->rows[s->n];
    if (s->n < SPEND_MODELS && model.n && model.n < MODEL_BYTES) {
        s->n++;
        make_row(s, r, model);
        return r;
    }
    r = &s->rows[SPEND_MODELS];
    if (!r->model[0]) make_row(s, r, STR("other"));
    return r;
}

/* Per million tokens: what is set for the model goes before what holds for the namespace or the arm. */
static struct limit_price price_of(struct row *r, const struct exchange *x, struct str model)
{
    const struct settings *set = tuning_settings(x->gw->tuning);
    uint64_t version = settings_version(set) + 1;
    if (r->version != version || !str_eqz(model, r->model)) { /* "other" is many */
        r->price = limit_rules_price(settings_limits(set), model);
        r->version = version;
    }
    return (struct limit_price){r->price.prompt >= 0 ? r->price.prompt : x->knobs.price_prompt,
                                r->price.completion >= 0 ? r->price.completion
                                                         : x->knobs.price_completion};
}

void spend_count(struct spend *s, const struct exchange *x, bool saved)
{
    struct str model = x->out.served_by.n ? x->out.served_by : x->model;
    struct row *r = row_of(s, model);
    int i = saved;
    double prompt = (double)x->usage.prompt_tokens, completion = (double)x->usage.completion_tokens;
    struct limit_price p = price_of(r, x, model);
    double money = (prompt * p.prompt + completion * p.completion) / 1e6;
    metric_add(r->prompt[i], prompt);
    metric_add(r->completion[i], completion);
    if (!(money > 0)) return;
    if (!r->money[i])
        r->money[i] = series(s, r, "deja_money_total",
                             "what tokens cost at the prices set: paid for upstream, or saved "
                             "because they came from the cache",
                             (const char *const[2]){from[i], NULL});
    metric_add(r->money[i], money);
}

static double value(const struct metric *x)
{
    return x ? metric_value(x) : 0;
}

static void show_row(struct spend *s, struct row *r)
{
    double tokens = 0;
    if (!r->money[0] && !r->money[1]) return;
    for (int i = 0; i < 2; i++)
        tokens += value(r->prompt[i]) + value(r->completion[i]);
    if (!r->per_1k)
        r->per_1k = series(s, r, "deja_money_per_1k_tokens",
                           "money paid for a thousand tokens that clients were given or gave, "
                           "those from the cache included; since start",
                           (const char *const[2]){NULL, NULL});
    metric_set(r->per_1k, tokens > 0 ? 1000 * value(r->money[0]) / tokens : 0);
}

void spend_show(struct spend *s)
{
    for (int i = 0; i < s->n; i++)
        show_row(s, &s->rows[i]);
    if (s->rows[SPEND_MODELS].model[0]) show_row(s, &s->rows[SPEND_MODELS]);
}
