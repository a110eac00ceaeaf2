/* fuzz_multipart.c - any bytes, cut anywhere: the same parts, the same content and the same end. The first byte chooses the cut. */
#include "base/multipart.h"

static bool on_part(void *arg, const struct multipart_part *p)
{
    buf_printf(arg, "<%zu " STR_FMT " %zu>", p->name.n, STR_ARG(p->name), p->filename.n);
    return true;
}

static bool on_bytes(void *arg, struct str bytes)
{
    ASSERT(bytes.n);
    buf_str(arg, bytes);
    return true;
}

static enum err feed(struct buf *log, struct str text, size_t step)
{
    struct multipart_handler h = {on_part, on_bytes, log};
    struct multipart *m = multipart_new("XX", &h);
    struct errmsg e = {0};
    enum err code = OK;
    for (size_t i = 0; i < text.n && !code; i += step)
        code = multipart_feed(m, str_sub(text, i, step), &e);
    if (code == OK) code = multipart_end(m, &e);
    ASSERT(code == OK || e.text[0]);
    multipart_free(m);
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n < 2) return 0;
    struct str text = {(const char *)bytes + 1, n - 1};
    struct buf whole, pieces;
    char boundary[MULTIPART_BOUNDARY_MAX + 1];
    struct errmsg e = {0};
    buf_init(&whole, 1 << 22);
    buf_init(&pieces, 1 << 22);
    enum err one = feed(&whole, text, text.n), two = feed(&pieces, text, 1u + bytes[0] % 16);
    ASSERT(one == two);
    if (!one) ASSERT(str_eq(buf_view(&whole), buf_view(&pieces)));
    if (multipart_boundary(text, boundary, &e) == OK) ASSERT(boundary[0]);
    buf_fini(&whole);
    buf_fini(&pieces);
    return 0;
}
