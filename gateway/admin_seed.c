/* admin_seed.c - POST and DELETE /admin/seed: what `deja seed` does, over HTTP with the admin key. The body is the file, JSON lines or
 * CSV (cache/seed_file.h), the query says ?set=NAME and may say namespace, tenant, model, ttl, dry_run. It is read on a worker and checked
 * whole; one file at a time; a client that leaves does not stop it. Threading: the loop's thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/workers.h"
#include "gateway/admin_args.h"
#include "gateway/pipeline.h"
#include "gateway/reply.h"
#include "gateway/seed_run.h"

enum { REPORT_BYTES_MAX = 256 * 1024, SET_BYTES_MAX = 128 };

struct seed_job {
    struct gateway *gw;
    struct exchange *x; /* NULL: the client has left */
    json_t *query;
    char set[SET_BYTES_MAX + 1], tag[80];
    bool dry;
    char *text;
    size_t n_text;
    struct seed_defaults defaults; /* borrowed from query */
    struct seed_file file;
    struct buf refusals;
};

static void end(struct seed_job *j)
{
    struct exchange *x = j->x;
    j->gw->seeding = false;
    seed_file_fini(&j->file);
    buf_fini(&j->refusals);
    json_decref(j->query);
    mem_free(j->text);
    mem_free(j);
    if (!x) return;
    x->seed = NULL;
    pipeline_finish(x);
}

static void refused(void *arg, int line, const char *text)
{
    struct seed_job *j = arg;
    buf_printf(&j->refusals, "%s{\"line\":%d,\"why\":", j->refusals.n ? "," : "", line);
    json_write_string(&j->refusals, str_of(text));
    buf_char(&j->refusals, '}');
}

static void done(void *arg, enum err code, const struct seed_counts *n, const struct errmsg *why)
{
    struct seed_job *j = arg;
    log_info("gateway", "seed set=%s new=%zu changed=%zu same=%zu removed=%zu refused=%zu%s%s",
             j->set, n->fresh, n->changed, n->same, n->removed, n->refused,
             j->dry ? " dry run" : "", code == OK ? "" : " not finished");
    struct buf out;
    buf_init(&out, REPORT_BYTES_MAX);
    buf_z(&out, "{\"set\":");
    json_write_string(&out, str_of(j->set));
    buf_printf(&out,
               ",\"dry_run\":%s,\"new\":%zu,\"changed\":%zu,\"same\":%zu,\"removed\":%zu,"
               "\"refused\":%zu,\"refusals\":[",
               j->dry ? "true" : "false", n->fresh, n->changed, n->same, n->removed, n->refused);
    buf_str(&out, buf_view(&j->refusals));
    buf_z(&out, "]}");
    if (j->x && code != OK)
        reply_problem(j->x, code == ERR_INVALID ? 400 : 503, "redis_error", "", why->text);
    else if (j->x)
        reply_body(j->x, 200, "application/json", buf_view(&out));
    buf_fini(&out);
    end(j);
}

/* Nothing is loaded of a file with mistakes; they are told as `deja seed` tells them. */
static void reply_mistakes(struct seed_job *j)
{
    struct buf out;
    struct str lines = buf_view(&j->file.problems), line;
    buf_init(&out, REPORT_BYTES_MAX);
    buf_printf(&out,
               "{\"error\":{\"message\":\"%zu mistakes: nothing was loaded\",\"type\":"
               "\"invalid_request_error\",\"param\":\"body\",\"code\":\"seed_mistakes\"},"
               "\"problems\":[",
               j->file.n_problems);
    for (int i = 0; str_next(&lines, '\n', &line); i++) {
        if (i) buf_char(&out, ',');
        json_write_string(&out, line);
    }
    buf_z(&out, "]}");
    if (j->x) reply_body(j->x, 400, "application/json", buf_view(&out));
    buf_fini(&out);
}

static void read_file(void *arg) /* a worker */
{
    struct seed_job *j = arg;
    seed_file_read(&j->file, (struct str){j->text, j->n_text}, &j->defaults);
}

static void begin(struct seed_job *j)
{
    struct seed_run_options o = {.redis = j->gw->redis,
                                 .tag = j->tag,
                                 .set = j->set,
                                 .dry = j->dry,
                                 .secret = strtoull(j->gw->secret, NULL, 16),
                                 .refused = refused,
                                 .done = done,
                                 .arg = j};
    seed_run_start(&o, &j->file);
}

