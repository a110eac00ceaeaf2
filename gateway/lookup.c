/* lookup.c - stages "key" and "find": what of the request counts, and whether the cache has a right answer. A hit is replied here; a
 * miss, and everything that goes wrong in the cache, goes on to the upstream with the reason noted. Threading: the loop's thread. */
#include <string.h>

#include "base/clock.h"
#include "gateway/coalesce.h"
#include "gateway/follow.h"
#include "gateway/judge.h"
#include "gateway/limit.h"
#include "gateway/near.h"
#include "gateway/pipeline.h"
#include "gateway/reply.h"
#include "gateway/shadow.h"
#include "gateway/tuning.h"

static enum step bypass(struct exchange *x, const char *reason)
{
    x->out.cache = "bypass";
    outcome_reason(&x->out, reason);
    return STEP_NEXT;
}

enum step stage_key(struct exchange *x)
{
    const struct controls *c = &x->controls;
    struct cache_scope scope = {
        .tenant = str_of(x->tenant), .ns = str_of(c->ns), .model = x->model};
    bool no_key = !c->bypass && cache_key_make(x->gw->cache, &x->req, &scope, &x->key) != OK;
    x->keyed = !c->bypass && !no_key;
    x->key_us = clock_us();
    tuning_apply(x);
    if (c->bypass) return bypass(x, "asked");
    if (no_key) return bypass(x, "no_key");
    if (x->knobs.exact || x->knobs.semantic) return STEP_NEXT;
    cache_key_fini(&x->key); /* switched off: nothing is stored either */
    x->keyed = false;
    return bypass(x, "off");
}

static void hit(struct exchange *x, const struct cache_found *f)
{
    x->out.cache = f->result == CACHE_EXACT ? "exact" : "semantic";
    x->out.age_s = f->age_s;
    x->usage = f->answer->usage;
    limit_tell_hit(x);
    if (f->result == CACHE_SEMANTIC) shadow_offer(x->gw->shadows, x, f);
    if (!x->req.stream) {
        if (f->json.p && !x->door)
            reply_body(x, 200, "application/json", f->json);
        else
            reply_answer_json(x, f->answer);
        pipeline_finish(x);
        return;
    }
    reply_answer_stream(x, f->answer);
    if (!x->streaming || reply_pump(x)) pipeline_finish(x);
}

static void on_found(void *arg, const struct cache_found *f);

/* An equal request may have been answered, and its ticket closed, while this look-up was under way: then the answer is in the process
 * by now, and asking the upstream again would be the second call for one question. */
static bool kept_meanwhile(struct exchange *x)
{
    size_t slot = (size_t)x->key.exact.lo & (RECENT_KEYS - 1);
    return !x->found_again && hash_eq(x->gw->recent[slot].key, x->key.exact) &&
           x->gw->recent[slot].kept_us >= x->key_us;
}

static void find(struct exchange *x, bool skip_semantic, enum cache_coming coming,
                 void (*found)(void *arg, const struct cache_found *f))
{
    struct str user = json_member_str(x->req.body, "user");
    struct cache_lookup_options o = {.skip_exact = coming == COMING_ONLY,
                                     .skip_semantic = skip_semantic,
                                     .coming = coming,
                                     .asker = user.n ? hash_bytes(0, user).lo : 0,
                                     .threshold_min = x->controls.threshold_min,
                                     .max_age_s = x->controls.max_age_s,
                                     .knobs = &x->knobs};
    x->coming_seen = coming ? cache_coming_seen(x->gw->cache) : 0;
    x->lookup = cache_find(x->gw->cache, &x->key, &o, found, x);
}

/* A similar question is being asked: its answer is waited for; when it came just now, it is stored. */
static void coming(struct exchange *x, const struct cache_found *f)
{
    if (follow_board(x, f)) return;
    if (!x->found_again) {
        x->found_again = true;
        find(x, false, COMING_NO, on_found);
        return;
    }
    outcome_reason(&x->out, "leader_lost");
    pipeline_resume(x);
}

static void on_found(void *arg, const struct cache_found *f)
{
    struct exchange *x = arg;
    x->lookup = NULL;
    x->found_us = clock_us();
    stopwatch_turn(&x->watch, TIMED_NONE, x->found_us);
    if (f->result == CACHE_MISS && kept_meanwhile(x)) {
        x->found_again = true;
        find(x, true, COMING_NO, on_found);
        return;
    }
    if (f->result == CACHE_COMING) {
        coming(x, f);
        return;
    }
    x->out.nearest[0] = 0;
    memcpy(f->result == CACHE_MISS ? x->out.nearest : x->out.entry, f->entry_id,
           sizeof f->entry_id);
    outcome_reason(&x->out, f->reason);
    x->out.similarity = f->similarity;
    if (f->result == CACHE_MISS) near_note(x->gw->near, x, f);
    judge_offer(x->gw->judge, x, f);
    if (f->result != CACHE_MISS) {
        hit(x, f);
    } else if (x->controls.only_if_cached) {
        reply_fault(x, FAULT_NOT_CACHED, "");
        pipeline_finish(x);
    } else {
        pipeline_resume(x);
    }
}

enum step stage_find(struct exchange *x)
{
    const struct controls *c = &x->controls;
    if (x->keyed && !c->skip_lookup) {
        /* An equal request in flight has just missed: nothing can be there yet. */
        if (!c->only_if_cached && join_possible(x)) return STEP_NEXT;
        find(x, c->skip_semantic || x->req.kind != OPENAI_CHAT,
             follow_allowed(x) ? COMING_TOO : COMING_NO, on_found);
        return STEP_WAIT;
    }
    if (c->only_if_cached) return reply_fault(x, FAULT_NOT_CACHED, ""), STEP_DONE;
    if (x->keyed) {
        x->out.cache = "bypass";
        outcome_reason(&x->out, c->no_store ? "no_cache,no_store" : "no_cache");
    }
    return STEP_NEXT;
}

static void on_found_coming(void *arg, const struct cache_found *f)
{
    struct exchange *x = arg;
    x->lookup = NULL;
    if (f->result != CACHE_COMING || !follow_board(x, f)) pipeline_resume(x);
}

/* While the miss was decided, or its prompt read, a similar one may have begun. */
enum step stage_follow(struct exchange *x)
{
    bool news = x->coming_seen && x->coming_seen != cache_coming_seen(x->gw->cache);
    if (!news || !follow_allowed(x) || !cache_coming_any(x->gw->cache, &x->key) || join_possible(x))
        return STEP_NEXT;
    find(x, false, COMING_ONLY, on_found_coming);
    return STEP_WAIT;
}
