/* seed_file.c - see seed_file.h. A row of a CSV becomes an object, so that both forms are checked by the same code. */
#include "cache/seed_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum { COLUMNS_MAX = 32, LINE_BYTES_MAX = 1 << 20 };

enum member { M_TEXT, M_LIST, M_TTL, M_ANY };
static const struct {
    const char *name;
    enum member kind;
    const char *same_as; /* another name of */
} members[] = {
    {"question", M_TEXT, NULL}, {"q", M_TEXT, "question"},    {"answer", M_TEXT, NULL},
    {"wordings", M_LIST, NULL}, {"same", M_LIST, "wordings"}, {"near", M_LIST, NULL},
    {"tags", M_LIST, NULL},     {"lang", M_TEXT, NULL},       {"namespace", M_TEXT, NULL},
    {"tenant", M_TEXT, NULL},   {"model", M_TEXT, NULL},      {"ttl", M_TTL, NULL},
    {"id", M_ANY, NULL},        {"domain", M_ANY, NULL},      {"note", M_ANY, NULL}};
enum { N_MEMBERS = sizeof members / sizeof *members };

static int member_of(struct str name)
{
    for (int i = 0; i < N_MEMBERS; i++)
        if (str_eqz(name, members[i].name)) return i;
    return -1;
}

PRINTF_LIKE(3, 4)
static void problem(struct seed_file *f, int line, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *at = text; *at; at++) /* one line each, whatever a name in the file holds */
        if ((unsigned char)*at < ' ' || *at == 127) *at = ' ';
    if (++f->n_problems <= SEED_PROBLEMS_MAX) buf_printf(&f->problems, "%d: %s\n", line, text);
}

static void unknown_member(struct seed_file *f, int line, struct str name)
{
    int best = 3, nearest = -1;
    for (int i = 0; i < N_MEMBERS; i++) {
        int d = str_distance(name, str_of(members[i].name));
        if (d < best) best = d, nearest = i;
    }
    struct str shown = str_sub(name, 0, 40);
    if (nearest >= 0)
        problem(f, line, "\"" STR_FMT "\" is unknown: did you mean \"%s\"?", STR_ARG(shown),
                members[nearest].name);
    else
        problem(f, line,
                "\"" STR_FMT
                "\" is unknown; known are question, answer, wordings, near, tags, lang, "
                "namespace, tenant, model, ttl",
                STR_ARG(shown));
}

/* --- one object */
static struct str text_of(struct seed_file *f, struct seed *s, const char *name, size_t max)
{
    const json_t *v = json_object_get(s->json, name);
    struct str text = str_trim(json_str(v));
    if (!v || json_is_null(v)) return (struct str){"", 0};
    if (!json_is_string(v))
        problem(f, s->line, "%s: expected a string, not %s", name, json_kind(v));
    else if (text.n > max)
        problem(f, s->line, "%s: has %zu bytes, at most %zu may be", name, text.n, max);
    return text.p ? text : (struct str){"", 0};
}

static int list_of(struct seed_file *f, struct seed *s, const char *name, struct str *out)
{
    const json_t *v = json_object_get(s->json, name), *item;
    size_t i;
    int n = 0;
    if (!v || json_is_null(v)) return 0;
    if (!json_is_array(v)) {
        problem(f, s->line, "%s: expected an array of strings, not %s", name, json_kind(v));
        return 0;
    }
    if (json_array_size(v) > SEED_TEXTS_MAX) {
        problem(f, s->line, "%s: has %zu texts, at most %d may be", name, json_array_size(v),
                SEED_TEXTS_MAX);
        return 0;
    }
    json_array_foreach(v, i, item)
    {
        struct str text = str_trim(json_str(item));
        if (!text.n || text.n > SEED_TEXT_BYTES_MAX)
            problem(f, s->line, "%s[%zu]: expected a string of 1 to %d bytes", name, i,
                    SEED_TEXT_BYTES_MAX);
        else
            out[n++] = text;
    }
    return n;
}

static int texts_of(struct seed_file *f, struct seed *s, const char *name, struct str **out)
{
    struct str texts[SEED_TEXTS_MAX];
    int n = list_of(f, s, name, texts);
    if (!n) return 0;
    *out = xcalloc((size_t)n, sizeof **out);
    memcpy(*out, texts, (size_t)n * sizeof **out);
    return n;
}

