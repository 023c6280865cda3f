// A pass over a state vector: tiles are read, changed and written one after another, a block each.
//
// Defines: REAL (float or double), TILE_BITS (bits of an index in a tile), REGISTER_BITS (2 to 4, at most TILE_BITS),
// THREADS, MOST_TARGETS of a block (1, 2 or 5); with CODE_BITS too the state is packed.cuh's. The tables are those of executor/statevector/scheduling/pass_tables.py
// and codegen/register_rounds.py; their numba twin is executor/statevector/cpu/tiled_pass_kernel.py. A tile lies in
// shared memory. In a round every thread holds groups of 2^REGISTER_BITS amplitudes, does all steps of the round on
// them, and puts them back; a wide round is one block on three to five targets.

typedef long long Index;

struct alignas(2 * sizeof(REAL)) Amplitude {
    REAL x, y;
};

#define SIDE (1u << TILE_BITS)
#define HELD (1 << REGISTER_BITS)
#define LOW_BITS ((TILE_BITS + 1) / 2)
#define LOW_SIDE (1u << LOW_BITS)
#define HIGH_SIDE (1u << (TILE_BITS - LOW_BITS))
#define WARPS_SPREAD 15u
static_assert(MOST_TARGETS <= 5, "wide rounds are of three to five targets");

enum { BLOCK, DIAGONAL, TWIST };
enum { KIND, TARGETS, NEAR, FAR, PLACE, VALUE, IDLE, FIRST, SECOND, IS_REAL, IN_ROW, STEP_FIELDS };
enum { WIDE, BEGIN, END, TWISTS, BITS, ROUND_FIELDS = BITS + REGISTER_BITS };

struct Tables {
    const int *steps, *places;
    const Amplitude *values;
    const unsigned char *idle;
    const double *phases;
};

// Where element i of a tile lies, so that threads whose indices differ in high bits alone meet in few banks.
__device__ __forceinline__ unsigned slot(unsigned i) {
    return i ^ (i >> 4 & WARPS_SPREAD);
}

#ifdef CODE_BITS
__device__ __forceinline__ unsigned beside(unsigned first, unsigned k) {
    return first ^ k;
}

#include "packed.cuh"
#endif

__device__ __forceinline__ Amplitude times(Amplitude a, Amplitude b) {
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}

__device__ __forceinline__ void add_times(Amplitude &sum, Amplitude m, Amplitude a) {
    sum.x += m.x * a.x - m.y * a.y;
    sum.y += m.x * a.y + m.y * a.x;
}

// A number with zeros put in at `bits`, which rise.
__device__ __forceinline__ unsigned opened(unsigned number, const int *bits, int count) {
    for (int k = 0; k < count; ++k) {
        const unsigned low = number & ((1u << bits[k]) - 1);
        number += number - low;
    }
    return number;
}

__device__ __forceinline__ unsigned gathered(Index from, const int *bits, int count) {
    unsigned value = 0;
#pragma unroll 1
    for (int k = 0; k < count; ++k) value |= (unsigned)(from >> bits[k] & 1) << k;
    return value;
}

__device__ __forceinline__ unsigned spread(unsigned value, const int *bits, int count) {
    unsigned index = 0;
    for (int k = 0; k < count; ++k) index |= (value >> k & 1) << bits[k];
    return index;
}

// The number of the matrix that the far selectors choose, times the number of near values.
__device__ __forceinline__ unsigned far_choice(const Tables &tables, const int *step, Index index) {
    const int *far = tables.places + step[PLACE] + step[TARGETS] + step[NEAR];
    return gathered(index, far, step[FAR]) << step[NEAR];
}

