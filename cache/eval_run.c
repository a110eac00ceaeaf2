/* eval_run.c - asking the questions of a file. See eval.h. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cache/eval.h"

enum { FOREVER_S = INT32_MAX, NOW_S = 1 };

const double eval_ratios[EVAL_RATIOS] = {0.05, 0.10, 0.20, 0.30, 0.50, 0.70};

/* One question against what is stored. */
struct outcome {
    bool hit;
    struct hash128 entry;
    struct chain_item
        best; /* served, or the likeliest of what was refused; n = 0: there was none */
    size_t n;
};
/* A request of which it is known whether serving would be right; score -1 = refused whatever the threshold. */
struct scored {
    double score;
    char language;
    bool right;
};
struct run {
    struct evaluator *ev;
    struct eval_result *out;
    int question; /* being asked */
    struct scored *scored;
    size_t n_scored, scored_cap;
    struct bounds *bounds;
    struct marks *marks;
};

/* --- the verifier's looks */
struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t ready;
    bool done;
    enum err code;
    struct embedder_opinion opinions[EMBEDDER_COMPARE_MAX];
};

static void compared(void *arg, enum err code, const struct embedder_opinion *opinions, int n)
{
    struct waiter *w = arg;
    pthread_mutex_lock(&w->lock);
    w->code = code;
    for (int i = 0; code == OK && i < n; i++)
        w->opinions[i] = opinions[i];
    w->done = true;
    pthread_cond_signal(&w->ready);
    pthread_mutex_unlock(&w->lock);
}

/* Both looks at the open ones; those of which nothing can be said stay as they are. */
static void verify(struct run *r, const struct policy *p, struct str question,
                   struct chain_item *items, size_t n)
{
    struct waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER, .ready = PTHREAD_COND_INITIALIZER};
    struct str texts[EMBEDDER_COMPARE_MAX];
    double cosines[EMBEDDER_COMPARE_MAX];
    int count = 0, at = 0;
    for (size_t i = 0; i < n && count < EMBEDDER_COMPARE_MAX; i++)
        if (items[i].open) texts[count] = items[i].c.q->text, cosines[count++] = items[i].c.cosine;
    if (embedder_compare(r->ev->embedder, question, texts, cosines, NULL, count, 60000, compared,
                         &w) != OK)
        return;
    pthread_mutex_lock(&w.lock);
    while (!w.done)
        pthread_cond_wait(&w.ready, &w.lock);
    pthread_mutex_unlock(&w.lock);
    for (size_t i = 0; i < n && w.code == OK && at < count; i++) {
        if (!items[i].open) continue;
        const struct embedder_opinion *o = &w.opinions[at++];
        struct verifier_view v = {.guard = &items[i].guard,
                                  .cosine = items[i].c.cosine,
                                  .alone = o->alone,
                                  .has_joint = true,
                                  .joint = o->joint};
        bool twice = r->ev->second_look || policy_is_calibrated(p, items[i].guard.language);
        items[i].verifier =
            twice ? verifier_probability(r->ev->verifier, &v) : verifier_judge(r->ev->verifier, &v);
    }
}

static struct chain_rules rules_of(struct run *r)
{
    struct evaluator *ev = r->ev;
    return (struct chain_rules){.guard = ev->guard,
                                .knobs = &ev->knobs,
                                .policy = policy_with(&ev->shipped, &ev->knobs),
                                .bounds = r->bounds,
                                .has_verifier = ev->verifier != NULL};
}

static struct question question_of(const struct run *r, int text, uint64_t answer)
{
    struct hash128 id = {0x6576616c, (uint64_t)text + 1};
    return (struct question){.id = id,
                             .entry = id,
                             .trust = TRUST_GATEWAY,
                             .answer = answer,
                             .expires_s = FOREVER_S,
                             .text = eval_text(r->ev->texts, text),
                             .normal = guard_normal(r->ev->guard, eval_text(r->ev->texts, text))};
}

/* --- one question */
/* It came to the verifier or further. */
static bool measured(const struct chain_item *x)
{
    return (x->hit && !x->guard.same) || (!x->hit && x->step > CHAIN_PLACES);
}

