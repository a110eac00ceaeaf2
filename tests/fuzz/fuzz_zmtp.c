/* fuzz_zmtp.c - any bytes from a publisher, cut anywhere: the same messages and the same end. The first byte chooses the cut. */
#include "base/err.h"
#include "base/zmtp.h"

static void note(void *arg, const struct str *parts, size_t n)
{
    struct buf *b = arg;
    for (size_t i = 0; i < n; i++) {
        buf_printf(b, "%zu ", parts[i].n);
        buf_str(b, parts[i]);
    }
    buf_char(b, ';');
}

static enum err feed(struct buf *log, struct str text, size_t step)
{
    struct zmtp *z = zmtp_new(ZMTP_SUB, 4096);
    struct buf out;
    enum err code = OK;
    buf_init(log, 1 << 20);
    buf_init(&out, 1 << 20);
    for (size_t at = 0; at < text.n && code == OK; at += step)
        code = zmtp_feed(z, str_sub(text, at, step), &out, note, log);
    buf_fini(&out);
    zmtp_free(z);
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct buf whole, cut;
    if (!n || n > 65536) return 0;
    struct str text = {(const char *)bytes + 1, n - 1};
    enum err a = feed(&whole, text, n), b = feed(&cut, text, 1 + bytes[0]);
    ASSERT(a == b && str_eq(buf_view(&whole), buf_view(&cut)));
    buf_fini(&whole);
    buf_fini(&cut);
    return 0;
}
