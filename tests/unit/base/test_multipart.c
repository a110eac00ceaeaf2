/* Goal: forms are read the same whatever pieces they come in, content that looks like a boundary stays content, and everything broken is
 * refused with its reason. Method: a table of bodies, each at every split point and byte by byte. */
#include "base/multipart.h"
#include "tests/check.h"

struct log {
    struct buf text;
    int stop_after; /* parts; 0 = never */
    int n;
};

static bool on_part(void *arg, const struct multipart_part *p)
{
    struct log *l = arg;
    buf_printf(&l->text, "<" STR_FMT "|", STR_ARG(p->name));
    if (p->filename.p)
        buf_printf(&l->text, STR_FMT, STR_ARG(p->filename));
    else
        buf_z(&l->text, "-");
    buf_printf(&l->text, "|" STR_FMT ">", STR_ARG(p->content_type));
    return ++l->n != l->stop_after;
}

static bool on_bytes(void *arg, struct str bytes)
{
    buf_str(&((struct log *)arg)->text, bytes);
    return bytes.n > 0;
}

/* What was seen, or the reason for refusing it. */
static void read(struct buf *out, struct str body, size_t first, size_t step, int stop_after)
{
    struct log l = {.stop_after = stop_after};
    struct errmsg e = {0};
    struct multipart_handler h = {on_part, on_bytes, &l};
    struct multipart *m = multipart_new("XX", &h);
    buf_init(&l.text, 1 << 20);
    enum err code = multipart_feed(m, str_sub(body, 0, first), &e);
    for (size_t i = first; i < body.n && code == OK; i += step)
        code = multipart_feed(m, str_sub(body, i, step), &e);
    if (code == OK) code = multipart_end(m, &e);
    buf_init(out, 1 << 20);
    if (code == OK)
        buf_str(out, buf_view(&l.text));
    else
        buf_printf(out, "%s %s", err_name(code), e.text);
    multipart_free(m);
    buf_fini(&l.text);
}

#define HEAD "Content-Disposition: form-data; name=\"f\"\r\n"
static const struct {
    const char *title, *body, *want;
} rows[] = {
    {"one field", "--XX\r\n" HEAD "\r\nabc\r\n--XX--\r\n", "<f|-|>abc"},
    {"two parts, one a file",
     "--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--XX\r\n"
     "content-disposition: form-data; filename=\"a \\\"b\\\".jsonl\"; name=file\r\n"
     "Content-Type: application/jsonl\r\n\r\n{}\n{}\n\r\n--XX--",
     "<purpose|-|>batch<file|a \"b\".jsonl|application/jsonl>{}\n{}\n"},
    {"empty content", "--XX\r\n" HEAD "\r\n\r\n--XX--\r\n", "<f|-|>"},
    {"an empty form", "--XX--\r\n", ""},
    {"beginnings of the boundary inside", "--XX\r\n" HEAD "\r\na\r\n--X\r\r\n\r\n--\r\n-\r\n--XX--",
     "<f|-|>a\r\n--X\r\r\n\r\n--\r\n-"},
    {"boundary without a line break before it is content",
     "--XX\r\n" HEAD "\r\na--XX--\n--XX\r\n--XX--", "<f|-|>a--XX--\n--XX"},
    {"padding after a boundary", "--XX \t\r\n" HEAD "\r\na\r\n--XX--\r\nepilogue", "<f|-|>a"},
    {"line break before the first boundary", "\r\n--XX\r\n" HEAD "\r\na\r\n--XX--",
     "ERR_INVALID the body does not begin with the boundary that its Content-Type names"},
    {"another boundary", "--YY\r\n" HEAD "\r\na\r\n--YY--",
     "ERR_INVALID the body does not begin with the boundary that its Content-Type names"},
    {"cut", "--XX\r\n" HEAD "\r\na\r\n--XX",
     "ERR_INVALID the body ends before its closing boundary"},
    {"cut in a header", "--XX\r\nContent-Dis",
     "ERR_INVALID the body ends before its closing boundary"},
    {"longer boundary", "--XX\r\n" HEAD "\r\na\r\n--XXY\r\n",
     "ERR_INVALID bytes follow a boundary on its line"},
    {"no name", "--XX\r\nContent-Disposition: form-data\r\n\r\na\r\n--XX--",
     "ERR_INVALID part 1: expected Content-Disposition: form-data; name=\"...\""},
    {"no disposition", "--XX\r\nContent-Type: text/plain\r\n\r\na\r\n--XX--",
     "ERR_INVALID part 1: expected Content-Disposition: form-data; name=\"...\""},
    {"bare LF in headers", "--XX\r\nA: b\n" HEAD "\r\na\r\n--XX--",
     "ERR_INVALID part 1: a header line does not end with CR LF"},
    {"header without a colon", "--XX\r\nnonsense\r\n\r\na\r\n--XX--",
     "ERR_INVALID part 1: a header line without a name"},
};

