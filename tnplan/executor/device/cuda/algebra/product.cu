// Products over an algebra: c[t, i, j] = the sum over q of a[t, i, q] b[t, j, q], with any strides.
//
// Defines: those of values.cuh; ROW_VALUES, COLUMN_VALUES (of a thread), COLUMN_THREADS, DEPTH (terms at once).
// The sum is cut into parts, each with a result of its own: part r of `product_tiles` has the terms from
// r * length on, that of `product_each` every parts-th term.

#include "values.cuh"

struct Sizes {
    Long batch, m, n, k, parts, length;
};

struct Strides {
    Long a_batch, a_row, a_term, b_batch, b_row, b_term, c_part, c_batch, c_row, c_column;
};

#define THREADS 256
#define ROW_THREADS (THREADS / COLUMN_THREADS)
#define ROWS (ROW_THREADS * ROW_VALUES)
#define COLUMNS (COLUMN_THREADS * COLUMN_VALUES)
#define WIDTH (int)(16 / sizeof(Value)) // values that are read from shared memory at once
#define PADDING WIDTH
#define ROW_LOADS ((ROWS * DEPTH + THREADS - 1) / THREADS)
#define COLUMN_LOADS ((COLUMNS * DEPTH + THREADS - 1) / THREADS)
#define SETTLED (TERMS / DEPTH) // tiles of terms between two that are settled; 0: none is

struct __align__(16) Pack {
    Value values[16 / sizeof(Value)];
};

// Threads take values of a tile [SIDE | DEPTH] in the order of memory: terms first, or rows first.
template <int SIDE>
__device__ __forceinline__ void place(int number, bool by_terms, int& row, int& term)
{
    row = by_terms ? number / DEPTH : number % SIDE;
    term = by_terms ? number % DEPTH : number / SIDE;
}

template <int SIDE, int LOADS>
__device__ __forceinline__ void load(Value (&held)[LOADS], const Value* from, Long rows, Long terms, Long row_stride,
                                     Long term_stride)
{
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        int row, term;
        place<SIDE>(threadIdx.x + i * THREADS, term_stride == 1, row, term);
        held[i] = zero();
        if (row < rows && term < terms && row < SIDE && term < DEPTH)
            held[i] = from[row * row_stride + term * term_stride];
    }
}

template <int SIDE, int LOADS>
__device__ __forceinline__ void keep(Value (&tile)[DEPTH][SIDE + PADDING], const Value (&held)[LOADS], bool by_terms)
{
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        int row, term;
        place<SIDE>(threadIdx.x + i * THREADS, by_terms, row, term);
        if (row < SIDE && term < DEPTH) tile[term][row] = held[i];
    }
}

// Value i of thread `lane` of a side is of row position<LANES>(lane, i).
template <int LANES>
__device__ __forceinline__ int position(int lane, int i) { return i / WIDTH * (LANES * WIDTH) + lane * WIDTH + i % WIDTH; }

template <int LANES, int COUNT>
__device__ __forceinline__ void fetch(Value (&values)[COUNT], const Value* row, int lane)
{
#pragma unroll
    for (int i = 0; i < COUNT; i += WIDTH) {
        const Pack pack = *(const Pack*)(row + position<LANES>(lane, i));
#pragma unroll
        for (int part = 0; part < WIDTH; ++part) values[i + part] = pack.values[part];
    }
}

__device__ __forceinline__ void add_term(Value (&sums)[ROW_VALUES][COLUMN_VALUES], const Value* a_row,
                                         const Value* b_row, int row_lane, int column_lane)
{
    Value of_a[ROW_VALUES], of_b[COLUMN_VALUES];
    fetch<ROW_THREADS>(of_a, a_row, row_lane);
    fetch<COLUMN_THREADS>(of_b, b_row, column_lane);
#pragma unroll
    for (int i = 0; i < ROW_VALUES; ++i)
#pragma unroll
        for (int j = 0; j < COLUMN_VALUES; ++j) gather(sums[i][j], of_a[i], of_b[j]);
}

