/* fuzz_kv_file.c - any bytes as the index of the disk tier: refused or read inside their bounds, and what is written is read back. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "engine/kv_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void entries(const uint8_t *bytes, size_t n, int block_tokens)
{
    size_t size = kv_entry_bytes(block_tokens);
    int32_t *tokens = xcalloc((size_t)block_tokens, sizeof *tokens);
    uint8_t *one = xmalloc(size); /* exact, so that the sanitizer watches its end */
    struct kv_entry e;
    for (size_t i = 0; (i + 1) * size <= n && i < 64; i++) {
        memcpy(one, bytes + i * size, size);
        if (kv_entry_read(one, block_tokens, (int)i, tokens, &e) != OK) {
            /* give it the check it lacks: a whole entry must survive the way back */
            e = (struct kv_entry){{1, 2}, {3, 4}, 5, 6, tokens};
            kv_entry_write(&e, block_tokens, (int)i, one);
            ASSERT(kv_entry_read(one, block_tokens, (int)i, tokens, &e) == OK);
            ASSERT(e.stamp == 5 && e.id.lo == 2);
        }
        ASSERT(kv_entry_read(one, block_tokens, (int)i + 1, tokens, &e) == ERR_CORRUPT);
    }
    mem_free(tokens);
    mem_free(one);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct kv_head h;
    uint8_t *copy = xmalloc(n ? n : 1);
    memcpy(copy, bytes, n);
    if (kv_head_read(copy, n, &h) == OK) {
        uint8_t out[KV_HEAD_BYTES];
        struct kv_head back;
        kv_head_write(&h, out);
        ASSERT(kv_head_read(out, sizeof out, &back) == OK && kv_head_same(&h, &back));
        entries(copy + KV_HEAD_BYTES, n - KV_HEAD_BYTES, h.block_tokens);
    }
    if (n) entries(copy + 1, n - 1, copy[0] + 1);
    mem_free(copy);
    return 0;
}
