/* pace.c - see pace.h. */
#include "engine/sched/pace.h"

#include "base/err.h"

void pace_init(struct pace *p, double target_us, int rows_max)
{
    ASSERT(target_us > 0 && rows_max >= 1);
    *p = (struct pace){.target_us = target_us, .rows_max = rows_max};
}

static double follow(double known, double seen)
{
    if (known <= 0) return seen;
    if (seen > 3 * known) seen = 3 * known;
    return known + (seen > known ? 0.3 : 0.1) * (seen - known);
}

void pace_learn(struct pace *p, int decode_rows, int prompt_rows, double us)
{
    if (us <= 0) return;
    if (!prompt_rows) {
        p->decode_us = follow(p->decode_us, us);
        return;
    }
    double rest = us - p->decode_us;
    if (!decode_rows) {
        /* a first idea only: a prompt alone reads the weights once too, which makes rows dear when there are few */
        if (p->row_us > 0 || prompt_rows < PACE_ROWS_UNKNOWN) return;
        rest = us;
    }
    if (rest > 0) p->row_us = follow(p->row_us, rest / prompt_rows);
}

static int rows_in(const struct pace *p, double us)
{
    int n = us > p->rows_max * p->row_us ? p->rows_max
            : us > 0                     ? (int)(us / p->row_us) / PACE_ROWS_MIN * PACE_ROWS_MIN
                                         : 0;
    if (n < PACE_ROWS_MIN) n = PACE_ROWS_MIN;
    return n < p->rows_max ? n : p->rows_max;
}

int pace_rows(const struct pace *p)
{
    if (p->row_us <= 0) return PACE_ROWS_UNKNOWN < p->rows_max ? PACE_ROWS_UNKNOWN : p->rows_max;
    return rows_in(p, p->target_us - p->decode_us);
}

int pace_rows_alone(const struct pace *p, double us)
{
    return p->row_us <= 0 ? p->rows_max : rows_in(p, us);
}
