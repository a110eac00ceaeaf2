/* sampler.c - see sampler.h. Non-finite logits count as minus infinity: a damaged model may not crash the engine. */
#include "engine/model/sampler.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

struct candidate {
    float value; /* logit, later weight exp(scaled logit - scaled maximum) */
    int32_t token;
};

struct sampler_scratch {
    int n_vocab;
    struct candidate *list; /* [n_vocab] */
    float *raw;             /* [n_vocab] logits before mask, bias and penalties */
};

/* Tokens seen so far, one after the other, as a device gets them; found by open addressing, power-of-two size. Most requests see a few
 * hundred tokens, so a table per choice is far smaller than a counter per vocabulary entry. */
struct sampler {
    struct sampler_params params; /* bias points to own copy */
    int n_vocab;
    struct rng rng;
    struct sampler_seen *seen; /* [seen_n] of room for seen_cap / 2 */
    int32_t *slot;             /* [seen_cap] 1 + place in seen, 0 = empty */
    size_t seen_cap, seen_n;
};

struct sampler_params sampler_params_default(void)
{
    return (struct sampler_params){.top_p = 1.0f, .repetition_penalty = 1.0f, .n_top_logprobs = -1};
}

struct sampler_scratch *sampler_scratch_new(int n_vocab)
{
    ASSERT(n_vocab > 0);
    struct sampler_scratch *scratch = xcalloc(1, sizeof *scratch);
    scratch->n_vocab = n_vocab;
    scratch->list = xcalloc((size_t)n_vocab, sizeof *scratch->list);
    scratch->raw = xcalloc((size_t)n_vocab, sizeof *scratch->raw);
    return scratch;
}

void sampler_scratch_free(struct sampler_scratch *scratch)
{
    if (!scratch) return;
    mem_free(scratch->list);
    mem_free(scratch->raw);
    mem_free(scratch);
}

/* NaN fails both comparisons, so it is refused too. */
static bool within(float v, float min, float max)
{
    return v >= min && v <= max;
}

static enum err params_check(const struct sampler_params *p, int n_vocab, struct errmsg *e)
{
    if (!within(p->temperature, 0, 2))
        return err_set(e, ERR_RANGE, "temperature: must be between 0 and 2");
    if (!within(p->top_p, 0, 1) || p->top_p == 0)
        return err_set(e, ERR_RANGE, "top_p: must be above 0 and at most 1");
    if (p->top_k < 0) return err_set(e, ERR_RANGE, "top_k: must be at least 0 (0 = off)");
    if (!within(p->min_p, 0, 1)) return err_set(e, ERR_RANGE, "min_p: must be between 0 and 1");
    if (!within(p->repetition_penalty, 0, 2) || p->repetition_penalty == 0)
        return err_set(e, ERR_RANGE, "repetition_penalty: must be above 0 and at most 2");
    if (!within(p->presence_penalty, -2, 2))
        return err_set(e, ERR_RANGE, "presence_penalty: must be between -2 and 2");
    if (!within(p->frequency_penalty, -2, 2))
        return err_set(e, ERR_RANGE, "frequency_penalty: must be between -2 and 2");
    if (p->n_top_logprobs < -1 || p->n_top_logprobs > SAMPLER_TOP_LOGPROBS_MAX)
        return err_set(e, ERR_RANGE, "top_logprobs: must be between 0 and %d",
                       SAMPLER_TOP_LOGPROBS_MAX);
    if (p->n_bias < 0 || p->n_bias > SAMPLER_BIAS_MAX)
        return err_set(e, ERR_RANGE, "logit_bias: at most %d tokens", SAMPLER_BIAS_MAX);
    for (int i = 0; i < p->n_bias; i++) {
        if (p->bias[i].token < 0 || p->bias[i].token >= n_vocab)
            return err_set(e, ERR_RANGE, "logit_bias: token %d is outside the vocabulary (0..%d)",
                           p->bias[i].token, n_vocab - 1);
        if (!within(p->bias[i].bias, -100, 100))
            return err_set(e, ERR_RANGE,
                           "logit_bias: the value for token %d must be between -100 and 100",
                           p->bias[i].token);
    }
    return OK;
}

enum err sampler_new(struct sampler **out, const struct sampler_params *params, int n_vocab,
                     struct errmsg *e)
{
    ASSERT(n_vocab > 0);
    *out = NULL;
    enum err code = params_check(params, n_vocab, e);
    if (code) return code;
    struct sampler *s = xcalloc(1, sizeof *s);
    s->params = *params;
    s->n_vocab = n_vocab;
    s->params.bias = NULL;
    if (params->n_bias) {
        struct sampler_bias *copy = xcalloc((size_t)params->n_bias, sizeof *copy);
        memcpy(copy, params->bias, (size_t)params->n_bias * sizeof *copy);
        s->params.bias = copy;
    }
    rng_seed(&s->rng, params->seed);
    *out = s;
    return OK;
}

void sampler_free(struct sampler *s)
{
    if (!s) return;
    mem_free((void *)s->params.bias);
    mem_free(s->seen);
    mem_free(s->slot);
    mem_free(s);
}

