/* calibration.c - see calibration.h. */
#include "engine/model/calibration.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { VERSION = 1, CHECK_SEED = 0x6361, PATH_BYTES = 4096 };
#define SPREAD_MAX 1e4f
static const char magic[8] = "dejacal\n";

struct head_bytes {
    char magic[8];
    uint32_t version, n_layers, width[SITES], head, zero;
    uint64_t n_tokens;
    struct hash128 model;
};
_Static_assert(sizeof(struct head_bytes) == 64, "no padding in what is hashed");

int calibration_width(const struct calibration_shape *s, int place)
{
    return place == calibration_head(s) ? s->head : s->width[place % SITES];
}

bool calibration_same(const struct calibration_shape *a, const struct calibration_shape *b)
{
    return hash_eq(a->model, b->model) && a->n_layers == b->n_layers && a->head == b->head &&
           !memcmp(a->width, b->width, sizeof a->width);
}

/* Floats of all products before this place. */
static size_t floats_before(const struct calibration_shape *s, int place)
{
    size_t n = 0;
    int layer = place / SITES;
    for (int i = 0; i < SITES; i++) {
        size_t one = 1 + 2 * (size_t)s->width[i];
        n += one * (size_t)layer + (i < place % SITES ? one : 0);
    }
    return n;
}

static size_t floats_of(const struct calibration_shape *s)
{
    return floats_before(s, calibration_head(s)) + 1 + 2 * (size_t)s->head;
}

static bool shape_fits(const struct calibration_shape *s)
{
    bool fits = s->n_layers >= 1 && s->n_layers <= CALIBRATION_LAYERS_MAX && s->head >= 0 &&
                s->head <= CALIBRATION_WIDTH_MAX;
    for (int i = 0; i < SITES; i++)
        fits = fits && s->width[i] >= 0 && s->width[i] <= CALIBRATION_WIDTH_MAX;
    return fits;
}

enum err calibration_new(struct calibration **out, const struct calibration_shape *s)
{
    ASSERT(shape_fits(s));
    struct calibration *c = xcalloc(1, sizeof *c);
    *out = NULL;
    c->shape = *s;
    c->floats = try_calloc(floats_of(s), sizeof *c->floats);
    if (!c->floats) {
        mem_free(c);
        return ERR_FULL;
    }
    *out = c;
    return OK;
}

void calibration_free(struct calibration *c)
{
    if (c) mem_free(c->floats);
    mem_free(c);
}

float *calibration_a(struct calibration *c, int place)
{
    ASSERT(place >= 0 && place <= calibration_head(&c->shape));
    return c->floats + floats_before(&c->shape, place);
}
float *calibration_x(struct calibration *c, int place)
{
    return calibration_a(c, place) + 1;
}
float *calibration_w(struct calibration *c, int place)
{
    return calibration_x(c, place) + calibration_width(&c->shape, place);
}

bool calibration_spread(struct calibration *c, int place, float a, float *s)
{
    const float *x = calibration_x(c, place), *w = calibration_w(c, place);
    int n = calibration_width(&c->shape, place);
    if (!(a > 0) || !n) return false;
    for (int j = 0; j < n; j++) {
        float v = powf(x[j], a) / powf(w[j], 1 - a);
        /* a channel nobody has seen, or whose column is zero, says nothing */
        s[j] = !(x[j] > 0) || !(w[j] > 0) ? 1 : fminf(fmaxf(v, 1 / SPREAD_MAX), SPREAD_MAX);
    }
    return true;
}

/* ---- bytes ---- */
size_t calibration_bytes(const struct calibration_shape *s)
{
    return sizeof(struct head_bytes) + floats_of(s) * sizeof(float) + sizeof(uint64_t);
}

static uint64_t check_of(const uint8_t *bytes, size_t n)
{
    return hash_bytes(CHECK_SEED, (struct str){(const char *)bytes, n}).lo;
}

void calibration_write(const struct calibration *c, uint8_t *to)
{
    const struct calibration_shape *s = &c->shape;
    struct head_bytes h = {.version = VERSION,
                           .n_layers = (uint32_t)s->n_layers,
                           .head = (uint32_t)s->head,
                           .n_tokens = c->n_tokens,
                           .model = s->model};
    size_t floats = floats_of(s) * sizeof(float);
    memcpy(h.magic, magic, sizeof magic);
    for (int i = 0; i < SITES; i++)
        h.width[i] = (uint32_t)s->width[i];
    memcpy(to, &h, sizeof h);
    memcpy(to + sizeof h, c->floats, floats);
    uint64_t check = check_of(to, sizeof h + floats);
    memcpy(to + sizeof h + floats, &check, sizeof check);
}

