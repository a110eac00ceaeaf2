/* openai_parse.c - reads a request body strictly: type and range of every known option, with the place of a mistake in the message.
 * null is the same as absent; unknown fields are left alone; the "cache" member is taken out. Messages and tools: openai_messages.c;
 * the answer's form: openai_format.c.
 * Decided where servers differ: max_tokens and max_completion_tokens together -> the smaller one (max_tokens_most: the larger); an
 * integral real (8.0) is an integer; an empty stop string stops nothing; tool_choice "none"/"auto" without tools passes.
 * Pure, allocation aside. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/openai_check.h"

enum {
    MODEL_BYTES_MAX = 256,
    GATEWAY_N_MAX = 128, /* OpenAI's own bound */
    BIASES_MAX = 10000,
    ENGINE_REPETITION_MAX = 2,
    INPUTS_MAX = 2048, /* OpenAI's bound on embeddings inputs and prompts */
    CHAT = 1 << OPENAI_CHAT,
    COMPLETION = 1 << OPENAI_COMPLETION,
    EMBEDDING = 1 << OPENAI_EMBEDDING
};

bool openai_refuse(const struct openai_check *c, const char *param, const char *code,
                   const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    openai_error_param(c->e, param, code, fmt, ap);
    va_end(ap);
    return false;
}

bool openai_refuse_type(const struct openai_check *c, const char *param, const char *expected,
                        const json_t *got)
{
    return openai_refuse(c, param, "invalid_type", "expected %s, got %s", expected, json_kind(got));
}

/* --- numbers and booleans, by table */
enum number_type { NUMBER_INT, NUMBER_I64, NUMBER_REAL };
struct number_row {
    const char *name;
    enum number_type type;
    double min, max; /* of NUMBER_I64: any */
    size_t offset;
    int kinds;
};
#define AT(member) offsetof(struct openai_request, member)
static const struct number_row numbers[] = {
    {"temperature", NUMBER_REAL, 0, 2, AT(temperature), CHAT | COMPLETION},
    {"top_p", NUMBER_REAL, 0, 1, AT(top_p), CHAT | COMPLETION},
    {"min_p", NUMBER_REAL, 0, 1, AT(min_p), CHAT | COMPLETION},
    {"top_k", NUMBER_INT, -1, INT32_MAX, AT(top_k), CHAT | COMPLETION},
    {"presence_penalty", NUMBER_REAL, -2, 2, AT(presence_penalty), CHAT | COMPLETION},
    {"frequency_penalty", NUMBER_REAL, -2, 2, AT(frequency_penalty), CHAT | COMPLETION},
    {"repetition_penalty", NUMBER_REAL, 0.01, 10, AT(repetition_penalty), CHAT | COMPLETION},
    {"seed", NUMBER_I64, 0, 0, AT(seed), CHAT | COMPLETION},
    {"max_tokens", NUMBER_INT, 1, INT32_MAX, AT(max_tokens), CHAT | COMPLETION},
    {"top_logprobs", NUMBER_INT, 0, 20, AT(top_logprobs), CHAT},
    {"dimensions", NUMBER_INT, 1, 65536, AT(dimensions), EMBEDDING},
};

static bool read_int(const struct openai_check *c, const char *name, const json_t *v,
                     int64_t range[2], int64_t *out)
{
    if (!json_is_number(v)) return openai_refuse_type(c, name, "an integer", v);
    double real = json_number_value(v);
    if (json_is_real(v) && real != floor(real))
        return openai_refuse(c, name, "invalid_type", "expected an integer, got %g", real);
    bool exact = json_is_integer(v) || fabs(real) <= 0x1p53;
    int64_t n = json_is_integer(v) ? json_integer_value(v) : exact ? (int64_t)real : 0;
    if (exact && n >= range[0] && n <= range[1]) {
        *out = n;
        return true;
    }
    if (range[1] >= INT32_MAX)
        return openai_refuse(c, name, "invalid_value",
                             "%.15g is out of range: expected an integer of at least %lld", real,
                             (long long)range[0]);
    return openai_refuse(c, name, "invalid_value",
                         "%.15g is out of range: expected an integer from %lld to %lld", real,
                         (long long)range[0], (long long)range[1]);
}

