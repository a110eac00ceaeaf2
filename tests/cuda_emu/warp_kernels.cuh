/* warp_kernels.cuh - kernels that do one warp operation each, for the emulation's own tests and, compiled by nvcc, for tests/gpu/layouts.cu: what
 * the emulation takes fragments and shuffles to be is what a device does, or that test fails. */
#ifndef DEJA_TESTS_CUDA_WARP_KERNELS_CUH
#define DEJA_TESTS_CUDA_WARP_KERNELS_CUH

KERNEL warp_sums(const float *in, float *out)
{
    float v = in[threadIdx.x];
    for (int by = 16; by; by /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, by);
    unsigned odd = __ballot_sync(0xffffffffu, threadIdx.x & 1);
    out[threadIdx.x] = v + (odd == 0xaaaaaaaau ? 0.5f : 0.0f);
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
KERNEL product_bf16(const unsigned *a, const unsigned *b, float *out)
{
    unsigned fa[4], fb[2];
    float d[4] = {0};
    load_fragments<8>(a, b, fa, fb);
    MMA_BF16(d, fa, fb);
    store_fragment(d, out);
}
/* B through the transposing ldmatrix: b16 [16 k][8 columns] in shared memory, twice, since four matrices are loaded */
KERNEL product_ldmatrix_t(const unsigned *a, const unsigned *b_rows, float *out)
{
    SHARED(uint16_t, tile, 16 * 8);
    for (int i = threadIdx.x; i < 64; i += 32)
        ((unsigned *)tile)[i] = b_rows[i];
    __syncthreads();
    unsigned fa[4], fb[4], unused[2];
    float d[4] = {0};
    int lane = threadIdx.x;
    load_fragments<8>(a, a, fa, unused);
    LDMATRIX_X4_T(fb, tile + lane % 16 * 8);
    MMA_F16(d, fa, fb);
    store_fragment(d, out);
}
/* Edges of shuffles: a lane that would read beyond the warp keeps its own value. */
KERNEL shuffle_edges(float *out)
{
    float v = (float)threadIdx.x;
    out[threadIdx.x] = __shfl_up_sync(0xffffffffu, v, 4);
    out[32 + threadIdx.x] = __shfl_down_sync(0xffffffffu, v, 4);
    out[64 + threadIdx.x] = __shfl_sync(0xffffffffu, v, (int)(threadIdx.x * 7 % 32));
}
/* Every 16-bit float to float and back, and floats between to the nearest. */
KERNEL f16_round_trips(unsigned *n_wrong)
{
    unsigned bits = blockIdx.x * blockDim.x + threadIdx.x;
    float x = f16_float((uint16_t)bits);
    if (x == x && float_f16(x) != bits) atomicAdd(n_wrong, 1u);
    float e = e4m3_float((uint8_t)bits);
    if (bits < 256 && e == e && float_e4m3(e) != bits) atomicAdd(n_wrong, 1u);
}

#endif
