/* upstream_spec.h - what an operator writes about one upstream, as plain values: `URL [option=value]...`. Options: models=a,b (only
 * these; `alias=name` sends name for alias; * = any other too), weight, max_concurrency, key_file, key_env, kv_events and kv_replay
 * (vllm_feed.h), connect_ms, first_byte_ms, idle_ms, total_ms (0 = the gateway's own). Reads no file and no environment. Pure.
 * Threading: none. */
#ifndef DEJA_GATEWAY_UPSTREAM_SPEC_H
#define DEJA_GATEWAY_UPSTREAM_SPEC_H
#include "base/buf.h"
#include "base/http_client.h"

enum {
    SPEC_MODELS_BYTES = 4096,
    SPEC_LINE_BYTES_MAX = 8192,
    SPEC_WEIGHT_MAX = 1000,
    SPEC_CONCURRENCY_MAX = 100000
};

struct upstream_spec {
    struct http_origin origin;
    char models[SPEC_MODELS_BYTES]; /* "alias=name," or "name," each; "" = any model */
    char key_file[512], key_env[64];
    char kv_events[264], kv_replay[264]; /* tcp://host:port; "" = none */
    double weight;                       /* 1 */
    int max_concurrency;                 /* 0 = no bound */
    int connect_ms, first_byte_ms, idle_ms, total_ms;
};

/* One line. ERR_INVALID: e says which word and what it may be. */
MUST enum err upstream_spec_parse(struct str line, struct upstream_spec *out, struct errmsg *e);
/* Takes the next upstream's words out of *text into line (cleared first): one line, without its # comment, and the lines after it that
 * do not begin with a URL (a list in the environment is cut at blanks). False: nothing is left. */
bool upstream_spec_next(struct str *text, struct buf *line);

enum spec_serves { SPEC_NOT, SPEC_ANY, SPEC_NAMED };
/* SPEC_NAMED: the model stands in the list; SPEC_ANY: it takes any. *name: what the model is called there (borrowed). */
enum spec_serves upstream_spec_serves(const struct upstream_spec *s, struct str model,
                                      struct str *name);

#endif
