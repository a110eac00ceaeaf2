/* kv_wire.c - see kv_wire.h. */
#include "engine/kv_wire.h"

#include <string.h>

#include "base/mem.h"

struct ask_bytes { /* after the head; then the tokens */
    struct hash128 adapter, salt, start;
    uint32_t from, n_tokens, batch, zero;
    uint64_t token_check;
    uint64_t check; /* of all before it */
};

static size_t token_bytes(int n)
{
    return (size_t)n * sizeof(int32_t);
}

static struct kv_head without_seed(const struct kv_head *h)
{
    struct kv_head out = *h;
    out.seed = 0;
    return out;
}

/* --- the ask */
void kv_ask_write(const struct kv_ask *ask, struct buf *out)
{
    uint8_t head[KV_HEAD_BYTES];
    struct kv_head h = without_seed(&ask->head);
    struct ask_bytes b = {.adapter = ask->scope.adapter,
                          .salt = ask->scope.salt,
                          .start = ask->start,
                          .from = (uint32_t)ask->from,
                          .n_tokens = (uint32_t)ask->n_tokens,
                          .batch = ask->batch,
                          .token_check = kv_check(ask->tokens, token_bytes(ask->n_tokens))};
    b.check = kv_check(&b, offsetof(struct ask_bytes, check));
    kv_head_write(&h, head);
    buf_add(out, head, sizeof head);
    buf_add(out, &b, sizeof b);
    buf_add(out, ask->tokens, token_bytes(ask->n_tokens));
}

enum err kv_ask_read(struct str bytes, struct kv_ask *out, struct errmsg *e)
{
    struct ask_bytes b;
    const uint8_t *at = (const uint8_t *)bytes.p;
    *out = (struct kv_ask){0};
    if (bytes.n < KV_HEAD_BYTES + sizeof b)
        return err_set(e, ERR_CORRUPT, "an ask for KV blocks is at least %zu bytes, not %zu",
                       KV_HEAD_BYTES + sizeof b, bytes.n);
    if (kv_head_read(at, KV_HEAD_BYTES, &out->head) != OK)
        return err_set(e, ERR_CORRUPT, "the head of the ask is damaged or of another version");
    memcpy(&b, at + KV_HEAD_BYTES, sizeof b);
    if (b.check != kv_check(&b, offsetof(struct ask_bytes, check)) || b.zero || b.batch > 1)
        return err_set(e, ERR_CORRUPT, "the ask is damaged");
    uint32_t bt = (uint32_t)out->head.block_tokens;
    if (!b.n_tokens || b.n_tokens > KV_ASK_TOKENS_MAX || b.n_tokens % bt ||
        b.from >= b.n_tokens / bt)
        return err_set(e, ERR_RANGE,
                       "%u tokens from block %u on: expected whole blocks of %u, at least one, of "
                       "at most %d tokens",
                       b.n_tokens, b.from, bt, KV_ASK_TOKENS_MAX);
    at += KV_HEAD_BYTES + sizeof b;
    if (bytes.n != KV_HEAD_BYTES + sizeof b + token_bytes((int)b.n_tokens) ||
        b.token_check != kv_check(at, token_bytes((int)b.n_tokens)))
        return err_set(e, ERR_CORRUPT, "the tokens of the ask are damaged");
    out->scope = (struct prefix_scope){.adapter = b.adapter, .salt = b.salt};
    out->start = b.start;
    out->from = (int)b.from;
    out->n_tokens = (int)b.n_tokens;
    out->batch = b.batch;
    out->tokens = at;
    return OK;
}

enum err kv_head_fits(const struct kv_head *own, const struct kv_head *theirs, struct errmsg *e)
{
    if (!hash_eq(own->root, theirs->root))
        return err_set(e, ERR_UNSUPPORTED, "the other engine has another model file");
    if (own->block_tokens != theirs->block_tokens)
        return err_set(e, ERR_UNSUPPORTED,
                       "block_size: blocks have %d tokens here, %d at the other engine",
                       own->block_tokens, theirs->block_tokens);
    if (memcmp(own->format, theirs->format, sizeof own->format) != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "kv_cache_dtype, isa or device: keys and values are \"%.*s\" here, \"%.*s\" "
                       "at the other engine",
                       KV_FORMAT_MAX, own->format, KV_FORMAT_MAX, theirs->format);
    if (own->block_bytes != theirs->block_bytes)
        return err_set(e, ERR_UNSUPPORTED, "a block has %llu bytes here, %llu at the other engine",
                       (unsigned long long)own->block_bytes,
                       (unsigned long long)theirs->block_bytes);
    return OK;
}

/* --- the answer */
void kv_record_write(const struct kv_head *h, int index, const struct block_name *name,
                     const void *bytes, uint8_t *out)
{
    struct kv_entry e = {name->id, name->parent, (uint64_t)index + 1,
                         kv_check(bytes, h->block_bytes), name->tokens};
    kv_entry_write(&e, h->block_tokens, index, out);
}

