/* calibrate.c - see calibrate.h. Windows of WINDOW tokens, each from position 0 behind the file's bos where it has one; all rows are
 * computed to the end. */
#include "engine/model/calibrate.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "engine/model/model_private.h"
#include "engine/model/tokenizer_load.h"
#include "engine/text/tokenizer.h"

enum {
    WINDOW = 256,
    BLOCK = 16,
    SAMPLE_X = 32,  /* inputs of a product that are kept whole */
    SAMPLE_W = 128, /* rows of its matrices they are multiplied with */
    TEXT_BYTES_MAX = 64 << 20,
};
static const float shares[] = {0, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f};

struct measure {
    struct model *m;
    struct calibration *c;
    int32_t *ids;
    int n_ids, n_done, bos; /* bos -1: none */
    float **sample;         /* by place: [SAMPLE_X][width] */
    int n_sample, stride;   /* every stride-th row is kept */
    int window;             /* tokens of a sequence */
    float *row;             /* [widest] */
    float *logits;
};

/* ---- inputs ---- */
static void watch(void *arg, const struct linear *l, int place)
{
    struct measure *s = arg;
    float *x = calibration_x(s->c, place);
    int n = calibration_width(&s->c->shape, place), kept = s->n_sample;
    for (int r = 0; r < l->n_rows && n; r++) {
        backend_linear_input(s->m->be, l, r, s->row);
        for (int j = 0; j < n; j++)
            x[j] = fmaxf(x[j], fabsf(s->row[j]));
        if ((s->n_done + r) % s->stride == 0 && kept < SAMPLE_X)
            memcpy(s->sample[place] + (size_t)kept++ * (size_t)n, s->row,
                   (size_t)n * sizeof(float));
    }
}

static void window(struct measure *s, int from, int n)
{
    int32_t token[WINDOW], pos[WINDOW], seq[WINDOW] = {0}, out[WINDOW], table[WINDOW / BLOCK];
    const int32_t *tables[] = {table};
    int n_rows = 0;
    if (s->bos >= 0) token[n_rows++] = s->bos;
    if (n > WINDOW - n_rows) n = WINDOW - n_rows;
    for (int i = 0; i < n; i++)
        token[n_rows++] = s->ids[from + i];
    for (int i = 0; i < n_rows; i++)
        pos[i] = out[i] = i;
    for (int i = 0; i < WINDOW / BLOCK; i++)
        table[i] = i;
    struct model_batch b = {.n_rows = n_rows,
                            .token = token,
                            .pos = pos,
                            .seq = seq,
                            .n_seqs = 1,
                            .block_table = tables,
                            .n_out = n_rows,
                            .out_row = out};
    model_forward(s->m, &b, s->logits);
    for (int i = 0; i < n_rows; i++) /* as `watch` counted them */
        s->n_sample += (s->n_done + i) % s->stride == 0 && s->n_sample < SAMPLE_X;
    s->n_done += n_rows;
}

static void run_text(struct measure *s)
{
    int room = s->window - (s->bos >= 0);
    int windows = (s->n_ids + room - 1) / room;
    s->stride = (s->n_ids + windows + SAMPLE_X - 1) / SAMPLE_X;
    s->m->watch = watch;
    s->m->watch_arg = s;
    for (int from = 0; from < s->n_ids; from += room)
        window(s, from, s->n_ids - from < room ? s->n_ids - from : room);
    s->m->watch = NULL;
    s->c->n_tokens = (uint64_t)s->n_ids;
}

/* ---- weights ---- */
enum { MATRICES_MAX = 3 };
static int matrices_of(const struct model_plan *p, int place,
                       const struct gguf_tensor *out[MATRICES_MAX])
{
    if (place == p->n_layer * SITES) {
        out[0] = p->output ? p->output : p->token_embd;
        return 1;
    }
    const struct plan_layer *l = &p->layers[place / SITES];
    switch ((enum calibration_site)(place % SITES)) {
    case SITE_QKV:
        out[0] = l->q.weight, out[1] = l->k.weight, out[2] = l->v.weight;
        return 3;
    case SITE_ATTN_OUT:
        out[0] = l->attn_out.weight;
        return 1;
    case SITE_GATE:
        out[0] = l->gate.weight, out[1] = l->up.weight;
        return 2;
    default:
        out[0] = l->down.weight;
        return 1;
    }
}

