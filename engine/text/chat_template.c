/* chat_template.c - see chat_template.h: compiles a template, and sets up one rendering of it. */
#include "engine/text/chat_template.h"

#include <string.h>

#include "engine/text/jinja_eval.h"

struct chat_template {
    struct arena *arena; /* the tree and its strings */
    struct jinja_node *root;
};
enum {
    TREE_BYTES_MAX =
        128
        << 20, /* a template of 1 MiB in the worst case: a node of 128 bytes for each two bytes */
    RUN_BYTES_MIN = 32 << 20
};

enum err chat_template_new(struct chat_template **out, struct str source, struct errmsg *e)
{
    *out = NULL;
    struct chat_template *t = xcalloc(1, sizeof *t);
    t->arena = arena_new(TREE_BYTES_MAX);
    enum err err = jinja_parse(t->arena, source, &t->root, e);
    if (err)
        chat_template_free(t);
    else
        *out = t;
    return err;
}

void chat_template_free(struct chat_template *t)
{
    if (!t) return;
    arena_free(t->arena);
    mem_free(t);
}

/* The request's own variables first: they cannot hide what every template relies on. */
static void set_variables(struct jinja_run *r, const struct chat_render_options *opt)
{
    struct jinja_frame *f = r->frame;
    struct jinja_value more = jinja_from_json(r, opt->variables);
    jinja_frame_set(r, f, STR("documents"), jinja_none());
    for (size_t i = 0; !r->err && more.kind == JINJA_DICT && i < more.dict->n; i++)
        jinja_frame_set(r, f, jinja_flat(r, more.dict->at[i].key.s), more.dict->at[i].value);
    jinja_frame_set(r, f, STR("messages"), jinja_from_json(r, opt->messages));
    jinja_frame_set(r, f, STR("tools"), jinja_from_json(r, opt->tools));
    jinja_frame_set(r, f, STR("add_generation_prompt"), jinja_bool(opt->add_generation_prompt));
    jinja_frame_set(r, f, STR("bos_token"), jinja_text(r, str_of(opt->bos_token), false));
    jinja_frame_set(r, f, STR("eos_token"), jinja_text(r, str_of(opt->eos_token), false));
}

enum err chat_template_render(const struct chat_template *t, const struct chat_render_options *opt,
                              struct chat_rendering *out, struct errmsg *e)
{
    struct jinja_run r = {.e = e, .steps = opt->steps_max, .now_s = opt->now_s};
    struct jinja_frame globals = {NULL, NULL, 0, 0, false};
    size_t memory =
        opt->text_max < SIZE_MAX / 16 ? RUN_BYTES_MIN + 8 * opt->text_max : SIZE_MAX / 2;
    r.arena = arena_new(memory);
    r.frame = &globals;
    buf_init(&r.text, opt->text_max);
    set_variables(&r, opt);
    jinja_exec(&r, t->root);
    arena_free(r.arena);
    *out = (struct chat_rendering){r.text, r.segments, r.n_segments};
    if (r.err) chat_rendering_fini(out);
    return r.err;
}

void chat_rendering_fini(struct chat_rendering *r)
{
    buf_fini(&r->text);
    mem_free(r->segments);
    *r = (struct chat_rendering){.segments = NULL};
}
