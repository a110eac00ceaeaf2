/* models_list.c - see models_list.h. */
#include "gateway/models_list.h"

#include "gateway/model_rules.h"
#include "gateway/reply.h"

enum { LIST_BYTES_MAX = 4 << 20 };

/* names: those written so far, a line each. */
static void add(struct buf *out, struct buf *names, struct str name)
{
    struct str lines = buf_view(names), line;
    name = str_trim(name);
    if (!name.n || str_eqz(name, "*")) return;
    while (str_next(&lines, '\n', &line))
        if (str_eq(line, name)) return;
    buf_z(out, names->n ? ",{\"id\":" : "{\"id\":");
    json_write_string(out, name);
    buf_z(out, ",\"object\":\"model\",\"created\":0,\"owned_by\":\"deja\"}");
    buf_str(names, name);
    buf_char(names, '\n');
}

/* What is before the '=' of each item. */
static void add_left(struct buf *out, struct buf *names, struct str list, char between)
{
    struct str item;
    while (str_next(&list, between, &item)) {
        struct str left = {0};
        if (str_next(&item, '=', &left)) add(out, names, left);
    }
}

static void add_target(struct buf *out, struct buf *names, const struct upstream *t)
{
    struct str lines = buf_view(&t->models), line, list = str_of(t->spec.models);
    bool any = !list.n || str_find(list, STR("*,")) >= 0;
    add_left(out, names, list, ',');
    while (any && str_next(&lines, '\n', &line))
        add(out, names, line);
}

bool models_list(struct exchange *x)
{
    struct gateway *gw = x->gw;
    struct buf out, names;
    bool own = upstreams_count(gw->upstreams) > 1 || upstreams_have_models(gw->upstreams);
    if (!own || !str_eqz(http_req_method(x->r), "GET") ||
        !str_eqz(http_req_path(x->r), "/v1/models"))
        return false;
    buf_init(&out, LIST_BYTES_MAX);
    buf_init(&names, LIST_BYTES_MAX);
    buf_z(&out, "{\"object\":\"list\",\"data\":[");
    add_left(&out, &names, str_of(gw->o.model_aliases), '\n');
    for (int i = 0; scenario_name(gw->rules->scenario, i).p; i++)
        add(&out, &names, scenario_name(gw->rules->scenario, i));
    for (int i = 0; i < upstreams_count(gw->upstreams); i++)
        add_target(&out, &names, upstreams_at(gw->upstreams, i));
    buf_z(&out, "]}");
    own = names.n && !buf_failed(&out) && !buf_failed(&names);
    if (own) reply_body(x, 200, "application/json", buf_view(&out));
    buf_fini(&names);
    buf_fini(&out);
    return own;
}
