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

void ops_models(struct server *s, struct http_req *r, struct str id)
{
    struct buf b;
    buf_init(&b, 1 << 20);
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
        return;
    }
    send_json(r, 200, &b);
}

void ops_health(struct server *s, struct http_req *r)
{
    (void)s;
    http_send(r, 200, "application/json", STR("{\"status\":\"ok\"}"));
}

bool server_ready(struct server *s, char *reason, size_t cap)
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
    bool ready = server_ready(s, reason, sizeof reason);
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

/* --- tokenize, detokenize: the shapes of vLLM's endpoints of these names */
struct token_job {
    struct server *s;
    struct http_req *r; /* NULL: the client left */
    json_t *body;
    struct token_list list;
    bool add_special;
};

static void refuse_text(struct server *s, struct http_req *r, const char *param, const char *why)
{
    struct openai_error e = {0};
    openai_error_set(&e, 400, "invalid_request_error", param, "", "%s", why);
    server_refuse(s, r, &e);
}

static void job_free(struct token_job *j)
{
    json_decref(j->body);
    token_list_fini(&j->list);
    mem_free(j);
}

static void tokenize_run(void *arg)
{
    struct token_job *j = arg;
    tokenizer_encode(j->s->tokenizer, json_member_str(j->body, "prompt"),
                     j->add_special ? TOKENIZE_ADD_SPECIAL : 0, &j->list);
}

static void tokenize_done(void *arg, bool cancelled)
{
    struct token_job *j = arg;
    struct buf b;
    if (j->r && (cancelled || j->list.failed)) {
        refuse_text(j->s, j->r, "prompt", "the text is too long");
    } else if (j->r) {
        buf_init(&b, 64 << 20);
        buf_printf(&b, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":[", j->list.n,
                   engine_max_len(j->s->engine));
        for (size_t i = 0; i < j->list.n; i++)
            buf_printf(&b, "%s%d", i ? "," : "", j->list.ids[i]);
        buf_z(&b, "]}");
        send_json(j->r, 200, &b);
    }
    job_free(j);
}

static void job_gone(void *arg)
{
    ((struct token_job *)arg)->r = NULL;
}

static json_t *body_object(struct server *s, struct http_req *r)
{
    json_t *body;
    struct errmsg e = {0};
    if (json_parse(http_req_body(r), 0, &body, &e)) {
        refuse_text(s, r, "", e.text);
        return NULL;
    }
    if (json_is_object(body)) return body;
    json_decref(body);
    refuse_text(s, r, "", "the body is not an object");
    return NULL;
}

void ops_tokenize(struct server *s, struct http_req *r)
{
    json_t *body = body_object(s, r);
    if (!body) return;
    if (!json_is_string(json_object_get(body, "prompt"))) {
        json_decref(body);
        refuse_text(s, r, "prompt", "prompt: expected a string");
        return;
    }
    struct token_job *j = xcalloc(1, sizeof *j);
    *j = (struct token_job){.s = s,
                            .r = r,
                            .body = body,
                            .add_special =
                                !json_is_false(json_object_get(body, "add_special_tokens"))};
    token_list_init(&j->list, 32 << 20);
    if (http_req_body(r).n <= SERVER_INLINE_BYTES) {
        tokenize_run(j);
        tokenize_done(j, false);
        return;
    }
    http_req_on_gone(r, job_gone, j);
    if (workers_submit(s->workers, s->loop, tokenize_run, tokenize_done, j) == OK) return;
    struct openai_error e = {0};
    openai_error_set(&e, 429, "rate_limit_error", "", "queue_full",
                     "too many long texts are being read");
    http_req_on_gone(r, NULL, NULL);
    server_refuse(s, r, &e);
    job_free(j);
}

void ops_detokenize(struct server *s, struct http_req *r)
{
    json_t *body = body_object(s, r), *v;
    if (!body) return;
    const json_t *tokens = json_object_get(body, "tokens");
    struct buf text, out;
    size_t i;
    const char *wrong = json_is_array(tokens) ? NULL : "tokens: expected an array of token ids";
    buf_init(&text, 64 << 20);
    json_array_foreach(tokens, i, v)
    {
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id >= tokenizer_size(s->tokenizer)) {
            wrong = "tokens: an id is outside the vocabulary";
            break;
        }
        buf_str(&text, tokenizer_bytes(s->tokenizer, (int32_t)id, true));
    }
    json_decref(body);
    if (!wrong && buf_failed(&text)) wrong = "tokens: their text is over 64 MiB";
    if (wrong) {
        refuse_text(s, r, "tokens", wrong);
    } else {
        buf_init(&out, 400u << 20); /* a byte becomes six at most */
        buf_z(&out, "{\"prompt\":");
        json_write_string(&out, buf_view(&text));
        buf_char(&out, '}');
        send_json(r, 200, &out);
    }
    buf_fini(&text);
}
