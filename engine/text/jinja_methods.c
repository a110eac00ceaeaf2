/* jinja_methods.c - methods of lists, mappings and loops, as Python has them, and where a method is looked up. */
#include <string.h>

#include "engine/text/jinja_eval.h"
#include "engine/text/unicode.h"

#define METHOD(name)                                                                               \
    static struct jinja_value name(struct jinja_run *r, struct jinja_value self,                   \
                                   const struct jinja_args *args)

/* --- lists and mappings */

METHOD(list_append)
{
    if (args->n != 1)
        jinja_fail(r, ERR_INVALID, "append needs one value");
    else
        jinja_list_add(r, self, args->at[0]);
    return jinja_none();
}
METHOD(list_extend)
{
    struct jinja_value items =
        args->n ? jinja_items_of(r, args->at[0]) : jinja_list_new(r, JINJA_LIST);
    for (size_t i = 0; !r->err && i < items.list->n && jinja_charge(r, 0); i++)
        jinja_list_add(r, self, items.list->at[i]);
    return jinja_none();
}
METHOD(list_pop)
{
    struct jinja_list *l = self.list;
    int64_t i = jinja_arg_int(r, args, 0, "index", -1);
    if (i < 0) i += (int64_t)l->n;
    if (i < 0 || i >= (int64_t)l->n || !jinja_charge(r, l->n)) {
        jinja_fail(r, ERR_INVALID, "pop: there is no such element");
        return jinja_none();
    }
    struct jinja_value v = l->at[i],
                       *rest =
                           jinja_alloc(r, l->n * sizeof *rest); /* others may share the memory */
    if (!rest) return v;
    memcpy(rest, l->at, (size_t)i * sizeof *rest);
    memcpy(rest + i, l->at + i + 1, (l->n - (size_t)i - 1) * sizeof *rest);
    l->cap = l->n;
    l->at = rest;
    l->n--;
    return v;
}
METHOD(list_count)
{
    int64_t n = 0;
    for (size_t i = 0; args->n && i < self.list->n && !r->err; i++)
        n += jinja_equal(r, self.list->at[i], args->at[0]);
    return jinja_int(n);
}
METHOD(list_index)
{
    for (size_t i = 0; args->n && i < self.list->n && !r->err; i++)
        if (jinja_equal(r, self.list->at[i], args->at[0])) return jinja_int((int64_t)i);
    jinja_fail(r, ERR_INVALID, "index: there is no such element");
    return jinja_none();
}

METHOD(dict_get)
{
    const struct jinja_value *found = args->n ? jinja_dict_find(r, self.dict, args->at[0]) : NULL;
    if (found) return *found;
    const struct jinja_value *otherwise = jinja_arg(args, 1, "default");
    return otherwise ? *otherwise : jinja_none();
}
METHOD(dict_items)
{
    struct jinja_value pairs = jinja_filter(r, STR("items"), self, args);
    if (!r->err) pairs.list->lazy = false; /* a view, not a generator */
    return pairs;
}
METHOD(dict_keys)
{
    (void)args;
    return jinja_items_of(r, self);
}
METHOD(dict_values)
{
    (void)args;
    struct jinja_value out = jinja_list_new(r, JINJA_LIST);
    for (size_t i = 0; !r->err && i < self.dict->n && jinja_charge(r, 0); i++)
        jinja_list_add(r, out, self.dict->at[i].value);
    return out;
}
METHOD(dict_pop)
{
    struct jinja_dict *d = self.dict;
    struct jinja_value *found = args->n ? jinja_dict_find(r, d, args->at[0]) : NULL;
    const struct jinja_value *otherwise = jinja_arg(args, 1, "default");
    if (!found) {
        if (!otherwise) jinja_fail(r, ERR_INVALID, "pop: there is no such key");
        return otherwise ? *otherwise : jinja_none();
    }
    struct jinja_value v = *found;
    struct jinja_pair *pair =
        (struct jinja_pair *)((char *)found - offsetof(struct jinja_pair, value));
    memmove(pair, pair + 1, (size_t)(d->at + d->n - pair - 1) * sizeof *pair);
    d->n--;
    return v;
}
METHOD(dict_update)
{
    const struct jinja_value *other = args->n ? &args->at[0] : NULL;
    for (size_t i = 0; other && other->kind == JINJA_DICT && i < other->dict->n && !r->err; i++)
        jinja_dict_set(r, self.dict, other->dict->at[i].key, other->dict->at[i].value);
    for (size_t i = 0; i < args->n_named && !r->err; i++)
        jinja_dict_set(r, self.dict, jinja_text(r, args->named[i].name, false),
                       args->named[i].value);
    return jinja_none();
}

/* --- loops */

METHOD(loop_cycle)
{
    (void)r;
    return args->n ? args->at[self.loop->i % args->n] : jinja_undefined(NULL);
}
METHOD(loop_changed)
{
    struct jinja_value now = jinja_list_new(r, JINJA_TUPLE);
    for (size_t i = 0; !r->err && i < args->n; i++)
        jinja_list_add(r, now, args->at[i]);
    bool same = self.loop->has_changed && jinja_equal(r, self.loop->changed, now);
    self.loop->has_changed = true;
    self.loop->changed = now;
    return jinja_bool(!same);
}

METHOD(list_copy)
{
    (void)args;
    return jinja_items_of(r, self);
}
METHOD(dict_copy)
{
    struct jinja_value out = jinja_dict_new(r, JINJA_DICT);
    struct jinja_args all = {&self, 1, NULL, 0};
    (void)args;
    if (!r->err) dict_update(r, out, &all);
    return out;
}

static const struct {
    enum jinja_kind kind;
    const char *name;
    jinja_method_fn *run;
} methods[] = {
    {JINJA_LIST, "copy", list_copy},       {JINJA_LIST, "append", list_append},
    {JINJA_LIST, "extend", list_extend},   {JINJA_LIST, "pop", list_pop},
    {JINJA_LIST, "count", list_count},     {JINJA_LIST, "index", list_index},
    {JINJA_TUPLE, "count", list_count},    {JINJA_TUPLE, "index", list_index},
    {JINJA_DICT, "get", dict_get},         {JINJA_DICT, "items", dict_items},
    {JINJA_DICT, "keys", dict_keys},       {JINJA_DICT, "values", dict_values},
    {JINJA_DICT, "pop", dict_pop},         {JINJA_DICT, "update", dict_update},
    {JINJA_DICT, "copy", dict_copy},       {JINJA_LOOP, "cycle", loop_cycle},
    {JINJA_LOOP, "changed", loop_changed},
};

static jinja_method_fn *find_method(struct jinja_value v, struct str name)
{
    for (const struct jinja_text_method *m = jinja_text_methods; v.kind == JINJA_STRING && m->name;
         m++)
        if (str_eqz(name, m->name)) return m->run;
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (methods[i].kind == v.kind && str_eqz(name, methods[i].name)) return methods[i].run;
    return NULL;
}

bool jinja_has_method(struct jinja_value v, struct str name)
{
    return find_method(v, name) != NULL;
}

struct jinja_value jinja_call_method(struct jinja_run *r, const struct jinja_method *m,
                                     const struct jinja_args *args)
{
    jinja_method_fn *run = find_method(m->self, m->name);
    ASSERT(run);
    return r->err ? m->self : run(r, m->self, args);
}
