/* kv_layout.c - where everything lies inside one KV head's part of a block, for each form of storage; see kv_layout.h. */
#include "engine/backend/kv_layout.h"

#include <string.h>

const char *kv_type_name(enum kv_type t)
{
    static const char *const names[KV_TYPES] = {"f16", "int8", "k8v4"};
    ASSERT(t >= 0 && t < KV_TYPES);
    return names[t];
}

enum err kv_type_parse(const char *name, enum kv_type *out, struct errmsg *e)
{
    *out = KV_F16;
    if (!strcmp(name, "auto")) return OK;
    for (int t = 0; t < KV_TYPES; t++)
        if (!strcmp(name, kv_type_name((enum kv_type)t))) {
            *out = (enum kv_type)t;
            return OK;
        }
    return err_set(e, ERR_INVALID, "KV type \"%.20s\": auto, f16, int8 and k8v4 are known", name);
}

static enum kv_format format_of(enum kv_type t, bool exact)
{
    ASSERT(!exact || t == KV_F16);
    return exact          ? KV_FORMAT_F32
           : t == KV_F16  ? KV_FORMAT_F16
           : t == KV_INT8 ? KV_FORMAT_INT8
                          : KV_FORMAT_K8V4;
}

static size_t groups_of(int head_dim)
{
    return ((size_t)head_dim + KV_V4_GROUP - 1) / KV_V4_GROUP;
}

/* What a token's K, V and scales take in one head. */
static size_t token_bytes(enum kv_format f, int head_dim)
{
    size_t n = (size_t)head_dim;
    switch (f) {
    case KV_FORMAT_F32:
        return 8 * n;
    case KV_FORMAT_F16:
        return 4 * n;
    case KV_FORMAT_INT8:
        return 2 * n + 4;
    case KV_FORMAT_K8V4:
        return n + 2 + kv_v4_row_bytes(head_dim) + 4 * groups_of(head_dim);
    }
    ASSERT(!"KV format");
    return 0;
}

size_t kv_bytes_per_token(enum kv_type t, bool exact, int n_layers, int n_kv_heads, int head_dim)
{
    return (size_t)n_layers * (size_t)n_kv_heads * token_bytes(format_of(t, exact), head_dim);
}

static void add_plane(struct kv_layout *l, size_t *at, size_t rows, size_t unit, size_t tokens)
{
    ASSERT(l->n_planes < KV_PLANES_MAX);
    *at = l->head_bytes;
    l->plane[l->n_planes++] = (struct kv_plane){l->head_bytes, rows, unit, unit * tokens};
    l->head_bytes += rows * unit * tokens;
}

void kv_layout_init(struct kv_layout *l, enum kv_type t, bool exact, int head_dim, int block_tokens)
{
    *l = (struct kv_layout){.format = format_of(t, exact),
                            .head_dim = head_dim,
                            .block_tokens = block_tokens,
                            .lanes = (block_tokens + 7) / 8 * 8};
    size_t n = (size_t)head_dim, lanes = (size_t)l->lanes, tokens = (size_t)block_tokens, k;
    if (l->format == KV_FORMAT_F32 || l->format == KV_FORMAT_F16) {
        size_t element = l->format == KV_FORMAT_F32 ? 4 : 2;
        add_plane(l, &k, n, element, lanes);
        add_plane(l, &l->v_at, 1, n * element, tokens);
        return;
    }
    bool v4 = l->format == KV_FORMAT_K8V4;
    add_plane(l, &k, n / 4, 4, lanes);
    add_plane(l, &l->v_at, 1, v4 ? kv_v4_row_bytes(head_dim) : n, tokens);
    add_plane(l, &l->k_scale_at, 1, 2, lanes);
    add_plane(l, &l->v_scale_at, v4 ? groups_of(head_dim) : 1, 2, lanes);
    if (v4) add_plane(l, &l->v_min_at, groups_of(head_dim), 2, lanes);
}
