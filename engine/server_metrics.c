/* server_metrics.c - what /metrics shows. Names are vLLM's where the meaning is the same, so that
 * existing boards and routers work. */
#include "base/mem.h"
#include "engine/server.h"

/* field, kind, name, help: filled from engine_stats before a scrape */
#define ENGINE_METRICS(X)                                                                          \
    X(running, METRIC_GAUGE, "vllm:num_requests_running", "choices being computed")                \
    X(waiting, METRIC_GAUGE, "vllm:num_requests_waiting", "choices waiting to be computed")        \
    X(prompt_tokens, METRIC_COUNTER, "vllm:prompt_tokens_total",                                   \
      "prompt tokens of started requests")                                                         \
    X(generated_tokens, METRIC_COUNTER, "vllm:generation_tokens_total", "tokens generated")        \
    X(prefix_query_tokens, METRIC_COUNTER, "vllm:prefix_cache_queries_total",                      \
      "prompt tokens looked up in the prefix cache")                                               \
    X(prefix_hit_tokens, METRIC_COUNTER, "vllm:prefix_cache_hits_total",                           \
      "prompt tokens found in the prefix cache")                                                   \
    X(preemptions, METRIC_COUNTER, "vllm:num_preemptions_total",                                   \
      "sequences stopped for lack of blocks and recomputed later")                                 \
    X(drafts, METRIC_COUNTER, "vllm:spec_decode_num_drafts_total", "guesses that were checked")    \
    X(draft_tokens, METRIC_COUNTER, "vllm:spec_decode_num_draft_tokens_total",                     \
      "guessed tokens that were checked")                                                          \
    X(accepted_tokens, METRIC_COUNTER, "vllm:spec_decode_num_accepted_tokens_total",               \
      "guessed tokens the model agreed with")                                                      \
    X(lost_tokens, METRIC_COUNTER, "deja_engine_recomputed_tokens_total",                          \
      "tokens computed again after a preemption")                                                  \
    X(host_hit_tokens, METRIC_COUNTER, "vllm:external_prefix_cache_hits_total",                    \
      "prompt tokens that came back from host memory instead of being computed")                   \
    X(spilled_blocks, METRIC_COUNTER, "deja_engine_kv_spilled_blocks_total",                       \
      "KV blocks moved to host memory")                                                            \
    X(loaded_blocks, METRIC_COUNTER, "deja_engine_kv_loaded_blocks_total",                         \
      "KV blocks brought back from host memory")                                                   \
    X(host_blocks, METRIC_GAUGE, "deja_engine_host_blocks", "KV blocks of the swap space")         \
    X(host_blocks_used, METRIC_GAUGE, "deja_engine_host_blocks_used",                              \
      "KV blocks the swap space holds")                                                            \
    X(disk_blocks, METRIC_GAUGE, "deja_engine_disk_blocks", "KV blocks that kv_disk may hold")     \
    X(disk_blocks_used, METRIC_GAUGE, "deja_engine_disk_blocks_used", "KV blocks on disk")         \
    X(disk_saved_blocks, METRIC_COUNTER, "deja_engine_disk_saved_blocks_total",                    \
      "KV blocks written to disk")                                                                 \
    X(disk_fetched_blocks, METRIC_COUNTER, "deja_engine_disk_fetched_blocks_total",                \
      "KV blocks read from disk")                                                                  \
    X(disk_damaged_blocks, METRIC_COUNTER, "deja_engine_disk_damaged_blocks_total",                \
      "KV blocks on disk that were not what they should be")                                       \
    X(disk_failed_writes, METRIC_COUNTER, "deja_engine_disk_failed_writes_total",                  \
      "KV blocks that the disk did not take")                                                      \
    X(steps, METRIC_COUNTER, "deja_engine_steps_total", "forward passes")                          \
    X(cancelled, METRIC_COUNTER, "deja_engine_cancelled_total", "choices whose client left")       \
    X(failed, METRIC_COUNTER, "deja_engine_failed_total", "choices that ended with an error")      \
    X(blocks_total, METRIC_GAUGE, "deja_engine_kv_blocks", "KV blocks of the pool")                \
    X(blocks_used, METRIC_GAUGE, "deja_engine_kv_blocks_used",                                     \
      "KV blocks in use by running sequences")                                                     \
    X(blocks_cached, METRIC_GAUGE, "deja_engine_kv_blocks_cached",                                 \
      "KV blocks kept for their prefix, taken when needed")

