/* text_source.c - see text_source.h. */
#include "embeddings/text_source.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/http_client.h"
#include "base/mem.h"
#include "embeddings/embedder_memo.h"
#include "embeddings/pair_weights.h"
#include "embeddings/remote.h"
#include "engine/model/gguf.h"

enum { TOKENS_ENTRIES = 8192 }; /* some 3 KB each: 26 MB */

struct text_source {
    struct encoder *enc;   /* NULL with a remote one */
    struct remote *remote; /* NULL with an encoder */
    struct pair_net *net;  /* NULL = none */
    size_t dim, sketch_bytes, record;
    char why[240];
    struct embedder_memo *tokens; /* NULL without a joint net */
    pthread_mutex_t lock; /* of tokens: what is borrowed from it stays, as only compute puts */

    /* scratch of text_source_compute, grown to n_max texts */
    int n_max;
    float *vectors;                /* [n_max][dim] */
    uint8_t *sketches;             /* [n_max][sketch_bytes] */
    struct pair_tokens **computed; /* [n_max] */
};

/* The weights asked for must fit; ours need not. */
static enum err open_net(struct text_source *s, const char *path, struct errmsg *e)
{
    struct gguf *g;
    struct errmsg why = {0};
    struct str ours = pair_weights();
    enum err code = path ? gguf_open(&g, path, e) : gguf_from_bytes(&g, ours.p, ours.n, e);
    if (code) return code;
    code = pair_net_open(&s->net, s->enc, g, &why);
    gguf_close(g);
    if (code && path) return err_set(e, code, "%s: %s", path, why.text);
    if (code) (void)snprintf(s->why, sizeof s->why, "%s", why.text);
    return OK;
}

static enum err open_encoder(struct text_source *s, const char *path,
                             const struct embedder_options *o, struct errmsg *e)
{
    struct encoder_options eo = {.n_threads = o->n_threads,
                                 .isa = o->isa,
                                 .keep_f32 = o->keep_f32,
                                 .batch_tokens_max = o->batch_tokens_max,
                                 .unknown_share_max = o->unknown_share_max};
    enum err code = encoder_open(&s->enc, path, &eo, e);
    return code ? code : open_net(s, o->pair_net, e);
}

enum err text_source_open(struct text_source **out, const char *path,
                          const struct embedder_options *o, struct errmsg *e)
{
    struct text_source *s = xcalloc(1, sizeof *s);
    *out = NULL;
    pthread_mutex_init(&s->lock, NULL);
    enum err code =
        http_is_url(path) ? remote_open(&s->remote, path, o->key, e) : open_encoder(s, path, o, e);
    if (code) {
        text_source_close(s);
        return code;
    }
    if (s->remote) (void)snprintf(s->why, sizeof s->why, "a remote server gives vectors only");
    s->dim = (size_t)(s->remote ? remote_dim(s->remote) : encoder_dim(s->enc));
    s->sketch_bytes = s->net ? pair_net_sketch_bytes(s->net) : 0;
    s->record = s->dim + (s->sketch_bytes + sizeof(float) - 1) / sizeof(float);
    if (s->net && pair_net_is_joint(s->net)) s->tokens = embedder_memo_new(TOKENS_ENTRIES);
    *out = s;
    return OK;
}

void text_source_close(struct text_source *s)
{
    if (!s) return;
    embedder_memo_free(s->tokens);
    pthread_mutex_destroy(&s->lock);
    pair_net_close(s->net);
    encoder_close(s->enc);
    remote_close(s->remote);
    mem_free(s->vectors);
    mem_free(s->sketches);
    mem_free(s->computed);
    mem_free(s);
}

size_t text_source_dim(const struct text_source *s)
{
    return s->dim;
}

size_t text_source_record(const struct text_source *s)
{
    return s->record;
}

size_t text_source_sketch_bytes(const struct text_source *s)
{
    return s->sketch_bytes;
}

bool text_source_has_joint(const struct text_source *s)
{
    return s->net && pair_net_is_joint(s->net);
}

const char *text_source_id(const struct text_source *s)
{
    return s->remote ? remote_id(s->remote) : encoder_id(s->enc);
}

const char *text_source_why_no_sketch(const struct text_source *s)
{
    return s->why;
}

struct str text_source_calibration(const struct text_source *s)
{
    return s->net ? pair_net_calibration(s->net) : (struct str){"", 0};
}

static void grow(struct text_source *s, int n)
{
    if (n <= s->n_max) return;
    size_t count = (size_t)n;
    s->n_max = n;
    s->vectors = xrealloc(s->vectors, count * s->dim * sizeof *s->vectors);
    s->sketches = xrealloc(s->sketches, count * (s->sketch_bytes + 1));
    s->computed = xrealloc(s->computed, count * sizeof(struct pair_tokens *));
}

/* What pair_net_embed has left in `computed` goes into the memo. */
static void remember(struct text_source *s, const struct str *texts, int n)
{
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < n; i++) {
        if (s->computed[i])
            embedder_memo_put(s->tokens, texts[i], s->computed[i],
                              pair_tokens_bytes(s->computed[i]));
        pair_tokens_free(s->computed[i]);
    }
    pthread_mutex_unlock(&s->lock);
}

