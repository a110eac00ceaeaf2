/* vllm_feed.c - see vllm_feed.h. Live batches that come while a replay runs wait for it, so that nothing removed is brought back. */
#include "gateway/vllm_feed.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/zmtp_link.h"

enum { REPLAY_MS = 5000, WAITING_BYTES_MAX = 16 << 20 };

struct vllm_feed {
    struct vllm_feed_options o;
    struct zmtp_link *events, *replay; /* replay NULL: none */
    struct loop_timer *timer;          /* the replay's end at the latest */
    struct kv_names *names;
    struct prefix_origin origin;
    uint64_t incarnation, batches;
    uint64_t next; /* the number expected */
    bool begun;    /* next means something */
    bool live, replaying;
    struct buf waiting; /* live batches during a replay: number, length, bytes */
};

/* All is forgotten, and what comes now is taken as it is. */
static void begin(struct vllm_feed *f)
{
    prefix_index_join(f->o.index, f->o.pod, ++f->incarnation, true);
    kv_names_begin(f->names, f->incarnation);
}

static void on_event(void *arg, const struct kv_event *ev)
{
    kv_names_event(((struct vllm_feed *)arg)->names, ev);
}

static void apply(struct vllm_feed *f, uint64_t number, struct str payload)
{
    f->begun = true;
    f->next = number + 1;
    f->batches++;
    if (kv_batch_read(payload, on_event, f) == OK) return;
    log_limited(LOG_WARN, "gateway",
                "a KV event batch of %s cannot be read: its blocks are forgotten", f->o.url);
    begin(f);
}

/* --- replay */
static bool ask_replay(struct vllm_feed *f, uint64_t from)
{
    char number[8];
    if (!f->replay) return false;
    for (int i = 0; i < 8; i++)
        number[i] = (char)(from >> (8 * (7 - i)));
    struct str parts[2] = {{"", 0}, {number, sizeof number}};
    f->replaying = zmtp_link_send(f->replay, parts, 2);
    if (f->replaying) loop_timer_arm(f->timer, REPLAY_MS);
    return f->replaying;
}

static uint64_t number_of(struct str s)
{
    uint64_t v = 0;
    for (size_t i = 0; i < 8 && i < s.n; i++)
        v = v << 8 | (uint8_t)s.p[i];
    return v;
}

/* The replay is over: what came meanwhile follows, from where it ended. */
static void replay_over(struct vllm_feed *f)
{
    struct buf held = f->waiting;
    bool lost = buf_failed(&held);
    f->replaying = false;
    loop_timer_stop(f->timer);
    buf_init(&f->waiting, WAITING_BYTES_MAX);
    for (struct str rest = buf_view(&held); !lost && rest.n >= 16;) {
        uint64_t number = number_of(str_sub(rest, 0, 8)), n = number_of(str_sub(rest, 8, 8));
        if (!f->begun || number >= f->next) {
            if (f->begun && number > f->next) begin(f); /* it could not be filled */
            apply(f, number, str_sub(rest, 16, (size_t)n));
        }
        rest = str_sub(rest, 16 + (size_t)n, rest.n);
    }
    buf_fini(&held);
    if (lost) begin(f), f->begun = false;
}

static void on_replay_timer(void *arg)
{
    replay_over(arg);
}

/* [empty,] [topic,] number, batch; the end has the number -1. */
static void on_replay(void *arg, const struct str *parts, size_t n)
{
    struct vllm_feed *f = arg;
    if (!f->replaying || n < 2 || parts[n - 2].n != 8) return;
    uint64_t number = number_of(parts[n - 2]);
    if (number == UINT64_MAX)
        replay_over(f);
    else if (!f->begun || number >= f->next) {
        if (f->begun && number > f->next) begin(f); /* it has forgotten the beginning */
        apply(f, number, parts[n - 1]);
    }
}

