/* engine.c - the way into a running engine: submit, cancel, stats. The work is in engine_step.c, the start in engine_open.c. */
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine_private.h"
#include "engine/grammar/grammar.h"
#include "engine/kv_file.h"
#include "engine/kv_transfer.h"

const struct model_info *engine_model(const struct engine *g)
{
    return g->model.info;
}
const struct gguf *engine_gguf(const struct engine *g)
{
    return g->model.gguf;
}
int engine_max_len(const struct engine *g)
{
    return g->size.max_len;
}
int engine_block_size(const struct engine *g)
{
    return g->size.block_size;
}
const char *engine_device(const struct engine *g)
{
    return g->model.device ? g->model.device : "cpu";
}
const char *engine_device_model(const struct engine *g)
{
    return g->model.device_model ? g->model.device_model : "";
}
const char *engine_lost(struct engine *g)
{
    return atomic_load(&g->lost);
}

struct prefix_origin engine_prefix_origin(const struct engine *g, int adapter)
{
    struct prefix_origin o = {.seed = g->hash_seed, .root = g->size.root};
    if (adapter > 0) o.adapter = g->model.adapter_id[adapter - 1];
    return o;
}

int engine_host_blocks(const struct engine *g)
{
    return g->size.n_host;
}

void engine_kv_head(const struct engine *g, struct kv_head *out)
{
    *out = (struct kv_head){.block_tokens = g->size.block_size,
                            .block_bytes = g->model.block_bytes,
                            .root = g->size.root};
    snprintf(out->format, sizeof out->format, "%s", g->size.kv_format ? g->size.kv_format : "");
}

void request_free(struct request *r)
{
    mem_free(r->export);
    for (int i = 0; i < r->n_choices; i++) {
        sampler_free(r->choices[i].sampler);
        drafts_free(r->choices[i].drafts);
        grammar_state_free(r->choices[i].form);
        mem_free(r->choices[i].tokens);
    }
    mem_free(r);
}

static enum err check_prompt(const struct engine *g, const struct engine_submit_options *o,
                             struct errmsg *e)
{
    ASSERT(o->n >= 1 && o->n <= ENGINE_CHOICES_MAX && o->n_end_ids >= 0 &&
           o->n_end_ids <= ENGINE_END_IDS_MAX);
    if (o->n_prompt < 1) return err_set(e, ERR_RANGE, "the prompt is empty");
    int64_t pool = (int64_t)g->size.n_blocks * g->size.block_size;
    if (o->n_prompt >= g->size.max_len)
        return err_set(e, ERR_TOO_LARGE,
                       "the prompt has %d tokens and max_tokens is %d, but the context is %d "
                       "tokens: at most %d for the prompt",
                       o->n_prompt, o->max_tokens > 0 ? o->max_tokens : 1, g->size.max_len,
                       g->size.max_len - 1);
    if (o->n_prompt >= pool)
        return err_set(
            e, ERR_TOO_LARGE,
            "the prompt has %d tokens, but the KV cache holds %lld: at most %lld for the prompt",
            o->n_prompt, (long long)pool, (long long)pool - 1);
    for (int i = 0; i < o->n_prompt; i++)
        if (o->prompt[i] < 0 || o->prompt[i] >= g->model.n_vocab)
            return err_set(e, ERR_RANGE, "prompt token %d is %d, outside the vocabulary of %d", i,
                           o->prompt[i], g->model.n_vocab);
    return OK;
}

static enum err fill_choice(struct engine *g, struct request *r, int i,
                            const struct engine_submit_options *o, struct errmsg *e)
{
    struct choice *c = &r->choices[i];
    struct sampler_params sampling = o->sampling;
    sampling.seed += (uint64_t)i;
    c->request = r;
    c->index = i;
    c->seq = -1;
    c->tokens = try_malloc((size_t)r->n_limit * sizeof *c->tokens);
    if (!c->tokens) return err_set(e, ERR_FULL, "no memory for %d tokens", r->n_limit);
    memcpy(c->tokens, o->prompt, (size_t)o->n_prompt * sizeof *c->tokens);
    enum err code = sampler_new(&c->sampler, &sampling, g->model.n_vocab, e);
    if (code) return code;
    sampler_prompt(c->sampler, o->prompt, o->n_prompt);
    if (o->grammar) c->form = grammar_state_new(o->grammar);
    if (g->speculator) c->drafts = drafts_new(o->expected, o->n_expected);
    if (g->speculator && !c->drafts) code = err_set(e, ERR_FULL, "no memory for drafts");
    return code;
}