static struct outcome decide(struct run *r, struct chain_item *items, size_t n)
{
    struct chain_rules rules = rules_of(r);
    struct str question = eval_text(r->ev->texts, r->question);
    size_t order[CANDIDATES_MAX];
    size_t open = chain_screen(&rules, question, items, n);
    if (open && rules.has_verifier && r->ev->knobs.verifier)
        verify(r, &rules.policy, question, items, n);
    size_t hits = chain_settle(&rules, items, n, order);
    struct outcome out = {.hit = hits > 0, .n = n};
    if (!n) return out;
    const struct chain_item *best = hits ? &items[order[0]] : &items[0];
    for (size_t i = 0; i < n && !hits; i++)
        if (measured(&items[i]) && (!measured(best) || items[i].verifier > best->verifier ||
                                    (items[i].error >= 0 && items[i].error < best->error)))
            best = &items[i];
    out.best = *best;
    out.entry = best->c.own->id;
    return out;
}

/* Against one stored text alone. */
static struct outcome ask_pair(struct run *r, int stored, int question)
{
    struct question q = question_of(r, stored, 1);
    struct chain_item item = {
        .c = {&q, &q, eval_cosine(r->ev->texts, stored, question), -1, -1, 1},
    };
    struct guard_verdict v;
    r->question = question;
    guard_check_without(r->ev->guard, r->ev->knobs.guards_off, eval_text(r->ev->texts, question),
                        q.text, &v);
    if (v.same && knobs_same_words(&r->ev->knobs, false))
        item.c.cosine = 1; /* no vector is asked for */
    return decide(r, &item, 1);
}

/* Entries that texts of the same words lead to. */
struct same {
    const struct cache_knobs *knobs;
    struct nearby *around;
    struct hash128 entry[CANDIDATES_MAX];
    size_t n;
};

static void note_same(void *arg, int place, const struct question *q)
{
    struct same *s = arg;
    (void)place;
    nearby_note_vetoes(s->around, q);
    if (s->n < CANDIDATES_MAX && (q->entry.hi || q->entry.lo) &&
        knobs_same_words(s->knobs, q->judged))
        s->entry[s->n++] = q->entry;
}

static bool is_hit(const struct same *s, const struct question *own)
{
    return own && own->trust >= s->knobs->trust_min &&
           !(s->knobs->vetoes && nearby_forbids(s->around, own->id));
}

static struct outcome ask_store(struct run *r, struct partition *p, int question)
{
    struct evaluator *ev = r->ev;
    struct nearby n = {.places = {p}, .n_places = 1, .marks = r->marks};
    struct same same = {.knobs = &ev->knobs, .around = &n};
    struct near_text texts[NEARBY_TEXTS_MAX];
    struct candidate found[CANDIDATES_MAX];
    struct chain_item items[CANDIDATES_MAX];
    const float *vec = eval_vector(ev->texts, question);
    r->question = question;
    nearby_same(&n, ev->guard, ev->knobs.guards_off, eval_text(ev->texts, question), note_same,
                &same);
    for (size_t i = 0; i < same.n; i++) {
        if (!is_hit(&same, partition_entry(p, same.entry[i]))) continue;
        struct outcome out = {.hit = true, .entry = same.entry[i], .n = 1};
        out.best.guard.same = true;
        out.best.c.cosine = 1;
        return out;
    }
    if (!vec) return (struct outcome){0};
    nearby_want(&n, (size_t)ev->knobs.top_k);
    n.n_hits[0] = partition_search(p, vec, n.wanted[0], n.hits[0]);
    size_t count =
        candidates_gather(texts, nearby_texts(&n, NOW_S, texts), found, (size_t)ev->knobs.top_k);
    for (size_t i = 0; i < count; i++)
        items[i] =
            (struct chain_item){.c = found[i], .text_vetoed = nearby_forbids(&n, found[i].own->id)};
    return decide(r, items, count);
}

void eval_explain(struct evaluator *ev, int stored, int asked, struct eval_explained *out)
{
    struct run r = {.ev = ev, .bounds = bounds_new(), .marks = marks_new()};
    struct outcome o = ask_pair(&r, stored, asked);
    struct policy p = policy_with(&ev->shipped, &ev->knobs);
    *out = (struct eval_explained){
        .item = o.best,
        .cosine = eval_cosine(ev->texts, stored, asked),
        .floor = p.floor,
        .threshold = policy_threshold(&p, guard_language(eval_text(ev->texts, asked)), 0)};
    if (!out->item.guard
             .refused_by) /* a step before the guards decided: they are told of all the same */
        guard_check_without(ev->guard, ev->knobs.guards_off, eval_text(ev->texts, asked),
                            eval_text(ev->texts, stored), &out->item.guard);
    bounds_free(r.bounds);
    marks_free(r.marks);
}

/* --- counting */
static void count(struct share *s, bool hit)
{
    s->n++;
    s->hits += hit;
}

