/* fuzz_http.c - bytes of a client (or upstream) in random pieces through heads and bodies, the whole of what httpd and
 * http_client do with them before a handler sees anything. Property: the cut into pieces changes nothing; bounds hold;
 * what was accepted has one framing only. Input: byte 0 chooses request or reply, byte 1 seeds the pieces, the rest is
 * the wire. */
#include <string.h>

#include "base/http_parse.h"
#include "base/mem.h"
#include "base/rng.h"

enum { HEADER_MAX = 4096, HEADERS_MAX = 20, BODY_MAX = 1 << 16, MESSAGES_MAX = 64 };

/* Everything that was understood, in order, for comparison. */
struct story {
    struct buf text;
    bool refused;
};

static void tell_head(struct story *s, const struct http_head *h)
{
    ASSERT(h->raw.n <= HEADER_MAX && h->n_fields <= HEADERS_MAX + 1 &&
           h->n_fields == h->n_lines - 1);
    buf_printf(&s->text, "[%d %d %d %llu]", h->status, (int)h->framing, (int)h->keep_alive,
               (unsigned long long)h->length);
    buf_str(&s->text, h->path);
    int n_lengths = 0, n_codings = 0, n_hosts = 0;
    for (int i = 0; i < h->n_fields; i++) {
        struct http_header f = h->fields[i];
        ASSERT(http_token_ok(f.name) && http_value_ok(f.value));
        n_lengths += str_ieq(f.name, STR("content-length"));
        n_codings += str_ieq(f.name, STR("transfer-encoding"));
        n_hosts += str_ieq(f.name, STR("host"));
        buf_str(&s->text, f.name);
        buf_str(&s->text, f.value);
    }
    ASSERT(n_lengths + n_codings <= 1);
    ASSERT(h->is_reply || n_hosts == 1 || (!h->http_11 && n_hosts == 0));
}

/* Feeds one message from in; returns bytes used, 0 when the rest is of no use. */
static size_t feed_message(struct story *s, struct http_head *h, struct str in, struct rng *cuts)
{
    struct http_body b = {.framing = HTTP_BODY_NONE};
    struct http_refusal why = {0};
    size_t at = 0, body_n = 0;
    bool head_done = false;
    while (at < in.n && !(head_done && b.done)) {
        size_t n = cuts ? 1 + (size_t)rng_below(cuts, 40) : in.n - at, used = 0;
        if (n > in.n - at) n = in.n - at;
        char *piece = xmalloc(n); /* its own block: a read past its end is seen */
        memcpy(piece, in.p + at, n);
        struct str content = {piece, 0}, bytes = {piece, n};
        enum err result = head_done ? http_body_step(&b, bytes, &used, &content)
                                    : http_head_feed(h, bytes, &used, &why);
        ASSERT(used <= n && content.n <= used);
        body_n += content.n;
        buf_str(&s->text, content);
        mem_free(piece);
        at += used;
        if (!head_done && result == OK) {
            head_done = true;
            tell_head(s, h);
            http_body_begin(&b, h->framing, h->length);
        } else if (result && result != ERR_AGAIN) {
            s->refused = true;
        }
        if (s->refused || body_n > BODY_MAX) return 0;
    }
    http_head_clear(h);
    return head_done && b.done ? at : 0;
}

static void tell(struct story *s, bool is_reply, struct str in, struct rng *cuts)
{
    struct http_head h;
    *s = (struct story){.refused = false};
    buf_init(&s->text, 1 << 22);
    http_head_init(&h, is_reply, HEADER_MAX, HEADERS_MAX);
    for (int i = 0; i < MESSAGES_MAX && in.n; i++) {
        size_t used = feed_message(s, &h, in, cuts);
        if (!used) break;
        in = str_sub(in, used, in.n);
    }
    http_head_fini(&h);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n < 2) return 0;
    struct str in = {(const char *)bytes + 2, n - 2};
    struct story whole, cut;
    struct rng cuts;
    rng_seed(&cuts, bytes[1]);
    tell(&whole, bytes[0] & 1, in, NULL);
    tell(&cut, bytes[0] & 1, in, &cuts);
    ASSERT(whole.refused == cut.refused);
    ASSERT(str_eq(buf_view(&whole.text), buf_view(&cut.text)));
    buf_fini(&whole.text);
    buf_fini(&cut.text);
    return 0;
}
