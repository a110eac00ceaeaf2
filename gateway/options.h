/* options.h - everything an operator can set on the gateway, as plain values. Read once at start from defaults, file, environment
 * and command line (base/conf.h). Threading: read-only afterwards. */
#ifndef DEJA_GATEWAY_OPTIONS_H
#define DEJA_GATEWAY_OPTIONS_H
#include "base/conf.h"

struct gateway_options {
    const char *host, *upstreams /* one URL a line */, *upstream_key, *embed_key, *engine_url,
        *gateway_key, *redis, *embed_model, *api_keys, *ns, *model_aliases;
    const char *cache_secret, *admin_key, *judge_url, *judge_key, *judge_model, *judge_table,
        *probe, *probe_model, *log_level, *ca_file;
    int port, workers;
    bool cache_exact, cache_semantic, access_log;
    double cache_threshold, cache_max_temperature;
    int64_t cache_ttl_s;
    size_t cache_entry_bytes_max, cache_memory_bytes_max, cache_entries_max;
    int cache_embed_deadline_ms, cache_redis_deadline_ms;
    int upstream_connect_ms, upstream_first_byte_ms, upstream_idle_ms, upstream_retries,
        upstream_backoff_ms;
    int breaker_failures, breaker_open_ms, probe_ms;
    int keep_after_gone_ms, coalesce_max, inflight_max, client_idle_ms, client_write_ms, drain_ms;
    size_t body_bytes_max, answer_bytes_max;
};

const struct conf_row *gateway_option_rows(size_t *n);
/* Strings are borrowed from conf. ERR_INVALID for values that do not fit together (say so in e). */
MUST enum err gateway_options_read(struct gateway_options *o, const struct conf *conf,
                                   struct errmsg *e);
/* The right side of `alias=model` lines; model itself when there is none. */
struct str gateway_alias(const char *aliases, struct str model);

#endif
