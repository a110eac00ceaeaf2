/* key.c - canonical form and hashes of a request, and whether a similar question may be answered by its entry. */
#include "cache/key.h"

#include <string.h>

#include "base/mem.h"
#include "cache/guard.h"

enum { CANONICAL_BYTES_MAX = 16 << 20 };

/* Fields that change how an answer is sent, billed or labelled, never what it says. `model` is taken from the scope (after aliases). */
static const char *const ignored[] = {"stream",
                                      "stream_options",
                                      "user",
                                      "metadata",
                                      "service_tier",
                                      "store",
                                      "model",
                                      "safety_identifier",
                                      "prompt_cache_key",
                                      "prompt_cache_retention",
                                      "cache"};

static bool is_ignored(const char *name)
{
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (!strcmp(name, ignored[i])) return true;
    return false;
}

/* [{"type":"text","text":"x"}] -> "x": both forms mean the same */
static json_t *plain_content(json_t *content)
{
    if (!json_is_array(content) || json_array_size(content) != 1) return NULL;
    json_t *part = json_array_get(content, 0);
    if (!json_is_object(part) || json_object_size(part) != 2 ||
        !str_eqz(json_member_str(part, "type"), "text"))
        return NULL;
    json_t *text = json_object_get(part, "text");
    return json_is_string(text) ? text : NULL;
}

static json_t *canonical_message(json_t *message, bool drop_text)
{
    json_t *copy = json_copy(message);
    json_t *content = copy ? json_object_get(copy, "content") : NULL;
    if (drop_text) {
        json_object_del(
            copy,
            "content"); /* an absent content never meets a null or empty one: "dropped" marks it */
        json_object_set_new(copy, "\x01text", json_true());
        return copy;
    }
    json_t *plain = plain_content(content);
    if (plain) json_object_set(copy, "content", plain);
    return copy;
}

static bool is_user_text(const json_t *message)
{
    if (!str_eqz(json_member_str(message, "role"), "user")) return false;
    json_t *content = json_object_get(message, "content");
    return json_is_string(content) || plain_content(content) != NULL;
}

static json_t *canonical_messages(json_t *messages, bool with_text)
{
    json_t *out = json_array(), *m;
    size_t i, n = json_array_size(messages);
    json_array_foreach(messages, i, m)
    {
        bool drop = !with_text && i + 1 == n && is_user_text(m);
        json_array_append_new(out, canonical_message(m, drop));
    }
    return out;
}

/* Two names of one bound; with both given the smaller one counts, and each stays what it is. */
static const char *name_of(const char *name, const json_t *body)
{
    const json_t *other = json_object_get(body, "max_tokens");
    bool alone = !other || json_is_null(other);
    return alone && !strcmp(name, "max_completion_tokens") ? "max_tokens" : name;
}

enum err key_canonical(const struct openai_request *r, bool with_text, struct buf *out)
{
    json_t *body = json_object(), *value;
    const char *name;
    json_object_foreach(r->body, name, value)
    {
        if (is_ignored(name)) continue;
        if (!strcmp(name, "messages") && json_is_array(value)) {
            json_object_set_new(body, name, canonical_messages(value, with_text));
        } else if (!strcmp(name, "stop") && json_is_array(value) && json_array_size(value) == 1) {
            json_object_set(body, name, json_array_get(value, 0));
        } else if (!strcmp(name, "prompt") && !with_text && json_is_string(value)) {
            json_object_set_new(body, "\x01text", json_true());
        } else if (strcmp(name, "max_tokens") || !json_is_null(value)) {
            json_object_set(body, name_of(name, r->body), value);
        }
    }
    json_write_canonical(out, body);
    json_decref(body);
    return buf_failed(out) ? ERR_TOO_LARGE : OK;
}

static struct hash128 hash_of(const struct key_rules *rules, uint64_t seed_salt,
                              const struct cache_scope *scope, enum openai_kind kind,
                              struct str canonical, bool with_embedder)
{
    struct hasher h;
    hasher_open(&h, rules->secret ^ seed_salt);
    hasher_u64(&h, 'v', 1); /* version of the canonical form */
    hasher_u64(&h, 'k', (uint64_t)kind);
    hasher_field(&h, 't', scope->tenant);
    hasher_field(&h, 'n', scope->ns);
    hasher_field(&h, 'm', scope->model);
    if (with_embedder) hasher_field(&h, 'e', rules->embedder_id);
    hasher_field(&h, 'b', canonical);
    return hasher_close(&h);
}

struct hash128 key_curated(uint64_t secret, struct str tenant, struct str ns)
{
    struct hasher h;
    hasher_open(&h, secret ^ 0x63757261);
    hasher_u64(&h, 'v', 2);
    hasher_field(&h, 't', tenant);
    hasher_field(&h, 'n', ns);
    return hasher_close(&h);
}

struct hash128 key_curated_entry(uint64_t secret, const struct cache_scope *scope,
                                 struct str question)
{
    struct hasher h;
    hasher_open(&h, secret ^ 0x73656564);
    hasher_u64(&h, 'v', 2);
    hasher_field(&h, 't', scope->tenant);
    hasher_field(&h, 'n', scope->ns);
    hasher_field(&h, 'm', scope->model);
    hasher_field(&h, 'q', question);
    return hasher_close(&h);
}