TEST(form_is_read_the_same_at_every_split_point)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct str body = str_of(rows[i].body);
        for (size_t first = 0; first <= body.n; first++) {
            struct buf got;
            read(&got, body, first, body.n ? body.n : 1, 0);
            CHECK_AT(str_eqz(buf_view(&got), rows[i].want), "%s, split at %zu: got " STR_FMT,
                     rows[i].title, first, STR_ARG(buf_view(&got)));
            buf_fini(&got);
        }
        struct buf got;
        read(&got, body, 0, 1, 0);
        CHECK_STR(buf_view(&got), rows[i].want);
        buf_fini(&got);
    }
}

TEST(parts_and_header_bytes_are_bounded_and_a_handler_can_stop)
{
    struct buf body, got;
    buf_init(&body, 1 << 20);
    for (int i = 0; i <= MULTIPART_PARTS_MAX; i++)
        buf_z(&body, i ? "\r\n--XX\r\n" HEAD "\r\na" : "--XX\r\n" HEAD "\r\na");
    read(&got, buf_view(&body), 0, 1000, 0);
    CHECK_STR(buf_view(&got), "ERR_TOO_LARGE more than 64 parts");
    buf_fini(&got);
    read(&got, buf_view(&body), 0, 1000, 2);
    CHECK_STR(buf_view(&got), "ERR_CANCELLED refused");
    buf_fini(&got);
    buf_clear(&body);
    buf_z(&body, "--XX\r\nA: ");
    for (int i = 0; i < MULTIPART_HEADERS_MAX; i++)
        buf_char(&body, 'x');
    read(&got, buf_view(&body), 0, 1000, 0);
    CHECK_STR(buf_view(&got), "ERR_TOO_LARGE part 1: its headers are over 4096 bytes");
    buf_fini(&got);
    buf_fini(&body);
}

TEST(boundary_comes_out_of_the_content_type_or_the_reason_why_not)
{
    char b[MULTIPART_BOUNDARY_MAX + 1];
    struct errmsg e = {0};
    CHECK_INT(multipart_boundary(STR("multipart/form-data; boundary=abc"), b, &e), OK);
    CHECK_STR(str_of(b), "abc");
    CHECK_INT(multipart_boundary(STR("Multipart/Form-Data;charset=x; Boundary=\"a b\""), b, &e),
              OK);
    CHECK_STR(str_of(b), "a b");
    CHECK_INT(multipart_boundary(STR("application/json"), b, &e), ERR_UNSUPPORTED);
    CHECK_INT(multipart_boundary(STR(""), b, &e), ERR_UNSUPPORTED);
    CHECK_INT(multipart_boundary(STR("multipart/form-data"), b, &e), ERR_INVALID);
    CHECK_INT(multipart_boundary(STR("multipart/form-data; boundary="), b, &e), ERR_INVALID);
    CHECK_INT(multipart_boundary(STR("multipart/form-data; boundary=\"a"), b, &e), ERR_INVALID);
    CHECK_INT(multipart_boundary(STR("multipart/form-data; boundary=a\x01"), b, &e), ERR_INVALID);
    char longer[128] = "multipart/form-data; boundary=";
    memset(longer + 30, 'x', 71);
    longer[101] = 0;
    CHECK_INT(multipart_boundary(str_of(longer), b, &e), ERR_INVALID);
    longer[100] = 0;
    CHECK_INT(multipart_boundary(str_of(longer), b, &e), OK);
}

TEST_MAIN()
