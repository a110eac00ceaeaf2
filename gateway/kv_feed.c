/* kv_feed.c - see kv_feed.h. Three requests one after the other: /deja/prefix, /deja/tokenizer (unless somebody has it), then the stream
 * /deja/kv-events until it breaks. */
#include "gateway/kv_feed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sse.h"

enum {
    AGAIN_MS = 250,
    AGAIN_MAX_MS = 4000,
    STRANGER_MS = 15000,
    QUIET_MAX_MS = 4000, /* the engine says something every second */
    TOKENIZER_BYTES_MAX = 256 << 20,
    FRAME_MAX = 1 << 20
};
enum asking { ASK_PREFIX, ASK_TOKENIZER, ASK_EVENTS };

struct making {        /* of a tokenizer, on a worker */
    struct kv_feed *f; /* NULL: closed meanwhile */
    struct buf bytes;
    bool tools_in_words;
    struct prompt_reader *reader;
    struct errmsg e;
};

struct kv_feed {
    struct kv_feed_options o;
    struct loop_timer *timer;
    struct http_call *call;
    enum asking asking;
    int status;
    struct buf body;
    struct sse_reader *sse;
    struct kv_naming naming;
    bool named, live, anew; /* anew: the stream is being dropped */
    struct making *making;
    struct prompt_reader *reader; /* of naming.root, or NULL */
    struct hash128 reader_root;
    uint64_t number, changes;
    int failures; /* in a row */
    char why[160];
};

/* --- reading */
static enum err hex64(struct str s, uint64_t *out)
{
    struct hash128 h;
    char wide[33];
    if (s.n != 16) return ERR_INVALID;
    snprintf(wide, sizeof wide, "0000000000000000" STR_FMT, STR_ARG(s));
    enum err code = hash_from_hex(str_of(wide), &h);
    if (code == OK) *out = h.lo;
    return code;
}

static enum err read_models(struct kv_naming *out, const json_t *models)
{
    size_t i;
    json_t *m;
    json_array_foreach(models, i, m)
    {
        struct str id = json_member_str(m, "id");
        if (out->n_models == KV_FEED_MODELS_MAX) break;
        if (!id.n || id.n >= sizeof out->models[0].id ||
            hash_from_hex(json_member_str(m, "adapter"), &out->models[out->n_models].adapter) != OK)
            return ERR_INVALID;
        memcpy(out->models[out->n_models++].id, id.p, id.n);
    }
    return out->n_models ? OK : ERR_INVALID;
}

static enum kv_role role_of(struct str name)
{
    return str_eqz(name, "prefill")  ? KV_ROLE_PREFILL
           : str_eqz(name, "decode") ? KV_ROLE_DECODE
                                     : KV_ROLE_BOTH; /* also of an engine that knows no roles */
}

enum err kv_naming_read(struct kv_naming *out, struct str json, struct errmsg *e)
{
    json_t *doc = NULL;
    *out = (struct kv_naming){0};
    if (json_parse(json, 0, &doc, e) != OK) return ERR_INVALID;
    json_int_t block = json_integer_value(json_object_get(doc, "block_tokens"));
    bool good = hex64(json_member_str(doc, "incarnation"), &out->incarnation) == OK &&
                hex64(json_member_str(doc, "seed"), &out->seed) == OK &&
                hash_from_hex(json_member_str(doc, "root"), &out->root) == OK && block >= 1 &&
                block <= PREFIX_BLOCK_TOKENS_MAX &&
                read_models(out, json_object_get(doc, "models")) == OK;
    out->block_tokens = (int)block;
    out->tools_in_words = json_is_true(json_object_get(doc, "tools_in_words"));
    out->salted = json_is_true(json_object_get(doc, "salted"));
    out->role = role_of(json_member_str(doc, "role"));
    str_copy(out->kv_format, sizeof out->kv_format, json_member_str(doc, "kv_format"));
    json_decref(doc);
    return good ? OK : err_set(e, ERR_INVALID, "/deja/prefix: a member is missing or malformed");
}

static enum err apply_change(struct prefix_index *x, int pod, uint64_t incarnation, struct str c)
{
    struct hash128 block;
    if (c.n != 34 || (c.p[0] != '+' && c.p[0] != '-') || c.p[1] < '0' ||
        c.p[1] >= '0' + PREFIX_TIERS || hash_from_hex(str_sub(c, 2, 32), &block) != OK)
        return ERR_INVALID;
    enum prefix_tier tier = (enum prefix_tier)(c.p[1] - '0');
    bool joined = c.p[0] == '+' ? prefix_index_store(x, pod, incarnation, tier, block)
                                : prefix_index_remove(x, pod, incarnation, tier, block);
    return joined ? OK : ERR_INVALID;
}

