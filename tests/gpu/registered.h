/* registered.h - the accelerator a program of tests/gpu was linked with. */
#ifndef DEJA_TESTS_GPU_REGISTERED_H
#define DEJA_TESTS_GPU_REGISTERED_H
#include "engine/backend/cuda/device.h"
#include "engine/backend/device.h"

static inline void register_device(void)
{
    backend_register(&cuda_device);
}

#endif
