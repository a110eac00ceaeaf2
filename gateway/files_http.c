/* files_http.c - /v1/files: what batches read and write. An upload is read form part by form part and goes to Redis in chunks of whole
 * lines, one at a time, so that neither the loop nor Redis is held up by a large one; a download comes back the same way, as fast as its
 * client reads. A tenant sees its own files only. Threading: the loop's thread. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/multipart.h"
#include "gateway/admin_args.h"
#include "gateway/batch_line.h"
#include "gateway/files_http.h"
#include "gateway/reply.h"
#include "gateway/store.h"

enum {
    FORM_BYTES_MAX = 64 * 1024, /* of a form around its file */
    PIECE_BYTES = 64 * 1024,
    CHUNK_BYTES = 256 * 1024, /* a chunk ends with the line that passes this */
    CHUNK_BYTES_MAX = CHUNK_BYTES + BATCH_LINE_BYTES_MAX,
    LIST_MAX = 1000
};

size_t files_body_max(void *gateway, const struct http_req *r)
{
    const struct gateway *gw = gateway;
    bool upload = gw->o.batch_api && gw->store && str_eqz(http_req_path(r), "/v1/files") &&
                  str_eqz(http_req_method(r), "POST") &&
                  (!gw->keys || api_keys_find(gw->keys, admit_key(r)));
    size_t file = (size_t)gw->o.file_bytes_max + FORM_BYTES_MAX;
    return upload && file > gw->o.body_bytes_max ? file : gw->o.body_bytes_max;
}

/* --- upload */
enum field { FIELD_OTHER, FIELD_FILE, FIELD_PURPOSE, FIELD_EXPIRES };

struct upload {
    struct store_job job;
    struct multipart *form;
    size_t at; /* bytes of the body read */
    enum field field;
    bool has_file;
    char id[STORE_ID_BYTES], name[256], purpose[32], expires[24];
    struct buf chunk;
    size_t cut;    /* bytes of chunk that are on their way */
    size_t looked; /* bytes of chunk known to hold no end */
    int64_t n_chunks, bytes;
    const char *problem; /* static text */
};

static void upload_free(struct upload *u)
{
    multipart_free(u->form);
    buf_fini(&u->chunk);
    mem_free(u);
}

static void upload_gone(struct store_job *j)
{
    (void)j; /* the reply that is awaited frees it; its chunks fade */
}

static void upload_over(struct upload *u)
{
    struct exchange *x = u->job.x;
    x->store_job = NULL;
    upload_free(u);
    pipeline_finish(x);
}

static bool on_part(void *arg, const struct multipart_part *p)
{
    struct upload *u = arg;
    u->field =
        str_eqz(p->name, "file")      ? FIELD_FILE
        : str_eqz(p->name, "purpose") ? FIELD_PURPOSE
        : str_eqz(p->name, "expires_after[seconds]") || str_eqz(p->name, "expires_after.seconds")
            ? FIELD_EXPIRES
            : FIELD_OTHER;
    if (u->field != FIELD_FILE) return true;
    if (u->has_file) u->problem = "file: a form may have one file";
    u->has_file = true;
    struct str name = p->filename.n ? p->filename : STR("file.jsonl");
    name = str_sub(name, 0, sizeof u->name - 1);
    name.n = utf8_complete(name);
    if (!utf8_valid(name)) u->problem = "file: its name is not valid UTF-8";
    snprintf(u->name, sizeof u->name, STR_FMT, STR_ARG(name));
    return !u->problem;
}

static bool add_text(char *to, size_t cap, struct str bytes)
{
    size_t n = strlen(to);
    if (n + bytes.n >= cap || memchr(bytes.p, 0, bytes.n)) return false;
    memcpy(to + n, bytes.p, bytes.n);
    to[n + bytes.n] = 0;
    return true;
}

