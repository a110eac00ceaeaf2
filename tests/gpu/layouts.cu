/* layouts.cu - the emulation's assumptions against a device: fragment layouts of mma and ldmatrix, edges of shuffles, rounding of small floats.
 * The kernels are tests/cuda_emu/warp_kernels.cuh, the very ones the emulation is tested with. Last line: N passed, N failed. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "engine/backend/cuda/device.cuh"
#include "tests/cuda_emu/warp_kernels.cuh"

static int passed, failed;
static void check(bool ok, const char *title)
{
    ok ? passed++ : failed++;
    printf("%s %s\n", ok ? "ok  " : "FAIL", title);
}

/* n values here, and on the device: `up` and `down` copy all of them. */
template <class T> struct both {
    std::vector<T> host;
    T *device = nullptr;
    explicit both(size_t n) : host(n)
    {
        cudaError_t code = cudaMalloc(&device, n * sizeof(T));
        if (code == cudaSuccess) return;
        printf("FAIL no memory: %s\n0 passed, 1 failed\n", cudaGetErrorString(code));
        exit(1);
    }
    both(const both &) = delete;
    ~both() { cudaFree(device); }
    T *up()
    {
        cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice);
        return device;
    }
    bool down()
    {
        return cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost) ==
               cudaSuccess;
    }
    T &operator[](size_t i) { return host[i]; }
};

/* Small whole numbers, exact in every type: the sums are exact too. */
static int small(int i)
{
    return i * 37 % 11 - 5;
}
static unsigned f16_bits(int v)
{
    static const unsigned of[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500};
    return v < 0 ? 0x8000 | of[-v] : of[v];
}
static unsigned bf16_bits(int v)
{
    static const unsigned of[] = {0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0};
    return v < 0 ? 0x8000 | of[-v] : of[v];
}
static unsigned e4m3_bits(int v)
{
    static const unsigned of[] = {0, 0x38, 0x40, 0x44, 0x48, 0x4a};
    return v < 0 ? 0x80 | of[-v] : of[v];
}
static unsigned s8_bits(int v)
{
    return (unsigned)v & 255;
}

typedef void (*product)(const unsigned *, const unsigned *, float *);

static void put(both<unsigned> &words, int i, int bits, unsigned v)
{
    int per = 32 / bits;
    words[(size_t)(i / per)] |= v << i % per * bits;
}

/* b_rows: B as [k][8] instead of [8][k] */
static bool multiplies(product kernel, int k_total, int bits, unsigned (*of)(int), bool b_rows)
{
    both<unsigned> a(128), b(128);
    both<float> d(128);
    bool right = true;
    for (int r = 0; r < 16; r++)
        for (int k = 0; k < k_total; k++)
            put(a, r * k_total + k, bits, of(small(r * 5 + k * 3)));
    for (int c = 0; c < 8; c++)
        for (int k = 0; k < k_total; k++)
            put(b, b_rows ? k * 8 + c : c * k_total + k, bits, of(small(c * 7 + k)));
    kernel<<<1, 32>>>(a.up(), b.up(), d.device);
    if (!d.down()) return false;
    for (int r = 0; r < 16; r++)
        for (int c = 0; c < 8; c++) {
            int sum = 0;
            for (int k = 0; k < k_total; k++)
                sum += small(r * 5 + k * 3) * small(c * 7 + k);
            right &= d[(size_t)(r * 8 + c)] == (float)sum;
        }
    return right;
}

int main()
{
    struct cudaDeviceProp p;
    cudaError_t code = cudaGetDeviceProperties(&p, 0);
    if (code != cudaSuccess) {
        printf("no CUDA device: %s\n0 passed, 1 failed\n", cudaGetErrorString(code));
        return 1;
    }
    check(multiplies(product_f16, 16, 16, f16_bits, false), "mma m16n8k16 f16");
    check(multiplies(product_bf16, 16, 16, bf16_bits, false), "mma m16n8k16 bf16");
    check(multiplies(product_s8, 32, 8, s8_bits, false), "mma m16n8k32 s8");
    if (p.major > 8 || p.minor >= 9)
        check(multiplies(product_e4m3, 32, 8, e4m3_bits, false), "mma m16n8k32 e4m3");
    check(multiplies(product_ldmatrix, 16, 16, f16_bits, false), "ldmatrix x4");
    check(multiplies(product_ldmatrix_t, 16, 16, f16_bits, true), "ldmatrix x4 transposed");
    both<float> in(32), out(96);
    for (size_t i = 0; i < 32; i++)
        in[i] = (float)i;
    warp_sums<<<1, 32>>>(in.up(), out.device);
    check(out.down() && out[0] == 496.5f && out[31] == 496.5f, "xor shuffles and ballots");
    shuffle_edges<<<1, 32>>>(out.device);
    check(out.down() && out[2] == 2 && out[6] == 2 && out[62] == 30 && out[35] == 7 && out[69] == 3,
          "shuffles beyond the warp's end");
    both<unsigned> n_wrong(1);
    f16_round_trips<<<256, 256>>>(n_wrong.up());
    check(n_wrong.down() && n_wrong[0] == 0, "small floats survive the way to float and back");
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
