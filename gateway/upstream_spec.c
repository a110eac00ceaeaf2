/* upstream_spec.c - see upstream_spec.h. */
#include "gateway/upstream_spec.h"

#include <stdio.h>
#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool next_word(struct str *rest, struct str *word)
{
    size_t i = 0;
    while (i < rest->n && is_blank(rest->p[i]))
        i++;
    size_t from = i;
    while (i < rest->n && !is_blank(rest->p[i]))
        i++;
    *word = str_sub(*rest, from, i - from);
    *rest = str_sub(*rest, i, rest->n - i);
    return word->n > 0;
}

static bool begins_with_url(struct str line)
{
    return str_starts(line, STR("http://")) || str_starts(line, STR("https://"));
}

static struct str without_comment(struct str line)
{
    for (size_t i = 0; i < line.n; i++)
        if (line.p[i] == '#' && (!i || is_blank(line.p[i - 1]))) return str_sub(line, 0, i);
    return line;
}

bool upstream_spec_next(struct str *text, struct buf *line)
{
    struct str one, after;
    bool any = false;
    buf_clear(line);
    while (after = *text, str_next(&after, '\n', &one)) {
        one = str_trim(without_comment(one));
        if (any && begins_with_url(one)) return true;
        *text = after;
        if (!one.n) continue;
        if (any) buf_char(line, ' ');
        buf_str(line, one);
        any = true;
    }
    return any;
}

static enum err bad(struct errmsg *e, struct str name, const char *what)
{
    return err_set(e, ERR_INVALID, STR_FMT ": expected %s", STR_ARG(str_sub(name, 0, 40)), what);
}

static enum err take_text(char *out, size_t cap, struct str name, struct str value,
                          struct errmsg *e)
{
    char what[64];
    snprintf(what, sizeof what, "1 to %zu characters", cap - 1);
    if (!value.n || value.n >= cap) return bad(e, name, what);
    memcpy(out, value.p, value.n);
    out[value.n] = 0;
    return OK;
}

static enum err take_models(struct upstream_spec *s, struct str value, struct errmsg *e)
{
    struct str list = value, item;
    size_t n = 0;
    while (str_next(&list, ',', &item)) {
        struct str alias, name = item;
        bool good = item.n && str_next(&name, '=', &alias) && alias.n;
        bool mapped = good && alias.n < item.n;
        if (!good || (mapped && !name.n) || n + item.n + 2 > sizeof s->models)
            return bad(
                e, STR("models"),
                "names with commas between them, `alias=name` or *, as in gpt-4o,fast=gpt-4o-mini");
        memcpy(s->models + n, item.p, item.n);
        n += item.n;
        s->models[n++] = ',';
    }
    s->models[n] = 0;
    return n ? OK : bad(e, STR("models"), "at least one name");
}

static enum err take_int(int *out, struct str name, struct str value, int max, struct errmsg *e)
{
    int64_t v;
    char what[64];
    snprintf(what, sizeof what, "a whole number from 1 to %d", max);
    if (str_to_i64(value, 1, max, &v) != OK) return bad(e, name, what);
    *out = (int)v;
    return OK;
}

static enum err take_option(struct upstream_spec *s, struct str name, struct str value,
                            struct errmsg *e)
{
    struct {
        const char *name;
        int *value;
        int max;
    } ints[] = {{"max_concurrency", &s->max_concurrency, SPEC_CONCURRENCY_MAX},
                {"connect_ms", &s->connect_ms, 60000},
                {"first_byte_ms", &s->first_byte_ms, 3600000},
                {"idle_ms", &s->idle_ms, 3600000},
                {"total_ms", &s->total_ms, 86400000}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        if (str_eqz(name, ints[i].name))
            return take_int(ints[i].value, name, value, ints[i].max, e);
    if (str_eqz(name, "models")) return take_models(s, value, e);
    if (str_eqz(name, "key_file"))
        return take_text(s->key_file, sizeof s->key_file, name, value, e);
    if (str_eqz(name, "key_env")) return take_text(s->key_env, sizeof s->key_env, name, value, e);
    if (str_eqz(name, "kv_events") || str_eqz(name, "kv_replay"))
        return str_starts(value, STR("tcp://"))
                   ? take_text(str_eqz(name, "kv_events") ? s->kv_events : s->kv_replay,
                               sizeof s->kv_events, name, value, e)
                   : bad(e, name, "tcp://host:port");
    if (str_eqz(name, "weight")) {
        if (str_to_f64(value, &s->weight) == OK && s->weight >= 0.001 &&
            s->weight <= SPEC_WEIGHT_MAX)
            return OK;
        return bad(e, name, "a number from 0.001 to 1000");
    }
    return err_set(e, ERR_INVALID,
                   "\"" STR_FMT "\" is no option of an upstream; there are models, weight, "
                   "max_concurrency, key_file, key_env, kv_events, kv_replay, connect_ms, "
                   "first_byte_ms, idle_ms, "
                   "total_ms",
                   STR_ARG(str_sub(name, 0, 40)));
}

enum err upstream_spec_parse(struct str line, struct upstream_spec *out, struct errmsg *e)
{
    struct str word, rest = line;
    *out = (struct upstream_spec){.weight = 1};
    if (!next_word(&rest, &word)) return err_set(e, ERR_INVALID, "expected a URL");
    enum err code = http_origin_parse(word, &out->origin, e);
    while (code == OK && next_word(&rest, &word)) {
        struct str name, value = word;
        if (str_find_char(word, '=') < 0 || !str_next(&value, '=', &name))
            return err_set(e, ERR_INVALID, "\"" STR_FMT "\": expected option=value",
                           STR_ARG(str_sub(word, 0, 40)));
        code = take_option(out, name, value, e);
    }
    if (code == OK && out->key_file[0] && out->key_env[0])
        return err_set(e, ERR_INVALID, "key_file and key_env: give one of them");
    return code;
}

enum spec_serves upstream_spec_serves(const struct upstream_spec *s, struct str model,
                                      struct str *name)
{
    struct str list = str_of(s->models), item;
    enum spec_serves found = s->models[0] ? SPEC_NOT : SPEC_ANY;
    *name = model;
    if (!model.n) return SPEC_ANY; /* of no model: any will do */
    while (str_next(&list, ',', &item)) {
        struct str alias, theirs = item;
        if (!item.n || !str_next(&theirs, '=', &alias)) continue;
        if (str_eq(alias, model)) {
            *name = alias.n < item.n ? theirs : model;
            return SPEC_NAMED;
        }
        if (str_eqz(item, "*")) found = SPEC_ANY;
    }
    return found;
}