/* Where the place of token stands, or will. */
static int32_t *seen_slot(const struct sampler *s, int32_t token)
{
    size_t i = ((uint32_t)token * 2654435761u) & (s->seen_cap - 1); /* Knuth's hash */
    while (s->slot[i] && s->seen[s->slot[i] - 1].token != token)
        i = (i + 1) & (s->seen_cap - 1);
    return &s->slot[i];
}

static void seen_grow(struct sampler *s)
{
    s->seen_cap = s->seen_cap ? s->seen_cap * 2 : 256;
    s->seen = xrealloc(s->seen, s->seen_cap / 2 * sizeof *s->seen);
    mem_free(s->slot);
    s->slot = xcalloc(s->seen_cap, sizeof *s->slot);
    for (size_t i = 0; i < s->seen_n; i++)
        *seen_slot(s, s->seen[i].token) = (int32_t)i + 1;
}

static void seen_add(struct sampler *s, int32_t token, int n_generated)
{
    ASSERT(token >= 0 && token < s->n_vocab);
    if (s->seen_n * 2 >= s->seen_cap) seen_grow(s); /* bounded by the vocabulary */
    int32_t *slot = seen_slot(s, token);
    if (!*slot) {
        s->seen[s->seen_n++] = (struct sampler_seen){token, 0};
        *slot = (int32_t)s->seen_n;
    }
    s->seen[*slot - 1].n_generated += n_generated;
}

void sampler_prompt(struct sampler *s, const int32_t *ids, int n)
{
    if (s->params.repetition_penalty == 1.0f) return;
    for (int i = 0; i < n; i++)
        seen_add(s, ids[i], 0);
}

