/* sign_scan.c - see sign_scan.h. */
#include "embeddings/sign_scan.h"

#include <immintrin.h>
#include <string.h>

#include "base/half.h"

static void put(struct sign_query *q, size_t row, uint64_t distance)
{
    q->out[q->n++] = (uint32_t)(row << 16 | distance);
}

/* --- one word of one row at a time */
#define DEFINE_NEAR(name, attributes)                                                              \
    attributes static void name##_one(struct sign_query *q, const uint64_t *rows, size_t n_blocks, \
                                      size_t words)                                                \
    {                                                                                              \
        for (size_t b = 0; b < n_blocks; b++, rows += words * SIGN_BLOCK)                          \
            for (size_t r = 0; r < SIGN_BLOCK; r++) {                                              \
                unsigned d = 0;                                                                    \
                for (size_t w = 0; w < words; w++)                                                 \
                    d += (unsigned)__builtin_popcountll(q->bits[w] ^ rows[w * SIGN_BLOCK + r]);    \
                if (d <= q->limit) put(q, b *SIGN_BLOCK + r, d);                                   \
            }                                                                                      \
    }                                                                                              \
    static void name(struct sign_query *queries, size_t n_queries, const uint64_t *rows,           \
                     size_t n_blocks, size_t words)                                                \
    {                                                                                              \
        for (size_t i = 0; i < n_queries; i++) {                                                   \
            queries[i].n = 0;                                                                      \
            name##_one(&queries[i], rows, n_blocks, words);                                        \
        }                                                                                          \
    }
DEFINE_NEAR(near_plain, )
DEFINE_NEAR(near_popcnt, __attribute__((target("popcnt"))))

static float sum_plain(const float *query, const uint64_t *row, size_t words)
{
    float part[4] = {0};
    for (size_t w = 0; w < words; w++, query += 64)
        for (size_t i = 0; i < 64; i++)
            part[i % 4] += row[w * SIGN_BLOCK] >> i & 1 ? query[i] : 0;
    return (part[0] + part[2]) + (part[1] + part[3]);
}

static float dot_plain(const float *a, const uint16_t *b, size_t dim)
{
    float part[4] = {0};
    size_t i = 0;
    for (; i + 4 <= dim; i += 4)
        for (size_t j = 0; j < 4; j++)
            part[j] += a[i + j] * f16_to_f32(b[i + j]);
    for (; i < dim; i++)
        part[0] += a[i] * f16_to_f32(b[i]);
    return (part[0] + part[2]) + (part[1] + part[3]);
}

/* --- AVX2: eight rows in two registers */
#define AVX2 __attribute__((target("avx2,fma,f16c")))

/* The set bits of each byte. */
AVX2 static inline __m256i bits_of_bytes(__m256i x)
{
    const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1,
                                           2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    const __m256i low = _mm256_set1_epi8(15);
    __m256i a = _mm256_shuffle_epi8(table, _mm256_and_si256(x, low));
    __m256i b = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(x, 4), low));
    return _mm256_add_epi8(a, b);
}

/* The distances of four rows, as 64-bit numbers. A byte holds those of 31 words. */
AVX2 static inline __m256i distances4(const uint64_t *query, const uint64_t *bits, size_t words)
{
    __m256i sum = _mm256_setzero_si256();
    for (size_t from = 0; from < words; from += 31) {
        size_t to = from + 31 < words ? from + 31 : words;
        __m256i bytes = _mm256_setzero_si256();
        for (size_t w = from; w < to; w++) {
            __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(bits + w * SIGN_BLOCK));
            __m256i y = _mm256_xor_si256(x, _mm256_set1_epi64x((long long)query[w]));
            bytes = _mm256_add_epi8(bytes, bits_of_bytes(y));
        }
        sum = _mm256_add_epi64(sum, _mm256_sad_epu8(bytes, _mm256_setzero_si256()));
    }
    return sum;
}

