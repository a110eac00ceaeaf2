/* access.c - see access.h. Built by hand, because printf is a tenth of what a cache hit costs (see reply.c). */
#include "gateway/access.h"

#include "base/log.h"
#include "gateway/series.h"

enum { LINE_BYTES_MAX = 900, MODEL_CHARS = 64 };

static void add_number(struct buf *b, const char *name, uint64_t v)
{
    char digits[20];
    size_t i = sizeof digits;
    do
        digits[--i] = (char)('0' + v % 10);
    while (v /= 10);
    buf_z(b, name);
    buf_add(b, digits + i, sizeof digits - i);
}

/* thousandths as a decimal number: 1234 -> 1.234 */
static void add_thousandths(struct buf *b, const char *name, uint64_t v)
{
    add_number(b, name, v / 1000);
    char tail[4] = {'.', (char)('0' + v / 100 % 10), (char)('0' + v / 10 % 10),
                    (char)('0' + v % 10)};
    buf_add(b, tail, sizeof tail);
}

static void add_text(struct buf *b, const char *name, struct str s)
{
    buf_z(b, name);
    buf_str(b, s.n ? s : STR("-"));
}

void access_line(const struct exchange *x, uint64_t now_us)
{
    struct buf b;
    bool cached = x->route == ROUTE_CHAT || x->route == ROUTE_COMPLETIONS;
    buf_init(&b, LINE_BYTES_MAX);
    add_text(&b, "request id=", str_of(x->request_id));
    add_text(&b, " route=", str_of(route_name(x->route)));
    add_number(&b, " status=", (uint64_t)x->status);
    if (cached) {
        add_text(&b, " cache=", str_of(x->out.cache));
        add_text(&b, " reason=", str_of(x->out.reason));
        if (x->out.similarity >= 0)
            add_thousandths(&b, " score=", (uint64_t)(x->out.similarity * 1000));
        if (x->arm[0]) add_text(&b, " arm=", str_of(x->arm));
        add_text(&b, " model=", str_sub(x->model, 0, MODEL_CHARS));
        add_number(&b, " stream=", x->req.stream);
    }
    add_text(&b, " tenant=", str_of(x->tenant));
    add_thousandths(&b, " ms=", now_us - x->started_us);
    if (x->upstream_us) add_thousandths(&b, " up_ms=", x->upstream_us);
    if (x->usage.known) {
        add_number(&b, " tokens=", (uint64_t)x->usage.prompt_tokens);
        add_number(&b, "/", (uint64_t)x->usage.completion_tokens);
    }
    add_number(&b, " bytes=", x->bytes_out);
    log_info("gateway", STR_FMT, STR_ARG(buf_view(&b)));
    buf_fini(&b);
}
