/* cuda_runtime.h - the host side of CUDA for the emulation: found before NVIDIA's header when a .cu file is compiled by g++.
 * Streams are queues: nothing runs before somebody waits, so a host that reads a result, or reuses a buffer, too early shows.
 * A copy to pageable memory behind work that waits for another thread's is refused: the driver would wait for it without a bound. So does
 * cudaFree, for every device of a group: who frees while another's sum waits for him is told that streams wait for what nobody records.
 * While a thread records a stream it may neither allocate, free nor wait.
 * Events order streams; graphs record what a stream would have got. Under AddressSanitizer device memory is poisoned while the
 * host runs: touching it there is reported with file and line.
 * What can go wrong with a device is made to go wrong by the environment: CUDA_EMU_DEVICES (how many; 0 = none, -1 = no driver, -2 = one of
 * CUDA 11.8), CUDA_EMU_CAPABILITY ("7.5"; shared memory of a block is as there), CUDA_EMU_NO_KERNELS (1 = built for another architecture),
 * CUDA_EMU_BYTES (memory), CUDA_EMU_PITCH (bytes from row to row that a copy of rows takes, 2^31 - 1), CUDA_EMU_LOSE_AFTER (kernels; then
 * the device is lost, of CUDA_EMU_LOSE_DEVICE, 0 by itself), CUDA_EMU_NO_KERNELS_RUN (1: kernels are enqueued and left out, to measure the
 * host alone).
 * There may be several devices: each thread has a current one, memory and streams belong to one, a stream is only given work while its
 * device is current, and while work of one device runs the memory of the others stays poisoned.
 * Only what Deja uses, with CUDA's names and meanings (CUDA runtime API reference). Threading: any; one thread at a time runs what streams
 * hold, all streams' in turn, and who waits for a stream that waits for another thread's work lets that one in. */
#ifndef DEJA_TESTS_CUDA_EMU_CUDA_RUNTIME_H
#define DEJA_TESTS_CUDA_EMU_CUDA_RUNTIME_H
#include <memory>
#define CUDART_VERSION 13000

#include "tests/cuda_emu/emu_tma.hpp"

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidPitchValue = 12,
    cudaErrorNotReady = 600,
    cudaErrorNoDevice = 100,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorLaunchFailure = 719
};
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaHostAllocDefault = 0 };

struct emu_stream;
struct emu_event;
struct emu_graph;
typedef emu_stream *cudaStream_t;
typedef emu_event *cudaEvent_t;
typedef emu_graph *cudaGraph_t;
typedef emu_graph *cudaGraphExec_t;

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlockOptin, memPitch;
    int major, minor, multiProcessorCount, warpSize;
};

const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaSetDevice(int i);
cudaError_t cudaGetDevice(int *i);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int i);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);
cudaError_t cudaDeviceSynchronize();

cudaError_t cudaMalloc(void **p, size_t bytes);
template <class T> static inline cudaError_t cudaMalloc(T **p, size_t bytes)
{
    return cudaMalloc((void **)p, bytes);
}
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocHost(void **p, size_t bytes);
template <class T> static inline cudaError_t cudaMallocHost(T **p, size_t bytes)
{
    return cudaMallocHost((void **)p, bytes);
}
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s = nullptr);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t s = nullptr);
cudaError_t cudaMemset(void *p, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s = nullptr);

cudaError_t cudaStreamCreate(cudaStream_t *s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags = 0);
cudaError_t cudaEventCreate(cudaEvent_t *e);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x);
struct cudaFuncAttributes {
    int numRegs;
};
cudaError_t cuda_emu_kernels_fit();
template <class F> static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, F)
{
    a->numRegs = 0;
    return cuda_emu_kernels_fit();
}
/* Grants a kernel so many bytes of dynamic shared memory, of what a block of the current device may have. */
cudaError_t cuda_emu_grant_shared(const void *kernel, int bytes);
template <class F>
static inline cudaError_t cudaFuncSetAttribute(F kernel, cudaFuncAttribute, int bytes)
{
    return cuda_emu_grant_shared((const void *)kernel, bytes);
}
/* False: neither 48 KiB nor what it was granted is enough, and the launch fails. */
bool cuda_emu_shared_fits(const void *kernel, size_t bytes);

namespace emu
{
void enqueue(cudaStream_t s, std::function<void()> work);
/* The stream waits at this work until ready() says true. A graph it is recorded in keeps held. */
void enqueue_when(cudaStream_t s, std::function<bool()> ready, std::function<void()> work,
                  std::shared_ptr<void> held);
/* Tests: the next n allocations succeed, then one fails; -1 = all succeed. */
void fail_allocation_after(int n);
/* Tests: the next n recordings of a stream begin, then one does not. */
void fail_capture_after(int n);
/* From now on each device's memory is mapped to the others, so that freeing any waits for all of them. */
void connect(bool on);
/* Tests: how often a graph was launched. */
int graph_launches();
/* Tests: recorded graphs that could be launched now. */
int graphs_alive();
/* Tests: memory in use on all devices, bytes. */
size_t device_bytes();
/* Tests: the device is lost once n more of its kernels have run; -1 = never. A lost one is there again after it was asked for anew. */
void lose_device_after(int n, int device = 0);
/* A kernel ran. False: the device is lost, and it must not. */
bool may_run();
} // namespace emu

#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                     \
    do {                                                                                           \
        dim3 grid_ = grid, block_ = block;                                                         \
        size_t shared_ = shared_bytes;                                                             \
        if (!emu::can_launch(grid_, block_, shared_)) break;                                       \
        if (!cuda_emu_shared_fits((const void *)(kernel), shared_)) break;                         \
        emu::enqueue(stream, [=] {                                                                 \
            if (emu::may_run()) emu::run(grid_, block_, shared_, [=] { kernel(__VA_ARGS__); });    \
        });                                                                                        \
    } while (0)

#endif
