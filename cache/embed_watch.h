/* embed_watch.h - notices an embedder that hangs, so that it costs one look-up its deadline and the next ones nothing. Hanging means: a
 * look-up ran out of time and no pass has ended since; merely slow is not hanging. While it hangs one look-up a second tries. Pure. */
#ifndef DEJA_CACHE_EMBED_WATCH_H
#define DEJA_CACHE_EMBED_WATCH_H
#include <stdbool.h>
#include <stdint.h>

enum { EMBED_TRY_MS = 1000 };
struct embed_watch { /* zero = all is well */
    bool stuck;
    uint64_t passes; /* the embedder's count when the time ran out */
    uint64_t try_at_ms;
};
void embed_watch_timed_out(struct embed_watch *w, uint64_t passes, uint64_t now_ms);
bool embed_watch_is_stuck(const struct embed_watch *w, uint64_t passes);
/* May the embedder be asked now? passes: its count now. */
bool embed_watch_allows(struct embed_watch *w, uint64_t passes, uint64_t now_ms);

#endif
