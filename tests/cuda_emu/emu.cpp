/* emu.cpp - see emu.hpp: fibers, barriers, warp operations, shared memory. */
#include "tests/cuda_emu/emu_tma.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define ASAN_ON 1
#else
#define ASAN_ON 0
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

namespace emu
{
enum { STACK_BYTES = 96 << 10, RED_ZONE = 64, FAULT_BYTES = 400 };
enum state { READY, AT_BARRIER, AT_WARP, POLLING, DONE };

struct copy {
    void *to;
    const void *from;
    int bytes;
};

struct fiber {
    void *sp;
    std::unique_ptr<char[]> stack;
    void *fake_stack; /* AddressSanitizer's */
    int i;            /* linear index in the block */
    uint3 idx;
    enum state state;
    site at;
    int barrier_id, barrier_n;
    unsigned mask;
    warp_fn fn;
    bool (*ready)(void *arg);
    void *arg;
    wgmma_state products;
    std::vector<copy> open;                /* cp.async since the last commit */
    std::vector<std::vector<copy>> groups; /* committed, oldest first */
};

struct shared_part {
    site key;
    size_t at;
};

static struct {
    void *home_sp, *home_fake;
    const void *home_bottom;
    size_t home_size;
    std::vector<std::unique_ptr<fiber>> fibers;
    fiber *now;
    int n_threads;
    dim3 grid, block;
    uint3 block_idx;
    const std::function<void()> *kernel;
    uint64_t rng = 1;
    alignas(128) unsigned char shared[SHARED_BYTES];
    size_t shared_used;
    std::vector<shared_part> parts;
    bool faulted, expecting;
    char fault[FAULT_BYTES];
} g;

/* ---- switching ---- */
/* Saves what the ABI says a callee keeps, and the stack pointer at *save; goes on at load. */
extern "C" void emu_switch(void **save, void *load);
__asm__(".text\n.globl emu_switch\n.type emu_switch,@function\nemu_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size emu_switch,.-emu_switch\n");

static void to_home(bool for_ever)
{
    struct fiber *me = g.now;
    (void)for_ever;
#if ASAN_ON
    __sanitizer_start_switch_fiber(for_ever ? nullptr : &me->fake_stack, g.home_bottom,
                                   g.home_size);
#endif
    emu_switch(&me->sp, g.home_sp);
#if ASAN_ON
    __sanitizer_finish_switch_fiber(me->fake_stack, &g.home_bottom, &g.home_size);
#endif
}

static void to_fiber(struct fiber *f)
{
    g.now = f;
#if ASAN_ON
    __sanitizer_start_switch_fiber(&g.home_fake, f->stack.get(), STACK_BYTES);
#endif
    emu_switch(&g.home_sp, f->sp);
#if ASAN_ON
    __sanitizer_finish_switch_fiber(g.home_fake, nullptr, nullptr);
#endif
    g.now = nullptr;
}

void fault(const char *format, ...)
{
    if (!g.faulted) {
        va_list ap;
        va_start(ap, format);
        vsnprintf(g.fault, sizeof g.fault, format, ap);
        va_end(ap);
    }
    g.faulted = true;
    if (!g.expecting) {
        fprintf(stderr, "cuda_emu: %s\n", g.fault);
        abort();
    }
    if (g.now) to_home(true); /* never comes back: the block is given up */
}

static void entry()
{
#if ASAN_ON
    __sanitizer_finish_switch_fiber(nullptr, &g.home_bottom, &g.home_size);
#endif
    (*g.kernel)();
    if (!g.now->open.empty() || !g.now->groups.empty())
        fault("thread %d ends with copies it has not waited for", g.now->i);
    if (!g.now->products.ops.empty())
        fault("thread %d ends with products it has not waited for", g.now->i);
    g.now->state = DONE;
    to_home(true);
    abort();
}

static void prepare(struct fiber *f)
{
    ASAN_UNPOISON_MEMORY_REGION(f->stack.get(), STACK_BYTES);
    uintptr_t top = ((uintptr_t)f->stack.get() + STACK_BYTES) & ~(uintptr_t)15;
    void **sp = (void **)top;
    *--sp = nullptr;       /* where entry would return to; also the alignment of a call */
    *--sp = (void *)entry; /* ret of the first switch */
    for (int i = 0; i < 6; i++)
        *--sp = nullptr;
    f->sp = sp;
    f->state = READY;
    f->fake_stack = nullptr;
    f->open.clear();
    f->groups.clear();
    f->products = {};
}

/* ---- randomness ---- */
void seed(uint64_t s)
{
    g.rng = s * 2 + 1;
}
static unsigned below(unsigned n)
{
    g.rng = g.rng * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((g.rng >> 33) % n);
}
template <class T> static void mix(std::vector<T> &v)
{
    for (size_t i = v.size(); i > 1; i--)
        std::swap(v[i - 1], v[below((unsigned)i)]);
}

/* ---- indices ---- */
uint3 thread_idx()
{
    return g.now->idx;
}
uint3 block_idx()
{
    return g.block_idx;
}
dim3 block_dim()
{
    return g.block;
}
dim3 grid_dim()
{
    return g.grid;
}
int lane()
{
    return g.now->i % WARP;
}

/* ---- waiting ---- */
static bool same_site(const site &a, const site &b)
{
    return a.line == b.line && !strcmp(a.file, b.file) && !strcmp(a.what, b.what);
}

void barrier(site where, int id, int n)
{
    struct fiber *me = g.now;
    me->state = AT_BARRIER;
    me->at = where;
    me->barrier_id = id;
    me->barrier_n = n;
    to_home(false);
}

void warp_meet(site where, unsigned mask, warp_fn fn, void *arg)
{
    struct fiber *me = g.now;
    if (!(mask >> lane() & 1))
        fault("%s:%d: %s by lane %d, which its mask %08x leaves out", where.file, where.line,
              where.what, lane(), mask);
    me->state = AT_WARP;
    me->at = where;
    me->mask = mask;
    me->fn = fn;
    me->arg = arg;
    to_home(false);
}

void poll(site where, bool (*ready)(void *), void *arg)
{
    struct fiber *me = g.now;
    me->state = POLLING;
    me->at = where;
    me->ready = ready;
    me->arg = arg;
    to_home(false);
}
wgmma_state &wgmma_of_thread()
{
    return g.now->products;
}

/* A whole block waits at __syncthreads: ended threads are an error, since hardware may count them or not. */
static bool release_block()
{
    const struct fiber *first = nullptr;
    for (auto &f : g.fibers) {
        if (f->i >= g.n_threads) continue;
        if (f->state == DONE) {
            if (first) {
                fault("%s:%d: %s, but thread %d has ended", first->at.file, first->at.line,
                      first->at.what, f->i);
                return false;
            }
            continue;
        }
        if (f->state != AT_BARRIER || f->barrier_n) return false;
        if (first && !same_site(first->at, f->at)) {
            fault("threads of a block at different barriers: thread %d at %s:%d, thread %d at "
                  "%s:%d",
                  first->i, first->at.file, first->at.line, f->i, f->at.file, f->at.line);
            return false;
        }
        first = f.get();
    }
    if (!first) return false;
    for (int i = 0; i < g.n_threads; i++) {
        if (g.fibers[(size_t)i]->state == DONE) {
            fault("%s:%d: %s, but thread %d has ended", first->at.file, first->at.line,
                  first->at.what, i);
            return false;
        }
    }
    for (int i = 0; i < g.n_threads; i++)
        g.fibers[(size_t)i]->state = READY;
    return true;
}

static bool release_named()
{
    for (int i = 0; i < g.n_threads; i++) {
        struct fiber *a = g.fibers[(size_t)i].get();
        if (a->state != AT_BARRIER || !a->barrier_n) continue;
        int waiting = 0;
        for (int j = 0; j < g.n_threads; j++) {
            const struct fiber *b = g.fibers[(size_t)j].get();
            waiting += b->state == AT_BARRIER && b->barrier_n && b->barrier_id == a->barrier_id;
        }
        if (waiting < a->barrier_n) continue;
        for (int j = 0; j < g.n_threads; j++) {
            struct fiber *b = g.fibers[(size_t)j].get();
            if (b != a && b->state == AT_BARRIER && b->barrier_n && b->barrier_id == a->barrier_id)
                b->state = READY;
        }
        a->state = READY;
        return true;
    }
    return false;
}

static bool release_warp(int first)
{
    struct fiber *lane_of[WARP];
    int n = std::min((int)WARP, g.n_threads - first);
    for (int i = 0; i < n; i++)
        lane_of[i] = g.fibers[(size_t)(first + i)].get();
    for (int i = 0; i < n; i++) {
        struct fiber *a = lane_of[i];
        if (a->state != AT_WARP) continue;
        void *arg[WARP] = {nullptr};
        bool all = true;
        for (int j = 0; j < WARP && all; j++) {
            if (!(a->mask >> j & 1)) continue;
            if (j >= n || lane_of[j]->state == DONE) {
                fault("%s:%d: %s waits for lane %d, which %s", a->at.file, a->at.line, a->at.what,
                      j, j >= n ? "does not exist" : "has ended");
                return false;
            }
            all = lane_of[j]->state == AT_WARP;
            if (all && (!same_site(a->at, lane_of[j]->at) || a->mask != lane_of[j]->mask)) {
                fault("lanes of a warp at different operations: lane %d at %s:%d (%s), lane %d at "
                      "%s:%d (%s)",
                      i, a->at.file, a->at.line, a->at.what, j, lane_of[j]->at.file,
                      lane_of[j]->at.line, lane_of[j]->at.what);
                return false;
            }
            arg[j] = lane_of[j]->arg;
        }
        if (!all) continue;
        if (a->fn) a->fn(arg);
        for (int j = 0; j < n; j++)
            if (a->mask >> j & 1) lane_of[j]->state = READY;
        return true;
    }
    return false;
}

static bool release()
{
    bool any = false;
    for (int w = 0; w < g.n_threads && !g.faulted; w += WARP)
        while (release_warp(w) && !g.faulted)
            any = true;
    if (g.faulted) return false;
    for (int i = 0; i < g.n_threads; i++) {
        struct fiber *f = g.fibers[(size_t)i].get();
        if (f->state == POLLING && f->ready(f->arg)) f->state = READY, any = true;
        if (g.faulted) return false;
    }
    while (release_named())
        any = true;
    return any || release_block();
}

static void report_stuck()
{
    char text[300] = "";
    size_t n = 0;
    for (int i = 0, shown = 0; i < g.n_threads && shown < 3; i++) {
        const struct fiber *f = g.fibers[(size_t)i].get();
        bool new_site = f->state != DONE;
        for (int j = 0; j < i && new_site; j++)
            new_site =
                g.fibers[(size_t)j]->state == DONE || !same_site(g.fibers[(size_t)j]->at, f->at);
        if (!new_site || n > sizeof text - 120) continue;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s thread %d at %s:%d (%s)",
                              shown ? "," : "", i, f->at.file, f->at.line, f->at.what);
        shown++;
    }
    fault("block %u,%u cannot go on:%s", g.block_idx.x, g.block_idx.y, text);
}

