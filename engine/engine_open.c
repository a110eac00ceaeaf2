/* engine_open.c - sizes of an engine from options and the model file's header, its making and its end. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/timed_wait.h"
#include "engine/announce.h"
#include "engine/backend/backend.h"
#include "engine/engine_private.h"
#include "engine/grammar/grammar.h"
#include "engine/kv_disk.h"
#include "engine/kv_tier.h"
#include "engine/kv_transfer.h"
#include "engine/model/gguf.h"
#include "engine/model/shard.h"
#include "engine/speculate/draft_model.h"

enum {
    DRAFTING_SEQS = 4,        /* so many sequences may have a full draft in one step */
    DRAFT_CONTEXT_MAX = 4096, /* tokens a draft model holds of one sequence */
};

enum {
    DISK_CLOSE_MS = 5000,      /* what is computed and not yet saved gets this long */
    CARRIED_HOST_BLOCKS = 128, /* of host memory where blocks come from disk or other engines */
    BLOCKS_MAX = 1 << 24
};
#ifdef DEJA_RARE /* everybody is in everybody's way */
enum {
    RARE_BLOCK = 2,
    RARE_BLOCKS = 3, /* beyond what the longest sequence needs */
    RARE_ROWS = 20,
    RARE_HOST = 40
};
#endif

static void model_forward_call(void *arg, const struct model_batch *b, float *logits)
{
    model_forward(arg, b, logits);
}
static void model_copy_call(void *arg, int32_t dst, int32_t src, int n)
{
    model_kv_copy(arg, dst, src, n);
}

static void model_move_call(void *arg, const struct kv_move *moves, int n)
{
    model_kv_move(arg, moves, n);
}
static void model_read_call(void *arg, int32_t block, void *to)
{
    model_kv_read(arg, block, to);
}
static void model_write_call(void *arg, int32_t block, const void *from)
{
    model_kv_write(arg, block, from);
}
static void model_touch_call(void *arg, int part, int n_parts)
{
    model_kv_touch(arg, part, n_parts);
}
static enum err model_submit_call(void *arg, const struct sample_row *row, int n, struct errmsg *e)
{
    return model_submit(arg, row, n, e);
}
static enum err model_wait_call(void *arg, struct sampler_pick_out *out, struct errmsg *e)
{
    return model_wait(arg, out, e);
}
static const char *model_failure_call(void *arg)
{
    return model_failure(arg);
}
static void model_close_call(void *arg)
{
    model_close(arg);
}

/* The disk's files bring their own hash seed, or what they hold could not be found. */
static enum err open_disk(struct engine *g, struct sched_options *so, struct kv_disk **out,
                          struct errmsg *e)
{
    struct kv_disk_options o = {.dir = g->size.disk_dir,
                                .bytes_max = g->size.disk_bytes,
                                .notify = engine_disk_done,
                                .arg = g};
    *out = NULL;
    if (!o.dir) return OK;
    engine_kv_head(g, &o.head);
    o.head.seed = so->hash_seed;
    enum err code = kv_disk_open(out, &o, e);
    if (code == ERR_UNAVAILABLE) {
        log_warn("engine", "%s: going on without", e->text);
        return OK;
    }
    if (code) return code;
    so->hash_seed = kv_disk_seed(*out);
    so->track_fresh = true;
    return OK;
}

static enum err make_memory(struct engine *g, struct errmsg *e)
{
    size_t n_vocab = (size_t)g->model.n_vocab,
           n_logits = (size_t)(g->size.max_num_seqs + g->size.draft_rows) * n_vocab,
           host_bytes = (size_t)g->size.n_host * g->model.block_bytes;
    g->move = move_cost_of((double)g->model.block_bytes);
    g->logits = try_malloc(n_logits * sizeof(float));
    g->logits_copy = try_malloc(n_vocab * sizeof(float));
    g->host = mem_alloc_huge(host_bytes);
    if (g->logits && g->logits_copy && (g->host || !host_bytes)) return OK;
    return err_set(e, ERR_FULL, "no memory for %zu bytes of logits and %zu of swap space",
                   n_logits * sizeof(float), host_bytes);
}

