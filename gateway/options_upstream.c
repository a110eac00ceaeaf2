/* options_upstream.c - the options that say which upstreams there are, how long they are waited for, and what is done when they fail. */
#include "gateway/options_upstream.h"

#include "gateway/options.h"
#include "gateway/upstream_spec.h"

static const struct conf_row rows[] = {
    {"upstream", CONF_STR, "", 0, 65536, "", CONF_LIST,
     "`URL [option=value]...` of an OpenAI-compatible server, with or without /v1 "
     "(docs/upstreams.md)",
     NULL},
    {"upstreams_file", CONF_STR, "", 0, 4096, "", 0,
     "file of such upstreams, one a line, # for comments; added to those of upstream", NULL},
    {"upstream_key", CONF_STR, "", 0, 4096, "", CONF_SECRET,
     "bearer token for upstreams without a key of their own; empty = the client's own passes on",
     NULL},
    {"upstream_connect_ms", CONF_INT, "500", 10, 60000, "ms", 0,
     "give up connecting after this long", NULL},
    {"upstream_first_byte_ms", CONF_INT, "300000", 10, 3600000, "ms", 0,
     "longest wait for the first byte of an answer", NULL},
    {"upstream_idle_ms", CONF_INT, "60000", 10, 3600000, "ms", 0,
     "longest silence inside an answer", NULL},
    {"upstream_total_ms", CONF_INT, "1800000", 0, 86400000, "ms", 0,
     "longest time an answer may take, tries and streaming included; 0 = any", NULL},
    {"upstream_retries", CONF_INT, "2", 0, 10, "", 0,
     "tries more, only before the first byte (docs/upstreams.md says after what)", NULL},
    {"upstream_backoff_ms", CONF_INT, "50", 1, 10000, "ms", 0,
     "pause before a retry at the same upstream; doubled each time", NULL},
    {"upstream_retry_wait_ms", CONF_INT, "2000", 0, 60000, "ms", 0,
     "longest Retry-After that is waited for; a longer one is told to the client", NULL},
    {"retry_budget_percent", CONF_FLOAT, "20", 0, 100, "%", 0,
     "retries and hedges allowed for a hundred requests, beyond one a second", NULL},
    {"upstream_hedge_ms", CONF_INT, "0", 0, 600000, "ms", 0,
     "without a first byte after this long a second upstream is asked too, and the faster one "
     "taken; about the p95 is a good value; 0 = never",
     NULL},
    {"breaker_failures", CONF_INT, "3", 1, 1000, "", 0,
     "failures in a row after which an upstream is left alone", NULL},
    {"breaker_error_percent", CONF_INT, "50", 0, 100, "%", 0,
     "share of 5xx and broken answers among the last 32 at which it is left alone; 0 = any", NULL},
    {"breaker_open_ms", CONF_INT, "2000", 10, 600000, "ms", 0,
     "how long it is left alone before one probe goes through", NULL},
    {"route", CONF_STR, "", 0, 65536, "", CONF_LIST,
     "`model when prompt_tokens>4000 and tenant=a|b -> other`: a rule that serves a model by "
     "another one (docs/upstreams.md)",
     NULL},
    {"queue_max", CONF_INT, "2048", 1, 100000, "", 0,
     "calls that may wait for a free slot of an upstream; beyond, the tenant with most of them "
     "gives "
     "way",
     NULL},
    {"queue_wait_ms", CONF_INT, "30000", 1, 3600000, "ms", 0,
     "longest wait for a slot; who would wait longer gets a 503 with retry-after at once", NULL},
    {"queue_batch_wait_s", CONF_INT, "600", 1, 86400, "s", 0, "the same for batch requests", NULL},
    {"queue_batch_percent", CONF_INT, "10", 0, 100, "%", 0,
     "slots that waiting batch requests are sure of", NULL},
    {"queue_batch_most_percent", CONF_INT, "80", 0, 100, "%", 0,
     "slots that batch requests may have when nobody else waits", NULL},
    {"queue_batch_age_s", CONF_INT, "60", 0, 86400, "s", 0,
     "batch requests that have waited longer take every fourth turn of the others; 0 = they do not",
     NULL},
    {"fallback", CONF_STR, "", 0, 65536, "", CONF_LIST,
     "`model=other,third`: models to ask when no upstream of model answers; * for any model", NULL},
    {"stale_if_error_s", CONF_INT, "3600", 0, 31536000, "s", 0,
     "when no model answers, stored answers past their lifetime by up to this long; 0 = none",
     NULL},
    {"canned_answer_file", CONF_STR, "", 0, 4096, "", 0,
     "file whose text is the answer when nothing else can be had; empty = a 503", NULL},
    {"probe", CONF_STR, "models", 0, 16, "", 0,
     "what /ready asks an upstream: models (a list), generate (one token of probe_model), off",
     NULL},
    {"probe_model", CONF_STR, "", 0, 256, "", 0, "model for probe=generate", NULL},
    {"probe_ms", CONF_INT, "5000", 100, 600000, "ms", 0, "pause between probes", NULL},
    {"tokenizer", CONF_STR, "", 0, 4096, "", 0,
     "GGUF file whose tokenizer and chat template the upstreams' model has, weights not needed; "
     "Deja's engine tells its own",
     NULL},
    {"route_index_bytes_max", CONF_INT, "67108864", 65536, 68719476736.0, "bytes", 0,
     "memory for what is known of the upstreams' KV blocks (docs/routing.md)", NULL},
};

