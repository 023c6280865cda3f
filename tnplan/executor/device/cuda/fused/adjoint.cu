// The backward pass through a chain of contractions, on tiles of its operand and of the cotangent of its result. A block
// makes the values between the steps again, each in a tile of its own in shared memory. Then, for every step from the
// last to the first, it sums up the products of a value and a cotangent, the gradient of the step's branch, and takes
// the cotangent through the branch. So memory is read once and written once, however long the chain is.
//
// Injected besides what fused.cu says: STEPS of the chain; IMAGES (tiles of values that gradients need: the operand's
// and those behind so many steps), STAGES (of `hold`: all that run), FORWARD and BACK (in their order: FMA as there, and
// GRADIENT(step, k and n of a block of results, lanes that share it, blocks of a lane, its rounds, its first sum)),
// N_SUMS (of a thread, 1 if it has none), RESULTS (numbers that all gradients hold together), BACK_PLACES, BACK_OFFSETS
// (of what is written where WRITES is 1), and, a row for each step, ROUND_PLACES, BLOCK_K_PLACES, BLOCK_N_PLACES with
// MOST_ROUND and MOST_BLOCK entries. Stage s < STEPS is step s there, stage STEPS + s that step back: k and n change
// places, and rows stay where they were. All warps meet behind each stage.
//
// NumPy twin: einsum, in tests/executor/device/cuda/test_adjoint.py. Sums have a fixed order: the same bits every run on
// the same GPU. The tables are made in executor/device/cuda/fused/adjoint_tables.py.

#include "stage.cuh"
#include "hold.cuh"

static __device__ constexpr unsigned back_place[] = BACK_PLACES;
static __device__ constexpr long long back_offset[] = BACK_OFFSETS;
static __device__ constexpr unsigned round_place[][MOST_ROUND] = ROUND_PLACES;
static __device__ constexpr unsigned block_k_place[][MOST_BLOCK] = BLOCK_K_PLACES;
static __device__ constexpr unsigned block_n_place[][MOST_BLOCK] = BLOCK_N_PLACES;
const int WRITTEN = sizeof(back_place) / sizeof(*back_place), PARTS = COMPLEX + 1, LANES = 32;
const int PLACES = 3 + 6 * STEPS;

__device__ __forceinline__ void take_apart(REAL* into, const Element& value) {
    #if COMPLEX
    into[0] = value.re;
    into[1] = value.im;
    #else
    into[0] = value;
    #endif
}

// The sums over the ROW_LANES lanes that differ in the upper bits of their numbers. Of COUNT values lane l of these has
// those from l COUNT / ROW_LANES on; where that is less than one, some have the same.
template <int ROW_LANES, int COUNT>
__device__ __forceinline__ void sum_lanes(REAL (&value)[COUNT]) {
    int count = COUNT;
    #pragma unroll
    for (int lanes = LANES / 2; lanes >= LANES / ROW_LANES; lanes /= 2) {
        if (count == 1) {
            value[0] += __shfl_xor_sync(~0u, value[0], lanes);
            continue;
        }
        count /= 2;
        const bool upper = threadIdx.x & lanes;
        #pragma unroll
        for (int i = 0; i < COUNT / 2; ++i) {
            if (i >= count) break;
            const REAL given = upper ? value[i] : value[i + count], own = upper ? value[i + count] : value[i];
            value[i] = own + __shfl_xor_sync(~0u, given, lanes);
        }
    }
}

// The products of a value and a cotangent, summed over rows: each lane has blocks of K x N of them, and ROW_LANES lanes
// share one. Neighbours, with blocks beside each other, read the same rows: one access serves both. from, to: the places
// of the lane's first row in either tile.
template <int S, int K, int N, int ROW_LANES, int BLOCKS_OF_WARP, int ROUNDS, int FIRST>
__device__ __forceinline__ void add_gradient(unsigned char* value, unsigned char* cotangent, const unsigned from,
                                             const unsigned to, REAL (&sums)[N_SUMS]) {
    if (from != IDLE) {
        #pragma unroll
        for (int block = 0; block < BLOCKS_OF_WARP; ++block) {
            const unsigned x_first = moved(from, block_k_place[S][block]), g_first = moved(to, block_n_place[S][block]);
            Element sum[K][N];
            #pragma unroll
            for (int round = 0; round < ROUNDS; ++round) {
                Element x[K], g[N];
                #pragma unroll
                for (int i = 0; i < K; ++i) x[i] = at(value, moved(moved(x_first, round_place[S][round]), k_place[S][i]));
                #pragma unroll
                for (int j = 0; j < N; ++j) g[j] = at(cotangent, moved(moved(g_first, round_place[S][round]), n_place[S][j]));
                #pragma unroll
                for (int i = 0; i < K; ++i)
                    #pragma unroll
                    for (int j = 0; j < N; ++j) {
                        if (round == 0) sum[i][j] = multiply(x[i], g[j]);
                        else multiply_add(sum[i][j], x[i], g[j]);
                    }
            }
            const int COUNT = K * N * PARTS, HELD = COUNT > ROW_LANES ? COUNT / ROW_LANES : 1;
            REAL parts[COUNT];
            #pragma unroll
            for (int i = 0; i < K; ++i)
                #pragma unroll
                for (int j = 0; j < N; ++j) take_apart(parts + (i * N + j) * PARTS, sum[i][j]);
            sum_lanes<ROW_LANES>(parts);
            #pragma unroll
            for (int i = 0; i < HELD; ++i) sums[FIRST + block * HELD + i] += parts[i];
        }
    }
    __syncthreads();
}

