/* remote.c - see remote.h. */
#include "embeddings/remote.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/http_client.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

enum { CONNECT_MS = 1000, ANSWER_MS = 10000, REPLY_BYTES_MAX = 64 << 20, DIM_MAX = 4096 };

struct remote {
    struct loop *loop;
    struct http_client *client;
    struct http_origin origin;
    char *model, *auth, *id; /* auth: "Bearer ..." or NULL */
    const char *path;
    int dim;
    /* the call that runs */
    int status;
    enum err code;
    struct errmsg why;
    struct buf body;
};

static void on_head(void *arg, const struct http_reply_head *head)
{
    ((struct remote *)arg)->status = head->status;
}

static void on_body(void *arg, struct str bytes)
{
    buf_str(&((struct remote *)arg)->body, bytes);
}

static void on_done(void *arg, enum err code, const struct errmsg *e)
{
    struct remote *r = arg;
    r->code = code;
    if (code && e) r->why = *e;
    loop_stop(r->loop);
}

static void write_question(struct remote *r, const struct str *texts, int n, struct buf *out)
{
    buf_z(out, "{\"model\":");
    json_write_string(out, str_of(r->model));
    buf_z(out, ",\"encoding_format\":\"float\",\"input\":[");
    for (int i = 0; i < n; i++) {
        if (i) buf_char(out, ',');
        json_write_string(out, texts[i]);
    }
    buf_z(out, "]}");
}

/* Runs one call to its end; the reply is in r->body. */
static enum err ask(struct remote *r, const struct str *texts, int n, struct errmsg *e)
{
    struct buf question;
    buf_init(&question, REPLY_BYTES_MAX);
    write_question(r, texts, n, &question);
    struct http_header headers[2] = {{STR("Content-Type"), STR("application/json")},
                                     {STR("Authorization"), str_of(r->auth)}};
    struct http_call_options o = {.origin = &r->origin,
                                  .method = "POST",
                                  .path = r->path,
                                  .headers = headers,
                                  .n_headers = r->auth ? 2 : 1,
                                  .body = buf_view(&question),
                                  .connect_timeout_ms = CONNECT_MS,
                                  .first_byte_timeout_ms = ANSWER_MS,
                                  .idle_timeout_ms = ANSWER_MS,
                                  .retry_stale = true};
    buf_clear(&r->body);
    r->status = 0;
    http_call(r->client, &o, &(struct http_call_handler){on_head, on_body, on_done, r});
    loop_run(r->loop);
    buf_fini(&question);
    if (r->code) return err_set(e, ERR_UNAVAILABLE, "%s", r->why.text);
    if (r->status != 200 || buf_failed(&r->body))
        return err_set(e, ERR_UNAVAILABLE, "the embeddings server answered %d: %.100s", r->status,
                       r->body.p ? r->body.p : "");
    return OK;
}

/* One vector into out f32[dim], made unit length. */
static enum err take_vector(const json_t *values, int dim, float *out)
{
    double sum = 0;
    if (json_array_size(values) != (size_t)dim) return ERR_CORRUPT;
    for (int i = 0; i < dim; i++) {
        const json_t *v = json_array_get(values, (size_t)i);
        if (!json_is_number(v)) return ERR_CORRUPT;
        out[i] = (float)json_number_value(v);
        sum += (double)out[i] * out[i];
    }
    if (!isfinite(sum) || sum < 1e-12) return ERR_CORRUPT;
    for (int i = 0; i < dim; i++)
        out[i] = (float)(out[i] / sqrt(sum));
    return OK;
}

