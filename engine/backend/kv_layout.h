/* kv_layout.h - where everything lies inside one KV head's part of a block. lanes = block_tokens rounded up to 8; tokens lie side
 * by side in K, so that scores need no horizontal sums. Private to the backend. Pure; any thread.
 *   f32, f16  K [head_dim][lanes], V [block_tokens][head_dim]
 *   int8      K s8 [head_dim/4][lanes][4], V s8 [block_tokens][head_dim], scales of K and V f16 [lanes] each
 *   k8v4      K as int8, V nibbles [block_tokens][kv_v4_row_bytes], scale of K f16 [lanes], scale and minimum of V
 *             f16 [groups of 32 dims][lanes] each; v = nibble * scale + minimum. Of every 16 dimensions, 0..7 are the low and
 *             8..15 the high nibbles of 8 bytes.
 * A plane is one of these arrays: `rows` rows, in each of which a token has `unit` adjacent bytes. */
#ifndef DEJA_ENGINE_BACKEND_KV_LAYOUT_H
#define DEJA_ENGINE_BACKEND_KV_LAYOUT_H
#include "engine/backend/kv_type.h"

enum { KV_V4_GROUP = 32, KV_PLANES_MAX = 5 };
enum kv_format { KV_FORMAT_F32, KV_FORMAT_F16, KV_FORMAT_INT8, KV_FORMAT_K8V4 };

struct kv_plane {
    size_t at, rows, unit, row_bytes;
};
struct kv_layout {
    enum kv_format format;
    int head_dim, block_tokens, lanes;
    size_t v_at, k_scale_at, v_scale_at, v_min_at; /* bytes from the head's start; K is at 0 */
    size_t head_bytes;
    int n_planes;
    struct kv_plane plane[KV_PLANES_MAX];
};

/* exact: float32, with KV_F16 only. head_dim is a multiple of 8. */
void kv_layout_init(struct kv_layout *l, enum kv_type t, bool exact, int head_dim,
                    int block_tokens);

static inline size_t kv_v4_row_bytes(int head_dim)
{
    return ((size_t)head_dim + 15) / 16 * 8;
}
static inline bool kv_format_has_int8_k(enum kv_format f)
{
    return f == KV_FORMAT_INT8 || f == KV_FORMAT_K8V4;
}

#endif
