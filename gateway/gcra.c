/* gcra.c - see gcra.h. */
#include "gateway/gcra.h"

#include <math.h>

static double step_us(const struct gcra_rate *r)
{
    return r->period_us / r->limit;
}

/* Rounding of a sum of steps must not refuse the last whole unit: 100 us is what ten thousand of them may come to. Half a unit lets no
 * further one through. */
static double slack_us(const struct gcra_rate *r)
{
    return fmin(step_us(r) / 2, 100);
}

bool gcra_fits(const struct gcra *g, const struct gcra_rate *r, double now_us, double n,
               double *wait_us)
{
    double over = fmax(g->tat_us, now_us) + n * step_us(r) - now_us - r->period_us;
    bool fits = n <= 0 || over <= slack_us(r);
    if (wait_us) *wait_us = fits ? 0 : n > r->limit ? -1 : over;
    return fits;
}

void gcra_add(struct gcra *g, const struct gcra_rate *r, double now_us, double n)
{
    if (n >= 0)
        g->tat_us = fmax(g->tat_us, now_us) + n * step_us(r);
    else if (g->tat_us > now_us)
        g->tat_us = fmax(g->tat_us + n * step_us(r), now_us);
}

double gcra_left(const struct gcra *g, const struct gcra_rate *r, double now_us)
{
    double free_us = r->period_us - gcra_empty_in_us(g, now_us);
    return fmax(0, floor((free_us + slack_us(r)) / step_us(r)));
}

double gcra_empty_in_us(const struct gcra *g, double now_us)
{
    return fmax(0, g->tat_us - now_us);
}
