/* sign_scan.h - the arithmetic of vector_index_scan.c for each instruction set: which rows of bits lie near, what a row says of a query's
 * numbers, and products with half precision. Pure. Bits lie in blocks of SIGN_BLOCK rows, word by word: word w of row r is
 * bits[r / 8 * 8 * words + w * 8 + r % 8], so that one load takes a word of eight rows.
 * Source: counting bits by halves of bytes through a table of 16 (Mula, Kurz, Lemire 2017, arXiv:1611.07612). */
#ifndef DEJA_EMBEDDINGS_SIGN_SCAN_H
#define DEJA_EMBEDDINGS_SIGN_SCAN_H
#include <stddef.h>
#include <stdint.h>

enum { SIGN_BLOCK = 8, SIGN_ROWS_MAX = 1 << 16, SIGN_BITS_MAX = 4096, SIGN_TOGETHER = 4 };

/* Of one query the rows that lie near. */
struct sign_query {
    const uint64_t *bits; /* [words] */
    unsigned limit;       /* at most words * 64 */
    uint32_t *
        out; /* [n_blocks * SIGN_BLOCK]: (row << 16 | distance) of those at most limit away, by row */
    size_t n; /* of out, set */
};
struct sign_scan {
    const char *name;
    /* rows: [n_blocks][words][SIGN_BLOCK], at most SIGN_ROWS_MAX; words 1..64. A block is read once for up to SIGN_TOGETHER queries. */
    void (*near)(struct sign_query *queries, size_t n_queries, const uint64_t *rows,
                 size_t n_blocks, size_t words);
    /* Sum of the numbers of query f32[words * 64] whose bit is set; word w of the row is row[w * SIGN_BLOCK]. */
    float (*sum)(const float *query, const uint64_t *row, size_t words);
    float (*dot)(const float *a, const uint16_t *b, size_t dim); /* b: binary16 */
};
/* What this machine can, best last; returns their number. The first is plain C. */
enum { SIGN_SCANS_MAX = 4 };
size_t sign_scans(const struct sign_scan *out[SIGN_SCANS_MAX]);
const struct sign_scan *sign_scan_best(void);

#endif
