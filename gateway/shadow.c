/* shadow.c - see shadow.h. A sample goes through: the model's answer (aside), then the judge, or the two vectors, then the end. */
#include "gateway/shadow.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "embeddings/embedder.h"
#include "gateway/shadow_compare.h"
#include "gateway/aside.h"
#include "gateway/body_edit.h"
#include "gateway/counting.h"
#include "gateway/exchange.h"
#include "gateway/judge.h"
#include "gateway/pipeline.h"
#include "gateway/relay.h"

enum {
    CALL_TIMEOUT_MS = 120000,
    EMBED_DEADLINE_MS = 10000,
    TEXT_BYTES_MAX = 8192,
    VECTOR_TEXT_BYTES = 1200, /* of an answer: within the window of small encoders */
    BODY_BYTES_MAX = 1 << 20
};

struct shadows {
    struct gateway *gw;
    struct guard *guard;
    struct shadow_scale scale;
    struct sample *samples;
    int n_samples;
    bool closed;
    struct metric *right, *wrong, *unknown, *failed, *dropped;
};

struct vector {
    struct sample *owner;
    enum err code;
    float *at;
    size_t dim;
};
struct sample {
    struct shadows *s;
    struct sample *next, *prev;
    struct aside *aside;
    char ns[65], arm[82], entry[37], language;
    struct hash128 exact;
    char *model, *stored, *fresh;
    bool judge;
    struct vector vectors[2];
    int waits; /* for vectors */
};

static void let_go(struct shadows *s)
{
    if (!s->closed || s->n_samples) return;
    guard_free(s->guard);
    mem_free(s);
}

static void end(struct sample *a)
{
    struct shadows *s = a->s;
    if (a->prev)
        a->prev->next = a->next;
    else
        s->samples = a->next;
    if (a->next) a->next->prev = a->prev;
    s->n_samples--;
    for (int i = 0; i < 2; i++)
        mem_free(a->vectors[i].at);
    mem_free(a->model);
    mem_free(a->stored);
    mem_free(a->fresh);
    mem_free(a);
    let_go(s);
}

static void settle(struct sample *a, enum shadow_verdict v)
{
    struct shadows *s = a->s;
    if (!s->closed) {
        counting_add(s->gw->counting, a->ns, a->arm, TALLY_SHADOWED, 1);
        metric_add(v == SHADOW_SAME ? s->right : v == SHADOW_DIFFERS ? s->wrong : s->unknown, 1);
        log_info("gateway", "shadow entry=%s arm=%s answers=%s", a->entry, a->arm[0] ? a->arm : "-",
                 v == SHADOW_SAME      ? "same"
                 : v == SHADOW_DIFFERS ? "differ"
                                       : "unclear");
    }
    if (!s->closed && v != SHADOW_UNCLEAR) {
        counting_add(s->gw->counting, a->ns, a->arm, TALLY_CHECKED, 1);
        if (v == SHADOW_DIFFERS) counting_add(s->gw->counting, a->ns, a->arm, TALLY_WRONG, 1);
        struct cache_key k = {.exact = a->exact, .ns = str_of(a->ns)};
        if (cache_evidence_add(s->gw->cache, &k, str_of(a->entry), v == SHADOW_SAME, "shadow") !=
            OK)
            log_debug("gateway", "a shadow sample came too late to be learnt from");
    }
    end(a);
}

/* --- by vectors */
static void compare(struct sample *a)
{
    double sum = -1;
    if (a->vectors[0].code == OK && a->vectors[1].code == OK) {
        sum = 0;
        for (size_t i = 0; i < a->vectors[0].dim; i++)
            sum += (double)a->vectors[0].at[i] * (double)a->vectors[1].at[i];
    }
    settle(a, shadow_compare(a->s->guard, &a->s->scale, str_of(a->stored), str_of(a->fresh), sum));
}

static void on_vector(void *arg) /* on the loop */
{
    struct vector *v = arg;
    struct sample *a = v->owner;
    if (!--a->waits) compare(a);
}

static void got_vector(void *arg, enum err code, const float *vector, size_t dim,
                       bool more) /* anywhere */
{
    (void)more;
    struct vector *v = arg;
    v->code = code;
    if (code == OK) {
        v->at = xmalloc(dim * sizeof *vector);
        v->dim = dim;
        memcpy(v->at, vector, dim * sizeof *vector);
    }
    if (loop_post_unbounded(v->owner->s->gw->loop, on_vector, v) != OK) /* SHADOWS_MAX */
        log_limited(LOG_ERROR, "gateway", "a shadow sample came after the end of the loop");
}

static void embed(struct sample *a)
{
    const char *texts[2] = {a->stored, a->fresh};
    struct embedder *em = a->s->gw->embedder;
    a->waits = 1; /* held while both are submitted */
    for (int i = 0; i < 2; i++) {
        struct str t = str_sub(str_of(texts[i]), 0, VECTOR_TEXT_BYTES);
        a->vectors[i].owner = a;
        a->vectors[i].code = ERR_UNAVAILABLE;
        t = str_sub(t, 0, utf8_complete(t));
        if (em && embedder_submit(em, t, EMBED_DEADLINE_MS, got_vector, &a->vectors[i]) == OK)
            a->waits++;
    }
    if (!--a->waits) compare(a);
}

