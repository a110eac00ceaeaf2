/* runtime.hpp - what runtime.cpp and runtime_device.cpp share. */
#ifndef DEJA_TESTS_CUDA_EMU_RUNTIME_HPP
#define DEJA_TESTS_CUDA_EMU_RUNTIME_HPP
#include "tests/cuda_emu/include/cuda_runtime.h"

namespace emu::runtime
{
enum { DEVICES_MAX = 16 };
/* Of the environment; NULL: not set, or empty. */
const char *setting(const char *name);
size_t all_bytes(); /* of a device's memory */
size_t pitch_max();
int n_devices(); /* -1: no driver */
/* e, which is this thread's last error unless it is none. */
cudaError_t result(cudaError_t e);
} // namespace emu::runtime

#endif
