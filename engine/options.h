/* options.h - the engine's options: one row each in options.c (flag, file key, environment, help). Threading: read at start only. */
#ifndef DEJA_ENGINE_OPTIONS_H
#define DEJA_ENGINE_OPTIONS_H
#include "base/conf.h"
#include "engine/engine.h"

enum engine_role { ROLE_BOTH, ROLE_PREFILL, ROLE_DECODE };

struct server_options { /* strings are borrowed from the conf */
    struct engine_options engine;
    char draft_path[4096];         /* engine.speculation.draft_path points here */
    const char *served_model_name; /* "" = the model's own */
    struct engine_adapter adapters[MODEL_ADAPTERS_MAX]; /* what engine.adapters points to */
    const char *embed_model;                            /* "" = none */
    const char *host;
    int port;
    const char *log_level;
    const char *check;     /* file to check instead of serving, "" = serve */
    const char *calibrate; /* text to measure the model with instead of serving, "" = serve */
    const char *
        gateway_key; /* requests that carry it may say x-deja-salt and x-deja-priority; "" = none may */
    enum engine_role role; /* docs/disaggregation.md */
    int kv_transfer_ms;    /* longest silence of an engine that computes a prompt for this one */
    bool has_seed;         /* requests without a seed get this one */
    uint64_t seed;
    int max_tokens_default; /* for requests that name no limit; 0 = as many as fit */
    int drain_ms;
    int probe_idle_ms; /* an idle engine generates one token this often, so that /ready is about now; 0 = never */
    int body_bytes_max;
    bool warm_up;
    /* Loop: the device is gone for good, why is borrowed while the server lives. Set by who runs the server; NULL = nobody. */
    void (*on_lost)(void *arg, const char *why);
    void *on_lost_arg;
};

const char *engine_role_name(enum engine_role role);
/* Free with conf_free. */
struct conf *engine_conf_new(void);
/* ERR_INVALID with a sentence when options contradict each other or a needed one is missing. */
MUST enum err server_options_read(const struct conf *c, struct server_options *out,
                                  struct errmsg *e);

#endif
