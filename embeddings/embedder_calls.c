/* embedder_calls.c - what others call: handing over texts and pairs, remembered vectors, waiting versions. See embedder.h. */
#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "embeddings/embedder_private.h"

/* Why a text is turned away now, or OK. The lock is held. */
static enum err admit(struct embedder *em)
{
    if (em->closing) return ERR_CLOSED;
    if (em->n_queued >= em->opt.queue_max) {
        em->stats.refused_full++;
        return ERR_FULL;
    }
    return OK;
}

/* Queues r, which is then the embedder's, or frees it. */
static enum err submit(struct embedder *em, struct request *r, struct str text, int deadline_ms)
{
    ASSERT(deadline_ms >= 0);
    pthread_mutex_lock(&em->lock);
    enum err code = admit(em);
    if (!code) {
        r->bytes = xstrndup(text.p ? text.p : "", text.n);
        r->text = (struct str){r->bytes, text.n};
        r->deadline_ms = clock_ms() + (uint64_t)(deadline_ms ? deadline_ms : em->opt.deadline_ms);
        embedder_queue_push(em, r);
        em->stats.submitted++;
        pthread_cond_signal(&em->work);
        if (r->deadline_ms < em->watched_ms) pthread_cond_signal(&em->clock);
    }
    pthread_mutex_unlock(&em->lock);
    if (code) embedder_request_free(r);
    return code;
}

enum err embedder_submit(struct embedder *em, struct str text, int deadline_ms, embedder_done *done,
                         void *arg)
{
    if (text.n > em->opt.text_bytes_max) return ERR_TOO_LARGE;
    struct request *r = xcalloc(1, sizeof *r);
    r->done = done;
    r->arg = arg;
    return submit(em, r, text, deadline_ms);
}

bool embedder_can_compare(const struct embedder *em)
{
    return text_source_has_joint(em->source);
}

enum err embedder_compare(struct embedder *em, struct str a, const struct str *b,
                          const double *cosines, const struct str *tokens, int n, int deadline_ms,
                          embedder_compared *done, void *arg)
{
    size_t n_bytes = 0, n_tokens = 0;
    ASSERT(n >= 1 && n <= EMBEDDER_COMPARE_MAX);
    if (!embedder_can_compare(em)) return ERR_UNSUPPORTED;
    for (int i = 0; i < n; i++)
        n_bytes += b[i].n, n_tokens += tokens ? tokens[i].n : 0;
    if (n_tokens > (size_t)n * EMBEDDER_TOKENS_BYTES) return ERR_TOO_LARGE;
    if (a.n > em->opt.text_bytes_max || n_bytes > em->opt.text_bytes_max * (size_t)n)
        return ERR_TOO_LARGE;
    struct request *r = xcalloc(1, sizeof *r);
    struct comparison *c = r->against = xcalloc(1, sizeof *c);
    r->compared = done;
    r->arg = arg;
    c->n = n;
    c->bytes = xmalloc(n_bytes + n_tokens + 1);
    n_bytes = 0;
    for (int i = 0; i < n; i++) {
        if (b[i].n) memcpy(c->bytes + n_bytes, b[i].p, b[i].n);
        c->text[i] = (struct str){c->bytes + n_bytes, b[i].n};
        c->cosine[i] = cosines[i];
        n_bytes += b[i].n;
    }
    for (int i = 0; tokens && i < n; i++) {
        if (tokens[i].n) memcpy(c->bytes + n_bytes, tokens[i].p, tokens[i].n);
        c->tokens[i] = (struct str){c->bytes + n_bytes, tokens[i].n};
        n_bytes += tokens[i].n;
    }
    return submit(em, r, a, deadline_ms);
}

size_t embedder_recall_tokens(struct embedder *em, struct str text,
                              uint8_t out[EMBEDDER_TOKENS_BYTES])
{
    static_assert((int)EMBEDDER_TOKENS_BYTES >= (int)PAIR_PACKED_MAX, "one holds the other");
    return text_source_recall_tokens(em->source, text, out);
}

bool embedder_tokens_fit(const struct embedder *em, struct str bytes)
{
    return text_source_tokens_fit(em->source, bytes);
}

size_t embedder_sketch_bytes(const struct embedder *em)
{
    return text_source_sketch_bytes(em->source);
}

const char *embedder_why_no_sketch(const struct embedder *em)
{
    return text_source_why_no_sketch(em->source);
}

struct str embedder_calibration(const struct embedder *em)
{
    return text_source_calibration(em->source);
}

enum err embedder_score(const struct embedder *em, const void *sketch_a, const void *sketch_b,
                        double cosine, float *logit)
{
    return text_source_score(em->source, sketch_a, sketch_b, cosine, logit);
}

static void copy_record(const struct embedder *em, const float *record, float *out, void *sketch)
{
    memcpy(out, record, em->dim * sizeof *out);
    if (sketch) memcpy(sketch, record + em->dim, text_source_sketch_bytes(em->source));
}

bool embedder_recall_sketch(struct embedder *em, struct str text, float *out, void *sketch)
{
    pthread_mutex_lock(&em->lock);
    const float *known = embedder_memo_get(em->memo, text);
    if (known) {
        copy_record(em, known, out, sketch);
        em->stats.memo_hits++;
    }
    pthread_mutex_unlock(&em->lock);
    return known != NULL;
}

bool embedder_recall(struct embedder *em, struct str text, float *out)
{
    return embedder_recall_sketch(em, text, out, NULL);
}

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t ready;
    bool done;
    enum err code;
    const struct embedder *em;
    float *out;
    void *sketch;
};

static void wake_waiter(void *arg, enum err code, const float *vector, size_t dim, bool more)
{
    struct waiter *w = arg;
    (void)dim, (void)more;
    pthread_mutex_lock(&w->lock);
    w->code = code;
    if (!code) copy_record(w->em, vector, w->out, w->sketch);
    w->done = true;
    pthread_cond_signal(&w->ready);
    pthread_mutex_unlock(&w->lock);
}

enum err embedder_embed_sketch_sync(struct embedder *em, struct str text, float *out, void *sketch)
{
    if (embedder_recall_sketch(em, text, out, sketch)) return OK;
    struct waiter w = {.em = em, .out = out, .sketch = sketch};
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.ready, NULL);
    enum err code = embedder_submit(em, text, 600000, wake_waiter, &w);
    if (!code) {
        pthread_mutex_lock(&w.lock);
        while (!w.done)
            pthread_cond_wait(&w.ready, &w.lock);
        pthread_mutex_unlock(&w.lock);
        code = w.code;
    }
    pthread_mutex_destroy(&w.lock);
    pthread_cond_destroy(&w.ready);
    return code;
}

void embedder_stats_read(struct embedder *em, struct embedder_stats *out)
{
    pthread_mutex_lock(&em->lock);
    *out = em->stats;
    out->queued = em->n_queued;
    out->memo_entries = embedder_memo_entries(em->memo);
    out->memo_bytes = embedder_memo_bytes(em->memo);
    pthread_mutex_unlock(&em->lock);
    out->memo_bytes += text_source_tokens_bytes(em->source);
}
