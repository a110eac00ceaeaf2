/* options.h - everything an operator can set on the gateway, as plain values. Read once at start from defaults, file, environment
 * and command line (base/conf.h). Threading: read-only afterwards. */
#ifndef DEJA_GATEWAY_OPTIONS_H
#define DEJA_GATEWAY_OPTIONS_H
#include "base/conf.h"
#include "gateway/batch_pace.h"

struct gateway_options {
    const char *host, *upstreams /* see upstream_spec.h, one a line */, *upstreams_file,
        *upstream_key, *embed_key, *embed_net, *engine_url /* one a line */, *gateway_key, *redis,
        *embed_model, *api_keys, *ns, *model_aliases;
    const char *cache_secret, *admin_key, *judge_url, *judge_key, *judge_model, *judge_table,
        *probe, *probe_model, *log_level, *ca_file, *fallbacks /* `model=other,third` a line */,
        *canned_answer_file, *routes /* see scenario.h, one a line */;
    int port, workers;
    bool cache_exact, cache_semantic, access_log, access_log_json, trace_header, pass_unmapped;
    double trace_sample_percent;
    double cache_threshold, cache_max_temperature;
    int64_t cache_ttl_s, stale_if_error_s;
    size_t cache_entry_bytes_max, cache_memory_bytes_max, cache_entries_max;
    int cache_embed_deadline_ms, cache_redis_deadline_ms;
    int upstream_connect_ms, upstream_first_byte_ms, upstream_idle_ms, upstream_total_ms,
        upstream_retries, upstream_backoff_ms, upstream_retry_wait_ms, upstream_hedge_ms;
    double retry_budget_percent;
    int queue_max, queue_wait_ms, queue_batch_wait_s, queue_batch_percent, queue_batch_most_percent,
        queue_batch_age_s;
    int breaker_failures, breaker_error_percent, breaker_open_ms, probe_ms;
    int keep_after_gone_ms, coalesce_max, coalesce_wait_ms, inflight_max, connections_max,
        limit_lease_ms, client_idle_ms, client_write_ms, drain_ms;
    size_t body_bytes_max, answer_bytes_max;
    const char *tokenizer;
    size_t route_index_bytes_max;
    bool batch_api, responses_keep;
    int64_t response_ttl_s, responses_bytes_max;
    struct batch_window batch_window;
    int batch_lease_ms, batch_tries, batch_backoff_ms, batch_lines_max, batches_max, files_max;
    int64_t file_bytes_max, files_bytes_max, file_ttl_s;
};

const struct conf_row *gateway_option_rows(size_t *n);
/* Strings are borrowed from conf. ERR_INVALID for values that do not fit together (say so in e). */
MUST enum err gateway_options_read(struct gateway_options *o, const struct conf *conf,
                                   struct errmsg *e);
/* The right side of `alias=model` lines; model itself when there is none. */
struct str gateway_alias(const char *aliases, struct str model);

#endif
