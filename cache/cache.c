/* cache.c - opening, closing, and what the other files share: key names in Redis, the reading command, figures. */
#include "cache/cache.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cache/cache_internal.h"
#include "cache/coming.h"
#include "cache/guard_text.h"
#include "cache/library.h"

enum { LIBRARY_BYTES_MAX = 1 << 20 };

void cache_ref(struct cache *c)
{
    c->refs++;
}

static void free_cache(struct cache *c)
{
    guard_free(c->guard);
    verifier_free(c->verifier);
    marks_free(c->marks);
    bounds_free(c->bounds);
    recents_free(c->recents);
    crowds_free(c->crowds);
    mem_free(c->redis_url);
    mem_free(c);
}

void cache_unref(struct cache *c)
{
    ASSERT(c->refs > 0);
    if (!--c->refs) free_cache(c);
}

struct str cache_redis_key(const struct cache *c, char out[KEY_BYTES_MAX], const char *kind,
                           struct str tail)
{
    size_t ns = strlen(c->ns), k = strlen(kind);
    ASSERT(6 + ns + 2 + k + tail.n < KEY_BYTES_MAX);
    char *at = out;
    memcpy(at, "deja:{", 6), at += 6;
    memcpy(at, c->ns, ns), at += ns;
    memcpy(at, "}:", 2), at += 2;
    memcpy(at, kind, k), at += k;
    if (tail.n) memcpy(at, tail.p, tail.n);
    at[tail.n] = 0;
    return (struct str){out, (size_t)(at - out) + tail.n};
}

void cache_redis_read(struct cache *c, struct hash128 id, bool with_vector, bool with_answer,
                      redis_callback *cb, void *arg)
{
    char key[KEY_BYTES_MAX], hex[33];
    struct str argv[2 + N_ENTRY_FIELDS] = {STR("HMGET")};
    hash_hex(id, hex);
    argv[1] = cache_redis_key(c, key, "e:", str_of(hex));
    for (int f = 0; f < N_ENTRY_FIELDS; f++)
        argv[2 + f] =
            (f == EF_VECTOR && !with_vector) || (f == EF_ANSWER && !with_answer) || f == EF_TOKENS
                ? STR("-")
                : str_of(entry_field_names[f]);
    redis_command(c->redis, 2 + N_ENTRY_FIELDS, argv, 0, cb, arg);
}

bool cache_reply_values(const struct redis_reply *reply, struct str values[N_ENTRY_FIELDS])
{
    if (reply->kind != REDIS_ARRAY || reply->n_items != N_ENTRY_FIELDS) return false;
    for (size_t i = 0; i < N_ENTRY_FIELDS; i++)
        values[i] =
            reply->items[i].kind == REDIS_STRING ? reply->items[i].text : (struct str){NULL, 0};
    return values[EF_VERSION].p != NULL;
}

bool cache_is_void(const struct cache *c, const struct entry *e)
{
    if (e->epoch >= marks_now(c->marks)) return false;
    struct mark_scope s = {marks_name("tenant", e->tenant), marks_name("model", e->model),
                           marks_name("ns", e->ns), e->tags, e->epoch};
    return marks_void(c->marks, &s);
}

struct question cache_question_of(const struct cache *c, const struct entry *e)
{
    return (struct question){.id = e->id,
                             .entry = e->id,
                             .trust = e->trust,
                             .answer = e->answer_hash,
                             .scope = {marks_name("tenant", e->tenant),
                                       marks_name("model", e->model), marks_name("ns", e->ns),
                                       e->tags, e->epoch},
                             .expires_s = e->created_s + e->ttl_s,
                             .text = e->question,
                             .normal = guard_normal(c->guard, e->question)};
}

struct question cache_question_of_wording(const struct cache *c, const struct wording *w)
{
    return (struct question){.id = w->id,
                             .entry = w->of,
                             .judged = true,
                             .expires_s = w->created_s + w->ttl_s,
                             .text = w->text,
                             .normal = guard_normal(c->guard, w->text),
                             .vetoed = w->vetoed,
                             .n_vetoed = w->n_vetoed};
}

