/* zmtp.c - see zmtp.h. A greeting of 64 bytes, then frames: flags, length, body. */
#include "base/zmtp.h"

#include <string.h>

#include "base/mem.h"

enum { GREETING = 64, MECHANISM_AT = 12, MECHANISM = 20, MORE = 1, LONG = 2, COMMAND = 4 };

struct zmtp {
    enum zmtp_role role;
    bool greeted, open;
    size_t max;
    struct buf in;   /* bytes not understood yet */
    struct buf text; /* parts of the message under way, one after the other */
    size_t ends[ZMTP_PARTS_MAX], n_parts;
};

struct zmtp *zmtp_new(enum zmtp_role role, size_t message_bytes_max)
{
    struct zmtp *z = xcalloc(1, sizeof *z);
    z->role = role;
    z->max = message_bytes_max;
    buf_init(&z->in, message_bytes_max + 64 * 1024);
    buf_init(&z->text, message_bytes_max);
    return z;
}

void zmtp_free(struct zmtp *z)
{
    if (!z) return;
    buf_fini(&z->in);
    buf_fini(&z->text);
    mem_free(z);
}

void zmtp_greet(struct buf *out)
{
    char g[GREETING] = {0};
    g[0] = (char)0xff;
    g[9] = 0x7f;
    g[10] = 3;
    memcpy(g + MECHANISM_AT, "NULL", 4);
    buf_add(out, g, sizeof g);
}

static void write_frame(struct buf *out, uint8_t flags, struct str body)
{
    if (body.n > 255) flags |= LONG;
    buf_char(out, (char)flags);
    if (body.n <= 255) buf_char(out, (char)body.n);
    for (int i = 7; i >= 0 && body.n > 255; i--)
        buf_char(out, (char)((uint64_t)body.n >> (8 * i)));
    buf_str(out, body);
}

void zmtp_write(struct buf *out, const struct str *parts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        write_frame(out, i + 1 < n ? MORE : 0, parts[i]);
}

static void write_ready(const struct zmtp *z, struct buf *out)
{
    static const char sub[] = "\5READY\13Socket-Type\0\0\0\3SUB",
                      dealer[] = "\5READY\13Socket-Type\0\0\0\6DEALER";
    bool is_sub = z->role == ZMTP_SUB;
    write_frame(out, COMMAND,
                (struct str){is_sub ? sub : dealer, (is_sub ? sizeof sub : sizeof dealer) - 1});
}

static enum err take_greeting(struct zmtp *z, struct buf *out)
{
    const uint8_t *g = (const uint8_t *)z->in.p;
    if (g[0] != 0xff || !(g[9] & 1)) return ERR_CORRUPT;
    static const char null_mechanism[MECHANISM] = "NULL";
    if (g[10] < 3 || memcmp(g + MECHANISM_AT, null_mechanism, MECHANISM)) return ERR_UNSUPPORTED;
    z->greeted = true;
    buf_consume(&z->in, GREETING);
    write_ready(z, out);
    return OK;
}

static enum err take_command(struct zmtp *z, struct str body, struct buf *out)
{
    if (str_starts(body, STR("\5READY")) && !z->open) {
        z->open = true;
        if (z->role == ZMTP_SUB) write_frame(out, 0, STR("\1")); /* everything */
        return OK;
    }
    if (str_starts(body, STR("\4PING")) && body.n >= 7) {
        struct buf pong;
        buf_init(&pong, 1024);
        buf_z(&pong, "\4PONG");
        buf_str(&pong, str_sub(body, 7, 16));
        write_frame(out, COMMAND, buf_view(&pong));
        buf_fini(&pong);
        return OK;
    }
    return str_starts(body, STR("\5ERROR")) ? ERR_UNSUPPORTED : OK;
}

static enum err take_part(struct zmtp *z, struct str body, bool more,
                          void (*on_message)(void *arg, const struct str *parts, size_t n),
                          void *arg)
{
    struct str parts[ZMTP_PARTS_MAX];
    if (z->n_parts == ZMTP_PARTS_MAX) return ERR_TOO_LARGE;
    buf_str(&z->text, body);
    if (buf_failed(&z->text)) return ERR_TOO_LARGE;
    z->ends[z->n_parts++] = z->text.n;
    if (more) return OK;
    size_t from = 0, n = z->n_parts;
    for (size_t i = 0; i < n; i++) {
        parts[i] = str_sub(buf_view(&z->text), from, z->ends[i] - from);
        from = z->ends[i];
    }
    on_message(arg, parts, n);
    buf_clear(&z->text);
    z->n_parts = 0;
    return OK;
}

/* Length of the frame's head, and of its body; 0: more bytes are needed. */
static size_t frame_head(struct str in, uint64_t *n)
{
    size_t head = in.n && in.p[0] & LONG ? 9 : 2;
    if (in.n < head) return 0;
    *n = 0;
    for (size_t i = 1; i < head; i++)
        *n = *n << 8 | (uint8_t)in.p[i];
    return head;
}

enum err zmtp_feed(struct zmtp *z, struct str bytes, struct buf *out,
                   void (*on_message)(void *arg, const struct str *parts, size_t n), void *arg)
{
    buf_str(&z->in, bytes);
    if (buf_failed(&z->in)) return ERR_TOO_LARGE;
    enum err code = OK;
    size_t at = 0;
    if (!z->greeted) {
        if (z->in.n < GREETING) return OK;
        code = take_greeting(z, out);
    }
    while (code == OK) {
        uint64_t n;
        struct str in = str_sub(buf_view(&z->in), at, z->in.n - at);
        size_t head = frame_head(in, &n);
        if (!head) break;
        uint8_t flags = (uint8_t)in.p[0];
        if (n > z->max) return ERR_TOO_LARGE;
        if (flags & 0xf8) return ERR_CORRUPT;
        if (in.n - head < n) break;
        struct str body = str_sub(in, head, (size_t)n);
        code = flags & COMMAND ? take_command(z, body, out)
               : z->open       ? take_part(z, body, flags & MORE, on_message, arg)
                               : ERR_CORRUPT;
        at += head + (size_t)n;
    }
    buf_consume(&z->in, at);
    return code;
}

bool zmtp_is_open(const struct zmtp *z)
{
    return z->open;
}
