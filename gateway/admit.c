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

/* A client may only say that it is in no hurry. What others may mean by x-priority is not judged. */
static enum err read_priority(struct exchange *x, struct openai_error *e)
{
    struct str said = http_req_header(x->r, "x-deja-priority");
    bool batch = !said.n && str_ieq(str_trim(http_req_header(x->r, "x-priority")), STR("batch"));
    enum err code = said.n ? controls_priority(&batch, said, e) : OK;
    x->patient = x->batch || batch;
    return code;
}

/* Whose request it is. False: nobody's, and that is told. */
static bool find_tenant(struct exchange *x)
{
    struct str key = admit_key(x->r);
    if (!x->gw->keys) {
        api_keys_open_tenant(key, x->tenant);
        return true;
    }
    const struct api_grant *grant = api_keys_find(x->gw->keys, key);
    if (!grant) {
        http_set_header(x->r, "WWW-Authenticate", STR("Bearer"));
        reply_fault(x, FAULT_UNAUTHORIZED,
                    key.n ? "" : "no key was given (Authorization: Bearer ...)");
        return false;
    }
    memcpy(x->tenant, grant->tenant, sizeof x->tenant);
    x->tenant_weight = grant->weight;
    x->trust = grant->trust;
    x->min_trust = grant->min_trust;
    x->patient |= grant->batch;
    return true;
}

enum step stage_admit(struct exchange *x)
{
    struct openai_error e = {0};
    x->tenant_weight = 1;
    x->trust = 1;
    enum err code = read_priority(x, &e);
    if (x->batch) { /* whose it is was seen when the batch was made */
        if (x->gw->keys) api_keys_of_tenant(x->gw->keys, x->tenant, &x->trust, &x->min_trust);
        return STEP_NEXT;
    }
    if (!find_tenant(x)) return STEP_DONE;
    if (code != OK) return reply_refusal(x, &e), STEP_DONE;
    return STEP_NEXT;
}
