/* explain.c - POST /admin/explain: what would become of this chat request, and why: what of it counts, whose settings it goes by, and
 * what each step of the decision says of every stored question near it. Reads only: nothing is served, stored or counted. The body is
 * that of /v1/chat/completions, with its headers; the query may name the tenant (?tenant=NAME) and pass over an equal stored request
 * (?skip_exact=true). Threading: the loop's thread. */
#include <string.h>

#include "base/mem.h"
#include "gateway/admin_args.h"
#include "gateway/pipeline.h"
#include "gateway/reply.h"
#include "gateway/tuning.h"

enum { REPORT_BYTES_MAX = 1 << 20 };

struct explanation {
    struct exchange *x;
    struct buf body;
    int n_candidates;
};

static void member_text(struct buf *out, const char *name, struct str text)
{
    buf_printf(out, ",\"%s\":", name);
    json_write_string(out, text);
}

static void member_score(struct buf *out, const char *name, double v)
{
    if (v < 0)
        buf_printf(out, ",\"%s\":null", name);
    else
        buf_printf(out, ",\"%s\":%.6f", name, v);
}

static void on_candidate(void *arg, const struct cache_verdict *v)
{
    struct explanation *e = arg;
    struct buf *out = &e->body;
    buf_printf(out, "%s{\"entry\":\"%s\",\"hit\":%s,\"step\":\"%s\"", e->n_candidates++ ? "," : "",
               v->entry_id, v->hit ? "true" : "false", v->step);
    member_text(out, "reason", str_of(v->reason));
    member_text(out, "detail", str_of(v->detail));
    member_text(out, "question", v->question);
    member_text(out, "nearest_wording", v->wording);
    member_score(out, "similarity", v->similarity);
    member_score(out, "threshold", v->threshold);
    member_score(out, "verifier", v->verifier);
    member_score(out, "veto", v->veto);
    member_score(out, "rival", v->rival);
    member_score(out, "shared_words", v->shared);
    member_score(out, "contained_words", v->contained);
    buf_char(out, '}');
}

static void write_request(struct buf *out, const struct exchange *x)
{
    char exact[33], partition[33];
    hash_hex(x->key.exact, exact);
    hash_hex(x->key.partition, partition);
    buf_printf(out, "],\"settings_version\":%llu,\"key\":{\"exact\":\"%s\",\"partition\":\"%s\"",
               (unsigned long long)settings_version(tuning_settings(x->gw->tuning)), exact,
               partition);
    member_text(out, "tenant", str_of(x->tenant));
    member_text(out, "namespace", str_of(x->controls.ns));
    member_text(out, "model", x->model);
    member_text(out, "question", x->key.user_text);
    buf_printf(out, ",\"similar_allowed\":%s", x->key.semantic_allowed ? "true" : "false");
    member_text(out, "why_not", str_of(x->key.why_not ? x->key.why_not : ""));
    buf_char(out, '}');
    member_text(out, "arm", str_of(x->arm));
}

static void finish(struct explanation *e, const char *result, const char *reason,
                   const struct cache_found *f)
{
    struct exchange *x = e->x;
    struct buf *out = &e->body;
    if (x->keyed)
        write_request(out, x);
    else
        buf_z(out, "],\"key\":null");
    member_text(out, "result", str_of(result));
    member_text(out, "reason", str_of(reason));
    member_text(out, "entry", str_of(f ? f->entry_id : ""));
    member_score(out, "similarity", f ? f->similarity : -1);
    buf_char(out, '}');
    if (buf_failed(out))
        reply_fault(x, FAULT_MEMORY, "");
    else
        reply_body(x, 200, "application/json", buf_view(out));
    buf_fini(out);
    x->explanation = NULL;
    mem_free(e);
}

static void on_found(void *arg, const struct cache_found *f)
{
    static const char *const results[] = {"miss", "exact", "semantic"};
    struct explanation *e = arg;
    struct exchange *x = e->x;
    x->lookup = NULL;
    finish(e, results[f->result], f->reason, f);
    pipeline_finish(x);
}

/* Members that are not known would be answered for another tenant than the one meant. */
static void check_query(const json_t *query, struct errmsg *e)
{
    const char *name;
    json_t *value;
    struct str skip = json_member_str(query, "skip_exact");
    if (!query) (void)err_set(e, ERR_INVALID, "query: it is malformed");
    json_object_foreach((json_t *)query, name, value)
    {
        if (strcmp(name, "tenant") != 0 && strcmp(name, "skip_exact") != 0)
            (void)err_set(e, ERR_INVALID, "query: %.40s is not known here", name);
    }
    if (json_member_str(query, "tenant").n >= TENANT_BYTES)
        (void)err_set(e, ERR_INVALID, "tenant: expected at most %d bytes", TENANT_BYTES - 1);
    if (skip.n && !str_eqz(skip, "true") && !str_eqz(skip, "false"))
        (void)err_set(e, ERR_INVALID, "skip_exact: expected true or false");
}

enum step explain_admit(struct exchange *x)
{
    struct errmsg e = {0};
    if (!admin_is_allowed(x)) return STEP_DONE;
    json_t *query = admin_query(http_req_query(x->r));
    check_query(query, &e);
    if (e.text[0]) {
        reply_problem(x, 400, "", "query", e.text);
    } else {
        struct str tenant = json_member_str(query, "tenant");
        if (!tenant.n) tenant = STR("public");
        memcpy(x->tenant, tenant.p, tenant.n);
        x->tenant[tenant.n] = 0;
    }
    json_decref(query);
    return e.text[0] ? STEP_DONE : STEP_NEXT;
}

enum step explain_start(struct exchange *x)
{
    struct explanation *e = xcalloc(1, sizeof *e);
    e->x = x;
    buf_init(&e->body, REPORT_BYTES_MAX);
    buf_z(&e->body, "{\"candidates\":[");
    if (!x->keyed) {
        finish(e, "bypass", x->out.reason, NULL);
        return STEP_DONE;
    }
    json_t *query = admin_query(http_req_query(x->r));
    struct cache_lookup_options o = {.skip_exact =
                                         str_eqz(json_member_str(query, "skip_exact"), "true"),
                                     .skip_semantic = x->controls.skip_semantic,
                                     .threshold_min = x->controls.threshold_min,
                                     .max_age_s = x->controls.max_age_s,
                                     .knobs = &x->knobs,
                                     .explain = on_candidate};
    json_decref(query);
    x->explanation = e;
    x->lookup = cache_find(x->gw->cache, &x->key, &o, on_found, e);
    return STEP_WAIT;
}

void explain_leave(struct exchange *x)
{
    if (!x->explanation) return;
    buf_fini(&x->explanation->body);
    mem_free(x->explanation);
    x->explanation = NULL;
}
