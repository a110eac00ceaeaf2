/* test_emu.cpp - does the emulation find what it says it finds? Kernels with one fault each, and matrix instructions against plain
 * sums. Last line: N passed, N failed, N skipped. */
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/cuda_emu/include/cuda_runtime.h"

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
    float ramp[128], got[32];
    for (int i = 0; i < 128; i++)
        ramp[i] = (float)i;
    emu::run(1, 32, 0, [&] { copy_read_early(ramp, got, false); });
    check(std::isnan(got[3]), "an asynchronous copy read before its wait gives NaN");
    emu::run(1, 32, 0, [&] { copy_read_early(ramp, got, true); });
    check(got[3] == 12, "after its wait it is there");
}

/* ---- warp operations ---- */
KERNEL warp_sums(const float *in, float *out)
{
    float v = in[threadIdx.x];
    for (int by = 16; by; by /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, by);
    unsigned odd = __ballot_sync(0xffffffffu, threadIdx.x & 1);
    out[threadIdx.x] = v + (odd == 0xaaaaaaaau ? 0.5f : 0.0f);
}

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
/* a: [16][k] row after row, b: [8 columns][k]; words hold neighbouring k */
template <int WORDS>
DEVICE void load_fragments(const unsigned *a, const unsigned *b, unsigned fa[4], unsigned fb[2])
{
    int lane = threadIdx.x, group = lane / 4, within = lane % 4;
    for (int r = 0; r < 4; r++)
        fa[r] = a[(group + r % 2 * 8) * WORDS + within + r / 2 * (WORDS / 2)];
    for (int r = 0; r < 2; r++)
        fb[r] = b[group * WORDS + within + r * (WORDS / 2)];
}
template <class T> DEVICE void store_fragment(const T d[4], float *out)
{
    int lane = threadIdx.x, group = lane / 4, within = lane % 4;
    for (int r = 0; r < 4; r++)
        out[(group + r / 2 * 8) * 8 + within * 2 + r % 2] = (float)d[r];
}
KERNEL product_f16(const unsigned *a, const unsigned *b, float *out)
{
    unsigned fa[4], fb[2];
    float d[4] = {0};
    load_fragments<8>(a, b, fa, fb);
    MMA_F16(d, fa, fb);
    store_fragment(d, out);
}
KERNEL product_s8(const unsigned *a, const unsigned *b, float *out)
{
    unsigned fa[4], fb[2];
    int d[4] = {0};
    load_fragments<8>(a, b, fa, fb);
    MMA_S8(d, fa, fb);
    store_fragment(d, out);
}
KERNEL product_e4m3(const unsigned *a, const unsigned *b, float *out)
{
    unsigned fa[4], fb[2];
    float d[4] = {0};
    load_fragments<8>(a, b, fa, fb);
    MMA_E4M3(d, fa, fb);
    store_fragment(d, out);
}
/* A through ldmatrix from shared memory instead of by hand */
KERNEL product_ldmatrix(const unsigned *a, const unsigned *b, float *out)
{
    SHARED(uint16_t, tile, 16 * 16);
    for (int i = threadIdx.x; i < 128; i += 32)
        ((unsigned *)tile)[i] = a[i];
    __syncthreads();
    unsigned fa[4], fb[2], unused[4];
    float d[4] = {0};
    int lane = threadIdx.x;
    load_fragments<8>(a, b, unused, fb);
    LDMATRIX_X4(fa, tile + (lane % 16) * 16 + lane / 16 * 8);
    MMA_F16(d, fa, fb);
    store_fragment(d, out);
}

static void test_warp()
{
    float in[32], out[32];
    for (int i = 0; i < 32; i++)
        in[i] = (float)i;
    emu::run(1, 32, 0, [&] { warp_sums(in, out); });
    check(out[0] == 496.5f && out[31] == 496.5f, "xor shuffles and ballots");
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
    check(error_of(half, 16, h16a, h16b, product_f16, 16) < 1e-5, "mma f16 equals the sum");
    check(error_of(half, 16, h16a, h16b, product_ldmatrix, 16) < 1e-5, "ldmatrix feeds mma");
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
    cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    LAUNCH(add_one, 4, 32, 0, s, x, 100);
    cudaStreamEndCapture(s, &g);
    cudaGraphInstantiate(&run, g);
    for (int i = 0; i < 3; i++)
        cudaGraphLaunch(run, s);
    cudaMemcpyAsync(host, x, sizeof host, cudaMemcpyDeviceToHost, s);
    cudaStreamSynchronize(s);
    check(host[10] == 15, "a graph replays what was captured");
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
