/* embeddings.c - /v1/embeddings with an exact cache of single inputs: each text of a request is looked up on its own, only those that are
 * missing go upstream, each once, and the reply is put together in the client's order and encoding. A request that cannot be read
 * here goes on as it is. Long lists are worked on in small turns of the loop; reading and writing many numbers is done on a worker.
 * Threading: the loop's thread, run_* on workers. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gateway/body_edit.h"
#include "gateway/call.h"
#include "gateway/embed_form.h"
#include "gateway/pipeline.h"
#include "gateway/relay.h"
#include "gateway/reply.h"
#include "gateway/series.h"
#include "gateway/tuning.h"

enum {
    WINDOW = 32,                 /* look-ups under way */
    ITEMS_A_TURN = 32,           /* of the loop: some 20 us each */
    TABLE_SLOTS = 4096,          /* over EMBED_INPUTS_MAX; power of two */
    LOOP_BYTES_MAX = 64 * 1024,  /* of JSON read or written without a worker: under a millisecond */
    BYTES_A_TOKEN = 4,           /* of what is asked, for its place in the queue */
    NUMBER_BYTES = 13,           /* of a value written as text */
    REPLY_BYTES_MAX = 256 << 20, /* the largest list at the largest usual size */
};

struct item {
    struct cache_key key;
    bool keyed, found;
    size_t same_as; /* an earlier equal one, or its own index */
    size_t bytes;
};
struct lookup {
    struct embedding *e;
    struct cache_lookup *l;
    size_t i;
};
struct embedding {
    struct exchange *x; /* NULL: the client has left */
    struct gateway *gw;
    size_t n, next, kept, n_hits, n_asked;
    struct item *items;
    uint16_t *table; /* of keys: index + 1 */
    struct embed_list list, got;
    size_t *asked, *asked_bytes; /* n_asked: which items, in the order they were asked for */
    json_t *one;                 /* the body with one input and without what does not count */
    struct lookup lookups[WINDOW];
    int pending;
    bool posted, working, looks, stores, base64,
        as_it_is; /* the last: the client's own bytes went upstream */
    int64_t age_s;
    struct call *call;
    uint64_t asked_us;
    int status;
    bool encoded;
    struct header_list headers;
    struct buf body, out;
    enum err code;
    struct errmsg why;
};

static void free_embedding(struct embedding *e)
{
    for (size_t i = 0; i < e->n; i++)
        if (e->items[i].keyed) cache_key_fini(&e->items[i].key);
    mem_free(e->items);
    mem_free(e->table);
    mem_free(e->asked);
    mem_free(e->asked_bytes);
    embed_list_fini(&e->list);
    embed_list_fini(&e->got);
    json_decref(e->one);
    headers_fini(&e->headers);
    buf_fini(&e->body);
    buf_fini(&e->out);
    mem_free(e);
}

static void settle(struct embedding *e)
{
    if (!e->x && !e->posted && !e->working && !e->call) free_embedding(e);
}

void embeddings_leave(struct exchange *x)
{
    struct embedding *e = x->embedding;
    if (!e) return;
    for (int i = 0; i < WINDOW; i++)
        if (e->lookups[i].l) cache_find_cancel(e->lookups[i].l);
    x->embedding = NULL;
    e->x = NULL;
    if (e->call && !call_is_waiting(e->call))
        x->upstream_us = clock_us() - e->asked_us; /* it was asked */
    if (e->call) call_cancel(e->call);
    settle(e);
}

/* The reply has been handed over. */
static void over(struct embedding *e)
{
    struct exchange *x = e->x;
    x->embedding = NULL;
    e->x = NULL;
    settle(e);
    pipeline_finish(x);
}

static void fault(struct embedding *e, enum fault f, const char *detail)
{
    reply_fault(e->x, f, detail);
    over(e);
}

/* --- turns of the loop, and workers */
static void post(struct embedding *e, void (*fn)(void *arg))
{
    e->posted = true;
    if (loop_post(e->gw->loop, fn, e) == OK) return;
    fn(e); /* the loop is full: at once, then */
}

/* True: its client is still there. */
static bool back(struct embedding *e, bool *flag)
{
    *flag = false;
    if (e->x) return true;
    settle(e);
    return false;
}

static void work(struct embedding *e, size_t bytes, void (*run)(void *arg),
                 void (*done)(void *arg, bool cancelled))
{
    e->working = true;
    if (bytes > LOOP_BYTES_MAX && workers_submit(e->gw->workers, e->gw->loop, run, done, e) == OK)
        return;
    if (bytes > LOOP_BYTES_MAX) {
        e->working = false;
        return fault(e, FAULT_BUSY, "");
    }
    run(e);
    done(e, false);
}

