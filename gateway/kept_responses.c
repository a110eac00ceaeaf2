/* kept_responses.c - see kept_responses.h. */
#include "gateway/kept_responses.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/admin_args.h"
#include "gateway/body_edit.h"
#include "gateway/reply.h"
#include "gateway/series.h"
#include "gateway/store.h"

enum { ID_BYTES = 64, HEX_DIGITS = 32 };
static const char prefix[] = "resp_";

bool kept_responses_here(const struct gateway *gw)
{
    return gw->o.responses_keep && (gw->store || !gw->o.pass_unmapped);
}

/* One of ours: "resp_" and 32 hex digits. */
static bool is_ours(struct str id)
{
    struct hash128 h;
    return id.n == sizeof prefix - 1 + HEX_DIGITS && str_starts(id, str_of(prefix)) &&
           hash_from_hex(str_sub(id, sizeof prefix - 1, id.n), &h) == OK;
}

/* --- keeping */
static void on_kept(void *arg, enum err code, const struct redis_reply *reply)
{
    struct gateway *gw = arg;
    bool kept = code == OK && reply->kind == REDIS_INTEGER && reply->integer;
    if (code == ERR_CANCELLED) return; /* the gateway ends */
    metric_add(gw->series->responses_kept[!kept], 1);
    if (code == OK) gw->responses_refused = reply->kind == REDIS_ERROR;
    if (!kept)
        log_limited(LOG_WARN, "gateway", "a response was not kept: " STR_FMT,
                    STR_ARG(code != OK                   ? str_of(err_text(code))
                            : reply->kind == REDIS_ERROR ? str_sub(reply->text, 0, 160)
                                                         : STR("larger than responses_bytes_max")));
}

/* What was asked in it alone, as an array of items. */
static void write_input(struct buf *out, struct str input)
{
    bool text = input.n && input.p[0] == '"';
    if (text) buf_z(out, "[{\"role\":\"user\",\"content\":");
    buf_str(out, input);
    if (text) buf_z(out, "}]");
}

static void on_made(void *arg, const char *id, const json_t *response)
{
    struct exchange *x = arg;
    struct buf input, text;
    char name[ID_BYTES], ttl[24], most[24];
    struct str asked = str_trim(body_member(http_req_body(x->r), "input"));
    if (!asked.p) return; /* its name was written with escapes */
    buf_init(&input, asked.n + 64);
    buf_init(&text, x->gw->o.answer_bytes_max * 2);
    write_input(&input, asked);
    json_write(&text, response);
    snprintf(name, sizeof name, "%s%s", prefix, id);
    snprintf(ttl, sizeof ttl, "%lld", (long long)x->gw->o.response_ttl_s);
    snprintf(most, sizeof most, "%lld", (long long)x->gw->o.responses_bytes_max);
    struct str args[] = {str_of(name),
                         str_of(x->tenant),
                         json_member_str(x->asked.asked, "previous_response_id"),
                         buf_view(&input),
                         buf_view(&text),
                         str_of(ttl),
                         str_of(most)};
    if (!args[2].p) args[2] = STR("");
    if (!buf_failed(&input) && !buf_failed(&text))
        store_call(x->gw->store, "deja_response_put", 7, args, on_kept, x->gw);
    buf_fini(&input);
    buf_fini(&text);
}

void kept_responses_facts(struct exchange *x, struct door_facts *f)
{
    const struct gateway *gw = x->gw;
    bool wanted = x->route == ROUTE_RESPONSES && gw->store && gw->o.responses_keep && !x->batch &&
                  store_usable(gw->store) && !json_is_false(json_object_get(f->asked, "store"));
    f->made = wanted ? on_made : NULL; /* tried all the same: Redis may take writes again */
    f->kept = wanted && !gw->responses_refused;
    f->made_arg = x;
}

/* --- asking for one */
/* An answer that another gateway told just now may be on its way to Redis: what is not there is asked for again. */
static const int pauses_ms[] = {20, 80};
/* A Redis that is away for a moment (restarted, or slow once) is waited for: without it the request is lost. */
enum { PAUSES = sizeof pauses_ms / sizeof *pauses_ms, REDIS_AWAY_MS = 2000, REDIS_PAUSE_MS = 50 };