/* The largest of each column, and SAMPLE_W rows at even distances into kept; how many. */
static int read_weights(struct measure *s, int place, float *kept)
{
    const struct gguf_tensor *all[MATRICES_MAX];
    int n_mats = matrices_of(&s->m->plan, place, all), n = calibration_width(&s->c->shape, place),
        n_kept = 0;
    int64_t rows = 0, seen = 0;
    float *most = calibration_w(s->c, place);
    for (int i = 0; i < n_mats; i++)
        rows += all[i]->dims[1];
    int64_t stride = (rows + SAMPLE_W - 1) / SAMPLE_W;
    for (int i = 0; i < n_mats; i++) {
        size_t bytes = tensor_row_bytes(all[i]->type, n);
        for (int64_t r = 0; r < all[i]->dims[1]; r++, seen++) {
            dequantise_row(all[i]->type, (const char *)all[i]->bytes + (size_t)r * bytes, s->row,
                           n);
            for (int j = 0; j < n; j++)
                most[j] = fmaxf(most[j], fabsf(s->row[j]));
            if (seen % stride == 0)
                memcpy(kept + (size_t)n_kept++ * (size_t)n, s->row, (size_t)n * sizeof *kept);
        }
    }
    return n_kept;
}

/* ---- the share ---- */
/* q[n] of v[j] * by[j] (or / by[j]), the largest becoming 127; the scale. */
static float round_row(const float *v, const float *by, bool divide, int n, int8_t *q)
{
    float most = 0;
    for (int j = 0; j < n; j++)
        most = fmaxf(most, fabsf(divide ? v[j] / by[j] : v[j] * by[j]));
    float d = most > 0 ? most / 127.0f : 1.0f;
    for (int j = 0; j < n; j++)
        q[j] = (int8_t)lrintf((divide ? v[j] / by[j] : v[j] * by[j]) / d);
    return d;
}

static double dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int j = 0; j < n; j++)
        sum += (double)a[j] * b[j];
    return sum;
}
static int32_t dot_int(const int8_t *a, const int8_t *b, int n)
{
    int32_t sum = 0;
    for (int j = 0; j < n; j++)
        sum += a[j] * b[j];
    return sum;
}

struct trial {
    const float *x, *w; /* [n_x][n], [n_w][n] */
    int n_x, n_w, n;
    double *exact;   /* [n_x][n_w] */
    int8_t *qx, *qw; /* [n], [n_w][n] */
    float *dw, *s;   /* [n_w], [n] */
};

/* Mean over the inputs of |error|^2 / |product|^2. */
static double error_with(const struct trial *p)
{
    double all = 0;
    size_t n = (size_t)p->n;
    for (int o = 0; o < p->n_w; o++)
        p->dw[o] = round_row(p->w + (size_t)o * n, p->s, false, p->n, p->qw + (size_t)o * n);
    for (int r = 0; r < p->n_x; r++) {
        const double *exact = p->exact + (size_t)r * (size_t)p->n_w;
        double off = 0, size = 0;
        float dx = round_row(p->x + (size_t)r * n, p->s, true, p->n, p->qx);
        for (int o = 0; o < p->n_w; o++) {
            double got = (double)dot_int(p->qx, p->qw + (size_t)o * n, p->n) * dx * p->dw[o];
            off += (got - exact[o]) * (got - exact[o]);
            size += exact[o] * exact[o];
        }
        all += size > 0 ? off / size / p->n_x : 0;
    }
    return all;
}

static float choose_share(struct calibration *c, int place, const struct trial *p)
{
    float best = 0;
    double least = INFINITY;
    for (int r = 0; r < p->n_x; r++)
        for (int o = 0; o < p->n_w; o++)
            p->exact[(size_t)r * (size_t)p->n_w + (size_t)o] =
                dot(p->x + (size_t)r * (size_t)p->n, p->w + (size_t)o * (size_t)p->n, p->n);
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        if (!calibration_spread(c, place, shares[i], p->s))
            for (int j = 0; j < p->n; j++)
                p->s[j] = 1;
        double off = error_with(p);
        if (off < least) least = off, best = shares[i];
    }
    return best;
}

static void choose_shares(struct measure *s, int widest)
{
    size_t n = (size_t)widest;
    float *w = xmalloc(SAMPLE_W * n * sizeof *w);
    struct trial p = {.w = w,
                      .n_x = s->n_sample,
                      .exact = xmalloc(sizeof(double) * SAMPLE_X * SAMPLE_W),
                      .qx = xmalloc(n),
                      .qw = xmalloc(SAMPLE_W * n),
                      .dw = xmalloc(SAMPLE_W * sizeof(float)),
                      .s = xmalloc(n * sizeof(float))};
    for (int place = 0; place <= calibration_head(&s->c->shape); place++) {
        p.n = calibration_width(&s->c->shape, place);
        if (!p.n) continue;
        p.n_w = read_weights(s, place, w);
        p.x = s->sample[place];
        *calibration_a(s->c, place) = choose_share(s->c, place, &p);
    }
    mem_free(w);
    mem_free(p.exact);
    mem_free(p.qx);
    mem_free(p.qw);
    mem_free(p.dw);
    mem_free(p.s);
}

