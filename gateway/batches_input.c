/* batches_input.c - validation of a batch's input: chunk by chunk from Redis, checked on a worker, its lines put into the batch's stream;
 * at the end the batch begins, or has failed. If this gateway dies, another one begins again: nothing runs before the end. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "gateway/batch_check.h"
#include "gateway/batch_line.h"
#include "gateway/batches_internal.h"

enum { LINES_A_CALL = 500, CHUNK_BYTES_MAX = 2 << 20, NUMBER_BYTES = 12 };

struct input {
    struct batch_task task;
    char file[STORE_ID_BYTES];
    int64_t n_chunks, chunk;
    struct batch_check *check;
    struct buf bytes;
    size_t sent;     /* lines of this chunk */
    int64_t n_lines; /* of the whole input */
    bool lost;       /* a chunk is not there */
};

static void free_input(struct input *v)
{
    batch_check_free(v->check);
    buf_fini(&v->bytes);
    batches_remove(&v->task);
    mem_free(v);
}

static void stop(struct batch_task *t)
{
    (void)t; /* always waits for a reply or a worker, which frees it */
}

/* True: the step before went well and the gateway goes on. Else v is freed; the batch is taken again when its owner has been silent. */
static bool goes_on(struct input *v, enum err code, const struct redis_reply *reply)
{
    bool good = code == OK && reply->kind != REDIS_ERROR && !v->task.b->closed;
    if (code == OK && reply->kind == REDIS_ERROR)
        log_limited(LOG_WARN, "gateway", "batches: " STR_FMT,
                    STR_ARG(str_sub(reply->text, 0, 200)));
    if (good && reply->kind == REDIS_INTEGER && !reply->integer) good = false; /* cancelled */
    if (!good) free_input(v);
    return good;
}

static void next_chunk(struct input *v);

static void on_over(void *arg, enum err code, const struct redis_reply *reply)
{
    if (goes_on(arg, code, reply)) free_input(arg);
}

static void finish(struct input *v)
{
    struct str errors = batch_check_end(v->check);
    if (v->lost)
        errors = STR("{\"object\":\"list\",\"data\":[{\"code\":\"input_lost\",\"line\":null,"
                     "\"message\":\"the file is not whole any more: send it again\",\"param\":"
                     "\"input_file_id\"}]}");
    struct str args[] = {str_of(v->task.batch), str_of(v->task.b->name), errors};
    store_call(v->task.b->gw->store, "deja_batch_begin", 3, args, on_over, v);
}

static void send_lines(struct input *v);

static void on_queued(void *arg, enum err code, const struct redis_reply *reply)
{
    if (goes_on(arg, code, reply)) send_lines(arg);
}

static void send_lines(struct input *v)
{
    size_t n;
    const struct batch_span *lines = batch_check_lines(v->check, &n);
    char first[24], chunk[24];
    if (v->sent >= n) {
        v->chunk++;
        next_chunk(v);
        return;
    }
    n -= v->sent;
    if (n > LINES_A_CALL) n = LINES_A_CALL;
    struct str *args = xcalloc(4 + 2 * n, sizeof *args);
    char(*numbers)[NUMBER_BYTES] = xcalloc(2 * n, NUMBER_BYTES);
    snprintf(first, sizeof first, "%lld", (long long)v->n_lines);
    snprintf(chunk, sizeof chunk, "%lld", (long long)v->chunk);
    args[0] = str_of(v->task.batch);
    args[1] = str_of(v->task.b->name);
    args[2] = str_of(first);
    args[3] = str_of(chunk);
    for (size_t i = 0; i < n; i++) {
        snprintf(numbers[2 * i], NUMBER_BYTES, "%u", lines[v->sent + i].at);
        snprintf(numbers[2 * i + 1], NUMBER_BYTES, "%u", lines[v->sent + i].n);
        args[4 + 2 * i] = str_of(numbers[2 * i]);
        args[5 + 2 * i] = str_of(numbers[2 * i + 1]);
    }
    v->sent += n;
    v->n_lines += (int64_t)n;
    store_call(v->task.b->gw->store, "deja_batch_queue", 4 + 2 * n, args, on_queued, v);
    mem_free(numbers);
    mem_free(args);
}

static void check_chunk(void *arg)
{
    struct input *v = arg;
    if (!batch_check_feed(v->check, buf_view(&v->bytes))) v->chunk = v->n_chunks; /* enough */
}

static void chunk_checked(void *arg, bool cancelled)
{
    struct input *v = arg;
    v->sent = 0;
    if (cancelled || v->task.b->closed)
        free_input(v);
    else
        send_lines(v);
}

static void on_chunk(void *arg, enum err code, const struct redis_reply *reply)
{
    struct input *v = arg;
    if (!goes_on(v, code, reply)) return;
    struct gateway *gw = v->task.b->gw;
    buf_clear(&v->bytes);
    buf_str(&v->bytes, reply->text);
    v->lost = reply->kind != REDIS_STRING || buf_failed(&v->bytes);
    if (v->lost)
        finish(v);
    else if (workers_submit(gw->workers, gw->loop, check_chunk, chunk_checked, v) != OK)
        free_input(v); /* busy: again later */
}

static void next_chunk(struct input *v)
{
    if (v->chunk < v->n_chunks)
        store_chunk_get(v->task.b->gw->store, v->file, v->chunk, on_chunk, v);
    else
        finish(v);
}

void batch_input_start(struct batches *b, const struct redis_reply *item)
{
    struct input *v = xcalloc(1, sizeof *v);
    const struct redis_reply *f = item->items;
    char endpoint[BATCH_ENDPOINT_BYTES];
    snprintf(v->task.batch, sizeof v->task.batch, STR_FMT, STR_ARG(f[1].text));
    snprintf(v->file, sizeof v->file, STR_FMT, STR_ARG(f[2].text));
    snprintf(endpoint, sizeof endpoint, STR_FMT, STR_ARG(f[4].text));
    v->n_chunks = f[3].integer;
    v->task.stop = stop;
    v->check = batch_check_new(endpoint, b->gw->o.batch_lines_max, rng_u64(&b->gw->rng));
    buf_init(&v->bytes, CHUNK_BYTES_MAX);
    batches_add(b, &v->task);
    next_chunk(v);
}
