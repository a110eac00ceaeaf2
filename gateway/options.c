/* options.c - see options.h. One row an option: name, type, default, range, unit, help. */
#include "gateway/options.h"

#include <string.h>

#include "base/log.h"
#include "gateway/api_keys.h"
#include "gateway/options_batch.h"
#include "gateway/options_observe.h"
#include "gateway/options_upstream.h"

static const struct conf_row rows[] = {
    {"host", CONF_STR, "127.0.0.1", 0, 255, "", 0,
     "address to listen on; others than loopback need api_keys", NULL},
    {"port", CONF_INT, "8080", 0, 65535, "", 0,
     "port to listen on; 0 takes any free one and logs it", NULL},
    {"engine_url", CONF_STR, "", 0, 4096, "", CONF_LIST, "base URL of Deja's own engine", NULL},
    {"gateway_key", CONF_STR, "", 0, 256, "", CONF_SECRET,
     "the engine's option of the same name: only with it tenants have prefix caches of their own "
     "there",
     NULL},
    {"ca_file", CONF_STR, "", 0, 4096, "", 0,
     "PEM file of trusted authorities for https upstreams; empty = the system's", NULL},
    {"redis", CONF_STR, "", 0, 4096, "", CONF_SECRET,
     "unix:/path.sock or redis://[:password@]host:port[/db]; empty = cache in memory only", NULL},
    {"embed_model", CONF_STR, "none", 0, 4096, "", 0,
     "GGUF file of the embedding model, or http://host:port/v1#MODEL of a server with "
     "/v1/embeddings; none = exact cache only",
     NULL},
    {"embed_key", CONF_STR, "", 0, 4096, "", CONF_SECRET,
     "bearer token for a remote embedding model", NULL},
    {"embed_net", CONF_STR, "", 0, 4096, "", 0,
     "GGUF file of retrained verifier weights (docs/verifier.md); empty = the shipped ones", NULL},
    {"api_keys", CONF_STR, "", 0, 4096, "", 0,
     "file of `key tenant` lines; empty = open, on loopback only", NULL},
    {"admin_key", CONF_STR, "", 0, 256, "", CONF_SECRET,
     "bearer token of the /admin endpoints; empty = they are refused", NULL},
    {"judge_url", CONF_STR, "", 0, 4096, "", 0,
     "base URL of the judge of near misses (knob judge); empty = the gateway's own upstreams",
     NULL},
    {"judge_key", CONF_STR, "", 0, 512, "", CONF_SECRET, "bearer token for judge_url", NULL},
    {"judge_model", CONF_STR, "", 0, 256, "", 0,
     "model that judges; empty = the one the request asked for", NULL},
    {"judge_table", CONF_STR, "", 0, 4096, "", 0,
     "file of what the judge's probabilities are worth, made by `deja judge`; empty = as shipped",
     NULL},
    {"ns", CONF_STR, "deja", 1, 64, "", 0, "key space in Redis", NULL},
    {"model_alias", CONF_STR, "", 0, 4096, "", CONF_LIST,
     "`alias=model`: requests for alias go out as model", NULL},
    {"cache_exact", CONF_BOOL, "yes", 0, 0, "", 0, "answer equal requests from the cache", NULL},
    {"cache_semantic", CONF_BOOL, "yes", 0, 0, "", 0,
     "answer requests that mean the same from the cache (needs embed_model)", NULL},
    {"cache_threshold", CONF_FLOAT, "0", 0, 1, "", 0,
     "lowest cosine that may count; 0 = the embedding model's own default", NULL},
    {"cache_max_temperature", CONF_FLOAT, "1", 0, 2, "", 0,
     "no semantic look-up above this temperature", NULL},
    {"cache_ttl_s", CONF_INT, "86400", 1, 31536000, "s", 0,
     "lifetime given to answers when they are stored; afterwards they are not used any more", NULL},
    {"cache_entry_bytes_max", CONF_INT, "262144", 1024, 16777216, "bytes", 0,
     "larger answers are not stored", NULL},
    {"cache_memory_bytes_max", CONF_INT, "268435456", 1048576, 1099511627776.0, "bytes", 0,
     "in-process copies of entries", NULL},
    {"cache_entries_max", CONF_INT, "1000000", 16, 100000000, "", 0, "entries in the vector index",
     NULL},
    {"cache_embed_deadline_ms", CONF_INT, "50", 1, 10000, "ms", 0,
     "an embedding that takes longer is a miss", NULL},
    {"cache_redis_deadline_ms", CONF_INT, "50", 1, 10000, "ms", 0,
     "a Redis look-up that takes longer is a miss", NULL},
    {"cache_secret", CONF_STR, "", 0, 256, "", CONF_SECRET,
     "keys the hashes; the same on all replicas", NULL},
    {"keep_after_gone_ms", CONF_INT, "10000", 0, 600000, "ms", 0,
     "finish reading an answer worth storing after its client left; 0 = stop at once", NULL},
    {"coalesce_max", CONF_INT, "1000", 0, 100000, "", 0,
     "equal requests that may share one upstream call; 0 = none", NULL},
    {"coalesce_wait_ms", CONF_INT, "2000", 0, 60000, "ms", 0,
     "a gateway that shares its upstream call with others and is silent for so long is given up; "
     "0 = calls are not shared among gateways",
     NULL},
    {"connections_max", CONF_INT, "16384", 16, 1000000, "", 0,
     "connections that may be open; more get a 503. Fewer where the system allows too few files",
     NULL},
    {"inflight_max", CONF_INT, "4096", 1, 100000, "", 0,
     "requests at work at a time; more get a 503", NULL},
    {"limit_lease_ms", CONF_INT, "15000", 3000, 600000, "ms", 0,
     "what a gateway that died holds of limits on concurrency comes back after this long", NULL},
    {"max_body", CONF_INT, "8388608", 1024, 1073741824, "bytes", 0,
     "larger request bodies get a 413", NULL},
    {"answer_bytes_max", CONF_INT, "16777216", 65536, 1073741824, "bytes", 0,
     "larger upstream answers get a 502", NULL},
    {"client_idle_ms", CONF_INT, "75000", 100, 3600000, "ms", 0, "keep-alive without a request",
     NULL},
    {"client_write_ms", CONF_INT, "60000", 100, 3600000, "ms", 0,
     "longest time a client may not read before it is dropped", NULL},
    {"drain_ms", CONF_INT, "10000", 0, 600000, "ms", 0,
     "after SIGTERM, time for running requests to end; who is left is told so", NULL},
    {"workers", CONF_INT, "2", 1, 64, "", 0, "threads for work over a millisecond", NULL},
    {"pass_unmapped", CONF_BOOL, "no", 0, 0, "", 0,
     "a /v1/responses or /v1/messages request without a chat form goes upstream as it is, "
     "uncached; "
     "no = it gets a 400",
     NULL},
    {"log_level", CONF_STR, "info", 0, 16, "", 0, "error, warn, info or debug", NULL},
};

