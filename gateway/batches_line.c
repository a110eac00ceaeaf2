/* batches_line.c - one line's way: read, through the pipeline as a request of its tenant, and its result handed to Redis, again and again
 * until Redis has it. What may pass is tried again later by whoever takes it then; what cannot is a line of the error file. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/http_local.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/batch_line.h"
#include "gateway/batch_pace.h"
#include "gateway/batches_internal.h"

enum {
    ANSWER_BYTES_MAX = 8 << 20, /* of one line's answer; embeddings are long */
    LINE_BYTES_MAX = ANSWER_BYTES_MAX + 16384,
    LONG_ANSWER_BYTES = 64 * 1024, /* read on a worker: about a millisecond of parsing */
    LONG_LINE_BYTES = 4096,        /* the same; many lines come at once */
    AWAY_MS = 500,                 /* between attempts to hand a result to a Redis that is away */
    DELIVERIES_MAX = 5
};

struct line {
    struct batch_task task;
    char tenant[TENANT_BYTES], endpoint[BATCH_ENDPOINT_BYTES], *authorization;
    int64_t number, tries, waits, deliveries;
    bool late; /* only to be told so */
    struct buf text;
    struct batch_line request;
    bool parsed;
    struct http_local *http;
    struct loop_timer *again; /* for a Redis that was away */

    /* the answer */
    int status;
    char request_id[128];
    struct buf answer;
    bool answer_good; /* a JSON object; result holds its line */
    bool hopeless;    /* it says that asking again is no use */

    /* what is handed to Redis: a result, or (kind NULL) that it is to be tried again */
    const char *kind;
    struct metric *counter; /* of what it is, if it is the first result of its line */
    struct buf result, instead;
    char counts[4], delay[24], hold[24];
    int refused;  /* so many times by a Redis that is there */
    bool awaited; /* a reply, or a worker's end */
};

static void free_line(struct line *l)
{
    http_local_free(l->http);
    loop_timer_free(l->again);
    if (l->parsed) batch_line_fini(&l->request);
    mem_free(l->authorization);
    buf_fini(&l->text);
    buf_fini(&l->answer);
    buf_fini(&l->result);
    buf_fini(&l->instead);
    batches_remove(&l->task);
    mem_free(l);
}

static void stop(struct batch_task *t)
{
    struct line *l = (struct line *)t;
    if (l->http) {
        struct http_local *h = l->http;
        l->http = NULL;
        t->b->n_lines--;
        http_local_free(h);
    }
    if (!l->awaited) free_line(l);
}

/* --- handing over */
static void hand_over(void *arg);

static void on_handed(void *arg, enum err code, const struct redis_reply *reply)
{
    struct line *l = arg;
    l->awaited = false;
    bool refused = code == OK && reply->kind == REDIS_ERROR;
    if (code == OK && reply->kind == REDIS_INTEGER && reply->integer > 0 && !l->task.b->closed &&
        l->counter)
        metric_add(l->counter, 1);
    if (l->task.b->closed || (code == OK && !refused)) {
        free_line(l);
    } else if (refused) { /* it may be for good: nothing is lost, and nobody is flooded */
        uint64_t wait_ms = batch_again_ms(l->refused++, rng_f64(&l->task.b->gw->rng));
        metric_add(l->task.b->refused, 1);
        log_limited(
            LOG_WARN, "gateway",
            "batches: Redis did not take the result of line %lld of %s, again in %llu ms: " STR_FMT,
            (long long)l->number + 1, l->task.batch, (unsigned long long)wait_ms,
            STR_ARG(str_sub(reply->text, 0, 160)));
        loop_timer_arm(l->again, wait_ms);
    } else {
        loop_timer_arm(l->again, AWAY_MS);
    }
}

static void hand_over(void *arg)
{
    struct line *l = arg;
    struct store *s = l->task.b->gw->store;
    char number[24];
    l->awaited = true;
    if (!l->kind) {
        struct str args[] = {str_of(l->task.batch), str_of(l->task.entry), str_of(l->counts),
                             str_of(l->delay), str_of(l->hold)};
        store_call(s, "deja_batch_retry", 5, args, on_handed, l);
        return;
    }
    snprintf(number, sizeof number, "%lld", (long long)l->number);
    struct str args[] = {str_of(l->task.batch), str_of(l->task.entry), str_of(number),
                         str_of(l->kind),       buf_view(&l->result),  buf_view(&l->instead)};
    store_call(s, "deja_batch_done", 6, args, on_handed, l);
}

