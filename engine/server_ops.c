/* server_ops.c - everything that needs no generation: models, health, readiness, metrics, tokenize,
 * detokenize. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model/encoder.h"
#include "engine/server.h"

static void send_json(struct http_req *r, int status, struct buf *b)
{
    http_send(r, status, "application/json", buf_view(b));
    buf_fini(b);
}

/* parent: NULL, or what the model is an adapter of. */
static void write_model(const struct server *s, struct str name, const char *parent, int max_len,
                        struct buf *b)
{
    buf_z(b, "{\"id\":");
    json_write_string(b, name);
    buf_printf(b, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"deja\"",
               (long long)s->created_s);
    if (parent) {
        buf_z(b, ",\"parent\":");
        json_write_string(b, str_of(parent));
    }
    buf_printf(b, ",\"max_model_len\":%d}", max_len);
}

int server_adapter(const struct server *s, struct str name)
{
    for (int i = 0; i < s->o->engine.n_adapters; i++)
        if (str_eq(name, s->o->adapters[i].name)) return i + 1;
    return 0;
}

static int embed_len(const struct server *s)
{
    return s->encoder ? encoder_max_tokens(s->encoder) : 0;
}

static void write_models(const struct server *s, struct buf *b)
{
    int max_len = engine_max_len(s->engine);
    buf_z(b, "{\"object\":\"list\",\"data\":[");
    write_model(s, str_of(s->model_name), NULL, max_len, b);
    for (int i = 0; i < s->o->engine.n_adapters; i++) {
        buf_char(b, ',');
        write_model(s, s->o->adapters[i].name, s->model_name, max_len, b);
    }
    if (*s->embed_name) {
        buf_char(b, ',');
        write_model(s, str_of(s->embed_name), NULL, embed_len(s), b);
    }
    buf_z(b, "]}");
}

/* A name as it stands in a path: %XX is a byte, anything else stands for itself. */
static struct str decode_name(struct str written, struct buf *out)
{
    for (size_t i = 0; i < written.n; i++) {
        int byte = str_percent(written, i);
        buf_char(out, byte >= 0 ? (char)byte : written.p[i]);
        if (byte >= 0) i += 2;
    }
    return buf_view(out);
}

void ops_models(struct server *s, struct http_req *r, struct str id)
{
    struct buf b, name;
    buf_init(&b, 1 << 20);
    buf_init(&name, 1 << 16);
    id = decode_name(id, &name);
    int adapter = server_adapter(s, id), max_len = engine_max_len(s->engine);
    if (!id.n) {
        write_models(s, &b);
    } else if (str_eqz(id, s->model_name)) {
        write_model(s, id, NULL, max_len, &b);
    } else if (adapter) {
        write_model(s, id, s->model_name, max_len, &b);
    } else if (*s->embed_name && str_eqz(id, s->embed_name)) {
        write_model(s, id, NULL, embed_len(s), &b);
    } else {
        struct openai_error e = {0};
        buf_fini(&b);
        openai_error_set(&e, 404, "invalid_request_error", "model", "model_not_found",
                         "no such model; this server has \"%s\"", s->model_name);
        server_refuse(s, r, &e);
        buf_fini(&name);
        return;
    }
    send_json(r, 200, &b);
    buf_fini(&name);
}

void ops_health(struct server *s, struct http_req *r)
{
    (void)s;
    http_send(r, 200, "application/json", STR("{\"status\":\"ok\"}"));
}

/* False: reason (static text or written to scratch) says why. */
static bool is_ready(struct server *s, char *reason, size_t cap)
{
    struct engine_stats st;
    engine_stats(s->engine, &st);
    *reason = 0;
    const char *lost = engine_lost(s->engine);
    if (lost)
        snprintf(reason, cap, "device: %s", lost);
    else if (s->draining)
        snprintf(reason, cap, "draining: the server is going down");
    else if (!s->warm)
        snprintf(reason, cap, "warm-up: no test generation has succeeded yet");
    else if (s->probe_failed)
        snprintf(reason, cap, "probe: the last test generation failed");
    else if (st.step_age_ms > SERVER_STUCK_MS)
        snprintf(reason, cap,
                 "stuck: no step has ended for %llu ms while %d choices run and %d wait",
                 (unsigned long long)st.step_age_ms, st.running, st.waiting);
    return !*reason;
}

void ops_ready(struct server *s, struct http_req *r)
{
    char reason[200];
    struct buf b;
    buf_init(&b, 1024);
    bool ready = is_ready(s, reason, sizeof reason);
    buf_printf(&b, "{\"status\":\"%s\",\"reason\":", ready ? "ready" : "unready");
    if (ready)
        buf_z(&b, "null");
    else
        json_write_string(&b, str_of(reason));
    buf_z(&b, ",\"device\":");
    json_write_string(&b, str_of(engine_device(s->engine)));
    buf_z(&b, ",\"device_model\":");
    json_write_string(&b, str_of(engine_device_model(s->engine)));
    struct engine_stats st;
    engine_stats(s->engine, &st);
    buf_printf(&b, ",\"max_num_seqs\":%d}", st.max_num_seqs);
    if (!ready) http_set_header(r, "retry-after", STR("1"));
    send_json(r, ready ? 200 : 503, &b);
}