static bool read_real(const struct openai_check *c, const char *name, const json_t *v,
                      const struct number_row *row, double *out)
{
    if (!json_is_number(v)) return openai_refuse_type(c, name, "a number", v);
    double n = json_number_value(v);
    if (!(n >= row->min && n <= row->max))
        return openai_refuse(c, name, "invalid_value",
                             "%g is out of range: expected a number from %g to %g", n, row->min,
                             row->max);
    *out = n;
    return true;
}

static bool check_number(const struct openai_check *c, const struct number_row *row)
{
    const json_t *v = openai_given(c, row->name);
    char *at = (char *)c->r + row->offset;
    if (!v || !(row->kinds & 1 << c->r->kind)) return true;
    if (row->type == NUMBER_REAL) return read_real(c, row->name, v, row, (double *)at);
    int64_t n = 0, range[2] = {(int64_t)row->min, (int64_t)row->max};
    if (row->type == NUMBER_I64) range[0] = INT64_MIN, range[1] = INT64_MAX;
    if (!read_int(c, row->name, v, range, &n)) return false;
    if (row->type == NUMBER_I64)
        *(int64_t *)at = n;
    else
        *(int *)at = (int)n;
    return true;
}

static bool read_bool(const struct openai_check *c, const char *name, bool *out)
{
    const json_t *v = openai_given(c, name);
    if (!v) return true;
    if (!json_is_boolean(v)) return openai_refuse_type(c, name, "true or false", v);
    *out = json_is_true(v);
    return true;
}

static bool check_numbers(const struct openai_check *c)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!check_number(c, &numbers[i])) return false;
    if (c->r->top_k < 0) c->r->top_k = 0;
    if (c->strict == OPENAI_ENGINE && c->r->repetition_penalty > ENGINE_REPETITION_MAX)
        return openai_refuse(c, "repetition_penalty", "invalid_value",
                             "%g is out of range: this engine takes at most %d",
                             c->r->repetition_penalty, ENGINE_REPETITION_MAX);
    c->r->has_seed = openai_given(c, "seed") != NULL;
    const json_t *v = c->r->kind == OPENAI_CHAT ? openai_given(c, "max_completion_tokens") : NULL;
    int64_t n = 0;
    if (v && !read_int(c, "max_completion_tokens", v, (int64_t[]){1, INT32_MAX}, &n)) return false;
    c->r->max_tokens_most = c->r->max_tokens > n ? c->r->max_tokens : v ? (int)n : -1;
    if (v && (c->r->max_tokens < 0 || n < c->r->max_tokens)) c->r->max_tokens = (int)n;
    return true;
}

static bool check_n(const struct openai_check *c)
{
    const json_t *v = openai_given(c, "n");
    int64_t n = 1, most = c->strict == OPENAI_ENGINE ? OPENAI_N_MAX : GATEWAY_N_MAX;
    if (v && !read_int(c, "n", v, (int64_t[]){1, most}, &n)) return false;
    c->r->n = c->r->answers = (int)n;
    return true;
}

/* --- single options */
static bool check_model(const struct openai_check *c)
{
    const json_t *v = openai_given(c, "model");
    if (!v)
        return openai_refuse(c, "model", "missing_required_parameter", "required, a model name");
    if (!json_is_string(v)) return openai_refuse_type(c, "model", "a string", v);
    c->r->model = json_str(v);
    if (!c->r->model.n) return openai_refuse(c, "model", "model_not_found", "the name is empty");
    if (c->r->model.n > MODEL_BYTES_MAX)
        return openai_refuse(c, "model", "invalid_value", "%zu bytes long: expected at most %d",
                             c->r->model.n, MODEL_BYTES_MAX);
    for (size_t i = 0; i < c->r->model.n; i++)
        if ((unsigned char)c->r->model.p[i] < 0x20 || c->r->model.p[i] == 0x7F)
            return openai_refuse(c, "model", "invalid_value", "the name holds a control character");
    return true;
}