static bool on_bytes(void *arg, struct str bytes)
{
    struct upload *u = arg;
    if (u->field == FIELD_FILE) {
        u->bytes += (int64_t)bytes.n;
        buf_str(&u->chunk, bytes);
        if (buf_failed(&u->chunk)) u->problem = "";
    } else if (u->field == FIELD_PURPOSE && !add_text(u->purpose, sizeof u->purpose, bytes)) {
        u->problem = "purpose: expected batch";
    } else if (u->field == FIELD_EXPIRES && !add_text(u->expires, sizeof u->expires, bytes)) {
        u->problem = "expires_after: expected a number of seconds from 3600 to 2592000";
    }
    return !u->problem;
}

/* Bytes of the next chunk, once its end is known; 0 = not yet. */
static size_t chunk_end(struct upload *u, bool last)
{
    struct str all = buf_view(&u->chunk);
    if (u->looked < CHUNK_BYTES - 1) u->looked = CHUNK_BYTES - 1;
    if (all.n > u->looked) {
        ptrdiff_t end = str_find_char(str_sub(all, u->looked, all.n), '\n');
        if (end >= 0) return u->looked + (size_t)end + 1;
        u->looked = all.n;
    }
    if (all.n >= CHUNK_BYTES_MAX) return CHUNK_BYTES_MAX; /* no line is so long */
    return last ? all.n : 0;
}

static void upload_step(struct upload *u);

static void on_chunk_put(void *arg, enum err code, const struct redis_reply *reply)
{
    struct upload *u = arg;
    if (!u->job.x) {
        upload_free(u);
    } else if (!store_reply_good(u->job.x, code, reply)) {
        upload_over(u);
    } else {
        buf_consume(&u->chunk, u->cut);
        u->looked = 0;
        u->n_chunks++;
        upload_step(u);
    }
}

static void on_added(void *arg, enum err code, const struct redis_reply *reply)
{
    struct upload *u = arg;
    if (!u->job.x) {
        upload_free(u);
        return;
    }
    if (store_reply_good(u->job.x, code, reply))
        reply_body(u->job.x, 200, "application/json", reply->text);
    upload_over(u);
}

static const char *form_problem(struct upload *u, int64_t *ttl_s)
{
    *ttl_s = u->job.x->gw->o.file_ttl_s;
    if (!u->has_file) return "file: the form has no such part";
    if (strcmp(u->purpose, "batch") != 0)
        return "purpose: expected batch; files for other purposes have no use here";
    if (u->expires[0] && str_to_i64(str_of(u->expires), 3600, 2592000, ttl_s) != OK)
        return "expires_after: expected a number of seconds from 3600 to 2592000";
    return NULL;
}

static void upload_add(struct upload *u)
{
    const struct gateway_options *o = &u->job.x->gw->o;
    char bytes[24], chunks[24], ttl[24], bytes_max[24], files_max[24];
    int64_t ttl_s;
    const char *problem = form_problem(u, &ttl_s);
    if (problem) {
        reply_problem(u->job.x, 400, "",
                      problem[0] == 'p'   ? "purpose"
                      : problem[0] == 'e' ? "expires_after"
                                          : "file",
                      problem);
        upload_over(u);
        return;
    }
    snprintf(bytes, sizeof bytes, "%lld", (long long)u->bytes);
    snprintf(chunks, sizeof chunks, "%lld", (long long)u->n_chunks);
    snprintf(ttl, sizeof ttl, "%lld", (long long)ttl_s);
    snprintf(bytes_max, sizeof bytes_max, "%lld", (long long)o->files_bytes_max);
    snprintf(files_max, sizeof files_max, "%d", o->files_max);
    struct str args[] = {
        str_of(u->id),    str_of(u->job.x->tenant), str_of(u->name), str_of(u->purpose),
        str_of(bytes),    str_of(chunks),           str_of(ttl),     str_of(bytes_max),
        str_of(files_max)};
    store_call(u->job.x->gw->store, "deja_file_add", 9, args, on_added, u);
}

static void upload_refuse(struct upload *u, enum err code, const struct errmsg *e)
{
    struct exchange *x = u->job.x;
    if (u->problem && u->problem[0])
        reply_problem(x, 400, "", "", u->problem);
    else if (u->problem)
        reply_fault(x, FAULT_MEMORY, "");
    else
        reply_problem(x, code == ERR_TOO_LARGE ? 413 : 400, "invalid_form", "", e->text);
    upload_over(u);
}

