// A chain of contractions on tiles of one large operand. A block holds a tile in shared memory, multiplies it
// with each branch in turn and writes it in the order of the output, or adds it there; or it multiplies it by the tensor
// that closes the chain, in whose order it is read then, and adds up the products.
//
// Defined outside: REAL, COMPLEX (0 or 1), THREADS, BLOCKS (that share a multiprocessor at least), STAGES (in their
// order: FMA(number, rows and columns that a thread holds, k, n, first byte of its branch) or TENSOR(number, groups of
// 16 rows that a warp holds at once, n / 4, k / 4, rounds, first byte of its branch)), N_STAGES, TILE_BYTES,
// CONSTANT_BYTES and SHARED_BYTES (of the branches in either memory), the tables LOAD_PLACES, LOAD_OFFSETS,
// STORE_PLACES, STORE_OFFSETS and, a row for each stage, ROW_PLACES, K_PLACES, N_PLACES with MOST_ROW, MOST_K, MOST_N
// entries, MEETS (whether all warps synchronize after the load, after each stage and after the store; elsewhere each warp goes
// on with its part of the tile), TERMS (of a product on tensor cores: 3, or 1 for their own precision; 0: no stage runs
// on them), ADD (1: the output is added to; every element is one thread's), CLOSE (1: the output is read, it closes).
//
// Invariants. Every place in the tile is an XOR of table entries, one for each part of an index, so that no
// index is ever taken apart here. A thread's outputs take the places of rows that no other thread reads, unless
// a row's columns are dealt to several warps; then all read before any writes. So a stage works in place.
// The tables are made in executor/device/cuda/fused/tables.py; they are constants here, so that places end up in the
// instructions that read and write the tile.

#include "stage.cuh"

#if TERMS
// A number as the sum of two of 11 bits, all that tensor cores keep of a float: they cut off its last 13. Half a unit
// added before the cut rounds high, and may turn a NaN into zero, but then low is the NaN. Without low the conversion
// is one that keeps it.
__device__ __forceinline__ void split(float value, unsigned& high, unsigned& low) {
    #if TERMS == 1
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high) : "f"(value));
    low = 0;
    #else
    high = __float_as_uint(value) + 0x1000u & 0xffffe000u;
    low = __float_as_uint(value - __uint_as_float(high));
    #endif
}

// What a lane multiplies with: high and low parts of two numbers.
struct __align__(16) Fragment { unsigned high[2], low[2]; };

// Of an element of a branch: what makes the real or the imaginary part of a result.
__device__ __forceinline__ Fragment fragment(Element b, bool imaginary) {
    Fragment parts;
    split(imaginary ? b.im : b.re, parts.high[0], parts.low[0]);
    split(imaginary ? b.re : -b.im, parts.high[1], parts.low[1]);
    return parts;
}

