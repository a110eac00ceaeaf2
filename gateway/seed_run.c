/* seed_run.c - see seed_run.h. Each answer is put by one call of deja_seed (lua/wordings_seed.lua), some on their way at a time; then what
 * the set holds and the file does not is taken away. Vectors are made by the gateways. */
#include "gateway/seed_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cache/entry.h"
#include "cache/key.h"

enum { IN_FLIGHT_MAX = 32, CALL_TIMEOUT_MS = 10000, REFUSAL_BYTES = 1400 };

struct seed_run {
    struct seed_run_options o;
    const struct seed_file *file;
    struct hash128 *ids; /* of the items */
    size_t next, in_flight;
    struct hash128 *rest; /* in the set, not in the file */
    size_t n_rest;
    struct seed_counts counts;
    struct errmsg why;
    enum err code;
};
struct put {
    struct seed_run *r;
    const struct seed *s;
};

/* Nothing more is sent after a failure; it is over when nothing is on its way. */
static void rest(struct seed_run *r)
{
    if (r->in_flight) return;
    struct seed_run_options o = r->o;
    struct seed_counts counts = r->counts;
    struct errmsg why = r->why;
    enum err code = r->code;
    mem_free(r->ids);
    mem_free(r->rest);
    mem_free(r);
    o.done(o.arg, code, &counts, &why);
}

static bool failed(struct seed_run *r, enum err code, const struct redis_reply *reply)
{
    if (code == OK && reply->kind == REDIS_ERROR && r->code == OK)
        r->code = err_set(&r->why, ERR_INVALID, "Redis: " STR_FMT, STR_ARG(reply->text));
    else if (code != OK && r->code == OK)
        r->code = err_set(&r->why, code, "Redis: %s", err_text(code));
    return r->code != OK;
}

/* --- taking away */
static void drop_more(struct seed_run *r);

static void dropped(void *arg, enum err code, const struct redis_reply *reply)
{
    struct seed_run *r = arg;
    r->in_flight--;
    if (!failed(r, code, reply)) r->counts.removed += reply->integer > 0;
    drop_more(r);
}

static void drop_more(struct seed_run *r)
{
    while (r->next < r->n_rest && r->in_flight < IN_FLIGHT_MAX && r->code == OK) {
        char hex[33];
        hash_hex(r->rest[r->next++], hex);
        struct str argv[] = {STR("FCALL"),     STR("deja_unseed"), STR("1"),  str_of(r->o.tag),
                             str_of(r->o.set), str_of(hex),        STR("dry")};
        r->in_flight++;
        redis_command(r->o.redis, r->o.dry ? 7 : 6, argv, CALL_TIMEOUT_MS, dropped, r);
    }
    rest(r);
}

