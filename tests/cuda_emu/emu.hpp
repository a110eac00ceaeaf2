/* emu.hpp - the device side of CUDA on the CPU: each CUDA thread of a block is a fiber of one OS thread, so that barriers, shuffles
 * and matrix instructions mean what they mean on a GPU. Kernels are compiled unchanged by g++; engine/backend/cuda/device.cuh gives
 * them the same words for nvcc.
 *
 * What it finds: reads of stale or unwritten shared memory (poisoned before every block; between arrays lie red zones under
 * AddressSanitizer), a barrier or warp operation that some thread can never reach, threads of a block at different barriers, lanes
 * of a warp at different warp operations, lanes named in a mask that have ended, results that depend on the order of lanes or
 * blocks (both are shuffled by a seed), a cp.async read before it was waited for, out-of-bounds accesses of anything (AddressSanitizer
 * names file and line), use of device memory by the host (see include/cuda_runtime.h).
 * What it cannot show: races between blocks that run at the same time, memory ordering, speed. The fragment layouts of mma and
 * ldmatrix are those of the PTX ISA as we read it: tests/gpu compares them with a device.
 *
 * Threading: one OS thread at a time (the runtime of include/cuda_runtime.h sees to it). A fault ends the process with a sentence, unless a test has asked to see it (emu::expect_fault). */
#ifndef DEJA_TESTS_CUDA_EMU_HPP
#define DEJA_TESTS_CUDA_EMU_HPP
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned ax = 1, unsigned ay = 1, unsigned az = 1) : x(ax), y(ay), z(az) {}
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}
static inline int4 make_int4(int x, int y, int z, int w)
{
    return {x, y, z, w};
}
static inline float2 make_float2(float x, float y)
{
    return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

namespace emu
{
enum { WARP = 32, THREADS_MAX = 1024, SHARED_BYTES = 227 << 10 };
enum : unsigned { GRID_X_MAX = 0x7fffffff, GRID_YZ_MAX = 0xffff };

struct site { /* where in a kernel */
    const char *what, *file;
    int line;
};
#define EMU_SITE(what) (emu::site{what, __FILE__, __LINE__})

uint3 thread_idx();
uint3 block_idx();
dim3 block_dim();
dim3 grid_dim();

/* Waits for all threads of the block (id 0, n 0) or for n threads at named barrier id. */
void barrier(site where, int id, int n);
/* All lanes of mask meet; one of them runs fn over their arguments (NULL for lanes outside the mask), then all go on. */
using warp_fn = void (*)(void *const *arg);
void warp_meet(site where, unsigned mask, warp_fn fn, void *arg);

/* Until ready(arg), which whoever runs next asks again and again. */
void poll(site where, bool (*ready)(void *arg), void *arg);
/* What a kernel did wrong: ends the process, or the block where a test expects it. */
void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
struct wgmma_state; /* emu_tma.hpp */
wgmma_state &wgmma_of_thread();

/* The same array for all threads of a block; key tells arrays apart. */
void *shared_array(site key, size_t bytes);
void *shared_dynamic();

void copy_async(void *shared, const void *global, int bytes);
void copy_commit();
void copy_wait(int n_pending);

/* False, and a fault: no device takes such a launch. */
bool can_launch(dim3 grid, dim3 block, size_t shared_bytes);
/* Runs kernel once a thread, blocks in shuffled order. */
void run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> &kernel);
void seed(uint64_t s);
/* Tests: the next faults are remembered instead of ending the process. fault_seen: the first since, or "", and expects no more. */
void expect_fault();
const char *fault_seen();

/* ---- warp operations ---- */
struct shuffle {
    uint64_t in, out;
    int from;
};
void shuffle_all(void *const *arg);
template <class T> T shfl(site where, unsigned mask, T v, int from)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    shuffle s = {0, 0, from};
    memcpy(&s.in, &v, sizeof v);
    warp_meet(where, mask, shuffle_all, &s);
    T out;
    memcpy(&out, &s.out, sizeof out);
    return out;
}
int lane();
template <class T> T shfl_xor(site w, unsigned mask, T v, int by)
{
    return shfl(w, mask, v, lane() ^ by);
}
template <class T> T shfl_down(site w, unsigned mask, T v, int by)
{
    return shfl(w, mask, v, lane() + by < WARP ? lane() + by : lane());
}
template <class T> T shfl_up(site w, unsigned mask, T v, int by)
{
    return shfl(w, mask, v, lane() >= by ? lane() - by : lane());
}
unsigned ballot(site where, unsigned mask, int predicate);

struct mma { /* one lane's registers */
    const unsigned *a, *b;
    float *f;
    int32_t *i;
};
void mma_f16_all(void *const *arg);
void mma_bf16_all(void *const *arg);
void mma_e4m3_all(void *const *arg);
void mma_s8_all(void *const *arg);
struct ldmatrix {
    unsigned *r;
    const void *row;
    bool transposed;
};
void ldmatrix_all(void *const *arg);

float f16(uint16_t bits);
uint16_t to_f16(float x);
float e4m3(uint8_t bits);
uint8_t to_e4m3(float x);
} // namespace emu

