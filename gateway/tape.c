/* tape.c - see tape.h. */
#include "gateway/tape.h"

void tape_init(struct tape *t, size_t bytes_max)
{
    *t = (struct tape){0};
    buf_init(&t->bytes, bytes_max);
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
    buf_str(&t->bytes, frames);
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
