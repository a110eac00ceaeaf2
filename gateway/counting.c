/* counting.c - see counting.h. One batch is under way at a time; what happens meanwhile gathers in the next. */
#include "gateway/counting.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "gateway/exchange.h"
#include "gateway/tuning.h"

enum { FLUSH_MS = 1000, SEND_TIMEOUT_MS = 1000, BATCH_BYTES_MAX = 4 << 20, HITS_MAX = 256 };

struct hit { /* which arm was given which entry: feedback on the entry is the arm's */
    char entry[37], arm[TALLY_ARM_BYTES];
};

struct counting {
    struct gateway *gw;
    struct tally tally;
    struct hit hits[HITS_MAX];
    int n_hits;
    struct loop_timer *timer, *patience;
    char source[33], number[24];
    uint64_t batch_no;
    struct buf batch; /* arguments, each terminated; under way or to be sent again while n_args */
    size_t n_args;
    bool sending, closed;
    void (*done)(void *arg);
    void *done_arg;
};

static void let_go(struct counting *c)
{
    if (!c->closed || c->sending) return;
    buf_fini(&c->batch);
    mem_free(c);
}

static void tell_done(struct counting *c)
{
    void (*done)(void *arg) = c->done;
    c->done = NULL;
    if (done) done(c->done_arg);
}

static void send(struct counting *c);

static void on_sent(void *arg, enum err code, const struct redis_reply *reply)
{
    struct counting *c = arg;
    c->sending = false;
    if (code == OK && reply->kind == REDIS_ERROR)
        log_limited(LOG_WARN, "gateway", "counts were not taken by Redis: " STR_FMT,
                    STR_ARG(str_sub(reply->text, 0, 160)));
    if (code == OK) c->n_args = 0; /* taken, or never will be */
    if (!c->closed && c->done) {
        if (c->tally.n_rows || c->n_args)
            send(c);
        else
            tell_done(c);
    }
    let_go(c);
}

static void add(struct counting *c, const char *text)
{
    buf_add(&c->batch, text, strlen(text) + 1);
    c->n_args++;
}

static void make_batch(struct counting *c)
{
    char number[16];
    buf_clear(&c->batch);
    tally_take(&c->tally, &c->batch, &c->n_args);
    snprintf(number, sizeof number, "%d", c->n_hits);
    add(c, number);
    for (int i = 0; i < c->n_hits; i++) {
        add(c, c->hits[i].entry);
        add(c, c->hits[i].arm);
    }
    c->n_hits = 0;
    snprintf(c->number, sizeof c->number, "%" PRIu64, ++c->batch_no);
}

static void send(struct counting *c)
{
    char key[96];
    if (c->sending) return;
    if (!c->n_args && (c->tally.n_rows || c->n_hits)) make_batch(c);
    if (!c->n_args || !redis_usable(c->gw->redis)) return;
    struct str *argv = xcalloc(6 + c->n_args, sizeof *argv);
    argv[0] = STR("FCALL");
    argv[1] = STR("deja_count");
    argv[2] = STR("1");
    argv[3] = tuning_key(c->gw, key);
    argv[4] = str_of(c->source);
    argv[5] = str_of(c->number);
    const char *at = c->batch.p;
    for (size_t i = 0; i < c->n_args; i++, at += strlen(at) + 1)
        argv[6 + i] = str_of(at);
    c->sending = true;
    redis_command(c->gw->redis, (int)(6 + c->n_args), argv, SEND_TIMEOUT_MS, on_sent, c);
    mem_free(argv);
}

static void on_timer(void *arg)
{
    struct counting *c = arg;
    loop_timer_arm(c->timer, FLUSH_MS);
    send(c);
}

static void out_of_patience(void *arg)
{
    tell_done(arg);
}

struct counting *counting_open(struct gateway *gw)
{
    struct counting *c = xcalloc(1, sizeof *c);
    c->gw = gw;
    hash_hex((struct hash128){rng_entropy(), rng_entropy()}, c->source);
    buf_init(&c->batch, BATCH_BYTES_MAX);
    if (!gw->redis) return c;
    c->timer = loop_timer_new(gw->loop, on_timer, c);
    c->patience = loop_timer_new(gw->loop, out_of_patience, c);
    loop_timer_arm(c->timer, FLUSH_MS);
    return c;
}

void counting_close(struct counting *c)
{
    if (!c) return;
    loop_timer_free(c->timer);
    loop_timer_free(c->patience);
    c->closed = true;
    let_go(c);
}

void counting_flush(struct counting *c, int wait_ms, void (*done)(void *arg), void *arg)
{
    bool nothing = !c->n_args && !c->tally.n_rows && !c->n_hits;
    if (!c->gw->redis || nothing || !redis_usable(c->gw->redis)) {
        done(arg);
        return;
    }
    c->done = done;
    c->done_arg = arg;
    loop_timer_arm(c->patience, (uint64_t)wait_ms);
    send(c);
}

void counting_add(struct counting *c, const char *ns, const char *arm, enum tally_field field,
                  uint64_t n)
{
    if (c->gw->redis) tally_at(&c->tally, ns, arm)->counts[field] += n;
}

static void note_hit(struct counting *c, const struct exchange *x)
{
    if (!x->arm[0] || c->n_hits == HITS_MAX) return;
    struct hit *h = &c->hits[c->n_hits++];
    snprintf(h->entry, sizeof h->entry, "%s", x->out.entry);
    snprintf(h->arm, sizeof h->arm, "%s", x->arm);
}

static enum tally_field result_of(const struct exchange *x)
{
    static const struct {
        const char *name;
        enum tally_field field;
    } results[] = {{"exact", TALLY_EXACT}, {"semantic", TALLY_SEMANTIC},
                   {"stale", TALLY_STALE}, {"coalesced", TALLY_COALESCED},
                   {"miss", TALLY_MISS},   {"bypass", TALLY_BYPASS}};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (!strcmp(x->out.cache, results[i].name)) return results[i].field;
    return TALLY_BYPASS;
}

void counting_request(struct counting *c, const struct exchange *x, double seconds)
{
    if (!c || !c->gw->redis) return;
    struct tally_row *r = tally_at(&c->tally, x->controls.ns, x->arm);
    enum tally_field result = result_of(x);
    bool hit = result == TALLY_EXACT || result == TALLY_SEMANTIC || result == TALLY_STALE;
    r->counts[TALLY_REQUESTS]++;
    r->counts[result]++;
    bool followed = result == TALLY_COALESCED && x->followed;
    if (followed) r->counts[TALLY_FOLLOWED]++;
    if (x->status >= 500) r->counts[TALLY_ERRORS]++;
    if (result == TALLY_MISS && x->out.similarity >= 0) r->counts[TALLY_NEAR]++;
    if (result == TALLY_SEMANTIC || followed) note_hit(c, x);
    tally_latency(r, seconds * 1000);
    if (!x->usage.known) return;
    bool saved = hit || result == TALLY_COALESCED;
    r->counts[saved ? TALLY_PROMPT_SAVED : TALLY_PROMPT_ASKED] += (uint64_t)x->usage.prompt_tokens;
    r->counts[saved ? TALLY_COMPLETION_SAVED : TALLY_COMPLETION_ASKED] +=
        (uint64_t)x->usage.completion_tokens;
}
