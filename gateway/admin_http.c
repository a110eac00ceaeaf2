/* admin_http.c - the /admin endpoints: the same as the Redis Functions, over HTTP with a key. A request becomes one call of a Function
 * (admin_args.h), its reply becomes JSON. Nothing here without the key, nothing without a key configured. Threading: the loop's thread. */
#include <stdio.h>
#include <string.h>

#include "base/crypto.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/admin_args.h"
#include "gateway/pipeline.h"
#include "gateway/reply.h"
#include "gateway/tuning.h"
#include "gateway/unserved.h"

enum { CALL_TIMEOUT_MS = 2000, REPLY_BYTES_MAX = 8 << 20, MEMBER_BYTES_MAX = 64 };

struct admin_job {
    struct exchange *x; /* NULL: the client has left */
    struct admin_call call;
    char ns[TENANT_BYTES]; /* of GET /admin/config: whose knobs are shown */
};

/* --- who may */
bool admin_is_allowed(struct exchange *x)
{
    struct str want = str_of(x->gw->o.admin_key),
               given = header_bearer(http_req_header(x->r, "authorization"));
    if (!given.n) given = str_trim(http_req_header(x->r, "x-admin-key"));
    if (!want.n) {
        reply_problem(
            x, 403, "admin_off", "",
            "the admin endpoints are off: start the gateway with an admin key (--admin-key or "
            "DEJA_ADMIN_KEY)");
        return false;
    }
    if (equal_constant_time(want, given)) return true;
    log_limited(LOG_WARN, "gateway", "an admin request without the right key from " STR_FMT,
                STR_ARG(http_req_peer(x->r)));
    http_set_header(x->r, "WWW-Authenticate", STR("Bearer"));
    reply_problem(x, 401, "invalid_admin_key", "",
                  given.n ? "this is not the admin key"
                          : "no key was given (Authorization: Bearer ADMIN_KEY)");
    return false;
}

/* --- replies */
static void send_json(struct exchange *x, struct buf *body)
{
    if (buf_failed(body))
        reply_fault(x, FAULT_MEMORY, "");
    else
        reply_body(x, 200, "application/json", buf_view(body));
}

static void write_value(struct buf *out, const struct redis_reply *r)
{
    if (r->kind == REDIS_INTEGER)
        buf_printf(out, "%lld", (long long)r->integer);
    else if (r->kind == REDIS_STRING || r->kind == REDIS_STATUS)
        json_write_string(out, r->text);
    else
        buf_z(out, "null");
}

static void write_lines(struct buf *out, const struct redis_reply *r)
{
    buf_z(out, "{\"lines\":[");
    for (size_t i = 0; i < r->n_items; i++) {
        if (i) buf_char(out, ',');
        write_value(out, &r->items[i]);
    }
    buf_z(out, "]}");
}

static void write_pairs(struct buf *out, const struct redis_reply *r)
{
    buf_char(out, '{');
    for (size_t i = 0; i + 1 < r->n_items; i += 2) {
        if (i) buf_char(out, ',');
        json_write_string(out, r->items[i].text);
        buf_char(out, ':');
        write_value(out, &r->items[i + 1]);
    }
    buf_char(out, '}');
}

/* Of the text of a knob, where that is one of models: ,"unserved":["a"] */
static void write_unserved(struct buf *out, const struct buf *models)
{
    struct str lines = buf_view(models), line;
    const char *sep = "";
    buf_z(out, ",\"unserved\":[");
    while (str_next(&lines, '\n', &line)) {
        if (!line.n) continue;
        buf_z(out, sep);
        json_write_string(out, line);
        sep = ",";
    }
    buf_char(out, ']');
}

static void write_text(struct buf *out, const struct gateway *gw, const struct knob_text *k)
{
    struct str value = tuning_text(gw->tuning, k->name);
    struct buf models;
    buf_init(&models, REPLY_BYTES_MAX);
    unserved_models(gw, k->name, value, &models);
    buf_printf(out, ",{\"name\":\"%s\",\"value\":", k->name);
    json_write_string(out, value.n ? value : STR("none"));
    buf_printf(out, ",\"default\":\"none\",\"type\":\"text\",\"choices\":\"%s\",\"help\":\"%s\"",
               k->example, k->help);
    write_unserved(out, &models);
    buf_char(out, '}');
    buf_fini(&models);
}