/* ---- shared memory ---- */
static void shared_reset(size_t dynamic_bytes)
{
    ASAN_UNPOISON_MEMORY_REGION(g.shared, sizeof g.shared);
    memset(g.shared, 0xff, sizeof g.shared); /* NaN as float, half, bfloat16 and double */
    ASAN_POISON_MEMORY_REGION(g.shared + dynamic_bytes, sizeof g.shared - dynamic_bytes);
    g.shared_used = (dynamic_bytes + RED_ZONE + 127) / 128 * 128;
    g.parts.clear();
}

void *shared_dynamic()
{
    return g.shared;
}

void *shared_array(site key, size_t bytes)
{
    for (const shared_part &p : g.parts)
        if (same_site(p.key, key)) return g.shared + p.at;
    size_t at = g.shared_used;
    if (at + bytes > sizeof g.shared)
        fault("%s:%d: shared array %s of %zu bytes does not fit", key.file, key.line, key.what,
              bytes);
    ASAN_UNPOISON_MEMORY_REGION(g.shared + at, bytes);
    g.parts.push_back({key, at});
    g.shared_used = (at + bytes + RED_ZONE + 127) / 128 * 128;
    return g.shared + at;
}

/* ---- cp.async ---- */
void copy_async(void *shared, const void *global, int bytes)
{
    if ((uintptr_t)shared % (unsigned)bytes || (uintptr_t)global % (unsigned)bytes)
        fault("cp.async of %d bytes at an address that is no multiple of it", bytes);
    memset(shared, 0xff, (size_t)bytes); /* whoever reads it before the wait sees NaNs */
    g.now->open.push_back({shared, global, bytes});
}
void copy_commit()
{
    g.now->groups.push_back(std::move(g.now->open));
    g.now->open.clear();
}
void copy_wait(int n_pending)
{
    auto &groups = g.now->groups;
    while ((int)groups.size() > n_pending) {
        for (const copy &c : groups.front())
            memcpy(c.to, c.from, (size_t)c.bytes);
        groups.erase(groups.begin());
    }
}

