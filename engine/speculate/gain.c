/* gain.c - see gain.h. */
#include "engine/speculate/gain.h"

#include "base/err.h"

/* A draft must promise so much more than none: estimates err, and drafting has costs that nobody measures. */
static const double margin = 1.04;
enum { CHEAPER_MAX = 32 };
static const double forget = 1.0 / 256; /* of what more rows cost than fewer, in a step */

/* What is not seen again comes down to what fewer rows cost, until it looks worth another try: a step that was disturbed must not decide
 * for good. */
static void age(struct step_cost *c, int seen)
{
    double below = 0;
    for (int n = 1; n <= GAIN_ROWS_MAX; n++) {
        if (c->us[n] <= 0) continue;
        if (n != seen && below > 0 && c->us[n] > below) c->us[n] -= (c->us[n] - below) * forget;
        below = c->us[n];
    }
}

void step_cost_learn(struct step_cost *c, int n_rows, double us)
{
    if (n_rows < 1 || n_rows > GAIN_ROWS_MAX || us <= 0) return;
    double *known = &c->us[n_rows];
    age(c, n_rows);
    if (*known <= 0)
        *known = us;
    else /* a stolen core makes a step slow, never fast: fast ones are believed sooner */
        *known += (us < *known ? 0.6 : 0.1) * ((us < 3 * *known ? us : 3 * *known) - *known);
}

/* As seen, or between what was seen nearby. */
static double read_off(const struct step_cost *c, int n_rows)
{
    int at = n_rows < GAIN_ROWS_MAX ? n_rows : GAIN_ROWS_MAX, low = at, high = at;
    while (low > 0 && c->us[low] <= 0)
        low--;
    while (high <= GAIN_ROWS_MAX && c->us[high] <= 0)
        high++;
    if (low == high) return c->us[low];
    if (low > 0 && high <= GAIN_ROWS_MAX)
        return c->us[low] + (c->us[high] - c->us[low]) * (at - low) / (high - low);
    return low > 0 ? c->us[low] : high <= GAIN_ROWS_MAX ? c->us[high] : 0;
}

double step_cost_of(const struct step_cost *c, int n_rows)
{
    double us = read_off(c, n_rows);
    for (int n = n_rows + 1; n <= n_rows + CHEAPER_MAX && n <= GAIN_ROWS_MAX; n++)
        if (c->us[n] > 0 && c->us[n] < us) us = c->us[n];
    return us;
}

bool gain_hopeless(const struct gain_step *s, int n_max)
{
    return n_max <= (margin - 1) * s->n_seqs;
}

int gain_length(struct gain *g, const struct step_cost *c, const struct gain_step *s,
                const double *right, int n_max)
{
    ASSERT(s->n_rows >= 1 && s->n_seqs >= 1);
    double base = step_cost_of(c, s->n_rows);
    if (n_max < 1 || c->us[s->n_seqs < GAIN_ROWS_MAX ? s->n_seqs : GAIN_ROWS_MAX] <= 0) return 0;
    double best = margin * s->n_seqs / base, tokens = s->n_seqs;
    int length = 0;
    for (int n = 1; n <= n_max; n++) {
        tokens += right[n - 1];
        double rate = tokens / (step_cost_of(c, s->n_rows + n) + n * s->draft_us);
        if (rate <= best) continue;
        best = rate;
        length = n;
    }
    if (!g->wait) g->wait = GAIN_WAIT_MIN;
    if (length) {
        g->wait = GAIN_WAIT_MIN;
        return length;
    }
    if (g->left > 0) {
        g->left--;
        return 0;
    }
    g->left = g->wait;
    g->wait = g->wait * 2 < GAIN_WAIT_MAX ? g->wait * 2 : GAIN_WAIT_MAX;
    return 1;
}