static void add_tag(struct seed_file *f, struct seed *s, const char *prefix, struct str tag)
{
    size_t n = strlen(s->tags);
    if (!tag.n) return;
    if (str_find_char(tag, ',') >= 0)
        problem(f, s->line, "tags: \"" STR_FMT "\" must not hold a comma",
                STR_ARG(str_sub(tag, 0, 40)));
    else if (n + strlen(prefix) + tag.n + 1 >= sizeof s->tags)
        problem(f, s->line, "tags: together longer than %zu bytes", sizeof s->tags - 1);
    else
        snprintf(s->tags + n, sizeof s->tags - n, "%s%s" STR_FMT, n ? "," : "", prefix,
                 STR_ARG(tag));
}

static void read_tags(struct seed_file *f, struct seed *s)
{
    const json_t *v = json_object_get(s->json, "tags");
    struct str texts[SEED_TEXTS_MAX], list = json_str(v), tag;
    if (json_is_string(v)) {
        while (str_next(&list, ',', &tag))
            add_tag(f, s, "", str_trim(tag));
    } else {
        int n = list_of(f, s, "tags", texts);
        for (int i = 0; i < n; i++)
            add_tag(f, s, "", texts[i]);
    }
    add_tag(f, s, "lang:", text_of(f, s, "lang", 16));
}

static void read_ttl(struct seed_file *f, struct seed *s, int64_t preset)
{
    const json_t *v = json_object_get(s->json, "ttl");
    int64_t ttl = -1;
    s->ttl_s = preset;
    if (!v || json_is_null(v)) return;
    if (json_is_integer(v))
        ttl = json_integer_value(v);
    else if (str_to_i64(json_str(v), 0, INT32_MAX, &ttl) != OK)
        ttl = -1;
    if (ttl < 0 || ttl > INT32_MAX)
        problem(f, s->line,
                "ttl: expected whole seconds from 1 on, or 0 for an answer that never ends");
    else
        s->ttl_s = ttl;
}

static struct str or_else(struct str given, const json_t *json, const char *name, struct str preset)
{
    return json_object_get(json, name) ? given : preset;
}

static void check_names(struct seed_file *f, struct seed *s)
{
    const char *name;
    json_t *v;
    json_object_foreach(s->json, name, v)
    {
        int m = member_of(str_of(name));
        (void)v;
        if (m < 0)
            unknown_member(f, s->line, str_of(name));
        else if (members[m].same_as && json_object_get(s->json, members[m].same_as))
            problem(f, s->line, "%s and %s are the same: give one of them", name,
                    members[m].same_as);
    }
    for (int i = 0; i < N_MEMBERS; i++) {
        json_t *other = members[i].same_as ? json_object_get(s->json, members[i].name) : NULL;
        if (other && !json_object_get(s->json, members[i].same_as))
            json_object_set(s->json, members[i].same_as, other);
    }
}

/* Takes json. */
static void read_item(struct seed_file *f, int line, json_t *json, const struct seed_defaults *d)
{
    if (f->n == f->n_room) {
        f->n_room = f->n_room ? 2 * f->n_room : 64;
        f->items = xrealloc(f->items, f->n_room * sizeof *f->items);
    }
    struct seed *s = &f->items[f->n++];
    memset(s, 0, sizeof *s);
    s->line = line;
    s->json = json;
    check_names(f, s);
    s->question = text_of(f, s, "question", SEED_TEXT_BYTES_MAX);
    s->answer = text_of(f, s, "answer", SEED_ANSWER_BYTES_MAX);
    if (!s->question.n) problem(f, line, "question: missing or empty");
    if (!s->answer.n) problem(f, line, "answer: missing or empty");
    s->ns = or_else(text_of(f, s, "namespace", 63), json, "namespace", d->ns);
    s->tenant = or_else(text_of(f, s, "tenant", 512), json, "tenant", d->tenant);
    s->model = or_else(text_of(f, s, "model", 127), json, "model", d->model);
    s->n_wordings = texts_of(f, s, "wordings", &s->wordings);
    s->n_near = texts_of(f, s, "near", &s->near);
    read_tags(f, s);
    read_ttl(f, s, d->ttl_s);
}

