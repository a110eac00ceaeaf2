/* test_emu.cpp - does the emulation find what it says it finds? Kernels with one fault each, and matrix instructions against plain
 * sums. Last line: N passed, N failed, N skipped. */
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/cuda_emu/include/cuda_runtime.h"
#include "tests/cuda_emu/warp_kernels.cuh"

static int passed, failed;
static void check(bool ok, const char *title, const char *seen = "")
{
    ok ? passed++ : failed++;
    printf("%s %s%s%s\n", ok ? "ok  " : "FAIL", title, *seen ? ": " : "", seen);
}
static bool has(const char *text, const char *part)
{
    return strstr(text, part) != nullptr;
}
static const char *faults(dim3 grid, dim3 block, const std::function<void()> &kernel)
{
    emu::expect_fault();
    emu::run(grid, block, 0, kernel);
    return emu::fault_seen();
}

/* ---- kernels with a fault ---- */
KERNEL reverse(const int *in, int *out, bool wait)
{
    SHARED(int, tile, 64);
    tile[threadIdx.x] = in[threadIdx.x];
    if (wait) __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}
KERNEL different_barriers()
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}
KERNEL barrier_after_return()
{
    if (threadIdx.x == 5) return;
    __syncthreads();
}
KERNEL shuffle_in_a_branch(int *out)
{
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 1);
}
KERNEL different_shuffles(int *out)
{
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 1);
    else
        out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 2);
}
KERNEL half_waits()
{
    if (threadIdx.x < 32) NAMED_BARRIER(1, 64);
    __syncthreads();
}
KERNEL copy_read_early(const float *in, float *out, bool wait)
{
    SHARED(float, tile, 4 * 32);
    COPY_ASYNC_16(tile + 4 * threadIdx.x, in + 4 * threadIdx.x);
    COPY_COMMIT();
    if (wait) COPY_WAIT(0);
    out[threadIdx.x] = tile[4 * threadIdx.x];
    if (!wait) COPY_WAIT(0);
}

static void test_faults()
{
    int in[64], out[64], wrong = 0;
    for (int i = 0; i < 64; i++)
        in[i] = i;
    for (int launch = 0; launch < 2; launch++) {
        emu::run(2, 64, 0, [&] { reverse(in, out, false); });
        for (int i = 0; i < 64; i++)
            wrong += out[i] != 63 - i;
        check(wrong > 0, launch ? "a missing barrier shows at the second launch too"
                                : "a missing barrier shows");
        wrong = 0;
    }
    emu::run(2, 64, 0, [&] { reverse(in, out, true); });
    for (int i = 0; i < 64; i++)
        wrong += out[i] != 63 - i;
    check(!wrong, "with the barrier the result is right");
    const char *f = faults(1, 64, different_barriers);
    check(has(f, "different barriers"), "two barrier sites are noticed", f);
    f = faults(1, 64, barrier_after_return);
    check(has(f, "has ended"), "a barrier that an ended thread misses is noticed", f);
    f = faults(1, 32, [&] { shuffle_in_a_branch(out); });
    check(has(f, "has ended"), "a shuffle whose lanes have ended is noticed", f);
    f = faults(1, 32, [&] { different_shuffles(out); });
    check(has(f, "different operations"), "lanes at different shuffles are noticed", f);
    f = faults(1, 64, half_waits);
    check(has(f, "cannot go on"), "a deadlock is reported and does not hang", f);
    f = faults(dim3(1, 65536), 1, half_waits);
    check(has(f, "1 x 65536 x 1 blocks"), "a grid that is too high is noticed", f);
    f = faults(dim3(65536, 65536), 2048, half_waits);
    check(has(f, "of 2048 threads"), "a block that is too large is noticed", f);
    float ramp[128], got[32];
    for (int i = 0; i < 128; i++)
        ramp[i] = (float)i;
    emu::run(1, 32, 0, [&] { copy_read_early(ramp, got, false); });
    check(std::isnan(got[3]), "an asynchronous copy read before its wait gives NaN");
    emu::run(1, 32, 0, [&] { copy_read_early(ramp, got, true); });
    check(got[3] == 12, "after its wait it is there");
}

