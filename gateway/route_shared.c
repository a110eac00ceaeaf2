/* route_shared.c - see route_shared.h. One call in each direction a prompt; the beat tells for each space used lately which targets are
 * well, so that what was sent to one that is gone stops counting everywhere. */
#include "gateway/route_shared.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/router_internal.h"

enum {
    BLOCKS_MAX = 256, /* of a prompt: as pieces 64 KiB of text */
    TELL_MS = 1000,
    BEAT_MS = 5000,
    ALIVE_S = 30,
    POD_BLOCKS_MAX = 200000,
    SPACES_MAX = 32,
    HEX = 33
};
#define KNOWN_WELL 0.9f /* a target that holds this much is good enough without asking */

struct space {
    char key[128]; /* "" = free */
    uint64_t used_ms;
};
struct route_shared {
    struct gateway *gw;
    struct loop_timer *timer;
    char pods[PREFIX_PODS_MAX][HEX]; /* names of the targets: their URLs hashed */
    struct space spaces[SPACES_MAX];
    unsigned lost[PREFIX_PODS_MAX]; /* as upstream's when the others were told */
};
struct shared_job {
    struct exchange *x; /* NULL: the client has left */
    struct route_plan *plan;
    int chain;
};

/* --- names */
static void key_of(const struct route_shared *s, const struct route_plan *p, int chain,
                   char out[128])
{
    snprintf(out, 128, "{%s:%016llx:%d}:kv", s->gw->o.ns, (unsigned long long)p->model.lo,
             p->chains.chain[chain].naming.block_tokens);
}

static void use_space(struct route_shared *s, const char *key)
{
    struct space *oldest = &s->spaces[0];
    for (int i = 0; i < SPACES_MAX; i++) {
        struct space *sp = &s->spaces[i];
        if (!strcmp(sp->key, key)) {
            sp->used_ms = clock_ms();
            return;
        }
        if (sp->used_ms < oldest->used_ms) oldest = sp;
    }
    snprintf(oldest->key, sizeof oldest->key, "%s", key);
    oldest->used_ms = clock_ms();
}

/* The blocks as arguments from argv[n] on; texts live in hex. */
static int add_blocks(const struct route_plan *p, int chain, struct str *argv, int n,
                      char (*hex)[HEX])
{
    size_t blocks = p->chains.chain[chain].n_blocks;
    if (blocks > BLOCKS_MAX) blocks = BLOCKS_MAX;
    for (size_t i = 0; i < blocks; i++) {
        hash_hex(p->chains.chain[chain].blocks[i], hex[i]);
        argv[n++] = (struct str){hex[i], HEX - 1};
    }
    return n;
}

/* --- asking */
/* The chain of the targets that tell nothing; -1: there is none, or one of them holds enough as far as we know. */
static int chain_to_ask(const struct router *r, const struct route_plan *p)
{
    int chain = -1;
    for (int i = 0; i < r->n; i++) {
        int c = p->chains.of[i];
        if (router_told(r, i) || c < 0 || !p->chains.chain[c].n_blocks) continue;
        if (p->matched[i] >= KNOWN_WELL) return -1;
        chain = c;
    }
    return chain;
}

static void learn(struct router *r, const struct shared_job *j, const struct redis_reply *reply)
{
    struct route_plan *p = j->plan;
    for (size_t k = 0; k + 1 < reply->n_items; k += 2)
        for (int i = 0; i < r->n; i++) {
            int64_t n = reply->items[k + 1].integer;
            if (p->chains.of[i] != j->chain || router_told(r, i) || n <= 0 ||
                r->shared->lost[i] != upstreams_at(r->gw->upstreams, i)->lost ||
                (size_t)n > p->chains.chain[j->chain].n_blocks ||
                !str_eqz(reply->items[k].text, r->shared->pods[i]))
                continue;
            prefix_index_guess(r->index, i, p->chains.chain[j->chain].blocks, (size_t)n,
                               clock_ms());
        }
}

static void on_held(void *arg, enum err code, const struct redis_reply *reply)
{
    struct shared_job *j = arg;
    struct exchange *x = j->x;
    if (x) x->shared = NULL;
    if (x && code == OK && reply->kind == REDIS_ARRAY)
        learn(x->gw->router, j, reply);
    else if (x && code == OK && reply->kind == REDIS_ERROR)
        log_limited(LOG_WARN, "gateway", "deja_prefix_held: " STR_FMT,
                    STR_ARG(str_sub(reply->text, 0, 160)));
    route_plan_free(j->plan);
    mem_free(j);
    if (x) pipeline_resume(x);
}

