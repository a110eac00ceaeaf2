/* gguf_get.c - typed reads of what gguf.c has checked. See gguf.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model/gguf.h"
#include "engine/model/gguf_private.h"

static const char *const type_names[GGUF_TYPES] = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
static const char *const array_names[GGUF_TYPES] = {
    "array of u8",  "array of i8",  "array of u16",  "array of i16",    "array of u32",
    "array of i32", "array of f32", "array of bool", "array of string", "array of arrays",
    "array of u64", "array of i64", "array of f64"};

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    ASSERT(i < g->n_tensors);
    return &g->tensors[i];
}

struct str gguf_file_bytes(const struct gguf *g)
{
    return (struct str){(const char *)g->bytes, g->n_bytes};
}

/* <0, 0, >0 as a name sorts before, at, after an entry, which begins with its own. */
static int name_order(const void *name, const void *entry)
{
    struct str s = *(const struct str *)entry;
    size_t n = strlen(name);
    int c = memcmp(name, s.p, n < s.n ? n : s.n);
    return c ? c : (n > s.n) - (n < s.n);
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name)
{
    if (!g->n_tensors) return NULL;
    return bsearch(name, g->tensors, g->n_tensors, sizeof *g->tensors, name_order);
}

static const struct gguf_pair *find(const struct gguf *g, const char *key)
{
    if (!g->n_pairs) return NULL;
    return bsearch(key, g->pairs, g->n_pairs, sizeof *g->pairs, name_order);
}

bool gguf_has(const struct gguf *g, const char *key)
{
    return find(g, key) != NULL;
}

static const char *pair_type_name(const struct gguf_pair *pair)
{
    return pair->type == GGUF_ARRAY ? array_names[pair->element] : type_names[pair->type];
}

const char *gguf_type_name(const struct gguf *g, const char *key)
{
    const struct gguf_pair *pair = find(g, key);
    return pair ? pair_type_name(pair) : "nothing";
}

static enum err missing(const char *key, struct errmsg *e)
{
    return err_set(e, ERR_NOT_FOUND, "%s: the key is missing", key);
}

static enum err wrong_type(const char *key, const char *want, const struct gguf_pair *pair,
                           struct errmsg *e)
{
    return err_set(e, ERR_INVALID, "%s: must be %s, the file has %s", key, want,
                   pair_type_name(pair));
}

/* The integer at p as sign and magnitude, since u64 and i64 share no C type. False: not an integer type. */
static bool integer_at(enum gguf_type type, const uint8_t *p, bool *negative, uint64_t *magnitude)
{
    uint64_t u = 0;
    int64_t i = 0;
    *negative = false;
    switch (type) {
    case GGUF_U8:
        u = p[0];
        break;
    case GGUF_U16:
        memcpy(&u, p, 2);
        break; /* little endian: the low bytes */
    case GGUF_U32:
        memcpy(&u, p, 4);
        break;
    case GGUF_U64:
        memcpy(&u, p, 8);
        break;
    case GGUF_I8:
        i = (int8_t)p[0];
        break;
    case GGUF_I16:
        i = (int16_t)(p[0] | p[1] << 8);
        break;
    case GGUF_I32: {
        int32_t v;
        memcpy(&v, p, 4);
        i = v;
        break;
    }
    case GGUF_I64:
        memcpy(&i, p, 8);
        break;
    default:
        return false;
    }
    *negative = i < 0;
    *magnitude = i < 0 ? 0 - (uint64_t)i : i > 0 ? (uint64_t)i : u;
    return true;
}

enum err gguf_u32(const struct gguf *g, const char *key, uint32_t *out, struct errmsg *e)
{
    const struct gguf_pair *pair = find(g, key);
    bool negative;
    uint64_t v;
    if (!pair) return missing(key, e);
    if (!integer_at(pair->type, pair->value, &negative, &v))
        return wrong_type(key, "an integer", pair, e);
    if (negative || v > UINT32_MAX)
        return err_set(e, ERR_INVALID, "%s: %s%llu must lie between 0 and 4294967295", key,
                       negative ? "-" : "", (unsigned long long)v);
    *out = (uint32_t)v;
    return OK;
}

static bool float_at(enum gguf_type type, const uint8_t *p, double *out)
{
    float f;
    if (type == GGUF_F32) {
        memcpy(&f, p, 4);
        *out = (double)f;
    } else if (type == GGUF_F64) {
        memcpy(out, p, 8);
    } else {
        return false;
    }
    return true;
}

enum err gguf_f32(const struct gguf *g, const char *key, float *out, struct errmsg *e)
{
    const struct gguf_pair *pair = find(g, key);
    double v;
    if (!pair) return missing(key, e);
    if (!float_at(pair->type, pair->value, &v)) return wrong_type(key, "f32 or f64", pair, e);
    if (!isfinite((float)v)) return err_set(e, ERR_INVALID, "%s: must be a finite number", key);
    *out = (float)v;
    return OK;
}

