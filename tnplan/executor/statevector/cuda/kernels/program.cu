// One pass over a state vector, compiled for it: the tile is in registers, and is exchanged between threads between rounds.
//
// Defines: REAL (float or double), TILE_BITS, REGISTER_BITS, BLOCKS (on a multiprocessor), HELD (the bits of the state's
// index in a tile, rising, with commas), NUMBER_BITS (of a tile's number), NEIGHBOURS (blocks that do neighbouring tiles
// at the same time), N_VALUES, N_TWISTS, HAS_FAR_PAIRS, N_SUMS (of words
// between two states), and STEPS, the pass as macros of this file; with CODE_BITS too the state is packed.cuh's, tiles are
// decoded and encoded through shared memory, and there are no sums of words;
// executor/statevector/codegen/pass_program.py writes them, and says what they mean.
// A thread holds 2^REGISTER_BITS amplitudes. A layout says which bits of a tile number them (REGS) and which the threads
// (THREAD_BITS), four binary digits each. The twin is executor/statevector/cpu/tiled_pass_kernel.py.

typedef long long Place;
typedef unsigned long long Code;

#define THREADS (1 << (TILE_BITS - REGISTER_BITS))
#define IN_THREAD (1 << REGISTER_BITS)
#ifndef MEET
#define MEET(NUMBER, COUNT) asm volatile("bar.sync %0, %1;" ::"r"(NUMBER), "r"(COUNT) : "memory")
// Neighbours load and store at the same time, so that memory has their runs as longer ones; they share no data, and do
// without each other where a GPU has no clusters.
#if NEIGHBOURS > 1 && __CUDA_ARCH__ >= 900
#define CLUSTER __cluster_dims__(NEIGHBOURS, 1, 1)
#define ARRIVE asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#define AWAIT asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
#endif
#ifndef CLUSTER
#define CLUSTER
#define ARRIVE
#define AWAIT
#endif

template <typename T> struct Types;
template <> struct Types<float> {
    typedef float2 One;
};
template <> struct Types<double> {
    typedef double2 One;
};
typedef Types<REAL>::One Amplitude;

enum { NOTHING, PLUS, MINUS, PLUS_I, MINUS_I, REAL_PART, IMAGINARY_PART, ANY };
enum { THREAD_DIGITS = TILE_BITS - REGISTER_BITS, LANE_BITS = THREAD_DIGITS < 5 ? THREAD_DIGITS : 5 };
enum { LANES = 1 << LANE_BITS, WARPS = THREADS / LANES, ENTRIES = LANES + WARPS + REGISTER_BITS };
enum { LOW_BITS = NUMBER_BITS / 2, LOWS = 1 << LOW_BITS, HIGHS = 1 << (NUMBER_BITS - LOW_BITS) };
enum { ALL = 0, WARP = -1 };
enum { DIGITS = 4, KIND_DIGITS = 3, BANK_DIGITS = sizeof(REAL) == 4 ? 4 : 3 };
static_assert(TILE_BITS <= 1 << DIGITS, "layouts have four digits for a bit of a tile");
#ifdef CODE_BITS
#define TOTALS 2  // errors, and the norm
#else
#define TOTALS N_SUMS
#endif

struct Values {
    Amplitude at[N_VALUES];
};

// The numbers of tiles to be done: 0 .. count-1 with zeros put in, in turn, above the bits of each `low`, and `fixed`.
// Where all bits of a `low` are set nothing is put in.
struct Tiles {
    unsigned count, fixed, low[4];

    __device__ __forceinline__ Place number(unsigned at) const {
#pragma unroll
        for (int k = 0; k < 4; ++k) at += at - (at & low[k]);
        return at | fixed;
    }
};

#include "gates.cuh"
#include "sums.cuh"

// Bit i of a number goes to bit i of the digits of BITS; neighbours that stay neighbours go together.
template <Code BITS, int COUNT> __device__ __forceinline__ unsigned spread(unsigned number) {
    unsigned index = 0, mask = 0;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const int to = (int)(BITS >> DIGITS * i & 15);
        mask |= 1u << i;
        if (i + 1 < COUNT && (int)(BITS >> DIGITS * (i + 1) & 15) == to + 1) continue;
        index |= to >= i ? (number & mask) << (to >= i ? to - i : 0) : (number & mask) >> (to < i ? i - to : 0);
        mask = 0;
    }
    return index;
}

