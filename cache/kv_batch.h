/* kv_batch.h - reads the KV event batches that vLLM and SGLang publish: MessagePack, [time, events, rank], events as arrays with the tag
 * first (trailing defaults left out) or as maps with a "type". Block hashes are integers or byte strings, which are folded to their last
 * 8 bytes. What cannot be matched with a prompt of plain text (LoRA, further keys) is marked. Unknown events and fields are passed over.
 * Pure; allocates what one event needs, which is bounded by its bytes. */
#ifndef DEJA_CACHE_KV_BATCH_H
#define DEJA_CACHE_KV_BATCH_H
#include "cache/prefix_index.h"

enum kv_event_kind { KV_EVENT_STORED, KV_EVENT_REMOVED, KV_EVENT_CLEARED };
struct kv_event {
    enum kv_event_kind kind;
    const uint64_t *hashes; /* the engine's own names */
    size_t n_hashes;
    bool has_parent, plain; /* plain: neither LoRA nor keys beside the tokens */
    uint64_t parent;
    const int32_t *tokens; /* of all blocks, or fewer: offload tiers may tell none */
    size_t n_tokens;
    int block_tokens;      /* 0 = not said */
    enum prefix_tier tier; /* of its medium; GPU when none is named */
    int group, rank;
};
/* on_event for each known event, in order; what it points to lasts until it returns. ERR_CORRUPT: no such batch (what came before the
 * damage has been told). */
MUST enum err kv_batch_read(struct str payload,
                            void (*on_event)(void *arg, const struct kv_event *ev), void *arg);

#endif
