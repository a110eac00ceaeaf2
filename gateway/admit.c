/* admit.c - stage "admit": whose request is it. With a key table an unknown key is a 401; without one (loopback only) every bearer is a
 * tenant of its own, so two keys never share answers. Threading: the loop's thread. */
#include <string.h>

#include "gateway/pipeline.h"
#include "gateway/reply.h"

static struct str key_of(const struct http_req *r)
{
    struct str key = header_bearer(http_req_header(r, "authorization"));
    if (!key.n) key = str_trim(http_req_header(r, "x-api-key"));
    if (!key.n) key = str_trim(http_req_header(r, "api-key"));
    return key;
}

enum step stage_admit(struct exchange *x)
{
    struct str key = key_of(x->r);
    if (!x->gw->keys) {
        api_keys_open_tenant(key, x->tenant);
        return STEP_NEXT;
    }
    struct str tenant = api_keys_find(x->gw->keys, key);
    if (!tenant.p) {
        http_set_header(x->r, "WWW-Authenticate", STR("Bearer"));
        reply_fault(x, FAULT_UNAUTHORIZED,
                    key.n ? "" : "no key was given (Authorization: Bearer ...)");
        return STEP_DONE;
    }
    memcpy(x->tenant, tenant.p, tenant.n);
    x->tenant[tenant.n] = 0;
    return STEP_NEXT;
}
