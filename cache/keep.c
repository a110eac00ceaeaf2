/* keep.c - storing answers, here and in Redis, and taking them back. An answer Redis did not take stays in process, marked, and is
 * written when Redis is there again. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cache/cache_internal.h"

/* --- what may be stored */
static bool says_something(const struct openai_choice *ch)
{
    json_t *content = json_object_get(ch->message, "content"),
           *text = json_object_get(ch->message, "text"),
           *calls = json_object_get(ch->message, "tool_calls");
    if (json_is_string(content) && str_trim(json_str(content)).n) return true;
    if (json_is_string(text) && str_trim(json_str(text)).n) return true;
    if (json_is_array(content) && json_array_size(content)) return true;
    return json_is_array(calls) && json_array_size(calls);
}

static const char *unfit(const struct openai_answer *a)
{
    if (a->n_choices < 1) return "empty";
    for (int i = 0; i < a->n_choices; i++) {
        const struct openai_choice *ch = &a->choices[i];
        if (!ch->finish_reason[0]) return "incomplete";
        if (!strcmp(ch->finish_reason, "length")) return "length";
        if (!strcmp(ch->finish_reason, "content_filter")) return "content_filter";
        if (strcmp(ch->finish_reason, "stop") && strcmp(ch->finish_reason, "tool_calls"))
            return "finish_reason";
        json_t *refusal = json_object_get(ch->message, "refusal");
        if (json_is_string(refusal) && json_string_length(refusal)) return "refusal";
        if (!says_something(ch)) return "empty";
    }
    if (a->extra && json_object_get(a->extra, "error")) return "error";
    return NULL;
}

static bool calls_tools(const struct openai_answer *a)
{
    for (int i = 0; i < a->n_choices; i++)
        if (!strcmp(a->choices[i].finish_reason, "tool_calls")) return true;
    return false;
}

bool cache_fits_similar(const struct openai_answer *a)
{
    return !unfit(a) && !calls_tools(a) && a->kind == OPENAI_CHAT;
}

/* --- to Redis */
struct write_op {
    struct cache *c;
    struct hash128 id;
    uint64_t write_no;
    bool resend;
};

/* Redis knows better: an entry of more trust stands there, this answer was called wrong, or its kind was removed meanwhile. */
static void turned_away(struct cache *c, const struct write_op *w, struct str why)
{
    const struct entry *e = store_peek(c->store, w->id);
    if (!e || e->write_no != w->write_no) return;
    log_debug("cache", "Redis keeps an answer out: " STR_FMT, STR_ARG(why));
    struct partition *p = partitions_get(c->partitions, e->partition, false);
    if (p && partition_remove(p, w->id) && str_eqz(why, "KEPT"))
        partition_set_state(p, PARTITION_PARTIAL); /* the one that stands there is loaded anew */
    store_remove(c->store, w->id);
}

static void written(void *arg, enum err code, const struct redis_reply *reply)
{
    struct write_op *w = arg;
    struct cache *c = w->c;
    bool ok = code == OK && reply->kind != REDIS_ERROR;
    if (!c->closed) {
        if (ok && !str_eqz(reply->text, "OK"))
            turned_away(c, w, reply->text);
        else if (ok)
            store_set_saved(c->store, w->id, w->write_no);
        else if (code == OK)
            log_limited(LOG_WARN, "cache", "Redis did not take an entry: " STR_FMT,
                        STR_ARG(reply->text));
        if (w->resend) {
            c->resending = false;
            if (ok) metric_add(c->m.resent, 1);
            if (ok) cache_write_unsaved(c);
        }
    }
    mem_free(w);
    cache_unref(c);
}