/* Memory only: with the answer gone the question leads nowhere. */
static void pushed_out(void *arg, const struct entry *e)
{
    struct cache *c = arg;
    if (c->redis) return;
    struct partition *p = partitions_get(c->partitions, e->partition, false);
    if (p) partition_remove(p, e->id);
}

static struct metric *step_metric(struct cache *c, const char *step, const char *verdict)
{
    char labels[64];
    snprintf(labels, sizeof labels, "step=\"%s\",verdict=\"%s\"", step, verdict);
    return metrics_get(c->registry, METRIC_COUNTER, "deja_cache_steps_total", labels,
                       "entries considered for a similar question, by the step that decided", 0, 0);
}

static struct metric *bytes_metric(struct cache *c, const char *labels)
{
    return metrics_get(c->registry, METRIC_GAUGE, "deja_cache_memory_bytes", labels,
                       "memory of the cache in this process, by what holds it", 0, 0);
}

static void make_step_metrics(struct cache *c)
{
    struct metrics *r = c->registry;
    for (int i = 0; i < N_CHAIN_STEPS; i++)
        c->m.refused[i] = step_metric(c, chain_step_names[i], "refused");
    c->m.passed = step_metric(c, "all", "passed");
    c->m.texts = step_metric(c, "text", "passed");
    c->m.evidence_right =
        metrics_get(r, METRIC_COUNTER, "deja_cache_evidence_total", "right=\"yes\"",
                    "pairs of which it became known whether the answer was right", 0, 0);
    c->m.evidence_wrong =
        metrics_get(r, METRIC_COUNTER, "deja_cache_evidence_total", "right=\"no\"",
                    "pairs of which it became known whether the answer was right", 0, 0);
    c->m.bytes_entries = bytes_metric(c, "of=\"entries\"");
    c->m.bytes_index = bytes_metric(c, "of=\"index\"");
    c->m.bytes_sketches = bytes_metric(c, "of=\"sketches\"");
    c->m.corrupt = metrics_get(r, METRIC_COUNTER, "deja_cache_corrupt_total", "",
                               "entries in Redis that could not be read", 0, 0);
    c->m.set_aside =
        metrics_get(r, METRIC_COUNTER, "deja_cache_quarantines_total", "",
                    "entries this process set aside: many unlike questions hit them", 0, 0);
    c->m.aside = metrics_get(r, METRIC_GAUGE, "deja_cache_quarantined", "",
                             "entries that are set aside until somebody clears them", 0, 0);
    c->m.void_entries = metrics_get(r, METRIC_COUNTER, "deja_cache_forgets_total", "",
                                    "removals of many entries seen", 0, 0);
}

static void make_metrics(struct cache *c)
{
    struct metrics *r = c->registry;
    c->m = (struct cache_metrics){
        .exact = metrics_get(r, METRIC_COUNTER, "deja_cache_lookups_total", "result=\"exact\"",
                             "look-ups in the cache", 0, 0),
        .semantic = metrics_get(r, METRIC_COUNTER, "deja_cache_lookups_total",
                                "result=\"semantic\"", "look-ups in the cache", 0, 0),
        .miss = metrics_get(r, METRIC_COUNTER, "deja_cache_lookups_total", "result=\"miss\"",
                            "look-ups in the cache", 0, 0),
        .kept = metrics_get(r, METRIC_COUNTER, "deja_cache_kept_total", "", "answers stored", 0, 0),
        .resent = metrics_get(r, METRIC_COUNTER, "deja_cache_resent_total", "",
                              "answers written to Redis after it was away", 0, 0),
        .embed_ms = metrics_get(r, METRIC_HISTOGRAM, "deja_cache_embed_ms", "",
                                "time until a question's vector was there, milliseconds", 0.1, 14),
        .index_entries = metrics_get(r, METRIC_GAUGE, "deja_cache_index_entries", "",
                                     "questions in the vector indexes of this process", 0, 0),
        .unsaved = metrics_get(r, METRIC_GAUGE, "deja_cache_unsaved", "",
                               "1 while answers wait for Redis to return", 0, 0),
        .loads = metrics_get(r, METRIC_COUNTER, "deja_cache_partition_loads_total", "",
                             "vector indexes filled from Redis", 0, 0),
        .gaps =
            metrics_get(r, METRIC_COUNTER, "deja_cache_log_gaps_total", "",
                        "times the log of changes was lost and everything was loaded anew", 0, 0),
    };
}

