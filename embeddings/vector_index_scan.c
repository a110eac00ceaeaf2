/* vector_index_scan.c - vectors in half precision, found by their signs, in three sieves. Each vector has one bit a dimension: whether it
 * lies above the mean of the first few thousand. A search compares the query's bits with all (one pass over bits only, for several queries
 * together: a chunk's stay in the processor's cache) and takes the nearest NEAR_MIN by Hamming distance; of those, the LIKELY_MIN of the
 * largest cosine as it is estimated from the query's numbers and the row's bits; those are measured.
 * Adding costs a copy, taking away nothing, a place is used again: no graph to build, nothing to rebuild. Below MEAN_FROM vectors all are
 * measured. Memory grows by whole chunks.
 * Source: Charikar 2002 (random hyperplane hashing), with the axes as planes; the mean is taken off because encoders' vectors lie in a
 * cone. The estimate: Gao and Long 2024 (RaBitQ, arXiv:2405.12497), on the axes as they are: rotated ones find hardly more. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "embeddings/sign_scan.h"
#include "embeddings/vector_index_store.h"

enum {
    CHUNK =
        1024, /* vectors; the first one begins with CHUNK_FIRST, since most indexes stay small */
    CHUNK_FIRST = 16,
    MEAN_FROM = 4096, /* with fewer the exact scan takes as long, and the mean is not known yet */
    WORDS_MAX = 64,   /* 4096 dimensions */
    SIGNED_AT_ONCE = 16,
    NEAR_MIN = 768,
    LIKELY_MIN = 192,
    TIES_MAX = 3,
    BINS = 256,
    SAMPLE_EVERY = 16, /* chunks */
    AHEAD = 4          /* vectors fetched before they are measured */
};
_Static_assert(CHUNK % (int)SIGN_BLOCK == 0 && CHUNK_FIRST % (int)SIGN_BLOCK == 0, "whole blocks");
_Static_assert(CHUNK <= (int)SIGN_ROWS_MAX, "a row's number fits");

struct chunk {
    uint16_t *vecs; /* [room][dim] halves */
    uint64_t *bits; /* [room / SIGN_BLOCK][words][SIGN_BLOCK], as sign_scan.h wants them */
    struct
        offset { /* [room]: cosine = along * (what the bits say) + mean, and a number of the query's own */
        float along, mean;
    } * offsets;
    uint8_t *live; /* [room] */
    size_t room;
};
struct scan {
    struct vector_store base;
    const struct sign_scan *work;
    size_t dim, words, n, n_chunks, chunks_room;
    struct chunk **chunks;
    float *mean;     /* until there are MEAN_FROM their sum */
    size_t n_signed; /* of the first MEAN_FROM; those behind them are signed when they come */
};

static struct scan *scan_of(struct vector_store *s)
{
    return (struct scan *)s;
}

static void free_chunk(struct chunk *c)
{
    mem_free(c->vecs);
    mem_free(c->bits);
    mem_free(c->offsets);
    mem_free(c->live);
    mem_free(c);
}

/* --- places */
static uint16_t *vec_at(const struct scan *x, size_t label)
{
    return x->chunks[label / CHUNK]->vecs + label % CHUNK * x->dim;
}

static void signs(const struct scan *x, const float *vec, uint64_t *out)
{
    memset(out, 0, x->words * sizeof *out);
    for (size_t i = 0; i < x->dim; i++)
        out[i / 64] |= (uint64_t)(vec[i] > x->mean[i]) << i % 64;
}

static uint64_t *bits_at(const struct scan *x, size_t label)
{
    uint64_t *bits = x->chunks[label / CHUNK]->bits;
    return bits + label % CHUNK / SIGN_BLOCK * SIGN_BLOCK * x->words + label % SIGN_BLOCK;
}