static bool check_stream(const struct openai_check *c)
{
    if (!read_bool(c, "stream", &c->r->stream)) return false;
    const json_t *v = openai_given(c, "stream_options");
    if (!v) return true;
    if (!json_is_object(v)) return openai_refuse_type(c, "stream_options", "an object", v);
    if (!c->r->stream)
        return openai_refuse(c, "stream_options", "invalid_value",
                             "allowed only with \"stream\": true");
    const json_t *usage = json_object_get(v, "include_usage");
    if (usage && !json_is_null(usage) && !json_is_boolean(usage))
        return openai_refuse(c, "stream_options", "invalid_type",
                             "include_usage: expected true or false, got %s", json_kind(usage));
    c->r->include_usage = json_is_true(usage);
    return true;
}

static bool add_stop(const struct openai_check *c, const json_t *v, size_t i)
{
    struct openai_request *r = c->r;
    if (!json_is_string(v))
        return openai_refuse(c, "stop", "invalid_type", "[%zu]: expected a string, got %s", i,
                             json_kind(v));
    if (json_string_length(v)) r->stops[r->n_stops++].text = json_str(v);
    return true;
}

static bool check_stop(const struct openai_check *c)
{
    const json_t *v = openai_given(c, "stop");
    if (!v) return true;
    if (json_is_string(v)) return add_stop(c, v, 0);
    if (!json_is_array(v))
        return openai_refuse_type(c, "stop", "a string or an array of strings", v);
    size_t n = json_array_size(v);
    if (n > OPENAI_STOPS_MAX)
        return openai_refuse(c, "stop", "invalid_value", "%zu strings: expected at most %d", n,
                             OPENAI_STOPS_MAX);
    for (size_t i = 0; i < n; i++)
        if (!add_stop(c, json_array_get(v, i), i)) return false;
    return true;
}

static bool check_logprobs(const struct openai_check *c)
{
    struct openai_request *r = c->r;
    if (r->kind == OPENAI_CHAT) {
        if (!read_bool(c, "logprobs", &r->logprobs)) return false;
        if (r->top_logprobs && !r->logprobs)
            return openai_refuse(c, "top_logprobs", "invalid_value",
                                 "allowed only with \"logprobs\": true");
        return true;
    }
    const json_t *v = openai_given(c, "logprobs");
    int64_t n = 0;
    if (v && !read_int(c, "logprobs", v, (int64_t[]){0, 20}, &n)) return false;
    r->logprobs = v != NULL;
    r->top_logprobs = (int)n;
    return true;
}

static bool add_bias(const struct openai_check *c, struct str key, const json_t *v)
{
    int64_t id;
    bool plain = key.n && key.p[0] != '-' && (key.p[0] != '0' || key.n == 1); /* one name a token */
    bool digits = plain && str_to_i64(key, 0, INT32_MAX, &id) == OK;
    if (!digits) {
        struct str shown = str_sub(key, 0, 32);
        shown = str_sub(shown, 0, utf8_complete(shown));
        return openai_refuse(c, "logit_bias", "invalid_value",
                             "key \"" STR_FMT "\": expected a token id, digits only",
                             STR_ARG(shown));
    }
    if (!json_is_number(v))
        return openai_refuse(c, "logit_bias", "invalid_type",
                             "token %lld: expected a number from -100 to 100, got %s",
                             (long long)id, json_kind(v));
    double bias = json_number_value(v);
    if (!(bias >= -100 && bias <= 100))
        return openai_refuse(c, "logit_bias", "invalid_value",
                             "token %lld: %g is out of range: expected a number from -100 to 100",
                             (long long)id, bias);
    c->r->biases[c->r->n_biases++] = (struct openai_bias){(int32_t)id, (float)bias};
    return true;
}