// Where bit patterns of a tile's index lie in the state.
__device__ __forceinline__ Place in_state(unsigned index) {
    constexpr int held_bits[] = {HELD};
    Place place = 0;
    unsigned mask = 0;
#pragma unroll
    for (int k = 0; k < TILE_BITS; ++k) {
        mask |= 1u << k;
        if (k + 1 < TILE_BITS && held_bits[k + 1 < TILE_BITS ? k + 1 : k] == held_bits[k] + 1) continue;
        place |= (Place)(index & mask) << (held_bits[k] - k);
        mask = 0;
    }
    return place;
}

// The number of a tile with zeros put in at the held bits.
__device__ __forceinline__ Place opened(Place number) {
    constexpr int held_bits[] = {HELD};
#pragma unroll
    for (int k = 0, first = 0; k < TILE_BITS; ++k) {
        if (k + 1 < TILE_BITS && held_bits[k + 1 < TILE_BITS ? k + 1 : k] == held_bits[k] + 1) continue;
        const int length = k + 1 - first;
        const Place low = number & (((Place)1 << held_bits[first]) - 1);
        number = ((number - low) << length) + low;
        first = k + 1;
    }
    return number;
}

// Where an element of a tile lies in shared memory. The sum of two indices without a common bit lies at the sum of
// their places, and bits that differ by BANK_DIGITS fall into different banks.
__device__ __forceinline__ constexpr unsigned slot(unsigned i) {
    return i + (i >> BANK_DIGITS) + (i >> 2 * BANK_DIGITS) + (i >> 3 * BANK_DIGITS) + (i >> 4 * BANK_DIGITS);
}

#ifdef CODE_BITS
__device__ __forceinline__ unsigned beside(unsigned first, unsigned k) {
    return first + k;
}

#include "packed.cuh"
#endif

// Two neighbours at once.
template <typename Wide> __device__ __forceinline__ void load_two(const Amplitude *from, Amplitude *a) {
    const Wide both = __ldcg((const Wide *)from);
    a[0] = {both.x, both.y};
    a[1] = {both.z, both.w};
}

template <typename Wide> __device__ __forceinline__ void store_two(Amplitude *to, const Amplitude *a) {
    __stcg((Wide *)to, Wide{a[0].x, a[0].y, a[1].x, a[1].y});
}

template <Code REGS, Code THREAD_BITS> struct Layout {
    static constexpr bool wide = sizeof(REAL) == 4 && (REGS & 15) == 0;

    static __device__ __forceinline__ unsigned first() {
        return spread<THREAD_BITS, TILE_BITS - REGISTER_BITS>(threadIdx.x);
    }
    static __device__ __forceinline__ unsigned offset(int j) { return spread<REGS, REGISTER_BITS>(j); }

    static __device__ __forceinline__ void load(const Amplitude *state, Amplitude *a) {
        const Place start = (Place)state + sizeof(Amplitude) * in_state(first());
#pragma unroll
        for (int j = 0; j < IN_THREAD; j += wide ? 2 : 1) {
            const Amplitude *from = (const Amplitude *)(start + sizeof(Amplitude) * in_state(offset(j)));
            if constexpr (wide)
                load_two<float4>(from, a + j);
            else
                a[j] = __ldcg(from);
        }
    }

    static __device__ __forceinline__ void store(Amplitude *state, const Amplitude *a) {
        const Place start = (Place)state + sizeof(Amplitude) * in_state(first());
#pragma unroll
        for (int j = 0; j < IN_THREAD; j += wide ? 2 : 1) {
            Amplitude *to = (Amplitude *)(start + sizeof(Amplitude) * in_state(offset(j)));
            if constexpr (wide)
                store_two<float4>(to, a + j);
            else
                __stcg(to, a[j]);
        }
    }

    static __device__ __forceinline__ void put(Amplitude *tile, const Amplitude *a) {
        tile += slot(first());
#pragma unroll
        for (int j = 0; j < IN_THREAD; ++j) tile[slot(offset(j))] = a[j];
    }

    static __device__ __forceinline__ void take(const Amplitude *tile, Amplitude *a) {
        tile += slot(first());
#pragma unroll
        for (int j = 0; j < IN_THREAD; ++j) a[j] = tile[slot(offset(j))];
    }
};