/* --- the reply */
static void tell_inputs(struct embedding *e)
{
    http_set_headerf(e->x->r, "x-deja-inputs", "hits=%zu, total=%zu", e->n_hits, e->n);
    metric_add(e->gw->series->embedding_hits, (double)e->n_hits);
    metric_add(e->gw->series->embedding_misses, (double)(e->n - e->n_hits));
}

static void run_write(void *arg)
{
    struct embedding *e = arg;
    for (size_t i = 0; i < e->n; i++) {
        struct embed_vector *v = &e->list.at[i], *first = &e->list.at[e->items[i].same_as];
        if (v == first) continue;
        buf_str(&v->values, buf_view(&first->values));
        v->tokens = first->tokens;
    }
    embed_write(&e->out, &e->list, e->base64);
}

static void written(void *arg, bool cancelled)
{
    struct embedding *e = arg;
    if (!back(e, &e->working)) return;
    if (cancelled) return fault(e, FAULT_DRAINING, "");
    if (buf_failed(&e->out)) return fault(e, FAULT_MEMORY, "");
    tell_inputs(e);
    reply_body(e->x, 200, "application/json", buf_view(&e->out));
    over(e);
}

static void write_reply(struct embedding *e)
{
    size_t values = 0;
    for (size_t i = 0; i < e->n; i++)
        values += e->list.at[e->items[i].same_as].values.n / sizeof(float);
    work(e, values * NUMBER_BYTES, run_write, written);
}

static void pass_on(struct embedding *e)
{
    tell_inputs(e);
    reply_upstream(e->x, e->status, headers_find(&e->headers, "content-type"), &e->headers,
                   buf_view(&e->body));
    over(e);
}

/* --- keeping what came */
static void keep_one(struct embedding *e, size_t i)
{
    const struct exchange *x = e->x;
    struct openai_answer a;
    const char *why_not = NULL;
    char id[36];
    struct cache_keep_options o = {.ttl_s =
                                       x->controls.ttl_s > 0 ? x->controls.ttl_s : x->knobs.ttl_s,
                                   .tags = str_of(x->controls.tags),
                                   .latency_ms = (int64_t)(x->upstream_us / 1000),
                                   .trust = x->trust};
    embed_to_answer(&e->list.at[i], e->list.model, &a);
    bool kept = cache_keep(e->gw->cache, &e->items[i].key, &a, &o, id, &why_not) == OK;
    openai_answer_fini(&a);
    e->x->out.stored |= kept;
    if (!kept) e->x->out.refused = why_not;
    if (kept && e->n == 1) memcpy(e->x->out.entry, id, sizeof id);
}

static void keep_some(void *arg)
{
    struct embedding *e = arg;
    if (!back(e, &e->posted)) return;
    for (size_t n = 0; e->stores && e->kept < e->n_asked && n < ITEMS_A_TURN; n++)
        keep_one(e, e->asked[e->kept++]);
    if (e->stores && e->kept < e->n_asked)
        post(e, keep_some);
    else if (e->as_it_is)
        pass_on(e);
    else
        write_reply(e);
}

/* --- asking for what is missing */
static void run_read(void *arg)
{
    struct embedding *e = arg;
    e->code = embed_read(&e->got, buf_view(&e->body), &e->why);
    if (e->code == OK) embed_share_tokens(&e->got, e->asked_bytes);
}

static void was_read(void *arg, bool cancelled)
{
    struct embedding *e = arg;
    if (!back(e, &e->working)) return;
    if (cancelled) return fault(e, FAULT_DRAINING, "");
    if (e->code != OK && e->as_it_is) return pass_on(e); /* no list we know: not kept */
    if (e->code != OK) return fault(e, FAULT_BAD_ANSWER, e->why.text);
    for (size_t k = 0; k < e->n_asked; k++) {
        struct embed_vector *to = &e->list.at[e->asked[k]], *from = &e->got.at[k], swap = *to;
        *to = *from;
        *from = swap;
    }
    memcpy(e->list.model, e->got.model, sizeof e->list.model);
    if (e->got.tokens >= 0)
        e->x->usage = (struct openai_usage){.prompt_tokens = e->got.tokens, .known = true};
    e->posted = true;
    keep_some(e);
}

static void on_head(void *arg, const struct http_reply_head *head)
{
    struct embedding *e = arg;
    struct str encoding = http_head_find(head, "content-encoding");
    e->status = head->status;
    e->encoded = encoding.n && !str_ieq(encoding, STR("identity"));
    for (size_t i = 0; i < head->n_headers; i++)
        if (!headers_add(&e->headers, head->headers[i].name, head->headers[i].value)) break;
}

