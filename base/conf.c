/* conf.c - finding an option, checking and keeping its value, reading files, environment and arguments. Text output: conf_text.c.
 * Each value remembers the place it came from, so that the order in which the places are read does not matter. */
#define _GNU_SOURCE
#include "base/conf_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum {
    FILE_BYTES_MAX = 1 << 20,
    LIST_BYTES_MAX = 1 << 16,
    STR_BYTES_DEFAULT = 4096,
    NAME_BYTES_MAX = 64
};

/* --- finding */
static char fold(char c)
{
    return c == '-' ? '_' : c;
}

static bool same_name(struct str a, struct str b)
{
    if (a.n != b.n) return false;
    for (size_t i = 0; i < a.n; i++)
        if (fold(a.p[i]) != fold(b.p[i])) return false;
    return true;
}

static struct conf_value *find(const struct conf *c, struct str name)
{
    for (size_t i = 0; i < c->n; i++) {
        struct str aliases = str_of(c->values[i].row->alias), word;
        if (same_name(name, str_of(c->values[i].row->name))) return &c->values[i];
        while (str_next(&aliases, ' ', &word))
            if (same_name(name, word)) return &c->values[i];
    }
    return NULL;
}

static struct conf_value *must_find(const struct conf *c, const char *name)
{
    struct conf_value *v = find(c, str_of(name));
    ASSERT(v);
    return v;
}

static enum err unknown(const struct conf *c, struct str name, struct errmsg *e)
{
    int best = 1 + (int)(name.n / 3), d; /* farther than that is no slip of the finger */
    struct str nearest = {NULL, 0}, shown = str_sub(name, 0, NAME_BYTES_MAX);
    for (size_t i = 0; i < c->n; i++) {
        struct str words = str_of(c->values[i].row->alias), word = str_of(c->values[i].row->name);
        do {
            d = word.n > 1 ? str_distance(name, word) : NAME_BYTES_MAX;
            if (d <= best && (d < best || !nearest.p)) best = d, nearest = word;
        } while (str_next(&words, ' ', &word));
    }
    if (!nearest.p)
        return err_set(e, ERR_NOT_FOUND, "unknown option \"" STR_FMT "\"", STR_ARG(shown));
    return err_set(e, ERR_NOT_FOUND,
                   "unknown option \"" STR_FMT "\": did you mean \"" STR_FMT "\"?", STR_ARG(shown),
                   STR_ARG(nearest));
}

/* --- checking */
static bool read_bool(struct str s, bool *out)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (int i = 0; i < 8; i++) {
        if (!str_ieq(s, str_of(words[i]))) continue;
        *out = i % 2;
        return true;
    }
    return false;
}

static const char *space_unit(const struct conf_row *r)
{
    return *r->unit ? " " : "";
}

static enum err in_range(const struct conf_row *r, double v, struct errmsg *e)
{
    if (r->min == 0 && r->max == 0) return OK;
    if (v < r->min)
        return err_set(e, ERR_RANGE, "%.15g is below %.15g%s%s", v, r->min, space_unit(r), r->unit);
    if (v > r->max)
        return err_set(e, ERR_RANGE, "%.15g is above %.15g%s%s", v, r->max, space_unit(r), r->unit);
    return OK;
}

/* Digits, and for bytes a suffix: 64K 64k 64KB 64KiB are the same. */
static enum err read_int(const struct conf_row *r, struct str s, int64_t *out)
{
    int shift = 0;
    struct str digits = s;
    if (!strcmp(r->unit, "bytes")) {
        if (digits.n > 2 && str_ieq(str_sub(digits, digits.n - 2, 2), STR("ib")))
            digits.n -= 2;
        else if (digits.n > 1 && (digits.p[digits.n - 1] | 32) == 'b')
            digits.n--;
        static const char letters[] = "kmgt";
        const char *at = digits.n > 1 ? strchr(letters, digits.p[digits.n - 1] | 32) : NULL;
        if (at && *at) {
            shift = 10 * (int)(at - letters + 1);
            digits.n--;
        }
    }
    if (str_to_i64(digits, INT64_MIN, INT64_MAX, out)) return ERR_INVALID;
    if (*out > (INT64_MAX >> shift) || *out < (INT64_MIN >> shift)) return ERR_RANGE;
    *out *= (int64_t)1 << shift;
    return OK;
}

