/* redis_reader.c - see redis_reader.h. The objects hiredis asks for are built in place: an array's elements lie side by side, as
 * struct redis_reply promises. The reader keeps its functions by pointer, so they live as long as the program. */
#include "base/redis_reader.h"

#include <hiredis/read.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct redis_reader {
    redisReader *parser;
    size_t bytes_max, elements_max, elements;
};

/* Where the object of this task lives: in its array, or on its own. NULL when memory is gone. */
static struct redis_reply *place_of(const redisReadTask *t, enum redis_kind kind)
{
    struct redis_reply *array = t->parent ? t->parent->obj : NULL;
    struct redis_reply *at =
        array ? (struct redis_reply *)(uintptr_t)&array->items[t->idx] : try_calloc(1, sizeof *at);
    if (at) at->kind = kind;
    return at;
}

static void *make_string(const redisReadTask *t, char *bytes, size_t n)
{
    struct redis_reply *at = place_of(t, t->type == REDIS_REPLY_STATUS  ? REDIS_STATUS
                                         : t->type == REDIS_REPLY_ERROR ? REDIS_ERROR
                                                                        : REDIS_STRING);
    char *copy = at ? try_malloc(n + 1) : NULL;
    if (!copy) {
        if (at && !t->parent) mem_free(at);
        return NULL;
    }
    memcpy(copy, bytes, n);
    copy[n] = 0;
    at->text = (struct str){copy, n};
    return at;
}

static void *make_array(const redisReadTask *t, int n)
{
    struct redis_reader *r = t->privdata;
    if (n < 0 || (size_t)n > r->elements_max - r->elements) return NULL;
    r->elements += (size_t)n;
    struct redis_reply *items = try_calloc((size_t)n, sizeof *items),
                       *at = items ? place_of(t, REDIS_ARRAY) : NULL;
    if (!at) {
        mem_free(items);
        return NULL;
    }
    at->items = items;
    at->n_items = (size_t)n;
    return at;
}

static void *make_integer(const redisReadTask *t, long long v)
{
    struct redis_reply *at = place_of(t, REDIS_INTEGER);
    if (at) at->integer = v;
    return at;
}

static void *make_nil(const redisReadTask *t)
{
    return place_of(t, REDIS_NIL);
}

/* What hangs on the reply, not the reply itself. Depth is bounded by hiredis (7). */
static void clear(const struct redis_reply *v)
{
    for (size_t i = 0; i < v->n_items; i++)
        clear(&v->items[i]);
    mem_free((void *)(uintptr_t)v->items);
    mem_free((void *)(uintptr_t)v->text.p);
}

static void free_object(void *reply)
{
    clear(reply);
    mem_free(reply);
}

struct redis_reader *redis_reader_new(size_t reply_bytes_max, size_t elements_max)
{
    static const redisReplyObjectFunctions functions = {make_string, make_array, make_integer,
                                                        make_nil, free_object};
    struct redis_reader *r = xcalloc(1, sizeof *r);
    r->parser = redisReaderCreateWithFunctions((redisReplyObjectFunctions *)(uintptr_t)&functions);
    ASSERT(r->parser);
    r->parser->privdata = r;
    r->bytes_max = reply_bytes_max;
    r->elements_max = elements_max;
    return r;
}

void redis_reader_free(struct redis_reader *r)
{
    if (!r) return;
    redisReaderFree(r->parser);
    mem_free(r);
}

enum err redis_reader_feed(struct redis_reader *r, struct str bytes,
                           bool (*on_reply)(void *arg, const struct redis_reply *reply), void *arg,
                           struct errmsg *e)
{
    if (redisReaderFeed(r->parser, bytes.p, bytes.n))
        return err_set(e, ERR_CORRUPT, "redis: %s", r->parser->errstr);
    for (;;) {
        void *reply = NULL;
        if (redisReaderGetReply(r->parser, &reply))
            return err_set(e, ERR_CORRUPT, "redis: %s", r->parser->errstr);
        if (!reply) break;
        r->elements = 0;
        bool go_on = on_reply(arg, reply);
        free_object(reply);
        if (!go_on) return ERR_CANCELLED;
    }
    if (r->parser->len - r->parser->pos > r->bytes_max)
        return err_set(e, ERR_CORRUPT, "redis: a reply over %zu bytes", r->bytes_max);
    return OK;
}

void redis_write_command(struct buf *out, int argc, const struct str *argv)
{
    buf_char(out, '*');
    buf_u64(out, (uint64_t)argc);
    for (int i = 0; i < argc; i++) {
        buf_add(out, i ? "$" : "\r\n$", i ? 1 : 3);
        buf_u64(out, argv[i].n);
        buf_add(out, "\r\n", 2);
        buf_str(out, argv[i]);
        buf_add(out, "\r\n", 2);
    }
}

static enum err read_u64(struct str s, uint64_t *out)
{
    uint64_t v = 0;
    if (!s.n || s.n > 20) return ERR_INVALID;
    for (size_t i = 0; i < s.n; i++) {
        unsigned digit = (unsigned)(s.p[i] - '0');
        if (digit > 9 || v > (UINT64_MAX - digit) / 10) return ERR_INVALID;
        v = v * 10 + digit;
    }
    *out = v;
    return OK;
}

enum err redis_id_parse(struct str text, struct redis_id *out)
{
    ptrdiff_t dash = str_find_char(text, '-');
    if (dash < 0) return ERR_INVALID;
    struct redis_id id = {0, 0};
    if (read_u64(str_sub(text, 0, (size_t)dash), &id.ms) ||
        read_u64(str_sub(text, (size_t)dash + 1, text.n), &id.seq))
        return ERR_INVALID;
    *out = id;
    return OK;
}

int redis_id_compare(struct redis_id a, struct redis_id b)
{
    if (a.ms != b.ms) return a.ms < b.ms ? -1 : 1;
    return (a.seq > b.seq) - (a.seq < b.seq);
}
