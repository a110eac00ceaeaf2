/* emu.h - runs a CUDA kernel on the CPU: each thread of a block is a fiber (ucontext), so that barriers and shuffles mean what they
 * mean on a GPU. Defines the words of engine/backend/cuda/device.cuh. Before every block shared memory is filled with NaNs, so a
 * missing barrier or a stale value shows; fibers are resumed in a seeded random order. Waiting at a barrier or shuffle that
 * some thread can no longer reach is reported and ends the process. Not a proof of timing or of memory ordering.
 * For one translation unit; one kernel at a time. */
#ifndef DEJA_TESTS_CUDA_EMU_H
#define DEJA_TESTS_CUDA_EMU_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/backend/quant.h"

#define KERNEL static void
#define DEVICE static inline
#define SHARED(type, name, n) type *name = (type *)emu_shared(#name, sizeof(type) * (n))
#define THREAD_X (emu.now->thread_i)
#define BLOCK_X (emu.block_i)
#define BARRIER() emu_wait(EMU_BARRIER)
#define SHUFFLE_XOR(v, mask) emu_shuffle_xor(v, mask)
#define HALF_TO_FLOAT(bits) f16_to_f32(bits)

enum {
    EMU_THREADS_MAX = 256,
    EMU_WARP = 32,
    EMU_STACK_BYTES = 64 << 10,
    EMU_SHARED_BYTES = 48 << 10,
    EMU_NAMES_MAX = 8
};
enum emu_state { EMU_READY, EMU_BARRIER, EMU_SHUFFLE, EMU_DONE };

struct emu_fiber {
    ucontext_t at;
    char *stack;
    int thread_i;
    enum emu_state state;
    float value; /* offered to a shuffle */
};
static struct {
    ucontext_t home;
    struct emu_fiber fiber[EMU_THREADS_MAX], *now;
    int n_threads, block_i;
    void (*body)(void *arg);
    void *arg;
    struct rng rng;
    const char *name[EMU_NAMES_MAX]; /* shared arrays of the running block, by name */
    size_t name_at[EMU_NAMES_MAX], shared_used;
    int n_names;
    double shared[EMU_SHARED_BYTES / 8];
} emu;

static inline void *emu_shared(const char *name, size_t bytes)
{
    for (int i = 0; i < emu.n_names; i++)
        if (!strcmp(emu.name[i], name)) return (char *)emu.shared + emu.name_at[i];
    if (emu.n_names == EMU_NAMES_MAX || emu.shared_used + bytes > EMU_SHARED_BYTES) abort();
    emu.name[emu.n_names] = name;
    emu.name_at[emu.n_names++] = emu.shared_used;
    emu.shared_used += (bytes + 15) / 16 * 16;
    return (char *)emu.shared + emu.shared_used - (bytes + 15) / 16 * 16;
}

static inline void emu_wait(enum emu_state why)
{
    struct emu_fiber *me = emu.now;
    me->state = why;
    swapcontext(&me->at, &emu.home);
}

/* Two waits: nobody may offer a new value before all have read. */
static inline float emu_shuffle_xor(float v, int mask)
{
    struct emu_fiber *me = emu.now;
    me->value = v;
    emu_wait(EMU_SHUFFLE);
    float got = emu.fiber[me->thread_i ^ mask].value;
    emu_wait(EMU_SHUFFLE);
    return got;
}

static inline void emu_entry(void)
{
    emu.body(emu.arg);
    emu.now->state = EMU_DONE;
    swapcontext(&emu.now->at, &emu.home);
}

/* Lets threads first..first+n-1 go on when all of them (those that have ended apart) wait for `why`. */
static inline bool emu_release(int first, int n, enum emu_state why)
{
    int waiting = 0;
    for (int i = first; i < first + n; i++) {
        if (emu.fiber[i].state == why)
            waiting++;
        else if (emu.fiber[i].state != EMU_DONE)
            return false;
    }
    for (int i = first; i < first + n; i++)
        if (emu.fiber[i].state == why) emu.fiber[i].state = EMU_READY;
    return waiting > 0;
}

static inline bool emu_round(void)
{
    int ran = 0, start = (int)rng_below(&emu.rng, (uint64_t)emu.n_threads),
        odd = 2 * (int)rng_below(&emu.rng, 64) + 1;
    for (int k = 0; k < emu.n_threads;
         k++) { /* n_threads is a power of two: odd steps reach everyone */
        emu.now = &emu.fiber[(start + k * odd) % emu.n_threads];
        if (emu.now->state != EMU_READY) continue;
        swapcontext(&emu.home, &emu.now->at);
        ran++;
    }
    for (int w = 0; w < emu.n_threads; w += EMU_WARP)
        ran += emu_release(w, EMU_WARP, EMU_SHUFFLE);
    return ran + emu_release(0, emu.n_threads, EMU_BARRIER) > 0;
}

static inline bool emu_finished(void)
{
    for (int i = 0; i < emu.n_threads; i++)
        if (emu.fiber[i].state != EMU_DONE) return false;
    return true;
}

static __attribute__((noinline)) void emu_prepare(struct emu_fiber *f)
{
    getcontext(&f->at);
    f->at.uc_stack.ss_sp = f->stack;
    f->at.uc_stack.ss_size = EMU_STACK_BYTES;
    f->at.uc_link = NULL;
    f->state = EMU_READY;
    makecontext(&f->at, emu_entry, 0);
}

/* body(arg) calls the kernel; n_threads a power of two, 32..256. */
static inline void emu_launch(int n_blocks, int n_threads, void (*body)(void *arg), void *arg)
{
    emu.n_threads = n_threads;
    emu.body = body;
    emu.arg = arg;
    for (int i = 0; i < n_threads; i++) {
        emu.fiber[i].thread_i = i;
        emu.fiber[i].stack = xmalloc(EMU_STACK_BYTES);
    }
    for (emu.block_i = 0; emu.block_i < n_blocks; emu.block_i++) {
        memset(emu.shared, 0xff, sizeof emu.shared); /* NaN as float and as double */
        emu.n_names = 0;
        emu.shared_used = 0;
        for (int i = 0; i < n_threads; i++)
            emu_prepare(&emu.fiber[i]);
        while (!emu_finished())
            if (!emu_round()) {
                fprintf(stderr, "emu: block %d cannot go on: threads wait for different things\n",
                        emu.block_i);
                abort();
            }
    }
    for (int i = 0; i < n_threads; i++)
        mem_free(emu.fiber[i].stack);
}

#endif
