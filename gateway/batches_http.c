/* batches_http.c - /v1/batches: create, retrieve, list, cancel, each one call of a Function (lua/batch.lua). The work is batches.c's.
 * Threading: the loop's thread. */
#include <stdio.h>
#include <string.h>

#include "gateway/admin_args.h"
#include "gateway/batch_line.h"
#include "gateway/batch_pace.h"
#include "gateway/batches.h"
#include "gateway/reply.h"
#include "gateway/store.h"

enum {
    LIST_PRESET = 20,
    METADATA_MAX = 16,
    METADATA_KEY_MAX = 64,
    METADATA_VALUE_MAX = 512,
    METADATA_BYTES_MAX = 64 * 1024
};

struct order { /* what a client asks for */
    struct str file, endpoint, window;
    int64_t window_s, ttl_s;
    struct buf metadata;
};

static enum step refuse(struct exchange *x, const char *param, const char *message)
{
    reply_problem(x, 400, "", param, message);
    return STEP_DONE;
}

static const char *read_metadata(const json_t *doc, struct buf *out)
{
    const json_t *m = json_object_get(doc, "metadata");
    if (!m || json_is_null(m)) return NULL;
    if (!json_is_object(m) || json_object_size(m) > METADATA_MAX)
        return "metadata: expected an object of at most 16 strings";
    for (void *it = json_object_iter((json_t *)m); it;
         it = json_object_iter_next((json_t *)m, it)) {
        if (json_object_iter_key_len(it) > METADATA_KEY_MAX)
            return "metadata: a key may have 64 bytes";
        struct str value = json_str(json_object_iter_value(it));
        if (!value.p || value.n > METADATA_VALUE_MAX * 4)
            return "metadata: a value must be a string of at most 512 characters";
    }
    json_write(out, m);
    return buf_failed(out) ? "metadata: too large" : NULL;
}

/* output_expires_after: {"anchor":"created_at","seconds":n} */
static bool read_expiry(const json_t *doc, int64_t *ttl_s)
{
    const json_t *a = json_object_get(doc, "output_expires_after"),
                 *n = json_object_get(a, "seconds");
    if (!a || json_is_null(a)) return true;
    if (!json_is_integer(n)) return false;
    *ttl_s = json_integer_value(n);
    return *ttl_s >= 3600 && *ttl_s <= 2592000;
}

/* NULL, or what is wrong, with the member it is about. */
static const char *read_order(const json_t *doc, struct order *o, const char **param)
{
    struct errmsg e = {0};
    const char *problem;
    o->file = json_member_str(doc, "input_file_id");
    o->endpoint = json_member_str(doc, "endpoint");
    o->window = json_member_str(doc, "completion_window");
    *param = "input_file_id";
    if (!store_id_ok(o->file)) return "input_file_id: expected the id of an uploaded file";
    *param = "endpoint";
    if (!batch_endpoint_known(o->endpoint))
        return "endpoint: expected /v1/chat/completions, /v1/completions, /v1/embeddings, "
               "/v1/responses or /v1/messages";
    *param = "completion_window";
    if (o->window.n > 16 || batch_duration_parse(o->window, &o->window_s, &e) != OK)
        return "completion_window: expected 24h, or another time up to 7d (s, m, h, d)";
    *param = "metadata";
    if ((problem = read_metadata(doc, &o->metadata))) return problem;
    *param = "output_expires_after";
    if (!read_expiry(doc, &o->ttl_s))
        return "output_expires_after.seconds: expected a number from 3600 to 2592000";
    return NULL;
}

/* The client's own key is kept with the batch only where some upstream wants it. */
static struct str authorization_of(const struct exchange *x)
{
    for (int i = 0; i < upstreams_count(x->gw->upstreams); i++) {
        const struct upstream *u = upstreams_at(x->gw->upstreams, i);
        if (!u->engine && !u->key[0]) return http_req_header(x->r, "authorization");
    }
    return STR("");
}

