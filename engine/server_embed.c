/* server_embed.c - /v1/embeddings on the encoder, whose only thread is embed_workers'. A text over
 * the encoder's window is refused: cut silently, its end could not matter any more. */
#include <string.h>

#include "base/base64.h"
#include "base/mem.h"
#include "engine/model/encoder.h"
#include "engine/server.h"

enum { TEXTS_MAX = 4096, REPLY_BYTES_MAX = 512 << 20 };

static void write_vector(const struct exchange *x, const float *v, int dim, struct buf *out)
{
    if (x->request.base64) {
        buf_char(out, '"');
        /* little endian, as the API says; so are the machines we run on */
        base64_write(out, v, (size_t)dim * sizeof *v);
        buf_char(out, '"');
        return;
    }
    for (int i = 0; i < dim; i++)
        buf_printf(out, "%c%.9g", i ? ',' : '[', (double)v[i]);
    buf_char(out, ']');
}

static bool check_texts(struct exchange *x)
{
    int most = encoder_max_tokens(x->server->encoder);
    for (int i = 0; i < x->n_texts; i++) {
        int unknown;
        if (x->vector_status[i] == ERR_TOO_LARGE)
            openai_error_set(
                &x->error, 400, "invalid_request_error", "input", "context_length_exceeded",
                "input[%d] has over %d tokens, the model's window is %d", i, most, most);
        else if (x->vector_status[i] == ERR_UNSUPPORTED)
            openai_error_set(&x->error, 400, "invalid_request_error", "input", "unknown_text",
                             "input[%d]: most of its %d pieces are unknown to the model", i,
                             encoder_count_tokens(x->server->encoder, x->texts[i], &unknown));
        else if (x->vector_status[i] != OK)
            openai_error_set(&x->error, 500, "server_error", "input", "", "input[%d]: %s", i,
                             err_text(x->vector_status[i]));
        if (x->error.status) return false;
    }
    return true;
}

static void write_reply(struct exchange *x, struct buf *out)
{
    int dim = encoder_dim(x->server->encoder);
    buf_z(out, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < x->n_texts; i++) {
        buf_printf(out, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i ? "," : "", i);
        write_vector(x, x->vectors + (size_t)i * (size_t)dim, dim, out);
        buf_char(out, '}');
    }
    buf_z(out, "],\"model\":");
    json_write_string(out, str_of(x->server->embed_name));
    buf_printf(out, ",\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}}",
               (long long)x->prompt_tokens, (long long)x->prompt_tokens);
    if (buf_failed(out))
        openai_error_set(&x->error, 500, "server_error", "", "",
                         "the answer is too large to be sent");
}

static void run(void *arg)
{
    struct exchange *x = arg;
    encoder_embed(x->server->encoder, x->texts, x->n_texts, x->vectors, x->vector_status);
    for (int i = 0; i < x->n_texts; i++) {
        int unknown;
        x->prompt_tokens += encoder_count_tokens(x->server->encoder, x->texts[i], &unknown);
    }
    if (check_texts(x)) write_reply(x, &x->reply);
}

static void done(void *arg, bool cancelled)
{
    struct exchange *x = arg;
    x->on_worker = false;
    if (cancelled)
        openai_error_set(&x->error, 503, "server_error", "", "unavailable",
                         "the server is shutting down");
    if (x->http && x->error.status) {
        exchange_refuse(x);
    } else if (x->http) {
        http_send(x->http, 200, "application/json", buf_view(&x->reply));
        exchange_finished(x);
    }
    exchange_maybe_free(x);
}

static bool collect_texts(struct exchange *x)
{
    const json_t *in = x->request.input;
    size_t n = json_is_string(in) ? 1 : json_array_size(in), i;
    int dim = encoder_dim(x->server->encoder);
    if (n > TEXTS_MAX) {
        openai_error_set(&x->error, 400, "invalid_request_error", "input", "",
                         "%zu inputs are over the limit of %d", n, TEXTS_MAX);
        return false;
    }
    if (x->request.dimensions && x->request.dimensions != dim) {
        openai_error_set(&x->error, 400, "invalid_request_error", "dimensions", "",
                         "this model has %d dimensions only", dim);
        return false;
    }
    x->texts = xcalloc(n, sizeof *x->texts);
    x->vector_status = xcalloc(n, sizeof *x->vector_status);
    x->vectors = try_calloc(n * (size_t)dim, sizeof *x->vectors);
    x->n_texts = (int)n;
    if (!x->vectors) {
        openai_error_set(&x->error, 503, "server_error", "", "unavailable",
                         "no memory for %zu vectors", n);
        return false;
    }
    if (json_is_string(in)) {
        x->texts[0] = json_str(in);
        return true;
    }
    json_t *v;
    json_array_foreach(in, i, v)
    {
        if (json_is_string(v)) {
            x->texts[i] = json_str(v);
            continue;
        }
        openai_error_set(&x->error, 400, "invalid_request_error", "input", "",
                         "input[%zu]: this model takes text, not token ids", i);
        return false;
    }
    return true;
}

void embed_start(struct exchange *x)
{
    if (!collect_texts(x)) {
        exchange_refuse(x);
        return;
    }
    buf_init(&x->reply, REPLY_BYTES_MAX);
    x->on_worker = true;
    if (workers_submit(x->server->embed_workers, x->server->loop, run, done, x) == OK) return;
    x->on_worker = false;
    openai_error_set(&x->error, 429, "rate_limit_error", "", "queue_full",
                     "too many embedding requests are waiting");
    exchange_refuse(x);
}
