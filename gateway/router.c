/* router.c - see router.h. */
#include "gateway/router.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/exchange.h"
#include "gateway/prompt_tokens.h"
#include "gateway/relay.h"
#include "gateway/route_score.h"
#include "gateway/router_internal.h"

enum {
    GUESS_MS = 20000, /* a prompt that was queued longer than this was not computed there */
    HISTORY_BLOCK_TOKENS = 16,
    PIECE_TOKENS = ROUTE_PIECE_BYTES / 4
};

/* --- readers */
static struct prompt_reader *known_reader(void *arg, struct hash128 root)
{
    const struct router *r = arg;
    for (int i = 0; i < r->n; i++) {
        const struct kv_naming *n = r->feeds[i] ? kv_feed_naming(r->feeds[i]) : NULL;
        struct prompt_reader *reader = n ? kv_feed_reader(r->feeds[i]) : NULL;
        if (reader && hash_eq(n->root, root)) return reader;
    }
    return NULL;
}

bool router_chooses(const struct router *r, const struct exchange *x)
{
    return r->n > 1 && x->knobs.route_prefix;
}

struct prompt_reader *router_reader(const struct router *r, struct str model)
{
    struct hash128 adapter;
    for (int i = 0; i < r->n; i++)
        if (r->feeds[i] && kv_feed_reader(r->feeds[i]) &&
            kv_feed_serves(r->feeds[i], model, &adapter))
            return kv_feed_reader(r->feeds[i]);
    return r->given;
}

/* --- a plan */
static struct hash128 tenant_salt(const struct exchange *x)
{
    char salt[33];
    relay_salt(x, salt);
    return prefix_hash_salt(str_of(salt));
}

/* How target i names this request's blocks. */
static struct route_naming naming_of(const struct router *r, int i, const struct exchange *x,
                                     struct str model)
{
    struct route_naming out = {0};
    struct hash128 adapter;
    if (r->feeds[i]) {
        const struct kv_naming *n = kv_feed_naming(r->feeds[i]);
        bool same_ids = n && x->prompt && kv_feed_reader(r->feeds[i]) == x->prompt->reader;
        if (!same_ids || !kv_feed_serves(r->feeds[i], model, &adapter)) return out;
        out.by_tokens = true;
        out.block_tokens = n->block_tokens;
        out.origin = (struct prefix_origin){.seed = n->seed, .root = n->root, .adapter = adapter};
        if (n->salted) out.origin.salt = tenant_salt(x);
        return out;
    }
    out.by_tokens = x->prompt != NULL && x->prompt->reader == r->given;
    if (r->foreign[i] && vllm_feed_live(r->foreign[i])) {
        out.block_tokens = vllm_feed_block_tokens(r->foreign[i]);
        out.origin = vllm_feed_origin(r->foreign[i]);
        if (!out.by_tokens) out.block_tokens = 0;
        return out;
    }
    out.block_tokens = out.by_tokens ? HISTORY_BLOCK_TOKENS : PIECE_TOKENS;
    out.origin.root = hash_bytes(0x686973746f7279, model);
    out.origin.salt = hash_bytes(0x74656e616e74, str_of(x->tenant));
    return out;
}

/* A server that tells nothing and was away has an empty cache: what was sent there before is void. */
static void forget_lost(struct router *r)
{
    for (int i = 0; i < r->n; i++) {
        unsigned lost = upstreams_at(r->gw->upstreams, i)->lost;
        if (lost == r->lost[i]) continue;
        if (!router_told(r, i)) prefix_index_leave(r->index, i);
        r->lost[i] = lost;
    }
}

static void look_up(struct route_plan *p, const struct route_naming *naming)
{
    struct router *r = p->router;
    uint64_t now = clock_ms();
    forget_lost(r);
    for (int c = 0; c < p->chains.n; c++)
        prefix_index_match(r->index, p->chains.chain[c].blocks, p->chains.chain[c].n_blocks, now,
                           &p->matches[c]);
    for (int i = 0; i < r->n; i++) {
        int c = p->chains.of[i];
        if (c < 0) continue;
        const struct prefix_match *m = &p->matches[c];
        p->by_events[i] = r->feeds[i] ? kv_feed_live(r->feeds[i]) : router_told(r, i);
        p->held_tokens[i] = m->blocks[i] * naming[i].block_tokens;
        /* of a prompt the last token is always computed, and what is over the last full block */
        p->matched[i] = route_share(m->blocks[i], m->slow[i], (int)p->chains.chain[c].n_blocks);
    }
}