static bool check_bias(const struct openai_check *c)
{
    const json_t *v = openai_given(c, "logit_bias");
    if (!v) return true;
    if (!json_is_object(v))
        return openai_refuse_type(c, "logit_bias", "an object of token ids and numbers", v);
    size_t n = json_object_size(v);
    if (!n) return true;
    if (n > BIASES_MAX)
        return openai_refuse(c, "logit_bias", "invalid_value", "%zu tokens: expected at most %d", n,
                             BIASES_MAX);
    c->r->biases = xcalloc(n, sizeof *c->r->biases);
    json_t *o = (json_t *)(uintptr_t)v; /* jansson's iterators take no const */
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it))
        if (!add_bias(c, (struct str){json_object_iter_key(it), json_object_iter_key_len(it)},
                      json_object_iter_value(it)))
            return false;
    return true;
}

static bool check_labels(const struct openai_check *c)
{
    const json_t *user = openai_given(c, "user"), *metadata = openai_given(c, "metadata");
    if (user && !json_is_string(user)) return openai_refuse_type(c, "user", "a string", user);
    if (metadata && !json_is_object(metadata))
        return openai_refuse_type(c, "metadata", "an object", metadata);
    return true;
}

/* --- prompt and input: a string, strings, token ids, or arrays of token ids */
static bool token_ids(const json_t *v)
{
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *id = json_array_get(v, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return false;
    }
    return json_array_size(v) > 0;
}

static bool same_kind(const struct openai_check *c, const char *name, const json_t *v)
{
    bool strings = json_is_string(json_array_get(v, 0)),
         lists = json_is_array(json_array_get(v, 0));
    if (!strings && !lists)
        return token_ids(v) ||
               openai_refuse(c, name, "invalid_type",
                             "expected only strings, only token ids, or only arrays of token ids");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *item = json_array_get(v, i);
        if (strings && !json_is_string(item))
            return openai_refuse(c, name, "invalid_type",
                                 "[%zu]: expected a string like the first one, got %s", i,
                                 json_kind(item));
        if (lists && (!json_is_array(item) || !token_ids(item)))
            return openai_refuse(c, name, "invalid_type", "[%zu]: expected an array of token ids",
                                 i);
        if (strings && c->r->kind == OPENAI_EMBEDDING && !json_string_length(item))
            return openai_refuse(c, name, "invalid_value", "[%zu]: the string is empty", i);
    }
    return true;
}

static bool check_texts(const struct openai_check *c, const char *name, const json_t **out)
{
    const json_t *v = *out = openai_given(c, name);
    if (!v)
        return openai_refuse(c, name, "missing_required_parameter",
                             "required, a string or an array");
    if (json_is_string(v)) {
        bool empty = c->r->kind == OPENAI_EMBEDDING && !json_string_length(v);
        return !empty || openai_refuse(c, name, "invalid_value", "the string is empty");
    }
    if (!json_is_array(v)) return openai_refuse_type(c, name, "a string or an array", v);
    size_t n = json_array_size(v);
    if (!n) return openai_refuse(c, name, "invalid_value", "the array is empty");
    if (n > INPUTS_MAX && !json_is_integer(json_array_get(v, 0)))
        return openai_refuse(c, name, "invalid_value", "%zu entries: expected at most %d", n,
                             INPUTS_MAX);
    return same_kind(c, name, v);
}