enum err gguf_bool(const struct gguf *g, const char *key, bool *out, struct errmsg *e)
{
    const struct gguf_pair *pair = find(g, key);
    if (!pair) return missing(key, e);
    if (pair->type != GGUF_BOOL) return wrong_type(key, "bool", pair, e);
    *out = *pair->value;
    return OK;
}

static struct str str_at(const uint8_t *p)
{
    uint64_t n;
    memcpy(&n, p, 8);
    return (struct str){(const char *)p + 8, (size_t)n};
}

enum err gguf_str(const struct gguf *g, const char *key, struct str *out, struct errmsg *e)
{
    const struct gguf_pair *pair = find(g, key);
    if (!pair) return missing(key, e);
    if (pair->type != GGUF_STRING) return wrong_type(key, "string", pair, e);
    *out = str_at(pair->value);
    return OK;
}

enum err gguf_u32_opt(const struct gguf *g, const char *key, uint32_t *out, struct errmsg *e)
{
    return gguf_has(g, key) ? gguf_u32(g, key, out, e) : OK;
}

enum err gguf_f32_opt(const struct gguf *g, const char *key, float *out, struct errmsg *e)
{
    return gguf_has(g, key) ? gguf_f32(g, key, out, e) : OK;
}

enum err gguf_bool_opt(const struct gguf *g, const char *key, bool *out, struct errmsg *e)
{
    return gguf_has(g, key) ? gguf_bool(g, key, out, e) : OK;
}

enum err gguf_str_opt(const struct gguf *g, const char *key, struct str *out, struct errmsg *e)
{
    return gguf_has(g, key) ? gguf_str(g, key, out, e) : OK;
}

/* The array under key and memory for its elements. The count was checked against the file's size, so it is honest. */
static enum err array_open(const struct gguf *g, const char *key, size_t element_bytes,
                           const struct gguf_pair **pair, void **elements, struct errmsg *e)
{
    *pair = find(g, key);
    *elements = NULL;
    if (!*pair) return missing(key, e);
    if ((*pair)->type != GGUF_ARRAY) return wrong_type(key, "an array", *pair, e);
    if ((*pair)->n == 0) return OK;
    *elements = try_calloc((*pair)->n, element_bytes);
    return *elements ? OK : err_set(e, ERR_FULL, "%s: no memory for %zu elements", key, (*pair)->n);
}

enum err gguf_str_array(const struct gguf *g, const char *key, struct str **out, size_t *n,
                        struct errmsg *e)
{
    const struct gguf_pair *pair;
    void *elements;
    enum err code = array_open(g, key, sizeof(struct str), &pair, &elements, e);
    if (code) return code;
    if (pair->element != GGUF_STRING) {
        mem_free(elements);
        return wrong_type(key, "array of string", pair, e);
    }
    struct str *list = elements;
    const uint8_t *p = pair->value;
    for (size_t i = 0; i < pair->n; i++) {
        list[i] = str_at(p);
        p += 8 + list[i].n;
    }
    *out = list;
    *n = pair->n;
    return OK;
}

static const size_t element_bytes[GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

enum err gguf_i32_array(const struct gguf *g, const char *key, int32_t **out, size_t *n,
                        struct errmsg *e)
{
    const struct gguf_pair *pair;
    void *elements;
    enum err code = array_open(g, key, sizeof(int32_t), &pair, &elements, e);
    if (code) return code;
    int32_t *list = elements;
    for (size_t i = 0; i < pair->n; i++) {
        bool negative;
        uint64_t v;
        if (!integer_at(pair->element, pair->value + i * element_bytes[pair->element], &negative,
                        &v)) {
            mem_free(elements);
            return wrong_type(key, "array of integers", pair, e);
        }
        if (v > (uint64_t)INT32_MAX + negative) {
            mem_free(elements);
            return err_set(e, ERR_INVALID, "%s[%zu]: does not fit into 32 bits", key, i);
        }
        list[i] = (int32_t)(negative ? -(int64_t)v : (int64_t)v);
    }
    *out = list;
    *n = pair->n;
    return OK;
}

enum err gguf_f32_array(const struct gguf *g, const char *key, float **out, size_t *n,
                        struct errmsg *e)
{
    const struct gguf_pair *pair;
    void *elements;
    enum err code = array_open(g, key, sizeof(float), &pair, &elements, e);
    if (code) return code;
    float *list = elements;
    for (size_t i = 0; i < pair->n; i++) {
        double v;
        if (!float_at(pair->element, pair->value + i * element_bytes[pair->element], &v)) {
            mem_free(elements);
            return wrong_type(key, "array of f32", pair, e);
        }
        list[i] = (float)v;
    }
    *out = list;
    *n = pair->n;
    return OK;
}

enum err gguf_bytes(const struct gguf *g, const char *key, struct str *out, struct errmsg *e)
{
    const struct gguf_pair *pair = find(g, key);
    if (!pair) return missing(key, e);
    if (pair->type != GGUF_ARRAY ||
        (pair->element != GGUF_U8 && pair->element != GGUF_I8 && pair->element != GGUF_BOOL))
        return wrong_type(key, "array of u8", pair, e);
    *out = (struct str){(const char *)pair->value, pair->n};
    return OK;
}
