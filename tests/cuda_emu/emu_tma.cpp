/* emu_tma.cpp - see emu_tma.hpp. */
#include "tests/cuda_emu/emu_tma.hpp"

#include "engine/backend/cuda/tensor_map.h"

cudaError_t tensor_map_make(struct tensor_map *out, const struct tensor_shape *s)
{
    static_assert(sizeof(struct tensor_shape) <= sizeof(struct tensor_map), "it holds the shape");
    bool fits = (uintptr_t)s->base % 16 == 0 && s->box[0] * 2 == 128;
    for (int i = 0; i < TENSOR_MAP_RANK; i++) {
        fits =
            fits && s->dims[i] > 0 && s->dims[i] <= 1ull << 32 && s->box[i] > 0 && s->box[i] <= 256;
        if (i) fits = fits && s->strides[i - 1] % 16 == 0 && s->strides[i - 1] < 1ull << 40;
    }
    if (!fits) return cudaErrorInvalidValue;
    *out = {};
    memcpy(out, s, sizeof *s);
    return cudaSuccess;
}

namespace emu
{
enum { MADE = 0xb5, ROW_BYTES = 128, ALIGN = 1024, N = 64, K = 16 };
struct bar { /* of 8 bytes, as on a device */
    uint8_t made, phase;
    uint8_t n, missing; /* arrivals of a phase, and of this one */
    int32_t bytes;      /* that are still to land */
};
static_assert(sizeof(struct bar) == 8, "it lies in shared memory");

struct load {
    void *shared, *bar;
    struct tensor_shape shape;
    int at[TENSOR_MAP_RANK];
};
static std::vector<load> loads;

unsigned address_of(const void *shared)
{
    return (unsigned)((const char *)shared - (const char *)shared_dynamic());
}

/* ---- barriers ---- */
static struct bar get(const void *p)
{
    struct bar b;
    memcpy(&b, p, sizeof b);
    if (b.made != MADE) fault("a barrier that BAR_INIT has not made");
    return b;
}
static void put(void *p, struct bar b)
{
    if (b.missing == 0 && b.bytes == 0) b.phase ^= 1, b.missing = b.n;
    memcpy(p, &b, sizeof b);
}
void bar_init(void *p, int n)
{
    struct bar b = {MADE, 0, (uint8_t)n, (uint8_t)n, 0};
    if (n < 1 || n > 255) fault("a barrier for %d arrivals", n);
    memcpy(p, &b, sizeof b);
}
void bar_expect(void *p, unsigned bytes)
{
    struct bar b = get(p);
    if (!b.missing) fault("a barrier's phase has more arrivals than it is for");
    b.missing--, b.bytes += (int32_t)bytes;
    put(p, b);
}

/* ---- copies ---- */
static unsigned swizzled(unsigned address)
{
    return address ^ (address >> 7 & 7) << 4;
}
static char *at_address(unsigned address)
{
    return (char *)shared_dynamic() + address;
}

/* Rows of 128 bytes, one after the other in the order of the box; outside of the tensor zeros. */
static size_t land(const load &l)
{
    const struct tensor_shape &s = l.shape;
    unsigned to = address_of(l.shared), rows = s.box[1] * s.box[2] * s.box[3] * s.box[4];
    for (unsigned r = 0; r < rows; r++) {
        int64_t place = 0;
        bool inside = true;
        unsigned rest = r;
        for (int i = 1; i < TENSOR_MAP_RANK; i++) {
            int64_t x = l.at[i] + (int64_t)(rest % s.box[i]);
            rest /= s.box[i];
            inside = inside && x >= 0 && x < (int64_t)s.dims[i];
            place += x * (int64_t)s.strides[i - 1];
        }
        for (unsigned c = 0; c < ROW_BYTES / 2; c++) {
            int64_t x = l.at[0] + (int64_t)c;
            uint16_t v = 0;
            if (inside && x >= 0 && x < (int64_t)s.dims[0])
                memcpy(&v, (const char *)s.base + place + 2 * x, 2);
            memcpy(at_address(swizzled(to + r * ROW_BYTES + c * 2)), &v, 2);
        }
    }
    return (size_t)rows * ROW_BYTES;
}

void tma_load(void *shared, const void *map, const int at[5], void *bar)
{
    load l = {shared, bar, {}, {}};
    memcpy(&l.shape, map, sizeof l.shape);
    memcpy(l.at, at, sizeof l.at);
    (void)get(bar);
    if (address_of(shared) % ALIGN || (uintptr_t)map % 64)
        fault("a copy by a map to an address, or with a map, that is not aligned");
    size_t bytes = (size_t)l.shape.box[1] * l.shape.box[2] * l.shape.box[3] * l.shape.box[4];
    memset(shared, 0xff,
           bytes * ROW_BYTES); /* NaNs for whoever still reads it, or reads too early */
    loads.push_back(l);
}

struct waiting {
    void *bar;
    unsigned parity;
};
/* The phase is over, or is with what is on its way. */
static bool over(void *arg)
{
    const waiting *w = (const waiting *)arg;
    if (get(w->bar).phase % 2 != w->parity % 2) return true;
    for (size_t i = 0; i < loads.size();) {
        if (loads[i].bar != w->bar) {
            i++;
            continue;
        }
        struct bar b = get(w->bar);
        b.bytes -= (int32_t)land(loads[i]);
        put(w->bar, b);
        loads.erase(loads.begin() + (long)i);
    }
    return get(w->bar).phase % 2 != w->parity % 2;
}
void bar_wait(site where, void *bar, unsigned parity)
{
    waiting w = {bar, parity};
    if (!over(&w)) poll(where, over, &w);
}
void tma_reset()
{
    loads.clear();
}
bool tma_on_its_way()
{
    return !loads.empty();
}

/* ---- products ---- */
uint64_t wgmma_tile(const void *where)
{
    return (uint64_t)((address_of(where) & 0x3ffffu) >> 4) | 64ull << 16 | 64ull << 32 | 1ull << 62;
}
void wgmma(float *d, const unsigned *a, uint64_t tile, bool trans, bool add)
{
    wgmma_state &s = wgmma_of_thread();
    if (!s.fenced) fault("a product of a warp group without a fence since the last wait");
    s.ops.push_back({d, a, tile, trans, add});
    s.committed = false;
}
void wgmma_fence()
{
    wgmma_of_thread().fenced = true;
}
void wgmma_commit()
{
    wgmma_of_thread().committed = true;
}

/* B[k][n] of a tile: swizzle of 128 bytes, eight rows a stride apart. */
static float value_of(const wgmma_op &op, unsigned k, unsigned n)
{
    unsigned start = (unsigned)(op.tile & 0x3fff) << 4,
             stride = (unsigned)(op.tile >> 32 & 0x3fff) << 4, row = op.trans ? k : n,
             within = op.trans ? n : k;
    uint16_t v;
    memcpy(&v, at_address(swizzled(start + row / 8 * stride + row % 8 * ROW_BYTES + within * 2)),
           2);
    return f16(v);
}

static void multiply(wgmma_state *const lane_of[WARP], size_t i)
{
    static float a[16][K], b[K][N];
    const wgmma_op &first = lane_of[0]->ops[i];
    if (first.tile >> 62 != 1) fault("a tile that is not swizzled by 128 bytes");
    for (unsigned k = 0; k < K; k++)
        for (unsigned n = 0; n < N; n++)
            b[k][n] = value_of(first, k, n);
    for (int l = 0; l < WARP; l++)
        for (int r = 0; r < 4; r++)
            for (int e = 0; e < 2; e++)
                a[l / 4 + r % 2 * 8][l % 4 * 2 + e + r / 2 * 8] =
                    f16((uint16_t)(lane_of[l]->ops[i].a[r] >> 16 * e));
    for (int l = 0; l < WARP; l++) {
        const wgmma_op &op = lane_of[l]->ops[i];
        if (op.tile != first.tile || op.trans != first.trans || op.add != first.add)
            fault("lanes of a warp multiply by different tiles");
        for (int j = 0; j < 32; j++) {
            int row = l / 4 + j / 2 % 2 * 8, col = j / 4 * 8 + l % 4 * 2 + j % 2;
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += (double)a[row][k] * (double)b[k][col];
            op.d[j] = (op.add ? op.d[j] : 0.0f) + (float)sum;
        }
    }
}

static void run_all(void *const *arg)
{
    wgmma_state *lane_of[WARP];
    for (int l = 0; l < WARP; l++) {
        lane_of[l] = (wgmma_state *)arg[l];
        if (lane_of[l]->ops.size() == lane_of[0]->ops.size()) continue;
        fault("lanes of a warp wait for different products");
        return;
    }
    for (size_t i = 0; i < lane_of[0]->ops.size(); i++)
        multiply(lane_of, i);
}

void wgmma_wait(site where)
{
    wgmma_state &s = wgmma_of_thread();
    if (!s.ops.empty() && !s.committed) fault("products of a warp group that were not committed");
    warp_meet(where, 0xffffffffu, run_all, &s);
    s.ops.clear();
    s.fenced = false;
}
} // namespace emu