static bool check_completion(const struct openai_check *c)
{
    struct openai_request *r = c->r;
    if (!check_texts(c, "prompt", &r->prompt) || !read_bool(c, "echo", &r->echo)) return false;
    const json_t *best_of = openai_given(c, "best_of"), *suffix = openai_given(c, "suffix");
    int64_t best = r->n;
    if (best_of && !read_int(c, "best_of", best_of, (int64_t[]){1, GATEWAY_N_MAX}, &best))
        return false;
    if (best < r->n)
        return openai_refuse(c, "best_of", "invalid_value", "%lld is below n (%d)", (long long)best,
                             r->n);
    if (suffix && !json_is_string(suffix))
        return openai_refuse_type(c, "suffix", "a string", suffix);
    bool many = json_is_array(r->prompt) && json_array_size(r->prompt) &&
                !json_is_integer(json_array_get(r->prompt, 0));
    size_t prompts = many ? json_array_size(r->prompt) : 1;
    r->answers = (int)best * (int)prompts; /* at most 128 * 2048 */
    if (c->strict != OPENAI_ENGINE) return true;
    if (best > r->n)
        return openai_refuse(c, "best_of", "unsupported_value",
                             "this engine has no best_of above n");
    if (json_string_length(suffix))
        return openai_refuse(c, "suffix", "unsupported_value",
                             "this engine cannot insert before a suffix");
    if (r->echo && r->logprobs)
        return openai_refuse(c, "echo", "unsupported_value",
                             "this engine has no log-probabilities of a prompt");
    size_t answers = (size_t)r->n * prompts;
    return answers <= OPENAI_N_MAX ||
           openai_refuse(c, "prompt", "invalid_value",
                         "prompts times n make %zu answers: expected at most %d", answers,
                         OPENAI_N_MAX);
}

static bool check_embedding(const struct openai_check *c)
{
    if (!check_texts(c, "input", &c->r->input)) return false;
    const json_t *v = openai_given(c, "encoding_format");
    if (!v) return true;
    if (!json_is_string(v))
        return openai_refuse_type(c, "encoding_format", "\"float\" or \"base64\"", v);
    c->r->base64 = str_eqz(json_str(v), "base64");
    return c->r->base64 || str_eqz(json_str(v), "float") ||
           openai_refuse(c, "encoding_format", "invalid_value", "expected \"float\" or \"base64\"");
}

/* --- the cache member (LiteLLM's form) */
static bool cache_seconds(const struct openai_check *c, const char *name, const json_t *v,
                          int64_t *out)
{
    double s = json_number_value(v);
    if (!json_is_number(v))
        return openai_refuse(c, "cache", "invalid_type", "%s: expected seconds, got %s", name,
                             json_kind(v));
    if (!(s >= 0 && s <= INT32_MAX))
        return openai_refuse(c, "cache", "invalid_value",
                             "%s: %g is out of range: expected seconds, 0 or more", name, s);
    *out = (int64_t)s;
    return true;
}

static bool cache_flag(const struct openai_check *c, const char *name, const json_t *v, bool *out)
{
    if (!json_is_boolean(v))
        return openai_refuse(c, "cache", "invalid_type", "%s: expected true or false, got %s", name,
                             json_kind(v));
    *out = json_is_true(v);
    return true;
}

static bool cache_namespace(const struct openai_check *c, const json_t *v)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-";
    struct str s = json_str(v);
    size_t most = sizeof c->r->cache_namespace - 1;
    if (!s.p)
        return openai_refuse(c, "cache", "invalid_type", "namespace: expected a string, got %s",
                             json_kind(v));
    if (!s.n || s.n > most || strspn(s.p, allowed) != s.n)
        return openai_refuse(c, "cache", "invalid_value",
                             "namespace: expected 1 to %zu of letters, digits and ._:/-", most);
    memcpy(c->r->cache_namespace, s.p, s.n);
    return true;
}

static bool cache_member(const struct openai_check *c, struct str key, const json_t *v)
{
    struct openai_request *r = c->r;
    bool use = true;
    if (json_is_null(v)) return true;
    if (str_eqz(key, "no-cache")) return cache_flag(c, "no-cache", v, &r->cache_no_cache);
    if (str_eqz(key, "no-store")) return cache_flag(c, "no-store", v, &r->cache_no_store);
    if (str_eqz(key, "ttl")) return cache_seconds(c, "ttl", v, &r->cache_ttl_s);
    if (str_eqz(key, "s-maxage") || str_eqz(key, "s-max-age"))
        return cache_seconds(c, "s-maxage", v, &r->cache_max_age_s);
    if (str_eqz(key, "namespace")) return cache_namespace(c, v);
    if (!str_eqz(key, "use-cache"))
        return openai_refuse(
            c, "cache", "unknown_parameter",
            "unknown member: expected no-cache, no-store, ttl, s-maxage, namespace or use-cache");
    if (!cache_flag(c, "use-cache", v, &use)) return false;
    if (!use) r->cache_no_cache = r->cache_no_store = true;
    return true;
}

