/* embedder.c - see embedder.h. One lock guards queue, memo and counters; it is never held while the encoder computes or a
 * callback runs. A request is in exactly one place: the queue, the running pass (its pointer in `running`), or being
 * answered by the one thread that took it out under the lock; so it is answered once. */
#include "embeddings/embedder.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/http_client.h"
#include "embeddings/embedder_memo.h"
#include "embeddings/remote.h"
#include "engine/model/encoder.h"

enum {
    BATCH_MAX = 1024,
    BYTES_PER_TOKEN =
        3, /* to foresee a text's tokens: Chinese has about 3 bytes a token, English 4 to 5 */
};

struct request {
    struct request *prev, *next; /* in the queue */
    struct str text;
    char *bytes; /* the text, owned */
    uint64_t deadline_ms;
    embedder_done *done;
    void *arg;
    bool expired; /* running, but already answered with ERR_TIMEOUT */
};

struct embedder {
    struct embedder_options opt;
    struct encoder *enc;   /* the compute thread's; NULL with a remote one */
    struct remote *remote; /* the compute thread's; NULL with an encoder */
    size_t dim;
    pthread_t computer, watcher;
    pthread_mutex_t lock;
    pthread_cond_t work;  /* the queue got an entry, or closing */
    pthread_cond_t clock; /* an earlier deadline came, or closing */
    bool closing;
    struct request *first, *last; /* queue, oldest first */
    int n_queued;
    struct request **running; /* [batch_max], n_running of them */
    int n_running;
    uint64_t watched_ms; /* the watcher sleeps until then; UINT64_MAX = no deadline */
    struct embedder_memo *memo;
    struct embedder_stats stats;

    /* the compute thread's scratch, [batch_max] each */
    struct str *texts;
    int *slot; /* request -> place among the distinct texts */
    enum err *status;
    float *vectors; /* [batch_max][dim] */
};

static void queue_push(struct embedder *em, struct request *r)
{
    r->prev = em->last;
    r->next = NULL;
    if (em->last)
        em->last->next = r;
    else
        em->first = r;
    em->last = r;
    em->n_queued++;
}

static void queue_remove(struct embedder *em, struct request *r)
{
    if (r->prev)
        r->prev->next = r->next;
    else
        em->first = r->next;
    if (r->next)
        r->next->prev = r->prev;
    else
        em->last = r->prev;
    em->n_queued--;
}

static void request_free(struct request *r)
{
    mem_free(r->bytes);
    mem_free(r);
}

/* ---- the watcher ---- */

static uint64_t earliest_deadline(const struct embedder *em)
{
    uint64_t min = UINT64_MAX;
    for (const struct request *r = em->first; r; r = r->next)
        if (r->deadline_ms < min) min = r->deadline_ms;
    for (int i = 0; i < em->n_running; i++)
        if (!em->running[i]->expired && em->running[i]->deadline_ms < min)
            min = em->running[i]->deadline_ms;
    return min;
}

/* A queued request past its deadline leaves the queue and is returned; a running one is marked, and its done and arg are
 * copied to *out, since the compute thread will free it. False: none is past. */
static bool take_expired(struct embedder *em, uint64_t now_ms, struct request *out)
{
    for (struct request *r = em->first; r; r = r->next) {
        if (r->deadline_ms > now_ms) continue;
        queue_remove(em, r);
        *out = *r;
        request_free(r);
        return true;
    }
    for (int i = 0; i < em->n_running; i++) {
        struct request *r = em->running[i];
        if (r->expired || r->deadline_ms > now_ms) continue;
        r->expired = true;
        *out = *r;
        return true;
    }
    return false;
}

static void wait_until(struct embedder *em, uint64_t at_ms)
{
    if (at_ms == UINT64_MAX) {
        pthread_cond_wait(&em->clock, &em->lock);
        return;
    }
    struct timespec ts = {.tv_sec = (time_t)(at_ms / 1000),
                          .tv_nsec = (long)(at_ms % 1000) * 1000000};
    (void)pthread_cond_timedwait(&em->clock, &em->lock,
                                 &ts); /* on the monotonic clock, as clock_ms */
}

