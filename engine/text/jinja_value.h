/* jinja_value.h - the values a template computes with, and one rendering's state (struct jinja_run). Private to the room.
 * Everything is allocated in the run's arena and dies with it. The first error sticks in the run: after it every function
 * returns at once, with results nobody uses, so that callers need not check each step.
 * Strings remember of each piece whether it came from the request (content) or from the template. One thread a run. */
#ifndef DEJA_ENGINE_TEXT_JINJA_VALUE_H
#define DEJA_ENGINE_TEXT_JINJA_VALUE_H
#include "base/buf.h"
#include "base/mem.h"
#include "engine/text/jinja_tree.h"

enum jinja_kind {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_METHOD,
    JINJA_FUNCTION
};

struct jinja_value {
    enum jinja_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        struct jinja_string *s;
        struct jinja_list *list; /* LIST, TUPLE */
        struct jinja_dict *dict; /* DICT, NAMESPACE */
        struct jinja_loop *loop;
        struct jinja_macro *macro;
        struct jinja_method *method;
        const struct str *name; /* UNDEFINED: what was looked for, or NULL; FUNCTION: its name */
    };
};

struct jinja_span { /* a piece of text, borrowed */
    const char *p;
    size_t n;
    bool content;
};
struct jinja_string {
    size_t n; /* bytes of all spans together */
    struct jinja_span *spans;
    size_t n_spans;
    const char *flat; /* all bytes in one piece, NULL until somebody asked */
    bool markup; /* went through safe or escape: what is added to it is escaped, as in Jinja2 */
    struct jinja_span one; /* room for the usual case */
};
struct jinja_list {
    struct jinja_value *at;
    size_t n, cap;
    bool lazy; /* what map, select.. give: a generator in Jinja2, so true even when it is empty */
};
struct jinja_pair {
    struct jinja_value key, value;
};
struct jinja_dict { /* insertion order; searched in order, which is paid for in steps */
    struct jinja_pair *at;
    size_t n, cap;
};
struct jinja_loop {
    struct jinja_value *items;
    size_t i, n;
    struct jinja_value changed; /* what loop.changed saw last; UNDEFINED before */
    bool has_changed;
};
struct jinja_frame { /* one scope */
    struct jinja_frame *parent;
    struct jinja_frame_var {
        struct str name;
        struct jinja_value value;
    } * vars;
    size_t n, cap;
    bool kept; /* a macro remembers it: a loop must not use it again */
};
struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_frame *scope;
};
struct jinja_method { /* x.strip before its call */
    struct jinja_value self;
    struct str name;
};

struct jinja_builder { /* text under way: spans */
    struct jinja_span *spans;
    size_t n_spans, cap, n; /* n = bytes */
};

enum jinja_flow { JINJA_GO, JINJA_BREAKING, JINJA_CONTINUING };
struct chat_segment;

struct jinja_run {
    struct arena *arena;
    enum err err;
    struct errmsg *e;
    int line;      /* of the node being worked on */
    int64_t steps; /* left */
    int depth;     /* nested evaluations */
    enum jinja_flow flow;
    struct jinja_frame *frame;
    struct jinja_value block_text; /* what the first filter of a filter block works on */
    struct jinja_builder *capture; /* where text goes; NULL: to the rendering */
    struct buf text;
    struct chat_segment *segments;
    size_t n_segments, cap_segments;
    int64_t now_s;
};

/* --- the run (jinja_value.c) */
void jinja_fail(struct jinja_run *r, enum err err, const char *fmt, ...)
    PRINTF_LIKE(3, 4);                            /* "line N: ..." */
void *jinja_alloc(struct jinja_run *r, size_t n); /* zeroed; NULL after failing the run */
void jinja_fail_undefined(struct jinja_run *r, struct jinja_value v); /* v is UNDEFINED */
bool jinja_charge(struct jinja_run *r,
                  size_t work); /* takes 1 + work / 16 steps; false when they are used up */

/* --- values (jinja_value.c) */
struct jinja_value jinja_undefined(const struct str *name);
struct jinja_value jinja_none(void);
struct jinja_value jinja_bool(bool b);
struct jinja_value jinja_int(int64_t i);
struct jinja_value jinja_float(double f);
struct jinja_value jinja_list_new(struct jinja_run *r, enum jinja_kind list_or_tuple);
void jinja_list_add(struct jinja_run *r, struct jinja_value list, struct jinja_value v);
struct jinja_value jinja_dict_new(struct jinja_run *r, enum jinja_kind dict_or_namespace);
/* The value's place, or NULL. Borrowed until the dict changes. */
struct jinja_value *jinja_dict_find(struct jinja_run *r, const struct jinja_dict *d,
                                    struct jinja_value key);
struct jinja_value *jinja_dict_find_text(struct jinja_run *r, const struct jinja_dict *d,
                                         struct str key);
void jinja_dict_set(struct jinja_run *r, struct jinja_dict *d, struct jinja_value key,
                    struct jinja_value v);
bool jinja_truth(struct jinja_value v);
bool jinja_equal(struct jinja_run *r, struct jinja_value a, struct jinja_value b);
int jinja_order(struct jinja_run *r, struct jinja_value a,
                struct jinja_value b); /* <0, 0, >0; fails the run where there is no order */
const char *jinja_kind_name(struct jinja_value v);
bool jinja_is_number(struct jinja_value v); /* int, float or bool */
double jinja_to_double(struct jinja_value v);
/* What a for loop or a filter walks over: items of lists, keys of dicts, characters of strings, nothing for undefined. A LIST
 * value; fails the run for others. */
struct jinja_value jinja_items_of(struct jinja_run *r, struct jinja_value v);
/* What a sort compares: values that are equal have no order to look for. */
int jinja_sort_order(struct jinja_run *r, struct jinja_value a, struct jinja_value b);
bool jinja_contains(struct jinja_run *r, struct jinja_value all, struct jinja_value one);

/* --- text (jinja_string.c). NULL only after an error. */
struct jinja_value jinja_text(struct jinja_run *r, struct str s, bool content); /* borrows s */
struct jinja_value jinja_text_copy(struct jinja_run *r, struct str s, bool content);
struct str jinja_flat(struct jinja_run *r, const struct jinja_string *s);
bool jinja_has_content(const struct jinja_string *s);
struct jinja_value jinja_part(struct jinja_run *r, const struct jinja_string *s, size_t from,
                              size_t n);                               /* bytes */
size_t jinja_chars(struct jinja_run *r, const struct jinja_string *s); /* characters */
void jinja_build(struct jinja_run *r, struct jinja_builder *b, struct jinja_span span);
void jinja_build_string(struct jinja_run *r, struct jinja_builder *b, const struct jinja_string *s);
struct jinja_value jinja_built(struct jinja_run *r, struct jinja_builder *b);
/* str(v) of Python; a string comes back as it is. */
struct jinja_value jinja_to_string(struct jinja_run *r, struct jinja_value v);
/* The same text, as markup or not: for results of operations that keep what they were given. */
struct jinja_value jinja_as_markup(struct jinja_run *r, struct jinja_value text, bool markup);
void jinja_write_float(struct buf *out,
                       double f); /* Python's repr: shortest that reads back the same */

#endif