// The bits of a warp's number that are the same bits of the tile's index in two layouts.
template <Code FROM, Code TO> __device__ __forceinline__ constexpr unsigned same_warp_bits() {
    unsigned mask = 0;
    for (int i = LANE_BITS; i < THREAD_DIGITS; ++i)
        mask |= (unsigned)((FROM >> DIGITS * i & 15) == (TO >> DIGITS * i & 15)) << (i - LANE_BITS);
    return mask;
}

// Threads synchronize that have each other's amplitudes: all, those of a warp, or groups of warps, whose barriers are numbered
// from BARRIER on.
template <Code FROM, Code TO, int BARRIER> __device__ __forceinline__ void sync_threads() {
    if constexpr (BARRIER == ALL) {
        __syncthreads();
    } else if constexpr (BARRIER == WARP) {
        __syncwarp();
    } else {
        constexpr unsigned same = same_warp_bits<FROM, TO>();
        unsigned group = 0;
        int found = 0;
#pragma unroll
        for (int i = 0; i < THREAD_DIGITS - LANE_BITS; ++i)
            if (same >> i & 1) group |= (threadIdx.x >> (LANE_BITS + i) & 1) << found++;
        MEET(BARRIER + group, THREADS >> found);
    }
}

// A thread writes only where it read last, so that one barrier is enough.
template <Code REGS, Code BITS, Code NEW_REGS, Code NEW_BITS, int BARRIER>
__device__ __forceinline__ void move(Amplitude *tile, Amplitude *a) {
    Layout<REGS, BITS>::put(tile, a);
    sync_threads<BITS, NEW_BITS, BARRIER>();
    Layout<NEW_REGS, NEW_BITS>::take(tile, a);
}

#define THREAD(I) (threadIdx.x >> (I) & 1)
#define FAR(B) (index >> (B) & 1)
#ifdef CODE_BITS
// Invariant: a thread decodes what it encoded of the tile before, so that no barrier comes first.
#define PLACES [&](unsigned i) { return base + in_state(i); }
#define LOAD(REGS, BITS)                                                                                               \
    decode_tile(packed, PLACES, tile);                                                                                 \
    if (N_TWISTS) make_turns(tables, (unsigned)number, turns);                                                         \
    __syncthreads();                                                                                                   \
    Layout<REGS, BITS>::take(tile, a);
// Amplitudes may be put where another thread takes its own, as exchanges of bits at the end are made so.
#define STORE(REGS, BITS)                                                                                              \
    __syncthreads();                                                                                                   \
    Layout<REGS, BITS>::put(tile, a);                                                                                  \
    __syncthreads();                                                                                                   \
    ARRIVE                                                                                                             \
    double squares[2] = {};                                                                                            \
    encode_tile(packed, PLACES, tile, squares);                                                                        \
    add_errors(squares, totals);
#else
#define LOAD(REGS, BITS)                                                                                               \
    Layout<REGS, BITS>::load(state + base, a);                                                                         \
    if (N_TWISTS) make_turns(tables, (unsigned)number, turns);                                                         \
    __syncthreads();
