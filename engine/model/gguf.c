/* gguf.c - opening and checking; the typed getters are in gguf_get.c. See gguf.h.
 * Order of the checks: magic, version, counts (against the bytes left, since the smallest pair takes 13 bytes and the
 * smallest tensor description 32), every key and value, duplicate keys, alignment, every tensor description, then
 * where the tensors lie. */
#include "engine/model/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "engine/model/gguf_private.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file's numbers are read in place");

enum {
    VERSION_MIN = 2,
    VERSION_MAX = 3,
    KEY_BYTES_MAX = 65535, /* the format's own limit */
    NAME_BYTES_MAX = 127,  /* the format says 64; some writers go beyond */
    ENTRIES_MAX = 1 << 20, /* keys, and tensors: 100 times what the largest models have */
    ALIGNMENT_MAX = 1 << 20,
    PAIR_BYTES_MIN = 13, /* u64 length of an empty key, u32 type, one byte */
    TENSOR_BYTES_MIN =
        32, /* u64 length of an empty name, u32 n_dims, one u64, u32 type, u64 offset */
};

static const uint8_t type_bytes[GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* The bytes not read yet. All take_* refuse to pass the end. */
struct reader {
    const uint8_t *p, *end;
};

static size_t left(const struct reader *r)
{
    return (size_t)(r->end - r->p);
}

static bool take(struct reader *r, void *out, size_t n)
{
    if (left(r) < n) return false;
    memcpy(out, r->p, n);
    r->p += n;
    return true;
}

static bool take_str(struct reader *r, struct str *out)
{
    uint64_t n;
    if (!take(r, &n, 8) || n > left(r)) return false;
    *out = (struct str){(const char *)r->p, (size_t)n};
    r->p += n;
    return true;
}

const char *gguf_printable(struct str s, char *out, size_t cap)
{
    ASSERT(cap >= 4);
    size_t n = s.n < cap - 1 ? s.n : cap - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = s.p[i] >= 0x20 && s.p[i] < 0x7f ? s.p[i] : '?';
    if (n < s.n) out[n - 1] = out[n - 2] = '.';
    out[n] = 0;
    return out;
}

/* Keys and tensor names: no control characters, and text. */
static bool is_name(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f) return false;
    return s.n > 0 && utf8_valid(s);
}

