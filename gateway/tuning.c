/* tuning.c - see tuning.h. */
#include "gateway/tuning.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "gateway/exchange.h"
#include "gateway/model_rules.h"
#include "gateway/unserved.h"

enum {
    POLL_MS = 500,
    LOAD_TIMEOUT_MS = 1000,
    CHANGES_LOGGED_MAX = 100,
    MODELS_MS = 500,
    TELL_TICKS = 10,
    UNSERVED_BYTES_MAX = 64 << 10
};

struct tuning {
    struct gateway *gw;
    struct cache_knobs base;
    struct settings *settings;
    struct loop_timer *timer;
    struct redis_tail *tail;
    struct loop_timer *models; /* until the targets have told theirs */
    char name[33];             /* of this gateway among those that tell Redis theirs */
    unsigned ticks;
    char *unserved_before[KNOB_TEXTS]; /* as told last */
    char key[96];
    bool loading, again; /* again: something changed while a load was under way */
    bool asking, loaded_once;
    int waiting; /* callbacks to come; after tuning_close the last one frees */
    bool closed;
};

struct str tuning_key(const struct gateway *gw, char out[96])
{
    int n = snprintf(out, 96, "{%s}:config", gw->o.ns);
    ASSERT(n > 0 && n < 96);
    return (struct str){out, (size_t)n};
}

static void load(struct tuning *t);

static void let_go(struct tuning *t)
{
    if (!t->closed || t->waiting) return;
    settings_free(t->settings);
    for (int i = 0; i < KNOB_TEXTS; i++)
        mem_free(t->unserved_before[i]);
    mem_free(t);
}

/* --- telling */
static const char *shown(struct str s)
{
    return s.n ? s.p : "unset";
}

static void log_change(const json_t *c)
{
    struct str op = json_member_str(c, "op"), who = json_member_str(c, "who"),
               scope = json_member_str(c, "scope"), name = json_member_str(c, "name"),
               old = json_member_str(c, "old"), new = json_member_str(c, "new");
    log_info("gateway",
             "setting version=%lld at_ms=%lld op=%.16s who=%.64s scope=%.160s name=%.64s "
             "old=%.200s new=%.200s",
             (long long)json_integer_value(json_object_get(c, "version")),
             (long long)json_integer_value(json_object_get(c, "at_ms")), op.n ? op.p : "-",
             who.n ? who.p : "-", scope.n ? scope.p : "-", name.n ? name.p : "-", shown(old),
             shown(new));
}

static void tell(struct tuning *t, const json_t *doc, uint64_t before)
{
    const json_t *changes = json_object_get(doc, "changes");
    const struct experiment *x = settings_experiment(t->settings);
    for (size_t i = 0; t->loaded_once && i < json_array_size(changes) && i < CHANGES_LOGGED_MAX;
         i++)
        log_change(json_array_get(changes, i));
    log_info("gateway",
             "settings in force version=%" PRIu64 " before=%" PRIu64
             " settings=%zu not_understood=%zu experiment=%s",
             settings_version(t->settings), before, settings_count(t->settings),
             settings_passed(t->settings), x ? x->name : "-");
}

/* --- loading */
struct str tuning_text(const struct tuning *t, const char *knob)
{
    struct str set = settings_text(t->settings, knob);
    if (set.p) return set;
    return str_of(!strcmp(knob, "route") ? t->gw->o.routes : t->gw->o.fallbacks);
}

/* Once for each list of them. */
static void tell_unserved(struct tuning *t, int i)
{
    const char *knob = knob_texts[i].name;
    struct buf models, words;
    buf_init(&models, UNSERVED_BYTES_MAX);
    buf_init(&words, UNSERVED_BYTES_MAX);
    unserved_models(t->gw, knob, tuning_text(t, knob), &models);
    struct str now = buf_view(&models);
    if (!str_eq(now, str_of(t->unserved_before[i] ? t->unserved_before[i] : ""))) {
        unserved_words(knob, &models, &words);
        if (words.n)
            log_warn("gateway", "%s: " STR_FMT, knob, STR_ARG(str_sub(buf_view(&words), 0, 400)));
        mem_free(t->unserved_before[i]);
        t->unserved_before[i] = now.n ? xstrndup(now.p, now.n) : NULL;
    }
    buf_fini(&words);
    buf_fini(&models);
}