/* Reads on until a chunk is whole or the form is over. Exactly one thing is under way when it returns. */
static void upload_step(struct upload *u)
{
    struct exchange *x = u->job.x;
    struct str body = http_req_body(x->r);
    struct errmsg e = {0};
    enum err code = OK;
    size_t end = chunk_end(u, u->at == body.n);
    while (!end && u->at < body.n && code == OK) {
        struct str piece = str_sub(body, u->at, PIECE_BYTES);
        u->at += piece.n;
        code = multipart_feed(u->form, piece, &e);
        if (code == OK && u->at == body.n) code = multipart_end(u->form, &e);
        end = chunk_end(u, u->at == body.n);
    }
    if (code == OK && u->bytes > x->gw->o.file_bytes_max)
        code = err_set(&e, ERR_TOO_LARGE, "file: it is over %lld bytes",
                       (long long)x->gw->o.file_bytes_max);
    if (code != OK) {
        upload_refuse(u, code, &e);
    } else if (end) {
        u->cut = end;
        store_chunk_put(x->gw->store, u->id, u->n_chunks, str_sub(buf_view(&u->chunk), 0, end),
                        on_chunk_put, u);
    } else {
        upload_add(u);
    }
}

static void on_room(void *arg, enum err code, const struct redis_reply *reply)
{
    struct upload *u = arg;
    if (!u->job.x)
        upload_free(u);
    else if (!store_reply_good(u->job.x, code, reply))
        upload_over(u);
    else
        upload_step(u);
}

static enum step upload(struct exchange *x)
{
    char boundary[MULTIPART_BOUNDARY_MAX + 1], bytes[24], bytes_max[24];
    struct errmsg e = {0};
    enum err code = multipart_boundary(http_req_header(x->r, "content-type"), boundary, &e);
    if (code != OK) {
        reply_problem(x, code == ERR_UNSUPPORTED ? 415 : 400, "invalid_form", "", e.text);
        return STEP_DONE;
    }
    struct upload *u = xcalloc(1, sizeof *u);
    struct multipart_handler h = {on_part, on_bytes, u};
    u->job = (struct store_job){.x = x, .gone = upload_gone};
    u->form = multipart_new(boundary, &h);
    buf_init(&u->chunk, CHUNK_BYTES_MAX + 2 * PIECE_BYTES);
    store_new_id(x->gw, "file-", u->id);
    x->store_job = &u->job;
    /* asked before the first chunk: the form is a little more than the file */
    size_t n = http_req_body(x->r).n;
    snprintf(bytes, sizeof bytes, "%zu", n > 2048 ? n - 2048 : 0);
    snprintf(bytes_max, sizeof bytes_max, "%lld", (long long)x->gw->o.files_bytes_max);
    struct str args[] = {str_of(x->tenant), str_of(bytes), str_of(bytes_max)};
    store_call(x->gw->store, "deja_file_room", 3, args, on_room, u);
    return STEP_WAIT;
}

/* --- download */
struct download {
    struct store_job job;
    char id[STORE_ID_BYTES * 2];
    int64_t n_chunks, next;
    bool asking, blocked;
};

static void download_gone(struct store_job *j)
{
    struct download *d = (struct download *)j;
    if (!d->asking) mem_free(d);
}

static void download_over(struct download *d)
{
    struct exchange *x = d->job.x;
    x->store_job = NULL;
    mem_free(d);
    pipeline_finish(x);
}

static void on_chunk(void *arg, enum err code, const struct redis_reply *reply);

static void download_next(struct download *d)
{
    struct exchange *x = d->job.x;
    if (d->next < d->n_chunks) {
        d->asking = true;
        store_chunk_get(x->gw->store, d->id, d->next, on_chunk, d);
        return;
    }
    http_req_on_gone(x->r, NULL, NULL);
    http_req_on_writable(x->r, NULL, NULL);
    http_end(x->r);
    x->r = NULL;
    download_over(d);
}

static void download_writable(struct store_job *j)
{
    struct download *d = (struct download *)j;
    if (!d->blocked) return;
    d->blocked = false;
    download_next(d);
}