struct asking {
    struct store_job job;
    const char *function;
    char id[ID_BYTES + 1], most[24];
    struct loop_timer *timer;
    int pauses;
    uint64_t begun_ms;
    bool changes; /* must not be done twice */
    bool asked;   /* a reply is to come */
    void (*good)(struct exchange *x, const char *id, const struct redis_reply *reply);
};

static void asking_free(struct asking *a)
{
    loop_timer_free(a->timer);
    mem_free(a);
}

static void asking_gone(struct store_job *j)
{
    struct asking *a = (struct asking *)j;
    if (!a->asked) asking_free(a);
}

static bool is_none(enum err code, const struct redis_reply *reply)
{
    return code == OK && reply->kind == REDIS_ARRAY && reply->n_items > 2 &&
           str_eqz(reply->items[0].text, "NO") && str_ends(reply->items[2].text, STR("_not_found"));
}

static bool may_come_back(const struct asking *a, enum err code)
{
    bool again =
        code == ERR_UNAVAILABLE || (!a->changes && (code == ERR_TIMEOUT || code == ERR_CLOSED));
    return again && clock_ms() - a->begun_ms < REDIS_AWAY_MS;
}

static void ask(void *arg);

static void ask_after(struct asking *a, int ms)
{
    if (!a->timer) a->timer = loop_timer_new(a->job.x->gw->loop, ask, a);
    loop_timer_arm(a->timer, (uint64_t)ms);
}

static void on_asked(void *arg, enum err code, const struct redis_reply *reply)
{
    struct asking *a = arg;
    struct exchange *x = a->job.x;
    a->asked = false;
    if (x && may_come_back(a, code)) {
        ask_after(a, REDIS_PAUSE_MS);
        return;
    }
    if (x && is_none(code, reply) && a->pauses < PAUSES) {
        ask_after(a, pauses_ms[a->pauses++]);
        return;
    }
    if (x) x->store_job = NULL;
    if (x && !store_reply_good(x, code, reply))
        pipeline_finish(x);
    else if (x)
        a->good(x, a->id, reply);
    asking_free(a);
}

static void ask(void *arg)
{
    struct asking *a = arg;
    struct exchange *x = a->job.x;
    struct str args[] = {str_of(a->id), str_of(x->tenant), str_of(a->most)};
    a->asked = true;
    store_call(x->gw->store, a->function, 3, args, on_asked, a);
}

static enum step begin_asking(struct exchange *x, const char *function, bool changes, struct str id,
                              void (*good)(struct exchange *x, const char *id,
                                           const struct redis_reply *reply))
{
    struct asking *a = xcalloc(1, sizeof *a);
    *a = (struct asking){.job = {.x = x, .gone = asking_gone},
                         .function = function,
                         .changes = changes,
                         .begun_ms = clock_ms(),
                         .good = good};
    str_copy(a->id, sizeof a->id, id);
    snprintf(a->most, sizeof a->most, "%zu", x->gw->o.body_bytes_max);
    x->store_job = &a->job;
    ask(a);
    return STEP_WAIT;
}

/* --- going on from one */
/* Items of an array that is JSON text. */
static void add_items(struct buf *out, struct str array)
{
    array = str_trim(array);
    struct str items =
        array.n > 2 && array.p[0] == '[' ? str_trim(str_sub(array, 1, array.n - 2)) : STR("");
    if (!items.n) return;
    if (out->n > 1) buf_char(out, ',');
    buf_str(out, items);
}

/* Nobody waits for it: a Redis that takes no writes can be read all the same. */
static void on_renewed(void *arg, enum err code, const struct redis_reply *reply)
{
    (void)arg;
    if (code == OK && reply->kind == REDIS_ERROR)
        log_limited(LOG_WARN, "gateway",
                    "kept responses that were gone on from are not kept for longer: " STR_FMT,
                    STR_ARG(str_sub(reply->text, 0, 160)));
}

static void renew(const struct exchange *x, const char *id)
{
    char ttl[24];
    snprintf(ttl, sizeof ttl, "%lld", (long long)x->gw->o.response_ttl_s);
    struct str args[] = {str_of(id), str_of(x->tenant), str_of(ttl)};
    store_call(x->gw->store, "deja_response_renew", 3, args, on_renewed, NULL);
}

