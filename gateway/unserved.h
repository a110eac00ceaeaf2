/* unserved.h - models that a text of the knobs `route` and `fallback` leads to and no upstream of this gateway takes. Not refused, since
 * other gateways of the same Redis, or this one after its next start, may have other upstreams; told in the log when such rules come into
 * force (tuning.c) and under /admin/config. Who sets them is told by Redis, of all gateways (lua/config_text.lua). Threading: the loop's
 * thread. */
#ifndef DEJA_GATEWAY_UNSERVED_H
#define DEJA_GATEWAY_UNSERVED_H
#include "base/buf.h"
#include "gateway/gateway.h"

/* Their names in out, each once and a line each; none where text cannot be read, or an engine beside other upstreams has not told its
 * models yet (upstreams_know_models). knob: "route" or "fallback". */
void unserved_models(const struct gateway *gw, const char *knob, struct str text, struct buf *out);
/* The sentence about them; out stays as it was where there are none. */
void unserved_words(const char *knob, const struct buf *models, struct buf *out);

#endif