/* ---- life ---- */
static enum err read_text(const char *path, struct buf *to, struct errmsg *e)
{
    char piece[16384];
    FILE *f = fopen(path, "rbe");
    if (!f)
        return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%.100s: %s", path,
                       strerror(errno));
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0 && !to->failed;)
        buf_add(to, piece, n);
    bool bad = ferror(f) != 0;
    (void)fclose(f);
    return bad ? err_set(e, ERR_IO, "%.100s cannot be read", path) : OK;
}

/* The text's tokens; and the one sequences begin with. */
static enum err read_tokens(struct measure *s, const char *path, struct token_list *ids,
                            struct errmsg *e)
{
    struct tokenizer *t;
    struct token_list empty;
    struct buf text;
    enum err code = tokenizer_from_gguf(&t, s->m->gguf, e);
    if (code) return code;
    buf_init(&text, TEXT_BYTES_MAX);
    if (!(code = read_text(path, &text, e))) {
        token_list_init(&empty, 8);
        tokenizer_encode(t, STR(""), TOKENIZE_ADD_SPECIAL, &empty);
        s->bos = empty.n ? empty.ids[0] : -1;
        token_list_fini(&empty);
        tokenizer_encode(t, buf_view(&text), 0, ids);
        s->ids = ids->ids;
        s->n_ids = ids->n < CALIBRATE_TOKENS_MAX ? (int)ids->n : CALIBRATE_TOKENS_MAX;
        if (s->n_ids < CALIBRATE_TOKENS_MIN)
            code = err_set(e, ERR_INVALID, "%.80s: %d tokens say too little: at least %d", path,
                           s->n_ids, CALIBRATE_TOKENS_MIN);
    }
    buf_fini(&text);
    tokenizer_free(t);
    return code;
}

static enum err measure_all(struct measure *s, struct errmsg *e)
{
    struct calibration_shape shape;
    int widest = 0;
    enum err code = OK;
    calibration_shape_of(s->m, &shape);
    int head = calibration_head(&shape);
    if (calibration_new(&s->c, &shape)) code = ERR_FULL;
    s->sample = xcalloc((size_t)head + 1, sizeof *s->sample);
    for (int p = 0; p <= head && !code; p++) {
        int n = calibration_width(&shape, p);
        if (n > widest) widest = n;
        if (n && !(s->sample[p] = try_calloc((size_t)n * SAMPLE_X, sizeof(float)))) code = ERR_FULL;
    }
    s->row = xcalloc((size_t)widest, sizeof *s->row);
    s->logits = try_calloc((size_t)WINDOW * (size_t)s->m->plan.n_vocab, sizeof *s->logits);
    if (code || !s->logits) {
        code = err_set(e, ERR_FULL, "no memory to measure with");
    } else {
        run_text(s);
        choose_shares(s, widest);
    }
    for (int p = 0; p <= head; p++)
        mem_free(s->sample[p]);
    mem_free(s->sample);
    mem_free(s->row);
    mem_free(s->logits);
    return code;
}

enum err calibrate_model(struct calibration **out, const struct calibrate_options *o,
                         struct errmsg *e)
{
    struct measure s = {.bos = -1};
    struct model_options mo = {.n_threads = o->n_threads,
                               .block_tokens = BLOCK,
                               .n_blocks = WINDOW / BLOCK,
                               .max_batch_tokens = WINDOW,
                               .max_seqs = 1,
                               .isa = o->isa};
    struct token_list ids;
    *out = NULL;
    enum err code = model_open(&s.m, o->model_path, &mo, e);
    if (code) return code;
    int context = model_info(s.m)->context_length;
    s.window = context < WINDOW ? context : WINDOW;
    token_list_init(&ids, TEXT_BYTES_MAX);
    code = read_tokens(&s, o->text_path, &ids, e);
    if (!code) code = measure_all(&s, e);
    token_list_fini(&ids);
    model_close(s.m);
    if (code) {
        calibration_free(s.c);
        return code;
    }
    *out = s.c;
    return OK;
}
