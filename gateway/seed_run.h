/* seed_run.h - a checked file of answers people wrote into Redis as one set, or a set out of it; for `deja seed` and POST /admin/seed.
 * Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_SEED_RUN_H
#define DEJA_GATEWAY_SEED_RUN_H
#include "base/redis.h"
#include "cache/seed_file.h"

enum { SEED_REFUSALS_TOLD_MAX = 20 };
struct seed_counts {
    size_t fresh, changed, same, removed, refused;
};
struct seed_run_options {
    struct redis *redis;
    const char *tag, *set; /* "{deja}", the set's name; borrowed until done */
    bool dry;              /* says what would be done */
    uint64_t secret;       /* of the gateways' keys */
    /* An item that was not taken, and what would be right; borrowed. Of more than SEED_REFUSALS_TOLD_MAX the first ones. */
    void (*refused)(void *arg, int line, const char *text);
    /* Once, never before seed_run_start returns. code OK also with items refused. */
    void (*done)(void *arg, enum err code, const struct seed_counts *n, const struct errmsg *why);
    void *arg;
};
/* file: without problems; borrowed until done. An empty one takes the whole set away. */
void seed_run_start(const struct seed_run_options *o, const struct seed_file *file);

#endif
