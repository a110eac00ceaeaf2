/* runtime.cpp - see include/cuda_runtime.h. */
#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "tests/cuda_emu/runtime.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

using namespace emu::runtime;
using work = std::function<void()>;

struct
    item { /* run when ready, or mark the event, or wait until the event has been marked this often */
    work run;
    emu_event *record, *wait;
    unsigned long wait_for;
    std::function<bool()> ready;
    std::shared_ptr<void> held; /* by a graph it is part of */
};
struct emu_stream {
    std::deque<item> queue;
    emu_graph *capturing;
    int device;
};
struct emu_event {
    unsigned long recorded, done; /* how often it was enqueued, how often it was reached */
    std::chrono::steady_clock::time_point at;
};
struct emu_graph {
    std::vector<item> items;
};

enum { ALL = -1, WAIT_S = 20, LOOK_MS = 20 };
struct allocation {
    size_t bytes;
    int device;
};

static std::recursive_mutex lock; /* of everything here, and of what runs */
static std::condition_variable_any enqueued;
using guard = std::lock_guard<std::recursive_mutex>;
static std::map<char *, allocation> memory; /* by start */
static std::map<char *, size_t> pinned;     /* host memory that copies take their time with */
static size_t in_use[DEVICES_MAX];
static std::set<emu_stream *> streams;
static emu_stream default_stream = {{}, nullptr, ALL};
static thread_local cudaError_t last = cudaSuccess;
static thread_local int current;
static thread_local int capturing; /* streams that this thread records */
static std::atomic<int> allocations_left{-1}, captures_left{-1};
static std::atomic<bool> connected; /* each device's memory is mapped to the others */
static int kernels_left = -2;       /* -1 = never lost; -2 = what the environment says */
static int losing, running;         /* devices */

static bool lost(int device)
{
    return kernels_left == 0 && (device == losing || device == ALL);
}
void emu::lose_device_after(int n, int device)
{
    guard g(lock);
    kernels_left = n, losing = device;
}
bool emu::may_run()
{
    if (kernels_left == -2) {
        const char *v = setting("CUDA_EMU_LOSE_AFTER"), *d = setting("CUDA_EMU_LOSE_DEVICE");
        kernels_left = v ? atoi(v) : -1;
        losing = d ? atoi(d) : 0;
    }
    if (kernels_left > 0 && (running == losing || running == ALL)) kernels_left--;
    return !lost(running) && !setting("CUDA_EMU_NO_KERNELS_RUN");
}

cudaError_t emu::runtime::result(cudaError_t e)
{
    if (e != cudaSuccess) last = e;
    return e;
}
/* A driver refuses these and throws away what was recorded. */
static void not_while_capturing(const char *call)
{
    if (capturing) emu::fault("%s by a thread that records a stream", call);
}

/* ---- device memory is the device's alone ---- */
static void open_device(int device)
{
    for (auto &m : memory)
        if (device == ALL || m.second.device == device)
            ASAN_UNPOISON_MEMORY_REGION(m.first, m.second.bytes);
}
static void close_device(int device)
{
    for (auto &m : memory)
        if (device == ALL || m.second.device == device)
            ASAN_POISON_MEMORY_REGION(m.first, m.second.bytes);
}
static bool on_device(const void *p, size_t bytes)
{
    auto m = memory.upper_bound((char *)p);
    if (m == memory.begin()) return false;
    --m;
    return (char *)p >= m->first && (char *)p + bytes <= m->first + m->second.bytes;
}

/* ---- streams ---- */
static bool may_step(const emu_stream *s)
{
    if (s->queue.empty()) return false;
    const item &front = s->queue.front();
    if (front.ready && !front.ready()) return false;
    return !front.wait || front.wait->done >= front.wait_for;
}
static void step(emu_stream *s)
{
    item i = std::move(s->queue.front());
    s->queue.pop_front();
    if (i.run) i.run();
    if (i.record) {
        i.record->done++;
        i.record->at = std::chrono::steady_clock::now();
    }
}
static bool run_stream(emu_stream *s, const std::function<bool()> &finished)
{
    if (finished() || !may_step(s)) return false;
    running = s->device;
    open_device(s->device);
    while (!finished() && may_step(s))
        step(s);
    close_device(s->device);
    running = 0;
    return true;
}
/* What can run now; under lock. */
static bool run_some(const std::function<bool()> &finished)
{
    bool any = run_stream(&default_stream, finished);
    for (emu_stream *s : streams)
        any |= run_stream(s, finished);
    return any;
}

