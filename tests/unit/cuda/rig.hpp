/* rig.hpp - what tests of CUDA code share: arrays on the (emulated) device, seeded values. */
#ifndef DEJA_TESTS_CUDA_RIG_HPP
#define DEJA_TESTS_CUDA_RIG_HPP
#include <vector>

extern "C" {
#include "base/rng.h"
#include "engine/backend/quant.h"
}
#include <cuda_runtime.h>

#include "engine/backend/cuda/launch.h"
#include "tests/check.h"

#ifdef DEJA_ON_GPU /* tests/gpu: a real device, whose faults nobody can order */
namespace emu
{
static inline void seed(uint64_t) {}
static inline void fail_allocation_after(int) {}
static inline void fail_capture_after(int) {}
static inline void lose_device_after(int, int = 0) {}
} // namespace emu
#define NEEDS_EMULATION() SKIP("needs the emulation")
static inline size_t device_bytes_left()
{
    return 0;
}
static inline int graphs_launched()
{
    return 0;
}
static inline int graphs_alive()
{
    return 0;
}
#else
#define NEEDS_EMULATION() ((void)0)
/* Of the emulation, which counts them; 0 elsewhere. */
static inline size_t device_bytes_left()
{
    return emu::device_bytes();
}
static inline int graphs_launched()
{
    return emu::graph_launches();
}
static inline int graphs_alive()
{
    return emu::graphs_alive();
}
#endif

/* n values on the device; exactly: an overread of the last one is reported under a sanitizer when bytes is a multiple of 256. */
template <class T> struct on_device {
    T *p = nullptr;
    size_t n;
    explicit on_device(size_t count) : n(count) { cudaMalloc(&p, (n ? n : 1) * sizeof(T)); }
    explicit on_device(const std::vector<T> &v) : on_device(v.size())
    {
        if (n) cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice);
        cudaDeviceSynchronize(); /* the copy may end later, and a backend's stream does not wait for it */
    }
    on_device(const on_device &) = delete;
    on_device &operator=(const on_device &) = delete;
    ~on_device() { cudaFree(p); }
    std::vector<T> get() const
    {
        std::vector<T> v(n);
        cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost);
        return v;
    }
};

/* Roughly normal, in [-3,3] * scale. */
static inline std::vector<float> random_values(uint64_t seed, size_t n, float scale)
{
    struct rng r;
    rng_seed(&r, seed);
    std::vector<float> v(n);
    for (float &x : v) {
        double s = 0;
        for (int i = 0; i < 4; i++)
            s += rng_f64(&r) - 0.5;
        x = (float)(s * 1.5) * scale;
    }
    return v;
}

static const enum tensor_type all_types[] = {TENSOR_F32,  TENSOR_F16,  TENSOR_BF16, TENSOR_Q4_0,
                                             TENSOR_Q4_1, TENSOR_Q5_0, TENSOR_Q5_1, TENSOR_Q8_0,
                                             TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K};

/* A packed weight on the device, and its exact values. */
struct matrix {
    struct pack_layout l;
    std::vector<float> exact; /* [n_out][n_in] */
    on_device<uint8_t> bytes;

    static std::vector<uint8_t> pack(struct pack_layout *l, enum tensor_type t, int n_out, int n_in,
                                     std::vector<float> *exact)
    {
        struct errmsg e = {};
        CHECK_INT(pack_layout_of(t, n_out, n_in, l, &e), OK);
        size_t row = tensor_row_bytes(t, n_in);
        std::vector<uint8_t> rows((size_t)n_out * row), packed(l->bytes);
        auto values = random_values(7, (size_t)n_out * (size_t)n_in, 0.1f);
        exact->resize(values.size());
        for (int o = 0; o < n_out; o++) {
            size_t at = (size_t)o * (size_t)n_in;
            quantise_row(t, &values[at], &rows[(size_t)o * row], n_in);
            dequantise_row(t, &rows[(size_t)o * row], &(*exact)[at], n_in);
        }
        pack_rows(l, rows.data(), packed.data());
        return packed;
    }
    matrix(enum tensor_type t, int n_out, int n_in) : bytes(pack(&l, t, n_out, n_in, &exact)) {}
    struct packed view() const
    {
        return {bytes.p,
                bytes.p + l.high_at,
                bytes.p + l.scale_at,
                bytes.p + l.super_at,
                l.n_out,
                l.n_in,
                l.n_runs};
    }
};

#endif