__device__ __forceinline__ void multiply_add(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// 16 rows by 4 of k by 4 columns a step. Lane 4 g + t reads rows g and g + 8 at k = t, and holds column t of their
// product; its part of the branch is row t of k, and of column g / 2 what makes the real part (even g) or the
// imaginary one. A branch of up to FRAGMENTS elements is stored as [k / 4][n / 4][lane] in fragments, a larger one as
// [k / 4][n / 4][4 of k][4 of n]. read and write: the places of the lane's first element, and of its first result.
const int FRAGMENTS = 256;

template <int S, int GROUPS, int N_STEPS, int K_STEPS, int ROUNDS>
__device__ __forceinline__ void run_tensor_stage(unsigned char* tile, const unsigned char* branch,
                                                 const unsigned read, const unsigned write) {
    const int lane = threadIdx.x % 32;
    const bool imaginary = lane / 4 % 2;
    const Element* elements = reinterpret_cast<const Element*>(branch) + lane % 4 * 4 + lane / 8;
    const Fragment* fragments = reinterpret_cast<const Fragment*>(branch) + lane;
    constexpr bool IN_FRAGMENTS = 16 * N_STEPS * K_STEPS <= FRAGMENTS, KEPT = N_STEPS * K_STEPS <= 4 && ROUNDS > 1;
    Fragment own_fragments[KEPT ? N_STEPS * K_STEPS : 1];
    if (KEPT) {
        #pragma unroll
        for (int step = 0; step < N_STEPS * K_STEPS; ++step) own_fragments[step] = fragments[step * 32];
    }
    #pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
        if (read == IDLE) break;
        const int row = round * 2 * GROUPS;
        float sum[GROUPS][N_STEPS][4] = {};
        #pragma unroll (K_STEPS < 4 ? K_STEPS : 2)
        for (int s = 0; s < K_STEPS; ++s) {
            unsigned high[GROUPS][4], low[GROUPS][4];
            const unsigned first = moved(read, k_place[S][s]);
            #pragma unroll
            for (int g = 0; g < GROUPS; ++g)
                #pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const Element a = at(tile, moved(first, row_place[S][row + 2 * g + half]));
                    split(a.re, high[g][half], low[g][half]);
                    split(a.im, high[g][2 + half], low[g][2 + half]);
                }
            #pragma unroll
            for (int j = 0; j < N_STEPS; ++j) {
                const int step = s * N_STEPS + j;
                const Fragment b = KEPT           ? own_fragments[step]
                                   : IN_FRAGMENTS ? fragments[step * 32]
                                                  : fragment(elements[step * 16], imaginary);
                #if TERMS == 3
                #pragma unroll
                for (int g = 0; g < GROUPS; ++g) multiply_add(sum[g][j], high[g], b.low);
                #pragma unroll
                for (int g = 0; g < GROUPS; ++g) multiply_add(sum[g][j], low[g], b.high);
                #endif
                #pragma unroll
                for (int g = 0; g < GROUPS; ++g) multiply_add(sum[g][j], high[g], b.high);
            }
        }
        __syncwarp();
        #pragma unroll
        for (int j = 0; j < N_STEPS; ++j) {
            const unsigned first = moved(write, n_place[S][j]);
            #pragma unroll
            for (int g = 0; g < GROUPS; ++g)
                #pragma unroll
                for (int half = 0; half < 2; ++half)
                    at(tile, moved(first, row_place[S][row + 2 * g + half])) = {sum[g][j][2 * half], sum[g][j][2 * half + 1]};
        }
    }
    sync_threads<S + 1>();
}

// Puts an element of a branch where the stage reads it; `to` counts as branch_place says.
__device__ __forceinline__ void hold_fragment(unsigned char* branch, bool in_fragments, int to, Element value) {
    if (!in_fragments) {
        reinterpret_cast<Element*>(branch)[to] = value;
        return;
    }
    Fragment* into = reinterpret_cast<Fragment*>(branch) + to / 16 * 32 + to % 4 * 8 + to / 4 % 4;
    into[0] = fragment(value, false);
    into[4] = fragment(value, true);
}
#endif

__device__ __forceinline__ void copy_async(Element& target, const unsigned char* source) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&target));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(source), "n"(sizeof(Element)));
}

#include "hold.cuh"

#if CLOSE
// A sum in double precision; products of one tile and thread are added up in their own.
struct Sum { double re, im; };
__device__ __forceinline__ void add(Sum& sum, Sum other) { sum.re += other.re; sum.im += other.im; }
#if COMPLEX
__device__ __forceinline__ Sum sum_from(Element a) { return {double(a.re), double(a.im)}; }
__device__ __forceinline__ Element element_from(Sum a) { return {REAL(a.re), REAL(a.im)}; }
#else
__device__ __forceinline__ Sum sum_from(Element a) { return {double(a), 0.0}; }
__device__ __forceinline__ Element element_from(Sum a) { return REAL(a.re); }
#endif

// The sum over a block, for thread 0, in an order that is always the same.
__device__ __forceinline__ Sum block_sum(Sum sum) {
    __shared__ Sum of_warp[THREADS / 32];
    #pragma unroll
    for (int lanes = 16; lanes; lanes /= 2)
        add(sum, {__shfl_down_sync(~0u, sum.re, lanes), __shfl_down_sync(~0u, sum.im, lanes)});
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int warp = 1; warp < THREADS / 32; ++warp) add(sum, of_warp[warp]);
    return sum;
}

