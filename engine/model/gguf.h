/* gguf.h - reads a GGUF model file (versions 2 and 3, little endian): metadata by key, tensors by name.
 * Owns the mapping of the file. Every count, length, offset, type and size is checked against the bytes that are there
 * before anything is allocated or read, so that a file from anywhere may be opened; what is handed out lies inside the
 * file. Knows no architecture: what the keys must say is checked by who reads them (model_load, encoder, tokenizer_load).
 * A file cut short by somebody else while it is mapped ends the process (SIGBUS): replace model files by rename.
 * Threading: immutable after opening; any thread may read. Strings and tensors are borrowed until gguf_close.
 * Source: the GGUF specification (ggml project, docs/gguf.md). */
#ifndef DEJA_ENGINE_MODEL_GGUF_H
#define DEJA_ENGINE_MODEL_GGUF_H
#include "base/buf.h"
#include "engine/backend/quant.h"

struct gguf;

enum gguf_type { /* as stored */
                 GGUF_U8 = 0,
                 GGUF_I8,
                 GGUF_U16,
                 GGUF_I16,
                 GGUF_U32,
                 GGUF_I32,
                 GGUF_F32,
                 GGUF_BOOL,
                 GGUF_STRING,
                 GGUF_ARRAY,
                 GGUF_U64,
                 GGUF_I64,
                 GGUF_F64,
                 GGUF_TYPES /* number of types */
};

struct tensor_cut; /* shard.h */
struct gguf_tensor {
    struct str name;       /* 1..127 bytes, printable UTF-8 */
    enum tensor_type type; /* a known one */
    int n_dims;            /* 1..4 */
    int64_t dims[4];       /* dims[0] = row length, contiguous; unused ones are 1; every one >= 1 */
    const void *bytes;     /* [n_bytes] inside the file; aligned to general.alignment only */
    size_t n_bytes;        /* rows * tensor_row_bytes */
    const struct tensor_cut *
        cut; /* NULL; or which part this is of a tensor of a file: its bytes are to be had by tensor_rows */
};

/* ERR_IO: cannot be read; ERR_CORRUPT: damaged, or not GGUF; ERR_UNSUPPORTED: version or tensor type we do not read.
 * On failure *out is NULL and *e names the key, tensor or byte and what would be right. */
MUST enum err gguf_open(struct gguf **out, const char *path, struct errmsg *e);
/* The same on bytes in memory, borrowed until gguf_close, at an address that is a multiple of 8. */
MUST enum err gguf_from_bytes(struct gguf **out, const void *bytes, size_t n, struct errmsg *e);
void gguf_close(struct gguf *g); /* NULL is fine */

size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i); /* in name order */
const struct gguf_tensor *gguf_tensor(const struct gguf *g,
                                      const char *name); /* NULL when there is none */
struct str gguf_file_bytes(const struct gguf *g);
/* Appends a GGUF file with the same metadata and no tensors: enough to make a tokenizer from. */
void gguf_write_metadata(const struct gguf *g, struct buf *out);
/* Tells the kernel that the mapped pages are not needed soon (weights were copied). Everything stays readable. */
void gguf_release_pages(const struct gguf *g);

/* Metadata. ERR_NOT_FOUND: no such key; ERR_INVALID: another type, or the value does not fit. *e then says "KEY: ..." and
 * *out is untouched. Integers of any width and sign are accepted where the value fits. */
bool gguf_has(const struct gguf *g, const char *key);
MUST enum err gguf_u32(const struct gguf *g, const char *key, uint32_t *out, struct errmsg *e);
MUST enum err gguf_f32(const struct gguf *g, const char *key, float *out,
                       struct errmsg *e); /* f32 or f64, finite */
MUST enum err gguf_bool(const struct gguf *g, const char *key, bool *out, struct errmsg *e);
MUST enum err gguf_str(const struct gguf *g, const char *key, struct str *out, struct errmsg *e);
/* The same, but a missing key is fine: *out keeps the default it holds. */
MUST enum err gguf_u32_opt(const struct gguf *g, const char *key, uint32_t *out, struct errmsg *e);
MUST enum err gguf_f32_opt(const struct gguf *g, const char *key, float *out, struct errmsg *e);
MUST enum err gguf_bool_opt(const struct gguf *g, const char *key, bool *out, struct errmsg *e);
MUST enum err gguf_str_opt(const struct gguf *g, const char *key, struct str *out,
                           struct errmsg *e);

/* Arrays. *out gets n elements, free with mem_free (NULL when n is 0). The strings themselves are borrowed. */
MUST enum err gguf_str_array(const struct gguf *g, const char *key, struct str **out, size_t *n,
                             struct errmsg *e);
MUST enum err gguf_i32_array(const struct gguf *g, const char *key, int32_t **out, size_t *n,
                             struct errmsg *e);
MUST enum err gguf_f32_array(const struct gguf *g, const char *key, float **out, size_t *n,
                             struct errmsg *e);
/* An array of 8-bit integers or of bools as bytes, borrowed. */
MUST enum err gguf_bytes(const struct gguf *g, const char *key, struct str *out, struct errmsg *e);

/* "u32", "string", "array of i32".. of a key for messages; "nothing" when missing. Static text. */
const char *gguf_type_name(const struct gguf *g, const char *key);

/* Copies s into out[cap] for an error message: control and non-ASCII bytes become '?', cut with "..". Returns out. */
const char *gguf_printable(struct str s, char *out, size_t cap);

#endif
