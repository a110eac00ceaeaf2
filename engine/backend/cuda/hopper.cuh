/* hopper.cuh - the words of sm_90a that device.cuh has not: barriers that count bytes, copies by the tensor memory accelerator, and products of
 * a warp group (four warps). For nvcc inline PTX; tests/cuda_emu defines the same words for the CPU. On other architectures they trap: the
 * host launches nothing that has them there (attend_wide.cu).
 *
 * BAR_INIT(bar, n), then BAR_INIT_FENCE and a block barrier: n threads arrive each phase; phases count from 0. BAR_EXPECT(bar, bytes): one
 *   arrival, and so many bytes more must land. BAR_WAIT(bar, parity): until the phase of that parity is over.
 * TMA_LOAD(shared, map, at, bar): a box at coordinates at[5]; shared is a multiple of 1024; its bytes count for bar. By one thread.
 * ASYNC_FENCE: what this thread wrote to shared memory is seen by the products after it.
 * WGMMA_64(d, a, tile, trans, add): D[64][64] (+)= A[64][16] B[16][64]; warp w of the group has rows 16w.. of A and D as in mma.m16n8k16, d
 *   being float[32] (eight tiles of 8 columns), a unsigned[4]. B lies in shared memory in rows of 128 bytes, swizzled, eight rows 1024
 *   bytes: a row is a column of B with k neighbouring (trans 0), or one k with columns neighbouring (trans 1). tile: WGMMA_TILE(where).
 *   WGMMA_HOLD(array) on d and a, then WGMMA_FENCE, before the first after registers were written; WGMMA_COMMIT after the last; WGMMA_WAIT before
 *   any of d, a or the tile is touched, and WGMMA_HOLD on d and a after that. HOLD keeps the compiler from moving what writes or
 *   reads them past the fence or the wait.
 * Source: PTX ISA 8.x, "mbarrier", "cp.async.bulk.tensor", "wgmma" and their shared memory matrix layouts. Never run on hardware. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_HOPPER_CUH
#define DEJA_ENGINE_BACKEND_CUDA_HOPPER_CUH
#include "engine/backend/cuda/device.cuh"
#include "engine/backend/cuda/tensor_map.h"

#ifdef __CUDACC__
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SM90_(...) asm volatile(__VA_ARGS__)
#else
#define SM90_(...) __trap()
#endif

DEVICE void BAR_INIT(uint64_t *bar, int n)
{
    SM90_("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(n) : "memory");
}
DEVICE void BAR_INIT_FENCE()
{
    SM90_("fence.mbarrier_init.release.cluster;" ::: "memory");
}
DEVICE void BAR_EXPECT(uint64_t *bar, unsigned bytes)
{
    SM90_("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)),
          "r"(bytes)
          : "memory");
}
DEVICE void BAR_WAIT(uint64_t *bar, unsigned parity)
{
    unsigned over = 0;
    while (!over) {
        SM90_("{\n.reg .pred p;\n"
              "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
              "selp.u32 %0, 1, 0, p;\n}"
              : "=r"(over)
              : "r"(shared_address(bar)), "r"(parity)
              : "memory");
    }
}
DEVICE void TMA_LOAD(void *shared, const struct tensor_map *map, const int at[5], uint64_t *bar)
{
    SM90_("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
          "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(shared)),
          "l"(map), "r"(shared_address(bar)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
          "r"(at[4])
          : "memory");
}
DEVICE void ASYNC_FENCE()
{
    SM90_("fence.proxy.async.shared::cta;" ::: "memory");
}
DEVICE void WGMMA_FENCE()
{
    SM90_("wgmma.fence.sync.aligned;" ::: "memory");
}
DEVICE void WGMMA_COMMIT()
{
    SM90_("wgmma.commit_group.sync.aligned;" ::: "memory");
}
DEVICE void WGMMA_WAIT()
{
    SM90_("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
template <int N> DEVICE void WGMMA_HOLD(float (&v)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(v[i])::"memory");
}
template <int N> DEVICE void WGMMA_HOLD(unsigned (&v)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(v[i])::"memory");
}
/* Start address, both strides 1024, swizzle of 128 bytes. */
DEVICE uint64_t WGMMA_TILE(const void *where)
{
    return (uint64_t)((shared_address(where) & 0x3ffffu) >> 4) | 64ull << 16 | 64ull << 32 |
           1ull << 62;
}
#define WGMMA_PTX_(trans)                                                                          \
    "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                   \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "     \
    "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "    \
    "%27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, " trans ";\n}"
#define WGMMA_D_(d)                                                                                \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),            \
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),    \
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), \
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), \
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
DEVICE void WGMMA_64(float (&d)[32], const unsigned (&a)[4], uint64_t tile, bool trans, int add)
{
    if (trans)
        SM90_(WGMMA_PTX_("1")
              : WGMMA_D_(d)
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tile), "r"(add)
              : "memory");
    else
        SM90_(WGMMA_PTX_("0")
              : WGMMA_D_(d)
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tile), "r"(add)
              : "memory");
}
#endif
#endif
