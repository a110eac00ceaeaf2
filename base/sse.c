/* sse.c - splits bytes into lines, lines into fields, fields into events. Each byte is looked at a bounded number of times, however the
 * stream is cut: a stray \r never makes the search for \n start over. Pure, allocation aside. */
#include "base/sse.h"

#include <string.h>

#include "base/mem.h"

struct sse_reader {
    struct buf line; /* a line whose end has not come yet */
    struct buf data; /* joined by \n */
    struct buf event, id;
    size_t bytes_max;
    int bom_i; /* how many bytes of EF BB BF were seen; -1 = past the start */
    bool has_data, has_field, skip_lf, dead;
};

struct sse_reader *sse_reader_new(size_t event_bytes_max)
{
    struct sse_reader *r = xcalloc(1, sizeof *r);
    r->bytes_max = event_bytes_max;
    buf_init(&r->line, event_bytes_max);
    buf_init(&r->data, event_bytes_max);
    buf_init(&r->event, event_bytes_max);
    buf_init(&r->id, event_bytes_max);
    return r;
}

void sse_reader_free(struct sse_reader *r)
{
    if (!r) return;
    buf_fini(&r->line);
    buf_fini(&r->data);
    buf_fini(&r->event);
    buf_fini(&r->id);
    mem_free(r);
}

static bool over(const struct sse_reader *r)
{
    return r->line.failed || r->data.failed || r->event.failed || r->id.failed ||
           r->line.n + r->data.n + r->event.n > r->bytes_max;
}

static void set(struct buf *b, struct str value)
{
    buf_clear(b);
    buf_str(b, value);
}

static void take_field(struct sse_reader *r, struct str line)
{
    ptrdiff_t colon = str_find_char(line, ':');
    struct str name = colon < 0 ? line : str_sub(line, 0, (size_t)colon);
    struct str value = colon < 0 ? (struct str){"", 0} : str_sub(line, (size_t)colon + 1, line.n);
    if (value.n && *value.p == ' ') value = str_sub(value, 1, value.n);
    if (str_eqz(name, "data")) {
        if (r->has_data) buf_char(&r->data, '\n');
        buf_str(&r->data, value);
        r->has_data = true;
    } else if (str_eqz(name, "event")) {
        set(&r->event, value);
    } else if (str_eqz(name, "id") && str_find_char(value, 0) < 0) {
        set(&r->id, value);
    }
    r->has_field = true;
}

/* An empty line: hand the event over. False when the receiver wants no more. */
static bool dispatch(struct sse_reader *r, bool (*on_event)(void *arg, const struct sse_event *ev),
                     void *arg)
{
    bool go_on = true;
    if (r->has_data) {
        struct sse_event ev = {{r->event.p ? r->event.p : "", r->event.n},
                               {r->data.p ? r->data.p : "", r->data.n},
                               {r->id.p ? r->id.p : "", r->id.n}};
        go_on = on_event(arg, &ev);
    }
    buf_clear(&r->data);
    buf_clear(&r->event);
    r->has_data = r->has_field = false;
    return go_on;
}

/* Of a comment only the colon is kept: it may be endless without counting as an event too large. */
static void keep_partial(struct sse_reader *r, struct str piece)
{
    bool comment = r->line.n ? r->line.p[0] == ':' : piece.n && *piece.p == ':';
    if (!comment)
        buf_str(&r->line, piece);
    else if (!r->line.n)
        buf_char(&r->line, ':');
}

/* Drops a byte order mark at the very start, however it is cut. */
static struct str skip_bom(struct sse_reader *r, struct str bytes)
{
    static const char bom[] = "\xEF\xBB\xBF";
    while (r->bom_i >= 0 && bytes.n) {
        if (*bytes.p != bom[r->bom_i]) {
            buf_add(&r->line, bom, (size_t)r->bom_i); /* it was text after all */
            r->bom_i = -1;
        } else {
            bytes = str_sub(bytes, 1, bytes.n);
            if (++r->bom_i == 3) r->bom_i = -1;
        }
    }
    return bytes;
}

/* Next end of line at or after from; text.n when there is none. next[] remembers the last \n and \r found. */
static size_t line_end(struct str text, size_t from, size_t next[2])
{
    static const char ends[2] = {'\n', '\r'};
    for (int i = 0; i < 2; i++) {
        if (next[i] != SIZE_MAX && next[i] >= from) continue;
        ptrdiff_t at = str_find_char(str_sub(text, from, text.n), ends[i]);
        next[i] = at < 0 ? text.n : from + (size_t)at;
    }
    return next[0] < next[1] ? next[0] : next[1];
}

static enum err finish(struct sse_reader *r, enum err code)
{
    r->dead = code != OK;
    return code;
}

enum err sse_reader_feed(struct sse_reader *r, struct str bytes,
                         bool (*on_event)(void *arg, const struct sse_event *ev), void *arg)
{
    if (r->dead) return ERR_TOO_LARGE;
    bytes = skip_bom(r, bytes);
    size_t next[2] = {SIZE_MAX, SIZE_MAX};
    for (size_t from = 0; from < bytes.n;) {
        bool second_half = r->skip_lf && bytes.p[from] == '\n';
        r->skip_lf = false;
        if (second_half) {
            from++;
            continue;
        }
        size_t end = line_end(bytes, from, next);
        struct str piece = str_sub(bytes, from, end - from);
        if (end == bytes.n) {
            keep_partial(r, piece);
            break;
        }
        r->skip_lf = bytes.p[end] == '\r';
        from = end + 1;
        struct str line = piece;
        if (r->line.n) {
            keep_partial(r, piece);
            line = buf_view(&r->line);
        }
        if (!line.n && !dispatch(r, on_event, arg)) return finish(r, ERR_CANCELLED);
        if (line.n && *line.p != ':') take_field(r, line);
        buf_clear(&r->line);
        if (over(r)) return finish(r, ERR_TOO_LARGE);
    }
    return finish(r, over(r) ? ERR_TOO_LARGE : OK);
}

bool sse_reader_pending(const struct sse_reader *r)
{
    return r->has_field || (r->line.n && r->line.p[0] != ':') || r->bom_i > 0;
}

/* One field line for each line of text; \r\n and \r end lines too, since a reader would take them so. */
static void write_lines(struct buf *out, const char *field, struct str text)
{
    do {
        size_t n = 0;
        while (n < text.n && text.p[n] != '\n' && text.p[n] != '\r')
            n++;
        buf_z(out, field);
        buf_str(out, str_sub(text, 0, n));
        buf_char(out, '\n');
        if (n == text.n) return;
        bool pair = text.p[n] == '\r' && n + 1 < text.n && text.p[n + 1] == '\n';
        text = (struct str){text.p + n + (pair ? 2 : 1), text.n - n - (pair ? 2 : 1)};
    } while (true);
}

void sse_write_data(struct buf *out, struct str data)
{
    write_lines(out, "data: ", data);
    buf_char(out, '\n');
}

void sse_write_event(struct buf *out, const char *event, struct str data)
{
    write_lines(out, "event: ", str_of(event));
    sse_write_data(out, data);
}
