/* route_model.c - see route_model.h. */
#include "gateway/route_model.h"

#include "gateway/model_rules.h"
#include "gateway/token_estimate.h"

static int64_t load_percent(const struct exchange *x, int inflight, int bound)
{
    return bound ? (int64_t)inflight * 100 / bound
                 : (int64_t)x->gw->inflight * 100 / x->gw->o.inflight_max;
}

struct str route_model(struct exchange *x, struct str model)
{
    int inflight, bound;
    x->rules = model_rules_ref(x->gw->rules);
    if (!scenario_concerns(x->rules->scenario, model)) return model;
    upstreams_load(x->gw->upstreams, model, &inflight, &bound);
    struct scenario_facts f = {
        .numbers = {[SCENARIO_PROMPT_TOKENS] = token_estimate_prompt(&x->req),
                    [SCENARIO_PROMPT_BYTES] = (int64_t)http_req_body(x->r).n,
                    [SCENARIO_MAX_TOKENS] = x->req.max_tokens,
                    [SCENARIO_MESSAGES] = (int64_t)json_array_size(x->req.messages),
                    [SCENARIO_INFLIGHT] = inflight,
                    [SCENARIO_LOAD] = load_percent(x, inflight, bound)},
        .words = {[SCENARIO_CLASS] = x->patient ? STR("batch") : STR("online"),
                  [SCENARIO_TENANT] = str_of(x->tenant),
                  [SCENARIO_STREAM] = x->req.stream ? STR("yes") : STR("no")}};
    struct str to = scenario_model(x->rules->scenario, model, &f);
    if (!str_eq(to, model)) x->out.routed = to;
    return to;
}
