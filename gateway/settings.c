/* settings.c - see settings.h. A short list scanned in order: a handful of settings, one request a scan. */
#include "gateway/settings.h"

#include <string.h>

#include "base/mem.h"
#include "gateway/model_rules.h"

enum scope_kind { SCOPE_GLOBAL, SCOPE_NS, SCOPE_ARM };
struct setting {
    enum scope_kind kind;
    char ns[65];
    int arm;
    struct knob knob;
    double value;
};

struct settings {
    uint64_t version;
    struct cache_knobs global;
    struct experiment experiment;
    bool runs; /* the experiment */
    struct setting *narrow;
    struct limit_rules *limits;
    char *texts[KNOB_TEXTS]; /* as they are set; NULL = not */
    size_t n_narrow, n_global, n_limits, n_texts, passed;
};

struct settings *settings_new(const struct cache_knobs *base)
{
    struct settings *s = xcalloc(1, sizeof *s);
    s->global = *base;
    s->limits = limit_rules_new();
    return s;
}

void settings_free(struct settings *s)
{
    if (!s) return;
    mem_free(s->narrow);
    for (int i = 0; i < KNOB_TEXTS; i++)
        mem_free(s->texts[i]);
    limit_rules_free(s->limits);
    mem_free(s);
}

/* "global", "ns:NAME", "arm:EXPERIMENT/ARM" of the running experiment. */
static bool read_scope(const struct settings *s, struct str text, struct setting *out)
{
    struct str prefix;
    if (str_eqz(text, "global")) return out->kind = SCOPE_GLOBAL, true;
    if (!str_next(&text, ':', &prefix) || !text.n) return false;
    if (str_eqz(prefix, "ns") && text.n < sizeof out->ns) {
        out->kind = SCOPE_NS;
        memcpy(out->ns, text.p, text.n);
        return true;
    }
    struct str experiment;
    if (!str_eqz(prefix, "arm") || !s->runs || !str_next(&text, '/', &experiment) ||
        !str_eqz(experiment, s->experiment.name))
        return false;
    out->kind = SCOPE_ARM;
    for (out->arm = 0; out->arm < s->experiment.n_arms; out->arm++)
        if (str_eqz(text, s->experiment.arms[out->arm].name)) return true;
    return false;
}

static bool read_setting(const struct settings *s, const json_t *item, struct setting *out)
{
    *out = (struct setting){0};
    return json_is_object(item) && read_scope(s, json_member_str(item, "scope"), out) &&
           knob_find(json_member_str(item, "name"), &out->knob, NULL) == OK &&
           knob_parse(&out->knob, json_member_str(item, "value"), &out->value, NULL) == OK;
}

/* Limits, and prices of a model: true when the setting has no other home. */
static bool read_limit(struct settings *s, const json_t *item)
{
    struct knob k;
    double value;
    struct str scope = json_member_str(item, "scope");
    if (knob_find(json_member_str(item, "name"), &k, NULL) != OK || k.family == KNOB_CACHE ||
        knob_parse(&k, json_member_str(item, "value"), &value, NULL) != OK)
        return false;
    bool taken = limit_rules_add(s->limits, scope, k.name, value);
    if (k.family == KNOB_PRICE && !(taken && str_starts(scope, STR("model:")))) return false;
    s->n_limits += taken;
    s->passed += !taken;
    return true;
}

static int text_named(struct str name)
{
    int i = 0;
    while (i < KNOB_TEXTS && !str_ieq(name, str_of(knob_texts[i].name)))
        i++;
    return i;
}

/* True when it is one of the texts; one that cannot be read is passed over. */
static bool read_text(struct settings *s, const json_t *item)
{
    int i = text_named(json_member_str(item, "name"));
    struct str value = json_member_str(item, "value"), none = {"", 0};
    struct model_rules *rules = NULL;
    if (i == KNOB_TEXTS) return false;
    bool route = !strcmp(knob_texts[i].name, "route");
    bool good = str_eqz(json_member_str(item, "scope"), "global") && value.n &&
                model_rules_new(&rules, route ? value : none, route ? none : value, NULL) == OK;
    model_rules_unref(rules);
    mem_free(s->texts[i]);
    s->texts[i] = good ? xstrndup(value.p, value.n) : NULL;
    s->n_texts += good;
    s->passed += !good;
    return true;
}

enum err settings_parse(struct settings **out, const json_t *doc, const struct cache_knobs *base,
                        struct errmsg *e)
{
    const json_t *version = json_object_get(doc, "version"),
                 *list = json_object_get(doc, "settings"),
                 *experiment = json_object_get(doc, "experiment");
    if (!json_is_integer(version) || json_integer_value(version) < 0)
        return err_set(e, ERR_INVALID, "version: expected a whole number");
    if (!json_is_array(list) || json_array_size(list) > SETTINGS_MAX)
        return err_set(e, ERR_INVALID, "settings: expected an array of at most %d", SETTINGS_MAX);
    struct settings *s = settings_new(base);
    s->version = (uint64_t)json_integer_value(version);
    if (json_is_object(experiment)) {
        s->runs = experiment_parse(&s->experiment, experiment, NULL) == OK;
        s->passed += !s->runs;
    }
    s->narrow = xcalloc(json_array_size(list) + 1, sizeof *s->narrow);
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct setting *at = &s->narrow[s->n_narrow];
        if (read_limit(s, json_array_get(list, i)) || read_text(s, json_array_get(list, i)))
            continue;
        if (!read_setting(s, json_array_get(list, i), at)) {
            s->passed++;
        } else if (at->kind == SCOPE_GLOBAL) {
            knob_put(&s->global, &at->knob, at->value);
            s->n_global++;
        } else {
            s->n_narrow++;
        }
    }
    limit_rules_finish(s->limits);
    *out = s;
    return OK;
}

uint64_t settings_version(const struct settings *s)
{
    return s->version;
}

size_t settings_count(const struct settings *s)
{
    return s->n_narrow + s->n_global + s->n_limits + s->n_texts;
}

struct str settings_text(const struct settings *s, const char *name)
{
    int i = text_named(str_of(name));
    return i < KNOB_TEXTS && s->texts[i] ? str_of(s->texts[i]) : (struct str){0};
}

size_t settings_passed(const struct settings *s)
{
    return s->passed;
}

const struct limit_rules *settings_limits(const struct settings *s)
{
    return s->limits;
}

const struct experiment *settings_experiment(const struct settings *s)
{
    return s->runs ? &s->experiment : NULL;
}

struct cache_knobs settings_knobs(const struct settings *s, struct str ns, int arm)
{
    struct cache_knobs k = s->global;
    for (size_t i = 0; i < s->n_narrow && ns.n; i++)
        if (s->narrow[i].kind == SCOPE_NS && str_eqz(ns, s->narrow[i].ns))
            knob_put(&k, &s->narrow[i].knob, s->narrow[i].value);
    for (size_t i = 0; i < s->n_narrow && arm >= 0; i++)
        if (s->narrow[i].kind == SCOPE_ARM && s->narrow[i].arm == arm)
            knob_put(&k, &s->narrow[i].knob, s->narrow[i].value);
    return k;
}
