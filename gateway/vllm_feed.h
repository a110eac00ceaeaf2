/* vllm_feed.h - follows the KV events of one vLLM or SGLang server (ZeroMQ, kv_events=tcp://host:port of its upstream line) into the prefix
 * index. Events are numbered: a gap is filled from the server's replay socket (kv_replay=), or everything of that server is forgotten;
 * so it is when the numbers begin anew or the connection is lost. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_VLLM_FEED_H
#define DEJA_GATEWAY_VLLM_FEED_H
#include "base/loop.h"
#include "cache/kv_names.h"

struct vllm_feed;
struct vllm_feed_options {
    struct loop *loop;
    const char *url;             /* for people */
    const char *events, *replay; /* tcp://host:port; replay "" = none */
    struct prefix_index *index;
    int pod;
    size_t blocks_max;
};
MUST enum err vllm_feed_open(struct vllm_feed **out, const struct vllm_feed_options *o,
                             struct errmsg *e);
void vllm_feed_close(struct vllm_feed *f); /* before the index. NULL is fine */
bool vllm_feed_live(const struct vllm_feed *f);
int vllm_feed_block_tokens(const struct vllm_feed *f); /* 0 = no block was told yet */
struct prefix_origin vllm_feed_origin(const struct vllm_feed *f);
uint64_t vllm_feed_batches(const struct vllm_feed *f);

#endif