/* ---- CUDA's own words ---- */
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define threadIdx (emu::thread_idx())
#define blockIdx (emu::block_idx())
#define blockDim (emu::block_dim())
#define gridDim (emu::grid_dim())
#define __syncthreads() emu::barrier(EMU_SITE("__syncthreads"), 0, 0)
#define __syncwarp() emu::warp_meet(EMU_SITE("__syncwarp"), 0xffffffffu, nullptr, nullptr)
#define __shfl_sync(mask, v, from) emu::shfl(EMU_SITE("__shfl_sync"), mask, v, from)
#define __shfl_xor_sync(mask, v, by) emu::shfl_xor(EMU_SITE("__shfl_xor_sync"), mask, v, by)
#define __shfl_down_sync(mask, v, by) emu::shfl_down(EMU_SITE("__shfl_down_sync"), mask, v, by)
#define __shfl_up_sync(mask, v, by) emu::shfl_up(EMU_SITE("__shfl_up_sync"), mask, v, by)
#define __ballot_sync(mask, p) emu::ballot(EMU_SITE("__ballot_sync"), mask, p)
#define __any_sync(mask, p) (emu::ballot(EMU_SITE("__any_sync"), mask, p) != 0)
#define __all_sync(mask, p) (emu::ballot(EMU_SITE("__all_sync"), mask, !(p)) == 0)
#define __threadfence() ((void)0)
#define __expf(x) expf(x)
#define __logf(x) logf(x)

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
template <class T> static inline T atomicAdd(T *p, T v)
{
    T old = *p;
    *p = old + v;
    return old;
}
template <class T> static inline T atomicMax(T *p, T v)
{
    T old = *p;
    if (v > old) *p = v;
    return old;
}
template <class T> static inline T atomicMin(T *p, T v)
{
    T old = *p;
    if (v < old) *p = v;
    return old;
}
template <class T> static inline T atomicCAS(T *p, T expected, T v)
{
    T old = *p;
    if (old == expected) *p = v;
    return old;
}
template <class T> static inline T min(T a, T b)
{
    return a < b ? a : b;
}
template <class T> static inline T max(T a, T b)
{
    return a > b ? a : b;
}
static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline int __float2int_rn(float x)
{
    return (int)nearbyintf(x);
}
static inline float __uint_as_float(unsigned u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline unsigned __float_as_uint(float f)
{
    unsigned u;
    memcpy(&u, &f, 4);
    return u;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 32; i += 8)
        c += (int)(int8_t)(a >> i) * (int)(int8_t)(b >> i);
    return c;
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s)
{
    uint64_t both = (uint64_t)y << 32 | x;
    unsigned out = 0;
    for (int i = 0; i < 4; i++)
        out |= (unsigned)(both >> ((s >> 4 * i & 7) * 8) & 255) << 8 * i;
    return out;
}

/* ---- the words of engine/backend/cuda/device.cuh ---- */
#define KERNEL [[maybe_unused]] static void
#define DEVICE static inline
#define SHARED(type, name, n)                                                                      \
    type *name = (type *)emu::shared_array(EMU_SITE(#name), sizeof(type) * (size_t)(n))
#define DYN_SHARED(type, name) type *name = (type *)emu::shared_dynamic()
#define NAMED_BARRIER(id, n) emu::barrier(EMU_SITE("named barrier"), id, n)
#define MMA_(fn, d, a, b, as)                                                                      \
    do {                                                                                           \
        emu::mma m_ = {a, b, nullptr, nullptr};                                                    \
        m_.as = d;                                                                                 \
        emu::warp_meet(EMU_SITE(#fn), 0xffffffffu, emu::fn, &m_);                                  \
    } while (0)
#define MMA_F16(d, a, b) MMA_(mma_f16_all, d, a, b, f)
#define MMA_BF16(d, a, b) MMA_(mma_bf16_all, d, a, b, f)
#define MMA_E4M3(d, a, b) MMA_(mma_e4m3_all, d, a, b, f)
#define MMA_S8(d, a, b) MMA_(mma_s8_all, d, a, b, i)
#define LDMATRIX_(r, row, transposed)                                                              \
    do {                                                                                           \
        emu::ldmatrix l_ = {r, row, transposed};                                                   \
        emu::warp_meet(EMU_SITE("ldmatrix"), 0xffffffffu, emu::ldmatrix_all, &l_);                 \
    } while (0)
#define LDMATRIX_X4(r, row) LDMATRIX_(r, row, false)
#define LDMATRIX_X4_T(r, row) LDMATRIX_(r, row, true)
#define COPY_ASYNC_16(shared, global) emu::copy_async(shared, global, 16)
#define COPY_COMMIT() emu::copy_commit()
#define COPY_WAIT(n) emu::copy_wait(n)
static inline float f16_float(uint16_t bits)
{
    return emu::f16(bits);
}
static inline uint16_t float_f16(float x)
{
    return emu::to_f16(x);
}
static inline float bf16_float(uint16_t bits)
{
    return __uint_as_float((unsigned)bits << 16);
}
static inline uint16_t float_bf16(float x)
{
    unsigned u = __float_as_uint(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
static inline float e4m3_float(uint8_t bits)
{
    return emu::e4m3(bits);
}
static inline uint8_t float_e4m3(float x)
{
    return emu::to_e4m3(x);
}

#endif
