/* embed_watch.c - see embed_watch.h. */
#include "cache/embed_watch.h"

void embed_watch_timed_out(struct embed_watch *w, uint64_t passes, uint64_t now_ms)
{
    if (!w->stuck) w->try_at_ms = now_ms + EMBED_TRY_MS;
    w->stuck = true;
    w->passes = passes;
}

bool embed_watch_is_stuck(const struct embed_watch *w, uint64_t passes)
{
    return w->stuck && passes == w->passes;
}

bool embed_watch_allows(struct embed_watch *w, uint64_t passes, uint64_t now_ms)
{
    w->stuck = embed_watch_is_stuck(w, passes);
    if (!w->stuck) return true;
    if (now_ms < w->try_at_ms) return false;
    w->try_at_ms = now_ms + EMBED_TRY_MS;
    return true;
}