static struct eval_category *category_of(struct eval_result *out, const char *name, char language)
{
    for (size_t i = 0; i < out->n_categories; i++)
        if (!strcmp(out->categories[i].name, name) && out->categories[i].language == language)
            return &out->categories[i];
    if (out->n_categories == EVAL_CATEGORIES_MAX) return &out->categories[EVAL_CATEGORIES_MAX - 1];
    struct eval_category *c = &out->categories[out->n_categories++];
    snprintf(c->name, sizeof c->name, "%s", name);
    c->language = language;
    return c;
}

static void count_reason(struct eval_result *out, const struct outcome *o)
{
    const char *reason = o->n ? o->best.reason : "nothing_near";
    if (o->hit) return;
    for (size_t i = 0; i < out->n_reasons; i++)
        if (!strcmp(out->reasons[i].text, reason)) {
            out->reasons[i].n++;
            return;
        }
    if (out->n_reasons == EVAL_REASONS_MAX) return;
    struct eval_reason *x = &out->reasons[out->n_reasons++];
    snprintf(x->text, sizeof x->text, "%s", reason);
    x->n = 1;
}

/* What a threshold would be held against. */
static double score_of(const struct run *r, const struct outcome *o)
{
    if (!o->n) return -1;
    if (o->best.guard.same) return 1;
    if (r->ev->verifier && r->ev->knobs.verifier) return o->best.verifier;
    return measured(&o->best) ? o->best.c.cosine : -1;
}

static void score(struct run *r, const struct outcome *o, char language, bool right)
{
    if (r->n_scored == r->scored_cap) {
        r->scored_cap = r->scored_cap ? 2 * r->scored_cap : 1024;
        r->scored = xrealloc(r->scored, r->scored_cap * sizeof *r->scored);
    }
    r->scored[r->n_scored++] = (struct scored){score_of(r, o), language, right};
}

/* --- kinds of files */
static void run_pairs(struct run *r, const struct eval_file *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct eval_pair *p = &f->pairs[i];
        struct outcome o = ask_pair(r, p->a, p->b);
        struct eval_category *c = category_of(r->out, p->category, p->language);
        count(p->same ? &r->out->same : &r->out->differ, o.hit);
        count(p->same ? &c->same : &c->differ, o.hit);
        if (p->same) count_reason(r->out, &o);
        score(r, &o, p->language, p->same);
    }
}

static void run_faq_pairs(struct run *r, const struct eval_faq *q)
{
    struct eval_category *c = category_of(r->out, "faq", q->language);
    for (int s = 0; s < q->n_same; s++) {
        struct outcome o = ask_pair(r, q->q, q->same[s]);
        count(&r->out->same, o.hit);
        count(&c->same, o.hit);
        count_reason(r->out, &o);
        for (int n = 0; n < q->n_near; n++)
            count(&r->out->near_wording, ask_pair(r, q->near[n], q->same[s]).hit);
    }
    for (int n = 0; n < q->n_near; n++) {
        struct outcome o = ask_pair(r, q->q, q->near[n]);
        count(&r->out->differ, o.hit);
        count(&c->differ, o.hit);
    }
}

static struct partition *new_store(struct run *r, struct partitions **table)
{
    struct partitions_options o = {.dim =
                                       r->ev->embedder ? (size_t)embedder_dim(r->ev->embedder) : 1,
                                   .entries_max = 1 << 20,
                                   .partitions_max = 1};
    *table = partitions_new(&o);
    return partitions_get(*table, (struct hash128){1, 1}, true);
}

static void store(struct run *r, struct partition *p, int text, uint64_t answer)
{
    struct question q = question_of(r, text, answer);
    enum err code = partition_add(p, &q, eval_vector(r->ev->texts, text), false);
    ASSERT(code == OK || code == ERR_FULL || code == ERR_INVALID);
}

/* All questions and their near questions are stored, each with an answer of its own, and the wordings asked. */
static void run_faq_store(struct run *r, const struct eval_file *f)
{
    struct partitions *table;
    struct partition *p = new_store(r, &table);
    for (size_t i = 0; i < f->n; i++) {
        store(r, p, f->faqs[i].q, (uint64_t)f->faqs[i].q + 1);
        for (int n = 0; n < f->faqs[i].n_near; n++)
            store(r, p, f->faqs[i].near[n], (uint64_t)f->faqs[i].near[n] + 1);
    }
    for (size_t i = 0; i < f->n; i++) {
        const struct eval_faq *q = &f->faqs[i];
        struct hash128 own = question_of(r, q->q, 1).id;
        for (int s = 0; s < q->n_same; s++) {
            struct outcome o = ask_store(r, p, q->same[s]);
            bool right = o.n && hash_eq(o.entry, own);
            count(&r->out->right, o.hit && right);
            count(&r->out->wrong, o.hit && !right);
            score(r, &o, q->language, right);
        }
        partition_remove(p, own);
        for (int s = 0; s < q->n_same; s++)
            count(&r->out->wrong_alone, ask_store(r, p, q->same[s]).hit);
        store(r, p, q->q, (uint64_t)q->q + 1);
    }
    partitions_free(table);
}