static void on_device(void *arg, bool entered, struct hash128 id)
{
    announce_change(arg, KV_DEVICE, entered, id);
}
static void on_host(void *arg, bool entered, struct hash128 id)
{
    announce_change(arg, KV_HOST, entered, id);
}
static void on_disk(void *arg, bool entered, struct hash128 id)
{
    announce_change(arg, KV_DISK, entered, id);
}

static void watch_blocks(struct engine *g)
{
    struct announce *a = g->size.announce;
    sched_watch(g->sched, on_device, a);
    if (sched_host(g->sched)) shelf_watch(sched_host(g->sched), on_host, a);
    if (g->tier) kv_tier_watch(g->tier, on_disk, a);
}

enum err engine_open_with(struct engine **out, const struct engine_forward *model,
                          const struct engine_sizes *size, struct errmsg *e)
{
    *out = NULL;
    struct engine *g = xcalloc(1, sizeof *g);
    g->model = *model;
    g->size = *size;
    g->next_id = 1;
    pthread_mutex_init(&g->lock, NULL);
    timed_cond_init(&g->wake);
    struct sched_options so = {
        .n_blocks = size->n_blocks,
        .block_tokens = size->block_size,
        .max_running = size->max_num_seqs,
        /* all that engine_submit lets in may wait at once: the queue's bound is kept there */
        .max_waiting = size->queue_max + size->max_num_seqs,
        .max_batch_rows = size->max_batch,
        .max_len = size->max_len,
        .draft_rows_max = size->draft_rows,
        .prefix_caching = size->prefix_caching,
        .n_host = size->n_host,
        .hash_seed = size->hash_seed ? size->hash_seed : rng_entropy(),
        .root = size->root};
    struct kv_disk *disk;
    enum err code = open_disk(g, &so, &disk, e);
    if (!code) code = make_memory(g, e);
    if (code) {
        g->model.close = NULL; /* stays the caller's */
        (void)kv_disk_close(disk, 0);
        engine_close(g);
        return code;
    }
    g->sched = sched_new(&so);
    pace_init(&g->pace, size->step_target_us > 0 ? size->step_target_us : 1e9, size->max_batch);
    engine_set_rows(g);
    g->batch =
        batch_new(size->max_batch, size->max_num_seqs, size->max_num_seqs + size->draft_rows);
    g->n_seqs = so.max_running + so.max_waiting;
    g->adapters = xcalloc((size_t)size->max_num_seqs, sizeof *g->adapters);
    g->by_seq = xcalloc((size_t)g->n_seqs, sizeof *g->by_seq);
    g->scratch = sampler_scratch_new(model->n_vocab);
    g->speculator = model->speculator;
    if (disk) g->tier = kv_tier_new(disk, g->sched, &g->model, g->host);
    g->hash_seed = so.hash_seed;
    if (size->announce) watch_blocks(g);
    g->snapshot.max_num_seqs = size->max_num_seqs;
    g->snapshot.blocks_total = size->n_blocks;
    g->snapshot.host_blocks = size->n_host;
    g->has_thread = !pthread_create(&g->thread, NULL, engine_step_main, g);
    ASSERT(g->has_thread);
    *out = g;
    return OK;
}

static int or_default(int v, int preset)
{
    return v > 0 ? v : preset;
}

