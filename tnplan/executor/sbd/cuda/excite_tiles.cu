// The opposite-spin part of y[row], a block for each piece of a row of alpha strings, by tiles of ROWS active pairs a and
// COLUMNS beta strings j'. Warps make, for 32 columns each,
//     product[a, j'] = sum over excitations e of the row of +-(pair of e | a) x[other of e, j']
// on tensor cores, put PART rows of that in shared memory, and add them where excitations of beta want them:
// y[row, j] +-= product[a, j']. No sum comes twice between two barriers: no addition is atomic, and sums, in fp64,
// run in one order. What a tile wants is read while the tile before it is worked on. Excitations of a row stand in
// rising order of the rank of their pair.
// Injected: REAL of x, y and tables, WARPS, BLOCKS that a multiprocessor is to hold, IN_SHARED (1: sums of a row lie in
// shared memory, 0: in y or a spare row), and of the tables PART, PARTS, PADDING, SIGN, DEEP and MOST; see
// executor/sbd/sigma/opposite_spin.py. NumPy twin: tests/oracles/sbd.py. Products in fp64 need compute capability 8.0.

#include "../../device/cuda/contract/kernels/double_mma.cuh"

typedef long long Index;

#define THREADS (32 * WARPS)
#define COLUMNS (32 * WARPS)
#define ROWS (PART * PARTS)
#define LD (COLUMNS + PADDING)
#define NONE 0xffffffffu
// Products whose elements of x are under way.
#ifndef SLOTS
#define SLOTS 2
#endif

static_assert(PART * LD <= SIGN && PART == 16, "elements of a part lie below the sign, and fill a product's rows");
static_assert(MOST % DEEP == 0 && DEEP == 8, "a turn is of whole products");

extern __shared__ double memory[];

// Adds four elements of products; those of one sum stand side by side, and each sum is of one thread alone, or of four
// side by side that have it last. Where a warp has any such, its first four do. Of several elements of a sum, a thread
// uses what was read before the last one alone: the other three of four may read what their first writes.
template <class Sum> __device__ inline void add(Sum *sums, const double *products, uint4 slots) {
    const unsigned slot[4] = {slots.x, slots.y, slots.z, slots.w};
    const unsigned all = 0xffffffff;
    const bool shared = __shfl_sync(all, slot[3], 0) / (2 * SIGN) == __shfl_sync(all, slot[3], 1) / (2 * SIGN);
    const bool of_four = shared && __shfl_xor_sync(all, slot[3], 1) / (2 * SIGN) == slot[3] / (2 * SIGN);
    const bool present = slot[3] != NONE && !(of_four && threadIdx.x % 4);
    double element[4], before[4];
    unsigned to[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        element[q] = before[q] = 0;
        to[q] = slot[q] / (2 * SIGN);
        if (slot[q] != NONE)
            element[q] = products[slot[q] % SIGN];
        if (q < 3 ? slot[q] != NONE : present)
            before[q] = sums[to[q]];
        if (slot[q] & SIGN)
            element[q] = -element[q];
    }
#pragma unroll
    for (int q = 0; q < 3; ++q)
        if (to[q] == to[q + 1])
            element[q + 1] += element[q];
    if (shared) {
        double sum = element[3] + __shfl_xor_sync(all, element[3], 1);
        sum += __shfl_xor_sync(all, sum, 2);
        if (of_four)
            element[3] = sum;
    }
#pragma unroll
    for (int q = 0; q < 3; ++q)
        if (slot[q] != NONE && to[q] != to[q + 1])
            sums[to[q]] = before[q] + element[q];
    if (present)
        sums[to[3]] = before[3] + element[3];
}