/* --- JSON lines */
static void read_lines(struct seed_file *f, struct str text, const struct seed_defaults *d)
{
    struct str line;
    for (int n = 1; str_next(&text, '\n', &line); n++) {
        struct errmsg e = {0};
        json_t *json = NULL;
        line = str_trim(line);
        if (!line.n) continue;
        if (f->n >= SEED_ITEMS_MAX) {
            problem(f, n, "at most %d answers may be in one file", SEED_ITEMS_MAX);
            return;
        }
        if (json_parse(line, 8, &json, &e) != OK) {
            problem(f, n, "%s; expected {\"question\":\"...\",\"answer\":\"...\"}", e.text);
        } else if (!json_is_object(json)) {
            problem(f, n, "expected an object, not %s", json_kind(json));
            json_decref(json);
        } else {
            read_item(f, n, json, d);
        }
    }
}

/* --- CSV (RFC 4180: "quoted, with "" and line breaks") */
struct csv {
    struct str rest;
    int line; /* of what comes next */
};

/* One field; *last: it ended its row. False: a quote is never closed. */
static bool csv_field(struct csv *c, struct buf *out, bool *last)
{
    struct str s = c->rest;
    size_t i = 0;
    bool quoted = s.n && s.p[0] == '"';
    buf_clear(out);
    if (quoted) {
        for (i = 1; i < s.n; i++) {
            if (s.p[i] == '"' && i + 1 < s.n && s.p[i + 1] == '"')
                i++;
            else if (s.p[i] == '"')
                break;
            if (s.p[i] == '\n') c->line++;
            buf_char(out, s.p[i]);
        }
        if (i >= s.n) return false;
        i++;
    }
    for (; i < s.n && s.p[i] != ',' && s.p[i] != '\n'; i++)
        if (s.p[i] != '\r' || (i + 1 < s.n && s.p[i + 1] != '\n')) buf_char(out, s.p[i]);
    *last = i >= s.n || s.p[i] == '\n';
    if (*last) c->line++;
    c->rest = str_sub(s, i < s.n ? i + 1 : s.n, SIZE_MAX);
    return true;
}

static json_t *csv_value(int member, struct str text)
{
    struct str part;
    if (members[member].kind != M_LIST || !strcmp(members[member].name, "tags"))
        return json_stringn(text.p ? text.p : "", text.n);
    json_t *list = json_array();
    while (str_next(&text, '|', &part))
        if (str_trim(part).n)
            json_array_append_new(list, json_stringn(str_trim(part).p, str_trim(part).n));
    return list;
}

static int csv_header(struct seed_file *f, struct csv *c, int *columns)
{
    struct buf field;
    int n = 0;
    bool last = false;
    buf_init(&field, LINE_BYTES_MAX);
    while (!last && n < COLUMNS_MAX && csv_field(c, &field, &last)) {
        columns[n] = member_of(str_trim(buf_view(&field)));
        if (columns[n] < 0) unknown_member(f, 1, str_trim(buf_view(&field)));
        for (int i = 0; i < n && columns[n] >= 0; i++)
            if (!strcmp(members[columns[i]].name, members[columns[n]].name))
                problem(f, 1, "two columns are the %s", members[columns[n]].name);
        n++;
    }
    if (!last)
        problem(f, 1, "expected a first line with the names of at most %d columns", COLUMNS_MAX);
    buf_fini(&field);
    return f->n_problems ? 0 : n;
}

static void read_csv(struct seed_file *f, struct str text, const struct seed_defaults *d)
{
    struct csv c = {text, 1};
    int columns[COLUMNS_MAX], n_columns = csv_header(f, &c, columns);
    struct buf field;
    buf_init(&field, LINE_BYTES_MAX);
    while (n_columns && c.rest.n && !f->n_problems) {
        int line = c.line, n = 0;
        bool last = false, closed = true;
        json_t *json = json_object();
        while (!last && (closed = csv_field(&c, &field, &last))) {
            if (n < n_columns && field.n)
                json_object_set_new(json, members[columns[n]].name,
                                    csv_value(columns[n], buf_view(&field)));
            n++;
        }
        bool blank = closed && n == 1 && !field.n;
        if (!closed)
            problem(f, line, "a \" is never closed; a \" inside a text is written twice");
        else if (buf_failed(&field))
            problem(f, line, "a field is not UTF-8 or too long");
        else if (!blank && n != n_columns)
            problem(f, line, "has %d columns, the first line %d; a text with commas needs quotes",
                    n, n_columns);
        if (blank || f->n_problems || f->n >= SEED_ITEMS_MAX)
            json_decref(json);
        else
            read_item(f, line, json, d);
    }
    buf_fini(&field);
}

