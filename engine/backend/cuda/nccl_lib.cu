/* nccl_lib.cu - see nccl.h. The library is opened when several GPUs are asked for, so that a program built with CUDA starts and runs where it
 * is not. Its functions and numbers are written down here, as they have been since its version 2.0: building needs neither its header nor
 * the library; where the header is there, the compiler compares. Threading: see nccl.h. */
#ifdef __CUDACC__ /* the emulation has its own instead */
#include "engine/backend/cuda/nccl.h"

#include <dlfcn.h>
#include <string.h>

#if __has_include(<nccl.h>)
#include <nccl.h>
#define SAME(ours, theirs) static_assert((int)(ours) == (int)(theirs), "a number of nccl.h")
#endif

extern "C" {
#include "base/mem.h"
}

#define NCCL_SONAME "libnccl.so.2"
enum { NCCL_OK = 0, NCCL_BUSY = 7, NCCL_FLOAT = 7, NCCL_PLUS = 0, RANKS_MAX = 64 };
#ifdef SAME
SAME(NCCL_OK, ncclSuccess);
SAME(NCCL_BUSY, ncclInProgress);
SAME(NCCL_FLOAT, ncclFloat32);
SAME(NCCL_PLUS, ncclSum);
#endif

struct library {
    int (*init_all)(void **comm, int n, const int *device);
    int (*abort)(void *comm);
    int (*async_error)(void *comm, int *result);
    int (*all_reduce)(const void *from, void *to, size_t n, int type, int op, void *comm,
                      cudaStream_t s);
    int (*all_gather)(const void *from, void *to, size_t n, int type, void *comm, cudaStream_t s);
    const char *(*text)(int result);
};
struct nccl {
    const struct library *library;
    void *comm;
};

/* It is opened once and stays: threads of its own may outlive the last group. NULL: it is not to be found, or not whole. */
static const struct library *open_library()
{
    static struct library one, *l = &one;
    struct {
        const char *name;
        void *to;
    } all[] = {{"ncclCommInitAll", &l->init_all},          {"ncclCommAbort", &l->abort},
               {"ncclCommGetAsyncError", &l->async_error}, {"ncclAllReduce", &l->all_reduce},
               {"ncclAllGather", &l->all_gather},          {"ncclGetErrorString", &l->text}};
    void *handle = dlopen(NCCL_SONAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    for (auto &f : all) {
        void *found = handle ? dlsym(handle, f.name) : NULL;
        if (!found) return NULL;
        memcpy(f.to, &found, sizeof found);
    }
    return l;
}

enum err nccl_open(struct nccl **out, const int *device, int n, struct errmsg *e)
{
    void *comm[RANKS_MAX] = {NULL};
    memset(out, 0, (size_t)n * sizeof(struct nccl *));
    const struct library *l = n > RANKS_MAX ? NULL : open_library();
    if (!l)
        return err_set(e, ERR_UNSUPPORTED,
                       "%d GPUs compute together by NCCL, and " NCCL_SONAME " is not to be found",
                       n);
    int result = l->init_all(comm, n, device);
    if (result != NCCL_OK)
        return err_set(e, ERR_UNSUPPORTED, "NCCL does not connect the %d GPUs: %.80s", n,
                       l->text(result));
    for (int i = 0; i < n; i++) {
        out[i] = (struct nccl *)xcalloc(1, sizeof *out[i]);
        *out[i] = {l, comm[i]};
    }
    return OK;
}

void nccl_close(struct nccl *c)
{
    if (!c) return;
    (void)c->library->abort(c->comm); /* needs no other rank, unlike its destroy */
    mem_free(c);
}

static const char *told(const struct nccl *c, int result)
{
    return result == NCCL_OK || result == NCCL_BUSY ? NULL : c->library->text(result);
}

const char *nccl_all_reduce(struct nccl *c, float *x, size_t n, cudaStream_t s)
{
    return told(c, c->library->all_reduce(x, x, n, NCCL_FLOAT, NCCL_PLUS, c->comm, s));
}

const char *nccl_all_gather(struct nccl *c, const float *part, size_t n, float *all, cudaStream_t s)
{
    return told(c, c->library->all_gather(part, all, n, NCCL_FLOAT, c->comm, s));
}

const char *nccl_failure(struct nccl *c)
{
    int result = NCCL_OK, asked = c->library->async_error(c->comm, &result);
    return told(c, asked != NCCL_OK ? asked : result);
}
#endif
