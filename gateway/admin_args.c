/* admin_args.c - see admin_args.h. */
#include "gateway/admin_args.h"

#include <stdio.h>
#include <string.h>

enum { ARGS_BYTES_MAX = 256 * 1024, FIELDS_MAX = 8, MEMBERS_MAX = 64 };

enum field_kind { FIELD_TEXT, FIELD_VALUE /* text, number, yes or no; null = unset */, FIELD_FLAG };
struct field {
    const char *member;
    const char
        *word; /* stands before the value; NULL = the value alone. Of a flag: the word itself */
    enum field_kind kind;
    bool required;
};
struct endpoint {
    const char *method, *path, *function;
    const char *first, *last; /* words before and after the rest, or NULL */
    enum admin_form form;
    struct field fields[FIELDS_MAX];
};

#define WHO                                                                                        \
    {                                                                                              \
        "who", "BY", FIELD_TEXT, false                                                             \
    }
#define NOTE                                                                                       \
    {                                                                                              \
        "note", "NOTE", FIELD_TEXT, false                                                          \
    }
static const struct endpoint endpoints[] = {
    {"GET",
     "/admin/config",
     "deja_config_get",
     NULL,
     "JSON",
     ADMIN_JSON,
     {{"ns", "", FIELD_FLAG, false}}},
    {"PUT",
     "/admin/config",
     "deja_config_set",
     NULL,
     NULL,
     ADMIN_TEXT,
     {{"name", NULL, FIELD_TEXT, true},
      {"value", NULL, FIELD_VALUE, true},
      {"scope", "IN", FIELD_TEXT, false},
      WHO,
      NOTE}},
    {"GET",
     "/admin/history",
     "deja_config_history",
     NULL,
     "JSON",
     ADMIN_JSON,
     {{"count", NULL, FIELD_VALUE, false}}},
    {"POST",
     "/admin/rollback",
     "deja_config_rollback",
     NULL,
     NULL,
     ADMIN_LINES,
     {{"to", "TO", FIELD_VALUE, false}, WHO, NOTE}},
    {"POST",
     "/admin/forget",
     "deja_forget",
     NULL,
     NULL,
     ADMIN_PAIRS,
     {{"by", NULL, FIELD_TEXT, true},
      {"value", NULL, FIELD_TEXT, false},
      {"dry_run", "dry", FIELD_FLAG, false}}},
    {"POST",
     "/admin/feedback",
     "deja_feedback",
     NULL,
     NULL,
     ADMIN_PAIRS,
     {{"entry", NULL, FIELD_TEXT, true},
      {"verdict", NULL, FIELD_TEXT, true},
      {"query", NULL, FIELD_TEXT, false},
      {"arm", "ARM", FIELD_TEXT, false},
      WHO}},
    {"GET",
     "/admin/review",
     "deja_review",
     "list",
     "JSON",
     ADMIN_JSON,
     {{"ns", "IN", FIELD_TEXT, false},
      {"count", "COUNT", FIELD_VALUE, false},
      {"what", "WHAT", FIELD_TEXT, false}}},
    {"POST",
     "/admin/review",
     "deja_review",
     NULL,
     NULL,
     ADMIN_TEXT,
     {{"action", NULL, FIELD_TEXT, true}, {"id", NULL, FIELD_TEXT, true}, WHO}},
    {"GET",
     "/admin/experiments",
     "deja_experiment_report",
     NULL,
     "JSON",
     ADMIN_JSON,
     {{"name", NULL, FIELD_TEXT, false}}},
    {"POST",
     "/admin/experiments",
     "deja_experiment_start",
     NULL,
     NULL,
     ADMIN_LINES,
     {{"name", NULL, FIELD_TEXT, true},
      {"split", "SPLIT", FIELD_TEXT, false},
      {"ns", "IN", FIELD_TEXT, false},
      {"salt", "SALT", FIELD_TEXT, false},
      WHO,
      NOTE}},
    {"DELETE", "/admin/experiments", "deja_experiment_stop", NULL, "JSON", ADMIN_JSON, {WHO, NOTE}},
    {"GET",
     "/admin/stats",
     "deja_stats",
     NULL,
     "JSON",
     ADMIN_JSON,
     {{"hours", "HOURS", FIELD_VALUE, false}, {"ns", "IN", FIELD_TEXT, false}}},
    {"GET",
     "/admin/limits",
     "deja_limit_status",
     NULL,
     "JSON",
     ADMIN_JSON,
     {{"bucket", NULL, FIELD_TEXT, false}}},
    {"GET",
     "/admin/seed",
     "deja_seeds",
     NULL,
     NULL,
     ADMIN_LINES,
     {{"set", NULL, FIELD_TEXT, false}}},
    {"POST",
     "/admin/limits",
     "deja_limit_reset",
     NULL,
     NULL,
     ADMIN_TEXT,
     {{"bucket", NULL, FIELD_TEXT, true}, {"money", "MONEY", FIELD_FLAG, false}}},
};
enum { N_ENDPOINTS = sizeof endpoints / sizeof *endpoints };

