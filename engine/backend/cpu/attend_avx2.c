/* attend_avx2.c - attend_body.h over eight lanes. */
#include "engine/backend/cpu/cpu.h"
#include "engine/backend/cpu/simd_avx2.h"
#include "engine/backend/cpu/attend_body.h"

void attend_avx2(const struct attend *a)
{
    attend_any(a);
}
