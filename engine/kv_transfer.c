/* kv_transfer.c - see kv_transfer.h. An export looks each block up by its name, in the pool and in host memory: the request that computes
 * it may be preempted or over meanwhile, and what is found nowhere then ends the export early. */
#include "engine/kv_transfer.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { EXPORT_US = 1000, IMPORTS_MAX = 32 };

struct kv_export {
    void (*on_block)(void *arg, int index, const struct block_name *name, void *bytes);
    void (*on_exported)(void *arg);
    int next, n_blocks;
    int n_out;             /* handed out and not given back; under the engine's lock */
    struct hash128 parent; /* of the next one */
    bool begun, over;
};

struct kv_import {
    struct kv_import *next;
    struct hash128 id, parent;
    void *bytes;
    int32_t tokens[PREFIX_BLOCK_TOKENS_MAX];
};

/* --- out */
struct kv_export *kv_export_new(const struct engine_submit_options *o)
{
    if (!o->on_block) return NULL;
    struct kv_export *x = xcalloc(1, sizeof *x);
    x->on_block = o->on_block;
    x->on_exported = o->on_exported;
    x->next = o->export_from;
    return x;
}

bool kv_export_is_over(const struct request *r)
{
    return !r->export || r->export->over;
}

void kv_export_end(struct request *r)
{
    if (kv_export_is_over(r)) return;
    r->export->over = true;
    r->export->on_exported(r->arg);
}

static void begin(struct engine *g, const struct request *r)
{
    struct kv_export *x = r->export;
    const struct prefix_cache *cache = sched_cache(g->sched);
    const int32_t *tokens = r->choices[0].tokens;
    int bt = g->size.block_size;
    x->n_blocks = r->n_prompt / bt;
    x->parent = prefix_cache_start(cache, &r->scope);
    for (int i = 0; i < x->next && i < x->n_blocks; i++)
        x->parent = prefix_cache_chain(cache, x->parent, tokens + (size_t)i * (size_t)bt);
    x->begun = true;
}

/* A copy of the block called name. NULL: it is nowhere (yet), or there is no memory. */
static void *copy_block(struct engine *g, const struct block_name *name)
{
    size_t n = g->model.block_bytes;
    struct shelf *host = sched_host(g->sched);
    kv_block b = prefix_cache_find(sched_cache(g->sched), name->id, name->parent, name->tokens);
    shelf_slot slot = b == KV_NO_BLOCK && host ? shelf_find(host, name) : SHELF_NO_SLOT;
    if (b == KV_NO_BLOCK && slot == SHELF_NO_SLOT) return NULL;
    void *copy = try_malloc(n);
    if (copy && b != KV_NO_BLOCK) g->model.kv_read(g->model.arg, b, copy);
    if (copy && b == KV_NO_BLOCK) memcpy(copy, g->host + (size_t)slot * n, n);
    return copy;
}

static bool is_lost(struct engine *g)
{
    return g->model.failure && g->model.failure(g->model.arg);
}

/* False: the next block cannot be had now. */
static bool export_one(struct engine *g, struct request *r)
{
    struct kv_export *x = r->export;
    int bt = g->size.block_size;
    struct block_name name = {.parent = x->parent,
                              .tokens = r->choices[0].tokens + (size_t)x->next * (size_t)bt};
    name.id = prefix_cache_chain(sched_cache(g->sched), name.parent, name.tokens);
    void *bytes = copy_block(g, &name);
    if (!bytes || is_lost(g)) {
        mem_free(bytes);
        return false;
    }
    pthread_mutex_lock(&g->lock); /* before it can come back */
    x->n_out++;
    g->n_exported++;
    pthread_mutex_unlock(&g->lock);
    x->parent = name.id;
    g->count.exported_blocks++;
    x->on_block(r->arg, x->next++, &name, bytes);
    return true;
}

static int room_of(struct engine *g, const struct request *r)
{
    pthread_mutex_lock(&g->lock);
    int n_out = r->export->n_out, left = ENGINE_EXPORTED_MAX - g->n_exported;
    pthread_mutex_unlock(&g->lock);
    if (left < 1) left = !n_out; /* those who take nothing stop nobody */
    return left < ENGINE_EXPORT_WINDOW - n_out ? left : ENGINE_EXPORT_WINDOW - n_out;
}