static void add(struct admin_call *c, struct str text)
{
    buf_str(&c->args, text);
    buf_char(&c->args, 0);
    c->n_args++;
}

static enum err refuse(struct openai_error *e, const char *member, const char *what)
{
    openai_error_set(e, 400, "invalid_request_error", member, "", "%s: %s", member, what);
    return ERR_INVALID;
}

/* The text of a value that may be given as a string, a number, a boolean or null; false for others, and for text with a NUL in it. */
static bool value_text(const json_t *v, char *scratch, size_t cap, struct str *out)
{
    if (json_is_string(v)) {
        *out = json_str(v);
        return !out->n || !memchr(out->p, 0, out->n);
    }
    if (json_is_integer(v))
        snprintf(scratch, cap, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        snprintf(scratch, cap, "%.15g", json_real_value(v));
    else if (json_is_boolean(v))
        snprintf(scratch, cap, "%s", json_is_true(v) ? "yes" : "no");
    else if (json_is_null(v))
        snprintf(scratch, cap, "unset");
    else
        return false;
    *out = str_of(scratch);
    return true;
}

static enum err add_field(struct admin_call *c, const struct field *f, const json_t *doc,
                          const char *who, struct openai_error *e)
{
    char scratch[40];
    struct str text;
    const json_t *v = json_object_get(doc, f->member);
    bool is_who = !strcmp(f->member, "who");
    if (!v && is_who) {
        add(c, str_of(f->word));
        add(c, str_of(who));
        return OK;
    }
    if (!v) return f->required ? refuse(e, f->member, "is missing") : OK;
    if (f->kind == FIELD_FLAG) {
        bool yes = json_is_true(v) || str_eqz(json_str(v), "true") || str_eqz(json_str(v), "1");
        if (!f->word[0]) return OK; /* read by the caller */
        if (!yes && !json_is_false(v) && !str_eqz(json_str(v), "false") &&
            !str_eqz(json_str(v), "0"))
            return refuse(e, f->member, "expected true or false");
        if (yes) add(c, str_of(f->word));
        return OK;
    }
    if (f->kind == FIELD_TEXT && !json_is_string(v))
        return refuse(e, f->member, "expected a string");
    if (!value_text(v, scratch, sizeof scratch, &text))
        return refuse(e, f->member, "expected a string, a number or a boolean");
    if (f->word) add(c, str_of(f->word));
    add(c, text);
    return OK;
}

static enum err add_arm(struct admin_call *c, const json_t *arm, size_t i, struct openai_error *e)
{
    char where[96], scratch[40];
    struct str text;
    const char *name;
    json_t *v;
    const json_t *percent = json_object_get(arm, "percent"), *knobs = json_object_get(arm, "knobs");
    snprintf(where, sizeof where, "arms[%zu].name", i);
    if (!value_text(json_object_get(arm, "name"), scratch, sizeof scratch, &text))
        return refuse(e, where, "expected a string");
    add(c, STR("ARM"));
    add(c, text);
    snprintf(where, sizeof where, "arms[%zu].percent", i);
    if (percent && !json_is_number(percent)) return refuse(e, where, "expected a number");
    if (percent && value_text(percent, scratch, sizeof scratch, &text)) {
        add(c, STR("PERCENT"));
        add(c, text);
    }
    snprintf(where, sizeof where, "arms[%zu].knobs", i);
    if (knobs && !json_is_object(knobs)) return refuse(e, where, "expected an object");
    json_object_foreach((json_t *)knobs, name, v)
    {
        snprintf(where, sizeof where, "arms[%zu].knobs.%.40s", i, name);
        if (!value_text(v, scratch, sizeof scratch, &text) || json_is_null(v))
            return refuse(e, where, "expected a string, a number or a boolean");
        add(c, str_of(name));
        add(c, text);
    }
    return OK;
}

static enum err add_arms(struct admin_call *c, const json_t *doc, struct openai_error *e)
{
    const json_t *arms = json_object_get(doc, "arms");
    enum err code = OK;
    if (!json_is_array(arms) || json_array_size(arms) > MEMBERS_MAX)
        return refuse(e, "arms", "expected an array of 2 to 8 arms");
    for (size_t i = 0; i < json_array_size(arms) && code == OK; i++)
        code = add_arm(c, json_array_get(arms, i), i, e);
    return code;
}

/* Members no field takes are refused: a slip must not be taken for done. */
static enum err check_members(const struct endpoint *p, const json_t *doc, struct openai_error *e)
{
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)doc, name, v)
    {
        bool known = !strcmp(name, "arms") && !strcmp(p->function, "deja_experiment_start");
        char shown[48];
        for (int i = 0; i < FIELDS_MAX && p->fields[i].member && !known; i++)
            known = !strcmp(p->fields[i].member, name);
        if (known) continue;
        snprintf(shown, sizeof shown, "%.40s", name[0] ? name : "(empty)");
        return refuse(e, shown, "is not known here");
    }
    return OK;
}

