/* access.c - see access.h. Built by hand, because printf is a tenth of what a cache hit costs (see reply.c). Both forms are written
 * from the same calls, so that they hold the same fields. */
#include "gateway/access.h"

#include "base/json.h"
#include "base/log.h"
#include "gateway/latency.h"
#include "gateway/series.h"

enum { MODEL_CHARS = 64 };

struct line {
    struct buf b;
    bool json;
};

static void begin(struct line *l, const char *name)
{
    if (l->json) {
        buf_z(&l->b, l->b.n ? ",\"" : "\"");
        buf_z(&l->b, name);
        buf_z(&l->b, "\":");
        return;
    }
    buf_char(&l->b, ' ');
    buf_z(&l->b, name);
    buf_char(&l->b, '=');
}

static void add_number(struct line *l, const char *name, uint64_t v)
{
    begin(l, name);
    buf_u64(&l->b, v);
}

/* thousandths as a decimal number: 1234 -> 1.234 */
static void add_thousandths(struct line *l, const char *name, uint64_t v)
{
    add_number(l, name, v / 1000);
    char tail[4] = {'.', (char)('0' + v / 100 % 10), (char)('0' + v / 10 % 10),
                    (char)('0' + v % 10)};
    buf_add(&l->b, tail, sizeof tail);
}

static void add_text(struct line *l, const char *name, struct str s)
{
    if (!s.n) s = STR("-");
    begin(l, name);
    if (l->json)
        json_write_string(&l->b, s);
    else
        buf_str(&l->b, s);
}

static void add_flag(struct line *l, const char *name, bool v)
{
    begin(l, name);
    buf_z(&l->b, l->json ? (v ? "true" : "false") : (v ? "1" : "0"));
}

static void add_cache(struct line *l, const struct exchange *x)
{
    const struct outcome *o = &x->out;
    add_text(l, "cache", str_of(o->cache));
    add_text(l, "reason", str_of(o->reason));
    if (o->similarity >= 0) add_thousandths(l, "score", (uint64_t)(o->similarity * 1000));
    if (o->degraded) add_text(l, "degraded", str_of(o->degraded));
    if (o->served_by.n) add_text(l, "served_by", str_sub(o->served_by, 0, MODEL_CHARS));
    if (x->arm[0]) add_text(l, "arm", str_of(x->arm));
    add_text(l, "model", str_sub(x->model, 0, MODEL_CHARS));
    add_flag(l, "stream", x->req.stream);
}

static void add_usage(struct line *l, const struct openai_usage *u)
{
    if (l->json) {
        add_number(l, "prompt_tokens", (uint64_t)u->prompt_tokens);
        add_number(l, "completion_tokens", (uint64_t)u->completion_tokens);
        return;
    }
    add_number(l, "tokens", (uint64_t)u->prompt_tokens);
    buf_char(&l->b, '/');
    buf_u64(&l->b, (uint64_t)u->completion_tokens);
}

void access_line(const struct exchange *x, uint64_t now_us)
{
    struct line l = {.json = x->gw->o.access_log_json};
    bool cached = route_is_cached(x->route) || x->route == ROUTE_EMBEDDINGS;
    buf_init(&l.b, LOG_MEMBERS_MAX);
    if (l.json) add_text(&l, "event", STR("request"));
    add_text(&l, "id", str_of(x->request_id));
    add_text(&l, "trace", str_of(x->trace.id));
    add_text(&l, "route", str_of(route_name(x->route)));
    add_number(&l, "status", (uint64_t)x->status);
    if (cached) add_cache(&l, x);
    if (x->patient) add_text(&l, "class", STR("batch"));
    add_text(&l, "tenant", str_of(x->tenant));
    add_thousandths(&l, "ms", now_us - x->started_us);
    if (cached) add_thousandths(&l, "ttft_ms", latency_first_byte_us(x, now_us));
    if (x->out.queued_us) add_thousandths(&l, "queue_ms", x->out.queued_us);
    if (x->upstream_us) add_thousandths(&l, "up_ms", x->upstream_us);
    if (x->usage.known) add_usage(&l, &x->usage);
    add_number(&l, "bytes", x->bytes_out);
    ASSERT(!buf_failed(&l.b)); /* every part has a bound: together they fit */
    if (l.json)
        log_json("gateway", l.b.p);
    else
        log_info("gateway", "request" STR_FMT, STR_ARG(buf_view(&l.b)));
    buf_fini(&l.b);
}
