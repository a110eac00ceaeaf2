/* test_emu_tma.cpp - are a warp group's products and the copies of a tensor map emulated as hopper.cuh says, and does what is done too early, or
 * not at all, show? Products against plain sums; kernels with one fault each. Last line: N passed, N failed, N skipped. */
#include <cstdio>

#include "engine/backend/cuda/hopper.cuh"
#include "tests/cuda_emu/include/cuda_runtime.h"

static int passed, failed;
static void check(bool ok, const char *title, const char *seen = "")
{
    ok ? passed++ : failed++;
    printf("%s %s%s%s\n", ok ? "ok  " : "FAIL", title, *seen ? ": " : "", seen);
}

enum { ROWS = 32, WIDTH = 64, TILE = ROWS * 128, EVERYTHING = -1 };
enum step { INIT, EXPECT, LOAD, WAIT, FENCE, COMMIT, PRODUCT_WAIT };
struct product_args {
    struct tensor_map map;
    const uint16_t *a; /* [64][16] */
    float *d;          /* [64][64] */
    int k0, missing;   /* where k begins; the step that is left out */
    bool trans;
};

/* D = A times B, B being 16 rows of the tensor from k0 on (trans), or its columns k0.. with a row a column of B (of 64: rows past 31
 * are zeros of the map). */
KERNEL product(struct product_args p)
{
    DYN_SHARED(uint8_t, tile);
    SHARED(uint64_t, bar, 1);
    int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane / 4;
    unsigned a[4];
    float d[32] = {0};
    for (int r = 0; r < 4; r++)
        memcpy(&a[r], p.a + (row + r % 2 * 8) * 16 + lane % 4 * 2 + r / 2 * 8, 4);
    if (threadIdx.x == 0) {
        if (p.missing != INIT) BAR_INIT(bar, 1);
        BAR_INIT_FENCE();
        if (p.missing != EXPECT) BAR_EXPECT(bar, 2 * TILE);
        for (int half = 0; half < 2; half++) {
            int at[5] = {0, half * ROWS, 0, 0, 0};
            if (p.missing != LOAD) TMA_LOAD(tile + half * TILE, &p.map, at, bar);
        }
    }
    __syncthreads();
    if (p.missing != WAIT) BAR_WAIT(bar, 0);
    if (p.missing != FENCE) WGMMA_FENCE();
    WGMMA_64(d, a, WGMMA_TILE(tile + (p.trans ? p.k0 * 128 : p.k0 * 2)), p.trans, 0);
    if (p.missing != COMMIT) WGMMA_COMMIT();
    if (p.missing != PRODUCT_WAIT) WGMMA_WAIT();
    for (int j = 0; j < 32; j++)
        p.d[(row + j / 2 % 2 * 8) * 64 + j / 4 * 8 + lane % 4 * 2 + j % 2] = d[j];
}

static std::vector<uint16_t> numbers(size_t n, unsigned seed)
{
    std::vector<uint16_t> v;
    for (size_t i = 0; i < n; i++)
        v.push_back(
            emu::to_f16((float)(((unsigned)i * 37 + seed) * 2654435761u >> 24) / 64.0f - 2.0f));
    return v;
}

struct rig {
    std::vector<uint16_t> a = numbers(64 * 16, 5), b = numbers(ROWS * WIDTH, 9);
    std::vector<float> d = std::vector<float>(64 * 64, -7.0f);
    struct product_args p = {};
    bool made;
    rig()
    {
        struct tensor_shape s = {
            b.data(), {WIDTH, ROWS, 1, 1, 1}, {128, 4096, 4096, 4096}, {64, 32, 1, 1, 1}};
        made = tensor_map_make(&p.map, &s) == cudaSuccess;
        p.a = a.data(), p.d = d.data();
    }
    const char *run(int k0, bool trans, int missing)
    {
        p.k0 = k0, p.trans = trans, p.missing = missing;
        emu::expect_fault();
        emu::run(1, 128, 2 * TILE, [this] { product(p); });
        return emu::fault_seen();
    }
    double value(int k, int n) const
    {
        int row = p.trans ? p.k0 + k : n, col = p.trans ? n : p.k0 + k;
        return row < ROWS ? emu::f16(b[(size_t)(row * WIDTH + col)]) : 0;
    }
    double off() const
    {
        double worst = 0;
        for (int m = 0; m < 64; m++)
            for (int n = 0; n < 64; n++) {
                double sum = 0;
                for (int k = 0; k < 16; k++)
                    sum += emu::f16(a[(size_t)(m * 16 + k)]) * value(k, n);
                double x = d[(size_t)(m * 64 + n)];
                worst = fabs(sum - x) < 1e9 ? fmax(worst, fabs(sum - x)) : 1e9;
            }
        return worst;
    }
};

static void test_products()
{
    for (bool trans : {false, true})
        for (int k0 : {0, 16}) {
            rig r;
            const char *seen = r.run(k0, trans, EVERYTHING);
            check(r.made && !*seen && r.off() < 1e-4,
                  trans ? "rows that are k, from a map" : "rows that are columns, from a map",
                  seen);
        }
}

static void test_faults()
{
    static const struct {
        int missing;
        const char *says, *title;
    } all[] = {{INIT, "BAR_INIT has not made", "a barrier nobody made"},
               {EXPECT, "cannot go on", "bytes nobody expects are waited for in vain"},
               {LOAD, "cannot go on", "bytes nobody sends are waited for in vain"},
               {WAIT, "on their way", "a copy nobody waits for"},
               {FENCE, "without a fence", "a product without a fence"},
               {COMMIT, "not committed", "a product without a commit"},
               {PRODUCT_WAIT, "products it has not waited for", "a product nobody waits for"}};
    for (auto &f : all) {
        rig r;
        const char *seen = r.run(0, false, f.missing);
        check(strstr(seen, f.says) != nullptr, f.title, seen);
    }
}

/* The tile is read before its copy has landed, and overwritten before the product is waited for. */
KERNEL early(struct product_args p, bool late)
{
    DYN_SHARED(uint8_t, tile);
    SHARED(uint64_t, bar, 1);
    int at[5] = {0, 0, 0, 0, 0};
    unsigned a[4] = {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00};
    float d[32] = {0};
    if (threadIdx.x == 0) {
        BAR_INIT(bar, 1);
        BAR_EXPECT(bar, TILE);
        TMA_LOAD(tile, &p.map, at, bar);
        p.d[0] = emu::f16(*(uint16_t *)tile);
    }
    __syncthreads();
    BAR_WAIT(bar, 0);
    WGMMA_FENCE();
    WGMMA_64(d, a, WGMMA_TILE(tile), true, 0);
    WGMMA_COMMIT();
    if (threadIdx.x == 0) p.d[1] = d[0];
    __syncthreads();
    if (late) memset(tile + threadIdx.x * 32, 0, 32);
    __syncthreads();
    WGMMA_WAIT();
    if (threadIdx.x == 0) p.d[2] = d[0];
}

static void test_early()
{
    rig r;
    float right;
    emu::run(1, 128, TILE, [&] { early(r.p, false); });
    right = r.d[2];
    check(std::isnan(r.d[0]), "what is read before it has landed is NaN");
    check(r.d[1] == 0 && right != 0, "a product is not there before it is waited for");
    emu::run(1, 128, TILE, [&] { early(r.p, true); });
    check(r.d[2] == 0, "a tile overwritten too early spoils the product");
}

int main()
{
    test_products();
    test_faults();
    test_early();
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed != 0;
}
