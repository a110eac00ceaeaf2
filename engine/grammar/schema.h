/* schema.h - private to engine/grammar: from a JSON schema to rules. What is kept is kept exactly, or narrower where this says so; what
 * cannot be kept is refused by name and path, never dropped.
 * Narrower: members come in the order of `properties` (those `required` names beyond them after it), further members at the end; an
 * object that names properties takes no others unless additionalProperties says so; texts have one escaped form in keys, enum, const
 * and pattern; numbers have the forms of json_rules.h, bounded ones no exponent; oneOf is anyOf; a schema that says no type but has
 * keywords of one gives that type.
 * Source: JSON Schema 2020-12 (core and validation), with definitions, items as an array and nullable of older drafts and OpenAPI. */
#ifndef DEJA_ENGINE_GRAMMAR_SCHEMA_H
#define DEJA_ENGINE_GRAMMAR_SCHEMA_H
#include "base/json.h"
#include "engine/grammar/json_rules.h"

enum { SCHEMA_DEPTH_MAX = 64 };

struct schema_memo {
    const json_t *schema; /* target of a $ref */
    int rule;             /* alias, for references made before it is known */
    struct callee callee;
    bool known;
};
struct schema_build {
    struct program *p;
    struct grammar_budget *budget;
    const json_t *root; /* what "#" means */
    bool strict;
    struct errmsg *e;
    struct buf path;
    int depth;
    struct schema_memo *memo;
    int n_memo, cap_memo;
    json_t *made; /* array that owns schemas made by merging */
};

void schema_build_init(struct schema_build *b, struct program *p, struct grammar_budget *budget,
                       struct errmsg *e);
void schema_build_fini(struct schema_build *b);
/* A whole schema; path is for messages. May be called again with another one. */
MUST enum err schema_build_root(struct schema_build *b, const json_t *schema, bool strict,
                                const char *path, struct callee *out);
/* The same, of what it allows only the objects. */
MUST enum err schema_build_object(struct schema_build *b, const json_t *schema, bool strict,
                                  const char *path, struct callee *out);

/* --- between schema*.c */
enum schema_type {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_OBJECT = 4,
    TYPE_ARRAY = 8,
    TYPE_STRING = 16,
    TYPE_NUMBER = 32,
    TYPE_INTEGER = 64
};
MUST enum err schema_compile(struct schema_build *b, const json_t *schema, struct callee *out);
MUST enum err schema_refuse(struct schema_build *b, enum err code, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
/* Path members: ".name" or "[i]"; push returns what pop wants. */
size_t schema_push(struct schema_build *b, const char *name);
size_t schema_push_index(struct schema_build *b, size_t i);
size_t schema_push_key(struct schema_build *b, struct str key);
void schema_pop(struct schema_build *b, size_t mark);
/* A new rule from an automaton being built (consumed), or from a finished one (kept). */
MUST enum err schema_rule(struct schema_build *b, struct nfa *a, int start, int *rule);
int schema_rule_of(struct schema_build *b, const struct dfa *d);
/* A member that must be an integer of at least 0; *out keeps its value when it is absent. */
MUST enum err schema_count(struct schema_build *b, const json_t *schema, const char *name,
                           uint32_t *out);

/* schema_keywords.c */
/* Refuses unknown and unsupported keywords. */
MUST enum err schema_check_keywords(struct schema_build *b, const json_t *schema);
/* Does it say more than titles and definitions? `but` (may be NULL) is not counted. */
bool schema_constrains(const json_t *schema, const char *but);
/* The types it allows: its "type", or those its keywords speak of, or 0 = all. */
MUST enum err schema_types(struct schema_build *b, const json_t *schema, int *types);
bool schema_is_annotation(const char *key);
bool schema_is_constraint(const char *key); /* a keyword that is none of those */

/* schema.c: false when it has enum or const and none of these values is of its type and of both. */
MUST enum err schema_has_value(struct schema_build *b, const json_t *schema, bool *has);

/* schema_merge.c: what both demand, as one schema without $ref and allOf; borrowed (owned by b->made). false when no type or value
 * is left. */
MUST enum err schema_merge(struct schema_build *b, const json_t *x, const json_t *y,
                           const json_t **out);
/* The same schema without $ref and allOf at its top. */
MUST enum err schema_resolve(struct schema_build *b, const json_t *schema, const json_t **out);
MUST enum err schema_ref_target(struct schema_build *b, const json_t *ref, const json_t **out);
/* A shallow copy without one member. */
MUST enum err schema_without(struct schema_build *b, const json_t *schema, const char *name,
                             const json_t **out);

MUST enum err schema_string(struct schema_build *b, const json_t *schema, struct callee *out);
MUST enum err schema_number(struct schema_build *b, const json_t *schema, bool integer,
                            struct callee *out);
MUST enum err schema_object(struct schema_build *b, const json_t *schema, struct callee *out);
MUST enum err schema_array(struct schema_build *b, const json_t *schema, struct callee *out);

#endif
