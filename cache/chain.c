/* chain.c - see chain.h. */
#include "cache/chain.h"

#include <stdio.h>
#include <string.h>

#include "cache/verifier.h"

const char *const chain_step_names[N_CHAIN_STEPS] = {"topic",  "veto",     "trust", "guards",
                                                     "places", "verifier", "rival", "policy"};

static void say(struct chain_item *x, const char *reason)
{
    snprintf(x->reason, sizeof x->reason, "%s", reason);
}

static void refuse(struct chain_item *x, enum chain_step step, const char *reason)
{
    x->open = false;
    x->step = step;
    say(x, reason);
}

static void hit(struct chain_item *x, const char *reason)
{
    x->open = false;
    x->hit = true;
    say(x, reason);
}

static bool is_vetoed(const struct chain_item *x)
{
    return x->text_vetoed || x->c.veto >= x->c.cosine;
}

static void refuse_by_guard(const struct chain_rules *r, struct chain_item *x)
{
    refuse(x, CHAIN_GUARDS, "");
    snprintf(x->reason, sizeof x->reason, "guard:%s", x->guard.refused_by);
    x->threshold = policy_threshold(&r->policy, x->guard.language, r->client_min);
}

/* The question, read when the first guard is asked. */
struct screening {
    const struct chain_rules *r;
    struct str question;
    struct guard_reading *read;
};

static void ask_guards(struct screening *s, struct chain_item *x)
{
    x->checked = true;
    if (x->guarded) return;
    if (!s->read) s->read = guard_read(s->r->guard, s->question);
    guard_check_read(s->r->guard, s->r->knobs->guards_off, s->read, x->c.q->text, &x->guard);
}

static void screen_one(struct screening *s, struct chain_item *x)
{
    const struct chain_rules *r = s->r;
    const struct cache_knobs *k = r->knobs;
    double floor = r->client_min > r->policy.floor ? r->client_min : r->policy.floor;
    x->threshold = floor;
    x->open = true;
    if (x->c.cosine < r->policy.floor) {
        refuse(x, CHAIN_TOPIC, "below_floor");
        return;
    }
    if (k->vetoes && is_vetoed(x)) {
        refuse(x, CHAIN_VETO, "veto");
        return;
    }
    if (x->set_aside) {
        refuse(x, CHAIN_TRUST, "quarantined");
        return;
    }
    if (x->c.own->trust < k->trust_min) {
        refuse(x, CHAIN_TRUST, "untrusted");
        return;
    }
    ask_guards(s, x);
    bool weighed =
        r->has_verifier && k->verifier && !verifier_refuses(&x->guard, k->likeness_refuses);
    x->soft = !x->guard.allowed && weighed;
    if (!x->guard.allowed && !weighed) {
        refuse_by_guard(r, x);
    } else if (x->guard.same && knobs_same_words(k, x->c.q->judged) && x->c.cosine >= floor) {
        hit(x, x->c.q->judged ? "semantic:wording" : "semantic:same");
    }
}

size_t chain_screen(const struct chain_rules *r, struct str question, struct chain_item *items,
                    size_t n)
{
    size_t open = 0;
    struct screening s = {r, question, NULL};
    for (size_t i = 0; i < n; i++) {
        struct chain_item *x = &items[i];
        x->hit = x->checked = false;
        x->verifier = x->error = -1;
        screen_one(&s, x);
        if (!x->open) continue;
        if (open < (size_t)r->knobs->verify_top)
            open++;
        else
            refuse(x, CHAIN_PLACES, "too_many");
    }
    guard_reading_free(s.read);
    return open;
}

static bool has_close_rival(const struct chain_rules *r, const struct chain_item *x)
{
    return r->knobs->rival_margin > 0 && x->c.rival >= 0 &&
           x->c.cosine - x->c.rival < r->knobs->rival_margin;
}

static void measure(const struct chain_rules *r, struct chain_item *x)
{
    x->view = (struct bound_view){.cosine = x->c.cosine,
                                  .floor = r->policy.floor,
                                  .rival = x->c.rival,
                                  .agree = x->c.agree,
                                  .verifier = r->knobs->verifier ? x->verifier : -1,
                                  .chinese = x->guard.language == 'z'};
}

/* What was learnt decides; only the client's own wish for likeness stands beside it. */
static void settle_bound(const struct chain_rules *r, struct chain_item *x)
{
    const struct bound *b = r->bounds ? bounds_of(r->bounds, r->ns) : NULL;
    struct bound_limit limit = {0};
    if (b) limit = bound_limit(b, r->knobs->max_error);
    x->threshold = limit.error;
    if (b) x->error = bound_error(b, &x->view, bounds_record(r->bounds, x->c.own->id));
    if (x->c.cosine < r->client_min)
        refuse(x, CHAIN_POLICY, "below_threshold");
    else if (limit.error <= 0)
        refuse(x, CHAIN_POLICY, "bound:learning");
    else if (x->error >= limit.error)
        refuse(x, CHAIN_POLICY, "bound:error");
    else
        hit(x, "semantic:bound");
}

static void settle_one(const struct chain_rules *r, struct chain_item *x)
{
    if (x->verifier >= 0)
        x->verifier = weighing_probability(&r->policy.weighing[x->guard.language == 'z'],
                                           x->verifier, x->c.cosine);
    measure(r, x);
    if (x->soft && x->verifier < 0) {
        refuse_by_guard(r, x);
        return;
    }
    if (r->knobs->mode == KNOB_MODE_BOUND) {
        settle_bound(r, x);
        return;
    }
    struct policy_view v = {.cosine = x->c.cosine,
                            .verifier = r->knobs->verifier ? x->verifier : -1,
                            .language = x->guard.language,
                            .client_min = r->client_min};
    struct policy_decision d = policy_decide(&r->policy, &v);
    x->threshold = d.threshold;
    if (!d.hit)
        refuse(x, d.by_verifier ? CHAIN_VERIFIER : CHAIN_POLICY, d.reason);
    else if (has_close_rival(r, x))
        refuse(x, CHAIN_RIVAL, "rival");
    else
        hit(x, d.reason);
}

/* Explained word by word first, then by what the verifier says, then by similarity. */
static bool better(const struct chain_item *a, const struct chain_item *b)
{
    if (a->guard.same != b->guard.same) return a->guard.same;
    if (a->error >= 0 && b->error >= 0 && a->error != b->error) return a->error < b->error;
    if (a->verifier != b->verifier) return a->verifier > b->verifier;
    return a->c.cosine > b->c.cosine;
}

size_t chain_settle(const struct chain_rules *r, struct chain_item *items, size_t n, size_t *order)
{
    size_t hits = 0;
    for (size_t i = 0; i < n; i++) {
        if (items[i].open) settle_one(r, &items[i]);
        if (!items[i].hit) continue;
        size_t at = hits++;
        for (; at > 0 && better(&items[i], &items[order[at - 1]]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return hits;
}