/* With d the vector less the mean: <q, d> is about |d|^2 / (sum of |d_i|) times the sum of q_i with the signs of d. */
static void set_bits(const struct scan *x, size_t label, const float *vec)
{
    uint64_t bits[WORDS_MAX], *at = bits_at(x, label);
    float square = 0, sum = 0, mean = 0;
    signs(x, vec, bits);
    for (size_t w = 0; w < x->words; w++)
        at[w * SIGN_BLOCK] = bits[w];
    for (size_t i = 0; i < x->dim; i++) {
        float d = vec[i] - x->mean[i];
        square += d * d;
        sum += fabsf(d);
        mean += vec[i] * x->mean[i];
    }
    x->chunks[label / CHUNK]->offsets[label % CHUNK] =
        (struct offset){sum > 0 ? square / sum : 0, mean};
}

static void unpack(const struct scan *x, size_t label, float *out)
{
    const uint16_t *h = vec_at(x, label);
    for (size_t i = 0; i < x->dim; i++)
        out[i] = f16_to_f32(h[i]);
}

static bool chunk_grow(const struct scan *x, struct chunk *c, size_t room)
{
    uint16_t *vecs = try_realloc(c->vecs, room * x->dim * sizeof *vecs);
    if (vecs) c->vecs = vecs;
    uint64_t *bits = vecs ? try_realloc(c->bits, room * x->words * sizeof *bits) : NULL;
    if (bits) {
        c->bits = bits; /* whole blocks are read, also where no vector is yet */
        memset(bits + c->room * x->words, 0, (room - c->room) * x->words * sizeof *bits);
    }
    struct offset *offsets = bits ? try_realloc(c->offsets, room * sizeof *offsets) : NULL;
    if (offsets) c->offsets = offsets;
    uint8_t *live = offsets ? try_realloc(c->live, room) : NULL;
    if (!live) return false;
    c->live = live;
    c->room = room;
    return true;
}

static enum err more_room(struct scan *x)
{
    if (x->n % CHUNK) return chunk_grow(x, x->chunks[0], 2 * x->n) ? OK : ERR_FULL;
    if (x->n_chunks == x->chunks_room) {
        size_t room = x->chunks_room ? 2 * x->chunks_room : 8;
        struct chunk **more = try_realloc(x->chunks, room * sizeof(struct chunk *));
        if (!more) return ERR_FULL;
        x->chunks = more;
        x->chunks_room = room;
    }
    struct chunk *c = try_calloc(1, sizeof *c);
    if (!c) return ERR_FULL;
    x->chunks[x->n_chunks++] = c;
    if (chunk_grow(x, c, x->n ? CHUNK : CHUNK_FIRST)) return OK;
    x->n_chunks--;
    free_chunk(c);
    return ERR_FULL;
}

static size_t room_of(const struct scan *x)
{
    return x->n_chunks ? (x->n_chunks - 1) * CHUNK + x->chunks[x->n_chunks - 1]->room : 0;
}

static bool has_mean(const struct scan *x)
{
    return x->n >= MEAN_FROM;
}

/* With the mean known the first vectors get their bits, a few at each change: all at once would take 7 ms. */
static void sign_some(struct scan *x)
{
    float v[WORDS_MAX * 64];
    for (int i = 0; i < SIGNED_AT_ONCE && x->n_signed < MEAN_FROM; i++, x->n_signed++) {
        unpack(x, x->n_signed, v);
        set_bits(x, x->n_signed, v);
    }
}

static void add_to_mean(struct scan *x, const float *vec)
{
    for (size_t i = 0; i < x->dim; i++)
        x->mean[i] += vec[i];
    if (x->n < MEAN_FROM) return;
    for (size_t i = 0; i < x->dim; i++)
        x->mean[i] /= MEAN_FROM;
}

static enum err scan_set(struct vector_store *s, size_t label, const float *vec)
{
    struct scan *x = scan_of(s);
    if (label >= x->n) return ERR_NOT_FOUND;
    struct chunk *c = x->chunks[label / CHUNK];
    c->live[label % CHUNK] = vec != NULL;
    if (!vec) return OK;
    uint16_t *h = vec_at(x, label);
    for (size_t i = 0; i < x->dim; i++)
        h[i] = f32_to_f16(vec[i]);
    if (has_mean(x)) set_bits(x, label, vec), sign_some(x);
    return OK;
}

