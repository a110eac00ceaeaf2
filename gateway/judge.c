/* judge.c - see judge.h. */
#include "gateway/judge.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cache/guard.h"
#include "gateway/aside.h"
#include "gateway/exchange.h"
#include "gateway/judge_table.h"
#include "gateway/tuning.h"

enum {
    JOBS_MAX = 256,
    ASKED_MAX = 4096, /* pairs remembered; power of two */
    TEXT_BYTES_MAX = 1024,
    ANSWER_BYTES_MAX = 8192,
    TICK_MS = 100,
    BURST = 10, /* questions at once after a quiet time */
    CALL_TIMEOUT_MS = 30000,
    REST_MS = 5000, /* after failures in a row */
    FAILURES_MAX = 3,
    SEND_TIMEOUT_MS = 2000,
    BODY_BYTES_MAX = 64 * 1024,
    COMPARED = 3 /* so many of the nearest are asked about before one is approved */
};

struct pair { /* one stored question a request came near to */
    char entry[37], reason[64];
    char *stored;
    double score, threshold, verifier;
    double yes; /* what the judge said; 0 before */
};
struct job {
    struct job *next;
    char ns[65], hash[33], language;
    char *model, *text;
    struct pair pairs[CACHE_NEAR_MAX];
    int n_pairs, at;
    struct pair *best; /* of those the judge would approve; not told of yet */
    struct cache_knobs knobs;
    /* comparing two answers instead: */
    char *other;
    void (*done)(void *arg, double yes);
    void *arg;
};

struct judge {
    struct gateway *gw;
    struct http_origin origin;
    bool own_origin, has_tables;
    struct judge_tables tables; /* the operator's own */
    struct loop_timer *timer;
    struct job *first, *last, *now; /* now: being asked */
    int n_jobs;
    struct aside *aside;
    double allowance; /* questions that may be asked now */
    uint64_t counted_ms, rest_until_ms;
    int failures;
    uint64_t asked[ASKED_MAX];
    int waiting; /* replies of Redis to come */
    bool closed;
    struct metric *yes, *no, *unsure, *failed, *dropped;
};

/* Where it is remembered that a pair was asked about. */
static uint64_t *slot_of(struct judge *j, const char *hash, const char *entry, uint64_t *pair)
{
    struct hasher h;
    hasher_open(&h, 0);
    hasher_field(&h, 'r', str_of(hash));
    hasher_field(&h, 'e', str_of(entry));
    *pair = hasher_close(&h).lo | 1;
    return &j->asked[*pair >> 1 & (ASKED_MAX - 1)];
}

static void ask_again(struct judge *j, const struct job *b)
{
    uint64_t pair;
    for (int i = 0; i < b->n_pairs; i++)
        if (i >= b->at || &b->pairs[i] == b->best)
            *slot_of(j, b->hash, b->pairs[i].entry, &pair) = 0;
}

static void free_job(struct job *b)
{
    for (int i = 0; i < b->n_pairs; i++)
        mem_free(b->pairs[i].stored);
    mem_free(b->model);
    mem_free(b->text);
    mem_free(b->other);
    mem_free(b);
}

static void let_go(struct judge *j)
{
    if (j->closed && !j->waiting && !j->aside) mem_free(j);
}

static void end_job(struct judge *j, double yes)
{
    struct job *b = j->now;
    j->now = NULL;
    if (b->done) b->done(b->arg, yes);
    free_job(b);
}

static void put_last(struct judge *j, struct job *b)
{
    b->next = NULL;
    if (j->last)
        j->last->next = b;
    else
        j->first = b;
    j->last = b;
    j->n_jobs++;
}

/* --- telling Redis */
static void on_told(void *arg, enum err code, const struct redis_reply *reply)
{
    struct judge *j = arg;
    j->waiting--;
    if (code == OK && reply->kind == REDIS_ERROR)
        log_limited(LOG_WARN, "gateway", "a judged pair was not taken by Redis: " STR_FMT,
                    STR_ARG(str_sub(reply->text, 0, 160)));
    else if (code != OK && code != ERR_CANCELLED)
        log_limited(LOG_WARN, "gateway", "a judged pair did not reach Redis: %s", err_text(code));
    let_go(j);
}