#define STORE(REGS, BITS) ARRIVE Layout<REGS, BITS>::store(state + base, a);
#endif
#define MOVE(REGS, BITS, NEW_REGS, NEW_BITS, BARRIER) move<REGS, BITS, NEW_REGS, NEW_BITS, BARRIER>(tile, a);
#define ONE(P, KINDS, AT, MASK, VALUE) one<P, KINDS, MASK, VALUE>(values.at + (AT), a);
#define TWO(P, Q, KINDS, AT, MASK, VALUE) two<P, Q, KINDS, MASK, VALUE>(values.at + (AT), a);
#define PARITY(THREAD_MASK, FAR_MASK) (top_parity<THREAD_MASK>(threadIdx.x) ^ top_parity<FAR_MASK>(index))
#define ROTATE(P, AT, PART, NEAR, PARITIES) rotate<P, NEAR>(values.at[AT].PART, PARITIES, a);
#define SIGNED(P, KINDS, AT, NEAR, PARITIES) signed_one<P, KINDS, NEAR>(values.at + (AT), PARITIES, a);
#define PHASES(MASK, AT) by_registers<MASK>(values.at + (AT), a);
#define SHEARS(MASK, FIRST, AT) by_shears<MASK, FIRST>(values.at + (AT), a);
#define SHEAR(AT, MASK, VALUE) shear_some<MASK, VALUE>(values.at[AT], a);
#define SIGNS(PAIRS, AT, ALONE, ...)                                                                                   \
    {                                                                                                                  \
        const unsigned parities[] = {__VA_ARGS__};                                                                     \
        REAL signs[IN_THREAD] = {flipped(values.at[AT].x, ALONE)};                                                     \
        by_signs<PAIRS>(parities, signs, a);                                                                           \
    }
#define TIMES(KIND, AT, MASK, VALUE) scale<KIND, MASK, VALUE>(values.at[AT], a);
#define FACTORS(ROW, MASK, HAS_ALL) by_factors<MASK, HAS_ALL, false, 0>(factors + (ROW) * THREADS, turns, a);
#define TABLE(ROW) by_table(factors + (ROW) * THREADS, a);
#define TWIST(NUMBER, TURNED, ROW, MASK, HAS_ALL)                                                                      \
    by_factors<MASK, HAS_ALL, true, TURNED>(factors + (ROW) * THREADS, turns + (NUMBER) * ENTRIES, a);

// Tiles are done one after another by as many blocks as fit on the GPU. sums[block][word]: the part of its tiles. With
// CODE_BITS `state` is where the numbers are, and sums[block] the squares of its rounding errors and of its norm.
extern "C" __global__ void CLUSTER __launch_bounds__(THREADS, BLOCKS)
    run_program(Amplitude *__restrict__ state, Place rank_base, const __grid_constant__ Tiles tiles,
                const Amplitude *__restrict__ factors, const Amplitude *__restrict__ tables,
                const __grid_constant__ Values values, double *__restrict__ sums
#ifdef CODE_BITS
                , float *__restrict__ scales, Key key
#endif
    ) {
#ifdef CODE_BITS
    const Packed packed = {(unsigned char *)state, scales, key};
#endif
    extern __shared__ __align__(16) Amplitude shared[];
    double *totals = (double *)shared;
    Amplitude *factors_of_tiles = shared + (WARPS * TOTALS * sizeof(double) + sizeof(Amplitude) - 1) / sizeof(Amplitude);
    Amplitude *tile = factors_of_tiles + 2 * N_TWISTS * ENTRIES;
    for (int k = threadIdx.x; k < WARPS * TOTALS; k += THREADS) totals[k] = 0;
    int turn_about = 0;
    ARRIVE
    for (unsigned at = blockIdx.x; at < tiles.count; at += gridDim.x) {
        const Place number = tiles.number(at), base = opened(number), index = base | rank_base;
        // Made while others may still read those of the tile before.
        Amplitude *turns = factors_of_tiles + turn_about * N_TWISTS * ENTRIES;
        turn_about ^= 1;
        Amplitude a[IN_THREAD];
        REAL v[N_SUMS ? MOST_TOGETHER : 1];
        AWAIT
        STEPS
    }
    AWAIT
    if (TOTALS) {
        __syncthreads();
        for (int k = threadIdx.x; k < TOTALS; k += THREADS) {
            double total = 0;
            for (int warp = 0; warp < WARPS; ++warp) total += totals[warp * TOTALS + k];
            sums[(Place)blockIdx.x * TOTALS + k] = total;
        }
    }
}