void ops_metrics(struct server *s, struct http_req *r)
{
    struct buf b;
    buf_init(&b, 16 << 20);
    server_metrics_update(s);
    metrics_write(s->metrics, &b);
    http_send(r, 200, "text/plain; version=0.0.4; charset=utf-8", buf_view(&b));
    buf_fini(&b);
}

/* --- tokenize, detokenize: the shapes of vLLM's endpoints of these names. Long ones are read, worked on and written on a worker; the
 * loop only sends what came of it. */
enum { REPLY_BYTES_MAX = 400 << 20 /* a byte of a text becomes six at most */ };

struct token_job {
    struct server *s;
    struct http_req *r; /* NULL: the client left */
    struct buf body;    /* of the request, when it is read on a worker */
    struct buf reply;
    struct openai_error error; /* status 0 = none */
    void (*work)(struct token_job *j, const json_t *body);
};

static void refuse_job(struct token_job *j, const char *param, const char *why)
{
    openai_error_set(&j->error, 400, "invalid_request_error", param, "", "%s", why);
}

static void tokenize(struct token_job *j, const json_t *body)
{
    bool bare = json_is_false(json_object_get(body, "add_special_tokens"));
    struct str prompt = json_member_str(body, "prompt");
    if (!prompt.p) {
        refuse_job(j, "prompt", "prompt: expected a string");
        return;
    }
    struct token_list l;
    token_list_init(&l, 32 << 20);
    tokenizer_encode(j->s->tokenizer, prompt, bare ? 0 : TOKENIZE_ADD_SPECIAL, &l);
    buf_printf(&j->reply, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":[", l.n,
               engine_max_len(j->s->engine));
    for (size_t i = 0; i < l.n; i++) {
        if (i) buf_char(&j->reply, ',');
        buf_u64(&j->reply, (uint64_t)l.ids[i]);
    }
    buf_z(&j->reply, "]}");
    if (l.failed || buf_failed(&j->reply)) refuse_job(j, "prompt", "the text is too long");
    token_list_fini(&l);
}

static void detokenize(struct token_job *j, const json_t *body)
{
    const json_t *tokens = json_object_get(body, "tokens"), *v;
    struct buf text;
    size_t i;
    const char *wrong = json_is_array(tokens) ? NULL : "tokens: expected an array of token ids";
    buf_init(&text, 64 << 20);
    json_array_foreach(tokens, i, v)
    {
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id >= tokenizer_size(j->s->tokenizer)) {
            wrong = "tokens: an id is outside the vocabulary";
            break;
        }
        buf_str(&text, tokenizer_bytes(j->s->tokenizer, (int32_t)id, true));
    }
    if (!wrong && buf_failed(&text)) wrong = "tokens: their text is over 64 MiB";
    if (!wrong) {
        buf_z(&j->reply, "{\"prompt\":");
        json_write_string(&j->reply, buf_view(&text));
        buf_char(&j->reply, '}');
        if (buf_failed(&j->reply)) wrong = "tokens: no memory for their text";
    }
    if (wrong) refuse_job(j, "tokens", wrong);
    buf_fini(&text);
}

static void work(struct token_job *j, struct str text)
{
    json_t *body = NULL;
    struct errmsg e = {0};
    if (json_parse(text, 0, &body, &e))
        refuse_job(j, "", e.text);
    else if (!json_is_object(body))
        refuse_job(j, "", "the body is not an object");
    else
        j->work(j, body);
    json_decref(body);
}

static void job_run(void *arg)
{
    struct token_job *j = arg;
    work(j, buf_view(&j->body));
    buf_fini(&j->body);
}

static void job_done(void *arg, bool cancelled)
{
    struct token_job *j = arg;
    if (cancelled)
        openai_error_set(&j->error, 503, "server_error", "", "unavailable",
                         "the server is shutting down");
    if (j->r && j->error.status)
        server_refuse(j->s, j->r, &j->error);
    else if (j->r)
        http_send(j->r, 200, "application/json", buf_view(&j->reply));
    buf_fini(&j->body);
    buf_fini(&j->reply);
    mem_free(j);
}

static void job_gone(void *arg)
{
    ((struct token_job *)arg)->r = NULL;
}

static void job_start(struct server *s, struct http_req *r,
                      void (*work_of)(struct token_job *j, const json_t *body))
{
    struct token_job *j = xcalloc(1, sizeof *j);
    *j = (struct token_job){.s = s, .r = r, .work = work_of};
    buf_init(&j->reply, REPLY_BYTES_MAX);
    if (http_req_body(r).n <= SERVER_INLINE_BYTES) {
        work(j, http_req_body(r));
        job_done(j, false);
        return;
    }
    j->body = http_req_take_body(r);
    http_req_on_gone(r, job_gone, j);
    if (workers_submit(s->workers, s->loop, job_run, job_done, j) == OK) return;
    openai_error_set(&j->error, 429, "rate_limit_error", "", "queue_full",
                     "too many long texts are being read");
    http_req_on_gone(r, NULL, NULL);
    job_done(j, false);
}

void ops_tokenize(struct server *s, struct http_req *r)
{
    job_start(s, r, tokenize);
}

void ops_detokenize(struct server *s, struct http_req *r)
{
    job_start(s, r, detokenize);
}