enum part { PART_HEAD, PART_ENTRY, PART_BLOCK };

struct kv_stream {
    struct kv_stream_options o;
    enum part part;
    size_t have; /* bytes of the part */
    int next;    /* block */
    size_t entry_bytes;
    uint8_t *front; /* [the longer of head and entry] */
    uint8_t *block; /* [block_bytes] of the block being read, or NULL */
    int32_t tokens[PREFIX_BLOCK_TOKENS_MAX];
    struct kv_entry entry;
};

struct kv_stream *kv_stream_new(const struct kv_stream_options *o)
{
    struct kv_stream *s = xcalloc(1, sizeof *s);
    ASSERT(o->from >= 0 && o->from < o->n_blocks);
    s->o = *o;
    s->next = o->from;
    s->entry_bytes = kv_entry_bytes(o->head.block_tokens);
    s->front = xmalloc(s->entry_bytes > KV_HEAD_BYTES ? s->entry_bytes : KV_HEAD_BYTES);
    return s;
}

void kv_stream_free(struct kv_stream *s)
{
    if (!s) return;
    mem_free(s->front);
    mem_free(s->block);
    mem_free(s);
}

int kv_stream_count(const struct kv_stream *s)
{
    return s->next - s->o.from;
}

bool kv_stream_whole(const struct kv_stream *s)
{
    return s->next == s->o.n_blocks && s->part == PART_ENTRY && !s->have;
}

static enum err end_head(struct kv_stream *s, struct errmsg *e)
{
    struct kv_head h;
    if (kv_head_read(s->front, KV_HEAD_BYTES, &h) != OK)
        return err_set(e, ERR_CORRUPT, "the head is damaged or of another version");
    s->part = PART_ENTRY;
    return kv_head_fits(&s->o.head, &h, e);
}

/* The block must be the very one asked for at this place: of this prompt, this adapter, this tenant. */
static enum err end_entry(struct kv_stream *s, struct errmsg *e)
{
    int bt = s->o.head.block_tokens;
    if (kv_entry_read(s->front, bt, s->next, s->tokens, &s->entry) != OK)
        return err_set(e, ERR_CORRUPT, "the entry of block %d is damaged", s->next);
    if (!hash_eq(s->entry.id, s->o.chain[s->next + 1]) ||
        !hash_eq(s->entry.parent, s->o.chain[s->next]) ||
        memcmp(s->tokens, s->o.tokens + (size_t)s->next * (size_t)bt, token_bytes(bt)) != 0)
        return err_set(e, ERR_CORRUPT, "block %d is not the one that was asked for", s->next);
    s->block = try_malloc(s->o.head.block_bytes);
    if (!s->block)
        return err_set(e, ERR_FULL, "no memory for a block of %llu bytes",
                       (unsigned long long)s->o.head.block_bytes);
    s->part = PART_BLOCK;
    return OK;
}

static enum err end_block(struct kv_stream *s, struct errmsg *e)
{
    uint8_t *block = s->block;
    if (kv_check(block, s->o.head.block_bytes) != s->entry.byte_check)
        return err_set(e, ERR_CORRUPT, "the bytes of block %d are damaged", s->next);
    s->block = NULL;
    s->part = PART_ENTRY;
    s->o.on_block(s->o.arg, s->next++, block);
    return OK;
}

/* Where the bytes of the current part go, and how many it has. */
static uint8_t *part_room(struct kv_stream *s, size_t *n)
{
    switch (s->part) {
    case PART_HEAD:
        *n = KV_HEAD_BYTES;
        return s->front;
    case PART_ENTRY:
        *n = s->entry_bytes;
        return s->front;
    case PART_BLOCK:
        break;
    }
    *n = s->o.head.block_bytes;
    return s->block;
}

static enum err end_part(struct kv_stream *s, struct errmsg *e)
{
    s->have = 0;
    if (s->part == PART_HEAD) return end_head(s, e);
    return s->part == PART_ENTRY ? end_entry(s, e) : end_block(s, e);
}

enum err kv_stream_feed(struct kv_stream *s, struct str bytes, struct errmsg *e)
{
    while (bytes.n) {
        if (s->part == PART_ENTRY && s->next == s->o.n_blocks)
            return err_set(e, ERR_TOO_LARGE, "more than the %d blocks that were asked for",
                           s->o.n_blocks - s->o.from);
        size_t whole;
        uint8_t *room = part_room(s, &whole);
        size_t n = whole - s->have < bytes.n ? whole - s->have : bytes.n;
        memcpy(room + s->have, bytes.p, n);
        bytes = str_sub(bytes, n, bytes.n);
        s->have += n;
        enum err code = s->have == whole ? end_part(s, e) : OK;
        if (code) return code;
    }
    return OK;
}
