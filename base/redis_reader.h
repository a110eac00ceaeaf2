/* redis_reader.h - private to redis*.c: bytes from Redis -> struct redis_reply (hiredis' protocol reader with our own objects), and a
 * command -> bytes. Pure. hiredis' asynchronous context is not used: it frees itself on some failures, asserts on a reply nobody asked
 * for, has no deadlines, and resolves names on the loop.
 * Bounded: a reply's bytes and its number of elements; a peer that sends more, or no RESP2, is refused. */
#ifndef DEJA_BASE_REDIS_READER_H
#define DEJA_BASE_REDIS_READER_H
#include "base/buf.h"
#include "base/redis.h"

struct redis_reader;
struct redis_reader *redis_reader_new(size_t reply_bytes_max, size_t elements_max);
void redis_reader_free(struct redis_reader *r);
/* Calls on_reply for each complete reply (borrowed during the call). A false from it stops at once with ERR_CANCELLED, and the reader is
 * not touched again, so it may have been freed meanwhile. ERR_CORRUPT: not RESP2 or over a bound; the reader is of no more use. */
MUST enum err redis_reader_feed(struct redis_reader *r, struct str bytes,
                                bool (*on_reply)(void *arg, const struct redis_reply *reply),
                                void *arg, struct errmsg *e);

/* Appends the command in RESP form. */
void redis_write_command(struct buf *out, int argc, const struct str *argv);

/* "1526919030474-55" as two numbers; ERR_INVALID. */
struct redis_id {
    uint64_t ms, seq;
};
MUST enum err redis_id_parse(struct str text, struct redis_id *out);
int redis_id_compare(struct redis_id a, struct redis_id b);

#endif
