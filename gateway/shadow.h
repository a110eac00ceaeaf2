/* shadow.h - live truth: a share of the semantic hits (knob shadow_percent) is also answered by the model, after the client was answered
 * and in the batch class, and the two answers are compared: by the judge where the knob judge is on, else by what shadow_compare.h can say.
 * What comes of it is evidence: counted by namespace and arm, and learnt by the cache. A client that wanted its own credentials used
 * upstream has them used once more. Bounded: beyond SHADOWS_MAX under way samples are left out and counted.
 * Threading: the loop's thread; vectors come from the embedder's. */
#ifndef DEJA_GATEWAY_SHADOW_H
#define DEJA_GATEWAY_SHADOW_H
#include "cache/cache.h"

struct exchange;
struct gateway;
struct shadows;
enum { SHADOWS_MAX = 8 };

struct shadows *shadows_open(struct gateway *gw);
/* Before the embedder and the gateway's client. NULL is fine. */
void shadows_close(struct shadows *s);
/* f: a semantic hit of x, whose request is still there. */
void shadow_offer(struct shadows *s, struct exchange *x, const struct cache_found *f);

#endif