/* The vectors of a reply by their "index"; each of 0..n-1 must come exactly once, or a text would keep another one's vector. */
static enum err take_vectors(struct remote *r, int n, float *out, enum err *status,
                             struct errmsg *e)
{
    json_t *reply = NULL;
    enum err code = json_parse(buf_view(&r->body), 0, &reply, e);
    if (code) return code;
    const json_t *list = json_object_get(reply, "data");
    if (json_array_size(list) != (size_t)n) code = ERR_CORRUPT;
    for (int i = 0; i < n; i++)
        status[i] = ERR_AGAIN;
    for (int i = 0; !code && i < n; i++) {
        const json_t *row = json_array_get(list, (size_t)i), *index = json_object_get(row, "index");
        json_int_t at = index ? json_integer_value(index) : i;
        if (at < 0 || at >= n || status[at] == OK) {
            code = ERR_CORRUPT;
            break;
        }
        status[at] = OK;
        code = take_vector(json_object_get(row, "embedding"), r->dim,
                           out + (size_t)at * (size_t)r->dim);
    }
    json_decref(reply);
    if (!code) return OK;
    return err_set(e, ERR_CORRUPT,
                   "the embeddings server's reply does not hold %d vectors of %d finite numbers", n,
                   r->dim);
}

static enum err learn_dim(struct remote *r, struct errmsg *e)
{
    json_t *reply = NULL;
    struct str hello = STR("hello");
    enum err code = ask(r, &hello, 1, e);
    if (!code) code = json_parse(buf_view(&r->body), 0, &reply, e);
    if (code) return code;
    size_t dim = json_array_size(
        json_object_get(json_array_get(json_object_get(reply, "data"), 0), "embedding"));
    json_decref(reply);
    if (!dim || dim > DIM_MAX)
        return err_set(e, ERR_CORRUPT,
                       "the embeddings server gave a vector of %zu numbers, expected 1 to %d", dim,
                       DIM_MAX);
    r->dim = (int)dim;
    return OK;
}

static enum err read_url(struct remote *r, const char *url, struct errmsg *e)
{
    struct str all = str_of(url);
    ptrdiff_t hash = str_find_char(all, '#');
    if (hash < 0 || (size_t)hash + 1 == all.n)
        return err_set(e, ERR_INVALID,
                       "embeddings url: the model is missing; say http://host:port/v1#MODEL");
    r->model = xstrdup(url + hash + 1);
    enum err code = http_origin_parse(str_sub(all, 0, (size_t)hash), &r->origin, e);
    if (code) return err_prefix(e, code, "embeddings url");
    r->path = r->origin.base_path[0] ? "/embeddings" : "/v1/embeddings";
    return OK;
}

enum err remote_open(struct remote **out, const char *url, const char *key, struct errmsg *e)
{
    struct remote *r = xcalloc(1, sizeof *r);
    *out = NULL;
    buf_init(&r->body, REPLY_BYTES_MAX);
    enum err code = read_url(r, url, e);
    if (!code) code = loop_new(&r->loop, e);
    if (!code) {
        struct buf text;
        r->client = http_client_new(r->loop, &(struct http_client_options){0});
        buf_init(&text, 8192);
        if (key && *key) {
            buf_printf(&text, "Bearer %s", key);
            r->auth = buf_take(&text, NULL);
        }
        code = learn_dim(r, e);
        buf_printf(&text, "remote:%s@%s:%d:%d", r->model, r->origin.host, r->origin.port, r->dim);
        r->id = buf_take(&text, NULL);
    }
    if (code) {
        remote_close(r);
        return code;
    }
    *out = r;
    return OK;
}

void remote_close(struct remote *r)
{
    if (!r) return;
    if (r->client) http_client_free(r->client);
    if (r->loop) loop_free(r->loop);
    buf_fini(&r->body);
    mem_free(r->model);
    mem_free(r->auth);
    mem_free(r->id);
    mem_free(r);
}

int remote_dim(const struct remote *r)
{
    return r->dim;
}

const char *remote_id(const struct remote *r)
{
    return r->id;
}

void remote_embed(struct remote *r, const struct str *texts, int n, float *out, enum err *status)
{
    struct errmsg e = {0};
    enum err code = ask(r, texts, n, &e);
    if (!code) code = take_vectors(r, n, out, status, &e);
    if (code) log_limited(LOG_WARN, "embeddings", "%s", e.text);
    for (int i = 0; i < n; i++)
        status[i] = code;
}