static enum err scan_add(struct vector_store *s, const float *vec)
{
    struct scan *x = scan_of(s);
    if (x->n == room_of(x) && more_room(x) != OK) return ERR_FULL;
    size_t label = x->n++;
    if (label < MEAN_FROM) add_to_mean(x, vec);
    return scan_set(s, label, vec);
}

/* --- searching */
struct best {
    float *scores;
    int64_t *labels;
    size_t k, n;
};

/* k is small: insertion into a sorted list beats a heap. */
static void offer(struct best *b, size_t label, float score)
{
    if (b->n == b->k && score <= b->scores[b->k - 1]) return;
    size_t at = b->n < b->k ? b->n++ : b->k - 1;
    for (; at && b->scores[at - 1] < score; at--)
        b->scores[at] = b->scores[at - 1], b->labels[at] = b->labels[at - 1];
    b->scores[at] = score;
    b->labels[at] = (int64_t)label;
}

static void measure(const struct scan *x, const float *vec, size_t label, struct best *b)
{
    offer(b, label, x->work->dot(vec, vec_at(x, label), x->dim));
}

static void measure_all(const struct scan *x, const float *vec, struct best *b)
{
    for (size_t label = 0; label < x->n; label++)
        if (x->chunks[label / CHUNK]->live[label % CHUNK]) measure(x, vec, label, b);
}

static size_t near_of(size_t k)
{
    return 16 * k > NEAR_MIN ? 16 * k : NEAR_MIN;
}

/* The nearest of one query by their bits. What lies beyond `limit` is not wanted any more: so many have been found nearer. */
struct sieve {
    uint64_t query[WORDS_MAX];
    float numbers[WORDS_MAX * 64], total; /* of the query less the mean; their sum */
    size_t wanted, likely, n, within;     /* within: of found, at most limit away */
    unsigned limit;
    uint32_t *histogram; /* [dim + 1], of found */
    struct near {
        uint32_t label, distance;
        float cosine; /* estimated */
    } * found;        /* [TIES_MAX * wanted] */
};

static void sieve_empty(const struct scan *x, struct sieve *s)
{
    s->n = s->within = 0;
    s->limit = (unsigned)x->dim;
    memset(s->histogram, 0, (x->dim + 1) * sizeof *s->histogram);
}

/* Of those that lie just at the limit not all need be kept. */
static void shake(struct sieve *s)
{
    size_t kept = 0, ties = 0;
    for (size_t i = 0; i < s->n; i++) {
        struct near f = s->found[i];
        if (f.distance > s->limit) continue;
        if (f.distance == s->limit && ties++ >= s->wanted) continue;
        s->found[kept++] = f;
    }
    if (ties > s->wanted) s->histogram[s->limit] = (uint32_t)s->wanted;
    s->n = s->within = kept;
}

static void drop_in(struct sieve *s, uint32_t label, uint32_t distance, float cosine)
{
    if (s->n == TIES_MAX * s->wanted) shake(s);
    s->found[s->n++] = (struct near){label, distance, cosine};
    s->histogram[distance]++;
    s->within++;
    while (s->limit && s->within - s->histogram[s->limit] >= s->wanted)
        s->within -= s->histogram[s->limit--];
}

static void fetch(const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch((const char *)from + i);
}

static size_t rows_of(const struct scan *x, size_t c)
{
    return x->n - c * CHUNK < CHUNK ? x->n - c * CHUNK : CHUNK;
}

static size_t blocks_of(const struct scan *x, size_t c)
{
    return (rows_of(x, c) + SIGN_BLOCK - 1) / SIGN_BLOCK;
}

/* One of n parts of a chunk's bits, on their way while the chunk before it is compared. */
static void fetch_part(const struct scan *x, size_t c, size_t i, size_t n)
{
    if (c >= x->n_chunks) return;
    size_t lines = blocks_of(x, c) * x->words, at = lines * i / n; /* a word of a block is one */
    fetch(x->chunks[c]->bits + at * SIGN_BLOCK, (lines * (i + 1) / n - at) * 64);
}

/* What lies near of a chunk, also of places where no vector is. The cosine is estimated while the chunk's bits are in the processor's
 * cache. */