static struct batch_answer describe(const struct line *l)
{
    return (struct batch_answer){.batch = l->task.batch,
                                 .line = l->number,
                                 .custom_id = l->parsed ? l->request.custom_id : STR(""),
                                 .request_id = str_of(l->request_id),
                                 .body = buf_view(&l->answer),
                                 .status = l->status};
}

static void fail(struct line *l, const char *kind, const char *code, const char *message)
{
    struct batch_answer a = describe(l);
    l->kind = kind;
    buf_clear(&l->result);
    batch_error_write(&l->result, &a, code, message);
    hand_over(l);
}

static void try_later(struct line *l, bool counts, uint64_t asked_ms)
{
    struct batches *b = l->task.b;
    int attempt = (int)(l->tries + l->waits);
    uint64_t delay = batch_delay_ms((uint64_t)b->gw->o.batch_backoff_ms, attempt, asked_ms,
                                    rng_f64(&b->gw->rng));
    snprintf(l->counts, sizeof l->counts, "%d", counts);
    snprintf(l->delay, sizeof l->delay, "%llu", (unsigned long long)delay);
    /* others of the batch would meet the same: it pauses, but not for as long as a line that has met it often */
    snprintf(l->hold, sizeof l->hold, "%llu",
             (unsigned long long)(counts          ? 0
                                  : delay > 10000 ? 10000
                                                  : delay));
    buf_clear(&l->result);
    l->counter = counts ? b->retried : b->waited;
    l->kind = NULL;
    hand_over(l);
}

/* --- the answer */
static void give_up(struct line *l)
{
    struct batches *b = l->task.b;
    l->counter = l->status >= 400 && l->status < 500 && l->status != 429 ? b->bad : b->dead;
    l->kind = "bad";
    if (l->status && l->answer_good)
        hand_over(l);
    else
        fail(l, "bad", l->status ? "upstream_bad_answer" : "no_answer",
             l->status ? "the answer is not a JSON object"
                       : "the request was cut off each time it was tried");
}

static void judge(struct line *l, uint64_t asked_ms)
{
    struct batches *b = l->task.b;
    struct batch_answer a = describe(l);
    bool unreadable = l->status / 100 == 2 && !l->answer_good;
    enum batch_verdict v = batch_verdict(unreadable ? 502 : l->status, (int)l->tries,
                                         b->gw->o.batch_tries, (int)l->waits);
    if ((v == BATCH_RETRY || v == BATCH_WAIT) && !l->hopeless) {
        try_later(l, v == BATCH_RETRY, asked_ms);
        return;
    }
    if (v != BATCH_GOOD) {
        give_up(l);
        return;
    }
    l->counter = b->good;
    l->kind = "out";
    batch_error_write(&l->instead, &a, "file_quota_exceeded",
                      "the answer has no room: the tenant's files take all they may; it is in the "
                      "cache, so asking again costs little");
    hand_over(l);
}

static void read_answer(void *arg)
{
    struct line *l = arg;
    struct batch_answer a = describe(l);
    l->answer_good = batch_body_ok(buf_view(&l->answer)) && batch_answer_write(&l->result, &a);
}

static uint64_t asked_of(const struct line *l)
{
    int64_t s;
    return str_to_i64(str_of(l->delay), 0, 86400, &s) == OK ? (uint64_t)s * 1000 : 0;
}

static void answer_read(void *arg, bool cancelled)
{
    struct line *l = arg;
    l->awaited = false;
    if (l->task.b->closed || cancelled)
        free_line(l);
    else
        judge(l, asked_of(l));
}

static void on_answer(void *arg, enum err code, int status, struct str body)
{
    struct line *l = arg;
    struct batches *b = l->task.b;
    struct str id = http_local_header(l->http, "x-request-id"),
               after = http_local_header(l->http, "retry-after");
    l->hopeless = !after.n && /* a budget's time comes */
                  str_eqz(http_local_header(l->http, "x-should-retry"), "false");
    l->status = code == OK || code == ERR_TOO_LARGE ? status : 0;
    snprintf(l->request_id, sizeof l->request_id, STR_FMT, STR_ARG(id));
    snprintf(l->delay, sizeof l->delay, STR_FMT, STR_ARG(after));
    buf_str(&l->answer, body);
    if (buf_failed(&l->answer)) l->status = 0;
    http_local_free(l->http);
    l->http = NULL;
    b->n_lines--;
    if (code == ERR_TOO_LARGE) {
        l->counter = b->dead;
        fail(l, "bad", "answer_too_large", "the answer is over 8 MiB");
    } else if (l->answer.n > LONG_ANSWER_BYTES &&
               workers_submit(b->gw->workers, b->gw->loop, read_answer, answer_read, l) == OK) {
        l->awaited = true;
    } else {
        read_answer(l);
        judge(l, asked_of(l));
    }
}