struct server_metrics {
#define X(field, kind, name, help) struct metric *field;
    ENGINE_METRICS(X)
#undef X
    struct metric *kv_usage, *step_age, *loop_lag, *first_token, *gap, *whole, *open_requests;
    char labels[320];
};

struct server_metrics *server_metrics_new(struct server *s)
{
    struct server_metrics *m = xcalloc(1, sizeof *m);
    struct buf b;
    buf_init(&b, sizeof m->labels - 1);
    metrics_label(&b, "model_name", str_of(s->model_name));
    if (!buf_failed(&b))
        for (size_t i = 0; i < b.n; i++)
            m->labels[i] = b.p[i];
    buf_fini(&b);
#define X(field, kind, name, help)                                                                 \
    m->field = metrics_get(s->metrics, kind, name, m->labels, help, 0, 0);
    ENGINE_METRICS(X)
#undef X
    m->kv_usage = metrics_get(s->metrics, METRIC_GAUGE, "vllm:kv_cache_usage_perc", m->labels,
                              "share of KV blocks in use, 0 to 1", 0, 0);
    m->step_age = metrics_get(s->metrics, METRIC_GAUGE, "deja_engine_step_age_seconds", m->labels,
                              "time since the last step ended while work waits", 0, 0);
    m->loop_lag =
        metrics_get(s->metrics, METRIC_GAUGE, "deja_engine_loop_lag_seconds", "",
                    "longest time a callback kept the HTTP loop since the last scrape", 0, 0);
    m->open_requests = metrics_get(s->metrics, METRIC_GAUGE, "deja_engine_open_requests", "",
                                   "requests between arrival and last byte", 0, 0);
    m->first_token = metrics_get(s->metrics, METRIC_HISTOGRAM, "vllm:time_to_first_token_seconds",
                                 m->labels, "arrival to first token", 0.001, 16);
    m->gap = metrics_get(s->metrics, METRIC_HISTOGRAM, "vllm:inter_token_latency_seconds",
                         m->labels, "time between two tokens of a choice", 0.001, 14);
    m->whole = metrics_get(s->metrics, METRIC_HISTOGRAM, "vllm:e2e_request_latency_seconds",
                           m->labels, "arrival to end of a choice", 0.005, 17);
    return m;
}

void server_metrics_free(struct server_metrics *m)
{
    mem_free(m);
}

static void show(struct metric *x, enum metric_kind kind, double v)
{
    if (kind == METRIC_GAUGE)
        metric_set(x, v);
    else if (v > metric_value(x))
        metric_add(x, v - metric_value(x));
}

void server_metrics_update(struct server *s)
{
    struct engine_stats st;
    struct server_metrics *m = s->series;
    engine_stats(s->engine, &st);
#define X(field, kind, name, help) show(m->field, kind, (double)st.field);
    ENGINE_METRICS(X)
#undef X
    metric_set(m->kv_usage, st.blocks_total ? (double)st.blocks_used / st.blocks_total : 0);
    metric_set(m->step_age, (double)st.step_age_ms / 1000);
    metric_set(m->loop_lag, (double)loop_lag_us(s->loop) / 1e6);
    metric_set(m->open_requests, httpd_stats(s->httpd).open_requests);
}

void metrics_first_token(struct exchange *x, uint64_t at_us)
{
    metric_observe(x->server->series->first_token, (double)(at_us - x->arrived_us) / 1e6);
}

void metrics_gap(struct exchange *x, uint64_t us)
{
    metric_observe(x->server->series->gap, (double)us / 1e6);
}

void metrics_choice_end(struct exchange *x, const char *reason, uint64_t at_us)
{
    struct server *s = x->server;
    struct buf b;
    buf_init(&b, 512);
    buf_z(&b, s->series->labels);
    metrics_label(&b, "finished_reason", str_of(reason));
    metric_add(metrics_get(s->metrics, METRIC_COUNTER, "vllm:request_success_total",
                           buf_failed(&b) ? "" : b.p, "choices that ended, by reason", 0, 0),
               1);
    buf_fini(&b);
    metric_observe(s->series->whole, (double)(at_us - x->arrived_us) / 1e6);
}