/* Fields that change how an answer is made up, not what the right one is: a curated answer is right whatever they say. */
static bool is_style(const char *name)
{
    static const char *const style[] = {
        "messages",         "temperature",       "top_p", "max_tokens", "max_completion_tokens",
        "presence_penalty", "frequency_penalty", "seed",  "n"};
    for (size_t i = 0; i < sizeof style / sizeof *style; i++)
        if (!strcmp(name, style[i])) return true;
    return is_ignored(name);
}

/* A system prompt or none, one question, nothing else asked for. */
static bool is_plain(const struct openai_request *r)
{
    const char *name;
    json_t *value, *m;
    size_t i, n = json_array_size(r->messages);
    if (r->n > 1) return false;
    json_object_foreach(r->body, name, value) if (!is_style(name)) return false;
    if (n < 1 || n > 2) return false;
    json_array_foreach(r->messages, i, m)
    {
        struct str role = json_member_str(m, "role");
        bool last = i + 1 == n;
        if (last ? !is_user_text(m) || json_object_size(m) != 2
                 : !str_eqz(role, "system") && !str_eqz(role, "developer"))
            return false;
    }
    return true;
}

bool key_looks_like_code(struct str text)
{
    if (str_find(text, STR("```")) >= 0 || str_find(text, STR("</")) >= 0 ||
        str_find(text, STR("/>")) >= 0)
        return true;
    if (str_find(text, STR("Traceback")) >= 0 || str_find(text, STR("#include")) >= 0 ||
        str_find(text, STR("SELECT ")) >= 0)
        return true;
    size_t marks = 0, lines = 1, tabs = 0;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (strchr("{};=<>|\\[]_", c) && c) marks++;
        if (c == '\n') lines++;
        if (c == '\t') tabs++;
    }
    return marks * 12 > text.n || (marks >= 4 && marks * 25 > text.n) || lines > 8 || tabs > 2;
}

static const char *why_not_similar(const struct key_rules *rules, const struct openai_request *r,
                                   struct str text)
{
    if (!rules->embedder_id.n) return "no_embedder";
    if (r->kind != OPENAI_CHAT) return "not_chat";
    if (r->has_image) return "image";
    if (r->has_audio) return "audio";
    if (r->tools && json_array_size(r->tools)) return "tools";
    if (json_object_get(r->body, "functions")) return "tools";
    if (r->n > 1) return "n";
    if (r->logprobs || r->top_logprobs > 0) return "logprobs";
    if (!text.n) return "last_not_user_text";
    if (text.n > rules->text_bytes_max) return "long_text";
    if (key_looks_like_code(text)) return "code";
    return NULL;
}

/* The strings a key owns lie behind each other in one block. */
static struct str place(char **at, struct str s)
{
    struct str out = {*at, s.n};
    if (s.n) memcpy(*at, s.p, s.n);
    (*at)[s.n] = 0;
    *at += s.n + 1;
    return out;
}

static enum err own_strings(struct cache_key *out, const struct cache_scope *scope, struct str text)
{
    char *at = out->owned = try_malloc(text.n + scope->tenant.n + scope->model.n + scope->ns.n + 4);
    if (!at) return ERR_FULL;
    out->user_text = place(&at, text);
    out->tenant = place(&at, scope->tenant);
    out->model = place(&at, scope->model);
    out->ns = place(&at, scope->ns);
    return OK;
}

enum err key_make(const struct key_rules *rules, const struct openai_request *r,
                  const struct cache_scope *scope, struct cache_key *out)
{
    memset(out, 0, sizeof *out);
    struct buf canonical, scratch;
    buf_init(&canonical, CANONICAL_BYTES_MAX);
    buf_init(&scratch, CANONICAL_BYTES_MAX);
    struct str text =
        r->kind == OPENAI_CHAT ? openai_last_user_text(r, &scratch) : (struct str){"", 0};
    if (buf_failed(&scratch)) text = (struct str){"", 0};
    enum err code = key_canonical(r, true, &canonical);
    if (code != OK) goto out;
    out->kind = r->kind;
    out->max_tokens = r->max_tokens;
    out->exact = hash_of(rules, 0, scope, r->kind, buf_view(&canonical), false);
    out->check = hash_of(rules, 0x9e3779b97f4a7c15u, scope, r->kind, buf_view(&canonical), false);
    out->why_not = why_not_similar(rules, r, text);
    out->semantic_allowed = !out->why_not;
    out->temperature = r->temperature;
    if (out->semantic_allowed) {
        buf_clear(&canonical);
        code = key_canonical(r, false, &canonical);
        if (code != OK) goto out;
        out->partition = hash_of(rules, 0x51ed27, scope, r->kind, buf_view(&canonical), true);
        out->lang_hint = guard_language(text);
    }
    if (r->kind == OPENAI_CHAT && text.n && text.n <= rules->text_bytes_max && is_plain(r)) {
        out->curated[0] = key_curated(rules->secret, scope->tenant, scope->ns);
        out->curated[1] = key_curated(rules->secret, STR("*"), scope->ns);
        out->has_system = json_array_size(r->messages) > 1;
    }
    code = own_strings(out, scope, text);
out:
    buf_fini(&canonical);
    buf_fini(&scratch);
    return code;
}

void cache_key_fini(struct cache_key *k)
{
    mem_free(k->owned);
    memset(k, 0, sizeof *k);
}
