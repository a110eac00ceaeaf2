/* msgpack.h - pulls values out of MessagePack bytes from anywhere, one at a time, without building anything. A container is announced with
 * its count, its members follow. Every length is checked against the bytes that are left. Pure.
 * Source: the MessagePack specification (msgpack.org, spec.md). */
#ifndef DEJA_BASE_MSGPACK_H
#define DEJA_BASE_MSGPACK_H
#include "base/str.h"

struct msgpack {
    const uint8_t *p, *end;
};
enum msgpack_kind {
    MSGPACK_NIL,
    MSGPACK_BOOL,
    MSGPACK_INT,
    MSGPACK_FLOAT,
    MSGPACK_STR,
    MSGPACK_BIN,
    MSGPACK_EXT,
    MSGPACK_ARRAY,
    MSGPACK_MAP
};
struct msgpack_value {
    enum msgpack_kind kind;
    bool negative;    /* INT: number is its two's complement then */
    uint64_t number;  /* INT; BOOL: 0 or 1 */
    double real;      /* FLOAT */
    struct str bytes; /* STR, BIN, EXT: borrowed from the input */
    uint32_t n;       /* ARRAY: members, MAP: pairs; they follow. Never more than bytes are left */
};

struct msgpack msgpack_of(struct str bytes);
/* ERR_CORRUPT: cut off, or no MessagePack; m stays where it was. */
MUST enum err msgpack_next(struct msgpack *m, struct msgpack_value *out);
/* Passes over one value with all that is in it. */
MUST enum err msgpack_skip(struct msgpack *m);

#endif
