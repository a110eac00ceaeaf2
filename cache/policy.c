/* policy.c - thresholds by embedder and language. Each is the lowest cosine at which about 1 of 400 near questions (opposites, other
 * entities, other conditions... written to be hard, 3,500 pairs a language) passes both the guards and the cosine; ordinary unrelated
 * questions pass far more rarely. Above them, beyond what the guards explain, 1 to 3 of 100 free rewordings are found. Lower numbers
 * find more and are wrong more often (e5 at 0.93: 1 of 120 and 2 to 4 of 100): an operator may choose so, it is not our default. */
#include "cache/policy.h"

#include <string.h>

struct shipped {
    const char *in_id; /* part of the embedder's id, lower case */
    double floor, en, zh;
};
static const struct shipped shipped[] = {
    {"e5-small", 0.80, 0.945, 0.945},
    {"minilm", 0.35, 0.80, 2.0 /* reads no Chinese */},
};
static const struct shipped unknown = {"", 0.0, 0.97, 0.97};

static bool has(struct str id, const char *part)
{
    char lower[160];
    size_t n = id.n < sizeof lower ? id.n : sizeof lower;
    for (size_t i = 0; i < n; i++)
        lower[i] = (char)(id.p[i] >= 'A' && id.p[i] <= 'Z' ? id.p[i] + 32 : id.p[i]);
    return str_find((struct str){lower, n}, str_of(part)) >= 0;
}

struct policy policy_for(struct str embedder_id)
{
    const struct shipped *s = &unknown;
    for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++)
        if (has(embedder_id, shipped[i].in_id)) s = &shipped[i];
    return (struct policy){s->floor, {s->en, s->zh}};
}

struct policy policy_with(const struct policy *as_shipped, const struct cache_knobs *k)
{
    struct policy p = *as_shipped;
    if (k->threshold_en > 0) p.threshold[0] = k->threshold_en;
    if (k->threshold_zh > 0) p.threshold[1] = k->threshold_zh;
    if (k->floor > 0) p.floor = k->floor;
    double least = p.threshold[0] < p.threshold[1] ? p.threshold[0] : p.threshold[1];
    if (p.floor > least) p.floor = least;
    return p;
}

struct policy_decision policy_decide(const struct policy *p, const struct guard_verdict *v,
                                     double cosine, double client_min)
{
    double threshold = p->threshold[v->language == 'z'];
    if (v->same)
        threshold = p->floor; /* every word is explained: the vector need only agree on the topic */
    if (client_min > threshold) threshold = client_min;
    if (cosine >= threshold)
        return (struct policy_decision){true, threshold,
                                        v->same ? "semantic:same" : "semantic:policy"};
    return (struct policy_decision){false, threshold,
                                    cosine < p->floor ? "below_floor" : "below_threshold"};
}