/* --- by the judge */
static void on_judged(void *arg, double yes)
{
    struct sample *a = arg;
    if (yes < 0 && !a->s->closed)
        embed(a);
    else
        settle(a, yes < 0 ? SHADOW_UNCLEAR : yes >= 0.5 ? SHADOW_SAME : SHADOW_DIFFERS);
}

/* --- the model's answer */
static char *text_of(const struct openai_answer *answer)
{
    struct str s = answer->n_choices == 1 ? json_member_str(answer->choices[0].message, "content")
                                          : (struct str){0};
    bool plain = s.n && s.n <= TEXT_BYTES_MAX && !memchr(s.p, 0, s.n) &&
                 !json_object_get(answer->choices[0].message, "tool_calls");
    return plain ? xstrndup(s.p, s.n) : NULL;
}

static void on_answer(void *arg, enum err code, int status, struct str body)
{
    struct sample *a = arg;
    struct shadows *s = a->s;
    struct openai_answer answer;
    struct errmsg e = {0};
    a->aside = NULL;
    if (code == OK && status == 200 && !s->closed &&
        openai_answer_parse(&answer, OPENAI_CHAT, body, &e) == OK) {
        a->fresh = text_of(&answer);
        openai_answer_fini(&answer);
    }
    if (!a->fresh) {
        if (!s->closed) metric_add(s->failed, 1);
        end(a);
        return;
    }
    if (a->judge && strcmp(a->stored, a->fresh) != 0 &&
        judge_compare(s->gw->judge, str_of(a->model), a->language, str_of(a->stored),
                      str_of(a->fresh), on_judged, a) == OK)
        return;
    embed(a);
}

/* The request as it would have gone upstream, but not as a stream. */
static bool write_body(const struct exchange *x, struct buf *out)
{
    struct str body = exchange_body(x);
    struct body_edit edits[] = {{.name = "stream"}, {.name = "stream_options"}};
    if (body.n > BODY_BYTES_MAX) return false;
    if (!x->req.stream)
        buf_str(out, body);
    else if (body_edit(out, body, edits, 2) != OK)
        return false;
    return !buf_failed(out);
}

static void start(struct shadows *s, struct exchange *x, const struct cache_found *f, char *stored)
{
    struct sample *a = xcalloc(1, sizeof *a);
    struct buf body;
    char salt[33];
    buf_init(&body, BODY_BYTES_MAX + 4096);
    *a = (struct sample){.s = s,
                         .next = s->samples,
                         .language = guard_language(x->key.user_text),
                         .exact = x->key.exact,
                         .model = xstrndup(x->model.p, x->model.n),
                         .stored = stored,
                         .judge = x->knobs.judge};
    snprintf(a->ns, sizeof a->ns, "%s", x->controls.ns);
    snprintf(a->arm, sizeof a->arm, "%s", x->arm);
    snprintf(a->entry, sizeof a->entry, "%s", f->entry_id);
    if (s->samples) s->samples->prev = a;
    s->samples = a;
    s->n_samples++;
    if (!write_body(x, &body)) {
        metric_add(s->dropped, 1);
        end(a);
    } else {
        relay_salt(x, salt);
        struct aside_request r = {.path = STR("/v1/chat/completions"),
                                  .model = x->model,
                                  .body = buf_view(&body),
                                  .authorization = http_req_header(x->r, "authorization"),
                                  .salt = str_of(salt),
                                  .timeout_ms = CALL_TIMEOUT_MS};
        a->aside = aside_start(s->gw, &r, on_answer, a);
    }
    buf_fini(&body);
}

void shadow_offer(struct shadows *s, struct exchange *x, const struct cache_found *f)
{
    if (x->knobs.shadow_percent <= 0 || x->req.kind != OPENAI_CHAT || s->closed) return;
    if (rng_f64(&s->gw->rng) * 100 >= x->knobs.shadow_percent) return;
    char *stored = s->n_samples < SHADOWS_MAX ? text_of(f->answer) : NULL;
    if (stored)
        start(s, x, f, stored);
    else
        metric_add(s->dropped, 1);
}

struct shadows *shadows_open(struct gateway *gw)
{
    static const char name[] = "deja_shadows_total",
                      help[] = "semantic hits the model answered too, by how the answers compare";
    struct metrics *m = gw->metrics;
    struct shadows *s = xcalloc(1, sizeof *s);
    s->gw = gw;
    s->guard = guard_new();
    s->scale = shadow_scale_for(gw->embedder ? str_of(embedder_id(gw->embedder)) : STR(""));
    s->right = metrics_get(m, METRIC_COUNTER, name, "answers=\"same\"", help, 0, 0);
    s->wrong = metrics_get(m, METRIC_COUNTER, name, "answers=\"differ\"", help, 0, 0);
    s->unknown = metrics_get(m, METRIC_COUNTER, name, "answers=\"unclear\"", help, 0, 0);
    s->failed = metrics_get(m, METRIC_COUNTER, name, "answers=\"none\"", help, 0, 0);
    s->dropped = metrics_get(m, METRIC_COUNTER, "deja_shadows_dropped_total", "",
                             "samples left out: too many under way, or no plain text", 0, 0);
    return s;
}

void shadows_close(struct shadows *s)
{
    if (!s) return;
    s->closed = true;
    s->n_samples++; /* held */
    for (struct sample *a = s->samples, *next; a; a = next) {
        next = a->next;
        aside_cancel(a->aside); /* its end frees, no later than the client is closed */
    }
    s->n_samples--;
    let_go(s);
}
