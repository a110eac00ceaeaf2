/* device.cuh - the words kernels are written in. For nvcc they are CUDA's own; tests compile the same .cu files with g++, where
 * <cuda_runtime.h> is that of tests/cuda_emu and defines them for the CPU.
 *
 * Small floats travel as bits (uint16_t, uint8_t): f16_float, float_f16, bf16_float, float_bf16, e4m3_float, float_e4m3 (saturating).
 * MMA_*(d, a, b): D[16][8] += A[16][K] B[K][8] by one warp, K = 16 (f16, bf16; float d[4]) or 32 (e4m3: float d[4], from sm_89 on;
 *   s8: int d[4]); a is unsigned[4], b unsigned[2], fragments as in the PTX ISA ("Matrix fragments for mma.m16n8k16 / k32").
 * LDMATRIX_X4(r, row): four 8x8 matrices of 16-bit elements from shared memory, lane 8i + j names row j of matrix i.
 * COPY_ASYNC_16, COPY_COMMIT, COPY_WAIT(n): cp.async of 16 bytes, at most n newest groups may still be on their way. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_DEVICE_CUH
#define DEJA_ENGINE_BACKEND_CUDA_DEVICE_CUH
#include <cuda_runtime.h>
#include <stdint.h>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#define KERNEL static __global__ void
#define DEVICE static __device__ __forceinline__
#define SHARED(type, name, n) __shared__ __align__(16) type name[n]
#define DYN_SHARED(type, name)                                                                     \
    extern __shared__ __align__(128) unsigned char dyn_shared_bytes[];                             \
    type *name = (type *)dyn_shared_bytes
#define NAMED_BARRIER(id, n) asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory")
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                     \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)

#define MMA_FLOAT_(name, text)                                                                     \
    DEVICE void name(float d[4], const unsigned a[4], const unsigned b[2])                         \
    {                                                                                              \
        asm volatile("mma.sync.aligned." text " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "           \
                     "{%0,%1,%2,%3};"                                                              \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));          \
    }
MMA_FLOAT_(MMA_F16, "m16n8k16.row.col.f32.f16.f16.f32")
MMA_FLOAT_(MMA_BF16, "m16n8k16.row.col.f32.bf16.bf16.f32")
#if __CUDA_ARCH__ >= 890
MMA_FLOAT_(MMA_E4M3, "m16n8k32.row.col.f32.e4m3.e4m3.f32")
#else
DEVICE void MMA_E4M3(float[4], const unsigned[4], const unsigned[2])
{
    __trap(); /* the host never launches it below sm_89 */
}
#endif
DEVICE void MMA_S8(int d[4], const unsigned a[4], const unsigned b[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}
DEVICE void LDMATRIX_X4(unsigned r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
}
DEVICE void LDMATRIX_X4_T(unsigned r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
}
DEVICE void COPY_ASYNC_16(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)),
                 "l"(global)
                 : "memory");
}
#define COPY_COMMIT() asm volatile("cp.async.commit_group;" ::: "memory")
#define COPY_WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

DEVICE float f16_float(uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}
DEVICE uint16_t float_f16(float x)
{
    return __half_as_ushort(__float2half_rn(x));
}
DEVICE float bf16_float(uint16_t bits)
{
    return __uint_as_float((unsigned)bits << 16);
}
DEVICE uint16_t float_bf16(float x)
{
    unsigned u = __float_as_uint(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
DEVICE float e4m3_float(uint8_t bits)
{
    return __half2float(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3));
}
DEVICE uint8_t float_e4m3(float x)
{
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}
#endif
#endif
