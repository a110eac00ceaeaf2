/* run.c - stacks of frames and how they read bytes. Frames are never changed, only added: alternatives share what lies below, and a
 * walk goes back by forgetting the newest ones. */
#include <string.h>

#include "base/mem.h"
#include "engine/grammar/grammar_private.h"

/* A walk is at most TRIE_DEPTH_MAX deep, each step adds at most a few frames an alternative. When it is full, further alternatives are
 * not followed; one always fits. */
enum { FRAMES_MAX = 1 << 17, CACHE_BYTES = 64 << 20 };

struct grammar_run *grammar_run_new(size_t cache_bytes_max)
{
    struct grammar_run *r = xcalloc(1, sizeof *r);
    r->frame = xcalloc(FRAMES_MAX, sizeof *r->frame);
    r->cache = mask_cache_new(cache_bytes_max ? cache_bytes_max : CACHE_BYTES);
    r->trial = xcalloc(1, sizeof *r->trial);
    r->after = xcalloc(1, sizeof *r->after);
    run_reset(r);
    return r;
}

void grammar_run_free(struct grammar_run *r)
{
    if (!r) return;
    mask_cache_free(r->cache);
    mem_free(r->trial->frame);
    mem_free(r->trial);
    mem_free(r->after->frame);
    mem_free(r->after);
    mem_free(r->frame);
    mem_free(r->bits);
    mem_free(r->one);
    mem_free(r);
}

void run_reset(struct grammar_run *r)
{
    r->n_frames = 1;
}

static uint32_t add_frame(struct grammar_run *r, struct frame f)
{
    if (r->n_frames == FRAMES_MAX) return 0;
    r->frame[r->n_frames] = f;
    return r->n_frames++;
}

uint32_t run_load(struct grammar_run *r, const struct kept_frame *bottom, int depth)
{
    uint32_t top = 0;
    for (int i = 0; i < depth; i++)
        top = add_frame(r, (struct frame){.parent = top,
                                          .state = bottom[i].state,
                                          .need = bottom[i].need,
                                          .left = bottom[i].left,
                                          .depth = i + 1});
    return top;
}

void run_load_all(struct grammar_run *r, const struct grammar_state *s, struct config_set *out)
{
    const struct kept_frame *at = s->frame;
    run_reset(r);
    out->n = 0;
    for (int i = 0; i < s->n_stacks; at += s->depth[i++])
        out->config[out->n++] = run_load(r, at, s->depth[i]);
}

static bool stored_before(const struct grammar_state *s, const struct kept_frame *x, int depth)
{
    const struct kept_frame *at = s->frame;
    for (int i = 0; i < s->n_stacks; at += s->depth[i++])
        if (s->depth[i] == depth && !memcmp(at, x, (size_t)depth * sizeof *x)) return true;
    return false;
}

void run_append(const struct grammar_run *r, const struct config_set *set, struct grammar_state *s)
{
    for (int i = 0; i < set->n && s->n_stacks < STACKS_MAX; i++) {
        const struct frame *top = &r->frame[set->config[i]];
        int depth = top->depth;
        if (s->n_frames + depth > s->cap_frames) {
            s->cap_frames = 2 * (s->n_frames + depth);
            s->frame = xrealloc(s->frame, (size_t)s->cap_frames * sizeof *s->frame);
        }
        struct kept_frame *to = s->frame + s->n_frames;
        for (int k = depth - 1; k >= 0; k--, top = &r->frame[top->parent])
            to[k] = (struct kept_frame){top->state, top->need, top->left};
        if (stored_before(s, to, depth)) continue;
        s->depth[s->n_stacks++] = depth;
        s->n_frames += depth;
    }
}

void run_store(const struct grammar_run *r, const struct config_set *set, struct grammar_state *s)
{
    s->n_stacks = s->n_frames = 0;
    run_append(r, set, s);
}

/* Is an edge or call with these flags open, and what does it make of the counters? */
static bool pass(struct frame *f, uint32_t flags)
{
    if (flags & EDGE_ENOUGH && f->need) return false;
    if (!(flags & EDGE_COUNT)) return true;
    if (!f->left) return false;
    if (f->left != GRAMMAR_NO_LIMIT) f->left--;
    if (f->need) f->need--;
    return true;
}