enum { N_ROWS = sizeof rows / sizeof rows[0], ALL_ROWS_MAX = 160 };

/* The families' tables one after the other. Made once, by the thread that starts. */
const struct conf_row *gateway_option_rows(size_t *n)
{
    static struct conf_row all[ALL_ROWS_MAX];
    static size_t n_all;
    static const struct conf_row *(*const families[])(size_t *) = {
        upstream_option_rows, batch_option_rows, observe_option_rows};
    if (!n_all) {
        memcpy(all, rows, sizeof rows);
        n_all = N_ROWS;
        for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
            size_t k;
            const struct conf_row *more = families[i](&k);
            ASSERT(n_all + k <= ALL_ROWS_MAX);
            memcpy(all + n_all, more, k * sizeof *more);
            n_all += k;
        }
    }
    *n = n_all;
    return all;
}

static void read_cache(struct gateway_options *o, const struct conf *c)
{
    o->cache_exact = conf_bool(c, "cache_exact");
    o->cache_semantic = conf_bool(c, "cache_semantic");
    o->cache_threshold = conf_float(c, "cache_threshold");
    o->cache_max_temperature = conf_float(c, "cache_max_temperature");
    o->cache_ttl_s = conf_int(c, "cache_ttl_s");
    o->cache_entry_bytes_max = (size_t)conf_int(c, "cache_entry_bytes_max");
    o->cache_memory_bytes_max = (size_t)conf_int(c, "cache_memory_bytes_max");
    o->cache_entries_max = (size_t)conf_int(c, "cache_entries_max");
    o->cache_embed_deadline_ms = (int)conf_int(c, "cache_embed_deadline_ms");
    o->cache_redis_deadline_ms = (int)conf_int(c, "cache_redis_deadline_ms");
    o->cache_secret = conf_str(c, "cache_secret");
}

