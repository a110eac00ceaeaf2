/* near.c - see near.h. */
#include "gateway/near.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "gateway/exchange.h"
#include "gateway/tuning.h"

enum { FLUSH_MS = 1000, SEND_TIMEOUT_MS = 1000, ROW_ARGS = 8, TEXT_BYTES_MAX = 1024 };

struct near {
    struct gateway *gw;
    struct loop_timer *timer;
    struct buf args; /* of the rows gathered, each terminated by a NUL byte */
    int n_rows;
    bool sending, closed;
    struct metric *noted, *dropped;
};

static void let_go(struct near *n)
{
    if (!n->closed || n->sending) return;
    buf_fini(&n->args);
    mem_free(n);
}

static void on_sent(void *arg, enum err code, const struct redis_reply *reply)
{
    struct near *n = arg;
    n->sending = false;
    if (code == OK && reply->kind == REDIS_ERROR)
        log_limited(LOG_WARN, "gateway", "near misses were not taken by Redis: " STR_FMT,
                    STR_ARG(str_sub(reply->text, 0, 160)));
    let_go(n);
}

static void on_timer(void *arg)
{
    struct near *n = arg;
    char key[96], count[12];
    struct str argv[5 + NEAR_BATCH_MAX * ROW_ARGS] = {STR("FCALL"), STR("deja_near"), STR("1")};
    loop_timer_arm(n->timer, FLUSH_MS);
    if (!n->n_rows || n->sending || !redis_usable(n->gw->redis)) return;
    snprintf(count, sizeof count, "%d", n->n_rows);
    argv[3] = tuning_key(n->gw, key);
    argv[4] = str_of(count);
    const char *at = n->args.p;
    int n_args = n->n_rows * ROW_ARGS;
    for (int i = 0; i < n_args; i++, at += strlen(at) + 1)
        argv[5 + i] = str_of(at);
    n->sending = true;
    metric_add(n->noted, n->n_rows);
    redis_command(n->gw->redis, 5 + n_args, argv, SEND_TIMEOUT_MS, on_sent, n);
    buf_clear(&n->args); /* what a lost reply may cost is a note, so nothing is sent again */
    n->n_rows = 0;
}

struct near *near_open(struct gateway *gw)
{
    struct near *n = xcalloc(1, sizeof *n);
    n->gw = gw;
    buf_init(&n->args, NEAR_BATCH_MAX * (TEXT_BYTES_MAX + 512));
    n->noted = metrics_get(gw->metrics, METRIC_COUNTER, "deja_near_misses_noted_total", "",
                           "near misses sent to the review list", 0, 0);
    n->dropped = metrics_get(gw->metrics, METRIC_COUNTER, "deja_near_misses_dropped_total", "",
                             "near misses beyond what is noted in a second", 0, 0);
    if (!gw->redis) return n;
    n->timer = loop_timer_new(gw->loop, on_timer, n);
    loop_timer_arm(n->timer, FLUSH_MS);
    return n;
}

void near_close(struct near *n)
{
    if (!n) return;
    loop_timer_free(n->timer);
    n->closed = true;
    let_go(n);
}

static void add(struct near *n, struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        buf_char(&n->args, s.p[i] ? s.p[i] : ' ');
    buf_char(&n->args, 0);
}

static void add_number(struct near *n, double v)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", v);
    add(n, str_of(text));
}

static void add_row(struct near *n, const struct exchange *x, const struct cache_verdict *v)
{
    char hash[33];
    if (n->n_rows == NEAR_BATCH_MAX) {
        metric_add(n->dropped, 1);
        return;
    }
    bool text = x->knobs.near_miss_text && x->key.user_text.n <= TEXT_BYTES_MAX;
    hash_hex(x->key.exact, hash);
    add(n, str_of(x->controls.ns));
    add_number(n, (double)x->knobs.near_misses);
    add(n, str_of(v->entry_id));
    add(n, str_of(hash));
    add(n, text ? x->key.user_text : STR(""));
    add_number(n, v->similarity);
    add_number(n, v->threshold);
    add(n, str_of(v->reason));
    if (buf_failed(&n->args)) { /* cannot be: the bound is that of the rows */
        buf_clear(&n->args);
        n->n_rows = 0;
        return;
    }
    n->n_rows++;
}

void near_note(struct near *n, const struct exchange *x, const struct cache_found *f)
{
    bool wanted = n->gw->redis && f->n_near && x->knobs.near_misses > 0 && !x->controls.no_store;
    if (!wanted) return;
    for (size_t i = 0; i < f->n_near && i < (size_t)x->knobs.near_miss_top; i++)
        add_row(n, x, &f->near[i]);
}