/* What the gateway itself knows of the knobs, put before the last brace of what Redis says. */
static void write_knobs(struct buf *out, const struct gateway *gw, const char *ns)
{
    const struct settings *s = tuning_settings(gw->tuning);
    struct cache_knobs now = settings_knobs(s, str_of(ns), -1);
    buf_printf(out, ",\"in_force_version\":%llu,\"knobs\":[",
               (unsigned long long)settings_version(s));
    for (size_t i = 0; i < knobs_count(); i++) {
        static const char *const types[] = {"bool", "int", "float", "choice"};
        struct knob k = knob_at(i);
        char value[KNOB_TEXT_BYTES], preset[KNOB_TEXT_BYTES];
        struct cache_knobs presets = knobs_default();
        knob_format(&now, &k, value);
        knob_format(&presets, &k, preset);
        buf_printf(out,
                   "%s{\"name\":\"%s\",\"value\":\"%s\",\"default\":\"%s\",\"type\":\"%s\",\"min\":"
                   "%.15g,\"max\":%.15g,\"unit\":\"%s\",\"choices\":\"%s\",\"help\":",
                   i ? "," : "", k.name, value, preset, types[k.type], k.min, k.max, k.unit,
                   k.choices);
        json_write_string(out, str_of(k.help));
        buf_char(out, '}');
    }
    for (size_t i = 0; i < KNOB_TEXTS; i++)
        write_text(out, gw, &knob_texts[i]);
    buf_char(out, ']');
}

static void send_json_text(struct admin_job *j, struct str text)
{
    struct buf body;
    buf_init(&body, REPLY_BYTES_MAX);
    bool config = !strcmp(j->call.function, "deja_config_get");
    buf_str(&body, config ? str_sub(text, 0, text.n - 1) : text);
    if (config) write_knobs(&body, j->x->gw, j->ns);
    if (config) buf_char(&body, '}');
    send_json(j->x, &body);
    buf_fini(&body);
}

static bool form_fits(enum admin_form form, const struct redis_reply *r)
{
    bool list = form == ADMIN_LINES || form == ADMIN_PAIRS;
    return r->kind == (list ? REDIS_ARRAY : REDIS_STRING) && (list || r->text.n);
}

/* The member a Function's complaint is about, where its first word tells. */
static const char *blamed(const struct admin_call *c, struct str message)
{
    if (strcmp(c->function, "deja_config_set") != 0) return "";
    struct str first = {c->args.p, strlen(c->args.p)}, word, rest = message;
    str_next(&rest, ':', &word);
    if (str_starts(message, STR("no knob"))) return "name";
    if (str_starts(message, STR("scope")) || str_starts(message, STR("there is no running")))
        return "scope";
    return str_ieq(word, first) ? "value" : "";
}

static void send_error(struct admin_job *j, struct str text)
{
    char message[320];
    bool ours = str_starts(text, STR("ERR "));
    if (ours) text = str_trim(str_sub(text, 4, text.n));
    bool missing = str_find(text, STR("Function not found")) >= 0;
    snprintf(message, sizeof message, "%s" STR_FMT,
             ours && !missing ? "" : "Redis: ", STR_ARG(text));
    reply_problem(j->x, ours && !missing ? 400 : 503, ours && !missing ? "" : "redis_error",
                  ours ? blamed(&j->call, text) : "", message);
}

static void send_reply(struct admin_job *j, const struct redis_reply *r)
{
    struct buf body;
    if (r->kind == REDIS_ERROR) {
        send_error(j, r->text);
        return;
    }
    if (!form_fits(j->call.form, r)) {
        reply_problem(j->x, 503, "redis_error", "",
                      "Redis answered in a form that is not known here");
        return;
    }
    if (j->call.form == ADMIN_JSON) {
        send_json_text(j, r->text);
        return;
    }
    buf_init(&body, REPLY_BYTES_MAX);
    if (j->call.form == ADMIN_LINES) {
        write_lines(&body, r);
    } else if (j->call.form == ADMIN_PAIRS) {
        write_pairs(&body, r);
    } else {
        buf_z(&body, "{\"message\":");
        json_write_string(&body, r->text);
        buf_char(&body, '}');
    }
    send_json(j->x, &body);
    buf_fini(&body);
}

