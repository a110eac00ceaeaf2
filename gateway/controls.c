/* controls.c - see controls.h. */
#include "gateway/controls.h"

#include <string.h>

void controls_init(struct controls *c)
{
    *c = (struct controls){.max_age_s = -1, .stale_if_error_s = -1};
}

static enum err refuse(struct openai_error *e, const char *header, const char *what)
{
    openai_error_set(e, 400, "invalid_request_error", header, "", "header %s: %s", header, what);
    return ERR_INVALID;
}

static void take_max_age(struct controls *c, struct str value)
{
    int64_t n;
    /* An unreadable age is treated as 0: the stricter reading (RFC 9111, 4.2.1). */
    if (str_to_i64(value, 0, INT64_MAX, &n) != OK) n = 0;
    if (c->max_age_s < 0 || n < c->max_age_s) c->max_age_s = n;
    if (n == 0) c->skip_lookup = true;
}

static struct str unquote(struct str s)
{
    return s.n >= 2 && s.p[0] == '"' && s.p[s.n - 1] == '"' ? str_sub(s, 1, s.n - 2) : s;
}

/* RFC 5861, 4. Unreadable is 0, the stricter reading; of two the shorter counts. */
static void take_stale(struct controls *c, struct str value)
{
    int64_t n;
    if (str_to_i64(value, 0, INT64_MAX, &n) != OK) n = 0;
    if (c->stale_if_error_s < 0 || n < c->stale_if_error_s) c->stale_if_error_s = n;
}

static void cache_control(struct controls *c, struct str value)
{
    struct str item;
    while (str_next(&value, ',', &item)) {
        struct str name, rest = str_trim(item);
        if (!str_next(&rest, '=', &name)) continue;
        name = str_trim(name);
        if (str_ieq(name, STR("no-cache")))
            c->skip_lookup = true;
        else if (str_ieq(name, STR("no-store")))
            c->no_store = true;
        else if (str_ieq(name, STR("only-if-cached")))
            c->only_if_cached = true;
        else if (str_ieq(name, STR("max-age")))
            take_max_age(c, unquote(str_trim(rest)));
        else if (str_ieq(name, STR("stale-if-error")))
            take_stale(c, unquote(str_trim(rest)));
    }
}

static enum err deja_cache(struct controls *c, struct str value, struct openai_error *e)
{
    if (str_ieq(value, STR("bypass")))
        c->bypass = true;
    else if (str_ieq(value, STR("exact")))
        c->skip_semantic = true;
    else if (str_ieq(value, STR("refresh")))
        c->skip_lookup = true;
    else
        return refuse(e, "x-deja-cache", "expected bypass, exact or refresh");
    return OK;
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-' || c == ':';
}

static bool copy_name(char *out, size_t cap, struct str value)
{
    if (!value.n || value.n >= cap) return false;
    for (size_t i = 0; i < value.n; i++)
        if (!is_name_char(value.p[i])) return false;
    memcpy(out, value.p, value.n);
    out[value.n] = 0;
    return true;
}

static enum err tags(struct controls *c, struct str value, struct openai_error *e)
{
    size_t n = 0;
    struct str item;
    char one[65];
    while (str_next(&value, ',', &item)) {
        item = str_trim(item);
        if (!copy_name(one, sizeof one, item) || n + item.n + 1 >= sizeof c->tags)
            return refuse(e, "x-deja-tags",
                          "expected names of 1 to 64 letters, digits, . _ - : and commas, 256 "
                          "characters in all");
        if (n) c->tags[n++] = ',';
        memcpy(c->tags + n, item.p, item.n);
        n += item.n;
    }
    c->tags[n] = 0;
    return OK;
}

enum err controls_feed(struct controls *c, struct str name, struct str value,
                       struct openai_error *e)
{
    if (str_ieq(name, STR("cache-control"))) return cache_control(c, value), OK;
    if (name.n < 7 || !str_ieq(str_sub(name, 0, 7), STR("x-deja-"))) return OK;
    value = str_trim(value);
    if (str_ieq(name, STR("x-deja-cache"))) return deja_cache(c, value, e);
    if (str_ieq(name, STR("x-deja-tags"))) return tags(c, value, e);
    if (str_ieq(name, STR("x-deja-namespace")))
        return copy_name(c->ns, sizeof c->ns, value)
                   ? OK
                   : refuse(e, "x-deja-namespace", "expected 1 to 64 letters, digits, . _ - :");
    if (str_ieq(name, STR("x-deja-threshold"))) {
        double v;
        if (str_to_f64(value, &v) != OK || v < 0 || v > 1)
            return refuse(e, "x-deja-threshold", "expected a cosine from 0 to 1");
        if (v > c->threshold_min) c->threshold_min = v;
    }
    return OK;
}