static int by_id(const void *a, const void *b)
{
    const struct hash128 *x = a, *y = b;
    if (x->hi != y->hi) return x->hi < y->hi ? -1 : 1;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static void got_set(void *arg, enum err code, const struct redis_reply *reply)
{
    struct seed_run *r = arg;
    r->in_flight--;
    if (failed(r, code, reply)) {
        rest(r);
        return;
    }
    r->rest = xcalloc(reply->n_items + 1, sizeof *r->rest);
    if (r->file->n) qsort(r->ids, r->file->n, sizeof *r->ids, by_id);
    for (size_t i = 0; i < reply->n_items; i++) {
        struct hash128 id;
        if (hash_from_hex(reply->items[i].text, &id) == OK &&
            (!r->file->n || !bsearch(&id, r->ids, r->file->n, sizeof id, by_id)))
            r->rest[r->n_rest++] = id;
    }
    r->next = 0;
    drop_more(r);
}

static void ask_set(struct seed_run *r)
{
    r->in_flight++;
    redis_commandf(r->o.redis, CALL_TIMEOUT_MS, got_set, r, "FCALL deja_seeds 1 %s %s", r->o.tag,
                   r->o.set);
}

/* --- putting */
static void put_more(struct seed_run *r);

static void refuse(struct seed_run *r, const struct seed *s, struct str state, struct str detail)
{
    char text[REFUSAL_BYTES];
    if (++r->counts.refused > SEED_REFUSALS_TOLD_MAX) return;
    if (str_eqz(state, "TAKEN"))
        snprintf(text, sizeof text,
                 "this question is in the set \"" STR_FMT
                 "\" already: change it there, or take that set away first",
                 STR_ARG(detail));
    else if (str_eqz(state, "DENIED"))
        snprintf(text, sizeof text,
                 "this very answer was called wrong (deja_feedback): write another one");
    else
        snprintf(text, sizeof text,
                 "the wording \"" STR_FMT
                 "\" leads to another answer already: leave it out here, or revoke it there",
                 STR_ARG(detail));
    r->o.refused(r->o.arg, s->line, text);
}

static void was_put(void *arg, enum err code, const struct redis_reply *reply)
{
    struct put *p = arg;
    struct seed_run *r = p->r;
    const struct seed *s = p->s;
    mem_free(p);
    r->in_flight--;
    if (!failed(r, code, reply)) {
        bool whole = reply->n_items == 2;
        struct str state = whole ? reply->items[0].text : (struct str){"", 0};
        if (str_eqz(state, "NEW"))
            r->counts.fresh++;
        else if (str_eqz(state, "CHANGED"))
            r->counts.changed++;
        else if (str_eqz(state, "SAME"))
            r->counts.same++;
        else
            refuse(r, s, state, whole ? reply->items[1].text : state);
    }
    put_more(r);
}

/* The answer as any model's would be kept, but with no tokens: none were made. */
static void write_answer(const struct seed *s, struct hash128 id, struct buf *out, uint64_t *hash)
{
    struct openai_answer a = {.kind = OPENAI_CHAT, .n_choices = 1, .usage = {.known = true}};
    char hex[33];
    hash_hex(id, hex);
    snprintf(a.id, sizeof a.id, "chatcmpl-%.24s", hex);
    snprintf(a.choices[0].finish_reason, sizeof a.choices[0].finish_reason, "stop");
    a.choices[0].message =
        json_pack("{s:s, s:s%}", "role", "assistant", "content", s->answer.p, s->answer.n);
    openai_answer_write_json(out, &a);
    *hash = entry_answer_hash(&a);
    openai_answer_fini(&a);
}

static struct hash128 digest_of(const struct seed *s, const struct entry *e, int64_t ttl_s)
{
    struct hasher h;
    hasher_open(&h, 0);
    hasher_field(&h, 'a', e->answer);
    hasher_field(&h, 't', e->tags);
    hasher_u64(&h, 'l', (uint64_t)ttl_s);
    for (int i = 0; i < s->n_wordings; i++)
        hasher_field(&h, 'w', s->wordings[i]);
    for (int i = 0; i < s->n_near; i++)
        hasher_field(&h, 'n', s->near[i]);
    return hasher_close(&h);
}

static void send(struct seed_run *r, const struct seed *s, const struct entry *e, int64_t ttl_s)
{
    struct str argv[13 + 2 * SEED_TEXTS_MAX + 2 * N_ENTRY_WRITTEN], values[N_ENTRY_FIELDS];
    char texts[ENTRY_TEXTS_BYTES], id[33], part[33], digest[33], ttl[24], n_w[8], n_n[8];
    int n = 0;
    hash_hex(e->id, id);
    hash_hex(e->partition, part);
    hash_hex(digest_of(s, e, ttl_s), digest);
    snprintf(ttl, sizeof ttl, "%lld", (long long)ttl_s);
    snprintf(n_w, sizeof n_w, "%d", s->n_wordings);
    snprintf(n_n, sizeof n_n, "%d", s->n_near);
    const char *const head[] = {
        "FCALL", "deja_seed", "1",    r->o.tag, r->o.set, r->o.dry ? "1" : "0",
        id,      part,        digest, ttl,      n_w,      n_n};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        argv[n++] = str_of(head[i]);
    for (int i = 0; i < s->n_wordings; i++)
        argv[n++] = s->wordings[i];
    for (int i = 0; i < s->n_near; i++)
        argv[n++] = s->near[i];
    entry_write(e, values, texts);
    for (int f = 0; f < N_ENTRY_WRITTEN; f++) {
        if (f == EF_CREATED || f == EF_TTL || f == EF_EPOCH || f == EF_VECTOR || f == EF_EMBEDDER ||
            f == EF_TOKENS)
            continue; /* said by Redis, or made later */
        argv[n++] = str_of(entry_field_names[f]);
        argv[n++] = values[f];
    }
    struct put *p = xcalloc(1, sizeof *p);
    *p = (struct put){r, s};
    r->in_flight++;
    redis_command(r->o.redis, n, argv, CALL_TIMEOUT_MS, was_put, p);
}

static void put_more(struct seed_run *r)
{
    struct buf answer;
    buf_init(&answer, 1 << 20);
    while (r->next < r->file->n && r->in_flight < IN_FLIGHT_MAX && r->code == OK) {
        const struct seed *s = &r->file->items[r->next];
        struct cache_scope scope = {.tenant = s->tenant, .ns = s->ns, .model = s->model};
        struct entry e = {.id = key_curated_entry(r->o.secret, &scope, s->question),
                          .partition = key_curated(r->o.secret, s->tenant, s->ns),
                          .kind = OPENAI_CHAT,
                          .tenant = s->tenant,
                          .model = s->model,
                          .ns = s->ns,
                          .question = s->question,
                          .tags = str_of(s->tags),
                          .trust = TRUST_OPERATOR,
                          .pinned = true};
        e.check = e.id;
        buf_clear(&answer);
        write_answer(s, e.id, &answer, &e.answer_hash);
        e.answer = buf_view(&answer);
        r->ids[r->next++] = e.id;
        send(r, s, &e, s->ttl_s ? s->ttl_s : ENTRY_NEVER_S);
    }
    buf_fini(&answer);
    if (r->code != OK)
        rest(r);
    else if (!r->in_flight && r->next == r->file->n)
        ask_set(r);
}

void seed_run_start(const struct seed_run_options *o, const struct seed_file *file)
{
    struct seed_run *r = xcalloc(1, sizeof *r);
    r->o = *o;
    r->file = file;
    r->ids = xcalloc(file->n + 1, sizeof *r->ids);
    put_more(r); /* an empty file: the whole set goes */
}