AVX2 static void near_avx2_one(struct sign_query *q, const uint64_t *rows, size_t n_blocks,
                               size_t words)
{
    const __m256i far = _mm256_set1_epi64x((long long)q->limit);
    for (size_t row = 0; row < n_blocks * SIGN_BLOCK; row += 4) {
        const uint64_t *at = rows + row / SIGN_BLOCK * SIGN_BLOCK * words + row % SIGN_BLOCK;
        __m256i d = distances4(q->bits, at, words);
        int beyond = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(d, far)));
        if (beyond == 15) continue;
        uint64_t distance[4];
        _mm256_storeu_si256((__m256i *)(void *)distance, d);
        for (size_t r = 0; r < 4; r++)
            if (!(beyond >> r & 1)) put(q, row + r, distance[r]);
    }
}

static void near_avx2(struct sign_query *queries, size_t n_queries, const uint64_t *rows,
                      size_t n_blocks, size_t words)
{
    for (size_t i = 0; i < n_queries; i++) {
        queries[i].n = 0;
        near_avx2_one(&queries[i], rows, n_blocks, words);
    }
}

AVX2 static float sum_of8(__m256 v)
{
    float part[8];
    _mm256_storeu_ps(part, v);
    return ((part[0] + part[4]) + (part[1] + part[5])) +
           ((part[2] + part[6]) + (part[3] + part[7]));
}

AVX2 static float sum_avx2(const float *query, const uint64_t *row, size_t words)
{
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (size_t w = 0; w < words; w++, query += 64)
        for (int i = 0; i < 8; i++) {
            __m256i x = _mm256_set1_epi32((int)(row[w * SIGN_BLOCK] >> 8 * i & 255));
            __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(x, bit), bit);
            __m256 q = _mm256_loadu_ps(query + 8 * i);
            sum[i % 2] = _mm256_add_ps(sum[i % 2], _mm256_and_ps(q, _mm256_castsi256_ps(set)));
        }
    return sum_of8(_mm256_add_ps(sum[0], sum[1]));
}

AVX2 static float dot_avx2(const float *a, const uint16_t *b, size_t dim)
{
    __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0;
    float rest = 0;
    size_t i = 0;
    for (; i + 16 <= dim; i += 16) {
        __m256i y = _mm256_loadu_si256((const __m256i *)(const void *)(b + i));
        sum0 = _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_cvtph_ps(_mm256_castsi256_si128(y)),
                               sum0);
        sum1 = _mm256_fmadd_ps(_mm256_loadu_ps(a + i + 8),
                               _mm256_cvtph_ps(_mm256_extracti128_si256(y, 1)), sum1);
    }
    for (; i < dim; i++)
        rest += a[i] * f16_to_f32(b[i]);
    return sum_of8(_mm256_add_ps(sum0, sum1)) + rest;
}

/* --- AVX-512: eight rows in one register */
#define AVX512 __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx512vpopcntdq,popcnt")))

AVX512 static inline void put8(struct sign_query *q, size_t block, __mmask8 close, __m512i d)
{
    const __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    __m512i row = _mm512_add_epi64(lane, _mm512_set1_epi64((long long)(block * SIGN_BLOCK)));
    __m512i both = _mm512_or_si512(_mm512_slli_epi64(row, 16), d);
    __m256i packed = _mm512_cvtepi64_epi32(_mm512_maskz_compress_epi64(close, both));
    _mm256_storeu_si256((__m256i *)(void *)(q->out + q->n), packed);
    q->n += (size_t)__builtin_popcount(close);
}

/* With n and words known to the compiler: what is loaded of a block stays in registers for n queries. */
AVX512 static inline __attribute__((always_inline)) void
near_group(struct sign_query *q, size_t n, const uint64_t *rows, size_t n_blocks, size_t words)
{
    __m512i far[SIGN_TOGETHER];
    for (size_t i = 0; i < n; i++)
        far[i] = _mm512_set1_epi64((long long)q[i].limit);
    for (size_t b = 0; b < n_blocks; b++, rows += words * SIGN_BLOCK) {
        __m512i d[SIGN_TOGETHER];
        __mmask8 close[SIGN_TOGETHER], any = 0;
        for (size_t i = 0; i < n; i++)
            d[i] = _mm512_setzero_si512();
        for (size_t w = 0; w < words; w++) {
            __m512i x = _mm512_loadu_si512(rows + w * SIGN_BLOCK);
            for (size_t i = 0; i < n; i++) {
                __m512i y = _mm512_xor_si512(x, _mm512_set1_epi64((long long)q[i].bits[w]));
                d[i] = _mm512_add_epi64(d[i], _mm512_popcnt_epi64(y));
            }
        }
        for (size_t i = 0; i < n; i++)
            any |= close[i] = _mm512_cmple_epu64_mask(d[i], far[i]);
        if (!any) continue;
        for (size_t i = 0; i < n; i++)
            if (close[i]) put8(&q[i], b, close[i], d[i]);
    }
}