static void *watch(void *arg)
{
    struct embedder *em = arg;
    pthread_mutex_lock(&em->lock);
    while (!em->closing) {
        struct request expired;
        if (take_expired(em, clock_ms(), &expired)) {
            em->stats.timeouts++;
            pthread_mutex_unlock(&em->lock);
            expired.done(expired.arg, ERR_TIMEOUT, NULL, em->dim);
            pthread_mutex_lock(&em->lock);
            continue;
        }
        em->watched_ms = earliest_deadline(em);
        wait_until(em, em->watched_ms);
    }
    pthread_mutex_unlock(&em->lock);
    return NULL;
}

/* ---- the compute thread ---- */

/* Fills running from the queue: as many as one pass takes, at least one. */
static void take_batch(struct embedder *em)
{
    int tokens = 0;
    em->n_running = 0;
    while (em->first && em->n_running < em->opt.batch_max) {
        struct request *r = em->first;
        int foreseen = (int)(r->text.n / BYTES_PER_TOKEN) + 2;
        if (em->n_running && tokens + foreseen > em->opt.batch_tokens_max) break;
        tokens += foreseen;
        queue_remove(em, r);
        em->running[em->n_running++] = r;
    }
}

/* texts = the distinct texts of the batch, slot[i] = which of them request i wants. Remembered ones get their vector and
 * status OK, the others status ERR_AGAIN: to be computed. Returns how many distinct. */
static int distinct_texts(struct embedder *em, int *n_remembered)
{
    int n = 0;
    *n_remembered = 0;
    for (int i = 0; i < em->n_running; i++) {
        int at = 0;
        while (at < n && !str_eq(em->texts[at], em->running[i]->text))
            at++;
        em->slot[i] = at;
        if (at < n) continue;
        em->texts[n++] = em->running[i]->text;
    }
    /* Remembered: a text may have been computed by the pass that ran while this request waited. */
    for (int at = 0; at < n; at++) {
        const float *known = embedder_memo_get(em->memo, em->texts[at]);
        em->status[at] = ERR_AGAIN;
        if (!known) continue;
        memcpy(em->vectors + (size_t)at * em->dim, known, em->dim * sizeof *known);
        em->status[at] = OK;
        (*n_remembered)++;
    }
    return n;
}

/* Computes the texts whose status is ERR_AGAIN, in runs of neighbours: most batches are one run. */
static int compute(struct embedder *em, int n_texts)
{
    int computed = 0;
    for (int from = 0; from < n_texts;) {
        int to = from;
        while (to < n_texts && em->status[to] == ERR_AGAIN)
            to++;
        if (to == from) {
            from++;
            continue;
        }
        float *out = em->vectors + (size_t)from * em->dim;
        if (em->remote)
            remote_embed(em->remote, em->texts + from, to - from, out, em->status + from);
        else
            encoder_embed(em->enc, em->texts + from, to - from, out, em->status + from);
        computed += to - from;
        from = to;
    }
    return computed;
}

/* Answers every running request that has not expired. The lock is held on entry and exit, not during callbacks. */
static void answer(struct embedder *em)
{
    int n = em->n_running;
    for (int i = 0; i < n; i++) {
        struct request *r = em->running[i];
        if (r->expired) continue;
        r->expired = true; /* the watcher must leave it alone from here on */
        enum err code = em->status[em->slot[i]];
        if (code)
            em->stats.refused_text++;
        else
            em->stats.answered++;
        pthread_mutex_unlock(&em->lock);
        r->done(r->arg, code, code ? NULL : em->vectors + (size_t)em->slot[i] * em->dim, em->dim);
        pthread_mutex_lock(&em->lock);
    }
    em->n_running = 0;
    for (int i = 0; i < n; i++)
        request_free(em->running[i]);
}

