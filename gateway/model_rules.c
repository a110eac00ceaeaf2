/* model_rules.c - see model_rules.h. */
#include "gateway/model_rules.h"

#include "base/mem.h"
#include "gateway/fallback.h"

/* A line each, owned. */
static char *lines_of(struct str text)
{
    if (str_ieq(str_trim(text), STR("none"))) text = STR("");
    char *out = xstrndup(text.n ? text.p : "", text.n);
    for (char *p = out; *p; p++)
        if (*p == ';') *p = '\n';
    return out;
}

enum err model_rules_new(struct model_rules **out, struct str routes, struct str fallbacks,
                         struct errmsg *e)
{
    struct model_rules *m = xcalloc(1, sizeof *m);
    char *rules = lines_of(routes);
    m->refs = 1;
    m->fallbacks = lines_of(fallbacks);
    enum err code = scenario_parse(&m->scenario, str_of(rules), e);
    if (code != OK) (void)err_prefix(e, code, "option route");
    if (code == OK && (code = fallback_check(m->fallbacks, e)) != OK)
        (void)err_prefix(e, code, "option fallback");
    mem_free(rules);
    if (code == OK)
        *out = m;
    else
        model_rules_unref(m);
    return code == OK ? OK : ERR_INVALID;
}

struct model_rules *model_rules_ref(struct model_rules *m)
{
    m->refs++;
    return m;
}

void model_rules_unref(struct model_rules *m)
{
    if (!m || --m->refs) return;
    scenario_free(m->scenario);
    mem_free(m->fallbacks);
    mem_free(m);
}
