/* batch_pace.h - how much of the batches may run now, and what becomes of a line whose answer is not what it should be. Pure: time and
 * chance are arguments. */
#ifndef DEJA_GATEWAY_BATCH_PACE_H
#define DEJA_GATEWAY_BATCH_PACE_H
#include "base/str.h"

/* Minutes of the day from which and until which all of the share may run; equal = always. May go over midnight. */
struct batch_window {
    int from_min, until_min;
    bool local; /* the machine's time zone, else UTC */
};
/* "22:00-06:00", "22:00-06:00 local" or "" = always. */
MUST enum err batch_window_parse(struct batch_window *out, struct str text, struct errmsg *e);
bool batch_window_open(const struct batch_window *w, int minute_of_day);

struct batch_load {
    int concurrency; /* lines at a time; 0 = batches pause */
    int minimum;     /* even outside the window and while clients are many */
    int yield_above; /* clients' requests at work */
    int online;      /* clients' requests at work now */
    bool window_open;
};
/* Lines that may be at work. */
int batch_allowed(const struct batch_load *l);

enum batch_verdict {
    BATCH_GOOD,  /* 2xx: its answer goes to the output */
    BATCH_BAD,   /* goes to the error file */
    BATCH_RETRY, /* uses up one of its tries */
    BATCH_WAIT /* too much at the moment, which is not the line's fault: no try is used up, the batch pauses */
};
/* status 0 = no whole reply. tries, waits: before this one; each has its bound. */
enum { BATCH_WAITS_MAX = 500 };
enum batch_verdict batch_verdict(int status, int tries, int tries_max, int waits);
/* Pause before the next try, jitter (chance in [0,1)) included; at least what the reply asked for (0 = nothing). */
uint64_t batch_delay_ms(uint64_t first_ms, int attempt, uint64_t asked_ms, double chance);
/* Pause before a result that Redis has refused so many times is handed over again: grows to 30 s, jitter included. */
uint64_t batch_again_ms(int refused, double chance);

/* "24h" and others of that form (s, m, h, d), up to 7 days, in seconds. ERR_INVALID otherwise. */
MUST enum err batch_duration_parse(struct str text, int64_t *out_s, struct errmsg *e);

#endif