enum err kv_frame_apply(struct prefix_index *x, int pod, uint64_t incarnation, struct str json,
                        uint64_t *number, size_t *n_changes)
{
    json_t *doc = NULL, *change;
    size_t i;
    if (json_parse(json, 0, &doc, NULL) != OK) return ERR_INVALID;
    const json_t *n = json_object_get(doc, "number"), *changes = json_object_get(doc, "changes");
    enum err code = json_is_integer(n) && json_integer_value(n) >= 0 && json_is_array(changes)
                        ? OK
                        : ERR_INVALID;
    if (code == OK && json_is_true(json_object_get(doc, "reset"))) prefix_index_clear(x, pod);
    *n_changes = json_array_size(changes);
    if (code == OK) json_array_foreach(changes, i, change)
        {
            code = apply_change(x, pod, incarnation, json_str(change));
            if (code != OK) break;
        }
    if (code == OK && json_integer_value(n)) *number = (uint64_t)json_integer_value(n);
    json_decref(doc);
    return code;
}

/* --- asking */
static void ask(struct kv_feed *f, enum asking what);

static void again(struct kv_feed *f, uint64_t ms)
{
    loop_timer_arm(f->timer, ms);
}

/* From scratch after a pause; what was held is not trusted any more. */
static void lost(struct kv_feed *f, const char *why, bool stranger)
{
    if (f->live) {
        prefix_index_leave(f->o.index, f->o.pod);
        log_info("gateway", "KV events of %s ended: %s", f->o.url, why);
    } else if (strcmp(f->why, why) != 0) {
        log_info("gateway", "KV events of %s: %s", f->o.url, why);
    }
    snprintf(f->why, sizeof f->why, "%s", why);
    f->live = false;
    int shift = f->failures < 4 ? f->failures++ : 4;
    uint64_t ms = (uint64_t)AGAIN_MS << shift;
    again(f, stranger ? STRANGER_MS : ms < AGAIN_MAX_MS ? ms : AGAIN_MAX_MS);
}

static bool on_event(void *arg, const struct sse_event *ev)
{
    struct kv_feed *f = arg;
    size_t n;
    if (str_eqz(ev->event, "hello")) {
        json_t *doc = NULL;
        uint64_t incarnation = 0;
        bool same = json_parse(ev->data, 0, &doc, NULL) == OK &&
                    hex64(json_member_str(doc, "incarnation"), &incarnation) == OK &&
                    incarnation == f->naming.incarnation;
        json_decref(doc);
        if (!same) return false; /* it was started anew between two questions */
        prefix_index_join(f->o.index, f->o.pod, incarnation, true);
        f->live = true;
        f->failures = 0;
        f->why[0] = 0;
        log_info("gateway", "KV events of %s are coming", f->o.url);
        return true;
    }
    if (!str_eqz(ev->event, "kv")) return true;
    if (!f->live ||
        kv_frame_apply(f->o.index, f->o.pod, f->naming.incarnation, ev->data, &f->number, &n) != OK)
        return false;
    f->changes += n;
    return true;
}

static void on_head(void *arg, const struct http_reply_head *head)
{
    struct kv_feed *f = arg;
    f->status = head->status;
    buf_clear(&f->body);
}

static void on_body(void *arg, struct str bytes)
{
    struct kv_feed *f = arg;
    if (f->status != 200 || f->anew) return;
    if (f->asking != ASK_EVENTS)
        buf_str(&f->body, bytes);
    else if (sse_reader_feed(f->sse, bytes, on_event, f) !=
             OK) { /* nonsense, or another incarnation */
        f->anew = true;
        http_call_cancel(f->call);
    }
}

static void have_naming(struct kv_feed *f)
{
    struct errmsg e = {0};
    if (kv_naming_read(&f->naming, buf_view(&f->body), &e) != OK) {
        f->named = false;
        lost(f, e.text, true);
        return;
    }
    f->named = true;
    if (f->o.named) f->o.named(f->o.arg, f->o.pod);
    if (f->reader && hash_eq(f->reader_root, f->naming.root)) return ask(f, ASK_EVENTS);
    prompt_reader_unref(f->reader);
    f->reader = f->o.known_reader ? f->o.known_reader(f->o.arg, f->naming.root) : NULL;
    if (f->reader) f->reader = prompt_reader_ref(f->reader);
    f->reader_root = f->naming.root;
    ask(f, f->reader ? ASK_EVENTS : ASK_TOKENIZER);
}

static void make_reader(void *arg)
{
    struct making *m = arg;
    if (prompt_reader_new(&m->reader, buf_view(&m->bytes), m->tools_in_words, &m->e) != OK)
        m->reader = NULL;
}