/* ---- running ---- */
static bool run_round(std::vector<int> &order)
{
    bool ran = false;
    mix(order);
    for (int i : order) {
        struct fiber *f = g.fibers[(size_t)i].get();
        if (f->state != READY) continue;
        to_fiber(f);
        if (g.faulted) return false;
        ran = true;
    }
    return ran;
}

static void run_block(size_t shared_bytes)
{
    std::vector<int> order;
    shared_reset(shared_bytes);
    tma_reset();
    for (int i = 0; i < g.n_threads; i++) {
        prepare(g.fibers[(size_t)i].get());
        order.push_back(i);
    }
    for (;;) {
        bool ran = run_round(order);
        if (g.faulted) return;
        bool finished = true;
        for (int i = 0; i < g.n_threads; i++)
            finished &= g.fibers[(size_t)i]->state == DONE;
        if (finished && tma_on_its_way()) fault("a block ends while copies are on their way to it");
        if (finished) return;
        if (!release() && !ran && !g.faulted) report_stuck();
        if (g.faulted) return;
    }
}

static void make_fibers()
{
    for (int i = (int)g.fibers.size(); i < g.n_threads; i++) {
        auto f = std::make_unique<fiber>();
        f->stack.reset(new char[STACK_BYTES]);
        f->i = i;
        g.fibers.push_back(std::move(f));
    }
    for (int i = 0; i < g.n_threads; i++)
        g.fibers[(size_t)i]->idx = {(unsigned)i % g.block.x, (unsigned)i / g.block.x % g.block.y,
                                    (unsigned)i / g.block.x / g.block.y};
}

