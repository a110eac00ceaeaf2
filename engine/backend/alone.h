/* alone.h - when the caller of a pool should do all the work itself. On a core that somebody else keeps busy a helper is taken off its
 * core in the middle of a task, for milliseconds, and every job waits for that one task: two threads are then slower than one. Counts
 * such waits; while they make up much of the time the helpers are left out, for a span that doubles up to a bound as long as trying again
 * turns out badly. Results do not depend on who computes them.
 * Pure; time is an argument. Threading: one thread. */
#ifndef DEJA_ENGINE_BACKEND_ALONE_H
#define DEJA_ENGINE_BACKEND_ALONE_H
#include <stdbool.h>
#include <stdint.h>

enum {
    ALONE_WINDOW_US = 20000, /* waits are weighed against this much time */
    ALONE_WAIT_US = 200,     /* a shorter wait says nothing */
    ALONE_SHARE = 8,         /* one part in eight of a window lost */
    ALONE_SPAN_US = 40000,   /* the first span alone */
    ALONE_SPAN_MAX_US = 640000,
};

struct alone {
    uint64_t window_us, lost_us; /* start of the window; waited in it */
    uint64_t until_us, span_us;  /* alone until then; length of the last span, 0: none lately */
};

bool alone_now(const struct alone *a, uint64_t now_us);
/* A job: the caller worked own_us on its share and then waited for the others. Waits that are no longer than its own work are those of
 * uneven tasks. */
void alone_note(struct alone *a, uint64_t now_us, uint64_t own_us, uint64_t waited_us);

#endif
