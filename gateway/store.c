/* store.c - see store.h. */
#include "gateway/store.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "gateway/reply.h"
#include "gateway/tuning.h"

enum { CALL_TIMEOUT_MS = 5000, MESSAGE_BYTES = 320 };

struct store {
    struct redis *link;
    char config[96]; /* {ns}:config */
    char space[96];  /* {ns}: */
};

enum err store_open(struct store **out, struct gateway *gw, struct errmsg *e)
{
    *out = NULL;
    if (!gw->redis) return OK;
    struct store *s = xcalloc(1, sizeof *s);
    struct redis_options o = {
        .url = gw->o.redis, .command_timeout_ms = CALL_TIMEOUT_MS, .breaker_failures = 3};
    enum err code = redis_open(&s->link, gw->loop, &o, e);
    if (code != OK) {
        mem_free(s);
        return code;
    }
    tuning_key(gw, s->config);
    snprintf(s->space, sizeof s->space, "{%s}:", gw->o.ns);
    *out = s;
    return OK;
}

void store_close(struct store *s)
{
    if (!s) return;
    redis_close(s->link);
    mem_free(s);
}

bool store_usable(const struct store *s)
{
    return redis_usable(s->link);
}

void store_call(struct store *s, const char *function, size_t n_args, const struct str *args,
                redis_callback *cb, void *arg)
{
    struct str *argv = xcalloc(4 + n_args, sizeof *argv);
    argv[0] = STR("FCALL");
    argv[1] = str_of(function);
    argv[2] = STR("1");
    argv[3] = str_of(s->config);
    if (n_args) memcpy(argv + 4, args, n_args * sizeof *args);
    redis_command(s->link, (int)(4 + n_args), argv, CALL_TIMEOUT_MS, cb, arg);
    mem_free(argv);
}

static struct str chunk_key(const struct store *s, const char *file, int64_t chunk,
                            char out[STORE_KEY_BYTES])
{
    snprintf(out, STORE_KEY_BYTES, "%sfile:%.64s:%lld", s->space, file, (long long)chunk);
    return str_of(out);
}

void store_chunk_get(struct store *s, const char *file, int64_t chunk, redis_callback *cb,
                     void *arg)
{
    char key[STORE_KEY_BYTES];
    struct str argv[] = {STR("GET"), chunk_key(s, file, chunk, key)};
    redis_command(s->link, 2, argv, CALL_TIMEOUT_MS, cb, arg);
}

void store_chunk_put(struct store *s, const char *file, int64_t chunk, struct str bytes,
                     redis_callback *cb, void *arg)
{
    char key[STORE_KEY_BYTES];
    struct str argv[] = {STR("SET"), chunk_key(s, file, chunk, key), bytes, STR("EX"), STR("3600")};
    redis_command(s->link, 5, argv, CALL_TIMEOUT_MS, cb, arg);
}

void store_new_id(struct gateway *gw, const char *prefix, char out[STORE_ID_BYTES])
{
    struct hash128 random = {rng_u64(&gw->rng), rng_u64(&gw->rng)};
    char hex[33];
    hash_hex(random, hex);
    snprintf(out, STORE_ID_BYTES, "%s%.24s", prefix, hex);
}

bool store_id_ok(struct str id)
{
    for (size_t i = 0; i < id.n; i++) {
        char c = id.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_'))
            return false;
    }
    return id.n && id.n <= 64;
}

/* --- requests */
void store_leave(struct exchange *x)
{
    struct store_job *j = x->store_job;
    if (!j) return;
    x->store_job = NULL;
    j->x = NULL;
    j->gone(j);
}

void store_writable(struct exchange *x)
{
    if (x->store_job->writable) x->store_job->writable(x->store_job);
}

enum step store_refuse_method(struct exchange *x, const char *allow)
{
    reply_method(x, allow);
    return STEP_DONE;
}

bool store_missing(struct exchange *x)
{
    if (!x->gw->store)
        reply_problem(
            x, 503, "no_redis", "",
            "files and batches are kept in Redis, and this gateway runs without it: start "
            "it with --redis, or with --batch-api no to leave them to the upstream");
    else if (!store_usable(x->gw->store))
        reply_problem(x, 503, "redis_unavailable", "",
                      "files and batches are kept in Redis, which does not answer at the moment");
    else
        return false;
    return true;
}

static struct str item_text(const struct redis_reply *r, size_t i)
{
    return i < r->n_items ? r->items[i].text : STR("");
}

/* {'NO', status, code, param, message} */
static void refuse_as_told(struct exchange *x, const struct redis_reply *r)
{
    char code[64], param[64], message[MESSAGE_BYTES];
    int64_t status = r->n_items > 1 && r->items[1].kind == REDIS_INTEGER ? r->items[1].integer : 0;
    snprintf(code, sizeof code, STR_FMT, STR_ARG(item_text(r, 2)));
    snprintf(param, sizeof param, STR_FMT, STR_ARG(item_text(r, 3)));
    snprintf(message, sizeof message, STR_FMT, STR_ARG(item_text(r, 4)));
    reply_problem(x, status >= 400 && status <= 599 ? (int)status : 500, code, param, message);
}

bool store_reply_good(struct exchange *x, enum err code, const struct redis_reply *reply)
{
    char message[MESSAGE_BYTES];
    if (code == OK && reply->kind == REDIS_ARRAY && reply->n_items &&
        str_eqz(reply->items[0].text, "NO")) {
        refuse_as_told(x, reply);
    } else if (code == OK && reply->kind == REDIS_ERROR) {
        log_limited(LOG_WARN, "gateway", "files and batches: " STR_FMT,
                    STR_ARG(str_sub(reply->text, 0, 200)));
        bool full = str_starts(reply->text, STR("OOM"));
        snprintf(message, sizeof message, "Redis: " STR_FMT, STR_ARG(str_sub(reply->text, 0, 240)));
        reply_problem(x, full ? 507 : 503, full ? "redis_full" : "redis_error", "", message);
    } else if (code != OK) {
        reply_problem(x, 503, "redis_unavailable", "",
                      code == ERR_TIMEOUT || code == ERR_CLOSED
                          ? "Redis did not answer: whether it was done is not known"
                          : "Redis is not there: nothing was done");
    } else {
        return true;
    }
    return false;
}

static void answer_gone(struct store_job *j)
{
    (void)j; /* its reply frees it */
}

static void on_answer(void *arg, enum err code, const struct redis_reply *reply)
{
    struct store_job *j = arg;
    struct exchange *x = j->x;
    if (x) {
        x->store_job = NULL;
        if (store_reply_good(x, code, reply)) {
            const struct redis_reply *text =
                reply->kind == REDIS_ARRAY && reply->n_items ? &reply->items[0] : reply;
            reply_body(x, 200, "application/json", text->text);
        }
        pipeline_finish(x);
    }
    mem_free(j);
}

enum step store_answer(struct exchange *x, const char *function, size_t n_args,
                       const struct str *args)
{
    struct store_job *j = xcalloc(1, sizeof *j);
    j->x = x;
    j->gone = answer_gone;
    x->store_job = j;
    store_call(x->gw->store, function, n_args, args, on_answer, j);
    return STEP_WAIT;
}