struct route_plan *route_plan_new(struct exchange *x, struct str model)
{
    struct router *r = x->gw->router;
    struct route_naming naming[PREFIX_PODS_MAX];
    struct buf text;
    bool any = false, by_text = false;
    if (!router_chooses(r, x)) return NULL;
    for (int i = 0; i < r->n; i++) {
        naming[i] = naming_of(r, i, x, model);
        any |= naming[i].block_tokens > 0;
        by_text |= naming[i].block_tokens > 0 && !naming[i].by_tokens;
    }
    if (!any) return NULL;
    struct route_plan *p = xcalloc(1, sizeof *p);
    p->router = r;
    p->model = hash_bytes(0, model);
    p->prefill_tokens = (float)x->knobs.route_prefill_tokens;
    p->load_weight = (float)x->knobs.route_load_weight;
    p->target = p->helper = -1;
    buf_init(&text, ROUTE_TEXT_MAX + 65536);
    if (by_text) route_text(&text, x->req.tools, x->req.messages, x->req.prompt);
    const int32_t *ids = x->prompt ? x->prompt->list.ids : NULL;
    size_t n_ids = x->prompt ? x->prompt->list.n : 0;
    route_chains_make(&p->chains, naming, r->n, ids, n_ids, buf_view(&text));
    p->tokens = x->prompt ? (float)n_ids : (float)text.n / 4;
    buf_fini(&text);
    look_up(p, naming);
    return p;
}

void route_plan_free(struct route_plan *p)
{
    if (!p) return;
    route_chains_fini(&p->chains);
    mem_free(p);
}

const float *route_plan_matched(const struct route_plan *p)
{
    return p->matched;
}

float route_plan_tokens(const struct route_plan *p)
{
    return p->tokens;
}

/* What target holds now: the call may have waited for its turn, and the target may have gone meanwhile. A second visit would find the
 * guess of the first. */
static void look_again(struct route_plan *p, int target)
{
    struct router *r = p->router;
    int c = p->chains.of[target];
    unsigned lost = upstreams_at(r->gw->upstreams, target)->lost;
    bool live = !r->feeds[target] || kv_feed_live(r->feeds[target]);
    struct prefix_match m;
    forget_lost(r);
    if (!live || (p->been_at >> target & 1 && lost != p->lost[target])) {
        p->held_tokens[target] = 0;
    } else if (!(p->been_at >> target & 1)) {
        prefix_index_match(r->index, p->chains.chain[c].blocks, p->chains.chain[c].n_blocks,
                           clock_ms(), &m);
        p->held_tokens[target] = m.blocks[target] * p->chains.chain[c].naming.block_tokens;
    }
    p->been_at |= UINT32_C(1) << target;
    p->lost[target] = lost;
}

void route_plan_goes(struct route_plan *p, int target)
{
    struct router *r = p->router;
    p->target = target;
    p->helper = -1;
    if (target >= PREFIX_PODS_MAX || p->chains.of[target] < 0) return;
    int c = p->chains.of[target];
    look_again(p, target);
    metric_add(r->routed, 1);
    /* An engine that is silent may be gone; when it tells again, it tells this too. */
    if (r->feeds[target] && !kv_feed_live(r->feeds[target])) return;
    prefix_index_guess(r->index, target, p->chains.chain[c].blocks, p->chains.chain[c].n_blocks,
                       clock_ms());
    route_shared_note(r->shared, p, target);
}

void route_plan_ended(struct route_plan *p, const struct openai_usage *usage)
{
    struct router *r = p->router;
    if (p->target < 0 || !usage->known || !p->held_tokens[p->target]) return;
    int64_t promised = p->held_tokens[p->target], had = usage->cached_tokens;
    if (promised >= usage->prompt_tokens) promised = usage->prompt_tokens - 1;
    metric_add(r->promised, (double)promised);
    if (promised > had) metric_add(r->overclaim, (double)(promised - had));
}

void route_plan_describe(const struct route_plan *p, char out[96])
{
    out[0] = 0;
    if (p->target < 0 || p->chains.of[p->target] < 0) return;
    int n = snprintf(out, 96, "target=%d held=%d of=%d by=%s", p->target, p->held_tokens[p->target],
                     (int)p->tokens, p->by_events[p->target] ? "events" : "history");
    if (p->helper >= 0) snprintf(out + n, (size_t)(96 - n), " prefill=%d", p->helper);
}

/* --- life */
static struct metric *series(struct metrics *m, enum metric_kind kind, const char *name,
                             const char *help)
{
    return metrics_get(m, kind, name, "", help, 0, 0);
}

