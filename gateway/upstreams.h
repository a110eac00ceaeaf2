/* upstreams.h - the servers that can answer: Deja's own engine and any OpenAI-compatible base URLs. Picks one per call by model,
 * breaker and load, and asks each now and then whether it is well (for /ready and to close a breaker without user traffic).
 * Knows nothing of requests and answers. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_UPSTREAMS_H
#define DEJA_GATEWAY_UPSTREAMS_H
#include "base/http_client.h"
#include "gateway/breaker.h"
#include "gateway/options.h"

struct upstreams;
enum { UPSTREAMS_MAX = 32 };

struct upstream {
    char url[272]; /* scheme://host:port/base, for people; no credentials in it */
    struct http_origin origin;
    bool engine; /* Deja's own: never sees a client's Authorization */
    struct breaker breaker;
    int inflight;
    uint64_t last_ok_ms, last_probe_ms; /* 0 = never */
    char why[sizeof((struct errmsg *)0)
                 ->text]; /* the last failure; "" when the last thing seen was good */
    struct http_call *probe;
    int probe_status;
    struct buf probe_body;
    struct buf models; /* ids as lines, from the last /v1/models */
    struct upstreams *owner;
};

MUST enum err upstreams_open(struct upstreams **out, struct loop *l, struct http_client *client,
                             const struct gateway_options *o, struct errmsg *e);
void upstreams_close(struct upstreams *u);
/* The least loaded one whose breaker lets a call through, out of those that serve model (empty = any) and are not in tried (a bit
 * per index). NULL: none; *wait_ms says when one may be asked again. Counts it in flight: give it back with upstream_done. */
struct upstream *upstreams_pick(struct upstreams *u, struct str model, uint32_t tried,
                                uint64_t *wait_ms);
enum upstream_verdict { UPSTREAM_GOOD, UPSTREAM_BAD, UPSTREAM_UNKNOWN };
/* UNKNOWN: the call ended for reasons of ours. why may be NULL. */
void upstream_done(struct upstream *t);
void upstream_judge(struct upstream *t, enum upstream_verdict v, const char *why);
int upstreams_index(const struct upstreams *u, const struct upstream *t);
int upstreams_count(const struct upstreams *u);
struct upstream *upstreams_at(struct upstreams *u, int i);
/* Seen well within the last three probe rounds (a real answer counts as much as a probe). */
bool upstream_is_ready(const struct upstream *t, uint64_t now_ms);
/* Where path ("/v1/chat/completions?x=1") lies on t: a base URL without a path gets all of it, one with a path stands for /v1,
 * as in the SDKs. Appends to out. */
void upstream_path(const struct upstream *t, struct str path, struct buf *out);

#endif