static void run_faq(struct run *r, const struct eval_file *f)
{
    for (size_t i = 0; i < f->n; i++)
        run_faq_pairs(r, &f->faqs[i]);
    run_faq_store(r, f);
}

static void learn(struct run *r, const struct outcome *o, bool right)
{
    if (!o->n || !measured(&o->best)) return;
    struct evidence e = {
        .entry = o->entry, .ns = {"", 0}, .v = o->best.view, .right = right, .weight = 1};
    bounds_learn(r->bounds, &e);
    r->out->evidence++;
}

static void run_stream(struct run *r, const struct eval_file *f)
{
    struct partitions *table;
    struct partition *p = new_store(r, &table);
    struct rng rng;
    rng_seed(&rng, r->ev->seed);
    for (size_t i = 0; i < f->n; i++) {
        const struct eval_ask *a = &f->asks[i];
        struct outcome o = ask_store(r, p, a->q);
        const struct question *q = o.n ? partition_entry(p, o.entry) : NULL;
        bool right = q && q->answer == a->answer;
        count(&r->out->served, o.hit);
        if (o.hit) count(&r->out->wrong_served, !right);
        if (!o.hit) count_reason(r->out, &o);
        score(r, &o, guard_language(eval_text(r->ev->texts, a->q)), right);
        /* a miss tells by the model's answer, a hit only when it is sampled */
        if (!o.hit || rng_f64(&rng) * 100 < r->ev->knobs.shadow_percent) learn(r, &o, right);
        if (!o.hit) store(r, p, a->q, a->answer);
    }
    partitions_free(table);
}

/* --- thresholds */
static int by_score(const void *a, const void *b)
{
    double x = ((const struct scored *)a)->score, y = ((const struct scored *)b)->score;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void precision(struct run *r)
{
    size_t right = 0, k = 0;
    for (int i = 0; i < EVAL_RATIOS; i++) {
        size_t upto = (size_t)(eval_ratios[i] * (double)r->n_scored + 0.5);
        for (; k < upto && r->scored[k].score > 0; k++)
            right += r->scored[k].right;
        r->out->precision[i] = k == upto && k ? (double)right / (double)k : -1;
    }
}

/* The lowest score down to which, of all requests that must not be served, no more than max_error would be. */
static void suggest(struct run *r, int zh)
{
    struct eval_result *out = r->out;
    size_t n_wrong = 0, n_right = 0, wrong = 0, right = 0;
    out->suggested[zh] = -1;
    for (size_t i = 0; i < r->n_scored; i++)
        if ((r->scored[i].language == 'z') == zh) r->scored[i].right ? n_right++ : n_wrong++;
    for (size_t i = 0; i < r->n_scored && r->scored[i].score > 0; i++) {
        const struct scored *s = &r->scored[i];
        if ((s->language == 'z') != zh) continue;
        s->right ? right++ : wrong++;
        bool last = i + 1 == r->n_scored || r->scored[i + 1].score < s->score;
        if (!last || (double)wrong > r->ev->knobs.max_error * (double)n_wrong) continue;
        out->suggested[zh] = s->score;
        out->suggested_right[zh] = (struct share){n_right, right};
        out->suggested_wrong[zh] = (struct share){n_wrong, wrong};
    }
}

void eval_run(struct evaluator *ev, const struct eval_file *f, struct eval_result *out)
{
    static void (*const kinds[])(struct run *, const struct eval_file *) = {
        [EVAL_PAIRS] = run_pairs, [EVAL_FAQ] = run_faq, [EVAL_STREAM] = run_stream};
    struct run r = {.ev = ev, .out = out, .bounds = bounds_new(), .marks = marks_new()};
    memset(out, 0, sizeof *out);
    out->by_verifier = ev->verifier && ev->knobs.verifier;
    kinds[f->kind](&r, f);
    if (r.n_scored) qsort(r.scored, r.n_scored, sizeof *r.scored, by_score);
    precision(&r);
    suggest(&r, 0);
    suggest(&r, 1);
    mem_free(r.scored);
    bounds_free(r.bounds);
    marks_free(r.marks);
}