static void go_on(struct exchange *x, const char *id, const struct redis_reply *reply)
{
    struct buf *out = &x->asked.history;
    buf_init(out, x->gw->o.body_bytes_max * 2);
    buf_char(out, '[');
    for (size_t i = 0; i + 1 < reply->n_items; i += 2) {
        add_items(out, reply->items[i].text);
        add_items(out, body_member(reply->items[i + 1].text, "output"));
    }
    buf_char(out, ']');
    if (!buf_failed(out)) {
        renew(x, id);
        pipeline_resume(x);
        return;
    }
    reply_fault(x, FAULT_MEMORY, "");
    pipeline_finish(x);
}

static enum step refuse(struct exchange *x, int status, const char *code, const char *message)
{
    reply_problem(x, status, code, status == 400 ? "previous_response_id" : "", message);
    return STEP_DONE;
}

/* An id of plain characters, as a JSON string; empty otherwise. */
static struct str plain_id(struct str value)
{
    value = str_trim(value);
    struct str id = value.n > 2 && value.p[0] == '"' ? str_sub(value, 1, value.n - 2) : STR("");
    return store_id_ok(id) ? id : STR("");
}

enum step stage_previous(struct exchange *x)
{
    struct gateway *gw = x->gw;
    struct str body = http_req_body(x->r);
    if (str_find(body, STR("\"previous_response_id\"")) < 0) return STEP_NEXT;
    struct str value = body_member(body, "previous_response_id"), id = plain_id(value);
    if (!id.n && (!value.p || str_trim(value).p[0] != '"'))
        return STEP_NEXT; /* null, or a refusal */
    if (gw->o.pass_unmapped && (!is_ours(id) || !kept_responses_here(gw) || !gw->store))
        return STEP_NEXT; /* the upstream's */
    if (!gw->store || !gw->o.responses_keep)
        return refuse(x, 400, "unsupported_parameter",
                      "previous_response_id: answers are not kept here (this needs --redis, and "
                      "--responses-keep yes): send the whole conversation in input");
    if (!is_ours(id))
        return refuse(x, 400, "previous_response_not_found",
                      "previous_response_id: there is no such response: expected the id of an "
                      "answer that was kept here, resp_ and 32 hexadecimal digits");
    return begin_asking(x, "deja_response_chain", false, id, go_on);
}

/* --- GET, DELETE /v1/responses/{id} */
static void tell(struct exchange *x, const char *id, const struct redis_reply *reply)
{
    (void)id;
    reply_body(x, 200, "application/json", reply->text);
    pipeline_finish(x);
}

/* It asks for the answer as events. */
static bool wants_stream(const struct exchange *x)
{
    json_t *q = admin_query(http_req_query(x->r));
    struct str v = json_member_str(q, "stream");
    bool yes = v.n && !str_eqz(v, "false");
    json_decref(q);
    return yes;
}

enum step kept_responses_start(struct exchange *x)
{
    struct gateway *gw = x->gw;
    struct str method = http_req_method(x->r),
               id =
                   str_sub(http_req_path(x->r), sizeof "/v1/responses/" - 1, http_req_path(x->r).n);
    bool get = str_eqz(method, "GET"), delete = str_eqz(method, "DELETE");
    if (gw->o.pass_unmapped && !is_ours(id)) {
        x->route = ROUTE_PROXY;
        return proxy_start(x);
    }
    if (!gw->store)
        return refuse(x, 503, "no_redis",
                      "answers are kept in Redis, and this gateway runs without it: start it with "
                      "--redis, or with --responses-keep no to leave them to the upstream");
    if (!store_id_ok(id)) return reply_fault(x, FAULT_NOT_FOUND, ""), STEP_DONE;
    if (!get && !delete) return store_refuse_method(x, "GET, DELETE");
    if (get && wants_stream(x)) {
        reply_problem(x, 400, "unsupported_parameter", "stream",
                      "stream: a kept answer is read whole here: leave stream out");
        return STEP_DONE;
    }
    return begin_asking(x, get ? "deja_response_get" : "deja_response_delete", !get, id, tell);
}