/* --- contradictions: which answer does a text of a scope lead to? */
struct claim {
    struct hash128 text;
    uint32_t item;
    bool own;
};

static struct hash128 scope_text(const struct seed *s, struct str text)
{
    struct hasher h;
    hasher_open(&h, 1);
    hasher_field(&h, 'n', s->ns);
    hasher_field(&h, 't', s->tenant);
    hasher_field(&h, 'm', s->model);
    hasher_field(&h, 'q', text);
    return hasher_close(&h);
}

static int by_text(const void *a, const void *b)
{
    const struct claim *x = a, *y = b;
    if (x->text.hi != y->text.hi) return x->text.hi < y->text.hi ? -1 : 1;
    if (x->text.lo != y->text.lo) return x->text.lo < y->text.lo ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static void check_near(struct seed_file *f, const struct seed *s)
{
    for (int i = 0; i < s->n_near; i++) {
        bool own = str_eq(s->near[i], s->question);
        for (int k = 0; k < s->n_wordings; k++)
            own = own || str_eq(s->near[i], s->wordings[k]);
        if (own)
            problem(f, s->line, "near[%d]: is a wording of this very question: it cannot be both",
                    i);
    }
}

static void check_claims(struct seed_file *f)
{
    size_t n = 0, room = 0;
    for (size_t i = 0; i < f->n; i++)
        room += 1 + (size_t)f->items[i].n_wordings;
    struct claim *claims = xcalloc(room + 1, sizeof *claims);
    for (size_t i = 0; i < f->n; i++) {
        const struct seed *s = &f->items[i];
        claims[n++] = (struct claim){scope_text(s, s->question), (uint32_t)i, true};
        for (int k = 0; k < s->n_wordings; k++)
            claims[n++] = (struct claim){scope_text(s, s->wordings[k]), (uint32_t)i, false};
        check_near(f, s);
    }
    qsort(claims, n, sizeof *claims, by_text);
    for (size_t i = 1; i < n; i++) {
        if (!hash_eq(claims[i].text, claims[i - 1].text)) continue;
        const struct seed *a = &f->items[claims[i - 1].item], *b = &f->items[claims[i].item];
        if (a == b)
            problem(f, b->line, "a wording is given twice, or is the question itself");
        else
            problem(f, b->line, "%s reads as a %s of line %d: one text cannot have two answers",
                    claims[i].own ? "the question" : "a wording",
                    claims[i - 1].own ? "question" : "wording", a->line);
    }
    mem_free(claims);
}

void seed_file_read(struct seed_file *out, struct str text, const struct seed_defaults *defaults)
{
    memset(out, 0, sizeof *out);
    buf_init(&out->problems, 64 * 1024);
    if (str_starts(text, STR("\xef\xbb\xbf"))) text = str_sub(text, 3, SIZE_MAX);
    struct str first = str_trim(str_sub(text, 0, 256));
    if (!utf8_valid(text))
        problem(out, 1, "the file is not UTF-8");
    else if (!first.n)
        problem(out, 1, "the file is empty");
    else if (first.p[0] == '{' || first.p[0] == '[')
        read_lines(out, text, defaults);
    else
        read_csv(out, text, defaults);
    if (!out->n_problems) check_claims(out);
}

void seed_file_fini(struct seed_file *f)
{
    for (size_t i = 0; i < f->n; i++) {
        json_decref(f->items[i].json);
        mem_free(f->items[i].wordings);
        mem_free(f->items[i].near);
    }
    mem_free(f->items);
    buf_fini(&f->problems);
    memset(f, 0, sizeof *f);
}