static bool take_cache(const struct openai_check *c)
{
    json_t *v =
        c->names & openai_name_bit(STR("cache")) ? json_object_get(c->r->body, "cache") : NULL;
    if (!v) return true;
    if (!json_is_object(v) && !json_is_null(v))
        return openai_refuse_type(c, "cache", "an object like {\"no-store\":true}", v);
    for (void *it = json_object_iter(v); it; it = json_object_iter_next(v, it))
        if (!cache_member(c, (struct str){json_object_iter_key(it), json_object_iter_key_len(it)},
                          json_object_iter_value(it)))
            return false;
    json_object_del(c->r->body, "cache");
    return true;
}

/* --- the whole */
static bool check_body(const struct openai_check *c)
{
    if (!check_model(c)) return false;
    if (c->r->kind == OPENAI_EMBEDDING)
        return check_numbers(c) && check_labels(c) && check_embedding(c) && take_cache(c);
    return check_numbers(c) && check_n(c) && check_stream(c) && check_stop(c) &&
           check_logprobs(c) && check_bias(c) && openai_check_format(c) && check_labels(c) &&
           (c->r->kind == OPENAI_CHAT ? (openai_check_messages(c) && openai_check_tools(c))
                                      : check_completion(c)) &&
           take_cache(c);
}

/* A body that is no JSON: names the top-level member the fault lies in when it has a plain name. */
static enum err refuse_text(struct openai_error *e, struct str body, size_t at,
                            const struct errmsg *why)
{
    char param[sizeof e->param] = "";
    struct str key = json_key_at(body, at);
    bool plain = key.n && key.n < sizeof param;
    for (size_t i = 0; plain && i < key.n; i++)
        plain = (key.p[i] >= 'a' && key.p[i] <= 'z') || key.p[i] == '_';
    if (plain) memcpy(param, key.p, key.n);
    openai_error_set(e, 400, "invalid_request_error", param, "invalid_json", "body: %s", why->text);
    return why->code;
}

static uint64_t member_names(json_t *body)
{
    uint64_t names = 0;
    for (void *it = json_object_iter(body); it; it = json_object_iter_next(body, it))
        names |=
            openai_name_bit((struct str){json_object_iter_key(it), json_object_iter_key_len(it)});
    return names;
}

enum err openai_parse(struct openai_request *out, enum openai_kind kind, struct str body,
                      enum openai_strict strict, struct openai_error *e)
{
    size_t at;
    struct errmsg why = {0};
    *e = (struct openai_error){0};
    *out = (struct openai_request){.kind = kind,
                                   .n = 1,
                                   .max_tokens = -1,
                                   .max_tokens_most = -1,
                                   .answers = 1,
                                   .temperature = 1,
                                   .top_p = 1,
                                   .repetition_penalty = 1,
                                   .cache_ttl_s = -1,
                                   .cache_max_age_s = -1,
                                   .parallel_tool_calls = true};
    if (json_parse_at(body, 0, &out->body, &at, &why)) return refuse_text(e, body, at, &why);
    struct openai_check c = {out, strict, e, member_names(out->body)};
    bool fine = json_is_object(out->body) ? check_body(&c) : false;
    if (!json_is_object(out->body))
        openai_error_set(e, 400, "invalid_request_error", "", "invalid_type",
                         "body: expected a JSON object, got %s", json_kind(out->body));
    if (fine) return OK;
    openai_request_fini(out);
    return ERR_INVALID;
}
