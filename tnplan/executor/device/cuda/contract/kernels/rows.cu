// Products of pairs of rows: c[out(p) + batch(t) + row(i) + column(j)] = the sum over q of s[S(p), t, i, q]
// g[G(p), t, j, q]. s [row | batch | m | k] and g [row | batch | n | k] are row-major; a row of each may be in many
// pairs. These are the steps of a sparse state (Pan, Chen and Zhang, arXiv 2111.03011, Sec. III).
//
// `row_tiles`: pairs that share a row of s are one product with it. A chunk is such a row and some of its pairs, whose
// rows of g lie side by side: columns that follow each other, n of each pair. A block forms a tile of BM rows of s
// and BN columns. `row_sums`: LANES threads form each element alone, for rows too small for tiles.
//
// Injected: REAL, COMPLEX; ROWS, COLUMNS: rows and columns of a tile that a thread sums; DOWN, ACROSS: threads of a
// block along both; DEPTH: terms that are in shared memory at once; LANES (1, 32). NumPy twin: `bind_rows` of the
// CPU's device. Every element is summed in one order, whatever the launch.

#include "value.cuh"

#include "part.cuh"

typedef unsigned long long Number;

#define THREADS (DOWN * ACROSS)
#define BM (ROWS * DOWN)
#define BN (COLUMNS * ACROSS)
#define PASSES_M ((BM * DEPTH + THREADS - 1) / THREADS)
#define PASSES_N ((BN * DEPTH + THREADS - 1) / THREADS)


