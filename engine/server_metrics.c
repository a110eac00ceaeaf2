/* server_metrics.c - what /metrics shows. Names are vLLM's where the meaning is the same, so that
 * existing boards and routers work. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
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
    X(text_draft_tokens, METRIC_COUNTER, "deja_engine_text_draft_tokens_total",                    \
      "guessed tokens that were checked, from repeats in the text")                                \
    X(text_accepted_tokens, METRIC_COUNTER, "deja_engine_text_accepted_tokens_total",              \
      "guessed tokens the model agreed with, from repeats in the text")                            \
    X(expected_draft_tokens, METRIC_COUNTER, "deja_engine_expected_draft_tokens_total",            \
      "guessed tokens that were checked, from the text a client expects")                          \
    X(expected_accepted_tokens, METRIC_COUNTER, "deja_engine_expected_accepted_tokens_total",      \
      "guessed tokens the model agreed with, from the text a client expects")                      \
    X(model_draft_tokens, METRIC_COUNTER, "deja_engine_model_draft_tokens_total",                  \
      "guessed tokens that were checked, from a draft model")                                      \
    X(model_accepted_tokens, METRIC_COUNTER, "deja_engine_model_accepted_tokens_total",            \
      "guessed tokens the model agreed with, from a draft model")                                  \
    X(form_draft_tokens, METRIC_COUNTER, "deja_engine_form_draft_tokens_total",                    \
      "guessed tokens that were checked, from what a grammar forces")                              \
    X(form_accepted_tokens, METRIC_COUNTER, "deja_engine_form_accepted_tokens_total",              \
      "guessed tokens the model agreed with, from what a grammar forces")                          \
    X(lost_tokens, METRIC_COUNTER, "deja_engine_recomputed_tokens_total",                          \
      "tokens computed again after a preemption")                                                  \
    X(host_hit_tokens, METRIC_COUNTER, "vllm:external_prefix_cache_hits_total",                    \
      "prompt tokens that came back from host memory instead of being computed")                   \
    X(spilled_blocks, METRIC_COUNTER, "deja_engine_kv_spilled_blocks_total",                       \
      "KV blocks moved to host memory")                                                            \
    X(loaded_blocks, METRIC_COUNTER, "deja_engine_kv_loaded_blocks_total",                         \
      "KV blocks brought back from host memory")                                                   \
    X(exported_blocks, METRIC_COUNTER, "deja_engine_kv_exported_blocks_total",                     \
      "KV blocks handed out for other engines")                                                    \
    X(imported_blocks, METRIC_COUNTER, "deja_engine_kv_imported_blocks_total",                     \
      "KV blocks of other engines taken into host memory")                                         \
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
    X(ahead_steps, METRIC_COUNTER, "deja_engine_steps_ahead_total",                                \
      "forward passes submitted to a GPU before the tokens of the one before were on the host")    \
    X(waited_form_steps, METRIC_COUNTER, "deja_engine_steps_waited_form_total",                    \
      "forward passes that waited for those tokens, because a grammar had to see them")            \
    X(waited_draft_steps, METRIC_COUNTER, "deja_engine_steps_waited_draft_total",                  \
      "forward passes that waited for those tokens, because they may be followed by a draft")      \
    X(cancelled, METRIC_COUNTER, "deja_engine_cancelled_total", "choices whose client left")       \
    X(failed, METRIC_COUNTER, "vllm:corrupted_requests_total",                                     \
      "choices that ended because the model gave no number")                                       \
    X(blocks_total, METRIC_GAUGE, "deja_engine_kv_blocks", "KV blocks of the pool")                \
    X(blocks_used, METRIC_GAUGE, "deja_engine_kv_blocks_used",                                     \
      "KV blocks in use by running sequences")                                                     \
    X(kv_tokens, METRIC_GAUGE, "deja_engine_kv_tokens",                                            \
      "tokens whose keys and values are in the blocks in use")                                     \
    X(blocks_cached, METRIC_GAUGE, "deja_engine_kv_blocks_cached",                                 \
      "KV blocks kept for their prefix, taken when needed")

/* field, name, help, first bucket, buckets: observed as things happen */
#define HISTOGRAMS(X)                                                                              \
    X(first_token, "vllm:time_to_first_token_seconds", "arrival to first token", 0.001, 16)        \
    X(gap, "vllm:inter_token_latency_seconds", "time between two tokens of a choice", 0.001, 14)   \
    X(gap_old, "vllm:time_per_output_token_seconds", "the same under its older name", 0.001, 14)   \
    X(whole, "vllm:e2e_request_latency_seconds", "arrival to end of a choice", 0.005, 17)          \
    X(queue, "vllm:request_queue_time_seconds", "from the queue to the first row", 0.001, 17)      \
    X(prefill, "vllm:request_prefill_time_seconds", "first row to first token", 0.001, 17)         \
    X(decode, "vllm:request_decode_time_seconds", "first token to the end", 0.001, 17)             \
    X(inference, "vllm:request_inference_time_seconds", "first row to the end", 0.001, 17)         \
    X(rows, "vllm:iteration_tokens_total", "rows of a step", 1, 15)                                \
    X(asked, "vllm:request_prompt_tokens", "tokens of a prompt", 1, 18)                            \
    X(said, "vllm:request_generation_tokens", "tokens of a choice", 1, 18)                         \
    X(computed, "vllm:request_prefill_kv_computed_tokens",                                         \
      "prompt tokens that no cache had, so that they were computed", 1, 18)                        \
    X(transfer, "deja_engine_kv_transfer_seconds",                                                 \
      "an ask for KV blocks to the last of them, whatever came", 0.001, 16)                        \
    X(choices, "vllm:request_params_n", "choices asked for", 1, 5)                                 \
    X(limit, "vllm:request_params_max_tokens", "max_tokens asked for", 1, 18)                      \
    X(stopped, "vllm:request_num_preemptions", "times a choice was stopped for lack of blocks", 1, \
      6)