static void take_near(const struct scan *x, size_t c, struct sieve *s, const struct sign_query *q)
{
    const struct chunk *chunk = x->chunks[c];
    size_t rows = rows_of(x, c);
    for (size_t i = 0; i < q->n; i++)
        fetch(&chunk->offsets[q->out[i] >> 16], 1);
    for (size_t i = 0; i < q->n; i++) {
        uint32_t row = q->out[i] >> 16, distance = q->out[i] & 0xFFFF;
        if (row >= rows || !chunk->live[row] || distance > s->limit) continue;
        size_t label = c * CHUNK + row;
        const struct offset *o = &chunk->offsets[row];
        float sum = x->work->sum(s->numbers, bits_at(x, label), x->words);
        drop_in(s, (uint32_t)label, distance, o->along * (2 * sum - s->total) + o->mean);
    }
}

static void sift_chunk(const struct scan *x, size_t c, struct sieve *sieves, size_t n)
{
    uint32_t near[SIGN_TOGETHER][CHUNK];
    struct sign_query q[SIGN_TOGETHER];
    for (size_t i = 0; i < n; i++)
        q[i] = (struct sign_query){sieves[i].query, sieves[i].limit, near[i], 0};
    x->work->near(q, n, x->chunks[c]->bits, blocks_of(x, c), x->words);
    for (size_t i = 0; i < n; i++)
        take_near(x, c, &sieves[i], &q[i]);
}

/* How far the wanted ones will lie, by some of the chunks: with a limit from the start most rows need not be looked at. */
static void guess_limit(const struct scan *x, struct sieve *s)
{
    size_t sampled = 0, sum = 0;
    uint32_t near[CHUNK];
    for (size_t c = SAMPLE_EVERY / 2; c + 1 < x->n_chunks; c += SAMPLE_EVERY) {
        struct sign_query q = {s->query, s->limit, near, 0};
        x->work->near(&q, 1, x->chunks[c]->bits, blocks_of(x, c), x->words);
        for (size_t i = 0; i < q.n; i++)
            s->histogram[near[i] & 0xFFFF]++;
        sampled += q.n;
    }
    double share = (double)s->wanted * (double)sampled / (double)x->n;
    size_t enough = (size_t)(share + 2 * sqrt(share)) + 1;
    unsigned d = 0;
    while (d < x->dim && (sum += s->histogram[d]) < enough)
        d++;
    sieve_empty(x, s);
    if (sampled) s->limit = d;
}

static void sift(const struct scan *x, struct sieve *sieves, size_t n)
{
    size_t groups = (n + SIGN_TOGETHER - 1) / SIGN_TOGETHER;
    for (size_t c = 0; c < x->n_chunks; c++)
        for (size_t g = 0; g < groups; g++) {
            size_t from = g * SIGN_TOGETHER, left = n - from;
            fetch_part(x, c + 1, g, groups);
            sift_chunk(x, c, sieves + from, left < SIGN_TOGETHER ? left : SIGN_TOGETHER);
        }
}

/* --- of the near ones those that are likely to be the nearest */
/* A cosine at or above which there are at least `likely` of them, and few more. */
static float cut(const struct sieve *s)
{
    uint32_t bins[BINS] = {0};
    float min = INFINITY, max = -INFINITY;
    for (size_t i = 0; i < s->n; i++) {
        min = s->found[i].cosine < min ? s->found[i].cosine : min;
        max = s->found[i].cosine > max ? s->found[i].cosine : max;
    }
    float scale = (BINS - 1) / (max - min);
    if (s->n <= s->likely || !isfinite(scale)) return -INFINITY;
    for (size_t i = 0; i < s->n; i++)
        bins[(size_t)((max - s->found[i].cosine) * scale)]++;
    size_t sum = 0, bin = 0;
    while (bin < BINS - 1 && (sum += bins[bin]) < s->likely)
        bin++;
    return max - (float)(bin + 1) / scale;
}

