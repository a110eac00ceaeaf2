/* runtime_device.cpp - what the emulation says of its devices: how many, what they can do, shared memory of a block. The environment has a
 * say (include/cuda_runtime.h). Threading: any. */
#include <climits>
#include <cstdlib>
#include <map>
#include <mutex>

#include "tests/cuda_emu/runtime.hpp"

using namespace emu::runtime;

namespace emu::runtime
{
enum : size_t { DEVICE_BYTES = 1u << 30 };
const char *setting(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : nullptr;
}
size_t all_bytes()
{
    const char *v = setting("CUDA_EMU_BYTES");
    return v ? strtoull(v, nullptr, 10) : (size_t)DEVICE_BYTES;
}
size_t pitch_max()
{
    const char *v = setting("CUDA_EMU_PITCH");
    return v ? strtoull(v, nullptr, 10) : (size_t)INT_MAX;
}
} // namespace emu::runtime

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidPitchValue:
        return "invalid pitch argument";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    case cudaErrorNoKernelImageForDevice:
        return "no kernel image is available for execution on the device";
    default:
        return "invalid argument";
    }
}
int emu::runtime::n_devices()
{
    const char *v = setting("CUDA_EMU_DEVICES");
    return v ? atoi(v) : 1;
}
cudaError_t cudaGetDeviceCount(int *n)
{
    *n = n_devices() < 0 ? 0 : n_devices();
    return n_devices() < 0 ? result(cudaErrorInsufficientDriver) : cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = n_devices() == -1 ? 0 : n_devices() == -2 ? 11080 : CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cuda_emu_kernels_fit()
{
    return setting("CUDA_EMU_NO_KERNELS") ? cudaErrorNoKernelImageForDevice : cudaSuccess;
}
/* CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": dynamic shared memory of a block at most. */
static int shared_most(int major, int minor)
{
    if (major == 7) return 64 << 10;
    if (major == 8) return (minor == 0 || minor == 7 ? 163 : 99) << 10;
    return major == 12 ? 99 << 10 : emu::SHARED_BYTES;
}
static std::mutex lock;
using guard = std::lock_guard<std::mutex>;
static std::map<const void *, size_t> granted; /* under lock */
cudaError_t cuda_emu_grant_shared(const void *kernel, int bytes)
{
    cudaDeviceProp p;
    int device;
    cudaGetDevice(&device);
    cudaGetDeviceProperties(&p, device);
    guard g(lock);
    if (bytes < 0 || (size_t)bytes > p.sharedMemPerBlockOptin) return result(cudaErrorInvalidValue);
    granted[kernel] = (size_t)bytes;
    return cudaSuccess;
}
bool cuda_emu_shared_fits(const void *kernel, size_t bytes)
{
    guard g(lock);
    auto found = granted.find(kernel);
    bool fits = bytes <= 48 << 10 || (found != granted.end() && bytes <= found->second);
    if (!fits) result(cudaErrorInvalidValue);
    return fits;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
    memset(p, 0, sizeof *p);
    strcpy(p->name, "emulation");
    p->totalGlobalMem = all_bytes();
    p->memPitch = pitch_max();
    p->major = 9;
    if (const char *v = setting("CUDA_EMU_CAPABILITY")) sscanf(v, "%d.%d", &p->major, &p->minor);
    p->sharedMemPerBlockOptin = (size_t)shared_most(p->major, p->minor);
    p->multiProcessorCount = 4;
    p->warpSize = emu::WARP;
    return cudaSuccess;
}
