/* options_observe.c - see options_observe.h. */
#include "gateway/options_observe.h"

#include <string.h>

#include "gateway/options.h"

static const struct conf_row rows[] = {
    {"access_log", CONF_BOOL, "yes", 0, 0, "", 0, "one log line a request, never with its text",
     NULL},
    {"access_log_format", CONF_STR, "text", 0, 16, "", 0,
     "form of that line: text, or json (docs/observability.md)", NULL},
    {"trace_header", CONF_BOOL, "no", 0, 0, "", 0, "tell clients the trace id in x-deja-trace",
     NULL},
    {"trace_sample_percent", CONF_FLOAT, "100", 0, 100, "%", 0,
     "share of the traces begun here, because no traceparent came, that are marked as sampled",
     NULL},
};

const struct conf_row *observe_option_rows(size_t *n)
{
    *n = sizeof rows / sizeof rows[0];
    return rows;
}

enum err observe_options_read(struct gateway_options *o, const struct conf *c, struct errmsg *e)
{
    const char *format = conf_str(c, "access_log_format");
    o->access_log = conf_bool(c, "access_log");
    o->access_log_json = !strcmp(format, "json");
    o->trace_header = conf_bool(c, "trace_header");
    o->trace_sample_percent = conf_float(c, "trace_sample_percent");
    if (!o->access_log_json && strcmp(format, "text") != 0)
        return err_set(e, ERR_INVALID, "option access_log_format: expected text or json");
    return OK;
}