static struct str model_of(const struct judge *j, const struct job *b)
{
    const char *own = j->gw->o.judge_model;
    return str_of(own[0] ? own : b->model);
}

static void tell(struct judge *j, const struct job *b, const struct pair *p, const char *verdict)
{
    char key[96], max[24], score[24], threshold[24], probability[24];
    struct hash128 request;
    if (verdict[0] != 'u' && hash_from_hex(str_of(b->hash), &request) == OK) {
        struct cache_key k = {.exact = request, .ns = str_of(b->ns)};
        if (cache_evidence_add(j->gw->cache, &k, str_of(p->entry), verdict[0] == 'a', "judge") !=
            OK)
            log_debug("gateway", "a judged pair is not what the look-up decided on");
    }
    metric_add(verdict[0] == 'a' ? j->yes : verdict[0] == 'v' ? j->no : j->unsure, 1);
    snprintf(max, sizeof max, "%lld", (long long)b->knobs.near_misses);
    snprintf(score, sizeof score, "%.6g", p->score);
    snprintf(threshold, sizeof threshold, "%.6g", p->threshold);
    snprintf(probability, sizeof probability, "%.6g", p->yes);
    struct str argv[] = {STR("FCALL"),      STR("deja_judged"),
                         STR("1"),          tuning_key(j->gw, key),
                         str_of(b->ns),     str_of(max),
                         str_of(p->entry),  str_of(b->hash),
                         str_of(b->text),   b->knobs.near_miss_text ? STR("1") : STR("0"),
                         str_of(score),     str_of(threshold),
                         str_of(p->reason), str_of(probability),
                         str_of(verdict),   model_of(j, b)};
    j->waiting++;
    redis_command(j->gw->redis, sizeof argv / sizeof *argv, argv, SEND_TIMEOUT_MS, on_told, j);
}

/* --- asking */
static void next(struct judge *j);

static void failed(struct judge *j, const char *why)
{
    metric_add(j->failed, 1);
    log_limited(LOG_WARN, "gateway", "the judge could not be asked: %s", why);
    if (++j->failures >= FAILURES_MAX) {
        j->failures = 0;
        j->rest_until_ms = clock_ms() + REST_MS;
    }
    ask_again(j, j->now);
    end_job(j, -1);
}

/* One question is answered by one entry: of those that would do the likeliest is taken, and the others wait for a person. */
static void weigh(struct judge *j, struct job *b, struct pair *p)
{
    struct pair *other = p;
    if (p->yes < b->knobs.judge_yes) {
        tell(j, b, p, p->yes <= b->knobs.judge_no ? "veto" : "unsure");
        return;
    }
    if (!b->best || p->yes > b->best->yes) {
        other = b->best;
        b->best = p;
    }
    if (other) tell(j, b, other, "unsure");
}

static void take_verdict(struct judge *j, double raw)
{
    struct job *b = j->now;
    struct judge_tables own = judge_tables_for(model_of(j, b));
    double yes = judge_calibrated_beside(j->has_tables ? &j->tables : &own, b->language, raw,
                                         b->done ? -1 : b->pairs[b->at].verifier);
    j->failures = 0;
    if (b->done) {
        end_job(j, yes);
        return;
    }
    b->pairs[b->at].yes = yes;
    weigh(j, b, &b->pairs[b->at++]);
    if (b->at == b->n_pairs || (b->best && b->at >= COMPARED)) {
        if (b->best) tell(j, b, b->best, "approve");
        end_job(j, yes);
    } else if (j->first && j->n_jobs < JOBS_MAX) {
        put_last(j, b),
            j->now = NULL; /* the next near one, when the others' nearest have been asked about */
    }
}