void text_source_compute(struct text_source *s, const struct str *texts, int n, float *records,
                         enum err *status)
{
    if (s->remote) {
        remote_embed(s->remote, texts, n, records, status);
        return;
    }
    if (!s->net) {
        encoder_embed(s->enc, texts, n, records, status);
        return;
    }
    grow(s, n);
    pair_net_embed(s->net, texts, n, s->vectors, status, s->sketches,
                   s->tokens ? s->computed : NULL);
    for (int i = 0; i < n; i++) {
        float *record = records + (size_t)i * s->record;
        memcpy(record, s->vectors + (size_t)i * s->dim, s->dim * sizeof *record);
        memcpy(record + s->dim, s->sketches + (size_t)i * s->sketch_bytes, s->sketch_bytes);
    }
    if (s->tokens) remember(s, texts, n);
}

enum err text_source_score(const struct text_source *s, const void *sketch_a, const void *sketch_b,
                           double cosine, float *logit)
{
    if (!s->net) return ERR_UNSUPPORTED;
    return pair_net_score(s->net, sketch_a, sketch_b, cosine, logit);
}

static const struct pair_tokens *known(struct text_source *s, struct str text)
{
    pthread_mutex_lock(&s->lock);
    const struct pair_tokens *t = embedder_memo_get(s->tokens, text);
    pthread_mutex_unlock(&s->lock);
    return t;
}

/* What was stored with the texts is remembered as if it had been computed. */
static void take_packed(struct text_source *s, const struct str *texts, int n,
                        const struct str *packed)
{
    for (int i = 0; packed && i + 1 < n; i++) {
        if (!packed[i].n || known(s, texts[i + 1])) continue;
        grow(s, 1);
        s->computed[0] = pair_tokens_unpack(s->net, packed[i]);
        remember(s, texts + i + 1, 1);
    }
}

/* Of texts[n], at most EMBEDDER_COMPARE_MAX + 1; packed as in text_source_joint, from the second on. NULL where the net
 * does not take a text. Borrowed until the next compute. */
static void recall(struct text_source *s, const struct str *texts, int n, const struct str *packed,
                   const struct pair_tokens **found)
{
    take_packed(s, texts, n, packed);
    struct str missing[EMBEDDER_COMPARE_MAX + 1];
    enum err status[EMBEDDER_COMPARE_MAX + 1];
    int n_missing = 0;
    for (int i = 0; i < n; i++)
        if (!known(s, texts[i])) missing[n_missing++] = texts[i];
    if (n_missing) {
        grow(s, n_missing);
        pair_net_embed(s->net, missing, n_missing, s->vectors, status, s->sketches, s->computed);
        remember(s, missing, n_missing);
    }
    for (int i = 0; i < n; i++)
        found[i] = known(s, texts[i]);
}

enum err text_source_joint(struct text_source *s, struct str a, const struct str *b, int n,
                           const double *cosines, const struct str *packed,
                           struct embedder_opinion *out)
{
    const struct pair_tokens *found[EMBEDDER_COMPARE_MAX + 1];
    struct str texts[EMBEDDER_COMPARE_MAX + 1];
    if (!s->tokens) return ERR_UNSUPPORTED;
    _Static_assert((int)EMBEDDER_COMPARE_MAX <= (int)PAIR_COMPARE_MAX, "one call for all");
    ASSERT(n >= 1 && n <= EMBEDDER_COMPARE_MAX);
    texts[0] = a;
    memcpy(texts + 1, b, (size_t)n * sizeof *b);
    recall(s, texts, n + 1, packed, found);
    float alone[EMBEDDER_COMPARE_MAX], joint[EMBEDDER_COMPARE_MAX];
    pair_net_compare(s->net, found[0], found + 1, cosines, n, alone, joint);
    for (int i = 0; i < n; i++)
        out[i] = (struct embedder_opinion){alone[i], joint[i]};
    return OK;
}

size_t text_source_recall_tokens(struct text_source *s, struct str text,
                                 uint8_t out[PAIR_PACKED_MAX])
{
    if (!s->tokens) return 0;
    pthread_mutex_lock(&s->lock);
    const struct pair_tokens *t = embedder_memo_get(s->tokens, text);
    size_t n = t ? pair_tokens_pack(t, out) : 0;
    pthread_mutex_unlock(&s->lock);
    return n;
}

bool text_source_tokens_fit(const struct text_source *s, struct str bytes)
{
    struct pair_tokens *t = s->tokens ? pair_tokens_unpack(s->net, bytes) : NULL;
    bool fit = t != NULL;
    pair_tokens_free(t);
    return fit;
}

size_t text_source_tokens_bytes(struct text_source *s)
{
    if (!s->tokens) return 0;
    pthread_mutex_lock(&s->lock);
    size_t n = embedder_memo_bytes(s->tokens);
    pthread_mutex_unlock(&s->lock);
    return n;
}
