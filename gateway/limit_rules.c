/* limit_rules.c - see limit_rules.h. Scopes in a sorted list, looked up by their text: six look-ups a request. */
#include "gateway/limit_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum field {
    SHADOW = N_LIMIT_KINDS,
    HIT_TOKENS,
    ANSWER_TOKENS,
    STREAM_USAGE,
    PRICE_PROMPT,
    PRICE_COMPLETION,
    N_FIELDS
};
static const char *const knob_names[N_FIELDS] = {
    "limit_requests_per_min", "limit_requests_per_day", "limit_tokens_per_min",
    "limit_tokens_per_day",   "limit_concurrency",      "limit_budget_day",
    "limit_budget_month",     "limit_shadow",           "limit_hit_tokens",
    "limit_answer_tokens",    "limit_stream_usage",     "price_prompt",
    "price_completion"};
enum { ANSWER_TOKENS_PRESET = 1024 };

struct rule {
    char scope[LIMIT_SCOPE_BYTES];
    unsigned set; /* a bit a field */
    double value[N_FIELDS];
};
struct limit_rules {
    struct rule *items;
    size_t n, cap;
    bool any;
};

struct limit_rules *limit_rules_new(void)
{
    return xcalloc(1, sizeof(struct limit_rules));
}

void limit_rules_free(struct limit_rules *r)
{
    if (!r) return;
    mem_free(r->items);
    mem_free(r);
}

static bool is_scope(struct str s)
{
    if (!s.n || s.n >= LIMIT_SCOPE_BYTES) return false;
    return str_eqz(s, "global") || str_eqz(s, "all") || str_starts(s, STR("all/model:")) ||
           str_starts(s, STR("tenant:")) || str_starts(s, STR("model:"));
}

static struct rule *rule_at(struct limit_rules *r, struct str scope)
{
    /* Redis sends settings sorted by scope */
    if (r->n && str_eqz(scope, r->items[r->n - 1].scope)) return &r->items[r->n - 1];
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 16;
        r->items = xrealloc(r->items, r->cap * sizeof *r->items);
    }
    struct rule *at = &r->items[r->n++];
    *at = (struct rule){0};
    memcpy(at->scope, scope.p, scope.n);
    return at;
}

bool limit_rules_add(struct limit_rules *r, struct str scope, const char *knob, double value)
{
    int field = 0;
    while (field < N_FIELDS && strcmp(knob, knob_names[field]) != 0)
        field++;
    if (field == N_FIELDS || !is_scope(scope)) return false;
    struct rule *at = rule_at(r, scope);
    at->set |= 1u << field;
    at->value[field] = value;
    if (field < N_LIMIT_KINDS && value > 0) r->any = true;
    return true;
}

static int by_scope(const void *a, const void *b)
{
    return strcmp(((const struct rule *)a)->scope, ((const struct rule *)b)->scope);
}

void limit_rules_finish(struct limit_rules *r)
{
    size_t kept = 0;
    if (!r->n) return;
    qsort(r->items, r->n, sizeof *r->items, by_scope);
    for (size_t i = 1; i < r->n; i++) { /* what came apart is put together */
        if (strcmp(r->items[kept].scope, r->items[i].scope) != 0) {
            r->items[++kept] = r->items[i];
            continue;
        }
        r->items[kept].set |= r->items[i].set;
        for (int f = 0; f < N_FIELDS; f++)
            if (r->items[i].set >> f & 1) r->items[kept].value[f] = r->items[i].value[f];
    }
    r->n = kept + 1;
}

bool limit_rules_any(const struct limit_rules *r)
{
    return r->any;
}

static const struct rule *find(const struct limit_rules *r, const char *scope)
{
    struct rule key;
    if (strlen(scope) >= sizeof key.scope) return NULL;
    memcpy(key.scope, scope, strlen(scope) + 1);
    return bsearch(&key, r->items, r->n, sizeof *r->items, by_scope);
}

/* The first of the rules (n of them, any may be NULL) that says something. */
static double first_of(const struct rule *const *rules, int n, int field, double otherwise)
{
    for (int i = 0; i < n; i++)
        if (rules[i] && rules[i]->set >> field & 1) return rules[i]->value[field];
    return otherwise;
}

