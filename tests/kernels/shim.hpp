// CUDA on one CPU core, for tests: the kernel's source is compiled as C++ behind this file, and a launch is a loop.
//
// Without HPGCN_GPU_ONLY a thread is called as a function. With it, each thread of a block is a fiber of its own, run
// in turn until it waits at a shuffle, so that threads of a warp can exchange numbers. A thread that waits for one
// that has left, or that waits elsewhere, is found when no fiber can go on, and ends the process: on a GPU that would
// hang or read garbage.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __align__(n) alignas(n)

struct Index3 {
    unsigned x, y, z;
};
static Index3 threadIdx, blockIdx, blockDim, gridDim;

#ifdef HPGCN_GPU_ONLY
#include <ucontext.h>

struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(1 << 16);
    bool done = true;
};

// Arrivals of the threads of one warp that share a mask, which its lowest lane tells apart from others
struct Meeting {
    unsigned mask, arrived, round;
};
struct Warp {
    Meeting meetings[32];
    unsigned long long slots[32];
};

static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static bool moved;  // whether a fiber went on since the scheduler last began to go round

static void meet(unsigned mask)
{
    Meeting &meeting = warps[threadIdx.x / 32].meetings[__builtin_ctz(mask)];
    if (!(mask >> threadIdx.x % 32 & 1) || (meeting.arrived && meeting.mask != mask)) {
        std::fprintf(stderr, "thread %u waits with mask %08x, others with %08x\n", threadIdx.x, mask, meeting.mask);
        std::abort();
    }
    meeting.mask = mask;
    const unsigned round = meeting.round;
    if (++meeting.arrived == (unsigned)__builtin_popcount(mask)) {
        meeting.arrived = 0;
        ++meeting.round;
    }
    moved = true;
    while (meeting.round == round)
        swapcontext(&fibers[threadIdx.x].context, &scheduler);
    moved = true;
}

template <class T> T exchange(unsigned mask, T value, int source)
{
    Warp &warp = warps[threadIdx.x / 32];
    std::memcpy(&warp.slots[threadIdx.x % 32], &value, sizeof value);
    meet(mask);  // all have written
    T found;
    if (!(mask >> source & 1)) {
        std::fprintf(stderr, "thread %u asks lane %d, outside of mask %08x\n", threadIdx.x, source, mask);
        std::abort();
    }
    std::memcpy(&found, &warp.slots[source], sizeof found);
    meet(mask);  // all have read
    return found;
}

template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
    const int lane = threadIdx.x % 32;
    return exchange(mask, value, (lane & ~(width - 1)) | (source & (width - 1)));
}

template <class T> T __shfl_xor_sync(unsigned mask, T value, int other, int width = 32)
{
    return exchange(mask, value, (threadIdx.x % 32) ^ other);
}

static void *body;
template <class F> void enter()
{
    (*static_cast<F *>(body))();
    fibers[threadIdx.x].done = true;
}

template <class F> void run_block(F &call)
{
    body = &call;
    if (fibers.size() < blockDim.x)
        fibers.resize(blockDim.x);
    warps.assign((blockDim.x + 31) / 32, Warp{});
    for (unsigned t = 0; t < blockDim.x; ++t) {
        getcontext(&fibers[t].context);
        fibers[t].context.uc_stack.ss_sp = fibers[t].stack.data();
        fibers[t].context.uc_stack.ss_size = fibers[t].stack.size();
        fibers[t].context.uc_link = &scheduler;
        fibers[t].done = false;
        makecontext(&fibers[t].context, enter<F>, 0);
    }
    for (unsigned left = blockDim.x; left;) {
        moved = false;
        for (unsigned t = 0; t < blockDim.x; ++t)
            if (!fibers[t].done) {
                threadIdx.x = t;
                swapcontext(&scheduler, &fibers[t].context);
                left -= fibers[t].done;
                moved |= fibers[t].done;
            }
        if (left && !moved) {
            std::fprintf(stderr, "%u threads of block %u wait for others that never come\n", left, blockIdx.x);
            std::abort();
        }
    }
}
#else
template <class F> void run_block(F &call)
{
    for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x)
        call();
}
#endif

template <class... A, size_t... I>
int run(void (*kernel)(A...), unsigned grid, unsigned block, void **arguments, const int *sizes, int count,
        std::index_sequence<I...>)
{
    if (count != (int)sizeof...(A))
        return -1;
    const int expected[] = {(int)sizeof(A)..., 0};
    for (int i = 0; i < count; ++i)
        if (sizes[i] != expected[i])
            return i + 1;
    auto call = [&] { kernel(*static_cast<std::remove_const_t<A> *>(arguments[I])...); };
    gridDim = {grid, 1, 1}, blockDim = {block, 1, 1};
    for (unsigned b = 0; b < grid; ++b) {
        blockIdx = {b, 0, 0}, threadIdx = {0, 0, 0};
        run_block(call);
    }
    return 0;
}

// Run a kernel with arguments given by address, as cuLaunchKernel takes them. 0, or -1 if their number is not that of
// the parameters, or the number (from 1) of the first that has not its parameter's size.
template <class... A>
int launch(void (*kernel)(A...), unsigned grid, unsigned block, void **arguments, const int *sizes, int count)
{
    return run(kernel, grid, block, arguments, sizes, count, std::index_sequence_for<A...>());
}
