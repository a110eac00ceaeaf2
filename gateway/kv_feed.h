/* kv_feed.h - follows one engine: how it names its KV blocks, its tokenizer, and which blocks it holds, into a prefix index. A lost
 * stream forgets the engine's blocks at once and begins anew; so does a gap or another incarnation. Servers that are no engine of ours
 * (404, 403) are asked again now and then. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_KV_FEED_H
#define DEJA_GATEWAY_KV_FEED_H
#include "base/http_client.h"
#include "base/prefix_hash.h"
#include "base/workers.h"
#include "cache/prefix_index.h"
#include "gateway/prompt_reader.h"

struct kv_feed;
struct kv_feed_options {
    struct loop *loop;
    struct workers *workers; /* tokenizers are made there */
    struct http_client *client;
    struct http_origin origin;
    const char *url, *key; /* for people; x-deja-key, may be "" */
    struct prefix_index *index;
    int pod; /* its number there */
    /* The reader of the model file called root, from anybody who has it; NULL: it must be fetched. May be NULL. */
    struct prompt_reader *(*known_reader)(void *arg, struct hash128 root);
    /* It has said what it is (kv_feed_naming). May be NULL. */
    void (*named)(void *arg, int pod);
    void *arg;
};
enum { KV_FEED_MODELS_MAX = 17 };
enum kv_role { KV_ROLE_BOTH, KV_ROLE_PREFILL, KV_ROLE_DECODE }; /* docs/disaggregation.md */
/* What an engine says of its names. */
struct kv_naming {
    uint64_t incarnation, seed;
    struct hash128 root;
    int block_tokens, n_models;
    bool tools_in_words, salted;
    enum kv_role role;
    char kv_format[64]; /* of what it keeps; blocks pass between engines of one format only */
    struct {
        char id[256];
        struct hash128 adapter;
    } models[KV_FEED_MODELS_MAX];
};
/* ERR_INVALID: not what an engine says. */
MUST enum err kv_naming_read(struct kv_naming *out, struct str json, struct errmsg *e);
/* The events of one frame, {"number":n,"reset":b,"changes":["+0HEX",..]}, into the index. ERR_INVALID: malformed, partly applied. */
MUST enum err kv_frame_apply(struct prefix_index *x, int pod, uint64_t incarnation, struct str json,
                             uint64_t *number, size_t *n_changes);

struct kv_feed *kv_feed_open(const struct kv_feed_options *o);
void kv_feed_close(
    struct kv_feed *f); /* after the HTTP client's end, before the index. NULL is fine */

bool kv_feed_live(const struct kv_feed *f);                      /* events are coming */
const struct kv_naming *kv_feed_naming(const struct kv_feed *f); /* NULL: not known */
struct prompt_reader *kv_feed_reader(const struct kv_feed *f);   /* borrowed; NULL: not known */
/* The model's adapter; false: this engine does not serve it. */
bool kv_feed_serves(const struct kv_feed *f, struct str model, struct hash128 *adapter);
uint64_t kv_feed_changes(const struct kv_feed *f); /* applied so far */

#endif
