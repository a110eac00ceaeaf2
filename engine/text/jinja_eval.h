/* jinja_eval.h - the parts of the interpreter and how they call each other. Private to the room. All work on one
 * struct jinja_run, see jinja_value.h for what happens after an error. */
#ifndef DEJA_ENGINE_TEXT_JINJA_EVAL_H
#define DEJA_ENGINE_TEXT_JINJA_EVAL_H
#include "engine/text/jinja_value.h"

enum { JINJA_DEPTH_MAX = 600 }; /* nested evaluations: about 1 KB of stack each */

struct jinja_args {
    struct jinja_value *at; /* positional */
    size_t n;
    struct jinja_frame_var *named;
    size_t n_named;
};
/* The argument at a place or of a name, else NULL. */
const struct jinja_value *jinja_arg(const struct jinja_args *a, size_t place, const char *name);
/* The same as text, integer or truth, with what holds when it is missing or none. Fails the run on another type. */
struct str jinja_arg_text(struct jinja_run *r, const struct jinja_args *a, size_t place,
                          const char *name, struct str otherwise);
int64_t jinja_arg_int(struct jinja_run *r, const struct jinja_args *a, size_t place,
                      const char *name, int64_t otherwise);
bool jinja_arg_truth(const struct jinja_args *a, size_t place, const char *name, bool otherwise);
struct jinja_args jinja_args_from(const struct jinja_args *a,
                                  size_t from); /* without the first `from` positional ones */

/* jinja_expression.c */
struct jinja_value jinja_eval(struct jinja_run *r, const struct jinja_node *n);
struct jinja_args jinja_eval_args(struct jinja_run *r, const struct jinja_node *call);
struct jinja_value jinja_call(struct jinja_run *r, struct jinja_value callee,
                              const struct jinja_args *args);
struct jinja_value jinja_member(struct jinja_run *r, struct jinja_value v,
                                const struct str *name); /* v.name */
struct jinja_value jinja_index(struct jinja_run *r, struct jinja_value v,
                               struct jinja_value key); /* v[key] */
bool jinja_enter_depth(struct jinja_run *r);            /* pair with r->depth-- when true */

/* jinja_operators.c */
struct jinja_value jinja_arithmetic(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                                    struct jinja_value b);
bool jinja_compare(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                   struct jinja_value b);
struct jinja_value jinja_slice(struct jinja_run *r, struct jinja_value v,
                               const struct jinja_value part[3]); /* NONE = left out */
/* "%s and %d" % values */
struct jinja_value jinja_percent_format(struct jinja_run *r, struct jinja_value format,
                                        struct jinja_value values);

/* jinja_statement.c */
void jinja_exec(struct jinja_run *r, const struct jinja_node *n);
struct jinja_value jinja_call_macro(struct jinja_run *r, const struct jinja_macro *m,
                                    const struct jinja_args *args);
struct jinja_value *jinja_frame_find(struct jinja_run *r,
                                     struct str name); /* through all scopes, NULL when unset */
void jinja_frame_set(struct jinja_run *r, struct jinja_frame *f, struct str name,
                     struct jinja_value v);

/* jinja_filters.c, jinja_filters_list.c, jinja_tests.c, jinja_methods.c, jinja_functions.c, jinja_json.c */
struct jinja_value jinja_filter(struct jinja_run *r, struct str name, struct jinja_value v,
                                const struct jinja_args *args);
bool jinja_is_filter(struct str name);
bool jinja_test(struct jinja_run *r, struct str name, struct jinja_value v,
                const struct jinja_args *args);
bool jinja_has_method(struct jinja_value v, struct str name);
struct jinja_value jinja_call_method(struct jinja_run *r, const struct jinja_method *m,
                                     const struct jinja_args *args);
typedef struct jinja_value jinja_method_fn(struct jinja_run *r, struct jinja_value self,
                                           const struct jinja_args *args);
struct jinja_text_method {
    const char *name;
    jinja_method_fn *run;
};
extern const struct jinja_text_method jinja_text_methods[]; /* ends with a NULL name */
bool jinja_is_function(struct str name);
struct jinja_value jinja_call_function(struct jinja_run *r, struct str name,
                                       const struct jinja_args *args);
struct jinja_value jinja_to_json(struct jinja_run *r, struct jinja_value v,
                                 const struct jinja_args *args);
struct jinja_value jinja_from_json_text(struct jinja_run *r, struct jinja_value v,
                                        const struct jinja_args *args);

typedef struct jinja_value jinja_filter_fn(struct jinja_run *r, struct jinja_value v,
                                           const struct jinja_args *args);
struct jinja_filter_entry {
    const char *name;
    jinja_filter_fn *run;
};
extern const struct jinja_filter_entry jinja_list_filters[],
    jinja_more_filters[]; /* each ends with a NULL name */
/* A list that stands for one of Jinja2's generators. */
struct jinja_value jinja_lazy_list(struct jinja_run *r);

/* Text operations that filters and methods share (jinja_text_ops.c). */
struct jinja_value jinja_trim(struct jinja_run *r, const struct jinja_string *s,
                              const struct str *chars, bool left, bool right);
struct jinja_value jinja_replace(struct jinja_run *r, const struct jinja_string *s,
                                 const struct jinja_string *old, const struct jinja_string *new,
                                 int64_t most);
struct jinja_value jinja_join(struct jinja_run *r, const struct jinja_string *between,
                              struct jinja_value list);
struct jinja_value jinja_escape(struct jinja_run *r,
                                struct jinja_value v); /* for HTML; as markup */
struct jinja_value jinja_split_lines(struct jinja_run *r, const struct jinja_string *s);
/* Filled up to a width in characters; CENTER puts the odd one where Python does. */
enum jinja_side { JINJA_LEFT, JINJA_RIGHT, JINJA_CENTER }; /* where the text stands */
struct jinja_value jinja_pad(struct jinja_run *r, const struct jinja_string *s, int64_t width,
                             struct str fill, enum jinja_side side);
enum jinja_case {
    JINJA_UPPER,
    JINJA_LOWER,
    JINJA_TITLE,         /* the filter: words begin after spaces and brackets */
    JINJA_TITLE_LETTERS, /* the method: they begin after whatever is no letter */
    JINJA_CAPITALIZE
};
struct jinja_value jinja_change_case(struct jinja_run *r, const struct jinja_string *s,
                                     enum jinja_case how);
const struct jinja_string *
jinja_need_text(struct jinja_run *r,
                struct jinja_value v); /* fails the run on others; never NULL */

/* chat_value.c */
struct json_t;
struct jinja_value
jinja_from_json(struct jinja_run *r,
                const struct json_t *v); /* strings are borrowed and are content */

#endif