/* The shape it says it has. */
static enum err read_head(const uint8_t *bytes, size_t n, struct calibration_shape *s,
                          uint64_t *n_tokens, struct errmsg *e)
{
    struct head_bytes h;
    if (n < sizeof h || memcmp(bytes, magic, sizeof magic) != 0)
        return err_set(e, ERR_CORRUPT, "this is no calibration file");
    memcpy(&h, bytes, sizeof h);
    if (h.version != VERSION)
        return err_set(e, ERR_CORRUPT, "version %u of calibration files is not known, only %d is",
                       h.version, VERSION);
    bool fits = h.n_layers <= CALIBRATION_LAYERS_MAX && h.head <= CALIBRATION_WIDTH_MAX;
    *s = (struct calibration_shape){
        .model = h.model, .n_layers = (int)h.n_layers, .head = (int)h.head};
    for (int i = 0; i < SITES; i++) {
        fits = fits && h.width[i] <= CALIBRATION_WIDTH_MAX;
        s->width[i] = (int)h.width[i];
    }
    *n_tokens = h.n_tokens;
    if (fits && shape_fits(s)) return OK;
    return err_set(e, ERR_CORRUPT, "the calibration file is damaged: such a model cannot be");
}

/* Its length, and its check. */
static enum err check_whole(const uint8_t *bytes, size_t n, const struct calibration_shape *s,
                            struct errmsg *e)
{
    size_t whole = calibration_bytes(s);
    uint64_t check;
    if (n < whole)
        return err_set(e, ERR_CORRUPT,
                       "the calibration file is cut short: it should have %zu bytes", whole);
    if (n > whole)
        return err_set(e, ERR_CORRUPT,
                       "the calibration file is damaged: it should have %zu bytes and has more",
                       whole);
    memcpy(&check, bytes + n - sizeof check, sizeof check);
    if (check == check_of(bytes, n - sizeof check)) return OK;
    return err_set(e, ERR_CORRUPT, "the calibration file is damaged: its check does not hold");
}

static bool values_fit(struct calibration *c)
{
    for (int p = 0; p <= calibration_head(&c->shape); p++) {
        const float *v = calibration_a(c, p);
        if (!(v[0] >= 0 && v[0] <= 1)) return false;
        for (int i = 1; i <= 2 * calibration_width(&c->shape, p); i++)
            if (!(v[i] >= 0) || !isfinite(v[i])) return false;
    }
    return true;
}

enum err calibration_read(struct calibration **out, const uint8_t *bytes, size_t n,
                          struct errmsg *e)
{
    struct calibration_shape s;
    uint64_t n_tokens;
    *out = NULL;
    enum err code = read_head(bytes, n, &s, &n_tokens, e);
    if (!code) code = check_whole(bytes, n, &s, e);
    if (code) return code;
    if (calibration_new(out, &s))
        return err_set(e, ERR_FULL, "no memory for a calibration of %zu bytes", n);
    (*out)->n_tokens = n_tokens;
    memcpy((*out)->floats, bytes + sizeof(struct head_bytes), floats_of(&s) * sizeof(float));
    if (values_fit(*out)) return OK;
    calibration_free(*out);
    *out = NULL;
    return err_set(e, ERR_CORRUPT, "the calibration file holds what no measurement gives");
}

/* ---- files ---- */
enum err calibration_save(const struct calibration *c, const char *path, struct errmsg *e)
{
    char part[PATH_BYTES];
    size_t n = calibration_bytes(&c->shape);
    if ((size_t)snprintf(part, sizeof part, "%s.part", path) >= sizeof part)
        return err_set(e, ERR_INVALID, "the path of the calibration file is too long");
    uint8_t *bytes = try_malloc(n);
    if (!bytes) return err_set(e, ERR_FULL, "%.80s: no memory for %zu bytes", path, n);
    calibration_write(c, bytes);
    FILE *f = fopen(part, "wbe");
    bool ok = f && fwrite(bytes, 1, n, f) == n;
    if (f && fclose(f)) ok = false;
    ok = ok && !rename(part, path);
    int why = errno;
    mem_free(bytes);
    if (ok) return OK;
    if (f) (void)remove(part);
    return err_set(e, ERR_IO, "%.80s cannot be written: %s", path, strerror(why));
}

/* All of a file, which must have about as many bytes as `want`: one more is read, so that too many show. */
static enum err read_file(uint8_t **out, size_t *n, size_t want, const char *path, struct errmsg *e)
{
    FILE *f = fopen(path, "rbe");
    *out = NULL;
    if (!f)
        return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%.100s: %s", path,
                       strerror(errno));
    uint8_t *bytes = try_malloc(want + 1);
    enum err code = OK;
    if (!bytes) {
        code = err_set(e, ERR_FULL, "%.80s: no memory for %zu bytes", path, want + 1);
    } else {
        *n = fread(bytes, 1, want + 1, f);
        if (ferror(f)) code = err_set(e, ERR_IO, "%.100s cannot be read", path);
    }
    (void)fclose(f);
    if (code)
        mem_free(bytes);
    else
        *out = bytes;
    return code;
}

enum err calibration_load(struct calibration **out, const char *path,
                          const struct calibration_shape *of, struct errmsg *e)
{
    uint8_t *bytes;
    size_t n = 0;
    *out = NULL;
    enum err code = read_file(&bytes, &n, calibration_bytes(of), path, e);
    if (code) return code;
    struct calibration_shape s;
    uint64_t n_tokens;
    code = read_head(bytes, n, &s, &n_tokens, e);
    if (!code &&
        !calibration_same(&s, of)) /* before its length: another model's file has another */
        code = err_set(e, ERR_INVALID, "it was measured on another model file");
    if (!code) code = calibration_read(out, bytes, n, e);
    mem_free(bytes);
    return code ? err_prefix(e, code, "%.80s", path) : OK;
}