// Where a tile starts in the operand, in the cotangent of the result and in that of the operand, in bytes.
struct Start {
    long long operand, cotangent, out;
};

// thread_place: of each thread in loads of the operand, of the cotangent, in stores, then for every stage and, behind
// them, every gradient of a step a pair. slots: for every sum of a thread the number of its result, or IDLE.
// partial: the results of each block.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
adjoint(const unsigned char* __restrict__ operand, const unsigned char* __restrict__ result, unsigned char* __restrict__ out,
        REAL* __restrict__ partial, const Start* __restrict__ thread_offset, const Start* __restrict__ near,
        const Start* __restrict__ far, const Place* __restrict__ thread_place, const Place* __restrict__ slots, int n_near,
        int n_tiles) {
    extern __shared__ __align__(128) unsigned char memory[];
    unsigned char* const values = memory;
    unsigned char* const cotangent = values + IMAGES * TILE_BYTES;
    unsigned char* const branches = cotangent + TILE_BYTES;
    Place* own = reinterpret_cast<Place*>(branches + SHARED_BYTES);

    for (int i = threadIdx.x; i < PLACES * THREADS; i += THREADS) own[i] = thread_place[i];
    for (int i = threadIdx.x * 16; i < SHARED_BYTES; i += THREADS * 16)
        *reinterpret_cast<uint4*>(branches + i) = *reinterpret_cast<const uint4*>(shared_branches + i);
    __syncthreads();
    own += threadIdx.x;
    const Start offset = thread_offset[threadIdx.x];
    REAL sums[N_SUMS] = {};

    for (int number = blockIdx.x; number < n_tiles; number += gridDim.x) {
        const Start low = near[number % n_near], high = far[number / n_near];
        if (IMAGES && own[0] != IDLE) {
            const unsigned char* from = operand + (low.operand + high.operand + offset.operand);
            Element read[LOADS];
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) read[i] = *reinterpret_cast<const Element*>(from + load_offset[i]);
            #pragma unroll
            for (int i = 0; i < LOADS; ++i) at(values, moved(own[0], load_place[i])) = read[i];
        }
        if (own[THREADS] != IDLE) {
            const unsigned char* from = result + (low.cotangent + high.cotangent + offset.cotangent);
            Element read[STORES];
            #pragma unroll
            for (int i = 0; i < STORES; ++i) read[i] = *reinterpret_cast<const Element*>(from + store_offset[i]);
            #pragma unroll
            for (int i = 0; i < STORES; ++i) at(cotangent, moved(own[THREADS], store_place[i])) = read[i];
        }
        __syncthreads();
        #define FMA(s, rows, columns, k, n, first) \
            run_stage<s, rows, columns, k, n, first>( \
                s < STEPS ? values + s * TILE_BYTES : cotangent, s < STEPS ? values + (s + 1) * TILE_BYTES : cotangent, \
                n > columns ? branches : constant_branches, own[(3 + 2 * s) * THREADS], own[(4 + 2 * s) * THREADS]);
        #define GRADIENT(s, k, n, lanes, blocks, rounds, first) \
            add_gradient<s, k, n, lanes, blocks, rounds, first>(values + s * TILE_BYTES, cotangent, \
                                                         own[(3 + 4 * STEPS + 2 * s) * THREADS], \
                                                         own[(4 + 4 * STEPS + 2 * s) * THREADS], sums);
        FORWARD
        BACK
        if (WRITES && own[2 * THREADS] != IDLE) {
            unsigned char* into = out + (low.out + high.out + offset.out);
            #pragma unroll
            for (int i = 0; i < WRITTEN; ++i)
                *reinterpret_cast<Element*>(into + back_offset[i]) = at(cotangent, moved(own[2 * THREADS], back_place[i]));
        }
        __syncthreads();
    }

    #if RESULTS
    // Warps in turn, so that the order of a sum is always the same.
    REAL* const total = reinterpret_cast<REAL*>(memory);
    for (int i = threadIdx.x; i < RESULTS; i += THREADS) total[i] = REAL(0);
    __syncthreads();
    for (int warp = 0; warp < THREADS / LANES; ++warp) {
        if (threadIdx.x / LANES == warp) {
            #pragma unroll
            for (int i = 0; i < N_SUMS; ++i) {
                const Place slot = slots[i * THREADS + threadIdx.x];
                if (slot != IDLE) total[slot] += sums[i];
            }
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < RESULTS; i += THREADS) partial[(long long)blockIdx.x * RESULTS + i] = total[i];
    #endif
}

// A column of lanes for each result: adds up what `count` blocks have left, and writes it to its target.
const int ADDERS = 8;

extern "C" __global__ void __launch_bounds__(ADDERS * LANES)
add_up(const REAL* __restrict__ partial, int count, REAL* const* __restrict__ target) {
    __shared__ double of_adder[ADDERS][LANES];
    const int lane = threadIdx.x % LANES, adder = threadIdx.x / LANES, i = blockIdx.x * LANES + lane;
    double sum = 0.0;
    if (i < RESULTS)
        for (int block = adder; block < count; block += ADDERS) sum += partial[(long long)block * RESULTS + i];
    of_adder[adder][lane] = sum;
    __syncthreads();
    if (adder == 0 && i < RESULTS) {
        for (int other = 1; other < ADDERS; ++other) sum += of_adder[other][lane];
        *target[i] = REAL(sum);
    }
}