/* --- live */
static void wait_for_replay(struct vllm_feed *f, uint64_t number, struct str payload)
{
    char head[16];
    for (int i = 0; i < 8; i++) {
        head[i] = (char)(number >> (8 * (7 - i)));
        head[8 + i] = (char)((uint64_t)payload.n >> (8 * (7 - i)));
    }
    buf_add(&f->waiting, head, sizeof head);
    buf_str(&f->waiting, payload);
}

static void take(struct vllm_feed *f, uint64_t number, struct str payload)
{
    if (f->replaying) {
        wait_for_replay(f, number, payload);
        return;
    }
    if (!f->begun && number > 0 && ask_replay(f, 0)) { /* it ran before we came */
        wait_for_replay(f, number, payload);
        return;
    }
    if (f->begun && number > f->next && ask_replay(f, f->next)) {
        wait_for_replay(f, number, payload);
        return;
    }
    if (f->begun && number != f->next) { /* a gap, or another run */
        log_info("gateway", "KV events of %s: number %llu after %llu, its blocks are forgotten",
                 f->o.url, (unsigned long long)number, (unsigned long long)f->next - 1);
        begin(f);
    }
    apply(f, number, payload);
}

/* topic, number, batch */
static void on_message(void *arg, const struct str *parts, size_t n)
{
    if (n >= 2 && parts[n - 2].n == 8) take(arg, number_of(parts[n - 2]), parts[n - 1]);
}

static void on_open(void *arg)
{
    struct vllm_feed *f = arg;
    f->live = true;
    f->begun = false;
    begin(f);
    log_info("gateway", "KV events of %s are coming", f->o.url);
}

static void on_lost(void *arg, const char *why)
{
    struct vllm_feed *f = arg;
    if (!f->live) return;
    log_info("gateway", "KV events of %s ended: %s", f->o.url, why);
    f->live = f->begun = f->replaying = false;
    loop_timer_stop(f->timer);
    buf_clear(&f->waiting);
    begin(f); /* drops what was held */
    prefix_index_leave(f->o.index, f->o.pod);
}

static void on_replay_open(void *arg)
{
    (void)arg;
}
static void on_replay_lost(void *arg, const char *why)
{
    struct vllm_feed *f = arg;
    (void)why;
    if (f->replaying) replay_over(f);
}

/* --- life */
enum err vllm_feed_open(struct vllm_feed **out, const struct vllm_feed_options *o, struct errmsg *e)
{
    struct vllm_feed *f = xcalloc(1, sizeof *f);
    f->o = *o;
    f->origin = (struct prefix_origin){.seed = 0x766c6c6d, .root = hash_bytes(1, str_of("text"))};
    f->names = kv_names_new(o->index, o->pod, o->blocks_max, &f->origin);
    f->timer = loop_timer_new(o->loop, on_replay_timer, f);
    buf_init(&f->waiting, WAITING_BYTES_MAX);
    struct zmtp_link_handler live = {on_open, on_message, on_lost, f},
                             replay = {on_replay_open, on_replay, on_replay_lost, f};
    enum err code = OK;
    if (o->replay[0])
        code = zmtp_link_open(&f->replay, o->loop, ZMTP_DEALER, o->replay, &replay, e);
    if (code == OK) code = zmtp_link_open(&f->events, o->loop, ZMTP_SUB, o->events, &live, e);
    if (code != OK) {
        vllm_feed_close(f);
        f = NULL;
    }
    *out = f;
    return code;
}

void vllm_feed_close(struct vllm_feed *f)
{
    if (!f) return;
    zmtp_link_close(f->events);
    zmtp_link_close(f->replay);
    loop_timer_free(f->timer);
    kv_names_free(f->names);
    buf_fini(&f->waiting);
    mem_free(f);
}

bool vllm_feed_live(const struct vllm_feed *f)
{
    return f->live;
}
int vllm_feed_block_tokens(const struct vllm_feed *f)
{
    return kv_names_block_tokens(f->names);
}
struct prefix_origin vllm_feed_origin(const struct vllm_feed *f)
{
    return f->origin;
}
uint64_t vllm_feed_batches(const struct vllm_feed *f)
{
    return f->batches;
}