/* Not a thing more than what is waited for: what was enqueued behind it has not happened, whoever looks.
 * What another thread does may let a stream go on without enqueuing anything, so it is looked at again now and then. */
static void run_until(const std::function<bool()> &finished)
{
    using clock = std::chrono::steady_clock;
    std::unique_lock<std::recursive_mutex> held(lock);
    auto until = clock::now() + std::chrono::seconds(WAIT_S);
    while (!finished()) {
        if (run_some(finished)) until = clock::now() + std::chrono::seconds(WAIT_S);
        if (finished()) return;
        enqueued.wait_for(held, std::chrono::milliseconds(LOOK_MS));
        if (clock::now() < until) continue;
        fprintf(stderr, "cuda_emu: streams wait for what nobody records\n");
        abort();
    }
}

static void add(cudaStream_t s, item i)
{
    guard g(lock);
    emu_stream *to = s ? s : &default_stream;
    if (to->device != ALL && to->device != current) {
        fprintf(stderr, "cuda_emu: work for a stream of device %d while %d is current\n",
                to->device, current);
        abort();
    }
    enqueued.notify_all();
    if (to->capturing) {
        to->capturing->items.push_back(std::move(i));
        return;
    }
    i.held.reset();
    to->queue.push_back(std::move(i));
}

