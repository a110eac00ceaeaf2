/* kv_wire.h - KV blocks on their way from one engine to another, in the disk tier's format (kv_file.h), without I/O. The one that wants
 * blocks sends an ask: a head that says what it computes with, whose prompt it is, and the tokens. The other answers with its own head,
 * then a record a block, in order: an entry, whose slot is the block's number in the prompt, and the block's bytes. Both sides read
 * foreign bytes: every length is bounded before anything is kept, every record is checked before it is shown.
 * The head's seed stays 0 on the wire; that both name blocks alike shows in `start`. Pure. Threading: none. */
#ifndef DEJA_ENGINE_KV_WIRE_H
#define DEJA_ENGINE_KV_WIRE_H
#include "base/buf.h"
#include "engine/kv_file.h"

enum { KV_ASK_TOKENS_MAX = 1 << 20 };

struct kv_ask {
    struct kv_head head;
    struct prefix_scope scope; /* whose blocks: adapter and tenant's salt */
    struct hash128 start;      /* where the asker's chain begins (prefix_hash_start) */
    int from;                  /* blocks before this one are not wanted */
    int n_tokens;              /* a whole number of blocks, more than from */
    bool batch;                /* may wait for clients of the online class */
    const uint8_t *tokens;     /* [n_tokens] int32, not aligned; borrowed */
};
void kv_ask_write(const struct kv_ask *ask, struct buf *out);
/* out->tokens points into bytes. ERR_CORRUPT, ERR_RANGE, with a sentence. */
MUST enum err kv_ask_read(struct str bytes, struct kv_ask *out, struct errmsg *e);

/* ERR_UNSUPPORTED: blocks computed under theirs are of no use under own; e says why. */
MUST enum err kv_head_fits(const struct kv_head *own, const struct kv_head *theirs,
                           struct errmsg *e);

/* What precedes a block's bytes. out[kv_entry_bytes]. */
void kv_record_write(const struct kv_head *h, int index, const struct block_name *name,
                     const void *bytes, uint8_t *out);

/* Reads an answer as it comes, in pieces of any size. */
struct kv_stream;
struct kv_stream_options {
    struct kv_head head; /* what must come */
    int from, n_blocks;  /* blocks from..n_blocks-1 */
    const struct hash128
        *chain; /* [n_blocks + 1] where the chain starts, then each block's identity; borrowed */
    const int32_t *tokens; /* [n_blocks * block_tokens] borrowed */
    /* A block that is what it should be: number index, bytes[block_bytes] are the callee's (mem_free). */
    void (*on_block)(void *arg, int index, void *bytes);
    void *arg;
};
struct kv_stream *kv_stream_new(const struct kv_stream_options *o);
void kv_stream_free(struct kv_stream *s); /* NULL is fine */
/* ERR_CORRUPT, ERR_UNSUPPORTED (another kind of blocks), ERR_TOO_LARGE (more than were asked for), ERR_FULL (no memory), with a sentence;
 * nothing more may be fed then. */
MUST enum err kv_stream_feed(struct kv_stream *s, struct str bytes, struct errmsg *e);
int kv_stream_count(const struct kv_stream *s);  /* blocks shown so far */
bool kv_stream_whole(const struct kv_stream *s); /* all have come, and nothing of another */

#endif
