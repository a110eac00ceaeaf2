/* nccl_host.cpp - engine/backend/cuda/nccl.h in the emulation: each rank leaves its part at its turn in its stream, and the stream goes on when
 * all have come (emu::enqueue_when). A lost device leaves nothing. A communicator that is closed while a graph holds its collectives, for
 * which the library would wait, aborts. CUDA_EMU_NO_NCCL=1: the library is not to be found.
 * Threading: what is enqueued runs under the lock of the runtime. */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

#include "engine/backend/cuda/nccl.h"

struct meeting { /* of the ranks in one collective */
    std::map<int, std::vector<float>> part;
    int n_gone = 0;
};
struct clique {
    int n;
    std::atomic<bool> over{false};
    std::map<unsigned long, meeting> open; /* by how many a rank has had before */
};
struct nccl {
    std::shared_ptr<clique> of;
    std::shared_ptr<unsigned long> count; /* collectives whose turn came, replayed ones too */
    std::shared_ptr<int> in_graphs;       /* each collective in a graph has one */
    int rank;
};

enum err nccl_open(struct nccl **out, const int *device, int n, struct errmsg *e)
{
    for (int i = 0; i < n; i++)
        out[i] = NULL;
    if (getenv("CUDA_EMU_NO_NCCL"))
        return err_set(e, ERR_UNSUPPORTED,
                       "%d GPUs compute together by NCCL, and libnccl.so.2 is not to be found", n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (device[i] == device[k])
                return err_set(e, ERR_UNSUPPORTED, "device %d is two ranks", device[i]);
    emu::connect(n > 1);
    auto all = std::make_shared<clique>();
    all->n = n;
    for (int i = 0; i < n; i++)
        out[i] = new nccl{all, std::make_shared<unsigned long>(0), std::make_shared<int>(0), i};
    return OK;
}

void nccl_close(struct nccl *c)
{
    if (!c) return;
    if (c->in_graphs.use_count() > 1) {
        fprintf(stderr, "cuda_emu: a communicator is closed while graphs hold its collectives\n");
        abort();
    }
    c->of->over = true;
    if (c->of.use_count() == 1) emu::connect(false);
    delete c;
}

const char *nccl_failure(struct nccl *c)
{
    return c->of->over ? "another rank left" : NULL;
}

/* part f32[n] of this rank meets the others'; then finish(parts in the order of ranks). */
static void meet(struct nccl *c, const float *part, size_t n, cudaStream_t s,
                 std::function<void(const meeting &)> finish)
{
    auto of = c->of;
    auto count = c->count;
    int rank = c->rank;
    emu::enqueue(s, [=] {
        ++*count;
        if (emu::may_run()) of->open[*count].part[rank].assign(part, part + n);
    });
    emu::enqueue_when(
        s, [=] { return of->over || of->open[*count].part.size() == (size_t)of->n; },
        [=] {
            meeting &m = of->open[*count];
            if (m.part.size() != (size_t)of->n) return;
            finish(m);
            if (++m.n_gone == of->n) of->open.erase(*count);
        },
        c->in_graphs);
}

const char *nccl_all_reduce(struct nccl *c, float *x, size_t n, cudaStream_t s)
{
    meet(c, x, n, s, [=](const meeting &m) {
        for (size_t i = 0; i < n; i++) {
            float sum = 0;
            for (auto &p : m.part)
                sum += p.second.at(i);
            x[i] = sum;
        }
    });
    return NULL;
}

const char *nccl_all_gather(struct nccl *c, const float *part, size_t n, float *all, cudaStream_t s)
{
    meet(c, part, n, s, [=](const meeting &m) {
        for (auto &p : m.part)
            memcpy(all + (size_t)p.first * n, p.second.data(), n * sizeof *all);
    });
    return NULL;
}