/* Returns how many blocks were handed out. */
static int export_some(struct engine *g, struct request *r, int most)
{
    struct kv_export *x = r->export;
    int n = 0, room = room_of(g, r);
    if (!x->begun) begin(g, r);
    bool computing = r->n_live > 0, more = true;
    while (n < room && n < most && x->next < x->n_blocks && (more = export_one(g, r)))
        n++;
    if (x->next >= x->n_blocks || (!computing && !more)) kv_export_end(r);
    return n;
}

bool kv_transfer_export(struct engine *g)
{
    double us = g->move.us;
    int left = us > 0 ? (int)(EXPORT_US / us) : 1;
    bool any = false;
    for (struct request *r = g->live; r; r = r->next) {
        if (kv_export_is_over(r) || r->held) continue;
        int n = export_some(g, r, left > 0 ? left : 1); /* each gets on, however many there are */
        left -= n;
        any |= n > 0 || r->export->over;
    }
    return any;
}

void engine_export_more(struct engine *g, uint64_t id, int n)
{
    pthread_mutex_lock(&g->lock);
    ASSERT(n <= g->n_exported);
    g->n_exported -= n;
    g->export_room = true; /* others may have waited for it */
    for (int list = 0; list < 2; list++)
        for (struct request *r = list ? g->inbox : g->live; r; r = r->next)
            if (r->id == id && r->export) r->export->n_out -= n;
    pthread_cond_signal(&g->wake);
    pthread_mutex_unlock(&g->lock);
}

/* --- in */
bool engine_can_import(const struct engine *g)
{
    return g->size.n_host > 0 && g->size.prefix_caching;
}

bool engine_import(struct engine *g, const struct block_name *name, void *bytes)
{
    struct kv_import *in = xcalloc(1, sizeof *in);
    in->id = name->id;
    in->parent = name->parent;
    in->bytes = bytes;
    memcpy(in->tokens, name->tokens, (size_t)g->size.block_size * sizeof *in->tokens);
    pthread_mutex_lock(&g->lock);
    *(g->imports ? &g->imports_last->next : &g->imports) = in;
    g->imports_last = in;
    g->imports_full = ++g->n_imports >= IMPORTS_MAX;
    bool room = !g->imports_full;
    pthread_cond_signal(&g->wake);
    pthread_mutex_unlock(&g->lock);
    return room;
}

static struct kv_import *take_imports(struct engine *g, bool *was_full)
{
    pthread_mutex_lock(&g->lock);
    struct kv_import *first = g->imports;
    *was_full = g->imports_full;
    g->imports = g->imports_last = NULL;
    g->n_imports = 0;
    g->imports_full = false;
    pthread_mutex_unlock(&g->lock);
    return first;
}

static void import_one(struct engine *g, const struct kv_import *in)
{
    struct shelf *host = sched_host(g->sched);
    struct block_name name = {in->id, in->parent, in->tokens};
    const struct prefix_cache *cache = sched_cache(g->sched);
    if (prefix_cache_find(cache, in->id, in->parent, in->tokens) != KV_NO_BLOCK) return;
    shelf_slot slot = shelf_find(host, &name);
    if (slot != SHELF_NO_SLOT) {
        shelf_touch(host, slot);
        return;
    }
    if ((slot = shelf_take(host)) == SHELF_NO_SLOT) return; /* the disk holds them all */
    memcpy(g->host + (size_t)slot * g->model.block_bytes, in->bytes, g->model.block_bytes);
    (void)shelf_enter(host, slot, &name);
    shelf_unpin(host, slot);
    g->count.imported_blocks++;
}

void kv_transfer_import(struct engine *g)
{
    bool was_full;
    struct kv_import *in = take_imports(g, &was_full);
    for (struct kv_import *next; in; in = next) {
        next = in->next;
        import_one(g, in);
        mem_free(in->bytes);
        mem_free(in);
    }
    if (was_full && g->size.on_import_room) g->size.on_import_room(g->size.on_step_arg);
}

void kv_imports_free(struct engine *g)
{
    for (struct kv_import *next; g->imports; g->imports = next) {
        next = g->imports->next;
        mem_free(g->imports->bytes);
        mem_free(g->imports);
    }
}