// A piece has tiles of active pairs ROWS m .. ROWS (m + 1) - 1 for m from piece[1] to before piece[2], of row piece[0],
// and adds to y[row] or, for piece[3] >= 0, sets that row of `spare`. Excitations of a row as excite.cu has them, the
// row itself before them where it counts. active[pair, a] and number_weights[row, a] are coefficients. rank[pair] is the active
// pair, or -1. With `half` only excitations whose pair stands before a, and one half of those by a itself. A turn has
// MOST excitations. Rows of y have n_beta elements, those of x n_source.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    opposite_spin(const Index *__restrict__ pieces, Index n_beta, Index n_source, Index n_active, Index shift, Index half,
          const Index *__restrict__ start, const int *__restrict__ other, const int *__restrict__ pairs,
          const signed char *__restrict__ sign, const int *__restrict__ rank, const REAL *__restrict__ active,
          const REAL *__restrict__ number_weights, const int *__restrict__ tiles, const int *__restrict__ columns,
          const int *__restrict__ more, const uint4 *__restrict__ slots, const REAL *__restrict__ x,
          REAL *__restrict__ spare, REAL *__restrict__ y) {
    const Index *const piece = pieces + 4 * (Index)blockIdx.x;
    const Index row = piece[0];
    REAL *const out = piece[3] < 0 ? y + row * n_beta : spare + piece[3] * n_beta;
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    if (piece[3] >= 0)
        for (int j = thread; j < n_beta; j += THREADS)
            out[j] = 0;
#if IN_SHARED
    double *const sums = memory;
    for (int j = thread; j < n_beta; j += THREADS)
        sums[j] = 0;
#else
    REAL *const sums = out;
#endif
    // An even number of doubles before those that are read and written in twos.
    double *const weights = memory + (IN_SHARED ? (n_beta + 1) / 2 * 2 : 0), *const products = weights + MOST * ROWS;
    int *const source = (int *)(products + PART * LD), *const order = source + MOST;
    int *const pair = order + MOST, *const factor = pair + MOST;
    REAL next[SLOTS][2][4];
#pragma unroll
    for (int s = 0; s < SLOTS; ++s)
#pragma unroll
        for (int n = 0; n < 8; ++n)
            next[s][n / 4][n % 4] = 0;
    const Index end = start[row + 1], before = start[row] - (shift >= 0 && !half);
    for (Index first = before; first < end; first += MOST) {
        __syncthreads();
        const int count = end - first < MOST ? end - first : MOST;
        for (int k = thread; k < MOST; k += THREADS) {
            const Index e = first + k;
            const bool present = k < count && e >= start[row];
            source[k] = present ? other[e] : k < count ? row + shift : 0;
            pair[k] = present ? pairs[e] : -1;
            order[k] = present ? rank[pairs[e]] : 0;
            factor[k] = present ? sign[e] : k < count ? 1 : 0;
        }
        __syncthreads();
        int depth = half ? 0 : count;
        for (int m = piece[1]; m < (int)piece[2]; ++m) {
            while (depth < count && order[depth] < (m + 1) * ROWS)
                ++depth;
            const int begin = tiles[m], last = tiles[m + 1];
            if (depth == 0 || begin == last)
                continue;
            const int steps = (depth + DEEP - 1) / DEEP;
            uint4 slot[PARTS];
            const uint4 *const of_thread = slots + thread;
#pragma unroll
            for (int part = 0; part < PARTS; ++part)
                slot[part] = of_thread[(begin * PARTS + part) * THREADS];
            // Under way: SLOTS steps from `ahead` on of tile `ahead_tile`, whose columns are `column`.
            const uint4 *const of_lane = (const uint4 *)columns + warp * 8 + lane / 4;
            int ahead = 0, ahead_tile = begin;
            uint4 column = of_lane[begin * (COLUMNS / 4)];
            uint4 column_next = of_lane[(begin + 1) * (COLUMNS / 4)];
            auto load = [&](int s) {
                const int k = (ahead + s) * DEEP + lane % 4;
                if (ahead_tile < last && ahead + s < steps) {
                    const REAL *const from = x + (Index)source[k] * (int)n_source;
                    const REAL *const beyond = x + (Index)source[k + 4] * (int)n_source;
                    next[s][0][0] = from[column.x], next[s][0][1] = from[column.y];
                    next[s][0][2] = from[column.z], next[s][0][3] = from[column.w];
                    next[s][1][0] = beyond[column.x], next[s][1][1] = beyond[column.y];
                    next[s][1][2] = beyond[column.z], next[s][1][3] = beyond[column.w];
                }
            };
            auto advance = [&]() {
                ahead += SLOTS;
                if (ahead >= steps)
                    ahead = 0, ++ahead_tile, column = column_next;
            };
#pragma unroll
            for (int s = 0; s < SLOTS; ++s)
                load(s);
            advance();
            column_next = of_lane[(ahead_tile + 1) * (COLUMNS / 4)];
            // As the lanes of a product want them: two and two of depth k and k + 4, rows a and a + 8.
#pragma unroll 2
            for (int at = thread; at < steps * DEEP * ROWS; at += THREADS) {
                const int k = at / ROWS, r = at % ROWS, a = m * ROWS + r;
                double weight = 0;
                if (k < depth && a < n_active)
                    weight = pair[k] < 0 ? number_weights[row * n_active + a] : factor[k] * active[pair[k] * n_active + a];
                if (half && order[k] >= a)
                    weight = order[k] == a ? 0.5 * weight : 0;
                const int part = (k / DEEP * PARTS + r / 16) * 2 + k % DEEP / 4, in = (part * 8 + r % 8) * 4 + k % 4;
                weights[in * 2 + r % 16 / 8] = weight;
            }
            __syncthreads();
            for (int t = begin; t < last; ++t) {
                int turns[PARTS + 1];
#pragma unroll
                for (int part = 0; part <= PARTS; ++part)
                    turns[part] = more[t * PARTS + part];
                double sum[PARTS][4][4];
#pragma unroll
                for (int n = 0; n < 16 * PARTS; ++n)
                    sum[n / 16][n / 4 % 4][n % 4] = 0;
                for (int step = 0; step < steps; step += SLOTS) {
#pragma unroll
                    for (int s = 0; s < SLOTS; ++s) {
                        if (step + s < steps) {
                            const double2 *const w = (const double2 *)weights + (step + s) * PARTS * 64 + lane;
#pragma unroll
                            for (int part = 0; part < PARTS; ++part) {
                                const double2 a = w[part * 64], beyond = w[part * 64 + 32];
#pragma unroll
                                for (int n = 0; n < 4; ++n)
                                    multiply(sum[part][n], a, beyond, next[s][0][n], next[s][1][n]);
                            }
                        }
                        load(s);
                    }
                    advance();
                }
                // A tile's steps go on to the columns of the next one once.
                column_next = of_lane[(ahead_tile + 1) * (COLUMNS / 4)];
#pragma unroll
                for (int part = 0; part < PARTS; ++part) {
                    __syncthreads();
#pragma unroll
                    for (int n = 0; n < 4; ++n)
#pragma unroll
                        for (int h = 0; h < 2; ++h)
                            *(double2 *)(products + (h * 8 + lane / 4) * LD + warp * 32 + n * 8 + lane % 4 * 2) =
                                make_double2(sum[part][n][h * 2], sum[part][n][h * 2 + 1]);
                    __syncthreads();
                    add(sums, products, slot[part]);
                    slot[part] = of_thread[((t + 1) * PARTS + part) * THREADS];
                    for (int turn = turns[part]; turn < turns[part + 1]; ++turn)
                        add(sums, products, of_thread[turn * THREADS]);
                }
            }
        }
    }
#if IN_SHARED
    __syncthreads();
    for (int j = thread; j < n_beta; j += THREADS)
        out[j] += sums[j];
#endif
}
