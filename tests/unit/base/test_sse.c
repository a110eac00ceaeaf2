/* Goal: events come out the same however the bytes are cut, and what the writer writes the reader reads.
 * Method: each stream is fed whole, byte by byte and cut in two at every place; the log of events must be equal. */
#include "base/sse.h"

#include "base/mem.h"
#include "tests/check.h"

static bool note(void *arg, const struct sse_event *ev)
{
    buf_printf(arg, "<%.*s|%.*s|", STR_ARG(ev->event), STR_ARG(ev->id));
    buf_str(arg, ev->data);
    buf_char(arg, '>');
    return true;
}

/* Feeds a copy of exactly this size. */
static enum err feed(struct sse_reader *r, struct str bytes, struct buf *log)
{
    char *p = xmalloc(bytes.n);
    if (bytes.n) memcpy(p, bytes.p, bytes.n);
    enum err code = sse_reader_feed(r, (struct str){p, bytes.n}, note, log);
    mem_free(p);
    return code;
}

static void check_cut(struct str in, size_t cut, bool single, const char *want, bool pending)
{
    struct buf log;
    buf_init(&log, 1 << 20);
    struct sse_reader *r = sse_reader_new(1 << 16);
    if (single) {
        for (size_t i = 0; i < in.n; i++)
            CHECK_INT(feed(r, str_sub(in, i, 1), &log), OK);
    } else {
        CHECK_INT(feed(r, str_sub(in, 0, cut), &log), OK);
        CHECK_INT(feed(r, str_sub(in, cut, in.n), &log), OK);
    }
    CHECK_AT(str_eqz(buf_view(&log), want), "cut %zu single %d of \"%.*s\": %.*s, not %s", cut,
             single, (int)in.n, in.p, STR_ARG(buf_view(&log)), want);
    CHECK_AT(sse_reader_pending(r) == pending, "cut %zu: pending is %d", cut, !pending);
    sse_reader_free(r);
    buf_fini(&log);
}

static void check_stream(struct str in, const char *want, bool pending)
{
    for (size_t cut = 0; cut <= in.n; cut++)
        check_cut(in, cut, false, want, pending);
    check_cut(in, 0, true, want, pending);
}

TEST(lines_fields_and_events_follow_the_standard)
{
    check_stream(STR("data: a\n\ndata: b\n\n"), "<||a><||b>", false);
    check_stream(STR("data: a\r\n\r\ndata: b\r\n\r\n"), "<||a><||b>", false);
    check_stream(STR("data: a\r\rdata: b\r\r"), "<||a><||b>", false);
    check_stream(STR("data: a\r\n\ndata: b\n\r\n\r"), "<||a><||b>", false);
    check_stream(STR("data:a\n\ndata:  b\n\n"), "<||a><|| b>", false);
    check_stream(STR("data: x\ndata: y\ndata:\n\n"), "<||x\ny\n>", false);
    check_stream(STR("data\n\n"), "<||>", false);
    check_stream(STR("data:\n\n"), "<||>", false);
    check_stream(STR("data: a:b: c\n\n"), "<||a:b: c>", false);
    check_stream(STR("event: e\nid: 7\ndata: d\n\ndata: f\n\n"), "<e|7|d><|7|f>", false);
    check_stream(STR("event: e\n\ndata: f\n\n"), "<||f>", false);
    check_stream(STR("retry: 10\nfoo: bar\ndatax: 1\nDATA: 2\n\ndata: z\n\n"), "<||z>", false);
    check_stream(STR("id: a\0b\ndata: z\n\n"), "<||z>", false);
    check_stream(STR("\n\n\r\r\n\ndata: z\n\n\n\n"), "<||z>", false);
}