enum step stage_shared(struct exchange *x)
{
    struct router *r = x->gw->router;
    if (!r->shared || !x->knobs.route_shared || !redis_usable(x->gw->redis)) return STEP_NEXT;
    struct route_plan *p = route_plan_new(x, x->model);
    int chain = p ? chain_to_ask(r, p) : -1;
    if (chain < 0) {
        route_plan_free(p);
        return STEP_NEXT;
    }
    char key[128], hex[BLOCKS_MAX][HEX];
    struct str argv[4 + BLOCKS_MAX] = {STR("FCALL_RO"), STR("deja_prefix_held"), STR("1")};
    struct shared_job *j = xcalloc(1, sizeof *j);
    *j = (struct shared_job){.x = x, .plan = p, .chain = chain};
    key_of(r->shared, p, chain, key);
    argv[3] = str_of(key);
    x->shared = j;
    redis_command(x->gw->redis, add_blocks(p, chain, argv, 4, hex), argv, 0, on_held, j);
    return STEP_WAIT;
}

void route_shared_abandon(struct exchange *x)
{
    if (!x->shared) return;
    x->shared->x = NULL;
    x->shared = NULL;
}

/* --- telling */
static void on_told(void *arg, enum err code, const struct redis_reply *reply)
{
    (void)arg;
    if (code == OK && reply->kind == REDIS_ERROR)
        log_limited(LOG_WARN, "gateway", "lua/prefix.lua: " STR_FMT,
                    STR_ARG(str_sub(reply->text, 0, 160)));
}

void route_shared_note(struct route_shared *s, const struct route_plan *p, int target)
{
    int chain = p->chains.of[target];
    char key[128], hex[BLOCKS_MAX][HEX], alive[12], most[12];
    struct str argv[7 + BLOCKS_MAX] = {STR("FCALL"), STR("deja_prefix_sent"), STR("1")};
    if (!s || router_told(p->router, target) || chain < 0 || !p->chains.chain[chain].n_blocks ||
        !redis_usable(s->gw->redis))
        return;
    key_of(s, p, chain, key);
    use_space(s, key);
    snprintf(alive, sizeof alive, "%d", ALIVE_S);
    snprintf(most, sizeof most, "%d", POD_BLOCKS_MAX);
    argv[3] = str_of(key);
    argv[4] = str_of(s->pods[target]);
    argv[5] = str_of(alive);
    argv[6] = str_of(most);
    redis_command(s->gw->redis, add_blocks(p, chain, argv, 7, hex), argv, TELL_MS, on_told, NULL);
}

/* Target i was away: what all gateways have sent it is void. */
static void tell_gone(struct route_shared *s, int i)
{
    for (int k = 0; k < SPACES_MAX; k++) {
        struct str argv[] = {STR("FCALL"), STR("deja_prefix_gone"), STR("1"),
                             str_of(s->spaces[k].key), str_of(s->pods[i])};
        if (s->spaces[k].key[0])
            redis_command(s->gw->redis, sizeof argv / sizeof *argv, argv, TELL_MS, on_told, NULL);
    }
    s->lost[i] = upstreams_at(s->gw->upstreams, i)->lost;
}

static void on_timer(void *arg)
{
    struct route_shared *s = arg;
    struct upstreams *u = s->gw->upstreams;
    char alive[12];
    struct str argv[5 + PREFIX_PODS_MAX] = {STR("FCALL"), STR("deja_prefix_alive"), STR("1")};
    int n = 5;
    uint64_t now = clock_ms();
    loop_timer_arm(s->timer, BEAT_MS);
    if (!redis_usable(s->gw->redis)) return;
    snprintf(alive, sizeof alive, "%d", ALIVE_S);
    argv[4] = str_of(alive);
    for (int i = 0; i < upstreams_count(u) && i < PREFIX_PODS_MAX; i++) {
        if (upstreams_at(u, i)->lost != s->lost[i]) tell_gone(s, i);
        if (!breaker_is_open(&upstreams_at(u, i)->breaker)) argv[n++] = str_of(s->pods[i]);
    }
    for (int i = 0; i < SPACES_MAX; i++) {
        if (!s->spaces[i].key[0] || now - s->spaces[i].used_ms > 3600000) continue;
        argv[3] = str_of(s->spaces[i].key);
        redis_command(s->gw->redis, n, argv, TELL_MS, on_told, NULL);
    }
}

/* --- life */
struct route_shared *route_shared_open(struct gateway *gw)
{
    struct route_shared *s = xcalloc(1, sizeof *s);
    s->gw = gw;
    for (int i = 0; i < upstreams_count(gw->upstreams) && i < PREFIX_PODS_MAX; i++)
        hash_hex(hash_bytes(0, str_of(upstreams_at(gw->upstreams, i)->url)), s->pods[i]);
    s->timer = loop_timer_new(gw->loop, on_timer, s);
    loop_timer_arm(s->timer, BEAT_MS);
    return s;
}

void route_shared_close(struct route_shared *s)
{
    if (!s) return;
    loop_timer_free(s->timer);
    mem_free(s);
}