/* ---- warp operations ---- */
template <class Load>
static double error_of(Load value, int k_total, std::vector<unsigned> a, std::vector<unsigned> b,
                       void (*kernel)(const unsigned *, const unsigned *, float *), int bits)
{
    float d[16 * 8];
    double worst = 0;
    emu::run(1, 32, 0, [&] { kernel(a.data(), b.data(), d); });
    int per = 32 / bits;
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            double sum = 0;
            for (int k = 0; k < k_total; k++)
                sum += value(a[(size_t)(i * k_total + k) / (size_t)per] >> bits * (k % per)) *
                       value(b[(size_t)(j * k_total + k) / (size_t)per] >> bits * (k % per));
            worst = std::max(worst, fabs(sum - d[i * 8 + j]));
        }
    return worst;
}
static void test_warp()
{
    float in[32], out[32];
    for (int i = 0; i < 32; i++)
        in[i] = (float)i;
    emu::run(1, 32, 0, [&] { warp_sums(in, out); });
    check(out[0] == 496.5f && out[31] == 496.5f, "xor shuffles and ballots");
    float edge[96];
    emu::run(1, 32, 0, [&] { shuffle_edges(edge); });
    check(edge[2] == 2 && edge[6] == 2 && edge[32 + 30] == 30 && edge[32 + 3] == 7 &&
              edge[64 + 5] == 3,
          "shuffles beyond the warp's end");
    unsigned n_wrong = 0;
    emu::run(256, 256, 0, [&] { f16_round_trips(&n_wrong); });
    check(n_wrong == 0, "small floats survive the way to float and back");
    unsigned state = 12345;
    auto next = [&] { return state = state * 1664525u + 1013904223u; };
    std::vector<unsigned> h16a(16 * 8), h16b(8 * 8), s8a(16 * 8), s8b(8 * 8), e4a(16 * 8),
        e4b(8 * 8);
    auto half_word = [&] {
        unsigned lo = emu::to_f16((float)((int)(next() >> 16) - 32768) / 16384.0f);
        unsigned hi = emu::to_f16((float)((int)(next() >> 16) - 32768) / 16384.0f);
        return hi << 16 | lo;
    };
    auto e4_word = [&] {
        unsigned w = 0;
        for (int i = 0; i < 4; i++)
            w |= (unsigned)emu::to_e4m3((float)((int)(next() >> 16) - 32768) / 8192.0f) << 8 * i;
        return w;
    };
    for (auto *v : {&h16a, &h16b})
        for (unsigned &w : *v)
            w = half_word();
    for (auto *v : {&s8a, &s8b})
        for (unsigned &w : *v)
            w = next();
    for (auto *v : {&e4a, &e4b})
        for (unsigned &w : *v)
            w = e4_word();
    auto half = [](unsigned v) { return (double)emu::f16((uint16_t)v); };
    auto bf16 = [](unsigned v) { return (double)bf16_float((uint16_t)v); };
    std::vector<unsigned> ba(128), bb(64), rows(64);
    for (size_t i = 0; i < 128; i++) /* small whole numbers: exact */
        ba[i] = (unsigned)float_bf16((float)(i * 7 % 9)) << 16 | float_bf16((float)(i % 5) - 2);
    for (size_t i = 0; i < 64; i++)
        bb[i] = (unsigned)float_bf16((float)(i * 5 % 7)) << 16 | float_bf16((float)(i % 3) - 1);
    check(error_of(bf16, 16, ba, bb, product_bf16, 16) == 0, "mma bf16");
    check(error_of(half, 16, h16a, h16b, product_f16, 16) < 1e-5, "mma f16 equals the sum");
    check(error_of(half, 16, h16a, h16b, product_ldmatrix, 16) < 1e-5, "ldmatrix feeds mma");
    for (unsigned j = 0; j < 8; j++) /* B row after row instead of column after column */
        for (unsigned k = 0; k < 16; k++)
            rows[(k * 8 + j) / 2] |= (h16b[(j * 16 + k) / 2] >> 16 * (k % 2) & 0xffffu)
                                     << 16 * (j % 2);
    float by_columns[128], by_rows[128];
    emu::run(1, 32, 0, [&] { product_f16(h16a.data(), h16b.data(), by_columns); });
    emu::run(1, 32, 0, [&] { product_ldmatrix_t(h16a.data(), rows.data(), by_rows); });
    check(!memcmp(by_columns, by_rows, sizeof by_rows), "transposing ldmatrix feeds mma");
    check(error_of([](unsigned v) { return (double)(int8_t)v; }, 32, s8a, s8b, product_s8, 8) == 0,
          "mma s8 equals the sum");
    check(error_of([](unsigned v) { return (double)emu::e4m3((uint8_t)v); }, 32, e4a, e4b,
                   product_e4m3, 8) < 1e-4,
          "mma e4m3 equals the sum");
    int bad = 0;
    for (unsigned b = 0; b < 0x7c00; b++)
        bad += emu::to_f16(emu::f16((uint16_t)b)) != b;
    for (unsigned b = 0; b < 0x7f; b++)
        bad += emu::to_e4m3(emu::e4m3((uint8_t)b)) != b;
    check(!bad, "small floats survive a round trip");
    check(emu::to_f16(1.0f + 1.0f / 2048) == 0x3c00 && emu::to_f16(1.0f + 3.0f / 2048) == 0x3c02 &&
              emu::to_e4m3(17.0f) == emu::to_e4m3(16.0f) && emu::to_e4m3(1000) == 0x7e,
          "they round to nearest even and saturate");
}