TEST(comments_and_a_byte_order_mark_are_skipped)
{
    check_stream(STR(": ping\n\ndata: a\n: in between\ndata: b\n\n:\n\n"), "<||a\nb>", false);
    check_stream(STR("\xef\xbb\xbf"
                     "data: a\n\n"),
                 "<||a>", false);
    check_stream(STR("\xef\xbb"
                     "data: a\n\n"),
                 "", false); /* another field name */
    check_stream(STR("\xef\xbb\xbf\xef\xbb\xbf"
                     "data: a\n\n"),
                 "", false);
}

TEST(a_cut_stream_is_seen_as_pending)
{
    check_stream(STR("data: a\n\ndata: b"), "<||a>", true);
    check_stream(STR("data: a\n\ndata: b\n"), "<||a>", true);
    check_stream(STR("data: a\n\nd"), "<||a>", true);
    check_stream(STR("data: a\n\n: comm"), "<||a>", false);
    check_stream(STR("data: a\n\r"), "<||a>", false);
    check_stream(STR(""), "", false);
}

TEST(an_event_over_the_bound_kills_the_reader)
{
    struct buf log;
    buf_init(&log, 1000);
    struct sse_reader *r = sse_reader_new(16);
    CHECK_INT(feed(r, STR("data: 0123456789\n\n"), &log), OK);
    CHECK_INT(feed(r, STR("data: 0123456789\n"), &log), OK);
    CHECK_INT(feed(r, STR("data: 0123456789\n\n"), &log), ERR_TOO_LARGE);
    CHECK_INT(feed(r, STR("\n\n"), &log), ERR_TOO_LARGE);
    sse_reader_free(r);
    r = sse_reader_new(16);
    for (int i = 0; i < 3; i++) /* no end of line in sight */
        if (feed(r, STR("data: 01"), &log)) break;
    CHECK_INT(feed(r, STR(""), &log), ERR_TOO_LARGE);
    sse_reader_free(r);
    r = sse_reader_new(16); /* a comment has no bound: it is not kept */
    for (int i = 0; i < 100; i++)
        CHECK_INT(feed(r, STR(": 0123456789abcdef"), &log), OK);
    CHECK_INT(feed(r, STR("\ndata: x\n\n"), &log), OK);
    CHECK_STR(buf_view(&log), "<||0123456789><||x>");
    sse_reader_free(r);
    buf_fini(&log);
}

static bool stop_at_once(void *arg, const struct sse_event *ev)
{
    (void)ev;
    ++*(int *)arg;
    return false;
}

TEST(the_receiver_can_stop)
{
    int n = 0;
    struct sse_reader *r = sse_reader_new(100);
    CHECK_INT(sse_reader_feed(r, STR("data: a\n\ndata: b\n\n"), stop_at_once, &n), ERR_CANCELLED);
    CHECK_INT(n, 1);
    sse_reader_free(r);
}

TEST(what_is_written_is_read_back)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"", ""},
        {"a", "a"},
        {"a\nb", "a\nb"},
        {"\n", "\n"},
        {"a\n", "a\n"},
        {" a", " a"},
        {"a\r\nb\rc", "a\nb\nc"},
        {":x", ":x"},
        {"a\n\ndata: [DONE]\n\nb", "a\n\ndata: [DONE]\n\nb"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf b, want;
        buf_init(&b, 1000);
        buf_init(&want, 1000);
        sse_write_data(&b, str_of(rows[i].in));
        sse_write_event(&b, "error", str_of(rows[i].in));
        buf_printf(&want, "<||%s><error||%s>", rows[i].out, rows[i].out);
        check_stream(buf_view(&b), want.p, false);
        buf_fini(&b);
        buf_fini(&want);
    }
}

TEST(bare_carriage_returns_cost_linear_time)
{
    size_t n = 4 << 20;
    char *p = xmalloc(n);
    memset(p, '\r', n);
    int count = 0;
    struct sse_reader *r = sse_reader_new(100);
    CHECK_INT(sse_reader_feed(r, (struct str){p, n}, stop_at_once, &count), OK);
    CHECK_INT(count, 0);
    sse_reader_free(r);
    mem_free(p);
}

TEST_MAIN()
