/* crowd.c - see crowd.h. A table with short runs, as cache/bounds.c has; what was counted before is known by two bitmaps a row, which take
 * one question in ten for a known one when they are as full as they get: counted too little is the safe side here. */
#include "cache/crowd.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cache/bound.h"

enum { RUN_MAX = 8, BITS = 512 };
#define ONE_SIDED_95 1.645
#define UNLIKE_MAX 0.5

struct row {
    struct hash128 entry;
    uint64_t heard; /* 0 = free */
    struct crowd_count n;
    uint64_t texts[BITS / 64], askers[BITS / 64];
    unsigned kept, next;
};
struct crowds {
    size_t dim, n_rows;
    struct row *rows;
    int8_t *vectors; /* CROWD_KEPT of each row, and one more */
    uint64_t heard;
};

struct crowds *crowds_new(size_t dim)
{
    struct crowds *c = xcalloc(1, sizeof *c);
    size_t each = sizeof *c->rows + CROWD_KEPT * dim;
    c->dim = dim;
    c->n_rows = dim && CROWDS_BYTES / each < CROWDS_MAX ? CROWDS_BYTES / each : CROWDS_MAX;
    return c;
}

void crowds_free(struct crowds *c)
{
    if (!c) return;
    mem_free(c->rows);
    mem_free(c->vectors);
    mem_free(c);
}

size_t crowds_bytes(const struct crowds *c)
{
    return c->rows ? c->n_rows * (sizeof *c->rows + CROWD_KEPT * c->dim) : 0;
}

static struct row *find(const struct crowds *c, struct hash128 entry, bool make)
{
    size_t home = (size_t)(entry.lo ^ entry.hi);
    struct row *oldest = NULL;
    for (size_t i = 0; c->rows && i < RUN_MAX; i++) {
        struct row *r = &c->rows[(home + i) % c->n_rows];
        if (r->heard && hash_eq(r->entry, entry)) return r;
        if (!oldest || r->heard < oldest->heard) oldest = r;
    }
    if (!make || !oldest) return NULL;
    *oldest = (struct row){.entry = entry};
    return oldest;
}

static bool have_room(struct crowds *c)
{
    if (c->rows || !c->dim) return c->rows != NULL;
    c->rows = try_calloc(c->n_rows, sizeof *c->rows);
    c->vectors = c->rows ? try_calloc(c->n_rows * CROWD_KEPT + 1, c->dim) : NULL;
    if (c->vectors) return true;
    mem_free(c->rows);
    c->rows = NULL;
    return false;
}

static bool has(const uint64_t *bits, uint64_t hash)
{
    return bits[hash % BITS / 64] >> hash % 64 & 1;
}

static void mark(uint64_t *bits, uint64_t hash)
{
    bits[hash % BITS / 64] |= UINT64_C(1) << hash % 64;
}

/* Then it is known from now on. */
static bool is_new(struct row *r, const struct crowd_question *q)
{
    uint64_t text = hash_bytes(0x63726f77, q->text).lo;
    if (has(r->texts, text) || (q->asker && has(r->askers, q->asker))) return false;
    mark(r->texts, text);
    if (q->asker) mark(r->askers, q->asker);
    return true;
}

/* Bytes of a length common to all: their cosine is as good as that of the numbers, to a hundredth. */
static void pack(const float *vec, size_t dim, int8_t *out)
{
    float most = 1e-9f;
    for (size_t i = 0; i < dim; i++)
        if (fabsf(vec[i]) > most) most = fabsf(vec[i]);
    for (size_t i = 0; i < dim; i++)
        out[i] = (int8_t)lrintf(vec[i] / most * 127);
}

static double cosine(const int8_t *a, const int8_t *b, size_t dim)
{
    int64_t ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < dim; i++)
        ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
    return aa && bb ? (double)ab / sqrt((double)aa * (double)bb) : 0;
}

static void age(struct row *r)
{
    if (r->n.questions < CROWD_AGE) return;
    r->n.questions /= 2;
    r->n.unlike /= 2;
    memset(r->texts, 0, sizeof r->texts);
    memset(r->askers, 0, sizeof r->askers);
}

struct crowd_count crowds_note(struct crowds *c, struct hash128 entry,
                               const struct crowd_question *q)
{
    if (!have_room(c)) return (struct crowd_count){0};
    struct row *r = find(c, entry, true);
    r->heard = ++c->heard;
    age(r);
    if (!is_new(r, q)) return r->n;
    int8_t *kept = c->vectors + (size_t)(r - c->rows) * CROWD_KEPT * c->dim;
    int8_t *fresh = c->vectors + c->n_rows * CROWD_KEPT * c->dim;
    unsigned below = 0;
    pack(q->vec, c->dim, fresh);
    for (unsigned i = 0; i < r->kept; i++)
        below += cosine(fresh, kept + i * c->dim, c->dim) < q->unlike;
    r->n.questions++;
    r->n.unlike += 2 * below > r->kept;
    memcpy(kept + r->next * c->dim, fresh, c->dim);
    r->next = (r->next + 1) % CROWD_KEPT;
    if (r->kept < CROWD_KEPT) r->kept++;
    return r->n;
}

bool crowd_is_one(struct crowd_count n, int64_t least)
{
    double low, high;
    if (least <= 0 || n.questions < 2 || n.questions < least) return false;
    wilson(n.unlike, n.questions - 1, ONE_SIDED_95, &low, &high);
    return low > UNLIKE_MAX;
}

void crowds_forget(struct crowds *c, struct hash128 entry)
{
    struct row *r = find(c, entry, false);
    if (r) *r = (struct row){0};
}