/* ---- host side ---- */
KERNEL add_one(float *x, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) x[i] += 1;
}
#if defined(__SANITIZE_ADDRESS__)
extern "C" int __asan_address_is_poisoned(void const volatile *p);
static bool may_touch(const void *p)
{
    return !__asan_address_is_poisoned(p);
}
#else
static bool may_touch(const void *)
{
    return true;
}
#endif

/* x[100] is 15 + .. on the device */
static void test_pinned(cudaStream_t s, float *x)
{
    float *in, *out;
    cudaEvent_t first, second;
    bool closed = true, early = true, late = true;
    cudaMallocHost(&in, 400), cudaMallocHost(&out, 800);
    cudaEventCreate(&first), cudaEventCreate(&second);
    for (int i = 0; i < 100; i++)
        in[i] = 7;
    cudaMemcpyAsync(x, in, 400, cudaMemcpyHostToDevice, s);
    cudaMemcpyAsync(out, x, 400, cudaMemcpyDeviceToHost, s);
    cudaEventRecord(first, s);
    LAUNCH(add_one, 4, 32, 0, s, x, 100);
    cudaMemcpyAsync(out + 100, x, 400, cudaMemcpyDeviceToHost, s);
    cudaEventRecord(second, s);
#if defined(__SANITIZE_ADDRESS__)
    closed = !may_touch(in) && !may_touch(out) && !may_touch(out + 100);
#endif
    check(closed, "pinned memory of a copy on its way cannot be touched");
    check(cudaEventQuery(first) == cudaErrorNotReady, "its event is not there");
    cudaEventSynchronize(first);
    early = may_touch(in) && may_touch(out) && out[3] == 7;
#if defined(__SANITIZE_ADDRESS__)
    late = !may_touch(out + 100);
#endif
    check(early, "after its event it can");
    check(late && cudaEventQuery(second) == cudaErrorNotReady,
          "what was enqueued behind the event has not happened");
    cudaEventSynchronize(second);
    check(out[103] == 8, "until it is waited for");
    cudaEventDestroy(first), cudaEventDestroy(second);
    cudaFreeHost(in), cudaFreeHost(out);
}

static void test_runtime()
{
    float host[100], *x;
    cudaStream_t s, other;
    cudaEvent_t e;
    for (int i = 0; i < 100; i++)
        host[i] = (float)i;
    cudaStreamCreate(&s);
    cudaStreamCreate(&other);
    cudaEventCreate(&e);
    check(cudaMalloc(&x, sizeof host) == cudaSuccess, "device memory");
    cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, s);
    LAUNCH(add_one, 4, 32, 0, s, x, 100);
    cudaMemcpyAsync(host, x, sizeof host, cudaMemcpyDeviceToHost, s);
    check(host[10] == 10 && cudaStreamQuery(s) == cudaErrorNotReady,
          "nothing runs before somebody waits");
    cudaStreamSynchronize(s);
    check(host[10] == 11, "then it does");
    LAUNCH(add_one, 4, 32, 0, s, x, 100);
    cudaEventRecord(e, s);
    cudaStreamWaitEvent(other, e);
    cudaMemcpyAsync(host, x, sizeof host, cudaMemcpyDeviceToHost, other);
    cudaStreamSynchronize(other);
    check(host[10] == 12, "an event orders two streams");
    cudaGraph_t g;
    cudaGraphExec_t run;
    float *early;
    cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    emu::expect_fault();
    cudaMalloc(&early, 16);
    check(!strcmp(emu::fault_seen(), "cudaMalloc by a thread that records a stream"),
          "nothing is allocated while a stream is recorded");
    LAUNCH(add_one, 4, 32, 0, s, x, 100);
    cudaStreamEndCapture(s, &g);
    cudaFree(early);
    cudaGraphInstantiate(&run, g);
    for (int i = 0; i < 3; i++)
        cudaGraphLaunch(run, s);
    cudaMemcpyAsync(host, x, sizeof host, cudaMemcpyDeviceToHost, s);
    cudaStreamSynchronize(s);
    check(host[10] == 15, "a graph replays what was captured");
    test_pinned(s, x);
    emu::fail_allocation_after(0);
    float *none;
    check(cudaMalloc(&none, 16) == cudaErrorMemoryAllocation && !none &&
              cudaGetLastError() == cudaErrorMemoryAllocation,
          "an allocation can be made to fail");
    cudaGraphExecDestroy(run);
    cudaGraphDestroy(g);
    cudaEventDestroy(e);
    cudaStreamDestroy(s);
    cudaStreamDestroy(other);
    cudaFree(x);
    check(emu::device_bytes() == 0, "all device memory is back");
}

int main()
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        emu::seed(seed);
        test_faults();
        test_warp();
    }
    test_runtime();
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed ? 1 : 0;
}
