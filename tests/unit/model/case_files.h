/* case_files.h - reading test data: whole files, lines of JSON, base64, zlib streams; and what logits say. For tests only. */
#ifndef DEJA_TESTS_CASE_FILES_H
#define DEJA_TESTS_CASE_FILES_H
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

/* The file's bytes in out; false when it cannot be read. */
static inline bool case_read_file(const char *path, struct buf *out)
{
    char piece[65536];
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        buf_add(out, piece, n);
    fclose(f);
    return !buf_failed(out);
}

static inline bool case_write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    bool ok = n == 0 || fwrite(bytes, 1, n, f) == n;
    return fclose(f) == 0 && ok;
}

/* The next line of *text as JSON, NULL at the end (free with json_decref). Aborts the test program on bad JSON. */
static inline json_t *case_next_json(struct str *text)
{
    struct str line;
    while (str_next(text, '\n', &line)) {
        if (!line.n) continue;
        json_error_t why;
        json_t *v = json_loadb(line.p, line.n, JSON_ALLOW_NUL, &why);
        if (!v) {
            printf("bad case file: %s\n", why.text);
            abort();
        }
        return v;
    }
    return NULL;
}

static inline const char *case_text(const json_t *v, const char *key)
{
    const char *s = json_string_value(json_object_get(v, key));
    return s ? s : "";
}

static inline void case_base64(const char *s, struct buf *out)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = 0, n_bits = 0;
    for (; *s && *s != '='; s++) {
        bits = bits << 6 | (unsigned)(strchr(alphabet, *s) - alphabet);
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        buf_char(out, (char)(bits >> n_bits));
    }
}

/* A small inflate (RFC 1951) for trusted test data: aborts on anything odd. */
struct inflate {
    const unsigned char *in;
    size_t n, bit;
    struct buf *out;
};
static inline unsigned inflate_bits(struct inflate *z, int n)
{
    unsigned v = 0;
    for (int i = 0; i < n; i++, z->bit++) {
        if (z->bit / 8 >= z->n) abort();
        v |= (unsigned)(z->in[z->bit / 8] >> z->bit % 8 & 1) << i;
    }
    return v;
}
struct huffman {
    int count[16], symbol[288];
};
static inline void huffman_make(struct huffman *h, const unsigned char *length, int n)
{
    int at[16] = {0};
    memset(h, 0, sizeof *h);
    for (int i = 0; i < n; i++)
        h->count[length[i]]++;
    h->count[0] = 0;
    for (int i = 1; i < 15; i++)
        at[i + 1] = at[i] + h->count[i];
    for (int i = 0; i < n; i++)
        if (length[i]) h->symbol[at[length[i]]++] = i;
}
static inline int huffman_next(struct inflate *z, const struct huffman *h)
{
    int code = 0, first = 0, index = 0;
    for (int len = 1; len < 16; len++) {
        code |= (int)inflate_bits(z, 1);
        if (code - first < h->count[len]) return h->symbol[index + code - first];
        index += h->count[len];
        first = (first + h->count[len]) << 1;
        code <<= 1;
    }
    abort();
}
static inline void inflate_codes(struct inflate *z, const struct huffman *lit,
                                 const struct huffman *dist)
{
    static const int len_base[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                   31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const int len_bits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                   2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    for (;;) {
        int s = huffman_next(z, lit);
        if (s == 256) return;
        if (s < 256) {
            buf_char(z->out, (char)s);
            continue;
        }
        int length = len_base[s - 257] + (int)inflate_bits(z, len_bits[s - 257]);
        int d = huffman_next(z, dist), bits = d < 4 ? 0 : d / 2 - 1;
        size_t back =
            d < 4 ? (size_t)d + 1 : ((size_t)(2 + d % 2) << bits) + 1 + inflate_bits(z, bits);
        if (back > z->out->n) abort();
        for (int i = 0; i < length; i++)
            buf_char(z->out, z->out->p[z->out->n - back]);
    }
}
static inline void inflate_dynamic(struct inflate *z)
{
    static const int order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    unsigned char length[320] = {0};
    struct huffman codes, lit, dist;
    int n_lit = (int)inflate_bits(z, 5) + 257, n_dist = (int)inflate_bits(z, 5) + 1,
        n_code = (int)inflate_bits(z, 4) + 4;
    for (int i = 0; i < n_code; i++)
        length[order[i]] = (unsigned char)inflate_bits(z, 3);
    huffman_make(&codes, length, 19);
    for (int i = 0; i < n_lit + n_dist;) {
        int s = huffman_next(z, &codes);
        if (s < 16) {
            length[i++] = (unsigned char)s;
            continue;
        }
        unsigned char again = s == 16 ? length[i - 1] : 0;
        int n = s == 16   ? 3 + (int)inflate_bits(z, 2)
                : s == 17 ? 3 + (int)inflate_bits(z, 3)
                          : 11 + (int)inflate_bits(z, 7);
        while (n--)
            length[i++] = again;
    }
    huffman_make(&lit, length, n_lit);
    huffman_make(&dist, length + n_lit, n_dist);
    inflate_codes(z, &lit, &dist);
}
/* zlib stream (RFC 1950) -> out. */
static inline void case_unzlib(struct str bytes, struct buf *out)
{
    struct inflate z = {(const unsigned char *)bytes.p + 2, bytes.n - 2, 0, out};
    for (bool last = false; !last;) {
        last = inflate_bits(&z, 1);
        unsigned kind = inflate_bits(&z, 2);
        if (kind == 2) {
            inflate_dynamic(&z);
        } else if (kind == 1) {
            unsigned char length[288];
            struct huffman lit, dist;
            for (int i = 0; i < 288; i++)
                length[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
            huffman_make(&lit, length, 288);
            memset(length, 5, 30);
            huffman_make(&dist, length, 30);
            inflate_codes(&z, &lit, &dist);
        } else {
            z.bit = (z.bit + 7) / 8 * 8;
            size_t n = inflate_bits(&z, 16);
            (void)inflate_bits(&z, 16);
            for (size_t i = 0; i < n; i++)
                buf_char(out, (char)inflate_bits(&z, 8));
        }
    }
}

/* The logarithm of a token's share of softmax(logits). */
static inline double case_logprob(const float *logits, int n_vocab, int32_t token)
{
    double total = 0;
    for (int i = 0; i < n_vocab; i++)
        total += exp((double)logits[i] - logits[token]);
    return -log(total);
}

/* Path of a downloaded model in the cache folder, or NULL when it is not there. Borrowed from path[512]. */
static inline const char *case_cached_model(const char *name, char path[512])
{
    const char *cache = getenv("DEJA_CACHE"), *home = getenv("HOME");
    if (cache)
        snprintf(path, 512, "%s/models/%s", cache, name);
    else
        snprintf(path, 512, "%s/.cache/deja/models/%s", home ? home : "", name);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fclose(f);
    return path;
}

#endif