struct server_metrics {
#define X(field, kind, name, help) struct metric *field;
    ENGINE_METRICS(X)
#undef X
#define X(field, name, help, first, n) struct metric *field;
    HISTOGRAMS(X)
#undef X
    struct metric *kv_usage, *kv_usage_old, *external_queries, *rejections, *step_age, *loop_lag,
        *open_requests, *kv_sent, *kv_received;
    char labels[320];
};

static void make_labels(const struct server *s, struct server_metrics *m)
{
    struct buf b;
    buf_init(&b, sizeof m->labels - 1);
    metrics_label(&b, "model_name", str_of(s->model_name));
    metrics_label(&b, "engine", STR("0"));
    if (!buf_failed(&b)) memcpy(m->labels, b.p, b.n + 1);
    buf_fini(&b);
}

/* What was chosen at the start, as labels of a constant 1. */
static void show_config(struct server *s)
{
    struct engine_stats st;
    struct buf b;
    char number[24];
    const struct engine_options *o = &s->o->engine;
    engine_stats(s->engine, &st);
    buf_init(&b, 512);
    buf_z(&b, s->series->labels);
    snprintf(number, sizeof number, "%d", engine_block_size(s->engine));
    metrics_label(&b, "block_size", str_of(number));
    snprintf(number, sizeof number, "%d", st.blocks_total);
    metrics_label(&b, "num_gpu_blocks", str_of(number));
    snprintf(number, sizeof number, "%d", st.host_blocks);
    metrics_label(&b, "num_cpu_blocks", str_of(number));
    metrics_label(&b, "cache_dtype", str_of(kv_type_name(o->kv_type)));
    metrics_label(&b, "enable_prefix_caching", str_of(o->prefix_caching ? "True" : "False"));
    if (!buf_failed(&b))
        metric_set(metrics_get(s->metrics, METRIC_GAUGE, "vllm:cache_config_info", b.p,
                               "the KV cache as configured", 0, 0),
                   1);
    buf_fini(&b);
}

static void show_device(struct server *s)
{
    struct buf b;
    buf_init(&b, 512);
    buf_z(&b, s->series->labels);
    metrics_label(&b, "device", str_of(engine_device(s->engine)));
    metrics_label(&b, "device_model", str_of(engine_device_model(s->engine)));
    if (!buf_failed(&b))
        metric_set(metrics_get(s->metrics, METRIC_GAUGE, "deja_engine_device_info", b.p,
                               "what computes: a constant 1", 0, 0),
                   1);
    buf_fini(&b);
}