static void on_answer(void *arg, enum err code, int status, struct str body)
{
    struct judge *j = arg;
    json_t *doc = NULL;
    struct errmsg e = {0};
    char why[300];
    double yes = 0;
    j->aside = NULL;
    if (j->closed) {
        end_job(j, -1);
        let_go(j);
        return;
    }
    if (code == OK && status == 200) {
        code = json_parse(body, 0, &doc, &e);
        if (code == OK) code = judge_prompt_read(doc, &yes, &e);
        json_decref(doc);
        if (code == OK)
            take_verdict(j, yes);
        else
            failed(j, e.text);
        next(j);
        return;
    }
    snprintf(why, sizeof why, "%s, status %d: " STR_FMT, err_text(code), status,
             STR_ARG(str_sub(body, 0, 160)));
    failed(j, why);
}

static void ask(struct judge *j)
{
    struct job *b = j->now;
    struct buf body, stored, asked; /* in the characters that models know best */
    buf_init(&body, BODY_BYTES_MAX);
    buf_init(&stored, BODY_BYTES_MAX);
    buf_init(&asked, BODY_BYTES_MAX);
    cache_simplify(j->gw->cache, str_of(b->other ? b->other : b->pairs[b->at].stored), &stored);
    cache_simplify(j->gw->cache, str_of(b->text), &asked);
    judge_prompt_write(&body, b->other ? JUDGE_ANSWERS : JUDGE_QUESTIONS, b->language,
                       model_of(j, b), buf_view(&stored), buf_view(&asked));
    buf_fini(&stored);
    buf_fini(&asked);
    if (buf_failed(&body)) {
        failed(j, "the two texts are too long");
    } else {
        struct aside_request r = {.origin = j->own_origin ? &j->origin : NULL,
                                  .key = str_of(j->gw->o.judge_key),
                                  .path = STR("/v1/chat/completions"),
                                  .model = model_of(j, b),
                                  .body = buf_view(&body),
                                  .timeout_ms = CALL_TIMEOUT_MS};
        if (j->own_origin && j->origin.base_path[0]) r.path = STR("/chat/completions");
        j->aside = aside_start(j->gw, &r, on_answer, j);
    }
    buf_fini(&body);
}

static void next(struct judge *j)
{
    uint64_t now = clock_ms();
    struct job *b = j->now ? j->now : j->first;
    if (j->aside || !b || now < j->rest_until_ms) return;
    j->allowance += (double)b->knobs.judge_per_min / 60000 * (double)(now - j->counted_ms);
    j->counted_ms = now;
    double most = b->knobs.judge_per_min < BURST ? (double)b->knobs.judge_per_min : BURST;
    if (j->allowance > most) j->allowance = most;
    if (j->allowance < 1) return;
    j->allowance -= 1;
    if (!j->now) {
        j->now = b;
        j->first = b->next;
        if (!j->first) j->last = NULL;
        j->n_jobs--;
    }
    ask(j);
}

static void on_timer(void *arg)
{
    struct judge *j = arg;
    loop_timer_arm(j->timer, TICK_MS);
    next(j);
}

/* --- queueing */
static bool enqueue(struct judge *j, struct job *b)
{
    if (j->n_jobs >= JOBS_MAX || j->closed) {
        metric_add(j->dropped, 1);
        ask_again(j, b);
        free_job(b);
        return false;
    }
    put_last(j, b);
    return true;
}

static bool is_for_judging(const struct judge *j, const struct exchange *x,
                           const struct cache_verdict *v)
{
    const struct cache_knobs *k = &x->knobs;
    if (v->hit) return v->question.n <= TEXT_BYTES_MAX;
    if (!strcmp(v->reason, "untrusted") || v->question.n > TEXT_BYTES_MAX) return false;
    if (!strcmp(v->step, "guards")) return k->judge_refused;
    if (v->similarity < v->threshold - k->judge_band) return false;
    return strcmp(v->step, "veto") || k->judge_refused ||
           !cache_guards_refuse(j->gw->cache, k, v->question, x->key.user_text);
}

static char *copy(struct str s)
{
    return xstrndup(s.n ? s.p : "", s.n);
}

