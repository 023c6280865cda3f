// c[row(i) + column(j)] = the sum over q of a[i, q] b[j, q] for many rows and few columns, whose modes lie in c in any
// order: read once and written once. a [m | k] or, where A_K_FIRST, [k | m]; b [n | k] or, where B_K_FIRST, [k | n].
//
// Injected: REAL (float, double), COMPLEX (0, 1); ROWS: of a tile, which is one block's, a thread each; COLUMNS: a power
// of two, n or more; VECTOR: elements of a row that are read at once, 1 for A_K_FIRST; A_K_FIRST, B_K_FIRST (0, 1).
// NumPy twin: einsum "iq,jq->ij". Every element is summed by one thread in rising q: the same bits every run.
//
// A tile has any rows, those of `row_at`, counted from the first of the tile. Its results go through shared memory,
// so that threads in a row write what lies in a row in c: results `slots` of the tile to `places`.

#include "part.cuh"

struct alignas((COMPLEX + 1) * sizeof(REAL)) Value {
    REAL part[COMPLEX + 1];
};
struct alignas(VECTOR * sizeof(Value)) Vector {
    Value value[VECTOR];
};

#define COLUMN_STEP (ROWS + 1) // of results in shared memory, against bank conflicts

__device__ inline void add_product(Value &sum, const Value &x, const Value &y) {
    sum.part[0] = fma(x.part[0], y.part[0], sum.part[0]);
#if COMPLEX
    sum.part[0] = fma(-x.part[1], y.part[1], sum.part[0]);
    sum.part[1] = fma(x.part[0], y.part[1], sum.part[1]);
    sum.part[1] = fma(x.part[1], y.part[0], sum.part[1]);
#endif
}

extern "C" __global__ void __launch_bounds__(ROWS)
thin_rows(const Value *__restrict__ a, const Value *__restrict__ b, Value *__restrict__ c, long long m, int n, int k,
          unsigned n_tiles, const unsigned *__restrict__ row_at, const unsigned *__restrict__ slots,
          const unsigned *__restrict__ places, const long long *a_high, const long long *a_low, unsigned a_split,
          const long long *c_high, const long long *c_low, unsigned c_split) {
    extern __shared__ __align__(16) unsigned char memory[];
    Value *const columns = (Value *)memory;          // [k | COLUMNS]
    Value *const results = columns + k * COLUMNS;    // [COLUMNS | COLUMN_STEP]
    const Part rows_of{a_high, a_low, a_split}, places_of{c_high, c_low, c_split};

    for (int t = threadIdx.x; t < k * COLUMNS; t += ROWS) {
        const int q = t / COLUMNS, j = t % COLUMNS;
        columns[t] = j < n ? b[B_K_FIRST ? q * n + j : j * k + q] : Value{};
    }
    __syncthreads();

    const unsigned own = row_at[threadIdx.x];
    for (unsigned tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        const long long row = rows_of(tile) + own;
        const Value *const x = a + (A_K_FIRST ? row : row * k);
        const long long step = A_K_FIRST ? m : 1;
        Value sum[COLUMNS] = {};
#pragma unroll 4
        for (int q = 0; q < k; q += VECTOR) {
            const Vector read = *(const Vector *)(x + q * step);
#pragma unroll
            for (int v = 0; v < VECTOR; ++v)
#pragma unroll
                for (int j = 0; j < COLUMNS; ++j)
                    add_product(sum[j], read.value[v], columns[(q + v) * COLUMNS + j]);
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j)
            results[j * COLUMN_STEP + threadIdx.x] = sum[j];
        __syncthreads();
        Value *const to = c + places_of(tile);
        for (int t = threadIdx.x; t < ROWS * n; t += ROWS)
            to[places[t]] = results[slots[t]];
        __syncthreads();
    }
}