extern "C" __global__ void __launch_bounds__(THREADS)
row_tiles(const Value *__restrict__ s, const Value *__restrict__ g, Value *c, const int4 *__restrict__ chunks,
          const int2 *__restrict__ pairs, Number tiles, unsigned m_tiles, unsigned n_tiles, unsigned n_batch,
          unsigned m, unsigned n, int k, long long row_step, const long long *batch_high, const long long *batch_low,
          unsigned batch_split, const long long *m_high, const long long *m_low, unsigned m_split,
          const long long *n_high, const long long *n_low, unsigned n_split) {
    // One more row, so that threads that store terms of one row meet different banks.
    __shared__ Value of_s[DEPTH][BM + 1];
    __shared__ Value of_g[DEPTH][BN + 1];
    __shared__ long long s_from[BM], g_from[BN]; // first elements of rows, -1 past the last
    __shared__ long long s_to[BM], g_to[BN];     // places in c
    const Part batch_at = {batch_high, batch_low, batch_split};
    const Part m_at = {m_high, m_low, m_split}, n_at = {n_high, n_low, n_split};

    for (Number number = blockIdx.x; number < tiles; number += gridDim.x) {
        // Tiles of one row of s follow each other, for the L2.
        const unsigned first_m = number % m_tiles * BM;
        Number rest = number / m_tiles;
        const unsigned first_n = rest % n_tiles * BN;
        rest /= n_tiles;
        const unsigned t = rest % n_batch;
        const int4 chunk = __ldg(chunks + rest / n_batch); // row of s, first pair, number of pairs
        const unsigned columns = (unsigned)chunk.z * n;
        if (first_n >= columns)
            continue; // the same for the whole block
        for (unsigned i = threadIdx.x; i < BM; i += THREADS) {
            const unsigned row = first_m + i;
            s_from[i] = row < m ? (((long long)chunk.x * n_batch + t) * m + row) * k : -1;
            s_to[i] = row < m ? batch_at(t) + m_at(row) : -1;
        }
        for (unsigned j = threadIdx.x; j < BN; j += THREADS) {
            const unsigned column = first_n + j;
            g_from[j] = g_to[j] = -1;
            if (column < columns) {
                const int2 pair = __ldg(pairs + chunk.y + column / n); // row of g, row of c
                const unsigned within = column % n;
                g_from[j] = (((long long)pair.x * n_batch + t) * n + within) * k;
                g_to[j] = pair.y * row_step + n_at(within);
            }
        }
        __syncthreads();

        // DEPTH terms of each row are read ahead into registers while those before are summed.
        Value next_s[PASSES_M], next_g[PASSES_N];
        const auto fetch = [&](int first) {
#pragma unroll
            for (int p = 0; p < PASSES_M; ++p) {
                const unsigned e = p * THREADS + threadIdx.x, row = e / DEPTH, q = first + e % DEPTH;
                next_s[p] = Value{};
                if (row < BM && q < (unsigned)k && s_from[row] >= 0)
                    next_s[p] = s[s_from[row] + q];
            }
#pragma unroll
            for (int p = 0; p < PASSES_N; ++p) {
                const unsigned e = p * THREADS + threadIdx.x, row = e / DEPTH, q = first + e % DEPTH;
                next_g[p] = Value{};
                if (row < BN && q < (unsigned)k && g_from[row] >= 0)
                    next_g[p] = g[g_from[row] + q];
            }
        };
        const unsigned down = threadIdx.x / ACROSS, across = threadIdx.x % ACROSS;
        Value sum[ROWS][COLUMNS] = {};
        fetch(0);
        for (int first = 0; first < k; first += DEPTH) {
#pragma unroll
            for (int p = 0; p < PASSES_M; ++p) {
                const unsigned e = p * THREADS + threadIdx.x;
                if (e / DEPTH < BM)
                    of_s[e % DEPTH][e / DEPTH] = next_s[p];
            }
#pragma unroll
            for (int p = 0; p < PASSES_N; ++p) {
                const unsigned e = p * THREADS + threadIdx.x;
                if (e / DEPTH < BN)
                    of_g[e % DEPTH][e / DEPTH] = next_g[p];
            }
            __syncthreads();
            if (first + DEPTH < k)
                fetch(first + DEPTH);
#pragma unroll
            for (int q = 0; q < DEPTH; ++q) {
                Value x[ROWS], y[COLUMNS];
#pragma unroll
                for (int i = 0; i < ROWS; ++i)
                    x[i] = of_s[q][down + i * DOWN];
#pragma unroll
                for (int j = 0; j < COLUMNS; ++j)
                    y[j] = of_g[q][across + j * ACROSS];
#pragma unroll
                for (int i = 0; i < ROWS; ++i)
#pragma unroll
                    for (int j = 0; j < COLUMNS; ++j)
                        add_product(sum[i][j], x[i], y[j]);
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) {
                const long long row = s_to[down + i * DOWN], column = g_to[across + j * ACROSS];
                if (row >= 0 && column >= 0)
                    c[row + column] = sum[i][j];
            }
        __syncthreads(); // before the next tile's places
    }
}

// `pairs` of rows here: row of s, row of g; row p of c is that of pair p. `count` elements of c.
extern "C" __global__ void __launch_bounds__(256)
row_sums(const Value *__restrict__ s, const Value *__restrict__ g, Value *c, const int2 *__restrict__ pairs,
         Number count, unsigned n_batch, unsigned m, unsigned n, int k, long long row_step,
         const long long *batch_high, const long long *batch_low, unsigned batch_split, const long long *m_high,
         const long long *m_low, unsigned m_split, const long long *n_high, const long long *n_low,
         unsigned n_split) {
    const Part batch_at = {batch_high, batch_low, batch_split};
    const Part m_at = {m_high, m_low, m_split}, n_at = {n_high, n_low, n_split};
    const unsigned lane = threadIdx.x % LANES;
    const Number step = (Number)gridDim.x * (blockDim.x / LANES);
    // All lanes of a warp go through the loop alike: those of one element share it, and with LANES 1 none waits.
    for (Number e = (Number)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES; e < count; e += step) {
        const unsigned j = e % n;
        Number rest = e / n;
        const unsigned i = rest % m;
        rest /= m;
        const unsigned t = rest % n_batch;
        const Number p = rest / n_batch;
        const int2 pair = __ldg(pairs + p);
        const Value *x = s + (((long long)pair.x * n_batch + t) * m + i) * k;
        const Value *y = g + (((long long)pair.y * n_batch + t) * n + j) * k;
        Value sum = {};
        for (int q = lane; q < k; q += LANES)
            add_product(sum, x[q], y[q]);
#if LANES > 1
#pragma unroll
        for (int other = LANES / 2; other; other /= 2)
#pragma unroll
            for (int part = 0; part <= COMPLEX; ++part)
                sum.part[part] += __shfl_xor_sync(~0u, sum.part[part], other);
#endif
        if (lane == 0)
            c[(long long)p * row_step + batch_at(t) + m_at(i) + n_at(j)] = sum;
    }
}