static void read_limits(struct gateway_options *o, const struct conf *c)
{
    struct {
        const char *name;
        int *value;
    } ints[] = {{"port", &o->port},
                {"workers", &o->workers},
                {"keep_after_gone_ms", &o->keep_after_gone_ms},
                {"coalesce_max", &o->coalesce_max},
                {"coalesce_wait_ms", &o->coalesce_wait_ms},
                {"inflight_max", &o->inflight_max},
                {"connections_max", &o->connections_max},
                {"limit_lease_ms", &o->limit_lease_ms},
                {"client_idle_ms", &o->client_idle_ms},
                {"client_write_ms", &o->client_write_ms},
                {"drain_ms", &o->drain_ms}};
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++)
        *ints[i].value = (int)conf_int(c, ints[i].name);
    o->body_bytes_max = (size_t)conf_int(c, "max_body");
    o->answer_bytes_max = (size_t)conf_int(c, "answer_bytes_max");
    o->pass_unmapped = conf_bool(c, "pass_unmapped");
}

static enum err check(const struct gateway_options *o, struct errmsg *e)
{
    enum log_level level;
    if (!o->upstreams[0] && !o->upstreams_file[0] && !o->engine_url[0])
        return err_set(e, ERR_INVALID,
                       "nothing to ask: give --upstream URL (any OpenAI-compatible server) or "
                       "--engine-url URL");
    if (!o->api_keys[0] && !address_is_loopback(o->host))
        return err_set(
            e, ERR_INVALID,
            "listening on %.200s needs --api-keys FILE: without keys only loopback is allowed",
            o->host);
    if (log_level_parse(o->log_level, &level) != OK)
        return err_set(e, ERR_INVALID, "option log_level: expected error, warn, info or debug");
    if (strcmp(o->probe, "models") && strcmp(o->probe, "generate") && strcmp(o->probe, "off"))
        return err_set(e, ERR_INVALID, "option probe: expected models, generate or off");
    if (!strcmp(o->probe, "generate") && !o->probe_model[0])
        return err_set(e, ERR_INVALID, "probe=generate needs probe_model");
    struct str lines = str_of(o->model_aliases), line;
    while (str_next(&lines, '\n', &line)) {
        struct str left, right = line;
        if (!str_next(&right, '=', &left) || !str_trim(left).n || !str_trim(right).n)
            return err_set(e, ERR_INVALID, "option model_alias: expected alias=model");
    }
    return OK;
}

enum err gateway_options_read(struct gateway_options *o, const struct conf *c, struct errmsg *e)
{
    *o = (struct gateway_options){0};
    o->host = conf_str(c, "host");
    o->engine_url = conf_str(c, "engine_url");
    o->gateway_key = conf_str(c, "gateway_key");
    o->ca_file = conf_str(c, "ca_file");
    o->redis = conf_str(c, "redis");
    o->embed_model = conf_str(c, "embed_model");
    o->embed_key = conf_str(c, "embed_key");
    o->embed_net = conf_str(c, "embed_net");
    o->api_keys = conf_str(c, "api_keys");
    o->admin_key = conf_str(c, "admin_key");
    o->judge_url = conf_str(c, "judge_url");
    o->judge_key = conf_str(c, "judge_key");
    o->judge_model = conf_str(c, "judge_model");
    o->judge_table = conf_str(c, "judge_table");
    o->ns = conf_str(c, "ns");
    o->model_aliases = conf_str(c, "model_alias");
    o->log_level = conf_str(c, "log_level");
    read_cache(o, c);
    read_limits(o, c);
    enum err code = upstream_options_read(o, c, e);
    if (code == OK) code = batch_options_read(o, c, e);
    if (code == OK) code = observe_options_read(o, c, e);
    return code == OK ? check(o, e) : code;
}

struct str gateway_alias(const char *aliases, struct str model)
{
    struct str lines = str_of(aliases), line;
    while (str_next(&lines, '\n', &line)) {
        struct str left, right = line;
        if (str_next(&right, '=', &left) && str_eq(str_trim(left), model)) return str_trim(right);
    }
    return model;
}
