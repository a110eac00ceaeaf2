/* gain.h - how much of a draft pays. Learns what a step of so many rows costs, and takes the number of nodes that gives most tokens a
 * second: (sequences + expected right tokens) / (cost of the step with the draft's rows + cost of drafting). A sequence whose drafts do
 * not pay is left alone and tried with one token ever more seldom, so that a wrong hope costs a few rows in a hundred steps.
 * Pure; no allocation. Threading: the step thread.
 * Source: goodput as the aim of speculation, Liu et al. 2024, arXiv:2406.14066; the estimates are our own. */
#ifndef DEJA_ENGINE_SPECULATE_GAIN_H
#define DEJA_ENGINE_SPECULATE_GAIN_H
#include <stdbool.h>

enum { GAIN_ROWS_MAX = 256, GAIN_WAIT_MIN = 8, GAIN_WAIT_MAX = 512 };

/* Costs that were not seen for long are doubted, in favour of another try. */
struct step_cost { /* us of a step that only decodes, by rows; 0 = not seen */
    double us[GAIN_ROWS_MAX + 1];
};
void step_cost_learn(struct step_cost *c, int n_rows, double us);
/* Of a step of n_rows: as seen, else between what was seen nearby, else that of the most rows seen below (so that more gets tried
 * once), and never more than a step of up to 32 rows more was seen to cost; 0 = nothing seen at all. */
double step_cost_of(const struct step_cost *c, int n_rows);

struct gain { /* of one sequence */
    int wait,
        left; /* steps to leave it alone: after the next failure, and still; wait 0 = not begun */
};

struct gain_step {
    int n_rows,
        n_seqs;      /* of the step so far: rows with drafts given to others, decoding sequences */
    double draft_us; /* what drafting one token still costs */
};
/* Whether so many rows decode that not even n_max right tokens of one sequence are worth a longer step: nobody need look for a draft. */
bool gain_hopeless(const struct gain_step *s, int n_max);
/* How many nodes to check, 0..n, where node i is right with the chance right[i], 0..1, and chances never rise; 0 until a step without
 * drafts has been measured for so many sequences. */
int gain_length(struct gain *g, const struct step_cost *c, const struct gain_step *s,
                const double *right, int n);

#endif
