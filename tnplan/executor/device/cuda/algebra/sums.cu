// Sums over axes, adding copies and zeros of an algebra; the tables are made by device.py.
//
// Defines: those of values.cuh; LANES (threads that share a sum: 1 or THREADS).

#include "values.cuh"

#define THREADS 256

struct __align__(16) Pair {
    unsigned long long x, y;
};

extern "C" __global__ void __launch_bounds__(THREADS) fill(Value* target, Long count)
{
    const Long stride = (Long)gridDim.x * THREADS;
    for (Long i = (Long)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride) target[i] = zero();
}

// target[t] = target[t] + source[s] over a box: element (row, column, r), r in a run that is contiguous on both sides.
// table = rows | columns, pairs of offsets in the source and in the target.
extern "C" __global__ void __launch_bounds__(THREADS)
add_box(Value* target, const Value* source, const Pair* table, const double* modulus_at, Long rows, Long columns,
        Long run)
{
    const Modulus modulus = read_modulus(modulus_at);
    const Long stride = (Long)gridDim.x * THREADS;
    for (Long i = (Long)blockIdx.x * THREADS + threadIdx.x; i < rows * columns * run; i += stride) {
        const Long line = i / run;
        const Pair row = table[line / columns];
        const Pair column = table[rows + line % columns];
        const Long offset = i - line * run;
        Value* place = target + row.y + column.y + offset;
        *place = plus(*place, source[row.x + column.x + offset], modulus);
    }
}

// table = target rows | target columns | summed rows | summed columns, offsets in the source. The order of a sum is
// that of the numbers alone.
extern "C" __global__ void __launch_bounds__(THREADS)
sum_axes(Value* target, const Value* source, const unsigned long long* table, const double* modulus_at, Long kept_rows,
         Long kept_columns, Long summed_rows, Long summed_columns)
{
    const Modulus modulus = read_modulus(modulus_at);
    const unsigned long long* kept_column = table + kept_rows;
    const unsigned long long* summed_row = kept_column + kept_columns;
    const unsigned long long* summed_column = summed_row + summed_rows;
    const Long outputs = kept_rows * kept_columns, terms = summed_rows * summed_columns;
    const int lane = threadIdx.x % LANES;
    const Long stride = (Long)gridDim.x * (THREADS / LANES);
    for (Long number = (Long)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES; number < outputs; number += stride) {
        const unsigned long long base = table[number / kept_columns] + kept_column[number % kept_columns];
        Value sum = zero();
        for (Long term = lane; term < terms; term += LANES)
            sum = plus(sum, source[base + summed_row[term / summed_columns] + summed_column[term % summed_columns]],
                       modulus);
#if LANES > 1
        // All threads of the block have the same number here.
        __shared__ Value partial[THREADS];
        partial[threadIdx.x] = sum;
        __syncthreads();
        for (int half = LANES / 2; half > 0; half /= 2) {
            if (lane < half) partial[lane] = plus(partial[lane], partial[lane + half], modulus);
            __syncthreads();
        }
        sum = partial[0];
        __syncthreads();
#endif
        if (lane == 0) target[number] = sum;
    }
}