static void run_batch(struct embedder *em)
{
    int n_remembered;
    take_batch(em);
    int n_texts = distinct_texts(em, &n_remembered);
    em->stats.memo_hits += (uint64_t)n_remembered;
    pthread_mutex_unlock(&em->lock);
    uint64_t start_us = clock_us();
    int computed = compute(em, n_texts);
    uint64_t took_us = clock_us() - start_us;
    pthread_mutex_lock(&em->lock);
    if (computed) {
        em->stats.passes++;
        em->stats.pass_texts += (uint64_t)computed;
        em->stats.pass_us += took_us;
        for (int at = 0; at < n_texts; at++)
            if (!em->status[at])
                embedder_memo_put(em->memo, em->texts[at], em->vectors + (size_t)at * em->dim);
    }
    answer(em);
}

static void cancel_queued(struct embedder *em)
{
    while (em->first) {
        struct request *r = em->first;
        queue_remove(em, r);
        em->stats.cancelled++;
        pthread_mutex_unlock(&em->lock);
        r->done(r->arg, ERR_CANCELLED, NULL, em->dim);
        request_free(r);
        pthread_mutex_lock(&em->lock);
    }
}

static void *compute_loop(void *arg)
{
    struct embedder *em = arg;
    pthread_mutex_lock(&em->lock);
    while (!em->closing) {
        if (em->first)
            run_batch(em);
        else
            pthread_cond_wait(&em->work, &em->lock);
    }
    cancel_queued(em);
    pthread_mutex_unlock(&em->lock);
    return NULL;
}

/* ---- life ---- */

static enum err option(int *v, int standard, int max, const char *name, struct errmsg *e)
{
    if (*v == 0) *v = standard;
    if (*v < 1 || *v > max) return err_set(e, ERR_RANGE, "%s: %d must be 1 to %d", name, *v, max);
    return OK;
}

static enum err fill_options(struct embedder_options *o, struct errmsg *e)
{
    enum err code;
    if ((code = option(&o->n_threads, 1, 64, "n_threads", e)) ||
        (code = option(&o->batch_max, 32, BATCH_MAX, "batch_max", e)) ||
        (code = option(&o->batch_tokens_max, 512, 1 << 16, "batch_tokens_max", e)) ||
        (code = option(&o->queue_max, 256, 1 << 16, "queue_max", e)) ||
        (code = option(&o->deadline_ms, 1000, 600000, "deadline_ms", e)))
        return code;
    if (o->memo_entries == 0) o->memo_entries = 4096;
    if (o->memo_entries < -1 || o->memo_entries > 1 << 20)
        return err_set(e, ERR_RANGE, "memo_entries: %d must be -1 (none) to %d", o->memo_entries,
                       1 << 20);
    if (o->text_bytes_max == 0) o->text_bytes_max = 32 << 10;
    return OK;
}

static void start_threads(struct embedder *em)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&em->lock, NULL);
    pthread_cond_init(&em->work, &monotonic);
    pthread_cond_init(&em->clock, &monotonic);
    pthread_condattr_destroy(&monotonic);
    bool ok = !pthread_create(&em->computer, NULL, compute_loop, em) &&
              !pthread_create(&em->watcher, NULL, watch, em);
    ASSERT(ok); /* start-up; a process that may not have two more threads cannot serve */
}

enum err embedder_open(struct embedder **out, const char *path, const struct embedder_options *opt,
                       struct errmsg *e)
{
    struct embedder_options o = *opt;
    struct encoder *enc = NULL;
    struct remote *remote = NULL;
    *out = NULL;
    enum err code = fill_options(&o, e);
    if (code) return code;
    struct encoder_options eo = {.n_threads = o.n_threads,
                                 .isa = o.isa,
                                 .keep_f32 = o.keep_f32,
                                 .batch_tokens_max = o.batch_tokens_max,
                                 .unknown_share_max = o.unknown_share_max};
    code =
        http_is_url(path) ? remote_open(&remote, path, o.key, e) : encoder_open(&enc, path, &eo, e);
    if (code) return code;
    struct embedder *em = xcalloc(1, sizeof *em);
    size_t n = (size_t)o.batch_max;
    em->opt = o;
    em->opt.isa = em->opt.key = NULL; /* borrowed for the call only */
    em->enc = enc;
    em->remote = remote;
    em->dim = (size_t)(remote ? remote_dim(remote) : encoder_dim(enc));
    em->watched_ms = UINT64_MAX;
    em->memo = embedder_memo_new(o.memo_entries < 0 ? 0 : o.memo_entries, (int)em->dim);
    em->running = xcalloc(n, sizeof *em->running);
    em->texts = xcalloc(n, sizeof *em->texts);
    em->slot = xcalloc(n, sizeof *em->slot);
    em->status = xcalloc(n, sizeof *em->status);
    em->vectors = xcalloc(n * em->dim, sizeof *em->vectors);
    start_threads(em);
    *out = em;
    return OK;
}

