/* act_value.cuh - one activation on its way into a matrix: what norm or gate makes of it. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_ACT_VALUE_CUH
#define DEJA_ENGINE_BACKEND_CUDA_ACT_VALUE_CUH
#include "engine/backend/cuda/device.cuh"
#include "engine/backend/cuda/launch.h"

/* x[at + i]; factor: of the row's norm. */
DEVICE float act_value(const struct act_args &a, size_t at, int i, float factor)
{
    float x = a.x[at + (size_t)i];
    switch (a.in) {
    case ACT_RMSNORM:
        return x * factor * a.norm[i];
    case ACT_SILU_MUL:
        return x / (1.0f + __expf(-x)) * a.x2[at + (size_t)i];
    case ACT_GELU_MUL: {
        float inner = 0.7978845608f * (x + 0.044715f * x * x * x);
        return 0.5f * x * (1.0f + tanhf(inner)) * a.x2[at + (size_t)i];
    }
    case ACT_GELU:
        return 0.5f * x * (1.0f + erff(x * 0.7071067812f));
    default:
        return x;
    }
}

#endif