static void write_entry(struct cache *c, const struct entry *e, bool resend)
{
    char keys[4][KEY_BYTES_MAX], texts[ENTRY_TEXTS_BYTES], hex[33], part[33], expires[24], ttl[24],
        items[16];
    struct str argv[7 + 6 + 2 * N_ENTRY_WRITTEN], values[N_ENTRY_FIELDS];
    int64_t until_s = e->created_s + e->ttl_s + c->knobs.stale_if_error_s,
            left_s = until_s - clock_wall_s();
    bool in_partition = e->partition.hi || e->partition.lo;
    if (left_s < 1) left_s = 1;
    hash_hex(e->id, hex);
    hash_hex(e->partition, part);
    snprintf(expires, sizeof expires, "%lld", (long long)until_s);
    snprintf(ttl, sizeof ttl, "%lld", (long long)left_s);
    snprintf(items, sizeof items, "%d", LOG_ITEMS_MAX);
    int n = 0;
    argv[n++] = STR("FCALL");
    argv[n++] = STR("deja_put");
    argv[n++] = STR("4");
    argv[n++] = cache_redis_key(c, keys[0], "e:", str_of(hex));
    argv[n++] = cache_redis_key(c, keys[1], "log", STR(""));
    argv[n++] = cache_redis_key(c, keys[2], "p:", str_of(part));
    argv[n++] = cache_redis_key(c, keys[3], "parts", STR(""));
    argv[n++] = str_of(hex);
    argv[n++] = str_of(expires);
    argv[n++] = str_of(ttl);
    argv[n++] = str_of(items);
    argv[n++] = str_of(c->source);
    argv[n++] = in_partition ? str_of(part) : STR("");
    entry_write(e, values, texts);
    for (int f = 0; f < N_ENTRY_WRITTEN; f++) {
        argv[n++] = str_of(entry_field_names[f]);
        argv[n++] = values[f];
    }
    struct write_op *w = xcalloc(1, sizeof *w);
    *w = (struct write_op){.c = c, .id = e->id, .write_no = e->write_no, .resend = resend};
    cache_ref(c);
    redis_command(c->redis, n, argv, 0, written, w);
}

void cache_write(struct cache *c, const struct entry *e)
{
    if (c->redis) write_entry(c, e, false);
}

void cache_write_unsaved(struct cache *c)
{
    const struct entry *e =
        c->redis && !c->resending && redis_usable(c->redis) ? store_unsaved(c->store) : NULL;
    if (c->redis) metric_set(c->m.unsaved, store_unsaved(c->store) != NULL);
    if (!e) return;
    c->resending = true;
    write_entry(c, e, true);
}

/* --- keeping */
enum err cache_keep(struct cache *c, const struct cache_key *k, const struct openai_answer *a,
                    const struct cache_keep_options *o, char id_out[36], const char **why_not)
{
    id_out[0] = 0;
    *why_not = unfit(a);
    if (!*why_not && (k->tenant.n > ENTRY_NAME_BYTES_MAX || k->model.n > ENTRY_NAME_BYTES_MAX ||
                      o->tags.n > ENTRY_NAME_BYTES_MAX))
        *why_not = "long_name";
    struct buf json;
    buf_init(&json, c->o.entry_bytes_max);
    if (!*why_not) {
        openai_answer_write_json(&json, a);
        if (buf_failed(&json)) *why_not = "too_large";
    }
    if (!*why_not && c->embedder) cache_evidence_from_answer(c, k, a);
    int64_t now = clock_wall_s();
    if (!*why_not && marks_denied(c->marks, k->exact, entry_answer_hash(a), now))
        *why_not = "called_wrong";
    if (*why_not) {
        c->stats.refused++;
        buf_fini(&json);
        return ERR_UNSUPPORTED;
    }
    bool similar = c->embedder && c->knobs.semantic && k->semantic_allowed &&
                   k->temperature <= c->knobs.temperature_max && !calls_tools(a) &&
                   a->kind == OPENAI_CHAT;
    struct entry e = {.id = k->exact,
                      .check = k->check,
                      .kind = k->kind,
                      .tenant = k->tenant,
                      .model = k->model,
                      .question = str_sub(k->user_text, 0, ENTRY_QUESTION_BYTES_MAX),
                      .answer = buf_view(&json),
                      .tags = o->tags,
                      .ns = k->ns,
                      .trust = o->trust,
                      .epoch = k->epoch,
                      .answer_hash = entry_answer_hash(a),
                      .created_s = clock_wall_s(),
                      .ttl_s = o->ttl_s > 0 ? o->ttl_s : c->knobs.ttl_s,
                      .latency_ms = o->latency_ms > 0 ? o->latency_ms : 0,
                      .write_no = ++c->write_no};
    if (similar) e.partition = k->partition, e.embedder = c->rules.embedder_id;
    if (a->usage.known && a->usage.prompt_tokens >= 0 && a->usage.completion_tokens >= 0)
        e.prompt_tokens = a->usage.prompt_tokens, e.completion_tokens = a->usage.completion_tokens;
    cache_put(c, &e, similar);
    hash_hex(k->exact, id_out);
    c->stats.kept++;
    metric_add(c->m.kept, 1);
    buf_fini(&json);
    return OK;
}
