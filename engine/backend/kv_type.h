/* kv_type.h - in what form the KV cache keeps K and V, and what a token costs then. Pure; any thread.
 * int8: one float16 scale a token and head. k8v4: K as int8; V in 4 bits with a float16 scale and minimum for every 32
 * dimensions of a head. Scales per token and head: the idea is that of LMDeploy's documented INT8/INT4 KV cache. */
#ifndef DEJA_ENGINE_BACKEND_KV_TYPE_H
#define DEJA_ENGINE_BACKEND_KV_TYPE_H
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum kv_type { KV_F16, KV_INT8, KV_K8V4, KV_TYPES };

const char *kv_type_name(enum kv_type t); /* "f16", "int8", "k8v4" */
/* "auto" is f16. ERR_INVALID names the known ones. */
MUST enum err kv_type_parse(const char *name, enum kv_type *out, struct errmsg *e);
/* Bytes one token takes, all layers; exact: float32 (KV_F16 only). */
size_t kv_bytes_per_token(enum kv_type t, bool exact, int n_layers, int n_kv_heads, int head_dim);

#endif