static void measure_likely(const struct scan *x, const float *vec, struct sieve *s, struct best *b)
{
    size_t n = 0;
    shake(s);
    float least = cut(s);
    for (size_t i = 0; i < s->n; i++)
        if (s->found[i].cosine >= least) s->found[n++] = s->found[i];
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n) fetch(vec_at(x, s->found[i + AHEAD].label), x->dim * sizeof(uint16_t));
        measure(x, vec, s->found[i].label, b);
    }
}

static void sieve_init(const struct scan *x, struct sieve *s, const float *vec, size_t k,
                       void *room)
{
    *s = (struct sieve){.wanted = near_of(k), .likely = 4 * k > LIKELY_MIN ? 4 * k : LIKELY_MIN};
    s->found = room;
    s->histogram = (uint32_t *)(void *)(s->found + TIES_MAX * s->wanted);
    signs(x, vec, s->query);
    for (size_t i = 0; i < x->dim; i++)
        s->total += s->numbers[i] = vec[i] - x->mean[i];
    sieve_empty(x, s);
    guess_limit(x, s);
}

static bool search_near(const struct scan *x, const float *const *vecs, size_t n, size_t k,
                        struct best *best)
{
    size_t each = TIES_MAX * near_of(k) * sizeof(struct near) + (x->dim + 1) * sizeof(uint32_t);
    struct sieve *sieves = try_malloc(n * sizeof *sieves);
    char *room = try_malloc(n * each);
    bool ok = sieves && room;
    for (size_t i = 0; ok && i < n; i++)
        sieve_init(x, &sieves[i], vecs[i], k, room + i * each);
    if (ok) sift(x, sieves, n);
    for (size_t i = 0; ok && i < n; i++) {
        if (sieves[i].n < sieves[i].wanted / 2) { /* the sample said too little */
            sieve_empty(x, &sieves[i]);
            sift(x, &sieves[i], 1);
        }
        measure_likely(x, vecs[i], &sieves[i], &best[i]);
    }
    mem_free(sieves);
    mem_free(room);
    return ok;
}

static bool scan_search(struct vector_store *s, const float *const *vecs, size_t n, size_t k,
                        float *scores, int64_t *labels)
{
    struct scan *x = scan_of(s);
    struct best best[VECTOR_QUERIES_MAX];
    bool ok = true, all = x->n_signed < MEAN_FROM || x->n <= near_of(k);
    for (size_t i = 0; i < n; i++)
        best[i] = (struct best){scores + i * k, labels + i * k, k, 0};
    for (size_t i = 0; i < n && all; i++)
        measure_all(x, vecs[i], &best[i]);
    if (!all) ok = search_near(x, vecs, n, k, best);
    for (size_t i = 0; i < n; i++)
        for (; best[i].n < k; best[i].n++)
            best[i].labels[best[i].n] = -1;
    return ok;
}

static enum err scan_get(struct vector_store *s, size_t label, float *vec)
{
    struct scan *x = scan_of(s);
    if (label >= x->n) return ERR_NOT_FOUND;
    unpack(x, label, vec);
    return OK;
}

static size_t scan_bytes(struct vector_store *s)
{
    struct scan *x = scan_of(s);
    return sizeof *x + x->n_chunks * sizeof(struct chunk) +
           room_of(x) * (x->dim * sizeof(uint16_t) + x->words * 8 + sizeof(struct offset) + 1);
}

static void scan_free(struct vector_store *s)
{
    struct scan *x = scan_of(s);
    for (size_t c = 0; c < x->n_chunks; c++)
        free_chunk(x->chunks[c]);
    mem_free(x->chunks);
    mem_free(x->mean);
    mem_free(x);
}

static const struct vector_store_ops scan_ops = {.free = scan_free,
                                                 .add = scan_add,
                                                 .set = scan_set,
                                                 .search = scan_search,
                                                 .get = scan_get,
                                                 .bytes = scan_bytes};

enum err vector_store_scan(struct vector_store **out, int dim)
{
    struct scan *x = xcalloc(1, sizeof *x);
    x->base.ops = &scan_ops;
    x->work = sign_scan_best();
    x->dim = (size_t)dim;
    x->mean = xcalloc((size_t)dim, sizeof *x->mean);
    x->words = ((size_t)dim + 63) / 64;
    *out = &x->base;
    return OK;
}
