/* faq_rig.h - for tests: the question files of tests/data, one JSON object a line. */
#ifndef DEJA_TESTS_FAQ_RIG_H
#define DEJA_TESTS_FAQ_RIG_H
#include "base/json.h"
#include "base/mem.h"
#include "tests/check.h"

/* Calls fn for each line's object; false when the file is missing or a line is no JSON. */
static inline bool rig_each_line(const char *path, void (*fn)(void *arg, const json_t *line),
                                 void *arg)
{
    FILE *f = fopen(path, "r");
    char line[16384];
    bool ok = f != NULL;
    while (ok && fgets(line, sizeof line, f)) {
        json_t *v = NULL;
        struct errmsg e = {0};
        ok = json_parse(str_trim(str_of(line)), 0, &v, &e) == OK;
        if (!ok)
            printf("    %s: %s\n", path, e.text);
        else
            fn(arg, v);
        json_decref(v);
    }
    if (f) fclose(f);
    return ok;
}

#endif