static int str_order(struct str a, struct str b)
{
    int c = memcmp(a.p, b.p, a.n < b.n ? a.n : b.n);
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static int pair_order(const void *a, const void *b)
{
    return str_order(((const struct gguf_pair *)a)->key, ((const struct gguf_pair *)b)->key);
}

static int tensor_name_order(const void *a, const void *b)
{
    return str_order(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

static int tensor_place_order(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a,
                             *y = *(const struct gguf_tensor *const *)b;
    return ((const char *)x->bytes > (const char *)y->bytes) -
           ((const char *)x->bytes < (const char *)y->bytes);
}

static enum err read_array(struct reader *r, struct gguf_pair *pair, const char *key,
                           struct errmsg *e)
{
    uint32_t type;
    uint64_t n;
    if (!take(r, &type, 4) || !take(r, &n, 8))
        return err_set(e, ERR_CORRUPT, "%s: the file ends inside the array", key);
    if (type == GGUF_ARRAY)
        return err_set(e, ERR_UNSUPPORTED, "%s: an array of arrays is not supported", key);
    if (type >= GGUF_TYPES)
        return err_set(e, ERR_CORRUPT, "%s: array of unknown element type %u, known are 0 to %d",
                       key, type, GGUF_TYPES - 1);
    size_t bytes_min = type == GGUF_STRING ? 8 : type_bytes[type];
    if (n > left(r) / bytes_min)
        return err_set(e, ERR_CORRUPT,
                       "%s: array of %llu elements, but only %zu bytes are left in the file", key,
                       (unsigned long long)n, left(r));
    pair->element = type;
    pair->n = (size_t)n;
    pair->value = r->p;
    if (type != GGUF_STRING) {
        r->p += pair->n * type_bytes[type];
        return OK;
    }
    struct str s;
    for (size_t i = 0; i < pair->n; i++)
        if (!take_str(r, &s))
            return err_set(e, ERR_CORRUPT, "%s[%zu]: the string is longer than the file", key, i);
    return OK;
}

static enum err read_pair(struct reader *r, size_t pair_i, struct gguf_pair *pair, struct errmsg *e)
{
    char key[72];
    uint32_t type;
    if (!take_str(r, &pair->key))
        return err_set(e, ERR_CORRUPT, "metadata key %zu: its length passes the end of the file",
                       pair_i);
    gguf_printable(pair->key, key, sizeof key);
    if (pair->key.n > KEY_BYTES_MAX)
        return err_set(e, ERR_CORRUPT, "metadata key %zu (%s): %zu bytes long, the limit is %d",
                       pair_i, key, pair->key.n, KEY_BYTES_MAX);
    if (!is_name(pair->key))
        return err_set(e, ERR_CORRUPT,
                       "metadata key %zu (%s): must be text without control characters", pair_i,
                       key);
    if (!take(r, &type, 4))
        return err_set(e, ERR_CORRUPT, "%s: the file ends before the value's type", key);
    if (type >= GGUF_TYPES)
        return err_set(e, ERR_CORRUPT, "%s: unknown value type %u, known are 0 to %d", key, type,
                       GGUF_TYPES - 1);
    pair->type = type;
    if (type == GGUF_ARRAY) return read_array(r, pair, key, e);
    pair->value = r->p;
    pair->n = 1;
    if (type == GGUF_STRING) {
        struct str s;
        if (!take_str(r, &s))
            return err_set(e, ERR_CORRUPT, "%s: the string is longer than the file", key);
        return OK;
    }
    if (left(r) < type_bytes[type])
        return err_set(e, ERR_CORRUPT, "%s: the file ends before the value", key);
    if (type == GGUF_BOOL && *r->p > 1)
        return err_set(e, ERR_CORRUPT, "%s: a bool must be 0 or 1, not %d", key, *r->p);
    r->p += type_bytes[type];
    return OK;
}

static enum err read_pairs(struct gguf *g, struct reader *r, struct errmsg *e)
{
    for (size_t i = 0; i < g->n_pairs; i++) {
        enum err code = read_pair(r, i, &g->pairs[i], e);
        if (code) return code;
    }
    qsort(g->pairs, g->n_pairs, sizeof *g->pairs, pair_order);
    for (size_t i = 1; i < g->n_pairs; i++) {
        char key[72];
        if (str_eq(g->pairs[i - 1].key, g->pairs[i].key))
            return err_set(e, ERR_CORRUPT, "%s: the key is there twice",
                           gguf_printable(g->pairs[i].key, key, sizeof key));
    }
    return OK;
}

/* n_bytes of a tensor whose dims and type are known; false when it passes size_t. */
static bool tensor_size(struct gguf_tensor *t)
{
    int64_t rows;
    if (__builtin_mul_overflow(t->dims[1], t->dims[2], &rows) ||
        __builtin_mul_overflow(rows, t->dims[3], &rows))
        return false;
    if (t->dims[0] > INT64_MAX / 8)
        return false; /* 8 bytes an element is more than any type takes */
    return !__builtin_mul_overflow((size_t)rows, tensor_row_bytes(t->type, t->dims[0]),
                                   &t->n_bytes);
}

static enum err read_tensor(struct reader *r, size_t tensor_i, struct gguf_tensor *t,
                            uint64_t *offset, struct errmsg *e)
{
    char name[72];
    uint32_t n_dims, type;
    if (!take_str(r, &t->name))
        return err_set(e, ERR_CORRUPT, "tensor %zu: its name passes the end of the file", tensor_i);
    gguf_printable(t->name, name, sizeof name);
    if (t->name.n > NAME_BYTES_MAX)
        return err_set(e, ERR_CORRUPT, "tensor %zu (%s): name of %zu bytes, the limit is %d",
                       tensor_i, name, t->name.n, NAME_BYTES_MAX);
    if (!is_name(t->name))
        return err_set(e, ERR_CORRUPT,
                       "tensor %zu (%s): name must be text without control characters", tensor_i,
                       name);
    if (!take(r, &n_dims, 4))
        return err_set(e, ERR_CORRUPT, "tensor %s: the file ends in its description", name);
    if (n_dims < 1 || n_dims > 4)
        return err_set(e, ERR_CORRUPT, "tensor %s: %u dimensions, must be 1 to 4", name, n_dims);
    t->n_dims = (int)n_dims;
    for (int d = 0; d < 4; d++) {
        t->dims[d] = 1;
        if (d < t->n_dims && !take(r, &t->dims[d], 8))
            return err_set(e, ERR_CORRUPT, "tensor %s: the file ends in its dimensions", name);
        if (t->dims[d] < 1)
            return err_set(e, ERR_CORRUPT, "tensor %s: dimension %d is %lld, must be at least 1",
                           name, d, (long long)t->dims[d]);
    }
    if (!take(r, &type, 4) || !take(r, offset, 8))
        return err_set(e, ERR_CORRUPT, "tensor %s: the file ends in its description", name);
    if (!tensor_type_known(type))
        return err_set(
            e, ERR_UNSUPPORTED,
            "tensor %s: type %u (%s) is not supported; F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, "
            "Q8_0, Q4_K, Q5_K, Q6_K are",
            name, type, tensor_type_name(type));
    t->type = type;
    if (t->dims[0] % tensor_type_block(t->type))
        return err_set(e, ERR_CORRUPT,
                       "tensor %s: row length %lld is not a multiple of %d, the block of %s", name,
                       (long long)t->dims[0], tensor_type_block(t->type), tensor_type_name(type));
    if (!tensor_size(t))
        return err_set(e, ERR_CORRUPT, "tensor %s: its size passes 2^64 bytes", name);
    return OK;
}

/* Offsets become addresses once the data's start is known. */
static enum err place_tensors(struct gguf *g, const uint64_t *offsets, size_t data_at,
                              uint32_t alignment, struct errmsg *e)
{
    char name[72];
    size_t data_bytes = g->n_bytes - data_at;
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        gguf_printable(t->name, name, sizeof name);
        if (offsets[i] % alignment)
            return err_set(e, ERR_CORRUPT,
                           "tensor %s: offset %llu is not a multiple of general.alignment %u", name,
                           (unsigned long long)offsets[i], alignment);
        if (offsets[i] > data_bytes || t->n_bytes > data_bytes - (size_t)offsets[i])
            return err_set(
                e, ERR_CORRUPT,
                "tensor %s: %zu bytes at offset %llu pass the end of the data (%zu bytes); is the "
                "file cut off?",
                name, t->n_bytes, (unsigned long long)offsets[i], data_bytes);
        t->bytes = g->bytes + data_at + offsets[i];
    }
    const struct gguf_tensor **by_place =
        try_calloc(g->n_tensors ? g->n_tensors : 1, sizeof *by_place);
    if (!by_place) return err_set(e, ERR_FULL, "no memory for %zu tensors", g->n_tensors);
    for (size_t i = 0; i < g->n_tensors; i++)
        by_place[i] = &g->tensors[i];
    qsort(by_place, g->n_tensors, sizeof *by_place, tensor_place_order);
    enum err code = OK;
    for (size_t i = 1; i < g->n_tensors && !code; i++) {
        const struct gguf_tensor *a = by_place[i - 1], *b = by_place[i];
        char other[72];
        if ((const char *)a->bytes + a->n_bytes > (const char *)b->bytes)
            code = err_set(e, ERR_CORRUPT, "tensors %s and %s overlap",
                           gguf_printable(a->name, name, sizeof name),
                           gguf_printable(b->name, other, sizeof other));
    }
    mem_free(by_place);
    return code;
}

static enum err read_tensors(struct gguf *g, struct reader *r, struct errmsg *e)
{
    uint32_t alignment = 32;
    enum err code = gguf_u32_opt(g, "general.alignment", &alignment, e);
    if (code) return code;
    if (alignment < 1 || alignment > ALIGNMENT_MAX || (alignment & (alignment - 1)))
        return err_set(e, ERR_CORRUPT, "general.alignment: %u must be a power of two, at most %d",
                       alignment, ALIGNMENT_MAX);
    uint64_t *offsets = try_calloc(g->n_tensors ? g->n_tensors : 1, sizeof *offsets);
    if (!offsets) return err_set(e, ERR_FULL, "no memory for %zu tensors", g->n_tensors);
    for (size_t i = 0; i < g->n_tensors && !code; i++)
        code = read_tensor(r, i, &g->tensors[i], &offsets[i], e);
    if (!code) {
        size_t at = (size_t)(r->p - g->bytes),
               data_at = (at + alignment - 1) / alignment * alignment;
        if (data_at > g->n_bytes && g->n_tensors)
            code = err_set(e, ERR_CORRUPT, "the file ends before the tensor data; is it cut off?");
        else if (g->n_tensors)
            code = place_tensors(g, offsets, data_at, alignment, e);
    }
    mem_free(offsets);
    if (code) return code;
    qsort(g->tensors, g->n_tensors, sizeof *g->tensors, tensor_name_order);
    for (size_t i = 1; i < g->n_tensors; i++) {
        char name[72];
        if (str_eq(g->tensors[i - 1].name, g->tensors[i].name))
            return err_set(e, ERR_CORRUPT, "tensor %s: the name is there twice",
                           gguf_printable(g->tensors[i].name, name, sizeof name));
    }
    return OK;
}

static enum err read_counts(struct reader *r, uint64_t *n_tensors, uint64_t *n_pairs,
                            struct errmsg *e)
{
    char magic[4];
    uint32_t version;
    if (!take(r, magic, 4) || memcmp(magic, "GGUF", 4))
        return err_set(e, ERR_CORRUPT, "not a GGUF file: it does not start with \"GGUF\"");
    if (!take(r, &version, 4)) return err_set(e, ERR_CORRUPT, "the file ends after its magic");
    if (version < VERSION_MIN || version > VERSION_MAX)
        return err_set(e, ERR_UNSUPPORTED,
                       "GGUF version %u is not supported; versions 2 and 3, little endian, are",
                       version);
    if (!take(r, n_tensors, 8) || !take(r, n_pairs, 8))
        return err_set(e, ERR_CORRUPT, "the file ends in its header");
    if (*n_pairs > left(r) / PAIR_BYTES_MIN || *n_pairs > ENTRIES_MAX)
        return err_set(e, ERR_CORRUPT,
                       "header: %llu metadata keys do not fit into the %zu bytes that follow",
                       (unsigned long long)*n_pairs, left(r));
    if (*n_tensors > left(r) / TENSOR_BYTES_MIN || *n_tensors > ENTRIES_MAX)
        return err_set(e, ERR_CORRUPT,
                       "header: %llu tensors do not fit into the %zu bytes that follow",
                       (unsigned long long)*n_tensors, left(r));
    return OK;
}

static enum err parse(struct gguf *g, struct errmsg *e)
{
    struct reader r = {g->bytes, g->bytes + g->n_bytes};
    uint64_t n_tensors = 0, n_pairs = 0;
    enum err code = read_counts(&r, &n_tensors, &n_pairs, e);
    if (code) return code;
    g->n_pairs = (size_t)n_pairs;
    g->n_tensors = (size_t)n_tensors;
    g->pairs = try_calloc(g->n_pairs ? g->n_pairs : 1, sizeof *g->pairs);
    g->tensors = try_calloc(g->n_tensors ? g->n_tensors : 1, sizeof *g->tensors);
    if (!g->pairs || !g->tensors)
        return err_set(e, ERR_FULL, "no memory for the file's table of contents");
    if ((code = read_pairs(g, &r, e))) return code;
    g->metadata_end = (size_t)(r.p - g->bytes);
    return read_tensors(g, &r, e);
}

enum err gguf_from_bytes(struct gguf **out, const void *bytes, size_t n, struct errmsg *e)
{
    *out = NULL;
    struct gguf *g = xcalloc(1, sizeof *g);
    g->bytes = bytes;
    g->n_bytes = n;
    enum err code = parse(g, e);
    if (code) {
        gguf_close(g);
        return code;
    }
    *out = g;
    return OK;
}

enum err gguf_open(struct gguf **out, const char *path, struct errmsg *e)
{
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0) return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    enum err code = OK;
    if (fstat(fd, &st))
        code = err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        code = err_set(e, ERR_IO, "%s: not a regular file", path);
    else if (st.st_size == 0)
        code = err_set(e, ERR_CORRUPT, "%s: the file is empty", path);
    void *map = code ? MAP_FAILED : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (!code && map == MAP_FAILED)
        code = err_set(e, ERR_IO, "%s: cannot be mapped: %s", path, strerror(errno));
    close(fd);
    if (code) return code;
    (void)madvise(map, (size_t)st.st_size, MADV_WILLNEED);
    code = gguf_from_bytes(out, map, (size_t)st.st_size, e);
    if (code) {
        munmap(map, (size_t)st.st_size);
        return err_prefix(e, code, "%s", path);
    }
    (*out)->mapped = true;
    return OK;
}

void gguf_close(struct gguf *g)
{
    if (!g) return;
    if (g->mapped) munmap((void *)g->bytes, g->n_bytes);
    mem_free(g->pairs);
    mem_free(g->tensors);
    mem_free(g);
}

void gguf_write_metadata(const struct gguf *g, struct buf *out)
{
    static const char no_tensors[8];
    const char *p = (const char *)g->bytes;
    buf_str(out, (struct str){p, 8}); /* magic, version */
    buf_str(out, (struct str){no_tensors, sizeof no_tensors});
    buf_str(out, (struct str){p + 16, g->metadata_end - 16});
}

void gguf_release_pages(const struct gguf *g)
{
    if (g->mapped) (void)madvise((void *)g->bytes, g->n_bytes, MADV_DONTNEED);
}