static void reader_made(void *arg, bool cancelled)
{
    struct making *m = arg;
    struct kv_feed *f = m->f;
    (void)cancelled;
    if (f) {
        struct prompt_reader *same =
            f->o.known_reader ? f->o.known_reader(f->o.arg, f->naming.root) : NULL;
        f->making = NULL;
        f->reader = m->reader;
        if (same) { /* one for all engines of a model: prompts are read once */
            prompt_reader_unref(m->reader);
            f->reader = prompt_reader_ref(same);
        }
        if (f->reader)
            ask(f, ASK_EVENTS);
        else
            lost(f, m->e.text[0] ? m->e.text : "its tokenizer was not made", true);
    } else {
        prompt_reader_unref(m->reader);
    }
    buf_fini(&m->bytes);
    mem_free(m);
}

static void have_tokenizer(struct kv_feed *f)
{
    struct making *m = xcalloc(1, sizeof *m);
    *m = (struct making){.f = f, .bytes = f->body, .tools_in_words = f->naming.tools_in_words};
    buf_init(&f->body, TOKENIZER_BYTES_MAX);
    f->making = m;
    if (workers_submit(f->o.workers, f->o.loop, make_reader, reader_made, m) == OK) return;
    f->making = NULL;
    buf_fini(&m->bytes);
    mem_free(m);
    lost(f, "the workers are busy", false);
}

static void on_done(void *arg, enum err code, const struct errmsg *e)
{
    struct kv_feed *f = arg;
    bool anew = f->anew;
    f->call = NULL;
    f->anew = false;
    if (code == ERR_CANCELLED && !anew) return; /* the program ends */
    if (anew)
        lost(f, "began anew", false);
    else if (code != OK)
        lost(f, e->text, false);
    else if (f->status != 200)
        lost(f, f->status == 403 ? "refused: gateway_key differs" : "it tells none",
             f->status != 503);
    else if (buf_failed(&f->body))
        lost(f, "too long", true);
    else if (f->asking == ASK_PREFIX)
        have_naming(f);
    else if (f->asking == ASK_TOKENIZER)
        have_tokenizer(f);
    else
        lost(f, "the stream ended", false);
}

static void ask(struct kv_feed *f, enum asking what)
{
    static const char *const paths[] = {"/deja/prefix", "/deja/tokenizer", "/deja/kv-events"};
    struct http_header h = {STR("x-deja-key"), str_of(f->o.key)};
    f->asking = what;
    f->status = 0;
    if (what == ASK_EVENTS) {
        sse_reader_free(f->sse);
        f->sse = sse_reader_new(FRAME_MAX);
    }
    struct http_call_options o = {.origin = &f->o.origin,
                                  .method = "GET",
                                  .path = paths[what],
                                  .headers = &h,
                                  .n_headers = f->o.key[0] ? 1 : 0,
                                  .connect_timeout_ms = 1000,
                                  .first_byte_timeout_ms = 5000,
                                  .idle_timeout_ms = QUIET_MAX_MS,
                                  .body_max = what == ASK_EVENTS ? SIZE_MAX : TOKENIZER_BYTES_MAX,
                                  .retry_stale = true};
    struct http_call_handler handler = {on_head, on_body, on_done, f};
    f->call = http_call(f->o.client, &o, &handler);
}

static void on_timer(void *arg)
{
    ask(arg, ASK_PREFIX);
}

/* --- life */
struct kv_feed *kv_feed_open(const struct kv_feed_options *o)
{
    struct kv_feed *f = xcalloc(1, sizeof *f);
    f->o = *o;
    buf_init(&f->body, TOKENIZER_BYTES_MAX);
    f->timer = loop_timer_new(o->loop, on_timer, f);
    again(f, 0);
    return f;
}

void kv_feed_close(struct kv_feed *f)
{
    if (!f) return;
    ASSERT(!f->call); /* the HTTP client is freed first, which ends its calls */
    if (f->making) f->making->f = NULL;
    if (f->live) prefix_index_leave(f->o.index, f->o.pod);
    loop_timer_free(f->timer);
    sse_reader_free(f->sse);
    prompt_reader_unref(f->reader);
    buf_fini(&f->body);
    mem_free(f);
}

bool kv_feed_live(const struct kv_feed *f)
{
    return f->live;
}

const struct kv_naming *kv_feed_naming(const struct kv_feed *f)
{
    return f->named ? &f->naming : NULL;
}

struct prompt_reader *kv_feed_reader(const struct kv_feed *f)
{
    return f->reader;
}

bool kv_feed_serves(const struct kv_feed *f, struct str model, struct hash128 *adapter)
{
    for (int i = 0; f->named && i < f->naming.n_models; i++) {
        if (!str_eqz(model, f->naming.models[i].id)) continue;
        *adapter = f->naming.models[i].adapter;
        return true;
    }
    return false;
}

uint64_t kv_feed_changes(const struct kv_feed *f)
{
    return f->changes;
}
