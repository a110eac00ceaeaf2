/* fuzz_kv_wire.c - any bytes as an ask for KV blocks, and as the answer to one, in two pieces: refused or read inside their bounds; what
 * is shown of an answer is what was asked for; and an answer that is whole but for the bytes fuzzed into it shows nothing of those. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "engine/kv_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { BT = 4, BLOCK_BYTES = 96, BLOCKS = 3 };

static const struct prefix_origin origin = {.seed = 7, .root = {1, 2}};
static int32_t tokens[BT * BLOCKS];
static struct hash128 chain[BLOCKS + 1];
static uint8_t blocks[BLOCKS][BLOCK_BYTES];
static int shown;

static struct kv_head head(void)
{
    struct kv_head h = {.block_tokens = BT, .block_bytes = BLOCK_BYTES, .root = origin.root};
    memcpy(h.format, "fuzz", 4);
    return h;
}

static void on_block(void *arg, int index, void *got)
{
    (void)arg;
    ASSERT(index == shown++ && !memcmp(got, blocks[index], BLOCK_BYTES));
    mem_free(got);
}

static void asks(const uint8_t *bytes, size_t n)
{
    struct kv_ask ask, again;
    uint8_t *copy = xmalloc(n ? n : 1); /* exact, so that the sanitizer watches its end */
    memcpy(copy, bytes, n);
    if (kv_ask_read((struct str){(char *)copy, n}, &ask, NULL) == OK) {
        struct buf out;
        buf_init(&out, n + KV_HEAD_BYTES);
        kv_ask_write(&ask, &out);
        ASSERT(kv_ask_read(buf_view(&out), &again, NULL) == OK && again.n_tokens == ask.n_tokens);
        buf_fini(&out);
    }
    mem_free(copy);
}

static size_t whole_answer(uint8_t *out)
{
    struct kv_head h = head();
    size_t at = KV_HEAD_BYTES;
    kv_head_write(&h, out);
    for (int i = 0; i < BLOCKS; i++) {
        struct block_name name = {chain[i + 1], chain[i], tokens + (size_t)i * BT};
        kv_record_write(&h, i, &name, blocks[i], out + at);
        at += kv_entry_bytes(BT);
        memcpy(out + at, blocks[i], BLOCK_BYTES);
        at += BLOCK_BYTES;
    }
    return at;
}

static void answers(const uint8_t *bytes, size_t n, size_t cut)
{
    struct kv_stream_options o = {
        .head = head(), .n_blocks = BLOCKS, .chain = chain, .tokens = tokens, .on_block = on_block};
    struct kv_stream *s = kv_stream_new(&o);
    struct errmsg e = {0};
    shown = 0;
    enum err code = kv_stream_feed(s, (struct str){(const char *)bytes, cut}, &e);
    if (!code) code = kv_stream_feed(s, (struct str){(const char *)bytes + cut, n - cut}, &e);
    ASSERT(kv_stream_count(s) == shown && (!kv_stream_whole(s) || (shown == BLOCKS && !code)));
    kv_stream_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    uint8_t answer[KV_HEAD_BYTES + BLOCKS * (1024 + BLOCK_BYTES)];
    if (!chain[0].lo) {
        for (int i = 0; i < BT * BLOCKS; i++)
            tokens[i] = i * 31;
        for (int i = 0; i < BLOCKS; i++)
            memset(blocks[i], 'a' + i, BLOCK_BYTES);
        chain[0] = prefix_hash_start(&origin);
        (void)prefix_hash_chain(&origin, BT, tokens, (size_t)BT * BLOCKS, chain + 1, BLOCKS);
    }
    asks(bytes, n);
    answers(bytes, n, n ? bytes[0] % n : 0);
    if (n < 3) return 0;
    size_t whole = whole_answer(answer), at = (bytes[0] * 256u + bytes[1]) % whole;
    for (size_t i = 2; i < n && at + i - 2 < whole; i++)
        answer[at + i - 2] ^= bytes[i];
    answers(answer, whole, at);
    return 0;
}