static void open_verifier(struct cache *c)
{
    struct errmsg why = {0};
    if (!embedder_can_compare(c->embedder))
        return log_line(LOG_INFO, "cache", "no verifier: %s", embedder_why_no_sketch(c->embedder));
    if (verifier_new(&c->verifier, embedder_calibration(c->embedder), &why) != OK)
        return log_line(LOG_WARN, "cache", "no verifier: %s", why.text);
    for (int i = 0; i < 2; i++)
        c->shipped.verifier[i] = verifier_thresholds_of(c->verifier, i ? 'z' : 'e')->hit;
}

static void open_similar(struct cache *c)
{
    if (c->embedder) {
        c->dim = (size_t)embedder_dim(c->embedder);
        c->rules.embedder_id = str_of(embedder_id(c->embedder));
        c->shipped = policy_for(c->rules.embedder_id);
        open_verifier(c);
    }
    struct partitions_options o = {
        .dim = c->dim, .entries_max = c->o.entries_max, .partitions_max = PARTITIONS_MAX};
    c->partitions = partitions_new(&o);
    o.entries_max = COMING_MAX;
    o.partitions_max = COMING_PARTITIONS_MAX;
    if (c->embedder) c->coming = partitions_new(&o);
}

static void defaults(struct cache_options *o)
{
    if (o->ttl_s <= 0) o->ttl_s = 86400;
    if (!o->entry_bytes_max) o->entry_bytes_max = 256 * 1024;
    if (o->entry_bytes_max > ENTRY_ANSWER_BYTES_MAX) o->entry_bytes_max = ENTRY_ANSWER_BYTES_MAX;
    if (!o->memory_bytes_max) o->memory_bytes_max = (size_t)256 << 20;
    if (!o->entries_max) o->entries_max = 1000000;
    if (o->embed_deadline_ms <= 0) o->embed_deadline_ms = 50;
    if (o->redis_deadline_ms <= 0) o->redis_deadline_ms = 50;
    if (o->max_temperature <= 0) o->max_temperature = 1.0;
}

/* What the operator gave at the start stands until something newer is in force. */
static struct cache_knobs first_knobs(const struct cache_options *o)
{
    struct cache_knobs k = knobs_default();
    k.stale_if_error_s = o->stale_if_error_s;
    k.exact = o->exact;
    k.semantic = o->semantic;
    k.threshold_en = k.threshold_zh = o->threshold;
    k.temperature_max = o->max_temperature;
    k.ttl_s = o->ttl_s;
    return k;
}

const struct cache_knobs *cache_knobs_now(const struct cache *c)
{
    return &c->knobs;
}

void cache_knobs_use(struct cache *c, const struct cache_knobs *k)
{
    c->knobs = *k;
}

void cache_simplify(const struct cache *c, struct str text, struct buf *out)
{
    guard_simplify(c->guard, text, out);
}

bool cache_guards_refuse(const struct cache *c, const struct cache_knobs *k, struct str stored,
                         struct str asked)
{
    struct guard_verdict v;
    guard_check_without(c->guard, k->guards_off, asked, stored, &v);
    if (v.allowed) return false;
    return !c->verifier || !k->verifier || verifier_refuses(&v, k->likeness_refuses);
}