static void was_read(void *arg, bool cancelled)
{
    struct seed_job *j = arg;
    if (cancelled) {
        end(j);
    } else if (j->file.n_problems) {
        reply_mistakes(j);
        end(j);
    } else {
        begin(j);
    }
}

/* False: it was refused. */
static bool read_query(struct exchange *x, struct seed_job *j)
{
    static const char *const known[] = {"set", "namespace", "tenant", "model", "ttl", "dry_run"};
    struct errmsg e = {0};
    const char *name;
    json_t *value;
    json_object_foreach(j->query, name, value)
    {
        bool good = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            good = good || !strcmp(name, known[i]);
        if (!good) (void)err_set(&e, ERR_INVALID, "query: %.40s is not known here", name);
    }
    struct str set = json_member_str(j->query, "set"), ttl = json_member_str(j->query, "ttl"),
               dry = json_member_str(j->query, "dry_run"),
               tenant = json_member_str(j->query, "tenant");
    if (!set.n || set.n > SET_BYTES_MAX)
        (void)err_set(&e, ERR_INVALID, "set: name the set, as in /admin/seed?set=faq (%d bytes)",
                      SET_BYTES_MAX);
    for (size_t i = 0; i < set.n; i++)
        if ((unsigned char)set.p[i] < ' ' || set.p[i] == 127)
            (void)err_set(&e, ERR_INVALID, "set: a control character stands in its name");
    if (!utf8_valid(set)) (void)err_set(&e, ERR_INVALID, "set: its name is not valid UTF-8");
    if (ttl.n && str_to_i64(ttl, 0, INT32_MAX, &j->defaults.ttl_s) != OK)
        (void)err_set(&e, ERR_INVALID, "ttl: expected seconds from 0 to %d", INT32_MAX);
    if (dry.n && !str_eqz(dry, "true") && !str_eqz(dry, "false"))
        (void)err_set(&e, ERR_INVALID, "dry_run: expected true or false");
    if (e.text[0]) {
        reply_problem(x, 400, "", "query", e.text);
        return false;
    }
    memcpy(j->set, set.p, set.n);
    j->dry = str_eqz(dry, "true");
    j->defaults.ns = json_member_str(j->query, "namespace");
    j->defaults.tenant = tenant.n ? tenant : STR("*");
    j->defaults.model = json_member_str(j->query, "model");
    return true;
}

enum step admin_seed_start(struct exchange *x)
{
    struct gateway *gw = x->gw;
    struct str body = http_req_body(x->r);
    bool load = str_eqz(http_req_method(x->r), "POST");
    if (!gw->redis || gw->seeding || (load && !str_trim(body).n)) {
        if (!gw->redis)
            reply_problem(x, 503, "no_redis", "", "this gateway runs without Redis");
        else if (gw->seeding)
            reply_problem(x, 409, "seed_busy", "", "another file is being loaded: try again");
        else
            reply_problem(x, 400, "", "body",
                          "the body is the file: JSON lines or CSV (docs/seed.md)");
        return STEP_DONE;
    }
    struct seed_job *j = xcalloc(1, sizeof *j);
    *j = (struct seed_job){.gw = gw, .query = admin_query(http_req_query(x->r))};
    buf_init(&j->refusals, REPORT_BYTES_MAX / 2);
    snprintf(j->tag, sizeof j->tag, "{%s}", gw->o.ns);
    if (!read_query(x, j)) {
        end(j);
        return STEP_DONE;
    }
    gw->seeding = true;
    j->x = x;
    x->seed = j;
    if (!load) {
        begin(j);
        return STEP_WAIT;
    }
    j->text = xstrndup(body.p, body.n);
    j->n_text = body.n;
    if (gw->workers && workers_submit(gw->workers, gw->loop, read_file, was_read, j) == OK)
        return STEP_WAIT;
    x->seed = NULL;
    j->x = NULL;
    end(j);
    reply_fault_retry(x, FAULT_BUSY, "", 1000);
    return STEP_DONE;
}

void admin_seed_leave(struct exchange *x)
{
    if (!x->seed) return;
    x->seed->x = NULL;
    x->seed = NULL;
}
