/* follow.c - see follow.h. */
#include "gateway/follow.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/coalesce.h"
#include "gateway/join_table.h"
#include "gateway/pipeline.h"
#include "gateway/reply.h"
#include "gateway/series.h"
#include "gateway/shadow.h"
#include "gateway/ticket.h"

bool follow_allowed(const struct exchange *x)
{
    const struct controls *c = &x->controls;
    return x->knobs.join_similar != KNOB_JOIN_NO && !x->followed && !c->skip_semantic &&
           !c->only_if_cached && x->req.kind == OPENAI_CHAT && join_allowed(x);
}

/* --- the line behind a ticket */
static void link(struct ticket *t, struct exchange *x)
{
    x->follows = t;
    x->rider_prev = NULL;
    x->rider_next = t->behind;
    if (t->behind) t->behind->rider_prev = x;
    t->behind = x;
    t->n_behind++;
}

static void unlink(struct exchange *x)
{
    struct ticket *t = x->follows;
    if (x->rider_prev)
        x->rider_prev->rider_next = x->rider_next;
    else
        t->behind = x->rider_next;
    if (x->rider_next) x->rider_next->rider_prev = x->rider_prev;
    x->follows = NULL;
    x->upstream_us = clock_us() - x->follows_us;
    t->n_behind--;
}

static bool has_room(const struct ticket *t, const struct exchange *x)
{
    return ticket_takes(t) && t->followable && (x->patient || !t->batch);
}

bool follow_board(struct exchange *x, const struct cache_found *found)
{
    struct hash128 id;
    if (hash_from_hex(str_of(found->entry_id), &id) != OK) return false;
    struct ticket *t = join_table_find(x->gw->joins, id);
    if (!t || !has_room(t, x)) return false;
    x->followed = true;
    x->follows_us = clock_us();
    x->out.cache = "coalesced";
    outcome_reason(&x->out, found->reason);
    x->out.similarity = found->similarity;
    memcpy(x->out.entry, found->entry_id, sizeof found->entry_id);
    link(t, x);
    ticket_wanted(t);
    return true;
}

void follow_leave(struct exchange *x)
{
    struct ticket *t = x->follows;
    if (!t) return;
    unlink(x);
    metric_add(x->gw->series->followed[FOLLOWED_LEFT], 1);
    ticket_unread(t);
    ticket_settle(t);
}

void follow_open(struct ticket *t, const struct exchange *leader)
{
    if (!t->listed || (leader->knobs.join_similar == KNOB_JOIN_NO && !leader->arm[0])) return;
    t->followable = cache_coming_begin(t->gw->cache, &t->key, t->trust, str_of(t->tags));
}

static void go_alone(struct exchange *x)
{
    unlink(x);
    x->out.cache = "miss";
    outcome_reason(&x->out, "leader_lost");
    x->out.entry[0] = 0;
    x->out.similarity = -1;
    x->upstream_us = x->follows_us = 0;
    metric_add(x->gw->series->followed[FOLLOWED_ALONE], 1);
    pipeline_resume(x);
}

void follow_close(struct ticket *t)
{
    if (!t->followable) return;
    t->followable = false;
    cache_coming_end(t->gw->cache, &t->key);
    while (t->behind)
        go_alone(t->behind);
}

/* --- what they get */
void follow_stream(struct ticket *t)
{
    for (struct exchange *x = t->behind, *next; x; x = next) {
        next = x->rider_next;
        if (!x->req.stream || x->knobs.join_similar != KNOB_JOIN_LIVE) continue;
        unlink(x);
        metric_add(x->gw->series->followed[FOLLOWED_SERVED], 1);
        ticket_ride(t, x);
    }
}

static void serve(struct exchange *x, const struct openai_answer *a)
{
    struct cache_found f = {.result = CACHE_SEMANTIC, .answer = a};
    unlink(x);
    metric_add(x->gw->series->followed[FOLLOWED_SERVED], 1);
    memcpy(f.entry_id, x->out.entry, sizeof f.entry_id);
    f.entry_id[sizeof f.entry_id - 1] = 0;
    x->usage = a->usage;
    shadow_offer(x->gw->shadows, x, &f);
    if (x->req.stream)
        reply_answer_stream(x, a);
    else
        reply_answer_json(x, a);
    if (!x->streaming || reply_pump(x)) pipeline_finish(x);
}

void follow_answer(struct ticket *t, const struct openai_answer *a)
{
    bool good = !t->unfit && t->status == 200 && !t->refused && !t->ladder && cache_fits_similar(a);
    while (good && t->behind)
        serve(t->behind, a);
}
