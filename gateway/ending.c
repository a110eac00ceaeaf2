/* ending.c - see ending.h. */
#include "gateway/ending.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/models_list.h"
#include "gateway/reply.h"
#include "gateway/ticket.h"

enum { STATUS_LEAST = 400 };

void ending_of_fault(struct ending *out, enum fault f, const char *detail, uint64_t retry_ms)
{
    out->kind = ENDING_ERROR;
    out->degrades = fault_degrades(f);
    out->no_model = f == FAULT_NO_MODEL;
    out->retry_ms = retry_ms;
    fault_error(&out->error, f, detail);
}

void ending_of_error(struct ending *out, const struct openai_error *e, int status)
{
    out->kind = ENDING_ERROR;
    out->degrades = status ? retry_of_status(status).degrades : true;
    out->no_model = false;
    out->error = *e;
    out->retry_ms = 0;
}

void ending_of_reply(struct ending *out, struct ticket *t)
{
    out->kind = ENDING_REPLY;
    out->degrades = retry_of_status(t->status).degrades;
    out->status = t->status;
    out->headers = t->headers;
    out->body = t->body;
    headers_init(&t->headers);
    buf_init(&t->body, t->gw->o.answer_bytes_max);
}

void ending_fini(struct ending *e)
{
    if (e->kind == ENDING_REPLY) {
        headers_fini(&e->headers);
        buf_fini(&e->body);
    }
    e->kind = ENDING_NONE;
}

/* Whole or not at all: a part of a code would be another one. */
static void copy_word(char *to, size_t cap, struct str word)
{
    if (word.n && word.n < cap && !memchr(word.p, 0, word.n)) str_copy(to, cap, word);
}

bool ending_read_error(const json_t *doc, int status, struct openai_error *e)
{
    const json_t *error = json_object_get(doc, "error"),
                 *code = json_object_get(error ? error : doc, "code");
    struct str message =
        json_is_string(error) ? json_str(error) : json_member_str(error ? error : doc, "message");
    struct str type = json_member_str(error ? error : doc, "type");
    int64_t told = json_is_integer(code) ? json_integer_value(code) : 0;
    bool usable = told >= STATUS_LEAST && told <= 599;
    openai_error_set(e, usable ? (int)told : status, "upstream_error", "", "", STR_FMT,
                     STR_ARG(message.n ? message : STR("the upstream reported an error")));
    if (type.n) snprintf(e->type, sizeof e->type, STR_FMT, STR_ARG(type));
    copy_word(e->code, sizeof e->code, json_str(code)); /* what programs go by */
    copy_word(e->param, sizeof e->param, json_member_str(error ? error : doc, "param"));
    return usable;
}

/* True: the body has the API's form, {"error":{"message":...}}, and can go as it is. Else what it says is taken out of the other
 * forms in use: {"error":"..."}, {"message":"..."}, {"detail":"..."}, {"detail":[{"msg":"..."}]}. */
static bool error_words(const json_t *doc, char *words, size_t cap)
{
    const json_t *error = json_object_get(doc, "error"), *detail = json_object_get(doc, "detail");
    if (json_member_str(error, "message").p) return true;
    struct str said = json_is_string(error)               ? json_str(error)
                      : json_member_str(doc, "message").p ? json_member_str(doc, "message")
                      : json_is_string(detail)            ? json_str(detail)
                                               : json_member_str(json_array_get(detail, 0), "msg");
    said = str_sub(said, 0, cap - 1);
    said = str_sub(said, 0, utf8_complete(said));
    if (said.n) memcpy(words, said.p, said.n);
    words[said.n] = 0;
    return false;
}

/* To every rider, or to the lines of batches alone. */
static void tell_reply(const struct ending *en, struct ticket *t, bool lines_only)
{
    struct str type = headers_find(&en->headers, "content-type"), body = buf_view(&en->body);
    char detail[320], words[256] = "";
    json_t *doc = NULL;
    bool json = content_type_is_json(type) && type.n && json_parse(body, 0, &doc, NULL) == OK &&
                error_words(doc, words, sizeof words);
    struct openai_error e = {0}, own;
    snprintf(detail, sizeof detail, "status %d%s%s", en->status, words[0] ? ", " : "", words);
    fault_error(&e, FAULT_STATUS, detail);
    if (en->status >= STATUS_LEAST && en->status <= 599) e.status = en->status;
    own = e; /* for clients of another form */
    if (json) (void)ending_read_error(doc, e.status, &own);
    own.status = e.status;
    json_decref(doc);
    struct buf text;
    buf_init(&text, 4096);
    openai_error_write(
        &text, &e); /* a page for people is no answer to a program: its words are not passed on */
    for (struct exchange *x = t->riders, *next; x; x = next) {
        next = x->rider_next;
        if (lines_only && !x->batch) continue;
        bool leads = strcmp(x->out.cache, "coalesced") !=
                     0; /* only the leader gets headers that may be personal */
        struct str retry = headers_find(&en->headers, "retry-after");
        if ((!leads || x->door) && retry.p) http_set_header(x->r, "Retry-After", retry);
        if (x->door)
            reply_refusal(x, &own);
        else
            reply_upstream(x, e.status, STR("application/json"), leads ? &en->headers : NULL,
                           json ? body : buf_view(&text));
        ticket_off(t, x);
    }
    buf_fini(&text);
}

static void tell_error(const struct ending *en, struct ticket *t, bool lines_only)
{
    for (struct exchange *x = t->riders, *next; x; x = next) {
        next = x->rider_next;
        if (lines_only && !x->batch) continue;
        if (en->retry_ms)
            http_set_headerf(x->r, "Retry-After", "%llu",
                             (unsigned long long)((en->retry_ms + 999) / 1000));
        struct openai_error error = en->error;
        if (en->no_model) models_missing(&error, x->gw, x->req.model, x->model);
        reply_refusal(x, &error);
        ticket_off(t, x);
    }
}

static bool any_line(const struct ticket *t)
{
    const struct exchange *x = t->riders;
    while (x && !x->batch)
        x = x->rider_next;
    return x != NULL;
}

void ending_tell_lines(const struct ending *e, struct ticket *t)
{
    if (any_line(t)) (e->kind == ENDING_REPLY ? tell_reply : tell_error)(e, t, true);
}

void ending_tell(struct ending *e, struct ticket *t)
{
    ticket_unlist(t);
    t->ended = true;
    t->ended_us = clock_us();
    (e->kind == ENDING_REPLY ? tell_reply : tell_error)(e, t, false);
    ending_fini(e);
}