static enum step place(struct exchange *x, const struct order *o)
{
    char id[STORE_ID_BYTES], out[STORE_ID_BYTES], bad[STORE_ID_BYTES];
    char window[24], ttl[24], bytes_max[24], batches_max[24];
    store_new_id(x->gw, "batch_", id);
    store_new_id(x->gw, "file-", out);
    store_new_id(x->gw, "file-", bad);
    snprintf(window, sizeof window, "%lld", (long long)o->window_s);
    snprintf(ttl, sizeof ttl, "%lld", (long long)o->ttl_s);
    snprintf(bytes_max, sizeof bytes_max, "%lld", (long long)x->gw->o.files_bytes_max);
    snprintf(batches_max, sizeof batches_max, "%d", x->gw->o.batches_max);
    struct str args[] = {str_of(id),
                         str_of(x->tenant),
                         o->file,
                         o->endpoint,
                         o->window,
                         str_of(window),
                         buf_view(&o->metadata),
                         str_of(out),
                         str_of(bad),
                         authorization_of(x),
                         str_of(ttl),
                         str_of(bytes_max),
                         str_of(batches_max)};
    batches_wake(x->gw->batches);
    return store_answer(x, "deja_batch_create", sizeof args / sizeof args[0], args);
}

static enum step create(struct exchange *x)
{
    json_t *doc = NULL;
    struct errmsg e = {0};
    const char *param = "", *problem;
    struct order o = {.ttl_s = x->gw->o.file_ttl_s};
    if (!content_type_is_json(http_req_header(x->r, "content-type")))
        return reply_fault(x, FAULT_MEDIA, ""), STEP_DONE;
    if (json_parse(http_req_body(x->r), 0, &doc, &e) != OK) return refuse(x, "", e.text);
    buf_init(&o.metadata, METADATA_BYTES_MAX);
    problem = json_is_object(doc) ? read_order(doc, &o, &param) : "the body must be an object";
    enum step step = problem ? refuse(x, param, problem) : place(x, &o);
    buf_fini(&o.metadata);
    json_decref(doc);
    return step;
}

static enum step list(struct exchange *x)
{
    json_t *q = admin_query(http_req_query(x->r));
    struct str after = json_member_str(q, "after"), limit = json_member_str(q, "limit");
    int64_t n = LIST_PRESET;
    char text[24];
    enum step step;
    if (limit.n && str_to_i64(limit, 1, 100, &n) != OK) {
        step = refuse(x, "limit", "limit: expected a number from 1 to 100");
    } else {
        snprintf(text, sizeof text, "%lld", (long long)n);
        struct str args[] = {str_of(x->tenant), after, str_of(text)};
        step = store_answer(x, "deja_batch_list", 3, args);
    }
    json_decref(q);
    return step;
}

enum step batches_start(struct exchange *x)
{
    struct str path = http_req_path(x->r), method = http_req_method(x->r);
    bool post = str_eqz(method, "POST"), get = str_eqz(method, "GET");
    path = str_sub(path, sizeof "/v1/batches" - 1, path.n);
    if (store_missing(x)) return STEP_DONE;
    if (!path.n || str_eqz(path, "/"))
        return post ? create(x) : get ? list(x) : store_refuse_method(x, "GET, POST");
    path = str_sub(path, 1, path.n);
    bool cancel = str_ends(path, STR("/cancel"));
    struct str id = cancel ? str_sub(path, 0, path.n - 7) : path;
    if (!store_id_ok(id)) return reply_fault(x, FAULT_NOT_FOUND, ""), STEP_DONE;
    struct str args[] = {id, str_of(x->tenant)};
    if (cancel)
        return post ? store_answer(x, "deja_batch_cancel", 2, args)
                    : store_refuse_method(x, "POST");
    return get ? store_answer(x, "deja_batch_get", 2, args) : store_refuse_method(x, "GET");
}
