/* put.c - a new entry on its way into the store, the vector index and Redis. The vector is made off the loop; the look-up's is remembered
 * by the embedder, so this costs a pass only for questions that were never looked up. When the embedder is too busy, the entry is
 * written without a vector at once and waits in a bounded line for its turn: it must not be lost to similar questions for good. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "cache/cache_internal.h"

enum { LINE_MAX = 4096, ATTEMPTS_MAX = 5 };

struct put_op {
    struct cache *c;
    struct entry
        *e; /* without a vector yet; of a judged text only id, partition and question are used */
    bool judged;
    int attempts;
    struct put_op *next;
};

static void drop(struct put_op *k)
{
    struct cache *c = k->c;
    entry_free(k->e);
    mem_free(k);
    cache_unref(c);
}

/* vec NULL: known by its words until the vector is there. */
static void index_entry(struct cache *c, const struct entry *e, const float *vec)
{
    struct partition *p = partitions_get(c->partitions, e->partition, true);
    struct question q = cache_question_of(c, e);
    if (p && !c->redis) partition_set_state(p, PARTITION_LOADED);
    enum err code = p ? partition_add(p, &q, vec, false) : ERR_FULL;
    if (code != OK)
        log_limited(LOG_WARN, "cache", "a question could not be indexed: %s", err_text(code));
}

static void wait_in_line(struct put_op *k)
{
    struct cache *c = k->c;
    if (++k->attempts > ATTEMPTS_MAX || c->n_line >= LINE_MAX) {
        struct partition *p = partitions_get(c->partitions, k->e->partition, false);
        if (k->judged && p)
            partition_set_state(p,
                                PARTITION_PARTIAL); /* loaded again when asked for: the rest then */
        else
            log_limited(LOG_WARN, "cache",
                        "the embedder is too busy: an answer is found by equal questions only");
        drop(k);
        return;
    }
    k->next = NULL;
    if (c->line_last)
        c->line_last->next = k;
    else
        c->line = k;
    c->line_last = k;
    c->n_line++;
}

static void share_vector(struct put_op *k, const float *vec)
{
    struct cache *c = k->c;
    char key[KEY_BYTES_MAX], hex[33];
    unsigned char packed[ENTRY_DIM_MAX * 2];
    struct partition *p = partitions_get(c->partitions, k->e->partition, false);
    if (p && partition_give_vector(p, k->e->id, vec) == ERR_FULL)
        log_limited(LOG_WARN, "cache", "a judged text could not be indexed: no room");
    if (!c->redis) return;
    hash_hex(k->e->id, hex);
    entry_pack_vector(vec, c->dim, packed);
    struct str argv[] = {STR("FCALL"),
                         STR("deja_vector"),
                         STR("1"),
                         cache_redis_key(c, key, "e:", str_of(hex)),
                         c->rules.embedder_id,
                         {(char *)packed, c->dim * 2}};
    redis_command(c->redis, 6, argv, 1000, NULL, NULL);
    cache_share_tokens(c, k->e->id, k->e->question);
}

static void got_text_vector(struct put_op *k, enum err code, const float *vec)
{
    if (code == ERR_TIMEOUT && !k->c->closed) {
        wait_in_line(k);
        return;
    }
    if (code == OK && !k->c->closed) share_vector(k, vec);
    drop(k);
}

static void got_vector(void *arg, enum err code, const float *vec)
{
    struct put_op *k = arg;
    struct cache *c = k->c;
    if (k->judged) {
        got_text_vector(k, code, vec);
        return;
    }
    unsigned char packed[ENTRY_DIM_MAX * 2];
    uint8_t tokens[TOKENS_FIELD_BYTES];
    const struct entry *now = c->closed ? NULL : store_peek(c->store, k->e->id);
    if (!now || now->write_no !=
                    k->e->write_no) { /* replaced or taken back meanwhile: the later word counts */
        drop(k);
        return;
    }
    if (code != OK) {
        if (!k->attempts) cache_write(c, k->e);
        if (code == ERR_TIMEOUT)
            wait_in_line(k);
        else
            drop(k); /* a text the encoder cannot take */
        return;
    }
    entry_pack_vector(vec, c->dim, packed);
    k->e->vector = (struct str){(char *)packed, c->dim * 2};
    index_entry(c, k->e, vec);
    struct entry *copy = entry_copy(k->e);
    if (copy) (void)store_put(c->store, copy, c->redis != NULL);
    k->e->tokens.p = (char *)tokens;
    k->e->tokens.n =
        c->redis && c->knobs.verifier_stored ? cache_tokens_field(c, k->e->question, tokens) : 0;
    cache_write(c, k->e);
    drop(k);
}

static bool embed(struct put_op *k)
{
    return cache_embed(k->c, k->e->question, 10 * k->c->o.embed_deadline_ms, got_vector, k) == OK;
}

void cache_put(struct cache *c, const struct entry *e, bool similar)
{
    struct entry *copy = entry_copy(e), *held = similar ? entry_copy(e) : NULL;
    if (copy) (void)store_put(c->store, copy, c->redis != NULL);
    if (held) {
        struct put_op *k = xcalloc(1, sizeof *k);
        *k = (struct put_op){.c = c, .e = held};
        cache_ref(c);
        index_entry(c, held, NULL);
        if (!c->line && embed(k)) return;
        wait_in_line(k);
    }
    cache_write(c, e);
}

void cache_put_vector(struct cache *c, struct hash128 partition, struct hash128 id, struct str text)
{
    struct entry e = {.id = id, .partition = partition, .question = text}, *held;
    if (!c->embedder || !(held = entry_copy(&e))) return;
    struct put_op *k = xcalloc(1, sizeof *k);
    *k = (struct put_op){.c = c, .e = held, .judged = true};
    cache_ref(c);
    if (c->line || !embed(k)) wait_in_line(k);
}

void cache_put_waiting(struct cache *c)
{
    while (c->line) {
        struct put_op *k = c->line;
        if (!embed(k)) return; /* still busy */
        c->line = k->next;
        if (!c->line) c->line_last = NULL;
        c->n_line--;
    }
}

void cache_put_drop_line(struct cache *c)
{
    while (c->line) {
        struct put_op *k = c->line;
        c->line = k->next;
        drop(k);
    }
    c->line_last = NULL;
    c->n_line = 0;
}