static void on_body(void *arg, struct str bytes)
{
    struct embedding *e = arg;
    buf_str(&e->body, bytes);
    if (buf_failed(&e->body)) call_cancel(e->call);
}

static void on_done(void *arg, enum err code, enum fault f, bool head_seen)
{
    struct embedding *e = arg;
    struct call *call = e->call;
    (void)head_seen;
    e->call = NULL;
    if (!e->x) return settle(e);
    e->x->upstream_us = clock_us() - e->asked_us;
    e->x->out.queued_us = call_waited_us(call);
    if (buf_failed(&e->body)) return fault(e, FAULT_TOO_LONG, "");
    if (code != OK) {
        uint64_t wait_ms = call_retry_after_ms(call);
        enum fault told = f == FAULT_NONE ? FAULT_CLOSED : f;
        if (wait_ms)
            reply_fault_retry(e->x, told, "", wait_ms);
        else
            reply_fault(e->x, told, "");
        return over(e);
    }
    if (e->encoded) return fault(e, FAULT_BAD_ANSWER, "it is compressed");
    if (e->status / 100 != 2 || (e->as_it_is && !e->stores)) return pass_on(e);
    embed_list_init(&e->got, e->n_asked);
    work(e, e->body.n, run_read, was_read);
}

static const json_t *input_at(const struct embedding *e, size_t i)
{
    const json_t *input = e->x->req.input;
    bool many = json_is_array(input) && !json_is_integer(json_array_get(input, 0));
    return many ? json_array_get(input, i) : input;
}

/* The client's bytes when all of it is wanted, else with the missing inputs alone. False: no memory. */
static bool missing_body(struct embedding *e, struct buf *out)
{
    struct buf inputs;
    buf_init(&inputs, e->x->body.max);
    for (size_t k = 0; k < e->n_asked; k++) {
        buf_char(&inputs, k ? ',' : '[');
        json_write(&inputs, input_at(e, e->asked[k]));
    }
    buf_char(&inputs, ']');
    struct body_edit edit = {.name = "input", .value = buf_view(&inputs)};
    bool fine = !buf_failed(&inputs) && body_edit(out, exchange_body(e->x), &edit, 1) == OK;
    buf_fini(&inputs);
    return fine;
}

static void ask(struct embedding *e)
{
    struct exchange *x = e->x;
    struct header_list headers;
    struct buf body, key;
    char salt[33];
    e->as_it_is = e->n_asked == e->n;
    buf_init(&body, x->body.max);
    buf_init(&key, 8192);
    bool fine = e->as_it_is || missing_body(e, &body);
    relay_headers(x, &headers, false);
    relay_salt(x, salt);
    struct call_request r = {.method = "POST",
                             .path = http_req_target(x->r),
                             .headers = &headers,
                             .authorization = relay_authorization(x, &key),
                             .salt = str_of(salt),
                             .model = x->model,
                             .body = e->as_it_is ? exchange_body(x) : buf_view(&body),
                             .repeatable = true,
                             .batch = x->patient,
                             .tenant = str_of(x->tenant),
                             .tenant_weight = x->tenant_weight};
    struct call_handler h = {.on_head = on_head, .on_body = on_body, .on_done = on_done, .arg = e};
    r.cost = 1 + (double)r.body.n / BYTES_A_TOKEN;
    e->asked_us = clock_us();
    if (fine) e->call = call_start(x->gw, &r, &h);
    headers_fini(&headers);
    buf_fini(&body);
    buf_fini(&key);
    if (!fine) fault(e, FAULT_MEMORY, "");
}

/* --- looking up */
static void looked_up(struct embedding *e)
{
    struct exchange *x = e->x;
    bool all = !e->n_asked;
    x->found_us = clock_us();
    if (e->looks) {
        x->out.cache = all ? "exact" : "miss";
        outcome_reason(&x->out, all ? "exact" : e->n_hits ? "partial" : "empty");
        if (all) x->out.age_s = e->age_s;
    }
    if (all)
        write_reply(e);
    else if (x->controls.only_if_cached)
        fault(e, FAULT_NOT_CACHED, "");
    else
        ask(e);
}

static void advance(struct embedding *e);

static void on_found(void *arg, const struct cache_found *f)
{
    struct lookup *l = arg;
    struct embedding *e = l->e;
    struct item *it = &e->items[l->i];
    l->l = NULL;
    e->pending--;
    it->found = f->result == CACHE_EXACT && embed_from_answer(&e->list.at[l->i], f->answer) == OK;
    if (it->found) {
        if (f->age_s > e->age_s) e->age_s = f->age_s;
        if (!e->list.model[0])
            snprintf(e->list.model, sizeof e->list.model, "%s", f->answer->model);
        if (e->n == 1) memcpy(e->x->out.entry, f->entry_id, sizeof f->entry_id);
    }
    advance(e);
}