/* How many KV blocks there are. */
static enum err count_blocks(const struct engine_options *o, struct engine_sizes *s,
                             uint64_t block_bytes, struct errmsg *e)
{
    uint64_t n = (o->kv_bytes ? o->kv_bytes : 512u << 20) / block_bytes,
             one = ((uint64_t)s->max_len + (uint64_t)s->block_size - 1) / (uint64_t)s->block_size;
    if (n < one && o->kv_bytes)
        return err_set(e, ERR_RANGE,
                       "kv_bytes %llu holds %llu tokens; one sequence of max_model_len %d "
                       "needs %llu bytes",
                       (unsigned long long)o->kv_bytes,
                       (unsigned long long)(n * (uint64_t)s->block_size), s->max_len,
                       (unsigned long long)(one * block_bytes));
    if (n < one) n = one;
    uint64_t useful =
        one * (uint64_t)s->max_num_seqs * 4; /* beyond it only ever older prefixes would be kept */
    if (!o->kv_bytes && n > useful) n = useful;
#ifdef DEJA_RARE
    if (!o->kv_bytes) n = one + RARE_BLOCKS;
#endif
    s->n_blocks = n > BLOCKS_MAX ? BLOCKS_MAX : (int)n;
    return OK;
}

/* Of one KV block, where it will lie: on the first of several GPUs, on all ranks of a CPU. */
static enum err block_bytes_of(const struct engine_options *o, const struct model_plan *m,
                               uint64_t *out, struct errmsg *e)
{
    int tokens = or_default(o->block_size, 16);
    struct kv_options k = {.n_layers = m->n_layer,
                           .n_kv_heads = m->n_kv_head,
                           .head_dim = m->head_dim,
                           .block_tokens = tokens,
                           .type = o->kv_type};
    size_t bytes = 0;
#ifdef DEJA_RARE
    k.block_tokens = tokens = RARE_BLOCK;
#endif
    enum err code = o->device ? kv_block_bytes_on(o->device, &k, &bytes, e) : OK;
    *out = o->device ? bytes
                     : (uint64_t)tokens *
                           kv_bytes_per_token(o->kv_type, o->exact, m->n_layer, m->n_kv_head,
                                              m->head_dim) *
                           (uint64_t)(m->shard.n_ranks ? m->shard.n_ranks : 1);
    return code;
}

enum err engine_plan_read(struct model_plan *plan, const struct gguf *file,
                          const struct engine_options *o, struct errmsg *e)
{
    enum err code = model_plan_read(plan, file, e);
    if (!code && o->tensor_parallel > 1) {
        code = model_plan_shard(plan, 0, o->tensor_parallel, e);
        if (code) model_plan_fini(plan);
    }
    return code;
}

/* Every size from options and the file's header, before weights are read, so that a wrong one costs
 * no loading time. */
enum err engine_resolve_sizes(const struct engine_options *o, struct engine_sizes *s,
                              struct errmsg *e)
{
    struct gguf *file;
    struct model_plan plan;
    enum err code = gguf_open(&file, o->model_path, e);
    if (code) return code;
    code = engine_plan_read(&plan, file, o, e);
    if (code) {
        gguf_close(file);
        return code;
    }
    uint64_t block_bytes = 0;
    code = block_bytes_of(o, &plan, &block_bytes, e);
    int context = plan.context_length;
    model_plan_fini(&plan);
    gguf_close(file);
    if (code) return code;

    *s = (struct engine_sizes){
        .block_size = or_default(o->block_size, 16),
        .max_len = or_default(o->max_model_len, context),
        .max_num_seqs = or_default(o->max_num_seqs, 16),
        .max_batch = or_default(o->max_num_batched_tokens, 256),
        .queue_max = or_default(o->queue_max, 256),
        .prefix_caching = o->prefix_caching,
        /* ranks look token ids up on the host: each has its part of the embedding */
        .wait_each_step = o->wait_each_step || o->tensor_parallel > 1,
        .hash_seed = o->hash_seed,
        .announce = o->announce,
        .on_step = o->on_step,
        .on_import_room = o->on_import_room,
        .on_step_arg = o->on_step_arg};
    if (s->max_len > context)
        return err_set(e, ERR_RANGE, "max_model_len %d is over the model's context of %d positions",
                       s->max_len, context);
    if (s->max_len < 2) return err_set(e, ERR_RANGE, "max_model_len %d is below 2", s->max_len);
#ifdef DEJA_RARE
    s->block_size = RARE_BLOCK;
    s->max_batch = RARE_ROWS;
#endif
    if (s->max_batch < s->max_num_seqs) s->max_batch = s->max_num_seqs;
    const struct engine_speculation *ahead = &o->speculation;
    if (ahead->n_max < 0 || ahead->n_max > DRAFT_DEPTH_MAX)
        return err_set(e, ERR_RANGE, "at most %d tokens are guessed ahead, not %d", DRAFT_DEPTH_MAX,
                       ahead->n_max);
    if (ahead->branches < 0 || ahead->branches > SPECULATOR_BRANCHES_MAX)
        return err_set(e, ERR_RANGE, "at most %d tokens are guessed behind one place, not %d",
                       SPECULATOR_BRANCHES_MAX, ahead->branches);
    s->draft_rows = speculator_nodes_max(ahead->n_max, ahead->branches) * DRAFTING_SEQS;
    if (s->draft_rows > s->max_batch - s->max_num_seqs)
        s->draft_rows = s->max_batch - s->max_num_seqs;
    s->prompt_rows = or_default(o->prompt_rows_decoding, 0);
    s->step_target_us = 1000.0 * or_default(o->step_target_ms, 30);
    return count_blocks(o, s, block_bytes, e);
}

