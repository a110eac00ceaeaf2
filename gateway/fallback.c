/* fallback.c - see fallback.h. */
#include "gateway/fallback.h"

/* *of: the model that the line is of. */
static enum err check_line(struct str *of, struct str line, struct errmsg *e)
{
    struct str model = {0}, rest = line, other;
    int n = 0;
    if (str_ieq(line, STR("none")))
        return err_set(e, ERR_INVALID,
                       "\"" STR_FMT "\": expected no other line, ; or comment beside it: none "
                       "stands alone",
                       STR_ARG(line));
    bool good = str_find_char(line, '=') > 0 && str_next(&rest, '=', &model);
    *of = model = str_trim(model);
    good = good && model.n && str_trim(rest).n && !str_ends(rest, STR(","));
    while (good && str_next(&rest, ',', &other)) {
        other = str_trim(other);
        n++;
        if (!other.n) good = false;
        if (str_eqz(other, "*"))
            return err_set(e, ERR_INVALID,
                           "\"*\": expected the name of a model after =: * stands for any only "
                           "before it");
        if (str_eq(other, model))
            return err_set(e, ERR_INVALID, STR_FMT " is its own fallback",
                           STR_ARG(str_sub(model, 0, 60)));
    }
    if (good && n <= FALLBACKS_MAX) return OK;
    return err_set(e, ERR_INVALID,
                   "\"" STR_FMT "\": expected model=other,third with at most %d others",
                   STR_ARG(str_sub(line, 0, 60)), FALLBACKS_MAX);
}

enum err fallback_check(const char *lines, struct errmsg *e)
{
    struct str text = str_of(lines), line, models[FALLBACK_LINES_MAX];
    int line_no = 0, n = 0, line_of[FALLBACK_LINES_MAX];
    while (str_next(&text, '\n', &line)) {
        line_no++;
        line = str_trim(line);
        if (!line.n) continue;
        if (n == FALLBACK_LINES_MAX)
            return err_set(e, ERR_INVALID, "more than %d lines", FALLBACK_LINES_MAX);
        enum err code = check_line(&models[n], line, e);
        int first = 0;
        while (code == OK && !str_eq(models[first], models[n]))
            first++;
        if (code == OK && first < n)
            code = err_set(e, ERR_INVALID,
                           "\"" STR_FMT "\": line %d is of " STR_FMT
                           " too: expected one line with all its others",
                           STR_ARG(str_sub(line, 0, 60)), line_of[first],
                           STR_ARG(str_sub(models[n], 0, 60)));
        if (code != OK) return err_prefix(e, code, "line %d", line_no);
        line_of[n++] = line_no;
    }
    return OK;
}

struct str fallback_of(const char *lines, struct str model, int i)
{
    struct str text = str_of(lines), line, list = {0}, other;
    while (str_next(&text, '\n', &line)) {
        struct str name, rest = line;
        if (!str_next(&rest, '=', &name)) continue;
        name = str_trim(name);
        if (str_eqz(name, "*") && !list.p) list = rest;
        if (!str_eq(name, model)) continue;
        list = rest;
        break;
    }
    for (int k = 0; str_next(&list, ',', &other);) {
        other = str_trim(other);
        if (!other.n || str_eq(other, model)) continue; /* after the last comma; by way of "*" */
        if (k++ == i) return other;
    }
    return (struct str){0};
}

void fallback_each(const char *lines, void (*fn)(void *arg, struct str other), void *arg)
{
    struct str text = str_of(lines), line, name, other;
    while (str_next(&text, '\n', &line)) {
        if (!str_next(&line, '=', &name)) continue;
        while (str_next(&line, ',', &other)) {
            other = str_trim(other);
            if (other.n) fn(arg, other);
        }
    }
}