struct level {
    const char *name;
    const struct rule *limits[2];    /* narrowest first */
    const struct rule *behaviour[4]; /* the same, for shadow */
};

static void add_bucket(struct limit_plan *out, const struct level *l)
{
    struct limit_bucket *b = &out->buckets[out->n];
    bool any = false;
    for (int k = 0; k < N_LIMIT_KINDS; k++) {
        b->limit[k] = first_of(l->limits, 2, k, 0);
        any |= b->limit[k] > 0;
    }
    if (!any) return;
    snprintf(b->name, sizeof b->name, "%s", l->name);
    b->shadow = first_of(l->behaviour, 4, SHADOW, 0) != 0;
    out->tokens |= b->limit[LIMIT_TOKENS_MIN] > 0 || b->limit[LIMIT_TOKENS_DAY] > 0;
    out->money |= b->limit[LIMIT_BUDGET_DAY] > 0 || b->limit[LIMIT_BUDGET_MONTH] > 0;
    out->n++;
}

bool limit_rules_plan(const struct limit_rules *r, struct str tenant, struct str model,
                      struct limit_plan *out)
{
    char t[LIMIT_BUCKET_BYTES], m[LIMIT_BUCKET_BYTES], tm[2 * LIMIT_BUCKET_BYTES],
        am[2 * LIMIT_BUCKET_BYTES];
    out->n = 0;
    out->tokens = out->money = false;
    if (!r->any) return false;
    bool modelled = model.n && model.n < LIMIT_SCOPE_BYTES; /* longer names have no scope */
    snprintf(t, sizeof t, "tenant:" STR_FMT, STR_ARG(tenant));
    snprintf(m, sizeof m, "model:" STR_FMT, STR_ARG(modelled ? model : STR("")));
    snprintf(tm, sizeof tm, "%s/%s", t, m);
    snprintf(am, sizeof am, "all/%s", m);
    const struct rule *rg = find(r, "global"), *rt = find(r, t), *ra = find(r, "all"),
                      *rm = modelled ? find(r, m) : NULL, *rtm = modelled ? find(r, tm) : NULL,
                      *ram = modelled ? find(r, am) : NULL;
    const struct level levels[LIMIT_BUCKETS_MAX] = {{t, {rt, rg}, {rt, rg}},
                                                    {tm, {rtm, rm}, {rtm, rm, rt, rg}},
                                                    {"all", {ra}, {ra, rg}},
                                                    {am, {ram}, {ram, ra, rg}}};
    for (int i = 0; i < LIMIT_BUCKETS_MAX; i++)
        add_bucket(out, &levels[i]);
    const struct rule *behaviour[4] = {rtm, rm, rt, rg};
    out->hit_tokens = first_of(behaviour, 4, HIT_TOKENS, 0) != 0;
    out->answer_tokens = (int64_t)first_of(behaviour, 4, ANSWER_TOKENS, ANSWER_TOKENS_PRESET);
    out->stream_usage = first_of(behaviour, 4, STREAM_USAGE, 1) != 0;
    out->price_prompt = first_of(behaviour, 4, PRICE_PROMPT, 0);
    out->price_completion = first_of(behaviour, 4, PRICE_COMPLETION, 0);
    return out->n > 0;
}

struct limit_price limit_rules_price(const struct limit_rules *r, struct str model)
{
    char m[LIMIT_SCOPE_BYTES + sizeof "model:"];
    bool scoped = model.n && model.n < LIMIT_SCOPE_BYTES;
    snprintf(m, sizeof m, "model:" STR_FMT, STR_ARG(scoped ? model : STR("")));
    const struct rule *rule = scoped && r->n ? find(r, m) : NULL;
    return (struct limit_price){first_of(&rule, 1, PRICE_PROMPT, -1),
                                first_of(&rule, 1, PRICE_COMPLETION, -1)};
}

const char *limit_kind_name(enum limit_kind k)
{
    static const char *const names[N_LIMIT_KINDS] = {
        "requests per min",    "requests per day", "tokens per min",  "tokens per day",
        "concurrent requests", "budget per day",   "budget per month"};
    return names[k];
}