static enum err open_speculator(struct speculator **out, const struct engine_options *o,
                                const struct engine_sizes *size, const struct gguf *target,
                                struct errmsg *e)
{
    const struct engine_speculation *want = &o->speculation;
    struct speculator_options so = {.n_max = want->n_max,
                                    .branches = want->branches ? want->branches : 1,
                                    .lookup = want->lookup,
                                    .always = want->always};
    *out = NULL;
    if (!want->n_max) return OK;
    if (want->draft_path) {
        struct draft_model_options draft = {
            .path = want->draft_path,
            .n_threads = o->n_threads,
            .context_max = size->max_len < DRAFT_CONTEXT_MAX ? size->max_len : DRAFT_CONTEXT_MAX,
            .isa = o->isa};
        enum err code = draft_model_open(&so.model, &draft, target, e);
        if (code) return code;
    }
    *out = speculator_new(&so);
    return OK;
}

static enum err open_adapters(struct engine_forward *f, const struct engine_options *o,
                              struct errmsg *e)
{
    enum err code = OK;
    for (int i = 0; i < o->n_adapters && !code; i++) {
        const struct engine_adapter *a = &o->adapters[i];
        char *path = xstrndup(a->path.p, a->path.n);
        int number;
        code = model_adapter_add(f->arg, path, a->scale, &number, e);
        mem_free(path);
        if (code) return err_prefix(e, code, "adapter " STR_FMT, STR_ARG(a->name));
        ASSERT(number == i);
        f->adapter_id[f->n_adapters++] = model_adapter_id(f->arg, number);
    }
    return code;
}

static int host_blocks(const struct engine_options *o, const struct model *m)
{
    uint64_t n = o->swap_bytes / model_kv_block_bytes(m);
#ifdef DEJA_RARE
    if (n > RARE_HOST) n = RARE_HOST;
#endif
    return n > BLOCKS_MAX ? BLOCKS_MAX : (int)n;
}

static void tell_open(const struct engine_forward *f, const struct engine_sizes *size)
{
    const struct model_info *info = f->info;
    log_info("engine",
             "model=%s arch=%s device=%s layers=%d vocab=%d max_len=%d max_num_seqs=%d batch=%d "
             "kv_blocks=%d "
             "block=%d kv_mib=%llu full_length_seqs=%d swap_blocks=%d",
             info->name, info->arch, f->device, info->n_layer, info->n_vocab, size->max_len,
             size->max_num_seqs, size->max_batch, size->n_blocks, size->block_size,
             (unsigned long long)(info->kv_bytes_per_token * (uint64_t)size->block_size *
                                      (uint64_t)size->n_blocks >>
                                  20),
             size->n_blocks / ((size->max_len - 1) / size->block_size + 1), size->n_host);
}

