/* pick.c - see pick.h. */
#include "gateway/pick.h"

#include <math.h>

#include "gateway/route_score.h"

static double load_of(const struct pick_target *t, bool with_matched)
{
    double load = with_matched ? t->work + (double)ROUTE_CALL_TOKENS * t->inflight : t->inflight;
    return load / t->weight;
}

static double pass_of(const struct pick_target *t, double passed)
{
    return t->pass > passed ? t->pass : passed;
}

int pick_best(const struct pick_target *t, int n, bool with_matched, double load_weight,
              double passed)
{
    double mean = 0, best_score = -INFINITY;
    int best = -1, n_allowed = 0;
    for (int i = 0; i < n; i++)
        if (t[i].allowed) mean += load_of(&t[i], with_matched), n_allowed++;
    if (n_allowed) mean /= n_allowed;
    for (int i = 0; i < n; i++) {
        if (!t[i].allowed) continue;
        float load = (float)load_of(&t[i], with_matched);
        double score = with_matched ? (double)route_score((float)t[i].matched, load, (float)mean,
                                                          (float)load_weight)
                                    : -(double)route_overload(load, (float)mean, 1);
        bool tie = best >= 0 && fabs(score - best_score) < 1e-6;
        if (tie ? pass_of(&t[i], passed) < pass_of(&t[best], passed) : score > best_score)
            best = i, best_score = score;
    }
    return best;
}

double pick_taken(const struct pick_target *t, double *passed)
{
    *passed = pass_of(t, *passed);
    return *passed + 1 / t->weight;
}