static void on_models(void *arg)
{
    struct tuning *t = arg;
    if (!upstreams_know_models(t->gw->upstreams)) {
        loop_timer_arm(t->models, MODELS_MS);
        return;
    }
    for (int i = 0; i < KNOB_TEXTS; i++)
        tell_unserved(t, i);
}

/* Which model answers for which, from now on. */
static void use_texts(struct tuning *t)
{
    struct gateway *gw = t->gw;
    struct model_rules *fresh = NULL;
    struct errmsg e = {0};
    loop_timer_arm(t->models, 0);
    if (model_rules_new(&fresh, tuning_text(t, "route"), tuning_text(t, "fallback"), &e) !=
        OK) { /* each was read before */
        log_limited(LOG_WARN, "gateway", "rules of models cannot be read: %s", e.text);
        return;
    }
    model_rules_unref(gw->rules);
    gw->rules = fresh;
}

static void take(struct tuning *t, const json_t *doc)
{
    struct settings *fresh = NULL;
    struct errmsg e = {0};
    uint64_t before = settings_version(t->settings);
    if (settings_parse(&fresh, doc, &t->base, &e) != OK) {
        log_limited(LOG_WARN, "gateway", "the settings in Redis cannot be read: %s", e.text);
        return;
    }
    settings_free(t->settings);
    t->settings = fresh;
    struct cache_knobs k = settings_knobs(fresh, STR(""), -1);
    cache_knobs_use(t->gw->cache, &k);
    use_texts(t);
    if (settings_version(fresh) < before)
        log_warn("gateway",
                 "settings: their version fell from %" PRIu64 " to %" PRIu64
                 ": Redis came back without what was set (limits, prices, rules), or was emptied; "
                 "%zu are in force now",
                 before, settings_version(fresh), settings_count(fresh));
    if (settings_version(fresh) != before) tell(t, doc, before);
    t->loaded_once = true;
}

static void on_loaded(void *arg, enum err code, const struct redis_reply *reply)
{
    struct tuning *t = arg;
    t->waiting--;
    t->loading = false;
    if (!t->closed && code == OK) {
        json_t *doc = NULL;
        if (reply->kind == REDIS_STRING && json_parse(reply->text, 0, &doc, NULL) == OK)
            take(t, doc);
        else
            log_limited(LOG_WARN, "gateway", "the settings cannot be read from Redis: " STR_FMT,
                        STR_ARG(str_sub(reply->text, 0, 160)));
        json_decref(doc);
    }
    if (!t->closed && t->again) load(t);
    let_go(t);
}

static void load(struct tuning *t)
{
    char since[24];
    t->again = t->loading;
    if (t->loading) return;
    t->loading = true;
    t->waiting++;
    snprintf(since, sizeof since, "%" PRIu64, settings_version(t->settings));
    struct str argv[] = {STR("FCALL_RO"), STR("deja_config_get"), STR("1"),     str_of(t->key),
                         STR("JSON"),     STR("SINCE"),           str_of(since)};
    redis_command(t->gw->redis, sizeof argv / sizeof *argv, argv, LOAD_TIMEOUT_MS, on_loaded, t);
}

