/* unserved.c - see unserved.h. */
#include "gateway/unserved.h"

#include <string.h>

#include "gateway/fallback.h"
#include "gateway/model_rules.h"

static bool is_route(const char *knob)
{
    return !strcmp(knob, "route");
}

struct found {
    struct upstreams *upstreams;
    struct buf *names;
};

static void look_at(void *arg, struct str model)
{
    struct found *f = arg;
    if (upstreams_serve(f->upstreams, model) || str_lists(buf_view(f->names), '\n', model)) return;
    buf_str(f->names, model);
    buf_char(f->names, '\n');
}

void unserved_models(const struct gateway *gw, const char *knob, struct str text, struct buf *out)
{
    struct model_rules *m = NULL;
    struct str none = STR(""), model;
    bool route = is_route(knob);
    if (!upstreams_know_models(gw->upstreams) ||
        model_rules_new(&m, route ? text : none, route ? none : text, NULL) != OK)
        return;
    struct found f = {gw->upstreams, out};
    for (int i = 0; (model = scenario_target(m->scenario, i)).p; i++)
        look_at(&f, model);
    fallback_each(m->fallbacks, look_at, &f);
    model_rules_unref(m);
}

void unserved_words(const char *knob, const struct buf *models, struct buf *out)
{
    struct str lines = buf_view(models), line;
    if (!lines.n) return;
    buf_z(out, "no upstream of this gateway takes ");
    for (bool first = true; str_next(&lines, '\n', &line); first = false) {
        if (!line.n) continue;
        if (!first) buf_z(out, ", ");
        buf_str(out, line);
    }
    buf_z(out, is_route(knob) ? ": requests that a rule leads there fail"
                              : ": passed over when fallbacks are asked");
}