static enum err enqueue(struct engine *g, struct request *r, uint64_t *id_out, struct errmsg *e)
{
    enum err code = OK;
    pthread_mutex_lock(&g->lock);
    int most = g->size.queue_max + g->size.max_num_seqs, room = most - g->n_live_choices;
    if (g->closing) {
        code = err_set(e, ERR_CLOSED, "the engine is closing");
    } else if (r->n_choices > most) {
        code = err_set(e, ERR_RANGE, "n: %d choices never fit: at most %d run or wait here",
                       r->n_choices, most);
    } else if (r->n_choices > room) {
        code = err_set(e, ERR_FULL,
                       "%d choices run or wait (max_num_seqs %d, queue %d), no room for %d more",
                       g->n_live_choices, g->size.max_num_seqs, g->size.queue_max, r->n_choices);
    } else {
        *id_out = r->id = g->next_id++; /* before the step thread can see, and end, it */
        if (g->inbox_last)
            g->inbox_last->next = r;
        else
            g->inbox = r;
        g->inbox_last = r;
        g->n_live_choices += r->n_choices;
        g->inbox_tokens += (uint64_t)r->n_prompt;
    }
    if (!code) pthread_cond_signal(&g->wake);
    pthread_mutex_unlock(&g->lock);
    return code;
}

enum err engine_submit(struct engine *g, const struct engine_submit_options *o, uint64_t *id_out,
                       struct errmsg *e)
{
    enum err code = check_prompt(g, o, e);
    if (code) return code;
    struct request *r = try_calloc(1, sizeof *r);
    if (!r) return err_set(e, ERR_FULL, "no memory for a request");
    int room = g->size.max_len - o->n_prompt;
    r->n_choices = r->n_live = o->n;
    r->submitted_us = clock_us();
    r->n_prompt = o->n_prompt;
    r->n_limit = o->n_prompt + (o->max_tokens > 0 && o->max_tokens < room ? o->max_tokens : room);
    ASSERT(o->adapter >= 0 && o->adapter <= g->model.n_adapters);
    r->adapter = o->adapter - 1;
    r->scope.salt = o->salt;
    if (o->adapter) r->scope.adapter = g->model.adapter_id[o->adapter - 1];
    r->priority = o->priority;
    r->ignore_end = o->ignore_end && !o->grammar;
    r->n_end_ids = o->n_end_ids;
    if (o->n_end_ids) memcpy(r->end_ids, o->end_ids, (size_t)o->n_end_ids * sizeof *o->end_ids);
    r->on_token = o->on_token;
    r->on_end = o->on_end;
    r->arg = o->arg;
    r->export = kv_export_new(o);
    for (int i = 0; i < o->n && !code; i++)
        code = fill_choice(g, r, i, o, e);
    if (!code) code = enqueue(g, r, id_out, e);
    if (code) request_free(r);
    return code;
}

void engine_cancel(struct engine *g, uint64_t id)
{
    pthread_mutex_lock(&g->lock);
    for (int list = 0; list < 2; list++)
        for (struct request *r = list ? g->inbox : g->live; r; r = r->next)
            if (r->id == id) r->cancelled = g->any_cancelled = true;
    if (g->any_cancelled) pthread_cond_signal(&g->wake);
    pthread_mutex_unlock(&g->lock);
}

void engine_stats(struct engine *g, struct engine_stats *out)
{
    pthread_mutex_lock(&g->lock);
    *out = g->snapshot;
    out->waiting_prompt_tokens += g->inbox_tokens;
    for (const struct request *r = g->inbox; r; r = r->next)
        out->waiting += r->n_choices;
    pthread_mutex_unlock(&g->lock);
    out->last_success_ms = atomic_load(&g->last_success_ms);
    uint64_t last = atomic_load(&g->last_step_ms), now = clock_ms();
    out->step_age_ms = atomic_load(&g->busy) && now > last ? now - last : 0;
}