void emu::enqueue(cudaStream_t s, std::function<void()> run)
{
    add(s, {std::move(run), nullptr, nullptr, 0, nullptr, nullptr});
}
void emu::enqueue_when(cudaStream_t s, std::function<bool()> ready, std::function<void()> run,
                       std::shared_ptr<void> held)
{
    add(s, {std::move(run), nullptr, nullptr, 0, std::move(ready), std::move(held)});
}
void emu::fail_allocation_after(int n)
{
    allocations_left = n;
}
void emu::fail_capture_after(int n)
{
    captures_left = n;
}
void emu::connect(bool on)
{
    connected = on;
}
size_t emu::device_bytes()
{
    guard g(lock);
    size_t sum = 0;
    for (size_t n : in_use)
        sum += n;
    return sum;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    guard g(lock);
    *s = new emu_stream();
    (*s)->device = current;
    streams.insert(*s);
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithFlags(s, 0);
}
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    not_while_capturing("cudaStreamSynchronize");
    emu_stream *of = s ? s : &default_stream;
    run_until([=] { return of->queue.empty(); });
    guard g(lock);
    return lost(of->device) ? cudaErrorLaunchFailure : cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    if (!s) return cudaSuccess;
    cudaStreamSynchronize(s);
    guard g(lock);
    streams.erase(s);
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s)
{
    guard g(lock);
    emu_stream *of = s ? s : &default_stream;
    if (of->capturing) {
        fprintf(stderr, "cuda_emu: a stream that is recorded is asked whether it is ready\n");
        abort();
    }
    bool ready = of->queue.empty();
    run_some([] { return false; }); /* whoever asks again and again sees it end */
    if (lost(of->device)) return cudaErrorLaunchFailure;
    return ready ? cudaSuccess : result(cudaErrorNotReady);
}
cudaError_t cudaDeviceSynchronize()
{
    not_while_capturing("cudaDeviceSynchronize");
    run_until([] { /* of the current device */
                   bool empty = default_stream.queue.empty();
                   for (emu_stream *s : streams)
                       empty &= s->device != current || s->queue.empty();
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
    add(s, {nullptr, e, nullptr, 0, nullptr, nullptr});
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    add(s, {nullptr, nullptr, e, e->recorded, nullptr, nullptr});
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    run_until([=] { return e->done >= e->recorded; });
    guard g(lock);
    return lost(current) ? cudaErrorLaunchFailure : cudaSuccess;
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
    guard g(lock);
    if (!s || s->capturing) return result(cudaErrorInvalidValue);
    if (captures_left == 0) return captures_left = -1, result(cudaErrorInvalidValue);
    if (captures_left > 0) captures_left--;
    s->capturing = new emu_graph();
    capturing++;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
    guard held(lock);
    if (!s || !s->capturing) return result(cudaErrorInvalidValue);
    *g = s->capturing;
    s->capturing = nullptr;
    capturing--;
    return cudaSuccess;
}
static std::atomic<int> n_graphs_alive;
int emu::graphs_alive()
{
    return n_graphs_alive;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long)
{
    n_graphs_alive++;
    *x = new emu_graph(*g);
    return cudaSuccess;
}
static std::atomic<int> n_graph_launches;
int emu::graph_launches()
{
    return n_graph_launches;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
    n_graph_launches++;
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
    n_graphs_alive -= x != nullptr;
    delete x;
    return cudaSuccess;
}

/* ---- memory ---- */
cudaError_t cudaMalloc(void **p, size_t bytes)
{
    not_while_capturing("cudaMalloc");
    guard g(lock);
    *p = nullptr;
    if (allocations_left == 0 || bytes > all_bytes() - in_use[current])
        return allocations_left = -1, result(cudaErrorMemoryAllocation);
    if (allocations_left > 0) allocations_left--;
    size_t whole = (bytes + 255) / 256 * 256;
    char *got = (char *)aligned_alloc(256, whole);
    memset(got, 0xff, whole); /* unwritten device memory is NaN */
    memory[got] = {whole, current};
    in_use[current] += whole;
    ASAN_POISON_MEMORY_REGION(got, whole);
    *p = got;
    return cudaSuccess;
}
/* The device whose memory it is, and those it is mapped to. */
static void wait_to_free()
{
    not_while_capturing("cudaFree");
    if (!connected)
        cudaDeviceSynchronize();
    else
        run_until([] {
            bool empty = default_stream.queue.empty();
            for (emu_stream *s : streams)
                empty &= s->queue.empty();
            return empty;
        });
}
cudaError_t cudaFree(void *p)
{
    if (!p) return cudaSuccess;
    wait_to_free();
    guard g(lock);
    auto m = memory.find((char *)p);
    if (m == memory.end()) return result(cudaErrorInvalidValue);
    ASAN_UNPOISON_MEMORY_REGION(m->first, m->second.bytes);
    in_use[m->second.device] -= m->second.bytes;
    memory.erase(m);
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    not_while_capturing("cudaMallocHost");
    *p = malloc(bytes ? bytes : 1);
    if (!*p) return result(cudaErrorMemoryAllocation);
    guard g(lock);
    pinned[(char *)*p] = bytes;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p)
{
    wait_to_free();
    guard g(lock);
    auto h = pinned.find((char *)p);
    if (h == pinned.end()) return p ? result(cudaErrorInvalidValue) : cudaSuccess;
    ASAN_UNPOISON_MEMORY_REGION(h->first, h->second);
    pinned.erase(h);
    free(p);
    return cudaSuccess;
}

/* Pinned memory of a copy on its way is nobody's: reading what is to come, or writing what is still to be sent, shows. */
static bool is_pinned(const void *p)
{
    auto h = pinned.upper_bound((char *)p);
    if (h == pinned.begin()) return false;
    --h;
    return (char *)p < h->first + h->second;
}
static void close_pinned(const void *p, size_t bytes, bool arrives)
{
    guard g(lock);
    if (!is_pinned(p)) return;
    if (arrives) memset((void *)p, 0xa5, bytes);
    ASAN_POISON_MEMORY_REGION(p, bytes);
}
static void open_pinned(const void *p, size_t bytes)
{
    if (is_pinned(p)) ASAN_UNPOISON_MEMORY_REGION(p, bytes);
}

static void check_kind(const void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    guard g(lock);
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
/* The driver itself waits for a copy to pageable memory, and nobody gives up for it what waits for another thread's work. */
static void check_wait(const void *to, cudaMemcpyKind kind, cudaStream_t s)
{
    if (kind != cudaMemcpyDeviceToHost || !s || is_pinned(to)) return;
    for (const item &i : s->queue)
        if (i.ready) {
            fprintf(stderr,
                    "cuda_emu: a copy to pageable memory behind what others may never do\n");
            abort();
        }
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    guard g(lock); /* nobody runs the copy before the memory is closed */
    check_kind(to, from, bytes, kind);
    check_wait(to, kind, s);
    emu::enqueue(s, [=] {
        open_pinned(to, bytes);
        open_pinned(from, bytes);
        memcpy(to, from, bytes);
    });
    close_pinned(to, bytes, true);
    close_pinned(from, bytes, false);
    return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s)
{
    if (to_pitch > pitch_max() || from_pitch > pitch_max())
        return result(cudaErrorInvalidPitchValue);
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
    if (lost(current)) return result(cudaErrorLaunchFailure);
    emu::enqueue(s, [=] { memset(p, value, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
    cudaMemsetAsync(p, value, bytes, nullptr);
    return cudaDeviceSynchronize();
}

/* ---- errors, and the current device ---- */
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
cudaError_t cudaSetDevice(int i)
{
    if (i < 0 || i >= n_devices() || i >= DEVICES_MAX) return result(cudaErrorInvalidValue);
    current = i;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *i)
{
    *i = current;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    guard g(lock);
    *total = all_bytes();
    *free_bytes = all_bytes() - in_use[current];
    return cudaSuccess;
}
