// c[row(i) + column(j)] = the sum over q of a[i, q] b[j, q] for many rows and few columns, whose modes lie in c in any
// order: read once and written once. An operand has element (i, q) at i * row_step + q * step.
//
// Injected: REAL (float, double), COMPLEX (0, 1); THREADS: of a block at most; COLUMNS: n or more, for as many sums of a
// thread; VECTOR: elements of a row of a that are read at once, 1 unless `a_step` is 1; GAP: results of a column before a
// gap in shared memory, against bank conflicts. NumPy twin: einsum "iq,jq->ij". Every element is summed by one thread in
// rising q: the same bits every run.
//
// A block takes tiles in turn, a row each thread. A tile has any rows, those of `row_at`, counted from its first. Its
// results go through shared memory, so that threads in a row write what lies in a row in c: results `slots` of the
// tile to `places`.

#include "part.cuh"
#include "value.cuh"

struct alignas(VECTOR * sizeof(Value)) Vector {
    Value value[VECTOR];
};
struct alignas(2 * sizeof(Value)) Pair {
    Value value[2];
};

extern "C" __global__ void __launch_bounds__(THREADS)
few_columns(const Value *__restrict__ a, long long a_row_step, long long a_step, const Value *__restrict__ b,
          int b_row_step, int b_step, Value *__restrict__ c, int n, int k, unsigned n_tiles,
          const unsigned *__restrict__ row_at, const unsigned *__restrict__ slots, const unsigned *__restrict__ places,
          const long long *a_high, const long long *a_low, unsigned a_split, const long long *c_high,
          const long long *c_low, unsigned c_split) {
    extern __shared__ __align__(32) unsigned char memory[];
    const int rows = blockDim.x, column_step = rows + rows / GAP + 1;
    Value *const columns = (Value *)memory;       // [k | COLUMNS], an even number
    Value *const results = columns + k * COLUMNS; // [COLUMNS | column_step]
    Value *const own = results + threadIdx.x + threadIdx.x / GAP;
    const Part rows_of{a_high, a_low, a_split}, places_of{c_high, c_low, c_split};

    for (int t = threadIdx.x; t < k * COLUMNS; t += rows) {
        const int q = t / COLUMNS, j = t % COLUMNS;
        columns[t] = j < n ? b[j * b_row_step + q * b_step] : Value{};
    }
    __syncthreads();

    const unsigned place = row_at[threadIdx.x];
    for (unsigned tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        const Value *const x = a + (rows_of(tile) + place) * a_row_step;
        Value sum[COLUMNS] = {};
#pragma unroll 4
        for (int q = 0; q < k; q += VECTOR) {
            const Vector read = *(const Vector *)(x + q * a_step);
#pragma unroll
            for (int v = 0; v < VECTOR; ++v)
#pragma unroll
                for (int j = 0; j < COLUMNS; j += 2) {
                    const Pair y = *(const Pair *)(columns + (q + v) * COLUMNS + j);
                    add_product(sum[j], read.value[v], y.value[0]);
                    add_product(sum[j + 1], read.value[v], y.value[1]);
                }
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j)
            own[j * column_step] = sum[j];
        __syncthreads();
        Value *const to = c + places_of(tile);
        for (int t = threadIdx.x; t < rows * n; t += rows)
            to[places[t]] = results[slots[t]];
        __syncthreads();
    }
}
