/* batch_check.c - see batch_check.h. */
#include "gateway/batch_check.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "gateway/batch_line.h"
#include "gateway/join_table.h"

enum { ERRORS_BYTES_MAX = 128 * 1024 };

struct batch_check {
    char endpoint[BATCH_ENDPOINT_BYTES];
    struct join_table *ids; /* hashes of the custom_ids so far */
    uint64_t seed;
    int64_t lines_max, n_requests, n_lines;
    struct batch_span *lines;
    size_t n, cap;
    struct buf errors;
    int n_errors;
    bool ended, closed; /* enough is wrong; the list of errors is whole */
};

struct batch_check *batch_check_new(const char *endpoint, int64_t lines_max, uint64_t seed)
{
    struct batch_check *c = xcalloc(1, sizeof *c);
    snprintf(c->endpoint, sizeof c->endpoint, "%s", endpoint);
    c->ids = join_table_new((size_t)lines_max);
    c->seed = seed;
    c->lines_max = lines_max;
    buf_init(&c->errors, ERRORS_BYTES_MAX);
    return c;
}

void batch_check_free(struct batch_check *c)
{
    if (!c) return;
    join_table_free(c->ids);
    mem_free(c->lines);
    buf_fini(&c->errors);
    mem_free(c);
}

static void add_error(struct batch_check *c, const struct batch_fault *f, int64_t line)
{
    buf_z(&c->errors, c->n_errors++ ? "," : "{\"object\":\"list\",\"data\":[");
    buf_printf(&c->errors, "{\"code\":\"%s\",\"line\":", f->code);
    if (line)
        buf_printf(&c->errors, "%lld", (long long)line);
    else
        buf_z(&c->errors, "null");
    buf_z(&c->errors, ",\"message\":");
    json_write_string(&c->errors, str_of(f->message));
    buf_z(&c->errors, ",\"param\":");
    if (f->param[0])
        json_write_string(&c->errors, str_of(f->param));
    else
        buf_z(&c->errors, "null");
    buf_char(&c->errors, '}');
}

static void keep_line(struct batch_check *c, size_t at, size_t n)
{
    if (c->n == c->cap) {
        c->cap = c->cap ? c->cap * 2 : 256;
        c->lines = xrealloc(c->lines, c->cap * sizeof *c->lines);
    }
    c->lines[c->n++] = (struct batch_span){(uint32_t)at, (uint32_t)n};
}

static bool take_id(struct batch_check *c, struct str custom_id, struct batch_fault *why)
{
    struct hash128 h = hash_bytes(c->seed, custom_id);
    bool twice = join_table_find(c->ids, h) != NULL;
    if (!twice && join_table_put(c->ids, h, c) == OK) return true;
    struct str shown = str_sub(custom_id, 0, 64);
    shown.n = utf8_complete(shown);
    *why = (struct batch_fault){.code = "duplicate_custom_id", .param = "custom_id"};
    snprintf(why->message, sizeof why->message,
             "custom_id: \"" STR_FMT "\" has been given in an earlier line", STR_ARG(shown));
    return false;
}

static void read_line(struct batch_check *c, struct str line, size_t at)
{
    struct batch_line l;
    struct batch_fault why = {0};
    c->n_lines++;
    if (!str_trim(line).n) return;
    if (++c->n_requests > c->lines_max) {
        why = (struct batch_fault){.code = "too_many_tasks", .param = ""};
        snprintf(why.message, sizeof why.message, "the file has more than %lld requests",
                 (long long)c->lines_max);
        add_error(c, &why, c->n_lines);
        c->ended = true;
        return;
    }
    bool good = batch_line_read(&l, line, c->endpoint, &why) == OK;
    if (good) {
        good = take_id(c, l.custom_id, &why);
        batch_line_fini(&l);
    }
    if (good)
        keep_line(c, at, line.n);
    else
        add_error(c, &why, c->n_lines);
    if (c->n_errors >= BATCH_ERRORS_MAX) c->ended = true;
}

bool batch_check_feed(struct batch_check *c, struct str chunk)
{
    c->n = 0;
    /* Editors put a byte order mark before UTF-8; RFC 8259 lets a reader pass over it. */
    size_t mark = !c->n_lines && str_starts(chunk, STR("\xEF\xBB\xBF")) ? 3 : 0;
    for (size_t at = mark; at < chunk.n && !c->ended;) {
        struct str rest = str_sub(chunk, at, chunk.n);
        ptrdiff_t end = str_find_char(rest, '\n');
        size_t n = end < 0 ? rest.n : (size_t)end;
        read_line(c, str_sub(rest, 0, n), at);
        at += n + 1;
    }
    return !c->ended;
}

const struct batch_span *batch_check_lines(const struct batch_check *c, size_t *n)
{
    *n = c->n_errors ? 0 : c->n;
    return c->lines;
}

struct str batch_check_end(struct batch_check *c)
{
    struct batch_fault empty = {
        .code = "empty_file", .param = "", .message = "the file has no request in it"};
    if (!c->n_requests && !c->n_errors) add_error(c, &empty, 0);
    if (!c->n_errors) return STR("");
    if (!c->closed) buf_z(&c->errors, "]}");
    c->ended = c->closed = true;
    return buf_view(&c->errors);
}
