/* settings.c - see settings.h. A short list scanned in order: a handful of settings, one request a scan. */
#include "gateway/settings.h"

#include <string.h>

#include "base/mem.h"

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
    size_t n_narrow, n_global, passed;
};

struct settings *settings_new(const struct cache_knobs *base)
{
    struct settings *s = xcalloc(1, sizeof *s);
    s->global = *base;
    return s;
}

void settings_free(struct settings *s)
{
    if (!s) return;
    mem_free(s->narrow);
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
        if (!read_setting(s, json_array_get(list, i), at)) {
            s->passed++;
        } else if (at->kind == SCOPE_GLOBAL) {
            knob_put(&s->global, &at->knob, at->value);
            s->n_global++;
        } else {
            s->n_narrow++;
        }
    }
    *out = s;
    return OK;
}

uint64_t settings_version(const struct settings *s)
{
    return s->version;
}

size_t settings_count(const struct settings *s)
{
    return s->n_narrow + s->n_global;
}

size_t settings_passed(const struct settings *s)
{
    return s->passed;
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
