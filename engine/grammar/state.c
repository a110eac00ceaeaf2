/* state.c - where one text stands: new, copied, moved on by tokens or bytes. */
#include <string.h>

#include "base/mem.h"
#include "engine/grammar/grammar_private.h"

/* Bytes between two clean-ups of the work memory; bytes looked ahead. */
enum { BYTES_A_TIME = 128, DRAFT_BYTES = 128, FORCED_MAX = 1024 };

struct grammar_state *grammar_state_new(struct grammar *g)
{
    struct grammar_state *s = xcalloc(1, sizeof *s);
    const struct callee *root = &g->program.root;
    s->g = grammar_ref(g);
    s->cap_frames = 8;
    s->frame = xcalloc((size_t)s->cap_frames, sizeof *s->frame);
    s->frame[0] = (struct kept_frame){g->program.rule[root->rule].start, root->need, root->left};
    s->n_stacks = s->n_frames = s->depth[0] = 1;
    return s;
}

void grammar_state_free(struct grammar_state *s)
{
    if (!s) return;
    grammar_unref(s->g);
    mem_free(s->frame);
    mem_free(s);
}

static void copy_stacks(struct grammar_state *to, const struct grammar_state *from)
{
    if (to->cap_frames < from->n_frames) {
        to->cap_frames = from->n_frames;
        to->frame = xrealloc(to->frame, (size_t)to->cap_frames * sizeof *to->frame);
    }
    memcpy(to->frame, from->frame, (size_t)from->n_frames * sizeof *to->frame);
    memcpy(to->depth, from->depth, (size_t)from->n_stacks * sizeof *to->depth);
    to->n_frames = from->n_frames;
    to->n_stacks = from->n_stacks;
}

void grammar_state_copy(struct grammar_state *to, const struct grammar_state *from)
{
    ASSERT(to->g == from->g);
    if (to != from) copy_stacks(to, from);
}

/* What one kept stack becomes by reading bytes goes behind what *to holds. */
static void follow(struct grammar_run *r, const struct program *p, const struct kept_frame *bottom,
                   int depth, struct str bytes, struct grammar_state *to)
{
    struct config_set *now = &r->set[0], *next = &r->set[1];
    run_reset(r);
    now->config[0] = run_load(r, bottom, depth);
    now->n = 1;
    for (size_t i = 0; i < bytes.n && now->n; i++) {
        if (i && i % BYTES_A_TIME == 0) {
            run_store(r, now, r->trial);
            run_load_all(r, r->trial, now);
        }
        run_step(r, p, now, (uint8_t)bytes.p[i], next);
        struct config_set *swap = now;
        now = next;
        next = swap;
    }
    run_append(r, now, to);
}

/* Stack by stack, as masks are made: where more ways are open than are followed at a time, one of a later stack that a mask lets through
 * must not fall to those of an earlier one. */
bool grammar_accept_bytes(struct grammar_run *r, struct grammar_state *s, struct str bytes)
{
    const struct kept_frame *at = s->frame;
    r->after->n_stacks = r->after->n_frames = 0;
    for (int i = 0; i < s->n_stacks; at += s->depth[i++])
        follow(r, &s->g->program, at, s->depth[i], bytes, r->after);
    if (!r->after->n_stacks) return false;
    copy_stacks(s, r->after);
    return true;
}

bool grammar_accept(struct grammar_run *r, struct grammar_state *s, int32_t token)
{
    const struct grammar_vocab *v = s->g->vocab;
    ASSERT(token >= 0 && token < v->n_vocab);
    for (int i = 0; i < v->n_ends; i++)
        if (v->ends[i] == token) return grammar_may_end(r, s);
    if (token >= v->n_tokens || !v->text[token].n) return false;
    return grammar_accept_bytes(r, s, v->text[token]);
}

bool grammar_may_end(struct grammar_run *r, const struct grammar_state *s)
{
    run_load_all(r, s, &r->set[0]);
    for (int i = 0; i < r->set[0].n; i++)
        if (run_may_end(r, &s->g->program, r->set[0].config[i])) return true;
    return false;
}

static int count_bytes(const struct byte_set *s)
{
    int n = 0;
    for (int i = 0; i < 4; i++)
        n += __builtin_popcountll(s->bits[i]);
    return n;
}

static void next_bytes(const struct grammar_run *r, const struct program *p,
                       const struct config_set *set, struct byte_set *out)
{
    *out = (struct byte_set){{0}};
    for (int i = 0; i < set->n; i++)
        run_next_bytes(r, p, set->config[i], out);
}

bool grammar_must_end(struct grammar_run *r, const struct grammar_state *s)
{
    struct byte_set bytes;
    if (!grammar_may_end(r, s)) return false;
    next_bytes(r, &s->g->program, &r->set[0], &bytes);
    return !count_bytes(&bytes);
}

size_t run_forced(struct grammar_run *r, const struct program *p, char *out, size_t cap)
{
    size_t n = 0;
    for (; n < cap; n++) {
        struct config_set *now = &r->set[n % 2], *next = &r->set[(n + 1) % 2];
        struct byte_set bytes;
        for (int i = 0; i < now->n; i++)
            if (run_may_end(r, p, now->config[i])) return n;
        next_bytes(r, p, now, &bytes);
        if (count_bytes(&bytes) != 1) return n;
        uint8_t byte = 0;
        while (!byte_set_has(&bytes, byte))
            byte++;
        run_step(r, p, now, byte, next);
        if (!next->n) return n;
        out[n] = (char)byte;
    }
    return n;
}

size_t grammar_forced(struct grammar_run *r, const struct grammar_state *s, char *out, size_t cap)
{
    run_load_all(r, s, &r->set[0]);
    return run_forced(r, &s->g->program, out, cap < FORCED_MAX ? cap : FORCED_MAX);
}

int grammar_draft(struct grammar_run *r, const struct grammar_state *s, int32_t *out, int n_max)
{
    char bytes[DRAFT_BYTES];
    size_t n = grammar_forced(r, s, bytes, sizeof bytes);
    return vocab_usual_tokens(s->g->vocab, (struct str){bytes, n}, out, n_max);
}
