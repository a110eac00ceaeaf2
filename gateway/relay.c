/* relay.c - see relay.h. */
#include "gateway/relay.h"

#include "base/crypto.h"

/* Other spellings of a key: they pass only where a client's own key is meant for the upstream. */
static bool is_key_header(struct str name)
{
    return str_ieq(name, STR("x-api-key")) || str_ieq(name, STR("api-key"));
}

/* What a door's clients say to the service they think they speak to. */
static bool is_door_header(struct str name)
{
    return str_ieq(name, STR("x-api-key")) || str_ieq(name, STR("openai-beta")) ||
           (name.n > 10 && str_ieq(str_sub(name, 0, 10), STR("anthropic-")));
}

static bool keys_pass(const struct exchange *x)
{
    const struct gateway_options *o = &x->gw->o;
    return !upstreams_have_keys(x->gw->upstreams) && !x->gw->keys && !o->engine_url[0];
}

struct str relay_authorization(const struct exchange *x, struct buf *scratch)
{
    struct str given = http_req_header(x->r, "authorization"),
               key = str_trim(http_req_header(x->r, "x-api-key"));
    if (given.n || !key.n || !x->door || !keys_pass(x)) return given;
    buf_z(scratch, "Bearer ");
    buf_str(scratch, key);
    return buf_view(scratch);
}

void relay_headers(const struct exchange *x, struct header_list *out, bool keep_encoding)
{
    bool keys = keys_pass(x);
    char parent[TRACE_PARENT_BYTES + 1];
    struct str connection = http_req_header(x->r, "connection"), name, value;
    headers_init(out);
    for (int i = 0; i < http_req_n_headers(x->r); i++) {
        http_req_header_at(x->r, i, &name, &value);
        bool ours = (name.n >= 7 && str_ieq(str_sub(name, 0, 7), STR("x-deja-"))) ||
                    str_ieq(name, STR("x-request-id"));
        if (ours || header_is_hop(name) || header_in_list(connection, name) ||
            str_ieq(name, STR("authorization")) || str_ieq(name, STR("traceparent")) ||
            (!x->trace.given && str_ieq(name, STR("tracestate"))))
            continue;
        if (is_key_header(name) && !keys) continue;
        if (x->door && is_door_header(name)) continue;
        if (!keep_encoding && str_ieq(name, STR("accept-encoding"))) continue;
        if (!headers_add(out, name, value)) break;
    }
    if (!keep_encoding && !headers_add(out, STR("accept-encoding"), STR("identity"))) return;
    if (!headers_add(out, STR("x-request-id"), str_of(x->request_id))) return;
    trace_write(&x->trace, parent);
    if (!headers_add(out, STR("traceparent"), str_of(parent))) return;
}

void relay_salt(const struct exchange *x, char out[33])
{
    uint8_t mac[32];
    out[0] = 0;
    if (!x->gw->o.engine_url[0]) return; /* nobody would read it */
    hmac_sha256(str_of(x->gw->secret), str_of(x->tenant), mac);
    static const char hex[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        out[2 * i] = hex[mac[i] >> 4];
        out[2 * i + 1] = hex[mac[i] & 15];
    }
    out[32] = 0;
}