static void on_reply(void *arg, enum err code, const struct redis_reply *reply)
{
    struct admin_job *j = arg;
    struct exchange *x = j->x;
    if (x) {
        x->admin = NULL;
        if (code == OK)
            send_reply(j, reply);
        else
            reply_problem(x, 503, "redis_unavailable", "",
                          code == ERR_TIMEOUT || code == ERR_CLOSED
                              ? "Redis did not answer: whether it was done is not known"
                              : "Redis is not there: nothing was done");
        pipeline_finish(x);
    }
    admin_call_fini(&j->call);
    mem_free(j);
}

void admin_leave(struct exchange *x)
{
    if (!x->admin) return;
    x->admin->x = NULL;
    x->admin = NULL;
}

/* --- calls */
static enum step call(struct exchange *x, struct admin_job *j)
{
    char key[96];
    const char *at = j->call.args.p;
    struct str *argv = xcalloc(4 + j->call.n_args, sizeof *argv);
    argv[0] = STR("FCALL");
    argv[1] = str_of(j->call.function);
    argv[2] = STR("1");
    argv[3] = tuning_key(x->gw, key);
    for (size_t i = 0; i < j->call.n_args; i++, at += strlen(at) + 1)
        argv[4 + i] = str_of(at);
    x->admin = j;
    j->x = x;
    redis_command(x->gw->redis, (int)(4 + j->call.n_args), argv, CALL_TIMEOUT_MS, on_reply, j);
    mem_free(argv);
    return STEP_WAIT;
}

/* The body as JSON in *doc (NULL without one). False: it was refused. */
static bool read_body(struct exchange *x, json_t **doc)
{
    struct str body = str_trim(http_req_body(x->r));
    struct errmsg e = {0};
    *doc = NULL;
    if (!body.n) return true;
    if (!content_type_is_json(http_req_header(x->r, "content-type")))
        return reply_fault(x, FAULT_MEDIA, ""), false;
    if (json_parse(body, 0, doc, &e) == OK) return true;
    reply_problem(x, 400, "", "body", e.text);
    return false;
}

static const char *who(const struct exchange *x, char out[MEMBER_BYTES_MAX])
{
    struct str given = str_trim(http_req_header(x->r, "x-deja-who"));
    snprintf(out, MEMBER_BYTES_MAX, STR_FMT, STR_ARG(given.n ? given : STR("admin")));
    return out;
}

static bool is_seed(const struct exchange *x)
{
    struct str method = http_req_method(x->r);
    return str_eqz(http_req_path(x->r), "/admin/seed") &&
           (str_eqz(method, "POST") || str_eqz(method, "DELETE"));
}

enum step admin_start(struct exchange *x)
{
    struct openai_error e = {0};
    char name[MEMBER_BYTES_MAX];
    const char *allow = NULL;
    json_t *doc;
    if (!admin_is_allowed(x)) return STEP_DONE;
    if (is_seed(x)) return admin_seed_start(x);
    if (!read_body(x, &doc)) return STEP_DONE;
    struct admin_job *j = xcalloc(1, sizeof *j);
    enum err code = admin_call_make(&j->call, http_req_method(x->r), http_req_path(x->r),
                                    http_req_query(x->r), doc, who(x, name), &allow, &e);
    json_t *query = code == OK ? admin_query(http_req_query(x->r)) : NULL;
    snprintf(j->ns, sizeof j->ns, STR_FMT, STR_ARG(json_member_str(query, "ns")));
    json_decref(query);
    json_decref(doc);
    if (code == OK && x->gw->redis) return call(x, j);
    if (code == OK) {
        reply_problem(x, 503, "no_redis", "",
                      "this gateway runs without Redis, where settings are kept");
        admin_call_fini(&j->call);
    } else if (code == ERR_INVALID) {
        reply_refusal(x, &e);
    } else if (allow) {
        reply_method(x, allow);
    } else {
        reply_fault(x, FAULT_NOT_FOUND, "");
    }
    mem_free(j);
    return STEP_DONE;
}
