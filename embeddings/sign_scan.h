/* sign_scan.h - the arithmetic of vector_index_scan.c for each instruction set: which rows of bits lie near, what a row says of a query's
 * numbers, and products with half precision. Pure. Bits lie in blocks of SIGN_BLOCK rows, word by word: word w of row r is
 * bits[r / 8 * 8 * words + w * 8 + r % 8], so that one load takes a word of eight rows.
 * Source: counting bits by halves of bytes through a table of 16 (Mula, Kurz, Lemire 2017, arXiv:1611.07612). */
#ifndef DEJA_EMBEDDINGS_SIGN_SCAN_H
#define DEJA_EMBEDDINGS_SIGN_SCAN_H
#include <stddef.h>
#include <stdint.h>

enum { SIGN_BLOCK = 8, SIGN_ROWS_MAX = 1 << 16, SIGN_BITS_MAX = 4096 };

struct sign_scan {
    const char *name;
    /* Rows of bits[n_blocks][words][SIGN_BLOCK] at most limit bits from query[words]: (row << 16 | distance) into out
     * [n_blocks * SIGN_BLOCK], by row; returns their number. words 1..64, rows at most SIGN_ROWS_MAX, limit up to words * 64. */
    size_t (*near)(const uint64_t *query, const uint64_t *bits, size_t n_blocks, size_t words,
                   unsigned limit, uint32_t *out);
    /* Sum of the numbers of query f32[words * 64] whose bit is set; word w of the row is row[w * SIGN_BLOCK]. */
    float (*sum)(const float *query, const uint64_t *row, size_t words);
    float (*dot)(const float *a, const uint16_t *b, size_t dim); /* b: binary16 */
};
/* What this machine can, best last; returns their number. The first is plain C. */
enum { SIGN_SCANS_MAX = 4 };
size_t sign_scans(const struct sign_scan *out[SIGN_SCANS_MAX]);
const struct sign_scan *sign_scan_best(void);

#endif
