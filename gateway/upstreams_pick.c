/* upstreams_pick.c - which target a call goes to, and why there is none. Whoever names a model in its list takes it before those that
 * take any; the engine takes the models it serves. The choice among the rest is pick.c's. */
#include <limits.h>

#include "base/clock.h"
#include "gateway/pick.h"
#include "gateway/route_score.h"
#include "gateway/upstreams_internal.h"

/* Engines beside other upstreams: each takes what is its own. */
static bool is_mixed(const struct upstreams *u)
{
    int engines = 0;
    for (int i = 0; i < u->n; i++)
        engines += u->items[i].engine;
    return engines && engines < u->n;
}

static enum spec_serves serves(const struct upstream *t, struct str model, bool mixed)
{
    struct str name;
    if (t->engine && model.n && str_lists(buf_view(&t->models), '\n', model)) return SPEC_NAMED;
    if (t->engine && mixed) return SPEC_NOT; /* also of no model */
    return upstream_spec_serves(&t->spec, model, &name);
}

/* Of all: without those that compute prompts for others, while one of the rest, not tried yet, may be well. */
static uint32_t answering(const struct upstreams *u, uint32_t all, uint32_t tried)
{
    uint32_t helpers = 0, well = 0;
    for (int i = 0; i < u->n; i++) {
        if (u->items[i].prefill_only)
            helpers |= 1u << i;
        else if (!breaker_is_open(&u->items[i].breaker))
            well |= 1u << i;
    }
    return all & well & ~tried ? all & ~helpers : all;
}

/* Bits of the targets that a call for this model may go to; tried: those it has been to. */
static uint32_t candidates(const struct upstreams *u, struct str model, uint32_t tried)
{
    uint32_t named = 0, any = 0;
    bool mixed = is_mixed(u);
    for (int i = 0; i < u->n; i++) {
        enum spec_serves s = serves(&u->items[i], model, mixed);
        if (s == SPEC_NAMED) named |= 1u << i;
        if (s == SPEC_ANY) any |= 1u << i;
    }
    return answering(u, named ? named : any, tried);
}

static void refuse(struct upstream_refusal *no, enum upstream_none why, uint64_t wait_ms)
{
    bool first = no->wait_ms == UINT64_MAX;
    if (!first && wait_ms >= no->wait_ms) return;
    *no = (struct upstream_refusal){why, wait_ms};
}

/* A target whose slots are all taken frees one at any moment; this is what a client is told. */
enum { FULL_WAIT_MS = 1000 };

/* May t be asked, its breaker aside? */
static bool is_free(const struct upstream *t, uint64_t now, bool spare, struct upstream_refusal *no)
{
    if (t->paused_until_ms > now) return refuse(no, NONE_PAUSED, t->paused_until_ms - now), false;
    if (spare && t->spare_until_ms > now)
        return refuse(no, NONE_OPEN, t->spare_until_ms - now), false;
    if (slots_bound(&t->slots) && t->inflight >= slots_bound(&t->slots))
        return refuse(no, NONE_FULL, FULL_WAIT_MS), false;
    return true;
}

/* Those of among (a bit each) that are closed and may be asked. */
static uint32_t well_of(const struct upstreams *u, uint32_t among, uint64_t now)
{
    struct upstream_refusal no = {.wait_ms = UINT64_MAX};
    uint32_t out = 0;
    for (int i = 0; i < u->n; i++)
        if (among >> i & 1 && !breaker_is_open(&u->items[i].breaker) &&
            is_free(&u->items[i], now, true, &no))
            out |= 1u << i;
    return out;
}

static double work_of(const struct upstream *t, uint64_t now)
{
    return route_fade(t->work, now - t->work_ms);
}

static int fill(const struct upstreams *u, const struct upstream_want *want, uint32_t allowed,
                struct pick_target *out)
{
    uint64_t now = clock_ms();
    for (int i = 0; i < u->n; i++)
        out[i] = (struct pick_target){.allowed = allowed >> i & 1,
                                      .inflight = u->items[i].inflight,
                                      .weight = u->items[i].spec.weight,
                                      .pass = u->items[i].pass,
                                      .matched = want->matched ? (double)want->matched[i] : 0,
                                      .work = work_of(&u->items[i], now)};
    return u->n;
}

static struct upstream *pick_among(struct upstreams *u, const struct upstream_want *want,
                                   uint32_t allowed, struct upstream_refusal *no)
{
    uint64_t now = clock_ms();
    struct pick_target t[UPSTREAMS_MAX];
    while (allowed) {
        int i = pick_best(t, fill(u, want, allowed, t), want->matched != NULL,
                          (double)want->load_weight, u->passed);
        struct upstream *best = &u->items[i];
        if (breaker_allow(&best->breaker, now)) {
            best->pass = pick_taken(&t[i], &u->passed);
            best->inflight++;
            best->work = work_of(best, now);
            best->work_ms = now;
            if (want->matched) best->work += (double)(want->prompt_tokens * (1 - want->matched[i]));
            metric_add(best->requests, 1);
            *no = (struct upstream_refusal){0};
            return best;
        }
        refuse(no, NONE_OPEN, breaker_wait_ms(&best->breaker, now));
        allowed &= ~(1u << i);
    }
    return NULL;
}

