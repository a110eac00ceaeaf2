/* secret.c - see secret.h. The wait lives as long as the gateway, because the Redis link calls it at every connection. */
#include "gateway/secret.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

enum { ASK_AGAIN_MS = 250, ASKS_MAX = 20 };

struct secret_wait {
    struct gateway *gw;
    void (*ready)(void *arg, uint64_t secret);
    void *arg;
    struct loop_timer *timer;
    uint64_t fallback;
    int commands, asks;
    bool told;
};

static void tell(struct secret_wait *w, uint64_t secret)
{
    if (w->told) return;
    w->told = true;
    loop_timer_stop(w->timer);
    w->ready(w->arg, secret);
}

uint64_t secret_of_text(struct str text)
{
    return hash_bytes(0, text).lo | 1;
}

static void on_get(void *arg, enum err code, const struct redis_reply *reply)
{
    struct secret_wait *w = arg;
    w->commands--;
    if (code == OK && reply->kind == REDIS_STRING && reply->text.n)
        tell(w, secret_of_text(reply->text));
}

static void ask(void *arg)
{
    struct secret_wait *w = arg;
    char made[40], key[128];
    if (w->told) return;
    w->asks++;
    snprintf(made, sizeof made, "%016llx%016llx", (unsigned long long)rng_entropy(),
             (unsigned long long)rng_entropy());
    snprintf(key, sizeof key, "deja:{%s}:secret", w->gw->o.ns);
    w->commands++;
    redis_commandf(w->gw->redis, 500, NULL, NULL, "SET %s %s NX", key, made);
    redis_commandf(w->gw->redis, 500, on_get, w, "GET %s", key);
}

static void on_timer(void *arg)
{
    struct secret_wait *w = arg;
    bool usable = !w->fallback && redis_usable(w->gw->redis);
    if (w->fallback) {
        tell(w, w->fallback);
    } else if (w->commands) {
        loop_timer_arm(w->timer, 50);
    } else if (usable &&
               w->asks < ASKS_MAX) { /* it is loading, or a replica, or full, or forbids */
        ask(w);
        loop_timer_arm(w->timer, ASK_AGAIN_MS);
    } else {
        log_warn("gateway", "Redis gives no hash secret: going on with an own one, so answers "
                            "stored by this process are not shared");
        tell(w, rng_entropy() | 1);
    }
}

void secret_free(struct secret_wait *w)
{
    if (!w) return;
    loop_timer_free(w->timer);
    mem_free(w);
}

struct secret_wait *secret_get(struct gateway *gw, int wait_ms,
                               void (*ready)(void *arg, uint64_t secret), void *arg)
{
    struct secret_wait *w = xcalloc(1, sizeof *w);
    w->gw = gw;
    w->ready = ready;
    w->arg = arg;
    w->timer = loop_timer_new(gw->loop, on_timer, w);
    if (gw->o.cache_secret[0])
        w->fallback = secret_of_text(str_of(gw->o.cache_secret));
    else if (!gw->redis)
        w->fallback = rng_entropy() | 1;
    loop_timer_arm(w->timer, w->fallback ? 0 : (uint64_t)wait_ms);
    if (!w->fallback) redis_on_connect(gw->redis, ask, w);
    return w;
}