static const struct endpoint *find(struct str method, struct str path, const char **allow)
{
    static const struct {
        const char *path, *allow;
    } ways[] = {{"/admin/config", "GET, PUT"},
                {"/admin/review", "GET, POST"},
                {"/admin/limits", "GET, POST"},
                {"/admin/seed", "GET, POST, DELETE"},
                {"/admin/experiments", "GET, POST, DELETE"}};
    *allow = NULL;
    for (size_t i = 0; i < N_ENDPOINTS; i++) {
        if (!str_eqz(path, endpoints[i].path)) continue;
        if (str_eqz(method, endpoints[i].method)) return &endpoints[i];
        *allow = endpoints[i].method;
    }
    for (size_t i = 0; i < sizeof ways / sizeof *ways && *allow; i++)
        if (str_eqz(path, ways[i].path)) *allow = ways[i].allow;
    return NULL;
}

static enum err fill(struct admin_call *c, const struct endpoint *p, const json_t *doc,
                     const char *who, struct openai_error *e)
{
    enum err code = check_members(p, doc, e);
    if (p->first) add(c, str_of(p->first));
    for (int i = 0; i < FIELDS_MAX && p->fields[i].member && code == OK; i++)
        code = add_field(c, &p->fields[i], doc, who, e);
    if (code == OK && !strcmp(p->function, "deja_experiment_start")) code = add_arms(c, doc, e);
    if (p->last) add(c, str_of(p->last));
    if (code == OK && buf_failed(&c->args)) code = refuse(e, "body", "is too long");
    return code;
}

enum err admin_call_make(struct admin_call *out, struct str method, struct str path,
                         struct str query, const json_t *body, const char *who, const char **allow,
                         struct openai_error *e)
{
    const struct endpoint *p = find(method, path, allow);
    if (!p) return *allow ? ERR_UNSUPPORTED : ERR_NOT_FOUND;
    json_t *from_query = body ? NULL : admin_query(query);
    if (!body && !from_query) return refuse(e, "query", "is malformed");
    const json_t *doc = body ? body : from_query;
    if (!json_is_object(doc)) return refuse(e, "body", "expected a JSON object");
    *out = (struct admin_call){.function = p->function, .form = p->form};
    buf_init(&out->args, ARGS_BYTES_MAX);
    enum err code = fill(out, p, doc, who, e);
    json_decref(from_query);
    if (code != OK) admin_call_fini(out);
    return code;
}

void admin_call_fini(struct admin_call *c)
{
    buf_fini(&c->args);
}

/* --- the query */
static bool decode(struct str s, struct buf *out)
{
    buf_clear(out);
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i] == '+' ? ' ' : s.p[i];
        if (c == '%') {
            int byte = str_percent(s, i);
            if (byte < 0) return false;
            c = (char)byte;
            i += 2;
        }
        if (!c) return false;
        buf_char(out, c);
    }
    buf_add(out, "", 0);
    return !buf_failed(out);
}

json_t *admin_query(struct str query)
{
    json_t *doc = json_object();
    struct str item;
    struct buf name, value;
    bool good = true;
    buf_init(&name, 4096);
    buf_init(&value, 64 * 1024);
    for (int n = 0; good && str_next(&query, '&', &item); n++) {
        struct str left, right = item;
        if (!str_next(&right, '=', &left)) continue;
        good = n < MEMBERS_MAX && decode(left, &name) && decode(right, &value) &&
               utf8_valid(buf_view(&name)) && utf8_valid(buf_view(&value));
        if (good)
            json_object_set_new(doc, name.p ? name.p : "",
                                json_stringn(value.p ? value.p : "", value.n));
    }
    buf_fini(&name);
    buf_fini(&value);
    if (good) return doc;
    json_decref(doc);
    return NULL;
}
