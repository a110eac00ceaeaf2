/* fuzz_redis.c - any bytes from a peer: replies within the bounds or a refusal, the same however the bytes are cut. The first byte chooses
 * the cut. */
#include "base/buf.h"
#include "base/redis_conn.h"
#include "base/redis_reader.h"

static void note(struct buf *log, const struct redis_reply *v)
{
    buf_printf(log, "%d %lld %zu %zu ", (int)v->kind, (long long)v->integer, v->text.n, v->n_items);
    buf_str(log, v->text);
    for (size_t i = 0; i < v->n_items; i++)
        note(log, &v->items[i]);
}

static bool on_reply(void *arg, const struct redis_reply *v)
{
    note(arg, v);
    return true;
}

static enum err feed(struct buf *log, struct str text, size_t step)
{
    struct redis_reader *r = redis_reader_new(1 << 16, 1000);
    enum err code = OK;
    for (size_t i = 0; i < text.n && !code; i += step)
        code = redis_reader_feed(r, str_sub(text, i, step), on_reply, log, NULL);
    redis_reader_free(r);
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n < 2) return 0;
    struct str text = {(const char *)bytes + 1, n - 1};
    struct buf whole, pieces, url;
    struct redis_address a;
    struct redis_id id;
    buf_init(&whole, 1 << 22);
    buf_init(&pieces, 1 << 22);
    buf_init(&url, 1 << 20);
    enum err one = feed(&whole, text, text.n), two = feed(&pieces, text, 1u + bytes[0] % 16);
    ASSERT(one == two && str_eq(buf_view(&whole), buf_view(&pieces)));
    buf_z(&url, "redis://");
    buf_str(&url, text);
    (void)!redis_address_parse(url.p, &a, NULL);
    (void)!redis_id_parse(text, &id);
    buf_fini(&whole);
    buf_fini(&pieces);
    buf_fini(&url);
    return 0;
}