void server_metrics_new(struct server *s)
{
    struct server_metrics *m = s->series = xcalloc(1, sizeof *m);
    make_labels(s, m);
#define X(field, kind, name, help)                                                                 \
    m->field = metrics_get(s->metrics, kind, name, m->labels, help, 0, 0);
    ENGINE_METRICS(X)
#undef X
#define X(field, name, help, first, n)                                                             \
    m->field = metrics_get(s->metrics, METRIC_HISTOGRAM, name, m->labels, help, first, n);
    HISTOGRAMS(X)
#undef X
    m->kv_usage = metrics_get(s->metrics, METRIC_GAUGE, "vllm:kv_cache_usage_perc", m->labels,
                              "share of KV blocks in use, 0 to 1", 0, 0);
    m->kv_usage_old = metrics_get(s->metrics, METRIC_GAUGE, "vllm:gpu_cache_usage_perc", m->labels,
                                  "the same under its older name", 0, 0);
    m->external_queries =
        metrics_get(s->metrics, METRIC_COUNTER, "vllm:external_prefix_cache_queries_total",
                    m->labels, "prompt tokens the pool did not have", 0, 0);
    m->rejections = metrics_get(s->metrics, METRIC_COUNTER, "vllm:admission_rejections_total",
                                m->labels, "requests refused because the queue was full", 0, 0);
    m->step_age = metrics_get(s->metrics, METRIC_GAUGE, "deja_engine_step_age_seconds", m->labels,
                              "time since the last step ended while work waits", 0, 0);
    m->loop_lag =
        metrics_get(s->metrics, METRIC_GAUGE, "deja_engine_loop_lag_seconds", "",
                    "longest time a callback kept the HTTP loop since the last scrape", 0, 0);
    m->open_requests = metrics_get(s->metrics, METRIC_GAUGE, "deja_engine_open_requests", "",
                                   "requests between arrival and last byte", 0, 0);
    m->kv_sent = metrics_get(s->metrics, METRIC_COUNTER, "deja_engine_kv_sent_bytes_total",
                             m->labels, "bytes of KV blocks sent to other engines", 0, 0);
    m->kv_received = metrics_get(s->metrics, METRIC_COUNTER, "deja_engine_kv_received_bytes_total",
                                 m->labels, "bytes of sound KV blocks from other engines", 0, 0);
    show_config(s);
    show_device(s);
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
    double used = st.blocks_total ? (double)st.blocks_used / st.blocks_total : 0;
    metric_set(m->kv_usage, used);
    metric_set(m->kv_usage_old, used);
    show(m->external_queries, METRIC_COUNTER,
         (double)(st.prefix_query_tokens - st.prefix_hit_tokens));
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
    metric_observe(x->server->series->gap_old, (double)us / 1e6);
}

void metrics_step(struct server *s, int n_rows)
{
    metric_observe(s->series->rows, n_rows);
}

void metrics_submitted(struct exchange *x)
{
    struct server_metrics *m = x->server->series;
    metric_observe(m->choices, x->request.n);
    if (x->request.max_tokens > 0) metric_observe(m->limit, (double)x->request.max_tokens);
    for (int i = 0; i < x->n_prompts; i++)
        metric_observe(m->asked, (double)x->prompts[i].n);
}

void metrics_rejected(struct exchange *x)
{
    metric_add(x->server->series->rejections, 1);
}

void metrics_kv_sent(struct server *s, uint64_t bytes)
{
    metric_add(s->series->kv_sent, (double)bytes);
}

void metrics_kv_received(struct server *s, uint64_t bytes)
{
    metric_add(s->series->kv_received, (double)bytes);
}

/* One more in the series of that name whose label says word. */
static void count_word(struct server *s, const char *name, const char *help, const char *label,
                       const char *word)
{
    struct buf b;
    buf_init(&b, 512);
    buf_z(&b, s->series->labels);
    metrics_label(&b, label, str_of(word));
    metric_add(metrics_get(s->metrics, METRIC_COUNTER, name, buf_failed(&b) ? "" : b.p, help, 0, 0),
               1);
    buf_fini(&b);
}

void metrics_kv_refused(struct server *s, const char *reason)
{
    count_word(s, "deja_engine_kv_refusals_total",
               "asks for KV blocks that were refused, by reason", "reason", reason);
}

void metrics_kv_fetched(struct server *s, const char *outcome, uint64_t us)
{
    count_word(s, "deja_engine_kv_transfers_total",
               "prompts whose KV blocks were asked of another engine, by outcome", "outcome",
               outcome);
    metric_observe(s->series->transfer, (double)us / 1e6);
}

static void observe_times(struct server_metrics *m, const struct engine_end *end)
{
    metric_observe(m->queue, (double)end->queue_us / 1e6);
    if (end->completion_tokens) {
        metric_observe(m->prefill, (double)end->prefill_us / 1e6);
        metric_observe(m->decode, (double)end->decode_us / 1e6);
        metric_observe(m->inference, (double)(end->prefill_us + end->decode_us) / 1e6);
        metric_observe(m->computed, end->prompt_tokens - end->cached_tokens);
    }
    metric_observe(m->said, end->completion_tokens);
    metric_observe(m->stopped, end->preemptions);
}

void metrics_choice_end(struct exchange *x, const char *reason, const struct token_event *ev)
{
    struct server *s = x->server;
    count_word(s, "vllm:request_success_total", "choices that ended, by reason", "finished_reason",
               reason);
    metric_observe(s->series->whole, (double)(ev->at_us - x->arrived_us) / 1e6);
    observe_times(s->series, &ev->end);
    if (ev->end.preemptions)
        log_info("engine",
                 "stopped for lack of blocks id=%s choice=%d times=%d recomputed_tokens=%d", x->id,
                 ev->choice, ev->end.preemptions, ev->end.lost_tokens);
}
