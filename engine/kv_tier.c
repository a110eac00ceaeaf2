/* kv_tier.c - see kv_tier.h. */
#include "engine/kv_tier.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

enum {
    STAGED_MAX = 32, /* blocks on their way to the disk */
    FAILURES_MAX =
        8 /* writes in a row that fail before no more are tried: the disk is full or broken */
};

struct kv_tier {
    struct kv_disk *disk;
    struct shelf *index; /* slot = disk slot; pinned while it is read or written */
    struct sched *sched;
    const struct engine_forward *model;
    uint8_t *host, *stage; /* [STAGED_MAX][block_bytes] */
    int free_stage[STAGED_MAX], n_free_stage;
    int n_reading, n_failures;
    uint64_t saved, fetched, damaged, failed;
};

static void name_of(const struct kv_disk_job *job, struct block_name *out)
{
    *out = (struct block_name){job->id, job->parent, job->tokens};
}

/* ---- what an earlier process left ---- */
/* Damaged entries were passed over; a wrong identity is as good as damaged. */
static void found(void *arg, int slot, const struct kv_entry *e)
{
    struct kv_tier *t = arg;
    struct block_name name = {e->id, e->parent, e->tokens};
    if (!hash_eq(prefix_cache_chain(sched_cache(t->sched), e->parent, e->tokens), e->id)) return;
    if (shelf_enter(t->index, slot, &name)) shelf_unpin(t->index, slot);
}

/* Enters what the files hold at the very slots where it lies, in order of use. */
static void read_index(struct kv_tier *t)
{
    struct block_name name;
    int n = shelf_size(t->index);
    for (int i = 0; i < n; i++)
        (void)shelf_take(t->index);
    kv_disk_list(t->disk, found, t);
    for (shelf_slot i = 0; i < n; i++)
        if (!shelf_name(t->index, i, &name)) shelf_unpin(t->index, i);
}

struct kv_tier *kv_tier_new(struct kv_disk *disk, struct sched *sched,
                            const struct engine_forward *model, uint8_t *host)
{
    struct kv_tier *t = xcalloc(1, sizeof *t);
    t->disk = disk;
    t->sched = sched;
    t->model = model;
    t->host = host;
    t->index = sched_shelf_new(sched, kv_disk_slots(disk));
    t->stage = mem_alloc_huge(STAGED_MAX * model->block_bytes);
    if (t->stage)
        for (; t->n_free_stage < STAGED_MAX; t->n_free_stage++)
            t->free_stage[t->n_free_stage] = t->n_free_stage;
    read_index(t);
    log_info("engine", "kv_disk: %d of %d blocks are there", shelf_count(t->index),
             shelf_size(t->index));
    return t;
}

/* ---- saving ---- */
static struct kv_disk_job job_of(const struct kv_tier *t, int slot, const struct block_name *name)
{
    struct kv_disk_job job = {.slot = slot, .id = name->id, .parent = name->parent};
    memcpy(job.tokens, name->tokens, (size_t)sched_block_tokens(t->sched) * sizeof *job.tokens);
    return job;
}

/* True when the block was copied for the disk. */
static bool save(struct kv_tier *t, kv_block b, const struct block_name *name)
{
    shelf_slot slot = shelf_find(t->index, name);
    if (slot != SHELF_NO_SLOT) {
        shelf_touch(t->index, slot);
        return false;
    }
    if ((slot = shelf_take(t->index)) == SHELF_NO_SLOT) return false;
    struct kv_disk_job job = job_of(t, slot, name);
    job.write = true;
    job.place = t->free_stage[t->n_free_stage - 1];
    job.bytes = t->stage + (size_t)job.place * t->model->block_bytes;
    t->model->kv_read(t->model->arg, b, job.bytes);
    bool lost = t->model->failure && t->model->failure(t->model->arg); /* then it read nothing */
    if (lost || !kv_disk_submit(t->disk, &job)) {
        shelf_unpin(t->index, slot);
        return false;
    }
    t->n_free_stage--;
    return true;
}

/* Whether blocks wait to be saved for which there is room now. */
static bool can_save(const struct kv_tier *t)
{
    return t->n_free_stage && t->n_failures < FAILURES_MAX && sched_has_fresh(t->sched);
}

int kv_tier_save(struct kv_tier *t, int n_max)
{
    struct block_name name;
    kv_block b;
    int n = 0;
    while (n < n_max && can_save(t) && sched_next_fresh(t->sched, &b, &name))
        n += save(t, b, &name);
    return n;
}

/* ---- fetching ---- */
/* Where a wanted block is. */
enum place { NOWHERE, HERE, COMING };

static enum place fetch_slot(struct kv_tier *t, shelf_slot slot)
{
    struct block_name name;
    if (shelf_is_pinned(t->index, slot)) return COMING; /* another prompt asked for it */
    if (!shelf_name(t->index, slot, &name)) return NOWHERE;
    shelf_slot to = shelf_take(sched_host(t->sched));
    if (to == SHELF_NO_SLOT) return NOWHERE;
    struct kv_disk_job job = job_of(t, slot, &name);
    job.place = to;
    job.bytes = t->host + (size_t)to * t->model->block_bytes;
    if (!kv_disk_submit(t->disk, &job)) {
        shelf_unpin(sched_host(t->sched), to);
        return t->n_reading ? COMING : NOWHERE; /* room comes with the next one that is done */
    }
    shelf_pin(t->index, slot);
    t->n_reading++;
    return COMING;
}