static void make_series(struct router *r, struct metrics *m)
{
    r->routed = series(m, METRIC_COUNTER, "deja_route_prompts_total",
                       "calls whose target was chosen with its KV in mind");
    r->prefills = series(m, METRIC_COUNTER, "deja_route_prefills_total",
                         "calls whose prompt another engine was named to compute");
    r->promised = series(m, METRIC_COUNTER, "deja_route_promised_tokens_total",
                         "prompt tokens that the chosen target was believed to hold as KV");
    r->overclaim = series(m, METRIC_COUNTER, "deja_route_overclaim_tokens_total",
                          "of these, those it did not have after all, as its usage tells");
    r->changes = series(m, METRIC_GAUGE, "deja_route_events",
                        "changes of KV blocks that engines have told since the start");
    r->live = series(m, METRIC_GAUGE, "deja_route_engines", "engines whose KV blocks are followed");
    r->blocks =
        series(m, METRIC_GAUGE, "deja_route_blocks", "KV blocks in the index of who holds what");
}

static void on_named(void *arg, int i)
{
    const struct router *r = arg;
    upstreams_at(r->gw->upstreams, i)->prefill_only =
        kv_feed_naming(r->feeds[i])->role == KV_ROLE_PREFILL;
}

static void open_feed(struct router *r, int i)
{
    const struct upstream *t = upstreams_at(r->gw->upstreams, i);
    struct kv_feed_options o = {.loop = r->gw->loop,
                                .workers = r->gw->workers,
                                .client = r->gw->client,
                                .origin = t->spec.origin,
                                .url = t->url,
                                .key = r->gw->o.gateway_key,
                                .index = r->index,
                                .pod = i,
                                .known_reader = known_reader,
                                .named = on_named,
                                .arg = r};
    if (t->engine) r->feeds[i] = kv_feed_open(&o);
}

static enum err open_foreign(struct router *r, int i, struct errmsg *e)
{
    const struct upstream *t = upstreams_at(r->gw->upstreams, i);
    struct vllm_feed_options o = {.loop = r->gw->loop,
                                  .url = t->url,
                                  .events = t->spec.kv_events,
                                  .replay = t->spec.kv_replay,
                                  .index = r->index,
                                  .pod = i,
                                  .blocks_max = prefix_index_stats(r->index).blocks_max / 2};
    if (t->engine || !t->spec.kv_events[0]) return OK;
    if (!r->given)
        return err_set(e, ERR_INVALID, "kv_events of %s: it needs --tokenizer FILE.gguf", t->url);
    enum err code = vllm_feed_open(&r->foreign[i], &o, e);
    return code == OK ? OK : err_prefix(e, code, "kv_events of %s", t->url);
}

enum err router_open(struct router **out, struct gateway *gw, struct errmsg *e)
{
    struct router *r = xcalloc(1, sizeof *r);
    enum err code = OK;
    r->gw = gw;
    r->n = upstreams_count(gw->upstreams);
    if (r->n > PREFIX_PODS_MAX) r->n = PREFIX_PODS_MAX;
    r->index = prefix_index_new(gw->o.route_index_bytes_max, GUESS_MS);
    make_series(r, gw->metrics);
    if (gw->redis && r->n > 1) r->shared = route_shared_open(gw);
    *out = r; /* the caller closes it in any case */
    if (gw->o.tokenizer[0]) code = prompt_reader_open(&r->given, gw->o.tokenizer, e);
    if (code != OK) return err_prefix(e, code, "option tokenizer");
    for (int i = 0; i < r->n && code == OK; i++) {
        open_feed(r, i);
        code = open_foreign(r, i, e);
    }
    return code;
}

void router_close(struct router *r)
{
    if (!r) return;
    for (int i = 0; i < r->n; i++) {
        kv_feed_close(r->feeds[i]);
        vllm_feed_close(r->foreign[i]);
    }
    route_shared_close(r->shared);
    prompt_reader_unref(r->given);
    prefix_index_free(r->index);
    mem_free(r);
}

void router_count(struct router *r)
{
    uint64_t changes = 0;
    int live = 0;
    for (int i = 0; i < r->n; i++) {
        if (r->foreign[i]) {
            live += vllm_feed_live(r->foreign[i]);
            changes += vllm_feed_batches(r->foreign[i]);
        }
        if (!r->feeds[i]) continue;
        live += kv_feed_live(r->feeds[i]);
        changes += kv_feed_changes(r->feeds[i]);
    }
    metric_set(r->live, live);
    metric_set(r->changes, (double)changes);
    metric_set(r->blocks, (double)prefix_index_stats(r->index).blocks);
}
