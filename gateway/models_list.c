/* models_list.c - see models_list.h. */
#include "gateway/models_list.h"

#include <stdio.h>

#include "gateway/model_rules.h"
#include "gateway/reply.h"

enum {
    LIST_BYTES_MAX = 4 << 20,
    NAME_SHOWN_MAX = 64,
    OTHERS_BYTES_MAX = 120 /* a message has room for 320, two names and these */
};

/* names: those written so far, a line each. */
static void add(struct buf *names, struct str name)
{
    name = str_trim(name);
    if (!name.n || str_eqz(name, "*") || str_lists(buf_view(names), '\n', name)) return;
    buf_str(names, name);
    buf_char(names, '\n');
}

/* What is before the '=' of each item. */
static void add_left(struct buf *names, struct str list, char between)
{
    struct str item;
    while (str_next(&list, between, &item)) {
        struct str left = {0};
        if (str_next(&item, '=', &left)) add(names, left);
    }
}

static void add_target(struct buf *names, const struct upstream *t)
{
    struct str lines = buf_view(&t->models), line, list = str_of(t->spec.models);
    bool any = !list.n || str_find(list, STR("*,")) >= 0;
    add_left(names, list, ',');
    while (any && str_next(&lines, '\n', &line))
        add(names, line);
}

static void add_all(struct buf *names, struct gateway *gw)
{
    add_left(names, str_of(gw->o.model_aliases), '\n');
    for (int i = 0; scenario_name(gw->rules->scenario, i).p; i++)
        add(names, scenario_name(gw->rules->scenario, i));
    for (int i = 0; i < upstreams_count(gw->upstreams); i++)
        add_target(names, upstreams_at(gw->upstreams, i));
}

bool models_list(struct exchange *x)
{
    struct gateway *gw = x->gw;
    struct buf out, names;
    struct str lines, line;
    bool own = upstreams_count(gw->upstreams) > 1 || upstreams_have_models(gw->upstreams);
    if (!own || !str_eqz(http_req_method(x->r), "GET") ||
        !str_eqz(http_req_path(x->r), "/v1/models"))
        return false;
    buf_init(&out, LIST_BYTES_MAX);
    buf_init(&names, LIST_BYTES_MAX);
    add_all(&names, gw);
    buf_z(&out, "{\"object\":\"list\",\"data\":[");
    lines = buf_view(&names);
    for (bool first = true; str_next(&lines, '\n', &line); first = false) {
        if (!line.n) continue;
        buf_z(&out, first ? "{\"id\":" : ",{\"id\":");
        json_write_string(&out, line);
        buf_z(&out, ",\"object\":\"model\",\"created\":0,\"owned_by\":\"deja\"}");
    }
    buf_z(&out, "]}");
    own = names.n && !buf_failed(&out) && !buf_failed(&names);
    if (own) reply_body(x, 200, "application/json", buf_view(&out));
    buf_fini(&names);
    buf_fini(&out);
    return own;
}

static struct str shown(struct str name)
{
    name = str_sub(name, 0, NAME_SHOWN_MAX);
    return str_sub(name, 0, utf8_complete(name));
}

/* "; there are: a, b and 3 more"; asked itself, which a rule may have, is none of them. */
static void say_others(struct buf *out, struct gateway *gw, struct str asked)
{
    struct buf names;
    struct str lines, line;
    size_t left_out = 0, room = out->n + OTHERS_BYTES_MAX;
    buf_init(&names, LIST_BYTES_MAX);
    add_all(&names, gw);
    lines = buf_view(&names);
    for (bool first = true; str_next(&lines, '\n', &line);) {
        if (!line.n || str_eq(line, asked)) continue;
        if (out->n + line.n > room) {
            left_out++;
            continue;
        }
        buf_z(out, first ? "; there are: " : ", ");
        buf_str(out, line);
        first = false;
    }
    if (left_out) buf_printf(out, " and %zu more", left_out);
    buf_fini(&names);
}

void models_missing(struct openai_error *e, struct gateway *gw, struct str asked, struct str led_to)
{
    struct buf text;
    struct str name = shown(asked), to = shown(led_to);
    buf_init(&text, 1024);
    if (!to.n || str_eq(asked, led_to))
        buf_printf(&text, "model \"" STR_FMT "\" is not served here", STR_ARG(name));
    else
        buf_printf(&text,
                   "model \"" STR_FMT "\" leads to \"" STR_FMT "\", which is not served here",
                   STR_ARG(name), STR_ARG(to));
    say_others(&text, gw, asked);
    snprintf(e->param, sizeof e->param, "model");
    str_copy(e->message, sizeof e->message, buf_view(&text));
    buf_fini(&text);
}