static enum place want(struct kv_tier *t, const struct block_name *name)
{
    struct shelf *host = sched_host(t->sched);
    if (prefix_cache_find(sched_cache(t->sched), name->id, name->parent, name->tokens) !=
        KV_NO_BLOCK)
        return HERE;
    shelf_slot slot = shelf_find(host, name);
    if (slot != SHELF_NO_SLOT) {
        shelf_touch(host, slot); /* it must not give way to those that come after it */
        return HERE;
    }
    slot = shelf_find(t->index, name);
    return slot == SHELF_NO_SLOT ? NOWHERE : fetch_slot(t, slot);
}

/* The block after parent that begins like tokens[n], n less than a block. */
static enum place want_part(struct kv_tier *t, struct hash128 parent, const int32_t *tokens, int n)
{
    struct block_name name;
    int n_same;
    if (n <= 0) return NOWHERE;
    shelf_slot slot = shelf_find_partial(t->index, parent, tokens, n, &n_same);
    return slot != SHELF_NO_SLOT && shelf_name(t->index, slot, &name) ? want(t, &name) : NOWHERE;
}

int kv_tier_fetch(struct kv_tier *t, const struct prefix_scope *scope, const int32_t *tokens, int n)
{
    const struct prefix_cache *cache = sched_cache(t->sched);
    int bt = sched_block_tokens(t->sched), coming = 0, i = 0;
    int most =
        shelf_size(sched_host(t->sched)) / 2; /* of which the end would push out the beginning */
    struct block_name name = {.parent = prefix_cache_start(cache, scope)};
    for (; (i + 1) * bt <= n - 1 && i < most; i++) {
        name.tokens = tokens + i * bt;
        name.id = prefix_cache_chain(cache, name.parent, name.tokens);
        enum place place = want(t, &name);
        coming += place == COMING;
        if (place == NOWHERE) break;
        name.parent = name.id;
    }
    int rest = n - 1 - i * bt;
    return coming +
           (want_part(t, name.parent, tokens + i * bt, rest < bt ? rest : bt - 1) == COMING);
}

/* ---- what is done ---- */
static void read_done(struct kv_tier *t, const struct kv_disk_job *job)
{
    struct shelf *host = sched_host(t->sched);
    struct block_name name;
    name_of(job, &name);
    t->n_reading--;
    if (job->result) {
        t->damaged++;
        log_limited(LOG_WARN, "engine", "kv_disk: a block is passed over: %s",
                    err_text(job->result));
        shelf_forget(t->index, job->slot);
    } else {
        t->fetched++;
        (void)shelf_enter(host, job->place, &name); /* refused: it was spilled meanwhile */
    }
    shelf_unpin(t->index, job->slot);
    shelf_unpin(host, job->place);
}

static void write_done(struct kv_tier *t, const struct kv_disk_job *job)
{
    struct block_name name;
    name_of(job, &name);
    t->free_stage[t->n_free_stage++] = job->place;
    if (job->result) {
        t->failed++;
        if (++t->n_failures == FAILURES_MAX)
            log_error("engine", "kv_disk: %d writes in a row failed (%s): no more blocks are saved",
                      FAILURES_MAX, err_text(job->result));
    } else {
        t->saved++;
        t->n_failures = 0;
        (void)shelf_enter(t->index, job->slot,
                          &name); /* refused: saved twice, the first one stays */
    }
    shelf_unpin(t->index, job->slot);
}

bool kv_tier_poll(struct kv_tier *t)
{
    struct kv_disk_job job;
    bool any = false;
    while (kv_disk_done(t->disk, &job)) {
        any |= !job.write;
        if (job.write)
            write_done(t, &job);
        else
            read_done(t, &job);
    }
    return any;
}

void kv_tier_watch(struct kv_tier *t, void (*changed)(void *arg, bool entered, struct hash128 id),
                   void *arg)
{
    struct block_name name;
    for (shelf_slot i = 0; i < shelf_size(t->index); i++)
        if (shelf_name(t->index, i, &name)) changed(arg, true, name.id);
    shelf_watch(t->index, changed, arg);
}

void kv_tier_stats(const struct kv_tier *t, struct engine_stats *out)
{
    out->disk_blocks = shelf_size(t->index);
    out->disk_blocks_used = shelf_count(t->index);
    out->disk_saved_blocks = t->saved;
    out->disk_fetched_blocks = t->fetched;
    out->disk_damaged_blocks = t->damaged;
    out->disk_failed_writes = t->failed;
}

bool kv_tier_free(struct kv_tier *t, int wait_ms)
{
    if (!t) return true;
    uint64_t until = clock_ms() + (uint64_t)wait_ms;
    while (sched_has_fresh(t->sched) && t->n_failures < FAILURES_MAX && clock_ms() < until) {
        (void)kv_tier_poll(t);
        if (!kv_tier_save(t, STAGED_MAX) && !t->n_free_stage)
            (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    uint64_t now = clock_ms();
    bool gone = kv_disk_close(t->disk, now < until ? (int)(until - now) : 0);
    if (!gone) return false; /* and so is what it may still use */
    shelf_free(t->index);
    mem_free_huge(t->stage, STAGED_MAX * t->model->block_bytes);
    mem_free(t);
    return true;
}
