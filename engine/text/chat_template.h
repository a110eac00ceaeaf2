/* chat_template.h - renders chat messages with the template stored in a model file: a bounded interpreter of the Jinja
 * subset such templates use (facts in docs/). Templates come from downloaded files, so they are untrusted: steps, output,
 * recursion and memory are bounded. Immutable after construction; rendering is reentrant. */
#ifndef DEJA_ENGINE_TEXT_CHAT_TEMPLATE_H
#define DEJA_ENGINE_TEXT_CHAT_TEMPLATE_H
#include "base/buf.h"

struct chat_template;
struct json_t; /* jansson's value; messages and tools come as parsed JSON */

/* Compiles source. ERR_INVALID / ERR_UNSUPPORTED with line number and reason. trim_blocks and lstrip_blocks are on. */
MUST enum err chat_template_new(struct chat_template **out, struct str source, struct errmsg *e);
void chat_template_free(struct chat_template *t);

/* A rendered prompt is a sequence of segments, so that control tokens typed by a user stay plain text:
 * template text is tokenised with TOKENIZE_PARSE_SPECIAL, content without. */
struct chat_segment {
    size_t from, n;  /* bytes of the rendered text */
    bool is_content; /* came from a message, a tool or another request value */
};
struct chat_rendering {
    struct buf text;
    struct chat_segment
        *segments; /* adjacent, cover text exactly; neighbours of one kind are merged */
    size_t n_segments;
};
struct chat_render_options {
    const struct json_t *messages; /* array of {role, content, ...} */
    const struct json_t *tools;    /* array or NULL */
    bool add_generation_prompt;
    const char *bos_token, *eos_token; /* "" when none */
    const struct json_t *
        variables; /* object of further variables (enable_thinking..), or NULL; those named here are not overridden */
    int64_t now_s;   /* seconds since 1970 UTC, for strftime_now */
    size_t text_max; /* bytes of output; past it: ERR_TOO_LARGE */
    int steps_max;   /* interpreter steps; past it: ERR_RANGE */
};
/* ERR_INVALID with the template's own raise_exception text when it calls that. rendering must be fini'd on OK only. */
MUST enum err chat_template_render(const struct chat_template *t,
                                   const struct chat_render_options *opt,
                                   struct chat_rendering *out, struct errmsg *e);
void chat_rendering_fini(struct chat_rendering *r);

#endif