static void on_chunk(void *arg, enum err code, const struct redis_reply *reply)
{
    struct download *d = arg;
    struct exchange *x = d->job.x;
    d->asking = false;
    if (!x) {
        mem_free(d);
    } else if (code != OK || reply->kind != REDIS_STRING) {
        http_req_on_gone(x->r, NULL, NULL);
        http_req_on_writable(x->r, NULL, NULL);
        http_abort(x->r); /* the client must see that it is not whole */
        x->r = NULL;
        download_over(d);
    } else {
        d->next++;
        x->bytes_out += reply->text.n;
        d->blocked = !http_write(x->r, reply->text);
        if (!d->blocked) download_next(d);
    }
}

static void on_file(void *arg, enum err code, const struct redis_reply *reply)
{
    struct download *d = arg;
    struct exchange *x = d->job.x;
    d->asking = false;
    if (!x) {
        mem_free(d);
        return;
    }
    if (!store_reply_good(x, code, reply)) {
        download_over(d);
        return;
    }
    if (reply->kind == REDIS_ARRAY && reply->n_items > 1) d->n_chunks = reply->items[1].integer;
    http_set_header(x->r, "x-request-id", str_of(x->request_id));
    http_start(x->r, 200, "application/octet-stream");
    x->status = 200;
    x->streaming = true;
    download_next(d);
}

static enum step download(struct exchange *x, struct str id)
{
    struct download *d = xcalloc(1, sizeof *d);
    d->job = (struct store_job){x, download_gone, download_writable};
    d->asking = true;
    snprintf(d->id, sizeof d->id, STR_FMT, STR_ARG(id));
    x->store_job = &d->job;
    struct str args[] = {id, str_of(x->tenant)};
    store_call(x->gw->store, "deja_file_get", 2, args, on_file, d);
    return STEP_WAIT;
}

/* --- the rest is one call each */
static enum step list(struct exchange *x)
{
    json_t *q = admin_query(http_req_query(x->r));
    struct str after = json_member_str(q, "after"), order = json_member_str(q, "order"),
               purpose = json_member_str(q, "purpose"), limit = json_member_str(q, "limit");
    int64_t n = LIST_MAX;
    char text[24];
    enum step step = STEP_DONE;
    if (limit.n && str_to_i64(limit, 1, 10000, &n) != OK) {
        reply_problem(x, 400, "", "limit", "limit: expected a number from 1 to 10000");
    } else if (order.n && !str_eqz(order, "asc") && !str_eqz(order, "desc")) {
        reply_problem(x, 400, "", "order", "order: expected asc or desc");
    } else {
        snprintf(text, sizeof text, "%lld", (long long)(n < LIST_MAX ? n : LIST_MAX));
        struct str args[] = {str_of(x->tenant), purpose, after, str_of(text),
                             order.n ? order : STR("desc")};
        step = store_answer(x, "deja_file_list", 5, args);
    }
    json_decref(q);
    return step;
}

enum step files_start(struct exchange *x)
{
    struct str path = http_req_path(x->r), method = http_req_method(x->r), id;
    bool get = str_eqz(method, "GET");
    path = str_sub(path, sizeof "/v1/files" - 1, path.n);
    if (store_missing(x)) return STEP_DONE;
    if (!path.n || str_eqz(path, "/")) {
        if (str_eqz(method, "POST")) return upload(x);
        return get ? list(x) : store_refuse_method(x, "GET, POST");
    }
    path = str_sub(path, 1, path.n);
    bool content = str_ends(path, STR("/content"));
    id = content ? str_sub(path, 0, path.n - 8) : path;
    if (!store_id_ok(id)) return reply_fault(x, FAULT_NOT_FOUND, ""), STEP_DONE;
    if (content) return get ? download(x, id) : store_refuse_method(x, "GET");
    struct str args[] = {id, str_of(x->tenant)};
    if (get) return store_answer(x, "deja_file_get", 2, args);
    if (str_eqz(method, "DELETE")) return store_answer(x, "deja_file_delete", 2, args);
    return store_refuse_method(x, "GET, DELETE");
}
