/* pack.h - a matrix as the GPU reads it: the runs of 32 weights of a GGUF row taken apart into planes, so that neighbouring lanes load
 * neighbouring 16-byte words. Row after row, n_runs = n_in / 32 runs a row:
 *   q      4-, 5-, 6-bit types: 16 bytes a run, byte i = element i | element i + 16 << 4; Q8_0: 32 signed bytes
 *   high   5 bit: 32 bits, bit e = fifth bit of element e; 6 bit: 8 bytes, byte g = two bits of elements 4g..4g+3
 *   scale  Q4_0, Q5_0, Q8_0: f16 d; Q4_1, Q5_1: f16 d, f16 m; K types: 2 bytes (Q4_K, Q5_K: sc, min; Q6_K: two signed)
 *   super  K types, a run of 8: f16 d, f16 dmin (Q6_K: 0)
 * F32, F16, BF16: q holds the row as it is. Planes start at multiples of 256 bytes.
 * Pure; any thread. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_PACK_H
#define DEJA_ENGINE_BACKEND_CUDA_PACK_H
#ifdef __cplusplus
extern "C" {
#endif
#include "engine/backend/quant.h"

struct pack_layout {
    enum tensor_type type;
    int n_out, n_in, n_runs; /* n_runs 0 for float types */
    int q_bytes, high_bytes, scale_bytes,
        super_bytes; /* of a run; super: of 8 runs; float types: q_bytes of an element */
    size_t high_at, scale_at, super_at, bytes;
};
/* ERR_UNSUPPORTED: n_in is no multiple of the type's block. */
MUST enum err pack_layout_of(enum tensor_type t, int n_out, int n_in, struct pack_layout *out,
                             struct errmsg *e);
/* rows: n_out rows as in the file; to: layout->bytes bytes, zeroed by this call where nothing is stored. */
void pack_rows(const struct pack_layout *l, const void *rows, uint8_t *to);

#ifdef __cplusplus
}
#endif
#endif