template <int P>
__device__ __forceinline__ void one_target(Amplitude *a, const Tables &tables, const int *step, unsigned choice,
                                           const unsigned *tile_index) {
    const int *near = tables.places + step[PLACE] + 1;
    const bool real = step[IS_REAL];
#pragma unroll
    for (int j = 0; j < HELD; ++j) {
        if (j >> P & 1) continue;
        const unsigned number = choice + gathered(tile_index[j], near, step[NEAR]);
        if (tables.idle[step[IDLE] + number]) continue;
        const Amplitude *m = tables.values + step[VALUE] + 4 * number;
        const Amplitude p = a[j], q = a[j | 1 << P];
        Amplitude r = {m[0].x * p.x + m[1].x * q.x, m[0].x * p.y + m[1].x * q.y};
        Amplitude s = {m[2].x * p.x + m[3].x * q.x, m[2].x * p.y + m[3].x * q.y};
        if (!real) {
            r = {r.x - m[0].y * p.y - m[1].y * q.y, r.y + m[0].y * p.x + m[1].y * q.x};
            s = {s.x - m[2].y * p.y - m[3].y * q.y, s.y + m[2].y * p.x + m[3].y * q.x};
        }
        a[j] = r;
        a[j | 1 << P] = s;
    }
}

// P is the less significant bit of a row.
template <int P, int Q>
__device__ __forceinline__ void two_targets(Amplitude *a, const Tables &tables, const int *step, unsigned choice,
                                            const unsigned *tile_index) {
    const int *near = tables.places + step[PLACE] + 2;
#pragma unroll
    for (int j = 0; j < HELD; ++j) {
        if ((j >> P | j >> Q) & 1) continue;
        const unsigned number = choice + gathered(tile_index[j], near, step[NEAR]);
        if (tables.idle[step[IDLE] + number]) continue;
        const Amplitude *m = tables.values + step[VALUE] + 16 * number;
        const Amplitude x[4] = {a[j], a[j | 1 << P], a[j | 1 << Q], a[j | 1 << P | 1 << Q]};
        Amplitude y[4] = {};
#pragma unroll
        for (int row = 0; row < 4; ++row)
#pragma unroll
            for (int column = 0; column < 4; ++column) add_times(y[row], m[4 * row + column], x[column]);
        a[j] = y[0];
        a[j | 1 << P] = y[1];
        a[j | 1 << Q] = y[2];
        a[j | 1 << P | 1 << Q] = y[3];
    }
}

// Targets rise, so that the first is in fewer than the last register bit where there are two.
__device__ __forceinline__ void on_targets(Amplitude *a, const Tables &tables, const int *step, unsigned choice,
                                           const unsigned *tile_index) {
    switch (step[TARGETS] == 1 ? step[FIRST] : 4 * step[SECOND] + step[FIRST]) {
#define ONE(P)                                                                                                         \
    case P: one_target<P>(a, tables, step, choice, tile_index); break;
#if MOST_TARGETS > 1
#define TWO(P, Q)                                                                                                      \
    case 4 * Q + P: two_targets<P, Q>(a, tables, step, choice, tile_index); break;
#else
#define TWO(P, Q)
#endif
        ONE(0) ONE(1) TWO(0, 1)
#if REGISTER_BITS > 2
        ONE(2) TWO(0, 2) TWO(1, 2)
#endif
#if REGISTER_BITS > 3
        ONE(3) TWO(0, 3) TWO(1, 3) TWO(2, 3)
#endif
#undef ONE
#undef TWO
    }
}

// Every amplitude times its element of a table.
__device__ __forceinline__ void diagonal(Amplitude *a, const Tables &tables, const int *step, unsigned choice,
                                         const unsigned *tile_index) {
    const int *near = tables.places + step[PLACE];
    const Amplitude *table = tables.values + step[VALUE] + choice;
    const unsigned mask = (1u << step[NEAR]) - 1;
#pragma unroll
    for (int j = 0; j < HELD; ++j) {
        const unsigned i = tile_index[j];
        a[j] = times(table[step[IN_ROW] ? i >> near[0] & mask : gathered(i, near, step[NEAR])], a[j]);
    }
}

