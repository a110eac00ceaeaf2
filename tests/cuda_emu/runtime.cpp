/* runtime.cpp - see include/cuda_runtime.h. */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "tests/cuda_emu/include/cuda_runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

using work = std::function<void()>;

struct item { /* run, or mark the event, or wait until the event has been marked this often */
    work run;
    emu_event *record, *wait;
    unsigned long wait_for;
};
struct emu_stream {
    std::deque<item> queue;
    emu_graph *capturing;
};
struct emu_event {
    unsigned long recorded, done; /* how often it was enqueued, how often it was reached */
    std::chrono::steady_clock::time_point at;
};
struct emu_graph {
    std::vector<item> items;
};

static std::map<char *, size_t> device; /* start -> bytes */
static size_t in_use;
static std::set<emu_stream *> streams;
static emu_stream default_stream;
static cudaError_t last = cudaSuccess;
static int allocations_left = -1;
enum : size_t { DEVICE_BYTES = 1u << 30 };

static cudaError_t result(cudaError_t e)
{
    if (e != cudaSuccess) last = e;
    return e;
}

/* ---- device memory is the device's alone ---- */
static void open_device()
{
    for (auto &d : device)
        ASAN_UNPOISON_MEMORY_REGION(d.first, d.second);
}
static void close_device()
{
    for (auto &d : device)
        ASAN_POISON_MEMORY_REGION(d.first, d.second);
}
static bool on_device(const void *p, size_t bytes)
{
    auto d = device.upper_bound((char *)p);
    if (d == device.begin()) return false;
    --d;
    return (char *)p >= d->first && (char *)p + bytes <= d->first + d->second;
}

/* ---- streams ---- */
static bool step(emu_stream *s)
{
    if (s->queue.empty()) return false;
    item &front = s->queue.front();
    if (front.wait && front.wait->done < front.wait_for) return false;
    item i = std::move(front);
    s->queue.pop_front();
    if (i.run) i.run();
    if (i.record) {
        i.record->done++;
        i.record->at = std::chrono::steady_clock::now();
    }
    return true;
}

static void run_until(const std::function<bool()> &finished)
{
    open_device();
    while (!finished()) {
        bool any = false;
        while (step(&default_stream))
            any = true;
        for (emu_stream *s : streams)
            while (step(s))
                any = true;
        if (!any && !finished()) {
            fprintf(stderr, "cuda_emu: streams wait for events that nobody records\n");
            abort();
        }
    }
    close_device();
}

static void add(cudaStream_t s, item i)
{
    emu_stream *to = s ? s : &default_stream;
    if (to->capturing)
        to->capturing->items.push_back(std::move(i));
    else
        to->queue.push_back(std::move(i));
}

void emu::enqueue(cudaStream_t s, std::function<void()> run)
{
    add(s, {std::move(run), nullptr, nullptr, 0});
}
void emu::fail_allocation_after(int n)
{
    allocations_left = n;
}
size_t emu::device_bytes()
{
    return in_use;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = new emu_stream();
    streams.insert(*s);
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithFlags(s, 0);
}
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    emu_stream *of = s ? s : &default_stream;
    run_until([=] { return of->queue.empty(); });
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    if (!s) return cudaSuccess;
    cudaStreamSynchronize(s);
    streams.erase(s);
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s)
{
    return (s ? s : &default_stream)->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaDeviceSynchronize()
{
    run_until([] {
        bool empty = default_stream.queue.empty();
        for (emu_stream *s : streams)
            empty &= s->queue.empty();
        return empty;
    });
    return cudaSuccess;
}

/* ---- events ---- */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    *e = new emu_event();
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    if (e && e->done < e->recorded) run_until([=] { return e->done >= e->recorded; });
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    e->recorded++;
    add(s, {nullptr, e, nullptr, 0});
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    add(s, {nullptr, nullptr, e, e->recorded});
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    run_until([=] { return e->done >= e->recorded; });
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
    return e->done >= e->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count();
    return cudaSuccess;
}

/* ---- graphs ---- */
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    if (!s || s->capturing) return result(cudaErrorInvalidValue);
    s->capturing = new emu_graph();
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
    if (!s || !s->capturing) return result(cudaErrorInvalidValue);
    *g = s->capturing;
    s->capturing = nullptr;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long)
{
    *x = new emu_graph(*g);
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
    for (const item &i : x->items)
        add(s, i);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    delete g;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
    delete x;
    return cudaSuccess;
}

/* ---- memory ---- */
cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p = nullptr;
    if (allocations_left == 0 || bytes > DEVICE_BYTES - in_use)
        return allocations_left = -1, result(cudaErrorMemoryAllocation);
    if (allocations_left > 0) allocations_left--;
    char *got = (char *)aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(got, 0xff, (bytes + 255) / 256 * 256); /* unwritten device memory is NaN */
    device[got] = (bytes + 255) / 256 * 256;
    in_use += device[got];
    ASAN_POISON_MEMORY_REGION(got, device[got]);
    *p = got;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p)
{
    if (!p) return cudaSuccess;
    cudaDeviceSynchronize();
    auto d = device.find((char *)p);
    if (d == device.end()) return result(cudaErrorInvalidValue);
    ASAN_UNPOISON_MEMORY_REGION(d->first, d->second);
    in_use -= d->second;
    device.erase(d);
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    *p = malloc(bytes ? bytes : 1);
    return *p ? cudaSuccess : result(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void *p)
{
    cudaDeviceSynchronize();
    free(p);
    return cudaSuccess;
}

static void check_kind(const void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    if (kind == cudaMemcpyDefault || !bytes) return;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (on_device(to, bytes) == to_device && on_device(from, bytes) == from_device) return;
    fprintf(stderr,
            "cuda_emu: a copy of %zu bytes whose direction does not fit its addresses, or "
            "which leaves an allocation\n",
            bytes);
    abort();
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    check_kind(to, from, bytes, kind);
    emu::enqueue(s, [=] { memcpy(to, from, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s)
{
    for (size_t i = 0; i < height; i++)
        cudaMemcpyAsync((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width, kind,
                        s);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    return cudaDeviceSynchronize();
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s)
{
    emu::enqueue(s, [=] { memset(p, value, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
    cudaMemsetAsync(p, value, bytes, nullptr);
    return cudaDeviceSynchronize();
}

/* ---- the device ---- */
const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    default:
        return "invalid argument";
    }
}
cudaError_t cudaGetLastError()
{
    cudaError_t e = last;
    last = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError()
{
    return last;
}
cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int i)
{
    return i ? result(cudaErrorInvalidValue) : cudaSuccess;
}
cudaError_t cudaGetDevice(int *i)
{
    *i = 0;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
    memset(p, 0, sizeof *p);
    strcpy(p->name, "emulation");
    p->totalGlobalMem = DEVICE_BYTES;
    p->sharedMemPerBlockOptin = emu::SHARED_BYTES;
    p->major = 9;
    p->multiProcessorCount = 4;
    p->warpSize = emu::WARP;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *total = DEVICE_BYTES;
    *free_bytes = DEVICE_BYTES - in_use;
    return cudaSuccess;
}