static enum err read_str(const struct conf_row *r, struct str s, struct errmsg *e)
{
    size_t most = r->flags & CONF_LIST ? LIST_BYTES_MAX
                  : r->max > 0         ? (size_t)r->max
                                       : STR_BYTES_DEFAULT;
    if (s.n > most)
        return err_set(e, ERR_TOO_LARGE, "%zu bytes long: expected at most %zu", s.n, most);
    if (str_find_char(s, 0) >= 0 || !utf8_valid(s))
        return err_set(e, ERR_INVALID, "expected UTF-8 text without NUL");
    return OK;
}

static enum err bad(const struct conf_row *r, struct str s, const char *expected, struct errmsg *e)
{
    struct str shown = str_sub(s, 0, 64);
    if (r->flags & CONF_SECRET) return err_set(e, ERR_INVALID, "expected %s", expected);
    return err_set(e, ERR_INVALID, "expected %s, got \"" STR_FMT "\"", expected, STR_ARG(shown));
}

/* The checked value in *out, all but its text. */
static enum err check(const struct conf_row *r, struct str s, struct conf_value *out,
                      struct errmsg *e)
{
    switch (r->type) {
    case CONF_BOOL:
        return read_bool(s, &out->b) ? OK : bad(r, s, "true or false", e);
    case CONF_INT:
        if (read_int(r, s, &out->i))
            return bad(
                r, s, !strcmp(r->unit, "bytes") ? "bytes like 1048576 or 1M" : "a whole number", e);
        return in_range(r, (double)out->i, e);
    case CONF_FLOAT:
        return str_to_f64(s, &out->d) ? bad(r, s, "a number", e) : in_range(r, out->d, e);
    default:
        return read_str(r, s, e);
    }
}

/* Values a list has plus one more; the caller frees. */
static char *joined(const struct conf_value *v, struct str more)
{
    struct buf b;
    buf_init(&b, 2 * LIST_BYTES_MAX);
    buf_z(&b, v->text);
    if (*v->text) buf_char(&b, '\n');
    buf_str(&b, more);
    return buf_take(&b, NULL);
}

static enum err keep(struct conf_value *v, enum conf_place place, struct str text, struct errmsg *e)
{
    struct conf_value fresh = {.row = v->row};
    bool append = v->row->flags & CONF_LIST && v->place == place && place != PLACE_SET;
    char *all = append ? joined(v, text) : xstrndup(text.p ? text.p : "", text.n);
    enum err code = append ? check(v->row, text, &fresh, e) : OK;
    if (!code) code = check(v->row, append ? str_of(all) : text, &fresh, e);
    if (code || place < v->place) { /* wrong, or a higher place has spoken */
        mem_free(all);
        if (code) err_prefix(e, code, "option %s", v->row->name);
        return code;
    }
    mem_free(v->text);
    *v = fresh;
    v->text = all;
    v->place = place;
    return OK;
}

static enum err set(struct conf *c, enum conf_place place, struct str name, struct str text,
                    struct errmsg *e)
{
    struct conf_value *v = find(c, name);
    return v ? keep(v, place, text, e) : unknown(c, name, e);
}

struct conf *conf_new(const struct conf_row *rows, size_t n_rows)
{
    struct conf *c = xcalloc(1, sizeof *c);
    c->n = n_rows;
    c->values = xcalloc(n_rows, sizeof *c->values);
    for (size_t i = 0; i < n_rows; i++) {
        ASSERT(strlen(rows[i].name) < NAME_BYTES_MAX);
        c->values[i].row = &rows[i];
        c->values[i].text = xstrdup("");
        enum err code = keep(&c->values[i], PLACE_PRESET, str_of(rows[i].preset), NULL);
        ASSERT(code == OK); /* a default outside its own range */
    }
    return c;
}

void conf_free(struct conf *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n; i++)
        mem_free(c->values[i].text);
    mem_free(c->values);
    mem_free(c);
}

