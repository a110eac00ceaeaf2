/* fuzz_toolcall.c - any text in any form, whole and in pieces: the same content and calls; nothing is invented: content and arguments
 * are no longer than the text (but for escaped line breaks). The first byte names the form and where to cut. */
#include <string.h>

#include "base/json.h"
#include "engine/toolcall.h"

struct heard {
    struct buf text;
};

static void on_content(void *arg, struct str text)
{
    struct heard *h = arg;
    ASSERT(text.n);
    buf_str(&h->text, text);
}
static void on_begin(void *arg, int call, struct str name)
{
    struct heard *h = arg;
    ASSERT(call < TOOLCALL_CALLS_MAX && name.n);
    buf_char(&h->text, 1);
}
static void on_arguments(void *arg, int call, struct str text)
{
    struct heard *h = arg;
    (void)call;
    ASSERT(text.n);
    buf_str(&h->text, text);
}

/* Content and arguments in the order in which they are told; a call is a byte 1. */
static void read_text(enum toolcall_form form, const json_t *tools, struct str text, size_t piece,
                      struct heard *h)
{
    struct toolcall_sink sink = {on_content, on_begin, on_arguments, h};
    struct toolcall *t = toolcall_new(form, tools, false, &sink);
    buf_init(&h->text, 1 << 20);
    for (size_t at = 0; at < text.n; at += piece)
        toolcall_feed(t, str_sub(text, at, piece));
    toolcall_finish(t);
    toolcall_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static json_t *tools;
    if (!n || n > 40000) return 0;
    if (!tools)
        tools = json_loads("[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"time\"}}]",
                           0, NULL);
    ASSERT(tools);
    enum toolcall_form form = (enum toolcall_form)(bytes[0] & 3);
    struct str text = {(const char *)bytes + 1, n - 1};
    struct heard whole, cut;
    read_text(form, tools, text, n, &whole);
    read_text(form, tools, text, 1 + (bytes[0] >> 2) % 9, &cut);
    ASSERT(whole.text.n == cut.text.n);
    ASSERT(!whole.text.n || !memcmp(whole.text.p, cut.text.p, whole.text.n));
    ASSERT(whole.text.n <= 2 * n + 2);
    buf_fini(&whole.text);
    buf_fini(&cut.text);
    return 0;
}
