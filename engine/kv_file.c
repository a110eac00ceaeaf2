/* kv_file.c - see kv_file.h. */
#include "engine/kv_file.h"

#include <string.h>

enum { VERSION = 1 };

struct head_bytes {
    char magic[8];
    uint32_t version, block_tokens;
    uint64_t block_bytes, seed;
    struct hash128 root;
    char format[KV_FORMAT_MAX];
    uint64_t check;
};
struct entry_bytes { /* then the tokens, then a check */
    struct hash128 id, parent;
    uint64_t stamp, byte_check;
};

static const char magic[8] = "dejakv\r\n";

uint64_t kv_check(const void *bytes, size_t n)
{
    return hash_bytes(0x6b76, (struct str){bytes, n}).lo;
}

void kv_head_write(const struct kv_head *h, uint8_t out[KV_HEAD_BYTES])
{
    struct head_bytes b = {.version = VERSION,
                           .block_tokens = (uint32_t)h->block_tokens,
                           .block_bytes = h->block_bytes,
                           .seed = h->seed,
                           .root = h->root};
    memcpy(b.magic, magic, sizeof magic);
    memcpy(b.format, h->format, sizeof b.format);
    b.check = kv_check(&b, offsetof(struct head_bytes, check));
    memset(out, 0, KV_HEAD_BYTES);
    memcpy(out, &b, sizeof b);
}

enum err kv_head_read(const uint8_t *bytes, size_t n, struct kv_head *out)
{
    struct head_bytes b;
    if (n < KV_HEAD_BYTES) return ERR_CORRUPT;
    memcpy(&b, bytes, sizeof b);
    if (memcmp(b.magic, magic, sizeof magic) || b.version != VERSION ||
        b.check != kv_check(&b, offsetof(struct head_bytes, check)))
        return ERR_CORRUPT;
    if (!b.block_tokens || b.block_tokens > PREFIX_BLOCK_TOKENS_MAX || !b.block_bytes)
        return ERR_CORRUPT;
    *out = (struct kv_head){.block_tokens = (int)b.block_tokens,
                            .block_bytes = b.block_bytes,
                            .seed = b.seed,
                            .root = b.root};
    memcpy(out->format, b.format, sizeof out->format);
    return OK;
}

bool kv_head_same(const struct kv_head *a, const struct kv_head *b)
{
    return a->block_tokens == b->block_tokens && a->block_bytes == b->block_bytes &&
           hash_eq(a->root, b->root) && !memcmp(a->format, b->format, sizeof a->format);
}

static size_t token_bytes(int block_tokens)
{
    return (size_t)block_tokens * sizeof(int32_t);
}

size_t kv_entry_bytes(int block_tokens)
{
    ASSERT(block_tokens > 0 && block_tokens <= PREFIX_BLOCK_TOKENS_MAX);
    return sizeof(struct entry_bytes) + token_bytes(block_tokens) + sizeof(uint64_t);
}

/* The slot's number counts: an entry that was copied to another slot does not fit there. */
static uint64_t entry_check(const uint8_t *bytes, int block_tokens, int slot)
{
    size_t n = kv_entry_bytes(block_tokens) - sizeof(uint64_t);
    return hash_bytes((uint64_t)slot + 1, (struct str){(const char *)bytes, n}).lo;
}

void kv_entry_write(const struct kv_entry *e, int block_tokens, int slot, uint8_t *out)
{
    struct entry_bytes b = {e->id, e->parent, e->stamp, e->byte_check};
    memcpy(out, &b, sizeof b);
    memcpy(out + sizeof b, e->tokens, token_bytes(block_tokens));
    uint64_t check = entry_check(out, block_tokens, slot);
    memcpy(out + sizeof b + token_bytes(block_tokens), &check, sizeof check);
}

enum err kv_entry_read(const uint8_t *bytes, int block_tokens, int slot, int32_t *tokens,
                       struct kv_entry *out)
{
    struct entry_bytes b;
    uint64_t check;
    memcpy(&b, bytes, sizeof b);
    memcpy(&check, bytes + sizeof b + token_bytes(block_tokens), sizeof check);
    if (!check && !b.stamp) return ERR_NOT_FOUND;
    if (check != entry_check(bytes, block_tokens, slot)) return ERR_CORRUPT;
    memcpy(tokens, bytes + sizeof b, token_bytes(block_tokens));
    *out = (struct kv_entry){b.id, b.parent, b.stamp, b.byte_check, tokens};
    return OK;
}