enum err conf_set(struct conf *c, struct str name, struct str value, const char *where,
                  struct errmsg *e)
{
    enum err code = set(c, PLACE_SET, name, value, e);
    if (code && where) err_prefix(e, code, "%s", where);
    return code;
}

/* --- files */
/* Takes a "quoted" value apart in place of the text it came from. ERR_INVALID: no closing quote, or text after it. */
static enum err unquote(struct str s, struct buf *out)
{
    size_t i = 1;
    for (; i < s.n && s.p[i] != '"'; i++) {
        if (s.p[i] == '\\' && i + 1 < s.n && (s.p[i + 1] == '"' || s.p[i + 1] == '\\')) i++;
        buf_char(out, s.p[i]);
    }
    if (i >= s.n) return ERR_INVALID;
    struct str rest = str_trim(str_sub(s, i + 1, s.n));
    return rest.n && *rest.p != '#' ? ERR_INVALID : OK;
}

static struct str without_comment(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '#' && (!i || s.p[i - 1] == ' ' || s.p[i - 1] == '\t'))
            return str_trim(str_sub(s, 0, i));
    return s;
}

static enum err read_line(struct conf *c, struct str line, struct errmsg *e)
{
    line = str_trim(line);
    if (!line.n || *line.p == '#') return OK;
    size_t n = 0;
    while (n < line.n && line.p[n] != ' ' && line.p[n] != '\t' && line.p[n] != '=')
        n++;
    struct str name = str_sub(line, 0, n), value = str_trim(str_sub(line, n, line.n));
    bool equals = value.n && *value.p == '=';
    if (equals) value = str_trim(str_sub(value, 1, value.n));
    struct buf plain;
    buf_init(&plain, LIST_BYTES_MAX);
    enum err code = OK;
    if (value.n && *value.p == '"') {
        code = unquote(value, &plain);
        value = plain.p ? buf_view(&plain) : STR("");
    } else {
        value = without_comment(value);
        if (!value.n && !equals) code = ERR_AGAIN;
    }
    if (code == ERR_INVALID)
        code = err_set(e, ERR_INVALID,
                       "option " STR_FMT ": expected the value to end with its closing quote",
                       STR_ARG(name));
    else if (code)
        code = err_set(e, ERR_INVALID, "option " STR_FMT ": expected a value after the name",
                       STR_ARG(name));
    else
        code = set(c, PLACE_FILE, name, value, e);
    buf_fini(&plain);
    return code;
}

enum err conf_read_text(struct conf *c, const char *path, struct str text, struct errmsg *e)
{
    struct str line;
    for (int n = 1; str_next(&text, '\n', &line); n++) {
        enum err code = read_line(c, line, e);
        if (!code) continue;
        err_prefix(e, code, "%s:%d", path, n);
        return code;
    }
    return OK;
}

enum err conf_read_file(struct conf *c, const char *path, struct errmsg *e)
{
    FILE *f = fopen(path, "rb");
    if (!f) return err_set(e, ERR_NOT_FOUND, "%s: cannot be opened: %m", path);
    char *text = xmalloc(FILE_BYTES_MAX + 1);
    size_t n = fread(text, 1, FILE_BYTES_MAX + 1, f);
    enum err code = OK;
    if (ferror(f))
        code = err_set(e, ERR_IO, "%s: cannot be read", path);
    else if (n > FILE_BYTES_MAX)
        code = err_set(e, ERR_TOO_LARGE, "%s: larger than %d bytes", path, FILE_BYTES_MAX);
    else
        code = conf_read_text(c, path, (struct str){text, n}, e);
    mem_free(text);
    fclose(f);
    return code;
}

/* --- environment */
void conf_env_name(const struct conf_row *r, char out[CONF_ENV_BYTES])
{
    size_t n = (size_t)snprintf(out, CONF_ENV_BYTES, "DEJA_%s", r->name);
    for (size_t i = 0; i < n; i++)
        if (out[i] >= 'a' && out[i] <= 'z') out[i] = (char)(out[i] - 32);
}

static enum err read_variable(struct conf_value *v, struct str text, struct errmsg *e)
{
    struct str word;
    enum err code;
    if (!(v->row->flags & CONF_LIST)) return keep(v, PLACE_ENV, text, e);
    while (str_next(&text, ' ', &word))
        if (word.n && (code = keep(v, PLACE_ENV, word, e))) return code;
    return OK;
}