void embedder_close(struct embedder *em)
{
    if (!em) return;
    pthread_mutex_lock(&em->lock);
    em->closing = true;
    pthread_cond_broadcast(&em->work);
    pthread_cond_broadcast(&em->clock);
    pthread_mutex_unlock(&em->lock);
    pthread_join(em->computer, NULL);
    pthread_join(em->watcher, NULL);
    pthread_mutex_destroy(&em->lock);
    pthread_cond_destroy(&em->work);
    pthread_cond_destroy(&em->clock);
    encoder_close(em->enc);
    remote_close(em->remote);
    embedder_memo_free(em->memo);
    mem_free(em->running);
    mem_free(em->texts);
    mem_free(em->slot);
    mem_free(em->status);
    mem_free(em->vectors);
    mem_free(em);
}

int embedder_dim(const struct embedder *em)
{
    return (int)em->dim;
}

const char *embedder_id(const struct embedder *em)
{
    return em->remote ? remote_id(em->remote) : encoder_id(em->enc);
}

int embedder_max_tokens(const struct embedder *em)
{
    return em->remote ? 0 : encoder_max_tokens(em->enc);
}

/* ---- calls ---- */

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

enum err embedder_submit(struct embedder *em, struct str text, int deadline_ms, embedder_done *done,
                         void *arg)
{
    ASSERT(deadline_ms >= 0);
    if (text.n > em->opt.text_bytes_max) return ERR_TOO_LARGE;
    pthread_mutex_lock(&em->lock);
    enum err code = admit(em);
    if (!code) {
        struct request *r = xcalloc(1, sizeof *r);
        r->bytes = xstrndup(text.p ? text.p : "", text.n);
        r->text = (struct str){r->bytes, text.n};
        r->deadline_ms = clock_ms() + (uint64_t)(deadline_ms ? deadline_ms : em->opt.deadline_ms);
        r->done = done;
        r->arg = arg;
        queue_push(em, r);
        em->stats.submitted++;
        pthread_cond_signal(&em->work);
        if (r->deadline_ms < em->watched_ms) pthread_cond_signal(&em->clock);
    }
    pthread_mutex_unlock(&em->lock);
    return code;
}

bool embedder_recall(struct embedder *em, struct str text, float *out)
{
    pthread_mutex_lock(&em->lock);
    const float *known = embedder_memo_get(em->memo, text);
    if (known) {
        memcpy(out, known, em->dim * sizeof *out);
        em->stats.memo_hits++;
    }
    pthread_mutex_unlock(&em->lock);
    return known != NULL;
}

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t ready;
    bool done;
    enum err code;
    float *out;
};

static void wake_waiter(void *arg, enum err code, const float *vector, size_t dim)
{
    struct waiter *w = arg;
    pthread_mutex_lock(&w->lock);
    w->code = code;
    if (!code) memcpy(w->out, vector, dim * sizeof *vector);
    w->done = true;
    pthread_cond_signal(&w->ready);
    pthread_mutex_unlock(&w->lock);
}

enum err embedder_embed_sync(struct embedder *em, struct str text, float *out)
{
    if (embedder_recall(em, text, out)) return OK;
    struct waiter w = {.out = out};
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
    pthread_mutex_unlock(&em->lock);
}
