// CUDA's threads as fibers on a CPU: enough of the language to run kernels where there is no GPU.
//
// Blocks run one after another in the order of their numbers; the threads of a block take turns and meet at
// barriers and warp operations, all of which need every thread of the warp. Arithmetic is that of the CPU.

#undef _FORTIFY_SOURCE  // its longjmp refuses to go to another stack

#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

struct uint3 {
    unsigned x, y, z;
};

struct __align__(16) uint4 {
    unsigned x, y, z, w;
};

struct __align__(8) int2 {
    int x, y;
};

struct __align__(16) int4 {
    int x, y, z, w;
};

struct __align__(8) float2 {
    float x, y;
};

struct __align__(16) float4 {
    float x, y, z, w;
};

struct __align__(16) double2 {
    double x, y;
};

static float2 make_float2(float x, float y) { return {x, y}; }
static double2 make_double2(double x, double y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static void __stwb(uint4* into, uint4 value) { *into = value; }

static uint3 threadIdx, blockIdx, blockDim, gridDim;

// A fiber is made once and runs one thread after another; it goes to others by longjmp, which calls no kernel
// of the operating system as swapcontext does.
struct Fiber {
    static const unsigned STACK_BYTES = 1 << 16;
    char* stack;
    jmp_buf place;
    bool ended;
};

struct Lanes {
    uint64_t values[32];
};

static jmp_buf caller;
static std::vector<Fiber> fibers;
static void (*body)();
static unsigned threads_left;
static std::vector<uint64_t> warp_arrivals, warp_turns, block_turns;
static uint64_t block_arrivals;
static uint64_t said[2];
static std::vector<Lanes> deposits[2];

static void go_to(unsigned thread)
{
    threadIdx.x = thread;
    _longjmp(fibers[thread].place, 1);
}

// Goes to the next thread that has not ended.
static void go_on()
{
    unsigned thread = threadIdx.x;
    do thread = thread + 1 < blockDim.x ? thread + 1 : 0;
    while (fibers[thread].ended);
    go_to(thread);
}

static void wait_in_turn()
{
    if (!_setjmp(fibers[threadIdx.x].place)) go_on();
}

static void __syncthreads()
{
    const uint64_t goal = ++block_turns[threadIdx.x] * blockDim.x;
    ++block_arrivals;
    while (block_arrivals < goal) wait_in_turn();
}

// Whether any thread of the block says so: the barrier at which one did stays until the next but one.
static int __syncthreads_or(int value)
{
    const uint64_t turn = block_turns[threadIdx.x] + 1;
    if (value) said[turn & 1] = turn;
    __syncthreads();
    return said[turn & 1] == turn;
}

// Every lane gives a value and gets those of all; they stay until the next operation but one.
static const Lanes& exchange(uint64_t value)
{
    const unsigned thread = threadIdx.x, warp = thread / 32;
    const uint64_t turn = warp_turns[thread]++;
    deposits[turn & 1][warp].values[thread % 32] = value;
    ++warp_arrivals[warp];
    while (warp_arrivals[warp] < 32 * (turn + 1)) wait_in_turn();
    return deposits[turn & 1][warp];
}

static void __syncwarp() { exchange(0); }
static void __threadfence() {}
static void __threadfence_system() {}

static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static long long __double2ll_rn(double x) { return (long long)nearbyint(x); }

static unsigned __ballot_sync(unsigned, bool value)
{
    unsigned word = 0;
    const Lanes& all = exchange(value);
    for (unsigned lane = 0; lane < 32; ++lane) word |= (unsigned)all.values[lane] << lane;
    return word;
}

static bool __any_sync(unsigned mask, bool value) { return __ballot_sync(mask, value) != 0; }

template <typename T> static T __shfl_sync(unsigned, T value, unsigned lane) { return (T)exchange(value).values[lane % 32]; }

template <typename T> static T __shfl_xor_sync(unsigned, T value, unsigned bits)
{
    const unsigned lane = threadIdx.x % 32;
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    word = exchange(word).values[lane ^ bits];
    memcpy(&value, &word, sizeof value);
    return value;
}

template <typename T> static T __shfl_up_sync(unsigned, T value, unsigned step)
{
    const unsigned lane = threadIdx.x % 32;
    return (T)exchange(value).values[lane >= step ? lane - step : lane];
}

template <typename T> static T __shfl_down_sync(unsigned, T value, unsigned step)
{
    const unsigned lane = threadIdx.x % 32;
    return (T)exchange(value).values[lane + step < 32 ? lane + step : lane];
}

static unsigned __reduce_or_sync(unsigned, unsigned value)
{
    unsigned all = 0;
    for (uint64_t one : exchange(value).values) all |= (unsigned)one;
    return all;
}

static unsigned __reduce_add_sync(unsigned, unsigned value)
{
    unsigned all = 0;
    for (uint64_t one : exchange(value).values) all += (unsigned)one;
    return all;
}

static unsigned __reduce_max_sync(unsigned, unsigned value)
{
    unsigned all = 0;
    for (uint64_t one : exchange(value).values) all = one > all ? (unsigned)one : all;
    return all;
}

template <typename T> static T atomicAdd(T* place, T value)
{
    const T before = *place;
    *place += value;
    return before;
}

template <typename T> static T atomicCAS(T* place, T expected, T value)
{
    const T before = *place;
    if (before == expected) *place = value;
    return before;
}

template <typename T> static T atomicMax(T* place, T value)
{
    const T before = *place;
    if (value > before) *place = value;
    return before;
}


static int __popc(unsigned word) { return __builtin_popcount(word); }
static int __popcll(unsigned long long word) { return __builtin_popcountll(word); }
static int __ffs(int word) { return __builtin_ffs(word); }
static int __ffsll(long long word) { return __builtin_ffsll(word); }
static int __clz(unsigned word) { return word ? __builtin_clz(word) : 32; }
static unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static int max(int a, int b) { return a > b ? a : b; }
static unsigned __funnelshift_l(unsigned low, unsigned high, unsigned count)
{
    return (unsigned)(((uint64_t)high << 32 | low) << count % 32 >> 32);
}
static unsigned __dp4a(unsigned one, unsigned other, unsigned sum)
{
    for (unsigned k = 0; k < 32; k += 8) sum += (one >> k & 255) * (other >> k & 255);
    return sum;
}

static unsigned __byte_perm(unsigned low, unsigned high, unsigned chosen)
{
    const uint64_t both = (uint64_t)high << 32 | low;
    unsigned word = 0;
    for (unsigned k = 0; k < 4; ++k) word |= (unsigned)(both >> 8 * (chosen >> 4 * k & 7) & 255) << 8 * k;
    return word;
}
static float __fmul_rn(float a, float b) { return a * b; }
static float __fadd_rn(float a, float b) { return a + b; }
static double __dadd_rn(double a, double b) { return a + b; }
static float __fdividef(float a, float b) { return a / b; }
static float __fsub_rn(float a, float b) { return a - b; }

// Sums rounded down: the nearest number, or the one below it where that is too large by its exact error (Knuth's TwoSum).
static float __fadd_rd(float a, float b)
{
    const float near = a + b, part = near - a, error = (a - (near - part)) + (b - part);
    return error < 0 ? nextafterf(near, -INFINITY) : near;
}

static double __dadd_rd(double a, double b)
{
    const double near = a + b, part = near - a, error = (a - (near - part)) + (b - part);
    return error < 0 ? nextafter(near, -INFINITY) : near;
}
static double __dmul_rn(double a, double b) { return a * b; }
static double __dsub_rn(double a, double b) { return a - b; }

template <typename To, typename From> static To same_bits(From value)
{
    To result;
    static_assert(sizeof(To) == sizeof(From), "as wide");
    memcpy(&result, &value, sizeof value);
    return result;
}

static unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }
static long long __double_as_longlong(double x) { return same_bits<long long>(x); }
static double __longlong_as_double(long long bits) { return same_bits<double>(bits); }
static int __double2hiint(double x) { return (int)(same_bits<uint64_t>(x) >> 32); }
static int __double2loint(double x) { return (int)same_bits<uint64_t>(x); }
static double __hiloint2double(int high, int low)
{
    return same_bits<double>((uint64_t)(unsigned)high << 32 | (unsigned)low);
}