static void find(struct embedding *e, size_t i)
{
    struct cache_lookup_options o = {
        .skip_semantic = true, .max_age_s = e->x->controls.max_age_s, .knobs = &e->x->knobs};
    struct lookup *l = e->lookups;
    while (l->l)
        l++;
    *l = (struct lookup){.e = e, .i = i};
    e->pending++;
    l->l = cache_find(e->gw->cache, &e->items[i].key, &o, on_found, l);
}

/* Its key; the first item with that key is the one that is looked up and asked for. */
static void take_item(struct embedding *e, size_t i)
{
    const struct exchange *x = e->x;
    struct item *it = &e->items[i];
    const json_t *input = input_at(e, i);
    struct cache_scope scope = {
        .tenant = str_of(x->tenant), .ns = str_of(x->controls.ns), .model = x->model};
    struct openai_request one = x->req;
    it->same_as = i;
    it->bytes = json_is_string(input) ? json_string_length(input) : json_array_size(input);
    if (!e->looks && !e->stores) return;
    json_object_set_new(e->one, "input", json_incref((json_t *)(uintptr_t)input));
    one.body = e->one;
    it->keyed = cache_key_make(e->gw->cache, &one, &scope, &it->key) == OK;
    if (!it->keyed) return;
    size_t at = (size_t)it->key.exact.lo & (TABLE_SLOTS - 1);
    for (; e->table[at]; at = (at + 1) & (TABLE_SLOTS - 1))
        if (hash_eq(e->items[e->table[at] - 1].key.exact, it->key.exact)) {
            it->same_as = e->table[at] - 1u;
            return;
        }
    e->table[at] = (uint16_t)(i + 1);
    if (e->looks) find(e, i);
}

static void take_missing(struct embedding *e)
{
    e->asked = xcalloc(e->n, sizeof *e->asked);
    e->asked_bytes = xcalloc(e->n, sizeof *e->asked_bytes);
    for (size_t i = 0; i < e->n; i++) {
        const struct item *it = &e->items[i];
        if (e->items[it->same_as].found) e->n_hits++;
        if (it->same_as != i || it->found) continue;
        e->asked_bytes[e->n_asked] = it->bytes;
        e->asked[e->n_asked++] = i;
        if (!it->keyed) e->stores = false;
    }
}

static void advance_posted(void *arg)
{
    struct embedding *e = arg;
    if (back(e, &e->posted)) advance(e);
}

static void advance(struct embedding *e)
{
    if (e->posted) return;
    for (size_t n = 0; e->next < e->n && e->pending < WINDOW && n < ITEMS_A_TURN; n++)
        take_item(e, e->next++);
    if (e->next < e->n && e->pending < WINDOW)
        post(e, advance_posted);
    else if (e->next == e->n && !e->pending) {
        take_missing(e);
        looked_up(e);
    }
}

enum step embeddings_start(struct exchange *x)
{
    const struct controls *c = &x->controls;
    const json_t *input = x->req.input;
    bool many = json_is_array(input) && !json_is_integer(json_array_get(input, 0));
    size_t n = many ? json_array_size(input) : 1;
    ASSERT(n <= EMBED_INPUTS_MAX); /* the parser's bound too */
    tuning_apply(x);
    struct embedding *e = xcalloc(1, sizeof *e);
    e->x = x;
    e->gw = x->gw;
    e->n = n;
    e->items = xcalloc(n, sizeof *e->items);
    e->table = xcalloc(TABLE_SLOTS, sizeof *e->table);
    embed_list_init(&e->list, n);
    headers_init(&e->headers);
    buf_init(&e->body, REPLY_BYTES_MAX);
    buf_init(&e->out, REPLY_BYTES_MAX);
    bool on = !c->bypass && x->knobs.exact;
    e->looks = on && !c->skip_lookup;
    e->stores = on && !c->no_store;
    if (!e->looks) x->out.cache = "bypass";
    if (!e->looks) outcome_reason(&x->out, c->bypass ? "asked" : on ? "no_cache" : "off");
    e->one = json_copy(x->req.body);
    json_object_del(e->one, "encoding_format"); /* one stored form serves both */
    x->embedding = e;
    e->base64 = x->req.base64;
    e->posted = loop_post(x->gw->loop, advance_posted, e) ==
                OK; /* what ends it must not come before this returns */
    if (e->posted) return STEP_WAIT;
    reply_fault_retry(x, FAULT_BUSY, "", 1000);
    embeddings_leave(x);
    return STEP_DONE;
}
