/* options_batch.c - see options_batch.h. */
#include "gateway/options_batch.h"

#include "gateway/options.h"

static const struct conf_row rows[] = {
    {"batch_api", CONF_BOOL, "yes", 0, 0, "", 0,
     "serve /v1/files and /v1/batches here (needs redis); no = they go to the upstream", NULL},
    {"batch_window", CONF_STR, "", 0, 40, "", 0,
     "times of the day when batches may use all of batch_concurrency, as 22:00-06:00 (UTC) or "
     "22:00-06:00 local; else only batch_minimum; empty = always",
     NULL},
    {"batch_lease_ms", CONF_INT, "30000", 500, 600000, "ms", 0,
     "a line whose gateway has been silent for so long goes to another", NULL},
    {"batch_tries", CONF_INT, "5", 1, 100, "", 0, "tries a line has; 429 and 503 do not use one up",
     NULL},
    {"batch_backoff_ms", CONF_INT, "1000", 10, 60000, "ms", 0,
     "pause before a line's second try; doubled each time, with jitter", NULL},
    {"batch_lines_max", CONF_INT, "50000", 1, 1000000, "", 0, "requests in one batch", NULL},
    {"batches_max", CONF_INT, "100", 1, 10000, "", 0, "batches of a tenant at work at a time",
     NULL},
    {"file_bytes_max", CONF_INT, "67108864", 1024, 1073741824, "bytes", 0,
     "larger files are refused", NULL},
    {"files_bytes_max", CONF_INT, "536870912", 1024, 1099511627776.0, "bytes", 0,
     "all files of a tenant together, results of batches included", NULL},
    {"files_max", CONF_INT, "10000", 1, 1000000, "", 0, "files of a tenant", NULL},
    {"file_ttl_s", CONF_INT, "2592000", 0, 315360000, "s", 0,
     "age at which files are removed, unless expires_after says otherwise; 0 = never", NULL},
    {"responses_keep", CONF_BOOL, "yes", 0, 0, "", 0,
     "keep answers of /v1/responses in redis, for previous_response_id; no = as if store were "
     "false",
     NULL},
    {"response_ttl_s", CONF_INT, "2592000", 60, 315360000, "s", 0,
     "a kept answer goes when it was not gone on from for so long", NULL},
    {"responses_bytes_max", CONF_INT, "67108864", 1024, 1099511627776.0, "bytes", 0,
     "kept answers of a tenant together; the one used longest ago makes room", NULL},
};

const struct conf_row *batch_option_rows(size_t *n)
{
    *n = sizeof rows / sizeof rows[0];
    return rows;
}

enum err batch_options_read(struct gateway_options *o, const struct conf *c, struct errmsg *e)
{
    o->batch_api = conf_bool(c, "batch_api");
    o->batch_lease_ms = (int)conf_int(c, "batch_lease_ms");
    o->batch_tries = (int)conf_int(c, "batch_tries");
    o->batch_backoff_ms = (int)conf_int(c, "batch_backoff_ms");
    o->batch_lines_max = (int)conf_int(c, "batch_lines_max");
    o->batches_max = (int)conf_int(c, "batches_max");
    o->files_max = (int)conf_int(c, "files_max");
    o->file_bytes_max = conf_int(c, "file_bytes_max");
    o->files_bytes_max = conf_int(c, "files_bytes_max");
    o->responses_keep = conf_bool(c, "responses_keep");
    o->response_ttl_s = conf_int(c, "response_ttl_s");
    o->responses_bytes_max = conf_int(c, "responses_bytes_max");
    o->file_ttl_s = conf_int(c, "file_ttl_s");
    enum err code = batch_window_parse(&o->batch_window, str_of(conf_str(c, "batch_window")), e);
    return code == OK ? OK : err_prefix(e, code, "option batch_window");
}