extern "C" __global__ void __launch_bounds__(THREADS)
product_tiles(const Value* a, const Value* b, Value* c, const double* modulus_at, Sizes sizes, Strides strides)
{
    __shared__ __align__(16) Value a_tile[DEPTH][ROWS + PADDING];
    __shared__ __align__(16) Value b_tile[DEPTH][COLUMNS + PADDING];
    const Modulus modulus = read_modulus(modulus_at);
    const int row_lane = threadIdx.x / COLUMN_THREADS, column_lane = threadIdx.x % COLUMN_THREADS;
    const Long row_tiles = (sizes.m + ROWS - 1) / ROWS, column_tiles = (sizes.n + COLUMNS - 1) / COLUMNS;
    const Long tiles = sizes.parts * sizes.batch * row_tiles * column_tiles;
    for (Long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        // Rows of tiles are fastest: blocks that run at once share columns.
        const Long first_row = tile % row_tiles * ROWS;
        const Long first_column = tile / row_tiles % column_tiles * COLUMNS;
        const Long batch = tile / (row_tiles * column_tiles) % sizes.batch;
        const Long part = tile / (row_tiles * column_tiles) / sizes.batch;
        const Long first_term = part * sizes.length;
        Long left = sizes.k - first_term;
        left = left < sizes.length ? left : sizes.length;
        const Value* a_from =
            a + batch * strides.a_batch + first_row * strides.a_row + first_term * strides.a_term;
        const Value* b_from =
            b + batch * strides.b_batch + first_column * strides.b_row + first_term * strides.b_term;
        Value sums[ROW_VALUES][COLUMN_VALUES];
#pragma unroll
        for (int i = 0; i < ROW_VALUES; ++i)
#pragma unroll
            for (int j = 0; j < COLUMN_VALUES; ++j) sums[i][j] = zero();
        Value a_held[ROW_LOADS], b_held[COLUMN_LOADS];
        load<ROWS>(a_held, a_from, sizes.m - first_row, left, strides.a_row, strides.a_term);
        load<COLUMNS>(b_held, b_from, sizes.n - first_column, left, strides.b_row, strides.b_term);
        int unsettled = 0;
        for (; left > 0; left -= DEPTH) {
            keep<ROWS>(a_tile, a_held, strides.a_term == 1);
            keep<COLUMNS>(b_tile, b_held, strides.b_term == 1);
            __syncthreads();
            // The next terms are read while these are multiplied.
            a_from += DEPTH * strides.a_term;
            b_from += DEPTH * strides.b_term;
            load<ROWS>(a_held, a_from, sizes.m - first_row, left - DEPTH, strides.a_row, strides.a_term);
            load<COLUMNS>(b_held, b_from, sizes.n - first_column, left - DEPTH, strides.b_row, strides.b_term);
            if (left >= DEPTH) {
#pragma unroll
                for (int q = 0; q < DEPTH; ++q) add_term(sums, a_tile[q], b_tile[q], row_lane, column_lane);
            } else {
#pragma unroll 1
                for (int q = 0; q < left; ++q) add_term(sums, a_tile[q], b_tile[q], row_lane, column_lane);
            }
            if (SETTLED && ++unsettled == SETTLED) {
                unsettled = 0;
#pragma unroll
                for (int i = 0; i < ROW_VALUES; ++i)
#pragma unroll
                    for (int j = 0; j < COLUMN_VALUES; ++j) settle(sums[i][j], modulus);
            }
            __syncthreads();
        }
        Value* to = c + part * strides.c_part + batch * strides.c_batch;
#pragma unroll
        for (int i = 0; i < ROW_VALUES; ++i) {
            const Long row = first_row + position<ROW_THREADS>(row_lane, i);
#pragma unroll
            for (int j = 0; j < COLUMN_VALUES; ++j) {
                const Long column = first_column + position<COLUMN_THREADS>(column_lane, j);
                finish(sums[i][j], modulus);
                if (row < sizes.m && column < sizes.n)
                    to[row * strides.c_row + column * strides.c_column] = sums[i][j];
            }
        }
    }
}

// A thread an element of a part: for few rows or columns, and for many small products.
extern "C" __global__ void __launch_bounds__(THREADS)
product_each(const Value* a, const Value* b, Value* c, const double* modulus_at, Sizes sizes, Strides strides)
{
    const Modulus modulus = read_modulus(modulus_at);
    const Long count = sizes.batch * sizes.m * sizes.n * sizes.parts;
    for (Long number = (Long)blockIdx.x * THREADS + threadIdx.x; number < count; number += (Long)gridDim.x * THREADS) {
        Long part, column, row, batch;
        // Parts are fastest, so that neighbours read neighbouring terms. Divisions of 32 bits take a fifth.
        if (count < (1LL << 31)) {
            unsigned rest = (unsigned)number;
            part = rest % (unsigned)sizes.parts;
            rest /= (unsigned)sizes.parts;
            column = rest % (unsigned)sizes.n;
            rest /= (unsigned)sizes.n;
            row = rest % (unsigned)sizes.m;
            batch = rest / (unsigned)sizes.m;
        } else {
            part = number % sizes.parts;
            column = number / sizes.parts % sizes.n;
            row = number / sizes.parts / sizes.n % sizes.m;
            batch = number / sizes.parts / sizes.n / sizes.m;
        }
        const Value* a_at = a + batch * strides.a_batch + row * strides.a_row + part * strides.a_term;
        const Value* b_at = b + batch * strides.b_batch + column * strides.b_row + part * strides.b_term;
        const Long a_step = strides.a_term * sizes.parts, b_step = strides.b_term * sizes.parts;
        Value sum = zero();
        int unsettled = 0;
#pragma unroll 4
        for (Long q = part; q < sizes.k; q += sizes.parts) {
            gather(sum, *a_at, *b_at);
            a_at += a_step;
            b_at += b_step;
            if (TERMS && ++unsettled == TERMS) {
                unsettled = 0;
                settle(sum, modulus);
            }
        }
        finish(sum, modulus);
        c[part * strides.c_part + batch * strides.c_batch + row * strides.c_row + column * strides.c_column] = sum;
    }
}
