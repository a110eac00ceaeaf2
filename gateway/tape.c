/* tape.c - see tape.h. */
#include "gateway/tape.h"

enum { FIRST_BYTES = 4000 }; /* of room, for what comes with the first read */

void tape_init(struct tape *t, size_t bytes_max)
{
    *t = (struct tape){0};
    buf_init(&t->bytes, bytes_max);
}

static void make_room(struct tape *t)
{
    if (!t->bytes.cap && t->bytes.max > FIRST_BYTES) buf_reserve(&t->bytes, FIRST_BYTES);
}

void tape_fini(struct tape *t)
{
    buf_fini(&t->bytes);
}

size_t tape_end(const struct tape *t)
{
    return t->base + t->bytes.n;
}

enum err tape_add(struct tape *t, struct str frames)
{
    ASSERT(!t->ended);
    make_room(t);
    buf_str(&t->bytes, frames);
    return buf_failed(&t->bytes) ? ERR_TOO_LARGE : OK;
}

enum err tape_add_data(struct tape *t, struct str data)
{
    ASSERT(!t->ended);
    make_room(t);
    buf_str(&t->bytes, STR("data: "));
    buf_str(&t->bytes, data);
    buf_str(&t->bytes, STR("\n\n"));
    return buf_failed(&t->bytes) ? ERR_TOO_LARGE : OK;
}

enum err tape_add_usage(struct tape *t, struct str frames)
{
    if (t->usage_to > t->usage_from) return OK;
    size_t from = tape_end(t);
    enum err code = tape_add(t, frames);
    if (code != OK) return code;
    t->usage_from = from;
    t->usage_to = tape_end(t);
    return OK;
}

struct str tape_piece(const struct tape *t, size_t *pos, bool want_usage, size_t piece_max)
{
    ASSERT(*pos >= t->base);
    bool marked = t->usage_to > t->usage_from && !want_usage;
    if (marked && *pos >= t->usage_from && *pos < t->usage_to) *pos = t->usage_to;
    size_t end = tape_end(t);
    if (marked && *pos < t->usage_from && end > t->usage_from) end = t->usage_from;
    size_t n = end - *pos;
    if (n > piece_max) n = piece_max;
    return (struct str){t->bytes.p ? t->bytes.p + (*pos - t->base) : NULL, n};
}

void tape_drop(struct tape *t, size_t pos)
{
    if (pos <= t->base) return;
    ASSERT(pos <= tape_end(t));
    buf_consume(&t->bytes, pos - t->base);
    t->base = pos;
}