/* 384 and 768 dimensions with their loops unrolled. */
AVX512 static inline __attribute__((always_inline)) void
near_of_words(struct sign_query *q, size_t n, const uint64_t *rows, size_t n_blocks, size_t words)
{
    size_t i = 0;
    for (; i + SIGN_TOGETHER <= n; i += SIGN_TOGETHER)
        near_group(q + i, SIGN_TOGETHER, rows, n_blocks, words);
    for (; i < n; i++)
        near_group(q + i, 1, rows, n_blocks, words);
}

AVX512 static void near_avx512(struct sign_query *queries, size_t n_queries, const uint64_t *rows,
                               size_t n_blocks, size_t words)
{
    for (size_t i = 0; i < n_queries; i++)
        queries[i].n = 0;
    if (words == 6)
        near_of_words(queries, n_queries, rows, n_blocks, 6);
    else if (words == 12)
        near_of_words(queries, n_queries, rows, n_blocks, 12);
    else
        near_of_words(queries, n_queries, rows, n_blocks, words);
}

AVX512 static float sum_avx512(const float *query, const uint64_t *row, size_t words)
{
    __m512 sum[4];
    for (int i = 0; i < 4; i++)
        sum[i] = _mm512_setzero_ps();
    for (size_t w = 0; w < words; w++, query += 64) {
        uint64_t x = row[w * SIGN_BLOCK];
        for (int i = 0; i < 4; i++)
            sum[i] = _mm512_mask_add_ps(sum[i], (__mmask16)(x >> 16 * i), sum[i],
                                        _mm512_loadu_ps(query + 16 * i));
    }
    return _mm512_reduce_add_ps(
        _mm512_add_ps(_mm512_add_ps(sum[0], sum[2]), _mm512_add_ps(sum[1], sum[3])));
}

AVX512 static float dot_avx512(const float *a, const uint16_t *b, size_t dim)
{
    __m512 sum0 = _mm512_setzero_ps(), sum1 = sum0;
    size_t i = 0;
    for (; i + 32 <= dim; i += 32) {
        __m512i y = _mm512_loadu_si512(b + i);
        sum0 = _mm512_fmadd_ps(_mm512_loadu_ps(a + i), _mm512_cvtph_ps(_mm512_castsi512_si256(y)),
                               sum0);
        sum1 = _mm512_fmadd_ps(_mm512_loadu_ps(a + i + 16),
                               _mm512_cvtph_ps(_mm512_extracti64x4_epi64(y, 1)), sum1);
    }
    float rest = 0;
    for (; i < dim; i++)
        rest += a[i] * f16_to_f32(b[i]);
    return _mm512_reduce_add_ps(_mm512_add_ps(sum0, sum1)) + rest;
}

/* --- choosing */
static const struct sign_scan plain = {"plain", near_plain, sum_plain, dot_plain},
                              popcnt = {"popcnt", near_popcnt, sum_plain, dot_plain},
                              avx2 = {"avx2", near_avx2, sum_avx2, dot_avx2},
                              avx512 = {"avx512", near_avx512, sum_avx512, dot_avx512};

size_t sign_scans(const struct sign_scan *out[SIGN_SCANS_MAX])
{
    size_t n = 0;
    out[n++] = &plain;
    if (__builtin_cpu_supports("popcnt")) out[n++] = &popcnt;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !f16_is_native())
        return n;
    out[n++] = &avx2;
    if (__builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
        out[n++] = &avx512;
    return n;
}

const struct sign_scan *sign_scan_best(void)
{
    const struct sign_scan *all[SIGN_SCANS_MAX];
    return all[sign_scans(all) - 1];
}
