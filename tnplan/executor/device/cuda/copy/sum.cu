// Sums over axes, in one fixed order whatever the device; the tables are made by permute.py.
//
// Defines: REAL (float or double), PARTS (1: real, 2: complex), LANES (threads that share a sum: 1, a warp, or THREADS).
// table = target rows | target columns | summed rows | summed columns, offsets in elements of the source.
// Sums are formed in double precision. LANES is a power of two; lane i takes the terms i, i + LANES, ...

#define THREADS 256
#if LANES == THREADS
#define MEET() __syncthreads()
#else
#define MEET() __syncwarp() // warps of a block have different numbers of sums
#endif

extern "C" __global__ void sum_axes(REAL* target, const REAL* source, const unsigned long long* table,
                                    unsigned kept_rows, unsigned kept_columns, unsigned summed_rows,
                                    unsigned summed_columns)
{
    const unsigned long long* kept_column = table + kept_rows;
    const unsigned long long* summed_row = kept_column + kept_columns;
    const unsigned long long* summed_column = summed_row + summed_rows;
    const unsigned long long outputs = (unsigned long long)kept_rows * kept_columns;
    const unsigned long long terms = (unsigned long long)summed_rows * summed_columns;
    const unsigned lane = threadIdx.x % LANES;
    const unsigned long long stride = (unsigned long long)gridDim.x * (THREADS / LANES);
    unsigned long long number = (unsigned long long)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    for (; number < outputs; number += stride) {
        const unsigned long long base = table[number / kept_columns] + kept_column[number % kept_columns];
        double sums[PARTS] = {};
        unsigned long long row = lane / summed_columns;
        unsigned column = lane % summed_columns;
        for (unsigned long long term = lane; term < terms; term += LANES) {
            const REAL* value = source + PARTS * (base + summed_row[row] + summed_column[column]);
#pragma unroll
            for (int part = 0; part < PARTS; ++part) sums[part] += value[part];
            column += LANES;
            row += column / summed_columns;
            column %= summed_columns;
        }
#if LANES > 1
        __shared__ double partial[PARTS][THREADS];
#pragma unroll
        for (int part = 0; part < PARTS; ++part) partial[part][threadIdx.x] = sums[part];
        MEET();
        for (unsigned half = LANES / 2; half > 0; half /= 2) {
            if (lane < half)
                for (int part = 0; part < PARTS; ++part)
                    partial[part][threadIdx.x] += partial[part][threadIdx.x + half];
            MEET();
        }
#pragma unroll
        for (int part = 0; part < PARTS; ++part) sums[part] = partial[part][threadIdx.x - lane];
        MEET();
#endif
        if (lane == 0)
#pragma unroll
            for (int part = 0; part < PARTS; ++part) target[PARTS * number + part] = (REAL)sums[part];
    }
}
