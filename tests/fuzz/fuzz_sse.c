/* fuzz_sse.c - any bytes, cut anywhere: the same events and the same end; what was read is written and read back. The first byte chooses
 * the cut. */
#include "base/sse.h"

static bool note(void *arg, const struct sse_event *ev)
{
    struct buf *b = arg;
    buf_printf(b, "%zu %zu %zu ", ev->event.n, ev->id.n, ev->data.n);
    buf_str(b, ev->event);
    buf_str(b, ev->id);
    buf_str(b, ev->data);
    return true;
}

static bool same_data(void *arg, const struct sse_event *ev)
{
    ASSERT(str_eq(ev->data, *(const struct str *)arg));
    return true;
}

/* A line break of any kind in the data comes back as \n. */
static bool write_back(void *arg, const struct sse_event *ev)
{
    struct buf b;
    struct str want = ev->data;
    (void)arg;
    buf_init(&b, 1 << 20);
    sse_write_data(&b, ev->data);
    struct sse_reader *r = sse_reader_new(1 << 20);
    enum err code = sse_reader_feed(r, buf_view(&b), same_data, &want);
    ASSERT(code == OK && !sse_reader_pending(r));
    sse_reader_free(r);
    buf_fini(&b);
    return true;
}

static enum err feed(struct buf *log, struct str text, size_t step, bool *pending)
{
    struct sse_reader *r = sse_reader_new(4096);
    enum err code = OK;
    for (size_t i = 0; i < text.n && !code; i += step)
        code = sse_reader_feed(r, str_sub(text, i, step), note, log);
    *pending = sse_reader_pending(r);
    sse_reader_free(r);
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n < 2) return 0;
    struct str text = {(const char *)bytes + 1, n - 1};
    struct buf whole, pieces;
    bool a, b;
    buf_init(&whole, 1 << 22);
    buf_init(&pieces, 1 << 22);
    enum err one = feed(&whole, text, text.n, &a),
             two = feed(&pieces, text, 1u + bytes[0] % 16, &b);
    ASSERT(one == two);
    if (!one) ASSERT(str_eq(buf_view(&whole), buf_view(&pieces)) && a == b);
    struct sse_reader *r = sse_reader_new(1 << 20);
    enum err code = sse_reader_feed(r, text, write_back, NULL);
    ASSERT(code == OK || code == ERR_TOO_LARGE);
    sse_reader_free(r);
    buf_fini(&whole);
    buf_fini(&pieces);
    return 0;
}
