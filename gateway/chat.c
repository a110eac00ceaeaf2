/* chat.c - stages "read" and "prepare" of everything that is answered as a chat or a completion: the body strictly parsed, through its
 * door if it has one (long ones on a worker), what the client said about caching, model aliases, and the bytes that go upstream: the
 * client's own, unless a door, the gateway's "cache" member or an alias changes them. Threading: the loop's thread; parsing of long
 * bodies on workers. */
#include <string.h>

#include "base/mem.h"
#include "gateway/body_edit.h"
#include "gateway/pipeline.h"
#include "gateway/reply.h"
#include "gateway/route_model.h"

/* About a millisecond of parsing on one Zen 3 core. */
enum { LONG_BODY_BYTES = 96 * 1024 };

struct parse_job {
    struct exchange *x; /* NULL: the client has left */
    struct buf text;
    enum openai_kind kind;
    const struct door *door;
    struct door_request asked;
    struct openai_request req;
    struct openai_error error;
    enum err code;
};

static enum openai_kind kind_of(const struct exchange *x)
{
    return x->route == ROUTE_COMPLETIONS  ? OPENAI_COMPLETION
           : x->route == ROUTE_EMBEDDINGS ? OPENAI_EMBEDDING
                                          : OPENAI_CHAT;
}

/* Is what cannot be read here for the upstream to judge? Unknown inputs of embeddings are: some take more than texts. So is, when the
 * operator says so, what has no chat form. e is NULL when the body was not looked at. Such a request goes on unparsed, to stage_unread. */
static bool passes_on(const struct exchange *x, const struct openai_error *e)
{
    if (x->route == ROUTE_EMBEDDINGS) return !e || !strncmp(e->param, "input", 5);
    return e && x->door && x->gw->o.pass_unmapped &&
           (!strncmp(e->code, "unsupported_", 12) || !strcmp(e->code, "unknown_parameter"));
}

static void run_job(void *arg)
{
    struct parse_job *j = arg;
    struct str body = buf_view(&j->text);
    j->code = j->door ? door_parse(j->door, body, &j->asked, &j->req, &j->error)
                      : openai_parse(&j->req, j->kind, body, OPENAI_GATEWAY, &j->error);
}

/* With a door, what goes upstream is the chat body it made. */
static void take_asked(struct exchange *x, struct door_request *asked)
{
    x->parsed = true;
    if (!x->door) return;
    buf_fini(&x->body);
    x->body = asked->chat;
    x->body_edited = true;
    buf_init(&asked->chat, 0);
    x->asked = *asked;
}

static void job_done(void *arg, bool cancelled)
{
    struct parse_job *j = arg;
    struct exchange *x = j->x;
    if (x) x->parse = NULL;
    if (cancelled) door_request_fini(&j->asked); /* it was not read */
    if (!cancelled && j->code == OK && x) {
        x->req = j->req;
        take_asked(x, &j->asked);
    } else if (!cancelled && j->code == OK) {
        openai_request_fini(&j->req);
        door_request_fini(&j->asked);
    }
    if (x && (x->parsed || (!cancelled && passes_on(x, &j->error)))) {
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
    j->door = x->door;
    j->asked.history = x->asked.history;
    x->asked.history = (struct buf){0};
    buf_init(&j->text, body.n);
    buf_str(&j->text, body); /* the client may leave, and its bytes with it */
    if (!buf_failed(&j->text) &&
        workers_submit(x->gw->workers, x->gw->loop, run_job, job_done, j) == OK) {
        x->parse = j;
        return STEP_WAIT;
    }
    buf_fini(&j->text);
    door_request_fini(&j->asked);
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
    bool coded = encoding.n && !str_ieq(encoding, STR("identity")),
         json = content_type_is_json(http_req_header(x->r, "content-type"));
    if ((coded || !json) && passes_on(x, NULL)) return STEP_NEXT;
    if (coded) return reply_fault(x, FAULT_ENCODING, ""), STEP_DONE;
    if (!json) return reply_fault(x, FAULT_MEDIA, ""), STEP_DONE;
    if (body.n + x->asked.history.n > LONG_BODY_BYTES) return read_on_worker(x, body);
    struct door_request asked = {.history = x->asked.history};
    x->asked.history = (struct buf){0};
    enum err code = x->door ? door_parse(x->door, body, &asked, &x->req, &e)
                            : openai_parse(&x->req, kind_of(x), body, OPENAI_GATEWAY, &e);
    if (code != OK && passes_on(x, &e)) return STEP_NEXT;
    if (code != OK) return reply_refusal(x, &e), STEP_DONE;
    take_asked(x, &asked);
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

struct str exchange_body(const struct exchange *x)
{
    return x->body_edited ? buf_view(&x->body) : http_req_body(x->r);
}

static enum err edit_body(struct exchange *x, bool alias)
{
    struct body_edit edits[2] = {{.name = "cache"}};
    struct buf model, out;
    size_t n = 1;
    buf_init(&out, x->body.max);
    buf_init(&model, 4096);
    if (alias) {
        json_write_string(&model, x->model);
        edits[n++] = (struct body_edit){.name = "model", .value = buf_view(&model)};
    }
    enum err code = body_edit(&out, exchange_body(x), edits, n);
    buf_fini(&model);
    buf_fini(&x->body);
    x->body = out;
    x->body_edited = code == OK;
    return code;
}

enum step stage_prepare(struct exchange *x)
{
    if (!x->parsed) return STEP_NEXT;
    outcome_reason(&x->out, "");
    x->out.cache = "miss";
    if (!read_controls(x)) return STEP_DONE;
    x->model = route_model(x, gateway_alias(x->gw->o.model_aliases, x->req.model));
    bool alias = !str_eq(x->model, x->req.model);
    /* The name may be spelt with escapes too (\\u0063ache). */
    struct str body = exchange_body(x);
    bool may_hold_cache =
        str_find(body, STR("\"cache\"")) >= 0 || str_find(body, STR("\\u00")) >= 0;
    if ((alias || may_hold_cache) && edit_body(x, alias) != OK)
        return reply_fault(x, FAULT_MEMORY, ""), STEP_DONE;
    return STEP_NEXT;
}