/* --- noticing */
static void on_version(void *arg, enum err code, const struct redis_reply *reply)
{
    struct tuning *t = arg;
    int64_t version = 0;
    t->waiting--;
    t->asking = false;
    if (!t->closed && code == OK && reply->kind != REDIS_ERROR) {
        if (reply->kind == REDIS_STRING && str_to_i64(reply->text, 0, INT64_MAX, &version) != OK)
            version = -1;
        if (version >= 0 && (uint64_t)version != settings_version(t->settings))
            load(t);
        else if (version == 0)
            t->loaded_once = true; /* nothing set yet: what comes now is news */
    }
    let_go(t);
}

static void on_item(void *arg, struct str id, const struct str *fields, size_t n_fields)
{
    (void)id, (void)fields, (void)n_fields;
    load(arg);
}

static void on_gap(void *arg)
{
    load(arg);
}

/* So that who sets `route` or `fallback` in Redis hears there of a model that no gateway can ask. */
static void tell_models(struct tuning *t)
{
    struct buf models;
    if (!upstreams_know_models(t->gw->upstreams)) return;
    buf_init(&models, UNSERVED_BYTES_MAX);
    upstreams_models(t->gw->upstreams, &models);
    struct str argv[] = {STR("FCALL"),    STR("deja_models"),
                         STR("1"),        str_of(t->key),
                         str_of(t->name), buf_failed(&models) ? STR("*") : buf_view(&models)};
    redis_command(t->gw->redis, sizeof argv / sizeof *argv, argv, LOAD_TIMEOUT_MS, NULL, NULL);
    buf_fini(&models);
}

static void on_timer(void *arg)
{
    struct tuning *t = arg;
    struct gateway *gw = t->gw;
    loop_timer_arm(t->timer, POLL_MS);
    if (!redis_usable(gw->redis) || t->asking) return;
    if (t->ticks++ % TELL_TICKS == 0) tell_models(t);
    if (!t->tail) {
        struct redis_options o = {.url = gw->o.redis};
        char log[104];
        snprintf(log, sizeof log, "%s:log", t->key);
        t->tail = redis_tail_open(gw->loop, &o, str_of(log), STR("$"), on_item, on_gap, t);
    }
    t->asking = true;
    t->waiting++;
    redis_commandf(gw->redis, LOAD_TIMEOUT_MS, on_version, t, "HGET %s version", t->key);
}

struct tuning *tuning_open(struct gateway *gw)
{
    struct tuning *t = xcalloc(1, sizeof *t);
    t->gw = gw;
    t->base = *cache_knobs_now(gw->cache);
    t->settings = settings_new(&t->base);
    tuning_key(gw, t->key);
    t->models = loop_timer_new(gw->loop, on_models, t);
    loop_timer_arm(t->models, 0);
    if (!gw->redis) return t;
    hash_hex((struct hash128){rng_u64(&gw->rng), rng_u64(&gw->rng)}, t->name);
    t->timer = loop_timer_new(gw->loop, on_timer, t);
    loop_timer_arm(t->timer, 0);
    return t;
}

void tuning_close(struct tuning *t)
{
    if (!t) return;
    loop_timer_free(t->timer);
    loop_timer_free(t->models);
    redis_tail_close(t->tail);
    t->closed = true;
    let_go(t);
}

const struct settings *tuning_settings(const struct tuning *t)
{
    return t->settings;
}

bool tuning_known(const struct tuning *t)
{
    return !t->gw->redis || t->loaded_once;
}

void tuning_apply(struct exchange *x)
{
    const struct settings *s = x->gw->tuning->settings;
    const struct experiment *e = settings_experiment(s);
    struct str ns = str_of(x->controls.ns);
    int arm = -1;
    if (e && x->keyed)
        arm = experiment_arm(e, ns, str_of(x->tenant), json_member_str(x->req.body, "user"),
                             x->key.exact);
    x->knobs = settings_knobs(s, ns, arm);
    if (x->min_trust > x->knobs.trust_min) x->knobs.trust_min = x->min_trust;
    if (arm >= 0) snprintf(x->arm, sizeof x->arm, "%s/%s", e->name, e->arms[arm].name);
}
