/* attend_avx512.c - attend_body.h over sixteen lanes; blocks of 8 tokens and heads that are no multiple of 16 take the
 * eight-lane form. */
#include "engine/backend/cpu/cpu.h"
#include "engine/backend/cpu/simd_avx512.h"
#include "engine/backend/cpu/attend_body.h"

void attend_avx512(const struct attend *a)
{
    if (a->kv->lanes % VF_LANES || a->kv->head_dim % VF_LANES)
        attend_avx2(a);
    else
        attend_any(a);
}