static enum err open_on(struct engine **out, const struct engine_options *o, struct errmsg *e)
{
    struct engine_sizes size;
    struct model *m;
    *out = NULL;
    enum err code = engine_resolve_sizes(o, &size, e);
    if (code) return code;
    struct model_options mo = {.n_threads = o->n_threads,
                               .block_tokens = size.block_size,
                               .n_blocks = size.n_blocks,
                               .max_batch_tokens = size.max_batch,
                               .max_seqs = size.max_num_seqs,
                               .context_max = size.max_len,
                               .kv_type = o->kv_type,
                               .isa = o->isa,
                               .device = o->device,
                               .products = o->gpu_products,
                               .calibration = o->gpu_calibration,
                               .exact = o->exact,
                               .n_ranks = o->tensor_parallel};
    code = model_open(&m, o->model_path, &mo, e);
    if (code) return code;
    model_warm(m);
    const struct model_info *info = model_info(m);
    size.n_host = host_blocks(o, m);
    if (o->disk_dir && *o->disk_dir) {
        size.disk_dir = o->disk_dir;
        size.disk_bytes = o->disk_bytes;
    }
    size.kv_format = model_kv_format(m);
    /* what comes from disk or from another engine passes through the host */
    if ((size.disk_dir || o->imports) && size.n_host < CARRIED_HOST_BLOCKS)
        size.n_host = CARRIED_HOST_BLOCKS;
    size.root = hash_bytes(0, str_of(info->file_hash));
    struct engine_forward f = {.arg = m,
                               .forward = model_forward_call,
                               .kv_copy = model_copy_call,
                               .kv_move = model_move_call,
                               .kv_read = model_read_call,
                               .kv_write = model_write_call,
                               .block_bytes = model_kv_block_bytes(m),
                               .kv_touch = model_touch_call,
                               .close = model_close_call,
                               .submit = model_samples(m) ? model_submit_call : NULL,
                               .wait = model_wait_call,
                               .failure = model_failure_call,
                               .device = model_device(m),
                               .device_model = model_device_model(m),
                               .info = info,
                               .gguf = model_gguf(m),
                               .n_vocab = info->n_vocab};
    code = open_adapters(&f, o, e);
    if (!code) code = open_speculator(&f.speculator, o, &size, f.gguf, e);
    if (!code) code = engine_open_with(out, &f, &size, e);
    if (code) {
        speculator_free(f.speculator);
        model_close(m);
        return code;
    }
    tell_open(&f, &size);
    return OK;
}

enum err engine_open(struct engine **out, const struct engine_options *o, struct errmsg *e)
{
    struct engine_options with = *o;
    struct engine_place place;
    *out = NULL;
    enum err code = engine_place_choose(&place, &with, e);
    if (!code) code = open_on(out, &with, e);
    if (!place.may_fall_back || !engine_place_denies(code)) return code;
    log_warn("engine", "device=auto: %s: %s; going on with the CPU", place.device, e->text);
    with = *o;
    with.device = NULL;
    return open_on(out, &with, e);
}

void engine_close(struct engine *g)
{
    if (!g) return;
    if (g->has_thread) {
        pthread_mutex_lock(&g->lock);
        g->closing = true;
        pthread_cond_signal(&g->wake);
        pthread_mutex_unlock(&g->lock);
        pthread_join(g->thread, NULL);
    }
    ASSERT(!g->live && !g->inbox);
    if (!kv_tier_free(g->tier, DISK_CLOSE_MS)) g->host = NULL; /* not ours any more */
    kv_imports_free(g);
    sched_free(g->sched);
    batch_free(g->batch);
    mem_free(g->by_seq);
    mem_free(g->adapters);
    mem_free(g->logits);
    mem_free(g->logits_copy);
    mem_free_huge(g->host, (size_t)g->size.n_host * g->model.block_bytes);
    sampler_scratch_free(g->scratch);
    turns_free(g->turns);
    speculator_free(g->speculator);
    grammar_run_free(g->forms);
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->wake);
    if (g->model.close) g->model.close(g->model.arg);
    mem_free(g);
}