void judge_offer(struct judge *j, const struct exchange *x, const struct cache_found *f)
{
    bool wanted = x->knobs.judge && (x->knobs.judge_hits || f->result == CACHE_MISS) &&
                  j->gw->redis && f->n_near && !x->controls.no_store &&
                  x->key.user_text.n <= TEXT_BYTES_MAX &&
                  !memchr(x->key.user_text.p, 0, x->key.user_text.n);
    if (!wanted) return;
    struct job *b = xcalloc(1, sizeof *b);
    hash_hex(x->key.exact, b->hash);
    for (size_t i = 0; i < f->n_near && b->n_pairs < x->knobs.judge_top; i++) {
        const struct cache_verdict *v = &f->near[i];
        uint64_t pair, *slot = slot_of(j, b->hash, v->entry_id, &pair);
        if (*slot == pair || !is_for_judging(j, x, v)) continue;
        *slot = pair;
        struct pair *p = &b->pairs[b->n_pairs++];
        *p = (struct pair){.stored = copy(v->question),
                           .score = v->similarity,
                           .threshold = v->threshold,
                           .verifier = v->verifier};
        snprintf(p->entry, sizeof p->entry, "%s", v->entry_id);
        snprintf(p->reason, sizeof p->reason, "%s", v->reason);
    }
    snprintf(b->ns, sizeof b->ns, "%s", x->controls.ns);
    b->language = guard_language(x->key.user_text);
    b->knobs = x->knobs;
    b->model = copy(x->model);
    b->text = copy(x->key.user_text);
    if (!b->n_pairs)
        free_job(b);
    else
        (void)enqueue(j, b);
}

enum err judge_compare(struct judge *j, struct str model, char language, struct str a, struct str b,
                       void (*done)(void *arg, double yes), void *arg)
{
    if (a.n > ANSWER_BYTES_MAX || b.n > ANSWER_BYTES_MAX) return ERR_TOO_LARGE;
    struct job *job = xcalloc(1, sizeof *job);
    *job = (struct job){.language = language,
                        .model = copy(model),
                        .text = copy(b),
                        .other = copy(a),
                        .knobs = *cache_knobs_now(j->gw->cache),
                        .done = done,
                        .arg = arg};
    return enqueue(j, job) ? OK : ERR_FULL;
}

enum err judge_open(struct judge **out, struct gateway *gw, struct errmsg *e)
{
    struct metrics *m = gw->metrics;
    struct judge *j = xcalloc(1, sizeof *j);
    j->gw = gw;
    j->own_origin = gw->o.judge_url[0] != 0;
    if (j->own_origin && http_origin_parse(str_of(gw->o.judge_url), &j->origin, e) != OK) {
        mem_free(j);
        return err_prefix(e, ERR_INVALID, "option judge_url");
    }
    j->has_tables = gw->o.judge_table[0] != 0;
    if (j->has_tables && judge_tables_load(&j->tables, gw->o.judge_table, e) != OK) {
        mem_free(j);
        return ERR_INVALID;
    }
    static const char name[] = "deja_judged_total", help[] = "pairs the judge was asked about";
    j->yes = metrics_get(m, METRIC_COUNTER, name, "verdict=\"approve\"", help, 0, 0);
    j->no = metrics_get(m, METRIC_COUNTER, name, "verdict=\"veto\"", help, 0, 0);
    j->unsure = metrics_get(m, METRIC_COUNTER, name, "verdict=\"unsure\"", help, 0, 0);
    j->failed = metrics_get(m, METRIC_COUNTER, name, "verdict=\"failed\"", help, 0, 0);
    j->dropped = metrics_get(m, METRIC_COUNTER, "deja_judge_dropped_total", "",
                             "pairs that found the judge's queue full", 0, 0);
    j->allowance = BURST;
    j->counted_ms = clock_ms();
    j->timer = loop_timer_new(gw->loop, on_timer, j);
    loop_timer_arm(j->timer, TICK_MS);
    *out = j;
    return OK;
}

void judge_close(struct judge *j)
{
    if (!j) return;
    loop_timer_free(j->timer);
    j->closed = true;
    while (j->first) {
        struct job *b = j->first;
        j->first = b->next;
        if (b->done) b->done(b->arg, -1);
        free_job(b);
    }
    if (j->now && !j->aside) end_job(j, -1);
    j->waiting++;           /* held */
    aside_cancel(j->aside); /* its end frees */
    j->waiting--;
    let_go(j);
}