bool can_launch(dim3 grid, dim3 block, size_t shared_bytes)
{
    uint64_t sides[] = {block.x, block.y, block.z}, n_threads = 1;
    for (uint64_t side : sides)
        if (n_threads <= THREADS_MAX) n_threads *= side;
    if (n_threads && n_threads <= THREADS_MAX && grid.x && grid.x <= GRID_X_MAX && grid.y &&
        grid.y <= GRID_YZ_MAX && grid.z && grid.z <= GRID_YZ_MAX && shared_bytes <= SHARED_BYTES)
        return true;
    fault("a launch of %u x %u x %u blocks of %llu threads with %zu bytes of shared memory", grid.x,
          grid.y, grid.z, (unsigned long long)n_threads, shared_bytes);
    return false;
}

void run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> &kernel)
{
    if (!can_launch(grid, block, shared_bytes)) return;
    uint64_t n_blocks = (uint64_t)grid.x * grid.y * grid.z;
    g.grid = grid;
    g.block = block;
    g.kernel = &kernel;
    g.n_threads = (int)(block.x * block.y * block.z);
    make_fibers();
    std::vector<uint64_t> order;
    for (uint64_t i = 0; i < n_blocks; i++)
        order.push_back(i);
    mix(order);
    for (uint64_t i : order) {
        g.block_idx = {(unsigned)(i % grid.x), (unsigned)(i / grid.x % grid.y),
                       (unsigned)(i / grid.x / grid.y)};
        run_block(shared_bytes);
        if (g.faulted) break;
    }
    ASAN_UNPOISON_MEMORY_REGION(g.shared, sizeof g.shared);
}

void expect_fault()
{
    g.expecting = true;
    g.faulted = false;
    g.fault[0] = 0;
}

const char *fault_seen()
{
    g.expecting = g.faulted = false;
    return g.fault;
}
} // namespace emu