static bool penalties_on(const struct sampler_params *p)
{
    return p->repetition_penalty != 1.0f || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

void sampler_accept(struct sampler *s, int32_t token)
{
    if (penalties_on(&s->params)) seen_add(s, token, 1);
}

bool sampler_remembers(const struct sampler *s)
{
    return penalties_on(&s->params);
}

static void penalise(const struct sampler *s, float *logits)
{
    const struct sampler_params *p = &s->params;
    for (size_t i = 0; i < s->seen_n; i++) {
        const struct sampler_seen *seen = &s->seen[i];
        float *logit = &logits[seen->token];
        *logit = *logit > 0 ? *logit / p->repetition_penalty : *logit * p->repetition_penalty;
        if (seen->n_generated > 0)
            *logit -= p->presence_penalty + p->frequency_penalty * (float)seen->n_generated;
    }
}

/* a comes before b: larger value, then lower id. A total order, so every selection below is deterministic. */
static bool before(struct candidate a, struct candidate b)
{
    return a.value > b.value || (a.value == b.value && a.token < b.token);
}

/* Heap with the last candidate of the order on top. */
static void sift_down(struct candidate *heap, int n, int i)
{
    for (;;) {
        int last = i, left = 2 * i + 1, right = left + 1;
        if (left < n && before(heap[last], heap[left])) last = left;
        if (right < n && before(heap[last], heap[right])) last = right;
        if (last == i) return;
        struct candidate tmp = heap[i];
        heap[i] = heap[last];
        heap[last] = tmp;
        i = last;
    }
}

static void heapify(struct candidate *heap, int n)
{
    for (int i = n / 2 - 1; i >= 0; i--)
        sift_down(heap, n, i);
}

/* Best first. Heap sort: no recursion, no worst case, in place. */
static void sort_candidates(struct candidate *list, int n)
{
    heapify(list, n);
    for (int end = n - 1; end > 0; end--) {
        struct candidate tmp = list[0];
        list[0] = list[end];
        list[end] = tmp;
        sift_down(list, end, 0);
    }
}

/* Moves the best k of list to its front, sorted. */
static int keep_best(struct candidate *list, int n, int k)
{
    if (k < n) {
        heapify(list, k);
        for (int i = k; i < n; i++) {
            if (!before(list[i], list[0])) continue;
            list[0] = list[i];
            sift_down(list, k, 0);
        }
        n = k;
    }
    sort_candidates(list, n);
    return n;
}

static int32_t pick_greedy(const float *logits, int n_vocab)
{
    int32_t best = -1;
    for (int t = 0; t < n_vocab; t++)
        if (isfinite(logits[t]) && (best < 0 || logits[t] > logits[best])) best = t;
    return best;
}

static float floor_logprob(float v)
{
    return v >= SAMPLER_LOGPROB_FLOOR ? v : SAMPLER_LOGPROB_FLOOR; /* NaN too */
}

/* Fills out->top; returns log(sum(exp(logits))). */
static float report_top(const struct sampler *s, const float *logits, struct sampler_pick_out *out)
{
    struct candidate top[SAMPLER_TOP_LOGPROBS_MAX];
    int want = s->params.n_top_logprobs, n = 0;
    int32_t best = pick_greedy(logits, s->n_vocab);
    if (best < 0) return 0;
    double sum = 0;
    for (int t = 0; t < s->n_vocab; t++) {
        if (!isfinite(logits[t])) continue;
        sum += expf(logits[t] - logits[best]);
        struct candidate c = {logits[t], t};
        if (n == want && (n == 0 || !before(c, top[n - 1]))) continue;
        int i = n < want ? n++ : n - 1; /* insertion into at most 20 sorted places */
        for (; i > 0 && before(c, top[i - 1]); i--)
            top[i] = top[i - 1];
        top[i] = c;
    }
    float log_sum = logits[best] + (float)log(sum);
    out->n_top = n;
    for (int i = 0; i < n; i++)
        out->top[i] = (struct sampler_top){top[i].token, floor_logprob(top[i].value - log_sum)};
    return log_sum;
}

/* Weight exp((logit - max) / temperature) of every token that survives; returns how many, best-first only where
 * top-k or top-p needed the order. */
static int filter(const struct sampler *s, const float *logits, float max, struct candidate *list)
{
    const struct sampler_params *p = &s->params;
    int n = 0;
    double total = 0;
    for (int t = 0; t < s->n_vocab; t++) {
        if (!isfinite(logits[t])) continue;
        float weight = expf((logits[t] - max) / p->temperature); /* the likeliest has weight 1 */
        if (weight < p->min_p || weight == 0) continue;
        list[n++] = (struct candidate){weight, t};
        total += weight;
    }
    if (p->top_k > 0 && p->top_k < n) {
        n = keep_best(list, n, p->top_k);
        total = 0;
        for (int i = 0; i < n; i++)
            total += list[i].value;
    }
    if (p->top_p >= 1.0f) return n;
    /* All tokens under (1 - top_p) / n of the mass weigh less than 1 - top_p together, so the nucleus lies among
     * the others: only those (usually a handful) need sorting. */
    double floor_weight = (1.0 - (double)p->top_p) / n * total;
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (list[i].value >= floor_weight) list[kept++] = list[i];
    sort_candidates(list, kept);
    double mass = 0;
    for (n = 0; n < kept && (n == 0 || mass < p->top_p * total); n++)
        mass += list[n].value;
    return n;
}

static int32_t pick_random(struct sampler *s, const float *logits, float max,
                           struct candidate *list)
{
    int n = filter(s, logits, max, list);
    ASSERT(n > 0);
    double total = 0;
    for (int i = 0; i < n; i++)
        total += list[i].value;
    double left = rng_f64(&s->rng) * total;
    for (int i = 0; i < n - 1; i++) {
        left -= list[i].value;
        if (left < 0) return list[i].token;
    }
    return list[n - 1].token;
}

/* A word at a time: most masks are nearly all ones or nearly all zeros. */
static void keep_allowed(float *logits, int n_vocab, const uint32_t *allowed)
{
    for (int from = 0; from < n_vocab; from += 32) {
        uint32_t bits = allowed[from / 32];
        int n = n_vocab - from < 32 ? n_vocab - from : 32;
        if (bits == UINT32_MAX) continue;
        for (int i = 0; i < n; i++)
            logits[from + i] = bits >> i & 1 ? logits[from + i] : -INFINITY;
    }
}

enum err sampler_pick(struct sampler *s, struct sampler_scratch *scratch, float *logits,
                      const uint32_t *allowed, struct sampler_pick_out *out)
{
    ASSERT(scratch->n_vocab >= s->n_vocab);
    const struct sampler_params *p = &s->params;
    bool want_logprobs = p->n_top_logprobs >= 0, penalised = penalties_on(p);
    float log_sum = 0;
    memset(out, 0, sizeof *out);
    if (want_logprobs) {
        log_sum = report_top(s, logits, out);
        memcpy(scratch->raw, logits, (size_t)s->n_vocab * sizeof *logits);
    }
    if (allowed) keep_allowed(logits, s->n_vocab, allowed);
    for (int i = 0; i < p->n_bias; i++)
        logits[p->bias[i].token] += p->bias[i].bias;
    if (penalised) penalise(s, logits);
    out->token = pick_greedy(logits, s->n_vocab);
    if (out->token < 0) return ERR_CORRUPT;
    if (p->temperature > 0) out->token = pick_random(s, logits, logits[out->token], scratch->list);
    if (want_logprobs) out->logprob = floor_logprob(scratch->raw[out->token] - log_sum);
    return OK;
}

void sampler_hand_over(struct sampler *s, struct sample_row *out)
{
    const struct sampler_params *p = &s->params;
    *out = (struct sample_row){.temperature = p->temperature,
                               .top_p = p->top_p,
                               .min_p = p->min_p,
                               .repetition_penalty = p->repetition_penalty,
                               .presence_penalty = p->presence_penalty,
                               .frequency_penalty = p->frequency_penalty,
                               .top_k = p->top_k,
                               .n_top_logprobs = p->n_top_logprobs,
                               .draw = p->temperature > 0 ? rng_f64(&s->rng) : 0,
                               .bias = p->bias,
                               .n_bias = p->n_bias,
                               .seen = s->seen,
                               .n_seen = penalties_on(p) ? (int)s->seen_n : 0};
}