// The tables of a twist for one tile: exp(i phase) of the low and of the high bits of the index in the tile.
__device__ void make_twist(const Tables &tables, const int *step, Index index, const int *held_bits, double *angles,
                           Amplitude *low, Amplitude *high) {
    const int n = step[NEAR];
    const double *linear = tables.phases + step[TARGETS], *pairs = linear + n;
    for (int bit = threadIdx.x; bit <= TILE_BITS; bit += THREADS) {
        double angle;
        if (bit < TILE_BITS) {
            angle = linear[held_bits[bit]];
            for (int j = 0; j < n; ++j)
                if (index >> j & 1) angle += pairs[n * held_bits[bit] + j];
        } else {
            angle = pairs[n * n];
            for (int j = 0; j < n; ++j) {
                if (!(index >> j & 1)) continue;
                angle += linear[j];
                for (int k = 0; k < j; ++k)
                    if (index >> k & 1) angle += pairs[n * j + k];
            }
        }
        angles[bit] = angle;
    }
    __syncthreads();
    for (unsigned entry = threadIdx.x; entry < LOW_SIDE + HIGH_SIDE; entry += THREADS) {
        const bool is_high = entry >= LOW_SIDE;
        const unsigned value = is_high ? entry - LOW_SIDE : entry;
        const int first = is_high ? LOW_BITS : 0, count = is_high ? TILE_BITS - LOW_BITS : LOW_BITS;
        double angle = is_high ? angles[TILE_BITS] : 0;
        for (int k = 0; k < count; ++k)
            if (value >> k & 1) angle += angles[first + k];
        double sine, cosine;
        sincos(angle, &sine, &cosine);
        (is_high ? high : low)[value] = {(REAL)cosine, (REAL)sine};
    }
    __syncthreads();
}

__device__ __forceinline__ void twist(Amplitude *a, const Amplitude *low, const Amplitude *high,
                                      const unsigned *tile_index) {
#pragma unroll
    for (int j = 0; j < HELD; ++j)
        a[j] = times(times(low[tile_index[j] & (LOW_SIDE - 1)], high[tile_index[j] >> LOW_BITS]), a[j]);
}

// All steps of a round, in registers.
__device__ __forceinline__ void do_round(Amplitude *tile, const Tables &tables, const int *round, Index index,
                                         const Amplitude *low, const Amplitude *high) {
    for (unsigned group = threadIdx.x; group < SIDE >> REGISTER_BITS; group += THREADS) {
        const unsigned base = opened(group, round + BITS, REGISTER_BITS);
        unsigned tile_index[HELD];
        Amplitude a[HELD];
#pragma unroll
        for (int j = 0; j < HELD; ++j) {
            tile_index[j] = base | spread(j, round + BITS, REGISTER_BITS);
            a[j] = tile[slot(tile_index[j])];
        }
#pragma unroll 1
        for (int number = round[BEGIN]; number < round[END]; ++number) {
            const int *step = tables.steps + number * STEP_FIELDS;
            if (step[KIND] == TWIST)
                twist(a, low, high, tile_index);
            else if (step[KIND] == DIAGONAL)
                diagonal(a, tables, step, far_choice(tables, step, index), tile_index);
            else
                on_targets(a, tables, step, far_choice(tables, step, index), tile_index);
        }
#pragma unroll
        for (int j = 0; j < HELD; ++j) tile[slot(tile_index[j])] = a[j];
    }
}

// One block on T targets; the thread that reads a group is the one that writes it.
template <int T>
__device__ __forceinline__ void wide(Amplitude *tile, const Tables &tables, const int *step, unsigned choice) {
    const int *targets = tables.places + step[PLACE], *near = targets + T;
    for (int group = threadIdx.x; group < (int)(SIDE >> T); group += THREADS) {
        const unsigned base = opened(group, targets, T);
        const unsigned number = choice + gathered(base, near, step[NEAR]);
        if (tables.idle[step[IDLE] + number]) continue;
        const Amplitude *m = tables.values + step[VALUE] + ((size_t)number << 2 * T);
        Amplitude x[1 << T];
#pragma unroll
        for (int j = 0; j < 1 << T; ++j) x[j] = tile[slot(base | spread(j, targets, T))];
#pragma unroll 1
        for (int row = 0; row < 1 << T; ++row) {
            Amplitude sum = {0, 0};
#pragma unroll
            for (int j = 0; j < 1 << T; ++j) add_times(sum, m[(row << T) + j], x[j]);
            tile[slot(base | spread(row, targets, T))] = sum;
        }
    }
}