enum err conf_read_env(struct conf *c, struct errmsg *e)
{
    for (size_t i = 0; i < c->n; i++) {
        char name[CONF_ENV_BYTES];
        conf_env_name(c->values[i].row, name);
        const char *text = getenv(name);
        enum err code = text && *text ? read_variable(&c->values[i], str_of(text), e) : OK;
        if (!code) continue;
        err_prefix(e, code, "%s", name);
        return code;
    }
    return OK;
}

/* --- arguments */
struct args {
    char **argv;
    int argc, i;
};

/* --name, --no-name, --name=value, -m; *value.p stays NULL when none was joined on. */
static enum err read_option(struct conf *c, struct args *a, struct errmsg *e)
{
    struct str arg = str_of(a->argv[a->i]), name = str_sub(arg, arg.p[1] == '-' ? 2 : 1, arg.n),
               value = {NULL, 0};
    ptrdiff_t equals = str_find_char(name, '=');
    if (equals >= 0) {
        value = str_sub(name, (size_t)equals + 1, name.n);
        name = str_sub(name, 0, (size_t)equals);
    }
    struct conf_value *v = find(c, name);
    bool negated = !v && str_starts(name, STR("no-")), yes, next = a->i + 1 < a->argc;
    if (negated) v = find(c, str_sub(name, 3, name.n));
    if (!v || (negated && v->row->type != CONF_BOOL)) {
        bool config = same_name(name, STR("config"));
        if (!config) return unknown(c, name, e);
        if (!value.p && !next)
            return err_set(e, ERR_INVALID, "option config: expected a file name after --config");
        return conf_read_file(c, value.p ? value.p : a->argv[++a->i], e);
    }
    if (negated)
        return value.p ? err_set(e, ERR_INVALID, "option %s: --no-... takes no value", v->row->name)
                       : keep(v, PLACE_ARGS, STR("false"), e);
    if (v->row->type == CONF_BOOL && !value.p &&
        !(next && read_bool(str_of(a->argv[a->i + 1]), &yes)))
        return keep(v, PLACE_ARGS, STR("true"), e);
    if (!value.p && (!next || !strncmp(a->argv[a->i + 1], "--", 2)))
        return err_set(e, ERR_INVALID, "option %s: expected a value after " STR_FMT, v->row->name,
                       STR_ARG(arg));
    return keep(v, PLACE_ARGS, value.p ? value : str_of(a->argv[++a->i]), e);
}

enum err conf_read_args(struct conf *c, int argc, char **argv, struct errmsg *e)
{
    for (struct args a = {argv, argc, 1}; a.i < argc; a.i++) {
        const char *arg = argv[a.i];
        c->help_as_markdown = !strcmp(arg, "--help-markdown");
        bool help = c->help_as_markdown || !strcmp(arg, "--help") ||
                    (!strcmp(arg, "-h") && !find(c, STR("h")));
        if (help) return err_set(e, ERR_CANCELLED, "help was asked for");
        if (arg[0] != '-' || !arg[1] || !strcmp(arg, "--"))
            return err_set(e, ERR_INVALID,
                           "unexpected argument \"%.64s\": options look like --name value", arg);
        enum err code = read_option(c, &a, e);
        if (code) return code;
    }
    return OK;
}

/* --- reading values */
bool conf_bool(const struct conf *c, const char *name)
{
    const struct conf_value *v = must_find(c, name);
    ASSERT(v->row->type == CONF_BOOL);
    return v->b;
}

int64_t conf_int(const struct conf *c, const char *name)
{
    const struct conf_value *v = must_find(c, name);
    ASSERT(v->row->type == CONF_INT);
    return v->i;
}

double conf_float(const struct conf *c, const char *name)
{
    const struct conf_value *v = must_find(c, name);
    ASSERT(v->row->type == CONF_FLOAT);
    return v->d;
}

const char *conf_str(const struct conf *c, const char *name)
{
    return must_find(c, name)->text;
}
bool conf_is_set(const struct conf *c, const char *name)
{
    return must_find(c, name)->place != PLACE_PRESET;
}
