/* embedder.c - see embedder.h. One lock guards queue, memo and counters; it is never held while the encoder computes or a
 * callback runs. A request is in exactly one place: the queue, the running pass (its pointer in `running`), or being
 * answered by the one thread that took it out under the lock; so it is answered once. */
#include "embeddings/embedder_private.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/timed_wait.h"

enum {
    BATCH_MAX = 1024,
    COMPARED_AT_ONCE = 8, /* before texts get their turn */
    BYTES_PER_TOKEN =
        3, /* to foresee a text's tokens: Chinese has about 3 bytes a token, English 4 to 5 */
};

void embedder_queue_push(struct embedder *em, struct request *r)
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

void embedder_request_free(struct request *r)
{
    if (r->against) mem_free(r->against->bytes);
    mem_free(r->against);
    mem_free(r->bytes);
    mem_free(r);
}

/* The one answer of a request that got nothing. */
static void refuse(const struct embedder *em, const struct request *r, enum err code)
{
    if (r->compared)
        r->compared(r->arg, code, NULL, 0);
    else
        r->done(r->arg, code, NULL, em->dim, false);
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
        embedder_request_free(r);
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
    (void)timed_wait(&em->clock, &em->lock, at_ms * 1000); /* clock_ms is of the same clock */
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
            refuse(em, &expired, ERR_TIMEOUT);
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

static bool waits(const struct embedder *em, bool compared)
{
    for (const struct request *r = em->first; r; r = r->next)
        if ((r->compared != NULL) == compared) return true;
    return false;
}

/* Fills running from the queue: some comparisons, or as many texts as one pass takes, at least one; in turn where both wait, the
 * comparisons first: they take less, and whoever waits for one has waited for his text already. */
static void take_batch(struct embedder *em)
{
    bool comparing = waits(em, true) && (!em->has_compared || !waits(em, false));
    int tokens = 0, most = comparing ? COMPARED_AT_ONCE : em->opt.batch_max;
    em->n_running = 0;
    em->has_compared = comparing;
    for (struct request *r = em->first, *next; r && em->n_running < most; r = next) {
        int foreseen = (int)(r->text.n / BYTES_PER_TOKEN) + 2;
        next = r->next;
        if ((r->compared != NULL) != comparing) continue;
        if (!comparing && em->n_running && tokens + foreseen > em->opt.batch_tokens_max) break;
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
        memcpy(em->vectors + (size_t)at * em->record, known, em->record * sizeof *known);
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
        text_source_compute(em->source, em->texts + from, to - from,
                            em->vectors + (size_t)from * em->record, em->status + from);
        computed += to - from;
        from = to;
    }
    return computed;
}

static bool has_another(const struct embedder *em, const bool *due, int i)
{
    for (int k = i + 1; k < em->n_running; k++)
        if (due[k] && em->running[k]->done == em->running[i]->done) return true;
    return false;
}

/* Answers every running request that has not expired. The lock is held on entry and exit, not during callbacks. */
static void answer(struct embedder *em)
{
    int n = em->n_running;
    bool *due = em->due;
    for (int i = 0; i < n; i++) {
        struct request *r = em->running[i];
        due[i] = !r->expired;
        r->expired = true; /* the watcher must leave it alone from here on */
        if (!due[i]) continue;
        if (em->status[em->slot[i]])
            em->stats.refused_text++;
        else
            em->stats.answered++;
    }
    pthread_mutex_unlock(&em->lock);
    for (int i = 0; i < n; i++) {
        if (!due[i]) continue;
        const struct request *r = em->running[i];
        enum err code = em->status[em->slot[i]];
        const float *record = em->vectors + (size_t)em->slot[i] * em->record;
        r->done(r->arg, code, code ? NULL : record, em->dim, has_another(em, due, i));
    }
    pthread_mutex_lock(&em->lock);
    em->n_running = 0;
    for (int i = 0; i < n; i++)
        embedder_request_free(em->running[i]);
}

/* One comparison. The lock is held on entry and exit. */
static void compare(struct embedder *em, struct request *r)
{
    const struct comparison *c = r->against;
    struct embedder_opinion opinions[EMBEDDER_COMPARE_MAX];
    if (r->expired) return;
    pthread_mutex_unlock(&em->lock);
    enum err code =
        text_source_joint(em->source, r->text, c->text, c->n, c->cosine, c->tokens, opinions);
    pthread_mutex_lock(&em->lock);
    em->stats.compared += code ? 0 : (uint64_t)c->n;
    if (r->expired) return;
    r->expired = true;
    em->stats.answered++;
    pthread_mutex_unlock(&em->lock);
    r->compared(r->arg, code, code ? NULL : opinions, code ? 0 : c->n);
    pthread_mutex_lock(&em->lock);
}

static void run_comparisons(struct embedder *em)
{
    int n = em->n_running;
    for (int i = 0; i < n; i++)
        compare(em, em->running[i]);
    em->n_running = 0;
    for (int i = 0; i < n; i++)
        embedder_request_free(em->running[i]);
}

static void run_batch(struct embedder *em)
{
    int n_remembered;
    take_batch(em);
    if (em->running[0]->compared) {
        run_comparisons(em);
        return;
    }
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
                embedder_memo_put(em->memo, em->texts[at], em->vectors + (size_t)at * em->record,
                                  em->record * sizeof *em->vectors);
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
        refuse(em, r, ERR_CANCELLED);
        embedder_request_free(r);
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
    pthread_mutex_init(&em->lock, NULL);
    pthread_cond_init(&em->work, NULL);
    timed_cond_init(&em->clock);
    bool ok = !pthread_create(&em->computer, NULL, compute_loop, em) &&
              !pthread_create(&em->watcher, NULL, watch, em);
    ASSERT(ok); /* start-up; a process that may not have two more threads cannot serve */
}

enum err embedder_open(struct embedder **out, const char *path, const struct embedder_options *opt,
                       struct errmsg *e)
{
    struct embedder_options o = *opt;
    struct text_source *source;
    *out = NULL;
    enum err code = fill_options(&o, e);
    if (code) return code;
    if ((code = text_source_open(&source, path, &o, e))) return code;
    struct embedder *em = xcalloc(1, sizeof *em);
    size_t n = (size_t)(o.batch_max > COMPARED_AT_ONCE ? o.batch_max : COMPARED_AT_ONCE);
    em->opt = o;
    em->opt.isa = em->opt.key = em->opt.pair_net = NULL; /* borrowed for the call only */
    em->source = source;
    em->dim = text_source_dim(source);
    em->record = text_source_record(source);
    em->watched_ms = UINT64_MAX;
    em->memo = embedder_memo_new(o.memo_entries < 0 ? 0 : o.memo_entries);
    em->running = xcalloc(n, sizeof *em->running);
    em->texts = xcalloc(n, sizeof *em->texts);
    em->slot = xcalloc(n, sizeof *em->slot);
    em->status = xcalloc(n, sizeof *em->status);
    em->due = xcalloc(n, sizeof *em->due);
    em->vectors = xcalloc(n * em->record, sizeof *em->vectors);
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
    text_source_close(em->source);
    embedder_memo_free(em->memo);
    mem_free(em->running);
    mem_free(em->texts);
    mem_free(em->slot);
    mem_free(em->status);
    mem_free(em->due);
    mem_free(em->vectors);
    mem_free(em);
}

int embedder_dim(const struct embedder *em)
{
    return (int)em->dim;
}

const char *embedder_id(const struct embedder *em)
{
    return text_source_id(em->source);
}