enum err controls_priority(bool *batch, struct str value, struct openai_error *e)
{
    value = str_trim(value);
    *batch = str_ieq(value, STR("batch"));
    return *batch || !value.n || str_ieq(value, STR("online"))
               ? OK
               : refuse(e, "x-deja-priority", "expected batch or online");
}

enum err controls_from_body(struct controls *c, const struct openai_request *r,
                            struct openai_error *e)
{
    if (r->cache_no_cache) c->skip_lookup = true;
    if (r->cache_no_store) c->no_store = true;
    if (r->cache_ttl_s > 0) c->ttl_s = r->cache_ttl_s;
    if (r->cache_max_age_s >= 0) {
        if (c->max_age_s < 0 || r->cache_max_age_s < c->max_age_s)
            c->max_age_s = r->cache_max_age_s;
        if (r->cache_max_age_s == 0) c->skip_lookup = true;
    }
    if (!r->cache_namespace[0] || c->ns[0]) return OK;
    if (copy_name(c->ns, sizeof c->ns, str_of(r->cache_namespace))) return OK;
    openai_error_set(e, 400, "invalid_request_error", "cache.namespace", "",
                     "cache.namespace: expected 1 to 64 letters, digits, . _ - :");
    return ERR_INVALID;
}

bool header_is_hop(struct str name)
{
    static const char *const hop[] = {"connection",
                                      "keep-alive",
                                      "proxy-authenticate",
                                      "proxy-authorization",
                                      "proxy-connection",
                                      "te",
                                      "trailer",
                                      "transfer-encoding",
                                      "upgrade",
                                      "content-length",
                                      "host",
                                      "expect",
                                      "date"};
    for (size_t i = 0; i < sizeof hop / sizeof hop[0]; i++)
        if (str_ieq(name, str_of(hop[i]))) return true;
    return false;
}

bool header_in_list(struct str list, struct str name)
{
    struct str item;
    while (str_next(&list, ',', &item))
        if (str_ieq(str_trim(item), name)) return true;
    return false;
}

struct str header_bearer(struct str authorization)
{
    struct str a = str_trim(authorization);
    if (a.n < 7 || !str_ieq(str_sub(a, 0, 7), STR("bearer "))) return (struct str){0};
    return str_trim(str_sub(a, 7, a.n - 7));
}

bool content_type_is(struct str value, const char *type)
{
    struct str head;
    if (!str_next(&value, ';', &head)) return false;
    return str_ieq(str_trim(head), str_of(type));
}

bool content_type_is_json(struct str value)
{
    struct str head, param;
    value = str_trim(value);
    if (!str_next(&value, ';', &head)) return true;
    head = str_trim(head);
    bool json = str_ieq(head, STR("application/json")) ||
                (head.n > 17 && str_ieq(str_sub(head, 0, 12), STR("application/")) &&
                 str_ieq(str_sub(head, head.n - 5, 5), STR("+json")));
    if (!json) return false;
    while (str_next(&value, ';', &param)) {
        param = str_trim(param);
        if (param.n < 8 || !str_ieq(str_sub(param, 0, 8), STR("charset="))) continue;
        struct str charset = unquote(str_sub(param, 8, param.n - 8));
        if (!str_ieq(charset, STR("utf-8")) && !str_ieq(charset, STR("utf8")) &&
            !str_ieq(charset, STR("us-ascii")))
            return false;
    }
    return true;
}

bool request_id_is_good(struct str id)
{
    if (!id.n || id.n > 72) return false;
    for (size_t i = 0; i < id.n; i++)
        if (id.p[i] <= ' ' || id.p[i] >= 0x7F || id.p[i] == '"') return false;
    return true;
}
