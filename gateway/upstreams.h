/* upstreams.h - the servers that can answer: Deja's own engine and any OpenAI-compatible base URLs. Picks one per call by model,
 * breaker, pause, weight and load (upstreams_pick.c), and asks each now and then whether it is well (upstreams_probe.c: for /ready and
 * to close a breaker without user traffic). Knows nothing of requests and answers. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_UPSTREAMS_H
#define DEJA_GATEWAY_UPSTREAMS_H
#include "base/http_client.h"
#include "base/metrics.h"
#include "gateway/breaker.h"
#include "gateway/options.h"
#include "gateway/retry.h"
#include "gateway/slots.h"
#include "gateway/upstream_spec.h"

struct upstreams;
enum { UPSTREAMS_MAX = 32, UPSTREAM_KEY_BYTES = 4097 };

struct upstream {
    char url[272]; /* scheme://host:port/base, for people; no credentials in it */
    struct upstream_spec spec;
    char key
        [UPSTREAM_KEY_BYTES]; /* bearer token of its own or upstream_key; "" = the client's own */
    bool engine;              /* Deja's own: never sees a client's Authorization */
    bool
        prefill_only; /* an engine that computes prompts for others: answers only when no other can */
    struct breaker breaker;
    int inflight;
    struct slots slots;
    double pass; /* see pick.h */
    double work; /* prompt tokens it was given to compute, fading: route_score.h */
    uint64_t work_ms;
    uint64_t paused_until_ms,
        spare_until_ms;                 /* it asked not to be called: never, or if another can */
    uint64_t last_ok_ms, last_probe_ms; /* 0 = never */
    char why[sizeof((struct errmsg *)0)
                 ->text]; /* the last failure; "" when the last thing seen was good */
    unsigned lost;        /* times it may have ended: what it held as KV may be gone */
    struct http_call *probe;
    int probe_status;
    struct buf probe_body;
    struct buf models; /* ids as lines, from the last /v1/models */
    struct upstreams *owner;
    struct metric *requests, *failures, *opened;
};

MUST enum err upstreams_open(struct upstreams **out, struct loop *l, struct http_client *client,
                             const struct gateway_options *o, struct metrics *m, struct errmsg *e);
void upstreams_close(struct upstreams *u);
/* What one call wants of its target. matched: share of the prompt (0..1) each target, by its index, already holds as KV, or NULL when
 * nothing is known. */
struct upstream_want {
    struct str model;     /* empty = any */
    const float *matched; /* [UPSTREAMS_MAX] */
    float load_weight;    /* what a load of twice the mean costs, in shares of the prompt */
    float prompt_tokens;  /* with matched */
    uint32_t tried;       /* not these: a bit per index */
};
enum upstream_none {
    NONE_MODEL,  /* no target serves this model */
    NONE_OPEN,   /* all left alone by their breakers, or tried */
    NONE_PAUSED, /* all asked to wait (429 with Retry-After) */
    NONE_FULL    /* all at their max_concurrency */
};
struct upstream_refusal {
    enum upstream_none why;
    uint64_t wait_ms; /* until one may be asked again; 0 = unknown */
};
/* The one with the best matched - load_weight * (load - mean) / mean (without matched: the least loaded for its weight) whose breaker
 * lets a call through. NULL: none, *no says why. Counts it in flight: give it back with upstream_done. */
struct upstream *upstreams_pick(struct upstreams *u, const struct upstream_want *want,
                                struct upstream_refusal *no);
/* Which of the targets in among (a bit each) computes a prompt for the one that was picked, for_target: by what it holds against its
 * load, as above. NULL: none may be asked now. Its is the work then, not the other's; counts no call. */
struct upstream *upstreams_pick_helper(struct upstreams *u, const struct upstream_want *want,
                                       uint32_t among, int for_target);
/* Would upstreams_pick find one, closed and not asked to wait? Takes nothing. */
bool upstreams_has_other(struct upstreams *u, const struct upstream_want *want);
/* Is there a target that would be asked for this model, in whatever state? */
bool upstreams_serve(struct upstreams *u, struct str model);
/* Every target has told what it would be asked for: false while an engine beside other upstreams has not. */
bool upstreams_know_models(const struct upstreams *u);
/* What they take, by name and a line each; "*" is any. */
void upstreams_models(const struct upstreams *u, struct buf *out);
void upstream_done(struct upstream *t);
/* by: whose call it was; NULL = it is about the target alone. why may be NULL. */
void upstream_judge(struct upstream *t, enum retry_verdict v, const struct breaker_call *by,
                    const char *why);
/* It said when to come back. hard: not before, whoever asks; otherwise only while another target can. */
void upstream_pause(struct upstream *t, uint64_t ms, bool hard);
int upstreams_index(const struct upstreams *u, const struct upstream *t);
int upstreams_count(const struct upstreams *u);
struct upstream *upstreams_at(struct upstreams *u, int i);
bool upstreams_have_keys(const struct upstreams *u);   /* some target has a key of its own */
bool upstreams_have_models(const struct upstreams *u); /* some target serves named models only */
/* Bits of the targets that take calls for a model. */
uint32_t upstreams_targets(const struct upstreams *u, struct str model);
/* Calls that may be begun now at those of these targets that would be asked; INT_MAX: any number (one has no bound, or none would be
 * asked, so that there is nothing to wait for). */
int upstreams_room(const struct upstreams *u, uint32_t targets);
/* It answered so to a call begun at begun_ms: what that says about how much it bears. */
void upstream_said(struct upstream *t, int status, uint64_t begun_ms);
/* Calls at work at the targets of a model, and how many they take (0 = no bound). */
void upstreams_load(struct upstreams *u, struct str model, int *inflight, int *bound);
struct retry_budget *upstreams_budget(struct upstreams *u);
/* Seen well within the last three probe rounds (a real answer counts as much as a probe). */
bool upstream_is_ready(const struct upstream *t, uint64_t now_ms);
/* Where path ("/v1/chat/completions?x=1") lies on t: a base URL without a path gets all of it, one with a path stands for /v1,
 * as in the SDKs. Appends to out. */
void upstream_path(const struct upstream *t, struct str path, struct buf *out);

#endif