static void put(struct grammar_run *r, struct frame f, struct config_set *out)
{
    for (int i = 0; i < out->n; i++) {
        const struct frame *x = &r->frame[out->config[i]];
        if (x->parent == f.parent && x->state == f.state && x->need == f.need && x->left == f.left)
            return;
    }
    uint32_t i = out->n < STACKS_MAX ? add_frame(r, f) : 0;
    if (i) out->config[out->n++] = i;
}

static bool ends_only(const struct program_state *s)
{
    return s->accept && !s->n_edges && !s->n_calls;
}

static void step_one(struct grammar_run *r, const struct program *p, struct frame f, uint8_t byte,
                     struct config_set *out);

/* Recursion: as deep as rules begin with rules, see program.c. */
static void step_calls(struct grammar_run *r, const struct program *p, const struct frame *f,
                       uint8_t byte, struct config_set *out)
{
    const struct program_state *s = &p->state[f->state];
    for (int i = 0; i < s->n_calls && out->n < STACKS_MAX; i++) {
        const struct dfa_call *c = &p->call[s->call + (uint32_t)i];
        const struct program_rule *rule = &p->rule[c->callee.rule];
        struct frame after = *f;
        if (!byte_set_has(&rule->first, byte) || !pass(&after, c->to)) continue;
        after.state = c->to & EDGE_STATE;
        /* nothing is left to do there: the callee ends for us too */
        bool last = ends_only(&p->state[after.state]);
        int depth = last ? f->depth : f->depth + 1;
        if (f->depth + p->state[after.state].height > GRAMMAR_DEPTH_MAX ||
            depth + p->state[rule->start].height > GRAMMAR_DEPTH_MAX)
            continue;
        uint32_t parent = last ? f->parent : add_frame(r, after);
        if (!parent && !last) continue;
        struct frame callee = {parent, rule->start, c->callee.need, c->callee.left, depth};
        step_one(r, p, callee, byte, out);
    }
}

static void step_one(struct grammar_run *r, const struct program *p, struct frame f, uint8_t byte,
                     struct config_set *out)
{
    for (;;) {
        const struct program_state *s = &p->state[f.state];
        uint32_t to = program_next(p, f.state, byte);
        struct frame moved = f;
        if (to && f.depth + p->state[to & EDGE_STATE].height <= GRAMMAR_DEPTH_MAX &&
            pass(&moved, to)) {
            moved.state = to & EDGE_STATE;
            put(r, moved, out);
        }
        if (s->n_calls) step_calls(r, p, &f, byte, out);
        if (!s->accept || !f.parent) return;
        f = r->frame[f.parent];
    }
}

void run_step(struct grammar_run *r, const struct program *p, const struct config_set *from,
              uint8_t byte, struct config_set *out)
{
    out->n = 0;
    for (int i = 0; i < from->n && out->n < STACKS_MAX; i++)
        step_one(r, p, r->frame[from->config[i]], byte, out);
}

bool run_may_end(const struct grammar_run *r, const struct program *p, uint32_t config)
{
    for (; config; config = r->frame[config].parent)
        if (!p->state[r->frame[config].state].accept) return false;
    return true;
}

void run_next_bytes(const struct grammar_run *r, const struct program *p, uint32_t config,
                    struct byte_set *out)
{
    for (; config; config = r->frame[config].parent) {
        const struct frame *f = &r->frame[config];
        const struct program_state *s = &p->state[f->state];
        for (int i = 0; i < s->n_edges; i++) {
            const struct dfa_edge *edge = &p->edge[s->edge + (uint32_t)i];
            struct frame moved = *f;
            if (pass(&moved, edge->to)) byte_set_add(out, edge->lo, edge->hi);
        }
        for (int i = 0; i < s->n_calls; i++) {
            const struct dfa_call *c = &p->call[s->call + (uint32_t)i];
            struct frame moved = *f;
            bool open = pass(&moved, c->to);
            for (int k = 0; k < 4 && open; k++)
                out->bits[k] |= p->rule[c->callee.rule].first.bits[k];
        }
        if (!s->accept) return;
    }
}