// One block: adds to the output what each of `count` blocks has left.
extern "C" __global__ void add_up(const Sum* __restrict__ sums, int count, Element* __restrict__ out) {
    Sum sum = {0.0, 0.0};
    for (int i = threadIdx.x; i < count; i += THREADS) add(sum, sums[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) *out = sum_of(*out, element_from(sum));
}
#endif

// Where a tile starts in global memory, in bytes: the sum of a far and a near entry.
struct Start {
    long long source, target;
};

// thread_offset: source and target of each thread. thread_place: of each thread in loads, in stores, then for every stage
// base and column, or on tensor cores read and write. sums: one for each block.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
fused(const unsigned char* __restrict__ operand, unsigned char* __restrict__ out,
      const Start* __restrict__ thread_offset, const Start* __restrict__ near, const Start* __restrict__ far,
      const Place* __restrict__ thread_place, int n_near, int n_tiles
#if CLOSE
      , Sum* __restrict__ sums
#endif
) {
    extern __shared__ __align__(128) unsigned char memory[];
    unsigned char* tile = memory;
    unsigned char* branches = tile + TILE_BYTES;
    Place* own = reinterpret_cast<Place*>(branches + SHARED_BYTES);

    for (int i = threadIdx.x; i < (2 + 2 * N_STAGES) * THREADS; i += THREADS) own[i] = thread_place[i];
    for (int i = threadIdx.x * 16; i < SHARED_BYTES; i += THREADS * 16)
        *reinterpret_cast<uint4*>(branches + i) = *reinterpret_cast<const uint4*>(shared_branches + i);
    __syncthreads();
    own += threadIdx.x;
    const Start offset = thread_offset[threadIdx.x];
    const unsigned load_base = own[0], store_base = own[THREADS];

    auto start_of = [&](int number) -> Start {
        if (number >= n_tiles) return {0, 0};
        const Start low = near[number % n_near], high = far[number / n_near];
        return {low.source + high.source + offset.source, low.target + high.target + offset.target};
    };

    // The blocks of a multiprocessor hide each other's loads: while one waits for its tile, others work on theirs.
    #if CLOSE
    Sum sum = {0.0, 0.0};
    #endif
    Start start = start_of(blockIdx.x);
    for (int number = blockIdx.x; number < n_tiles; number += gridDim.x) {
        if (load_base != IDLE) {
            const unsigned char* from = operand + start.source;
            #pragma unroll
            for (int i = 0; i < LOADS; ++i)
                copy_async(at(tile, moved(load_base, load_place[i])), from + load_offset[i]);
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
        sync_threads<0>();
        #define FMA(s, rows, columns, k, n, first) \
            run_stage<s, rows, columns, k, n, first>(tile, tile, n > columns ? branches : constant_branches, \
                                                     own[(2 + 2 * s) * THREADS], own[(3 + 2 * s) * THREADS]);
        #define TENSOR(s, groups, n_steps, k_steps, rounds, first) \
            run_tensor_stage<s, groups, n_steps, k_steps, rounds>(tile, branches + first, own[(2 + 2 * s) * THREADS], \
                                                                  own[(3 + 2 * s) * THREADS]);
        STAGES
        const Start next = start_of(number + gridDim.x);
        if (store_base != IDLE) {
            unsigned char* into = out + start.target;
            const bool READ = ADD || CLOSE;
            Element before[READ ? STORES : 1]; // all read before the first is used, so that none waits for another
            if (READ) {
                #pragma unroll
                for (int i = 0; i < STORES; ++i) before[READ * i] = *reinterpret_cast<Element*>(into + store_offset[i]);
            }
            #if CLOSE
            Element products = zero();
            #pragma unroll
            for (int i = 0; i < STORES; ++i) multiply_add(products, at(tile, moved(store_base, store_place[i])), before[i]);
            add(sum, sum_from(products));
            #else
            #pragma unroll
            for (int i = 0; i < STORES; ++i) {
                const Element value = at(tile, moved(store_base, store_place[i]));
                *reinterpret_cast<Element*>(into + store_offset[i]) = ADD ? sum_of(before[ADD * i], value) : value;
            }
            #endif
        }
        sync_threads<N_STAGES + 1>();
        start = next;
    }
    #if CLOSE
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    #endif
}
