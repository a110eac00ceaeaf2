/* gain.c - see gain.h. */
#include "engine/speculate/gain.h"

#include "base/err.h"

/* A draft must promise so much more than none: estimates err, and drafting has costs that nobody measures. */
static const double margin = 1.04;

void step_cost_learn(struct step_cost *c, int n_rows, double us)
{
    if (n_rows < 1 || n_rows > GAIN_ROWS_MAX || us <= 0) return;
    double *known = &c->us[n_rows];
    if (*known <= 0)
        *known = us;
    else /* a stolen core makes a step slow, never fast: fast ones are believed sooner */
        *known += (us < *known ? 0.3 : 0.05) * ((us < 3 * *known ? us : 3 * *known) - *known);
}

double step_cost_of(const struct step_cost *c, int n_rows)
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

void gain_init(struct gain *g, double chance)
{
    *g = (struct gain){.chance = chance, .wait = GAIN_WAIT_MIN};
}

int gain_length(struct gain *g, const struct step_cost *c, const struct gain_step *s, int n_max)
{
    ASSERT(s->n_rows >= 1 && s->n_seqs >= 1);
    double base = step_cost_of(c, s->n_rows);
    if (n_max < 1 || c->us[s->n_seqs < GAIN_ROWS_MAX ? s->n_seqs : GAIN_ROWS_MAX] <= 0) return 0;
    double best = margin * s->n_seqs / base, tokens = s->n_seqs, right = 1;
    int length = 0;
    for (int n = 1; n <= n_max; n++) {
        right *= g->chance;
        tokens += right;
        double rate = tokens / (step_cost_of(c, s->n_rows + n) + n * s->draft_us);
        if (rate <= best) continue;
        best = rate;
        length = n;
    }
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

void gain_learn(struct gain *g, int n, int n_right)
{
    for (int i = 0; i < n && i <= n_right; i++) { /* tokens after the first wrong one say nothing */
        double share = 1.0 / (++g->n_seen + 3);
        if (share < 0.08) share = 0.08;
        g->chance += share * ((i < n_right) - g->chance);
    }
}
