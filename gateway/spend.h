/* spend.h - tokens and money by model: what upstreams were asked for and what the cache saved, at the prices in force. At most
 * SPEND_MODELS models have series of their own, because clients choose the names; the rest is "other". Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_SPEND_H
#define DEJA_GATEWAY_SPEND_H
#include "base/metrics.h"

enum { SPEND_MODELS = 64 };
struct exchange;
struct spend;

struct spend *spend_new(struct metrics *m);
void spend_free(struct spend *s);
/* At the end of a request whose usage is known. saved: nothing was asked for it. */
void spend_count(struct spend *s, const struct exchange *x, bool saved);
/* Before a scrape: the gauge of what tokens came to. */
void spend_show(struct spend *s);

#endif
