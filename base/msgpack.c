/* msgpack.c - see msgpack.h. */
#include "base/msgpack.h"

#include <string.h>

struct msgpack msgpack_of(struct str bytes)
{
    const uint8_t *p = (const uint8_t *)bytes.p;
    return (struct msgpack){p, p + bytes.n};
}

static size_t left(const struct msgpack *m)
{
    return (size_t)(m->end - m->p);
}

/* A big-endian number of n bytes. False: cut off. */
static bool take(struct msgpack *m, int n, uint64_t *out)
{
    if (left(m) < (size_t)n) return false;
    *out = 0;
    for (int i = 0; i < n; i++)
        *out = *out << 8 | *m->p++;
    return true;
}

static bool take_bytes(struct msgpack *m, enum msgpack_kind kind, uint64_t n,
                       struct msgpack_value *out)
{
    if (n > left(m)) return false;
    out->kind = kind;
    out->bytes = (struct str){(const char *)m->p, (size_t)n};
    m->p += n;
    return true;
}

static bool take_sized(struct msgpack *m, enum msgpack_kind kind, int n_length, int extra,
                       struct msgpack_value *out)
{
    uint64_t n;
    return take(m, n_length, &n) && take_bytes(m, kind, n + (uint64_t)extra, out);
}

static bool take_count(struct msgpack *m, enum msgpack_kind kind, uint64_t n,
                       struct msgpack_value *out)
{
    uint64_t least = kind == MSGPACK_MAP ? 2 * n : n; /* a member has a byte at least */
    out->kind = kind;
    out->n = (uint32_t)n;
    return least <= left(m);
}

static bool take_signed(struct msgpack *m, int n, struct msgpack_value *out)
{
    uint64_t v;
    if (!take(m, n, &v)) return false;
    out->kind = MSGPACK_INT;
    out->negative = v >> (8 * n - 1) & 1;
    out->number = out->negative && n < 8 ? v | UINT64_MAX << (8 * n) : v;
    return true;
}

static bool take_float(struct msgpack *m, int n, struct msgpack_value *out)
{
    uint64_t v;
    if (!take(m, n, &v)) return false;
    out->kind = MSGPACK_FLOAT;
    if (n == 8) {
        memcpy(&out->real, &v, sizeof v);
    } else {
        uint32_t half = (uint32_t)v;
        float f;
        memcpy(&f, &half, sizeof f);
        out->real = (double)f;
    }
    return true;
}

static bool take_unsigned(struct msgpack *m, int n, struct msgpack_value *out)
{
    out->kind = MSGPACK_INT;
    return take(m, n, &out->number);
}

static bool take_counted(struct msgpack *m, enum msgpack_kind kind, int n_length,
                         struct msgpack_value *out)
{
    uint64_t n;
    return take(m, n_length, &n) && take_count(m, kind, n, out);
}

/* Tags from 0xc0 to 0xdf. */
static bool take_tagged(struct msgpack *m, uint8_t tag, struct msgpack_value *out)
{
    switch (tag) {
    case 0xc0:
        out->kind = MSGPACK_NIL;
        return true;
    case 0xc2:
    case 0xc3:
        out->kind = MSGPACK_BOOL;
        out->number = tag & 1;
        return true;
    case 0xc4:
    case 0xc5:
    case 0xc6:
        return take_sized(m, MSGPACK_BIN, 1 << (tag - 0xc4), 0, out);
    case 0xc7:
    case 0xc8:
    case 0xc9:
        return take_sized(m, MSGPACK_EXT, 1 << (tag - 0xc7), 1, out);
    case 0xca:
    case 0xcb:
        return take_float(m, tag == 0xca ? 4 : 8, out);
    case 0xd9:
    case 0xda:
    case 0xdb:
        return take_sized(m, MSGPACK_STR, 1 << (tag - 0xd9), 0, out);
    case 0xdc:
    case 0xdd:
        return take_counted(m, MSGPACK_ARRAY, tag == 0xdc ? 2 : 4, out);
    case 0xde:
    case 0xdf:
        return take_counted(m, MSGPACK_MAP, tag == 0xde ? 2 : 4, out);
    default:
        break;
    }
    if (tag >= 0xcc && tag <= 0xcf) return take_unsigned(m, 1 << (tag - 0xcc), out);
    if (tag >= 0xd0 && tag <= 0xd3) return take_signed(m, 1 << (tag - 0xd0), out);
    if (tag >= 0xd4 && tag <= 0xd8)
        return take_bytes(m, MSGPACK_EXT, (1u << (tag - 0xd4)) + 1, out);
    return false; /* 0xc1 */
}

static bool take_any(struct msgpack *m, struct msgpack_value *out)
{
    if (!left(m)) return false;
    uint8_t tag = *m->p++;
    if (tag < 0x80) {
        out->kind = MSGPACK_INT;
        out->number = tag;
        return true;
    }
    if (tag < 0x90) return take_count(m, MSGPACK_MAP, tag & 15, out);
    if (tag < 0xa0) return take_count(m, MSGPACK_ARRAY, tag & 15, out);
    if (tag < 0xc0) return take_bytes(m, MSGPACK_STR, tag & 31, out);
    if (tag < 0xe0) return take_tagged(m, tag, out);
    out->kind = MSGPACK_INT;
    out->negative = true;
    out->number = (uint64_t)(int64_t)(int8_t)tag;
    return true;
}

enum err msgpack_next(struct msgpack *m, struct msgpack_value *out)
{
    struct msgpack at = *m;
    *out = (struct msgpack_value){0};
    if (!take_any(&at, out)) return ERR_CORRUPT;
    *m = at;
    return OK;
}

enum err msgpack_skip(struct msgpack *m)
{
    struct msgpack at = *m;
    for (uint64_t pending = 1; pending; pending--) {
        struct msgpack_value v;
        if (msgpack_next(&at, &v) != OK) return ERR_CORRUPT;
        if (v.kind == MSGPACK_ARRAY) pending += v.n;
        if (v.kind == MSGPACK_MAP) pending += 2 * (uint64_t)v.n;
        if (pending > left(&at) + 1) return ERR_CORRUPT; /* a value has a byte at least */
    }
    *m = at;
    return OK;
}
