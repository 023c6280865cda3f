// parts[g, p, i, j] = the sum over the q of part p of a[g, i, q] b[g, j, q]: few results of a long sum, at the speed
// of memory. a [batch | m | k], b [batch | n | k] row-major, or [batch | k | m], [batch | k | n] where K_FIRST; part p
// has the `length` terms from p * length on; parts [batch | p | m | n].
//
// Injected: REAL (float, double), COMPLEX (0, 1); ROWS, COLUMNS: of the results that a thread sums; THREADS: of a block;
// VECTOR: terms that a thread reads of a row at once, 1 for K_FIRST; A_K_FIRST, B_K_FIRST (0, 1); A_READ, B_READ: rows
// that it reads of a term at once, 1 but for K_FIRST. NumPy twin: einsum "gipq,gjpq->gpij".
//
// A warp has one block of results of one part, a block of threads all results of it, so that rows that several
// warps need come from the L1 cache. Every lane sums its own terms in rising q, then lanes are added in a fixed
// order: the same bits every run. Rows past m and columns past n repeat the last, and are not written.

#include "value.cuh"

template <int COUNT> struct alignas(COUNT * sizeof(Value)) Run {
    Value value[COUNT];
};
typedef Run<VECTOR> Vector;

// Terms of some rows: those of one row lie in a row, or, with K_FIRST, those of READ rows.
template <int COUNT, int READ, bool K_FIRST>
__device__ inline void read(Vector (&x)[COUNT], const Value *const (&row)[COUNT], long long at) {
#pragma unroll
    for (int i = 0; i < COUNT; i += READ) {
        if (!K_FIRST) {
            x[i] = *(const Vector *)(row[i] + at);
            continue;
        }
        const Run<READ> run = *(const Run<READ> *)(row[i] + at);
#pragma unroll
        for (int part = 0; part < READ; ++part)
            x[i + part].value[0] = run.value[part];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
sum_parts(const Value *__restrict__ a, const Value *__restrict__ b,
          Value *__restrict__ parts, long long k, unsigned length, int m, int n) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int across = (n + COLUMNS - 1) / COLUMNS;
    const int first_row = warp / across * ROWS, first_column = warp % across * COLUMNS;
    const unsigned n_parts = k / length, batch = blockIdx.x / n_parts;
    const long long start = (long long)(blockIdx.x % n_parts) * length;
    a += batch * m * k;
    b += batch * n * k;
    const long long a_step = A_K_FIRST ? m : 1, b_step = B_K_FIRST ? n : 1;
    const Value *row[ROWS], *column[COLUMNS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
        row[i] = a + min(first_row + i, m - 1) * (A_K_FIRST ? 1 : k) + start * a_step;
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j)
        column[j] = b + min(first_column + j, n - 1) * (B_K_FIRST ? 1 : k) + start * b_step;

    Value sum[ROWS][COLUMNS] = {};
    for (unsigned q = lane * VECTOR; q < length; q += 32 * VECTOR) {
        Vector x[ROWS], y[COLUMNS];
        read<ROWS, A_READ, A_K_FIRST>(x, row, q * a_step);
        read<COLUMNS, B_READ, B_K_FIRST>(y, column, q * b_step);
#pragma unroll
        for (int v = 0; v < VECTOR; ++v)
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int j = 0; j < COLUMNS; ++j)
                    add_product(sum[i][j], x[i].value[v], y[j].value[v]);
    }

    Value *const to = parts + (long long)blockIdx.x * m * n;
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
#pragma unroll
            for (int part = 0; part <= COMPLEX; ++part)
#pragma unroll
                for (int other = 16; other > 0; other /= 2)
                    sum[i][j].part[part] += __shfl_xor_sync(~0u, sum[i][j].part[part], other);
            if (lane == 0 && first_row + i < m && first_column + j < n)
                to[(first_row + i) * n + first_column + j] = sum[i][j];
        }
}
