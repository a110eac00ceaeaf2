/* openai_format.c - what form an answer must have: response_format, and the names vLLM has for the same. The gateway passes what it does
 * not know; the engine refuses it. Whether a schema or an expression can be kept is found out by who compiles it. Pure. */
#include <stdio.h>
#include <string.h>

#include "base/openai_check.h"

/* The place inside the member, with a colon; the message begins with the member's name anyway. */
struct place {
    char text[64];
};
static struct place inside(const char *param, const char *path)
{
    struct place p = {""};
    size_t n = strlen(param);
    if (path[n]) snprintf(p.text, sizeof p.text, "%s: ", path + n + 1);
    return p;
}

static bool set_format(const struct openai_check *c, const char *param, struct openai_format f)
{
    if (c->r->format.kind != OPENAI_FORMAT_TEXT)
        return openai_refuse(c, param, "invalid_value", "a form is demanded twice");
    c->r->format = f;
    return true;
}

static bool set_schema(const struct openai_check *c, const char *param, const char *path,
                       const json_t *schema, bool strict)
{
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return openai_refuse(c, param, "invalid_type", "%sexpected a schema (an object), got %s",
                             inside(param, path).text, json_kind(schema));
    return set_format(
        c, param,
        (struct openai_format){
            .kind = OPENAI_FORMAT_SCHEMA, .path = path, .schema = schema, .strict = strict});
}

static bool set_regex(const struct openai_check *c, const char *param, const char *path,
                      const json_t *v)
{
    if (!json_string_length(v))
        return openai_refuse(c, param, "invalid_type", "%sexpected a regular expression, got %s",
                             inside(param, path).text,
                             json_is_string(v) ? "an empty string" : json_kind(v));
    return set_format(
        c, param,
        (struct openai_format){.kind = OPENAI_FORMAT_REGEX, .path = path, .regex = json_str(v)});
}

static bool set_choices(const struct openai_check *c, const char *param, const char *path,
                        const json_t *v)
{
    bool fine = json_array_size(v) > 0;
    for (size_t i = 0; i < json_array_size(v); i++)
        fine = fine && json_string_length(json_array_get(v, i));
    if (!fine)
        return openai_refuse(c, param, "invalid_type",
                             "%sexpected an array of strings that are not empty, got %s",
                             inside(param, path).text,
                             !json_is_array(v)    ? json_kind(v)
                             : json_array_size(v) ? "one with something else"
                                                  : "an empty one");
    return set_format(
        c, param, (struct openai_format){.kind = OPENAI_FORMAT_CHOICE, .path = path, .choices = v});
}

/* --- response_format */
static bool json_schema_format(const struct openai_check *c, const json_t *v)
{
    const json_t *form = json_object_get(v, "json_schema"), *strict = json_given(form, "strict"),
                 *schema = json_given(form, "schema");
    if (!json_is_object(form))
        return openai_refuse(c, "response_format", "invalid_type",
                             "json_schema: expected an object, got %s", json_kind(form));
    if (c->strict != OPENAI_ENGINE) return true;
    if (strict && !json_is_boolean(strict))
        return openai_refuse(c, "response_format", "invalid_type",
                             "json_schema.strict: expected true or false, got %s",
                             json_kind(strict));
    return set_schema(c, "response_format", "response_format.json_schema.schema", schema,
                      json_is_true(strict));
}

static bool check_response_format(const struct openai_check *c)
{
    const json_t *v = openai_given(c, "response_format");
    if (!v) return true;
    if (!json_is_object(v))
        return openai_refuse_type(c, "response_format", "an object like {\"type\":\"text\"}", v);
    struct str type = json_member_str(v, "type");
    if (!type.p)
        return openai_refuse(c, "response_format", "invalid_type",
                             "type: expected a string, got %s",
                             json_kind(json_object_get(v, "type")));
    if (str_eqz(type, "json_schema")) return json_schema_format(c, v);
    if (c->strict != OPENAI_ENGINE || str_eqz(type, "text")) return true;
    if (str_eqz(type, "regex"))
        return set_regex(c, "response_format", "response_format.regex", json_given(v, "regex"));
    if (!str_eqz(type, "json_object"))
        return openai_refuse(c, "response_format", "unsupported_value",
                             "type: expected text, json_object, json_schema or regex");
    if (json_given(v, "schema")) /* as llama.cpp's server takes it */
        return set_schema(c, "response_format", "response_format.schema", json_given(v, "schema"),
                          false);
    return set_format(
        c, "response_format",
        (struct openai_format){.kind = OPENAI_FORMAT_JSON_OBJECT, .path = "response_format"});
}

/* --- vLLM's names */
/* A schema may come as JSON text; the text is then replaced by what it says. */
static bool schema_or_text(const struct openai_check *c, const char *param, const char *path,
                           json_t *object, const char *name)
{
    const json_t *v = json_given(object, name);
    struct errmsg e = {0};
    json_t *parsed;
    if (json_is_string(v)) {
        if (json_parse(json_str(v), 0, &parsed, &e))
            return openai_refuse(c, param, "invalid_value", "%snot JSON: %s",
                                 inside(param, path).text, e.text);
        json_object_set_new(object, name, parsed);
        v = parsed;
    }
    return set_schema(c, param, path, v, false);
}

static bool check_guided(const struct openai_check *c)
{
    static const char *const refused[] = {"guided_grammar", "structural_tag"};
    json_t *body = c->r->body;
    if (c->strict != OPENAI_ENGINE) return true;
    for (int i = 0; i < 2; i++)
        if (openai_given(c, refused[i]))
            return openai_refuse(c, refused[i], "unsupported_value",
                                 "this engine knows schemas, regular expressions and choices");
    return (!openai_given(c, "guided_json") ||
            schema_or_text(c, "guided_json", "guided_json", body, "guided_json")) &&
           (!openai_given(c, "guided_regex") ||
            set_regex(c, "guided_regex", "guided_regex", openai_given(c, "guided_regex"))) &&
           (!openai_given(c, "guided_choice") ||
            set_choices(c, "guided_choice", "guided_choice", openai_given(c, "guided_choice")));
}

static bool check_structured(const struct openai_check *c)
{
    static const char param[] = "structured_outputs";
    json_t *v = json_object_get(c->r->body, param);
    if (c->strict != OPENAI_ENGINE || !v || json_is_null(v)) return true;
    if (!json_is_object(v)) return openai_refuse_type(c, param, "an object", v);
    for (void *it = json_object_iter(v); it; it = json_object_iter_next(v, it)) {
        const char *key = json_object_iter_key(it);
        const json_t *x = json_object_iter_value(it);
        bool fine = true;
        if (json_is_null(x)) continue;
        if (!strcmp(key, "json"))
            fine = schema_or_text(c, param, "structured_outputs.json", v, "json");
        else if (!strcmp(key, "regex"))
            fine = set_regex(c, param, "structured_outputs.regex", x);
        else if (!strcmp(key, "choice"))
            fine = set_choices(c, param, "structured_outputs.choice", x);
        else if (!strcmp(key, "json_object") && json_is_true(x))
            fine = set_format(c, param,
                              (struct openai_format){.kind = OPENAI_FORMAT_JSON_OBJECT,
                                                     .path = "structured_outputs"});
        else if (strcmp(key, "json_object") != 0)
            fine = openai_refuse(c, param, "unsupported_value",
                                 "\"%.40s\": expected json, regex, choice or json_object", key);
        if (!fine) return false;
    }
    return true;
}

bool openai_check_format(const struct openai_check *c)
{
    return check_response_format(c) && check_guided(c) && check_structured(c);
}