const struct conf_row *upstream_option_rows(size_t *n)
{
    *n = sizeof rows / sizeof rows[0];
    return rows;
}

enum err upstream_options_read(struct gateway_options *o, const struct conf *c, struct errmsg *e)
{
    struct {
        const char *name;
        int *value;
    } ints[] = {{"upstream_connect_ms", &o->upstream_connect_ms},
                {"upstream_first_byte_ms", &o->upstream_first_byte_ms},
                {"upstream_idle_ms", &o->upstream_idle_ms},
                {"upstream_total_ms", &o->upstream_total_ms},
                {"upstream_retries", &o->upstream_retries},
                {"upstream_backoff_ms", &o->upstream_backoff_ms},
                {"upstream_retry_wait_ms", &o->upstream_retry_wait_ms},
                {"upstream_hedge_ms", &o->upstream_hedge_ms},
                {"breaker_failures", &o->breaker_failures},
                {"breaker_error_percent", &o->breaker_error_percent},
                {"breaker_open_ms", &o->breaker_open_ms},
                {"queue_max", &o->queue_max},
                {"queue_wait_ms", &o->queue_wait_ms},
                {"queue_batch_wait_s", &o->queue_batch_wait_s},
                {"queue_batch_percent", &o->queue_batch_percent},
                {"queue_batch_most_percent", &o->queue_batch_most_percent},
                {"queue_batch_age_s", &o->queue_batch_age_s},
                {"probe_ms", &o->probe_ms}};
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++)
        *ints[i].value = (int)conf_int(c, ints[i].name);
    o->routes = conf_str(c, "route");
    o->fallbacks = conf_str(c, "fallback");
    o->stale_if_error_s = conf_int(c, "stale_if_error_s");
    o->canned_answer_file = conf_str(c, "canned_answer_file");
    o->retry_budget_percent = conf_float(c, "retry_budget_percent");
    o->upstreams = conf_str(c, "upstream");
    o->upstreams_file = conf_str(c, "upstreams_file");
    o->upstream_key = conf_str(c, "upstream_key");
    o->tokenizer = conf_str(c, "tokenizer");
    o->route_index_bytes_max = (size_t)conf_int(c, "route_index_bytes_max");
    o->probe = conf_str(c, "probe");
    o->probe_model = conf_str(c, "probe_model");
    struct str text = str_of(o->upstreams);
    struct upstream_spec spec;
    struct buf line;
    enum err code = OK;
    buf_init(&line, SPEC_LINE_BYTES_MAX);
    while (code == OK && upstream_spec_next(&text, &line))
        code = upstream_spec_parse(buf_view(&line), &spec, e);
    buf_fini(&line);
    return code == OK ? OK : err_prefix(e, code, "option upstream");
}
