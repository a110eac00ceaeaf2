/* rig.hpp - what tests of CUDA code share: arrays on the (emulated) device, seeded values. */
#ifndef DEJA_TESTS_CUDA_RIG_HPP
#define DEJA_TESTS_CUDA_RIG_HPP
#include <vector>

extern "C" {
#include "base/rng.h"
#include "engine/backend/quant.h"
}
#include <cuda_runtime.h>

#include "tests/check.h"

/* n values on the device; exactly: an overread of the last one is reported under a sanitizer when bytes is a multiple of 256. */
template <class T> struct on_device {
    T *p = nullptr;
    size_t n;
    explicit on_device(size_t count) : n(count) { cudaMalloc(&p, n * sizeof(T)); }
    explicit on_device(const std::vector<T> &v) : on_device(v.size())
    {
        cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice);
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

#endif
