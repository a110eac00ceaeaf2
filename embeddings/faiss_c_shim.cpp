/* faiss_c_shim.cpp - the few functions of FAISS' C API that we call, for builds of the library that ship the C headers but not the
 * symbols (Debian's). Declared by the genuine headers, so a library that has them can take over without a change elsewhere.
 * No exception leaves this file: -2 for FAISS' own, -4 for others, text in faiss_get_last_error (per thread). */
#ifndef DEJA_HAVE_FAISS_C
#include <faiss/AutoTune.h>
#include <faiss/Index.h>
#include <faiss/impl/FaissException.h>
#include <faiss/index_factory.h>

#include <exception>
#include <memory>
#include <string>

extern "C" {
#include <faiss/c_api/AutoTune_c.h>
#include <faiss/c_api/Index_c.h>
#include <faiss/c_api/error_c.h>
#include <faiss/c_api/index_factory_c.h>
}

static thread_local std::string last_error;

template <class Work> static int guarded(Work work)
{
    try {
        work();
        return 0;
    } catch (const faiss::FaissException &x) {
        last_error = x.what();
        return -2;
    } catch (const std::exception &x) {
        last_error = x.what();
        return -4;
    } catch (...) {
        last_error = "unknown exception";
        return -1;
    }
}

static faiss::Index *inside(FaissIndex *x)
{
    return reinterpret_cast<faiss::Index *>(x);
}
static const faiss::Index *inside(const FaissIndex *x)
{
    return reinterpret_cast<const faiss::Index *>(x);
}

extern "C" {

const char *faiss_get_last_error()
{
    return last_error.empty() ? nullptr : last_error.c_str();
}

int faiss_index_factory(FaissIndex **out, int d, const char *description, FaissMetricType metric)
{
    return guarded([&] {
        *out = reinterpret_cast<FaissIndex *>(
            faiss::index_factory(d, description, static_cast<faiss::MetricType>(metric)));
    });
}

void faiss_Index_free(FaissIndex *x)
{
    delete inside(x);
}

idx_t faiss_Index_ntotal(const FaissIndex *x)
{
    return inside(x)->ntotal;
}

int faiss_Index_add(FaissIndex *x, idx_t n, const float *vecs)
{
    return guarded([&] { inside(x)->add(n, vecs); });
}

int faiss_Index_search(const FaissIndex *x, idx_t n, const float *vecs, idx_t k, float *distances,
                       idx_t *labels)
{
    return guarded([&] { inside(x)->search(n, vecs, k, distances, labels); });
}

int faiss_Index_reconstruct(const FaissIndex *x, idx_t key, float *vec)
{
    return guarded([&] { inside(x)->reconstruct(key, vec); });
}

int faiss_ParameterSpace_new(FaissParameterSpace **out)
{
    return guarded([&] {
        *out = reinterpret_cast<FaissParameterSpace *>(
            std::make_unique<faiss::ParameterSpace>().release());
    });
}

void faiss_ParameterSpace_free(FaissParameterSpace *space)
{
    delete reinterpret_cast<faiss::ParameterSpace *>(space);
}

int faiss_ParameterSpace_set_index_parameters(const FaissParameterSpace *space, FaissIndex *x,
                                              const char *text)
{
    return guarded([&] {
        reinterpret_cast<const faiss::ParameterSpace *>(space)->set_index_parameters(inside(x),
                                                                                     text);
    });
}
}
#endif
