/* pace.h - how many prompt rows a step may take while others decode, so that the step ends in time: streams stall for one step at most.
 * Learns from steps as they are measured: what decoding alone costs, and what a prompt row costs on top. A slow step is believed
 * sooner than a fast one, but no single one more than threefold.
 * Pure; no allocation. Threading: the step thread.
 * Source: the token budget of Sarathi-Serve (Agrawal et al. 2024), made to follow the clock. */
#ifndef DEJA_ENGINE_SCHED_PACE_H
#define DEJA_ENGINE_SCHED_PACE_H

enum { PACE_ROWS_MIN = 8, PACE_ROWS_UNKNOWN = 32 };

struct pace {
    double target_us;
    int rows_max;
    double decode_us; /* a step of decoding rows only; 0 = none seen */
    double row_us;    /* one prompt row more; 0 = none seen */
};

/* target_us > 0; rows_max >= 1. */
void pace_init(struct pace *p, double target_us, int rows_max);
/* A step that took us had decode_rows rows of decoding sequences (drafts included) and prompt_rows others. */
void pace_learn(struct pace *p, int decode_rows, int prompt_rows, double us);
/* Prompt rows for the next step beside decodes: a multiple of PACE_ROWS_MIN, at least that, at most rows_max. */
int pace_rows(const struct pace *p);
/* The same for a step of prompts only, so that it ends within us: nobody hears it, but arrivals, cancels and the watchdog wait for it. */
int pace_rows_alone(const struct pace *p, double us);

#endif
