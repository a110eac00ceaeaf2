/* emu_tma.hpp - the words of engine/backend/cuda/hopper.cuh on the CPU: barriers that count bytes, copies by the tensor memory accelerator and
 * products of a warp group. Everything happens at the last moment it may: a copy lands when a thread waits for its barrier in vain, a
 * product is computed when it is waited for, from what registers and shared memory hold then; a copy's target is poisoned as soon as
 * it is asked for. So what is read too early, or overwritten too early, shows in the result. Products without a fence before or a commit
 * after, a barrier that was never made, targets that are not aligned, copies nobody has waited for at the end are faults; waiting for bytes
 * that nobody sends is a deadlock like any other.
 * Source of the layouts: PTX ISA 8.x, "wgmma" register fragments and shared memory matrix layouts, "cp.async.bulk.tensor" swizzling modes. They
 * are as written here and in the kernels: one reading of the text; tests/gpu/run.sh holds them to a device. */
#ifndef DEJA_TESTS_CUDA_EMU_EMU_TMA_HPP
#define DEJA_TESTS_CUDA_EMU_EMU_TMA_HPP
#include <vector>

#include "tests/cuda_emu/emu.hpp"

namespace emu
{
struct wgmma_op {
    float *d;
    const unsigned *a;
    uint64_t tile;
    bool trans, add;
};
struct wgmma_state { /* of a thread */
    std::vector<wgmma_op> ops;
    bool fenced = false, committed = false;
};
void wgmma(float *d, const unsigned *a, uint64_t tile, bool trans, bool add);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(site where);
uint64_t wgmma_tile(const void *where);

void bar_init(void *bar, int n);
void bar_expect(void *bar, unsigned bytes);
void bar_wait(site where, void *bar, unsigned parity);
void tma_load(void *shared, const void *map, const int at[5], void *bar);
unsigned address_of(const void *shared);
/* A block begins; whether copies are still on their way. */
void tma_reset();
bool tma_on_its_way();
} // namespace emu

#define __grid_constant__
#define shared_address(p) emu::address_of(p)
#define BAR_INIT(bar, n) emu::bar_init(bar, n)
#define BAR_INIT_FENCE() ((void)0)
#define BAR_EXPECT(bar, bytes) emu::bar_expect(bar, bytes)
#define BAR_WAIT(bar, parity) emu::bar_wait(EMU_SITE("BAR_WAIT"), bar, parity)
#define TMA_LOAD(shared, map, at, bar) emu::tma_load(shared, map, at, bar)
#define ASYNC_FENCE() ((void)0)
#define WGMMA_FENCE() emu::wgmma_fence()
#define WGMMA_COMMIT() emu::wgmma_commit()
#define WGMMA_WAIT() emu::wgmma_wait(EMU_SITE("WGMMA_WAIT"))
#define WGMMA_HOLD(v) ((void)(v))
#define WGMMA_TILE(where) emu::wgmma_tile(where)
#define WGMMA_64(d, a, tile, trans, add) emu::wgmma(d, a, tile, trans, add)

#endif
