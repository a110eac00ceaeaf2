/* chat.c - stages "read" and "prepare" of chat and completion requests: the body strictly parsed (long ones on a worker), what the
 * client said about caching, model aliases, and the bytes that go upstream: the client's own, unless the gateway's "cache" member or
 * an alias has to be taken out of them. Threading: the loop's thread; parsing of long bodies on workers. */
#include <string.h>

#include "base/mem.h"
#include "gateway/body_edit.h"
#include "gateway/pipeline.h"
#include "gateway/reply.h"

/* About a millisecond of parsing on one Zen 3 core. */
enum { LONG_BODY_BYTES = 96 * 1024 };

struct parse_job {
    struct exchange *x; /* NULL: the client has left */
    struct buf text;
    enum openai_kind kind;
    struct openai_request req;
    struct openai_error error;
    enum err code;
};

static enum openai_kind kind_of(const struct exchange *x)
{
    return x->route == ROUTE_COMPLETIONS ? OPENAI_COMPLETION : OPENAI_CHAT;
}

static void run_job(void *arg)
{
    struct parse_job *j = arg;
    j->code = openai_parse(&j->req, j->kind, buf_view(&j->text), OPENAI_GATEWAY, &j->error);
}

static void job_done(void *arg, bool cancelled)
{
    struct parse_job *j = arg;
    struct exchange *x = j->x;
    if (x) x->parse = NULL;
    if (!cancelled && j->code == OK && x) {
        x->req = j->req;
        x->parsed = true;
    } else if (!cancelled && j->code == OK) {
        openai_request_fini(&j->req);
    }
    if (x && x->parsed) {
        pipeline_resume(x);
    } else if (x) {
        if (cancelled)
            reply_fault(x, FAULT_DRAINING, "");
        else
            reply_refusal(x, &j->error);
        pipeline_finish(x);
    }
    buf_fini(&j->text);
    mem_free(j);
}

static enum step read_on_worker(struct exchange *x, struct str body)
{
    struct parse_job *j = xcalloc(1, sizeof *j);
    j->x = x;
    j->kind = kind_of(x);
    buf_init(&j->text, body.n);
    buf_str(&j->text, body); /* the client may leave, and its bytes with it */
    if (!buf_failed(&j->text) &&
        workers_submit(x->gw->workers, x->gw->loop, run_job, job_done, j) == OK) {
        x->parse = j;
        return STEP_WAIT;
    }
    buf_fini(&j->text);
    mem_free(j);
    reply_fault_retry(x, FAULT_BUSY, "", 1000);
    return STEP_DONE;
}

void parse_abandon(struct exchange *x)
{
    if (!x->parse) return;
    x->parse->x = NULL;
    x->parse = NULL;
}

enum step stage_read(struct exchange *x)
{
    struct openai_error e = {0};
    struct str encoding = str_trim(http_req_header(x->r, "content-encoding")),
               body = http_req_body(x->r);
    if (encoding.n && !str_ieq(encoding, STR("identity")))
        return reply_fault(x, FAULT_ENCODING, ""), STEP_DONE;
    if (!content_type_is_json(http_req_header(x->r, "content-type")))
        return reply_fault(x, FAULT_MEDIA, ""), STEP_DONE;
    if (body.n > LONG_BODY_BYTES) return read_on_worker(x, body);
    if (openai_parse(&x->req, kind_of(x), body, OPENAI_GATEWAY, &e) != OK)
        return reply_refusal(x, &e), STEP_DONE;
    x->parsed = true;
    return STEP_NEXT;
}

static bool read_controls(struct exchange *x)
{
    struct openai_error e = {0};
    struct str name, value;
    enum err code = OK;
    controls_init(&x->controls);
    for (int i = 0; code == OK && i < http_req_n_headers(x->r); i++) {
        http_req_header_at(x->r, i, &name, &value);
        code = controls_feed(&x->controls, name, value, &e);
    }
    if (code == OK) code = controls_from_body(&x->controls, &x->req, &e);
    if (code != OK) reply_refusal(x, &e);
    return code == OK;
}

static enum err edit_body(struct exchange *x, bool alias)
{
    struct str body = http_req_body(x->r);
    struct body_edit edits[2] = {{.name = "cache"}};
    struct buf model;
    size_t n = 1;
    buf_init(&model, 4096);
    if (alias) {
        json_write_string(&model, x->model);
        edits[n++] = (struct body_edit){.name = "model", .value = buf_view(&model)};
    }
    enum err code = body_edit(&x->body, body, edits, n);
    buf_fini(&model);
    x->body_edited = code == OK;
    return code;
}

enum step stage_prepare(struct exchange *x)
{
    outcome_reason(&x->out, "");
    x->out.cache = "miss";
    if (!read_controls(x)) return STEP_DONE;
    x->model = gateway_alias(x->gw->o.model_aliases, x->req.model);
    bool alias = x->model.p != x->req.model.p;
    /* The name may be spelt with escapes too (\\u0063ache). */
    struct str body = http_req_body(x->r);
    bool may_hold_cache =
        str_find(body, STR("\"cache\"")) >= 0 || str_find(body, STR("\\u00")) >= 0;
    if ((alias || may_hold_cache) && edit_body(x, alias) != OK)
        return reply_fault(x, FAULT_MEMORY, ""), STEP_DONE;
    return STEP_NEXT;
}