struct upstream *upstreams_pick(struct upstreams *u, const struct upstream_want *want,
                                struct upstream_refusal *no)
{
    uint32_t all = candidates(u, want->model, want->tried);
    uint64_t now = clock_ms();
    struct upstream *t = NULL;
    *no = (struct upstream_refusal){all ? NONE_OPEN : NONE_MODEL, UINT64_MAX};
    for (int spare = 1; spare >= 0 && !t; spare--) {
        uint32_t allowed = 0;
        for (int i = 0; i < u->n; i++)
            if ((all & ~want->tried) >> i & 1 && is_free(&u->items[i], now, spare, no))
                allowed |= 1u << i;
        t = pick_among(u, want, allowed, no);
    }
    if (!t && no->wait_ms == UINT64_MAX) no->wait_ms = 0;
    return t;
}

struct upstream *upstreams_pick_helper(struct upstreams *u, const struct upstream_want *want,
                                       uint32_t among, int for_target)
{
    struct pick_target t[UPSTREAMS_MAX];
    uint64_t now = clock_ms();
    uint32_t allowed = well_of(u, among, now);
    if (!allowed) return NULL;
    int i = pick_best(t, fill(u, want, allowed, t), true, (double)want->load_weight, u->passed);
    struct upstream *best = &u->items[i];
    best->work = work_of(best, now) + (double)(want->prompt_tokens * (1 - want->matched[i]));
    best->work_ms = now;
    best->pass = pick_taken(&t[i], &u->passed);
    struct upstream *other = &u->items[for_target];
    other->work -= (double)(want->prompt_tokens * (1 - want->matched[for_target]));
    if (other->work < 0) other->work = 0;
    return best;
}

bool upstreams_has_other(struct upstreams *u, const struct upstream_want *want)
{
    uint32_t all = candidates(u, want->model, want->tried) & ~want->tried;
    return well_of(u, all, clock_ms()) != 0;
}

bool upstreams_serve(struct upstreams *u, struct str model)
{
    return candidates(u, model, 0) != 0;
}

bool upstreams_know_models(const struct upstreams *u)
{
    for (int i = 0; i < u->n && is_mixed(u); i++)
        if (u->items[i].engine && !u->items[i].models.n) return false;
    return true;
}

void upstreams_models(const struct upstreams *u, struct buf *out)
{
    bool mixed = is_mixed(u);
    for (int i = 0; i < u->n; i++) {
        const struct upstream *t = &u->items[i];
        struct str list = str_of(t->spec.models), item, name;
        if (t->engine) buf_str(out, buf_view(&t->models));
        if (t->engine && mixed) continue;
        if (!list.n) buf_z(out, "*\n");
        while (str_next(&list, ',', &item)) {
            if (!str_next(&item, '=', &name)) continue;
            buf_str(out, name);
            buf_char(out, '\n');
        }
    }
}

uint32_t upstreams_targets(const struct upstreams *u, struct str model)
{
    return candidates(u, model, 0);
}

int upstreams_room(const struct upstreams *u, uint32_t targets)
{
    uint64_t now = clock_ms();
    int room = 0;
    bool any = false;
    for (int i = 0; i < u->n; i++) {
        const struct upstream *t = &u->items[i];
        bool asked = targets >> i & 1 && t->paused_until_ms <= now && t->spare_until_ms <= now &&
                     !breaker_is_open(&t->breaker);
        int bound = slots_bound(&t->slots);
        if (!asked) continue;
        if (!bound) return INT_MAX;
        any = true;
        if (bound > t->inflight) room += bound - t->inflight;
    }
    return any ? room : INT_MAX;
}

void upstream_said(struct upstream *t, int status, uint64_t begun_ms)
{
    if (status / 100 == 2)
        slots_success(&t->slots, t->inflight);
    else if (status == 429 || status == 503 || status == 529)
        slots_overload(&t->slots, t->inflight, begun_ms, clock_ms());
}

void upstreams_load(struct upstreams *u, struct str model, int *inflight, int *bound)
{
    uint32_t all = candidates(u, model, 0);
    bool bounded = true;
    *inflight = *bound = 0;
    for (int i = 0; i < u->n; i++) {
        if (!(all >> i & 1)) continue;
        *inflight += u->items[i].inflight;
        *bound += slots_bound(&u->items[i].slots);
        bounded = bounded && slots_bound(&u->items[i].slots);
    }
    if (!bounded) *bound = 0;
}