// starts[row]: where a run of 2^run_bits amplitudes of a tile begins; far: the bits of a tile's number. With CODE_BITS `state`
// is where the numbers are, and sums[block] the squares of the rounding errors and of the norm of its tiles.
extern "C" __global__ void __launch_bounds__(THREADS)
    run_tiles(Amplitude *__restrict__ state, Index rank_base, Index n_tiles, const int *__restrict__ held_bits,
              const int *__restrict__ far, int n_far, const Index *__restrict__ starts, int run_bits,
              const int *__restrict__ rounds, int n_rounds, const int *__restrict__ steps,
              const int *__restrict__ places, const Amplitude *__restrict__ values,
              const unsigned char *__restrict__ idle, const double *__restrict__ phases
#ifdef CODE_BITS
              , double *__restrict__ sums, float *__restrict__ scales, Key key
#endif
    ) {
    extern __shared__ __align__(16) unsigned char shared[];
#ifdef CODE_BITS
    const Packed packed = {(unsigned char *)state, scales, key};
    __shared__ double totals[2 * THREADS / 32];
    for (int k = threadIdx.x; k < 2 * THREADS / 32; k += THREADS) totals[k] = 0;
#endif
    double *angles = (double *)shared;
    Amplitude *low = (Amplitude *)(angles + TILE_BITS + 1 + (TILE_BITS + 1) % 2), *high = low + LOW_SIDE;
    Amplitude *tile = high + HIGH_SIDE;
    const Tables tables = {steps, places, values, idle, phases};
    for (Index number = blockIdx.x; number < n_tiles; number += gridDim.x) {
        Index base = 0;
        for (int k = 0; k < n_far; ++k) base |= (number >> k & 1) << far[k];
        const unsigned in_run = (1u << run_bits) - 1;
#ifdef CODE_BITS
        const auto places = [&](unsigned i) { return base + starts[i >> run_bits] + (i & in_run); };
        decode_tile(packed, places, tile);
#else
#pragma unroll 8
        for (unsigned i = threadIdx.x; i < SIDE; i += THREADS)
            tile[slot(i)] = state[base + starts[i >> run_bits] + (i & in_run)];
#endif
        __syncthreads();
        const Index index = base | rank_base;
#pragma unroll 1
        for (int r = 0; r < n_rounds; ++r) {
            const int *round = rounds + r * ROUND_FIELDS;
            const int *step = steps + round[BEGIN] * STEP_FIELDS;
            if (round[TWISTS] >= 0)
                make_twist(tables, steps + round[TWISTS] * STEP_FIELDS, index, held_bits, angles, low, high);
#if MOST_TARGETS > 2
            if (round[WIDE] == 3)
                wide<3>(tile, tables, step, far_choice(tables, step, index));
            else if (round[WIDE] == 4)
                wide<4>(tile, tables, step, far_choice(tables, step, index));
            else if (round[WIDE] == 5)
                wide<5>(tile, tables, step, far_choice(tables, step, index));
            else
#endif
                do_round(tile, tables, round, index, low, high);
            __syncthreads();
        }
#ifdef CODE_BITS
        double squares[2] = {};
        encode_tile(packed, places, tile, squares);
        add_errors(squares, totals);
#else
#pragma unroll 8
        for (unsigned i = threadIdx.x; i < SIDE; i += THREADS)
            state[base + starts[i >> run_bits] + (i & in_run)] = tile[slot(i)];
#endif
        __syncthreads();
    }
#ifdef CODE_BITS
    for (int k = threadIdx.x; k < 2; k += THREADS) {
        double total = 0;
        for (int warp = 0; warp < THREADS / 32; ++warp) total += totals[2 * warp + k];
        sums[2 * (Index)blockIdx.x + k] = total;
    }
#endif
}
