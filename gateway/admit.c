/* admit.c - stage "admit": whose request is it. With a key table an unknown key is a 401; without one (loopback only) every bearer is a
 * tenant of its own, so two keys never share answers. Threading: the loop's thread. */
#include <string.h>

#include "gateway/pipeline.h"
#include "gateway/reply.h"

struct str admit_key(const struct http_req *r)
{
    struct str key = header_bearer(http_req_header(r, "authorization"));
    if (!key.n) key = str_trim(http_req_header(r, "x-api-key"));
    if (!key.n) key = str_trim(http_req_header(r, "api-key"));
    return key;
}

/* A client may only say that it is in no hurry. */
static bool asks_for_batch(const struct http_req *r)
{
    struct str said = http_req_header(r, "x-deja-priority");
    if (!said.n) said = http_req_header(r, "x-priority");
    return str_ieq(str_trim(said), STR("batch"));
}

enum step stage_admit(struct exchange *x)
{
    x->tenant_weight = 1;
    x->trust = 1;
    x->patient = x->batch || asks_for_batch(x->r);
    if (x->batch) { /* whose it is was seen when the batch was made */
        if (x->gw->keys) api_keys_of_tenant(x->gw->keys, x->tenant, &x->trust, &x->min_trust);
        return STEP_NEXT;
    }
    struct str key = admit_key(x->r);
    if (!x->gw->keys) {
        api_keys_open_tenant(key, x->tenant);
        return STEP_NEXT;
    }
    const struct api_grant *grant = api_keys_find(x->gw->keys, key);
    if (!grant) {
        http_set_header(x->r, "WWW-Authenticate", STR("Bearer"));
        reply_fault(x, FAULT_UNAUTHORIZED,
                    key.n ? "" : "no key was given (Authorization: Bearer ...)");
        return STEP_DONE;
    }
    memcpy(x->tenant, grant->tenant, sizeof x->tenant);
    x->tenant_weight = grant->weight;
    x->trust = grant->trust;
    x->min_trust = grant->min_trust;
    x->patient |= grant->batch;
    return STEP_NEXT;
}
