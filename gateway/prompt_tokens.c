/* prompt_tokens.c - see prompt_tokens.h. A worker works on a copy of the request (a new reference to its document would not do: the
 * library's counts are not for two threads). */
#include "gateway/prompt_tokens.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/router.h"

/* Tokenising runs at some 10 MB a second: about a millisecond and a half. */
enum { SHORT_BODY_BYTES = 16 * 1024 };

struct prompt_job {
    struct exchange *x; /* NULL: the client has left */
    struct prompt_reader *reader;
    struct buf body;
    enum openai_kind kind;
    int64_t now_s;
    struct prompt_tokens *out; /* NULL: it cannot be read */
};

void prompt_tokens_free(struct prompt_tokens *p)
{
    if (!p) return;
    prompt_reader_unref(p->reader);
    token_list_fini(&p->list);
    mem_free(p);
}

static struct prompt_tokens *read_prompt(struct prompt_reader *r, const struct openai_request *q,
                                         int64_t now_s)
{
    struct prompt_tokens *p = xcalloc(1, sizeof *p);
    struct errmsg e = {0};
    p->reader = prompt_reader_ref(r);
    token_list_init(&p->list, PROMPT_TOKENS_MAX);
    if (prompt_reader_read(r, q, now_s, &p->list, &e) == OK && !p->list.failed) return p;
    log_debug("gateway", "a prompt is not read as tokens: %s", e.text);
    prompt_tokens_free(p);
    return NULL;
}

static void run_job(void *arg)
{
    struct prompt_job *j = arg;
    struct openai_request q;
    struct openai_error e;
    if (openai_parse(&q, j->kind, buf_view(&j->body), OPENAI_GATEWAY, &e) != OK) return;
    j->out = read_prompt(j->reader, &q, j->now_s);
    openai_request_fini(&q);
}

static void job_done(void *arg, bool cancelled)
{
    struct prompt_job *j = arg;
    struct exchange *x = j->x;
    (void)cancelled;
    if (x) {
        x->prompt_job = NULL;
        x->prompt = j->out;
    } else {
        prompt_tokens_free(j->out);
    }
    prompt_reader_unref(j->reader);
    buf_fini(&j->body);
    mem_free(j);
    if (x) pipeline_resume(x);
}

static enum step read_on_worker(struct exchange *x, struct prompt_reader *r, struct str body)
{
    struct prompt_job *j = xcalloc(1, sizeof *j);
    *j = (struct prompt_job){
        .x = x, .reader = prompt_reader_ref(r), .kind = x->req.kind, .now_s = clock_wall_s()};
    buf_init(&j->body, body.n);
    buf_str(&j->body, body);
    if (!buf_failed(&j->body) &&
        workers_submit(x->gw->workers, x->gw->loop, run_job, job_done, j) == OK) {
        x->prompt_job = j;
        return STEP_WAIT;
    }
    prompt_reader_unref(j->reader); /* busy: it goes where there is the least load */
    buf_fini(&j->body);
    mem_free(j);
    return STEP_NEXT;
}

enum step stage_prompt(struct exchange *x)
{
    bool asked = x->route == ROUTE_COUNT_TOKENS || router_chooses(x->gw->router, x);
    return asked ? prompt_read(x) : STEP_NEXT;
}

enum step prompt_read(struct exchange *x)
{
    struct prompt_reader *r = router_reader(x->gw->router, x->model);
    struct str body = exchange_body(x);
    if (!r || x->prompt) return STEP_NEXT;
    if (body.n > SHORT_BODY_BYTES) return read_on_worker(x, r, body);
    x->prompt = read_prompt(r, &x->req, clock_wall_s());
    return STEP_NEXT;
}

void prompt_abandon(struct exchange *x)
{
    if (!x->prompt_job) return;
    x->prompt_job->x = NULL;
    x->prompt_job = NULL;
}