static void use_library(struct redis *redis)
{
    struct buf code;
    buf_init(&code, LIBRARY_BYTES_MAX);
    library_write(&code);
    ASSERT(!buf_failed(&code));
    redis_use_library(redis, buf_view(&code));
    buf_fini(&code);
}

enum err cache_open(struct cache **out, struct loop *l, struct redis *redis,
                    struct embedder *embedder, struct workers *workers, struct metrics *metrics,
                    const struct cache_options *o, struct errmsg *e)
{
    struct str ns = str_of(o->ns ? o->ns : "deja");
    if (!ns.n || ns.n >= sizeof((struct cache *)0)->ns)
        return err_set(e, ERR_RANGE, "cache: the namespace must have 1 to 63 bytes");
    if (str_find_char(ns, '{') >= 0 || str_find_char(ns, '}') >= 0)
        return err_set(e, ERR_INVALID, "cache: the namespace must not contain braces");
    struct cache *c = xcalloc(1, sizeof *c);
    c->refs = 1;
    c->loop = l;
    c->redis = redis;
    c->embedder = embedder;
    c->workers = workers;
    c->registry = metrics;
    c->o = *o;
    defaults(&c->o);
    c->knobs = first_knobs(&c->o);
    memcpy(c->ns, ns.p, ns.n);
    c->o.ns = c->ns;
    c->redis_url = o->redis_url ? xstrdup(o->redis_url) : NULL;
    c->o.redis_url = c->redis_url;
    hash_hex((struct hash128){rng_entropy(), rng_entropy()}, c->source);
    c->rules = (struct key_rules){.secret = o->secret, .text_bytes_max = GUARD_TEXT_BYTES_MAX};
    c->guard = guard_new();
    c->marks = marks_new();
    c->bounds = bounds_new();
    c->recents = recents_new();
    c->store = store_new(c->o.memory_bytes_max, pushed_out, c);
    open_similar(c);
    c->crowds = crowds_new(c->dim);
    make_metrics(c);
    make_step_metrics(c);
    c->marks_known = c->stats.redis_known = !redis;
    if (redis) use_library(redis);
    cache_sync_start(c);
    *out = c;
    return OK;
}

void cache_close(struct cache *c)
{
    if (!c || c->closed) return;
    cache_sync_stop(c);
    while (c->lookups)
        cache_find_cancel(c->lookups);
    c->closed = true;
    cache_put_drop_line(c);
    store_free(c->store);
    c->store = NULL;
    partitions_free(c->partitions);
    c->partitions = NULL;
    partitions_free(c->coming);
    c->coming = NULL;
    cache_unref(c);
}

enum err cache_key_make(struct cache *c, const struct openai_request *r,
                        const struct cache_scope *scope, struct cache_key *out)
{
    enum err code = key_make(&c->rules, r, scope, out);
    out->epoch = marks_now(c->marks);
    return code;
}

void cache_bound_report(const struct cache *c, struct str ns, double max_error,
                        struct cache_bound_report *out)
{
    const struct bound *b = bounds_of(c->bounds, ns);
    memset(out, 0, sizeof *out);
    out->error_high = 1;
    if (!b) return;
    for (int i = 0; i < BOUND_LEVELS; i++)
        out->right += b->right[i], out->wrong += b->wrong[i];
    struct bound_limit l = bound_limit(b, max_error);
    out->n = b->n;
    out->limit = l.error;
    out->served_share = l.share;
    out->error = l.n > 0 ? l.wrong / l.n : 0;
    out->error_low = l.low;
    out->error_high = l.high;
}

void cache_stats(struct cache *c, struct cache_stats *out)
{
    *out = c->stats;
    size_t known = store_count(c->store), indexed = partitions_entries(c->partitions);
    out->entries = known > indexed ? known : indexed;
    out->redis_usable = c->redis && redis_usable(c->redis);
    out->embedder_usable = cache_embedder_usable(c);
    out->synced = !c->redis || (cache_sync_ready(c) && c->marks_known);
}
