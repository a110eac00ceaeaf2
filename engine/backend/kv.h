/* kv.h - the inside of struct kv, for kv.c and attention.c. Private to the backend. */
#ifndef DEJA_ENGINE_BACKEND_KV_H
#define DEJA_ENGINE_BACKEND_KV_H
#include "engine/backend/room.h"

enum { KV_SLACK_BYTES = 64 }; /* kernels load whole vectors; the last one may look past the end */

struct kv {
    struct kv_options o;
    struct kv_layout layout; /* of one head in one block */
    size_t block_bytes, layer_bytes, bytes;
    uint8_t *p;
    struct backend *be;
    void *device; /* on an accelerator: its own, and p is NULL */
};

uint8_t *kv_head(const struct kv *kv, int layer, int block, int head);

#endif