/* --- the request */
static void run(struct line *l)
{
    struct batches *b = l->task.b;
    struct http_header h[2] = {{STR("content-type"), STR("application/json")}};
    size_t n = 1;
    if (l->authorization[0])
        h[n++] = (struct http_header){STR("authorization"), str_of(l->authorization)};
    struct http_local_request q = {.method = "POST",
                                   .path = l->endpoint,
                                   .headers = h,
                                   .n_headers = n,
                                   .body = l->request.body,
                                   .body_max = ANSWER_BYTES_MAX};
    l->http = http_local_new(b->gw->loop, &q, on_answer, l);
    b->n_lines++;
    pipeline_start_batch(b->gw, http_local_req(l->http), l->tenant);
}

static void read_text(void *arg)
{
    struct line *l = arg;
    struct batch_fault why = {0};
    l->parsed = !buf_failed(&l->text) &&
                batch_line_read(&l->request, buf_view(&l->text), l->endpoint, &why) == OK;
}

static void go_on(struct line *l)
{
    struct batches *b = l->task.b;
    if (!l->parsed) {
        l->counter = b->dead;
        fail(l, "bad", "input_lost",
             "the line cannot be read again: its file is not whole any more");
    } else if (l->late) {
        l->counter = b->bad;
        fail(l, "late", "batch_expired",
             "the request was not run before the batch's completion window was over");
    } else if (l->deliveries > DELIVERIES_MAX) {
        l->counter = b->dead;
        fail(l, "bad", "abandoned",
             "given up: each gateway that worked at this request ended before it was answered");
    } else {
        run(l);
    }
}

static void text_read(void *arg, bool cancelled)
{
    struct line *l = arg;
    l->awaited = false;
    if (l->task.b->closed || cancelled)
        free_line(l);
    else
        go_on(l);
}

static int64_t number_of(const struct redis_reply *r)
{
    int64_t v = r->integer;
    return r->kind == REDIS_INTEGER || str_to_i64(r->text, 0, INT64_MAX, &v) == OK ? v : 0;
}

static void set(char *to, size_t cap, struct str s)
{
    snprintf(to, cap, STR_FMT, STR_ARG(s));
}

void batch_line_start(struct batches *b, const struct redis_reply *item)
{
    const struct redis_reply *f = item->items;
    if (batches_has(b, f[1].text, f[5].text)) return;
    struct line *l = xcalloc(1, sizeof *l);
    set(l->task.batch, sizeof l->task.batch, f[1].text);
    set(l->tenant, sizeof l->tenant, f[2].text);
    set(l->endpoint, sizeof l->endpoint, f[3].text);
    l->authorization = xstrndup(f[4].text.p ? f[4].text.p : "", f[4].text.n);
    set(l->task.entry, sizeof l->task.entry, f[5].text);
    l->number = number_of(&f[6]);
    l->tries = number_of(&f[7]);
    l->waits = number_of(&f[8]);
    l->deliveries = number_of(&f[9]);
    l->late = number_of(&f[10]) != 0;
    l->task.stop = stop;
    l->again = loop_timer_new(b->gw->loop, hand_over, l);
    buf_init(&l->text, BATCH_LINE_BYTES_MAX);
    buf_init(&l->answer, ANSWER_BYTES_MAX);
    buf_init(&l->result, LINE_BYTES_MAX);
    buf_init(&l->instead, LINE_BYTES_MAX);
    buf_str(&l->text, f[11].text);
    batches_add(b, &l->task);
    if (l->deliveries > 1) metric_add(b->taken_over, 1);
    if (l->text.n > LONG_LINE_BYTES &&
        workers_submit(b->gw->workers, b->gw->loop, read_text, text_read, l) == OK) {
        l->awaited = true;
    } else {
        read_text(l);
        go_on(l);
    }
}
