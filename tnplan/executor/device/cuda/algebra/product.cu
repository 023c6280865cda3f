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
#define BLOCKS (sizeof(Value) <= 8 ? 2 : 1) // of a multiprocessor, at least
#define SETTLED (TERMS / DEPTH) // tiles of terms between two that are settled; 0: none is

struct __align__(16) Pack {
    Value values[16 / sizeof(Value)];
};

// One value from global to shared memory, past the registers (PTX ISA, cp.async).
__device__ __forceinline__ void copy_async(Value* to, const Value* from)
{
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(sizeof(Value)) : "memory");
}

__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// What a thread copies of the rows of an operand: `COPIES` values in steps, in the order of memory: terms first, or rows
// first. Values beyond the operand are left as they are: their products are not written.
// Invariant: SIDE and DEPTH are powers of two, and at most THREADS.
template <int SIDE>
struct Loader {
    static const int COPIES = (SIDE * DEPTH + THREADS - 1) / THREADS, LENGTH = SIDE + PADDING;
    static const int ROW_STEP = THREADS / DEPTH, TERM_STEP = THREADS / SIDE;
    const Value* from;
    Long step, next;
    int rows, row, term;
    bool by_terms;

    __device__ __forceinline__ Loader(const Value* first, Long rows_left, Long row_stride, Long term_stride)
    {
        by_terms = term_stride == 1;
        row = by_terms ? threadIdx.x / DEPTH : threadIdx.x % SIDE;
        term = by_terms ? threadIdx.x % DEPTH : threadIdx.x / SIDE;
        rows = rows_left < SIDE ? (int)rows_left : SIDE;
        from = first + row * row_stride + term * term_stride;
        step = by_terms ? ROW_STEP * row_stride : TERM_STEP * term_stride;
        next = DEPTH * term_stride;
    }

    // Begins to copy the next terms, of which so many are left.
    __device__ __forceinline__ void load(Value (&tile)[DEPTH][SIDE + PADDING], Long left)
    {
        if (left <= 0) return;
        Value* to = &tile[0][0] + term * LENGTH + row;
        if (rows < SIDE || left < DEPTH || SIDE * DEPTH < THREADS) {
            const int terms = left < DEPTH ? (int)left : DEPTH;
            int count = 0;
            if (by_terms && term < terms) count = (rows - row + ROW_STEP - 1) / ROW_STEP;
            if (!by_terms && row < rows) count = (terms - term + TERM_STEP - 1) / TERM_STEP;
            const int to_step = by_terms ? ROW_STEP : TERM_STEP * LENGTH;
#pragma unroll 1
            for (int i = 0; i < count; ++i) copy_async(to + i * to_step, from + i * step);
        } else if (by_terms) {
            copy_whole<ROW_STEP>(to);
        } else {
            copy_whole<TERM_STEP * LENGTH>(to);
        }
        from += next;
    }

    template <int TO_STEP>
    __device__ __forceinline__ void copy_whole(Value* to)
    {
        const Value* at = from;
#pragma unroll
        for (int i = 0; i < COPIES; ++i, at += step) copy_async(to + i * TO_STEP, at);
    }
};

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

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
product_tiles(const Value* a, const Value* b, Value* c, const double* modulus_at, Sizes sizes, Strides strides)
{
    __shared__ __align__(16) Value a_tiles[2][DEPTH][ROWS + PADDING];
    __shared__ __align__(16) Value b_tiles[2][DEPTH][COLUMNS + PADDING];
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
        Loader<ROWS> of_a(a + batch * strides.a_batch + first_row * strides.a_row + first_term * strides.a_term,
                          sizes.m - first_row, strides.a_row, strides.a_term);
        Loader<COLUMNS> of_b(b + batch * strides.b_batch + first_column * strides.b_row + first_term * strides.b_term,
                             sizes.n - first_column, strides.b_row, strides.b_term);
        Value sums[ROW_VALUES][COLUMN_VALUES];
#pragma unroll
        for (int i = 0; i < ROW_VALUES; ++i)
#pragma unroll
            for (int j = 0; j < COLUMN_VALUES; ++j) sums[i][j] = zero();
        of_a.load(a_tiles[0], left);
        of_b.load(b_tiles[0], left);
        int unsettled = 0, stage = 0;
        for (; left > 0; left -= DEPTH, stage ^= 1) {
            // Invariant: after this all threads have read the other stage, and copied this one.
            wait_for_copies();
            __syncthreads();
            of_a.load(a_tiles[stage ^ 1], left - DEPTH);
            of_b.load(b_tiles[stage ^ 1], left - DEPTH);
            const Value* a_row = a_tiles[stage][0];
            const Value* b_row = b_tiles[stage][0];
            if (left >= DEPTH) {
#pragma unroll
                for (int q = 0; q < DEPTH; ++q)
                    add_term(sums, a_row + q * (ROWS + PADDING), b_row + q * (COLUMNS + PADDING), row_lane, column_lane);
            } else {
#pragma unroll 1
                for (int q = 0; q < left; ++q)
                    add_term(sums, a_row + q * (ROWS + PADDING), b_row + q * (COLUMNS + PADDING), row_lane, column_lane);
            }
            if (SETTLED && ++unsettled == SETTLED) {
                unsettled = 0;
#pragma unroll
                for (int i = 0; i < ROW_VALUES; ++i)
#pragma unroll
                    for (int j = 0; j < COLUMN_VALUES; ++j) settle(sums[i][j], modulus);
            }
        }
        __syncthreads();
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
