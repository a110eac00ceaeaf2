/* keep.c - hands a complete answer to the cache, with what it cost. What may be stored is the cache's decision; whether this request
 * wanted it stored is ours. Threading: the loop's thread. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/ticket.h"

void ticket_keep(struct ticket *t, const struct openai_answer *a)
{
    const char *why_not = NULL;
    t->entry[0] = 0;
    const struct cache_key *key = ladder_key(t);
    if (!key || !t->store || t->unfit || !t->gw->cache || t->status != 200) return;
    int64_t took_ms = (int64_t)((clock_us() - t->started_us) / 1000);
    struct cache_keep_options o = {
        .ttl_s = t->ttl_s, .tags = str_of(t->tags), .latency_ms = took_ms, .trust = t->trust};
    enum err code = cache_keep(t->gw->cache, key, a, &o, t->entry, &why_not);
    if (code != OK) {
        t->entry[0] = 0;
        t->refused = why_not;
        log_debug("gateway", "answer not kept: %s", why_not ? why_not : err_text(code));
        return;
    }
    size_t slot = (size_t)key->exact.lo & (RECENT_KEYS - 1);
    t->gw->recent[slot].key = key->exact;
    t->gw->recent[slot].kept_us = clock_us();
}
