/* kv_file.h - the format of the disk tier, without I/O. Two files: the index is a head of KV_HEAD_BYTES, then one entry a slot; the
 * other has
 * the blocks, slot after slot. The head says what the blocks are computed with, an entry which tokens its block holds and what its bytes
 * add up to. Everything is checked; what does not fit is as good as not there. Numbers in the machine's own order: another order
 * fails the check. Pure. Threading: any. */
#ifndef DEJA_ENGINE_KV_FILE_H
#define DEJA_ENGINE_KV_FILE_H
#include "engine/sched/prefix_cache.h"

enum { KV_HEAD_BYTES = 4096, KV_FORMAT_MAX = 64 };

struct kv_head {
    int block_tokens;
    uint64_t block_bytes;
    uint64_t seed;       /* keys the identities in this file: as secret as the prompts in it */
    struct hash128 root; /* the model file */
    char format[KV_FORMAT_MAX]; /* how keys and values are laid out and computed; zero-filled */
};
struct kv_entry {
    struct hash128 id, parent;
    uint64_t stamp;        /* larger = used later */
    uint64_t byte_check;   /* kv_check of the block */
    const int32_t *tokens; /* [block_tokens] */
};

void kv_head_write(const struct kv_head *h, uint8_t out[KV_HEAD_BYTES]);
/* ERR_CORRUPT: no such head, a damaged one, or of another version. */
MUST enum err kv_head_read(const uint8_t *bytes, size_t n, struct kv_head *out);
bool kv_head_same(const struct kv_head *a, const struct kv_head *b); /* but for the seed */

size_t kv_entry_bytes(int block_tokens);
void kv_entry_write(const struct kv_entry *e, int block_tokens, int slot, uint8_t *out);
/* bytes[kv_entry_bytes]. tokens[block_tokens] is the caller's; out->tokens points there. ERR_NOT_FOUND: the slot is empty. ERR_CORRUPT:
 * damaged,
 * or another slot's. */
MUST enum err kv_entry_read(const uint8_t *bytes, int block_tokens, int slot, int32_t *tokens,
                            struct kv_entry *out);
uint64_t kv_check(const void *bytes, size_t n);

#endif