template <typename T> static T __ldcg(const T* from) { return *from; }
template <typename T> static T __ldg(const T* from) { return *from; }
template <typename T> static void __stcg(T* to, T value) { *to = value; }

// What a fiber does: a thread of a block, and again one of the next block.
static void live()
{
    for (;;) {
        if (!_setjmp(fibers[threadIdx.x].place)) threads_left ? go_on() : _longjmp(caller, 1);
        body();
        fibers[threadIdx.x].ended = true;
        --threads_left;
    }
}

static void make_fiber()
{
    threadIdx = {(unsigned)fibers.size(), 0, 0};
    fibers.push_back({(char*)malloc(Fiber::STACK_BYTES)});
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fibers.back().stack;
    context.uc_stack.ss_size = Fiber::STACK_BYTES;
    makecontext(&context, live, 0);
    if (!_setjmp(caller)) setcontext(&context);
}

template <typename Kernel> static void run(unsigned blocks_x, unsigned blocks_y, unsigned threads, Kernel kernel)
{
    static Kernel* current;
    current = &kernel;
    body = [] { (*current)(); };
    gridDim = {blocks_x, blocks_y, 1};
    blockDim = {threads, 1, 1};
    while (fibers.size() < threads) make_fiber();
    for (auto& half : deposits) half.resize(threads / 32);
    for (unsigned block = 0; block < blocks_x * blocks_y; ++block) {
        blockIdx = {block % blocks_x, block / blocks_x, 0};
        warp_arrivals.assign(threads / 32, 0);
        warp_turns.assign(threads, 0);
        block_turns.assign(threads, 0);
        block_arrivals = said[0] = said[1] = 0;
        for (unsigned thread = 0; thread < threads; ++thread) fibers[thread].ended = false;
        threads_left = threads;
        if (!_setjmp(caller)) go_to(0);
    }
}
