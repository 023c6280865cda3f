// c[batch(t) + row(i) + column(j)] = the sum over q of a[t, i, q] b[t, j, q] in fp32, for products whose
// modes lie in c in any order: no tile of the product is stored first. a [batch | m | k], b [batch | n | k]
// row-major; c anywhere.
//
// Injected: COMPLEX (0, 1); ROWS, COLUMNS: rows and columns of c that a thread sums; ACROSS: threads of a block
// along the columns; CHUNK: floats of a row that are in shared memory at once; VECTOR: floats that a row can be
// read by (4, 2, 1); BLOCKS: blocks that share a multiprocessor. NumPy twin: einsum
// "tiq,tjq->tij". Every element is summed by one thread in rising q.

#if COMPLEX
typedef float2 Element;
#else
typedef float Element;
#endif
#define PARTS (COMPLEX + 1)
#define THREADS 256
#define DOWN (THREADS / ACROSS)
#define BM (ROWS * DOWN)
#define BN (COLUMNS * ACROSS)
#define LANES_ACROSS (ACROSS < 8 ? ACROSS : 8)  // threads of a warp along the columns,
#define LANES_DOWN (32 / LANES_ACROSS)          // along the rows
#define WARPS_ACROSS (ACROSS / LANES_ACROSS)
#define DEPTH (CHUNK / PARTS)         // elements of a row that are in shared memory at once
#define PIECE (4 / PARTS)             // elements in 16 bytes: rows that a thread has in a run
#define READERS (CHUNK / 4)           // threads that read a row's chunk
#define ROWS_A_PASS (THREADS / READERS)
#define A_PASSES (BM / ROWS_A_PASS)
#define B_PASSES ((BN + ROWS_A_PASS - 1) / ROWS_A_PASS)
#define A_ROW (BM + PIECE)            // elements of a column of the chunk, padded against bank conflicts
#define B_ROW (BN + PIECE)

static_assert(LANES_DOWN * LANES_ACROSS == 32 && WARPS_ACROSS * LANES_ACROSS == ACROSS && ROWS % PIECE == 0 &&
                  COLUMNS % PIECE == 0,
              "threads must cover the block");

#include "product.cuh"

// One operand's side of a block: what this thread reads of each chunk. STRIDE: elements between its columns.
template <int PASSES, int STRIDE> struct Side {
    float4 value[PASSES];
    const float *next;
    unsigned step; // bytes between passes
    int left, rows;

    __device__ void start(const float *base, long long stride, int length, int first, int count, int most) {
        const int mine = threadIdx.x / READERS;
        next = base + (first + mine) * stride + threadIdx.x % READERS * 4;
        step = ROWS_A_PASS * 4 * stride;
        left = length - (int)(threadIdx.x % READERS) * 4;
        rows = min(count - first, most) - mine;
    }

    __device__ void fetch() {
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
            value[p] = read((const float *)((const char *)next + p * step), p * ROWS_A_PASS < rows ? left : 0);
        next += CHUNK, left -= CHUNK;
    }

    __device__ void store(Element *stage, int most) const {
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const int row = p * ROWS_A_PASS + threadIdx.x / READERS;
            if (row >= most)
                continue;
            Element *at = stage + threadIdx.x % READERS * PIECE * STRIDE + row;
            const float4 v = value[p];
#if COMPLEX
            at[0] = make_float2(v.x, v.y);
            at[STRIDE] = make_float2(v.z, v.w);
#else
            at[0] = v.x;
            at[STRIDE] = v.y;
            at[2 * STRIDE] = v.z;
            at[3 * STRIDE] = v.w;
#endif
        }
    }
};

__device__ inline void add_product(float (&sum)[PARTS], const float *x, const float *y) {
#if COMPLEX
    sum[0] = fmaf(x[0], y[0], sum[0]);
    sum[1] = fmaf(x[0], y[1], sum[1]);
    sum[0] = fmaf(-x[1], y[1], sum[0]);
    sum[1] = fmaf(x[1], y[0], sum[1]);
#else
    sum[0] = fmaf(x[0], y[0], sum[0]);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
contract(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, long long stride,
         int length, unsigned m, unsigned n, unsigned m_tiles, unsigned n_tiles, const long long *batch_high,
         const long long *batch_low, unsigned batch_split, const long long *m_high, const long long *m_low,
         unsigned m_split, const long long *n_high, const long long *n_low, unsigned n_split) {
    __shared__ __align__(16) Element a_stage[2][DEPTH * A_ROW];
    __shared__ __align__(16) Element b_stage[2][DEPTH * B_ROW];
    __shared__ long long offsets[BM + BN];

    const Tile tile(blockIdx.x, m_tiles, n_tiles);
    Side<A_PASSES, A_ROW> left;
    Side<B_PASSES, B_ROW> right;
    left.start(a + (long long)tile.batch * m * stride, stride, length, tile.first_m, m, BM);
    right.start(b + (long long)tile.batch * n * stride, stride, length, tile.first_n, n, BN);
    left.fetch();
    right.fetch();
    tile.offsets_in_c(offsets, m, n, {batch_high, batch_low, batch_split}, {m_high, m_low, m_split},
                      {n_high, n_low, n_split});
    left.store(a_stage[0], BM);
    right.store(b_stage[0], BN);
    __syncthreads();

    // A thread's rows are runs of PIECE, DOWN * PIECE apart, so that the threads of a warp read shared memory
    // without gaps; its columns likewise.
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned row = (lane / LANES_ACROSS + warp / WARPS_ACROSS * LANES_DOWN) * PIECE;
    const unsigned column = (lane % LANES_ACROSS + warp % WARPS_ACROSS * LANES_ACROSS) * PIECE;
    float sum[ROWS][COLUMNS][PARTS] = {};
    for (int done = 0; done < length; done += CHUNK) {
        const int stage = done / CHUNK & 1;
        left.fetch(); // past the end: zeros, and nothing is read
        right.fetch();
#pragma unroll
        for (int q = 0; q < DEPTH; ++q) {
            float4 x[ROWS / PIECE], y[COLUMNS / PIECE];
#pragma unroll
            for (int i = 0; i < ROWS / PIECE; ++i)
                x[i] = *(const float4 *)&a_stage[stage][q * A_ROW + row + i * DOWN * PIECE];
#pragma unroll
            for (int j = 0; j < COLUMNS / PIECE; ++j)
                y[j] = *(const float4 *)&b_stage[stage][q * B_ROW + column + j * ACROSS * PIECE];
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int j = 0; j < COLUMNS; ++j)
                    add_product(sum[i][j], &x[0].x + i * PARTS, &y[0].x + j * PARTS);
        }
        left.store(a_stage[1 - stage], BM);
        right.store(b_stage[1 - stage], BN);
        __syncthreads();
    }

    long long column_at[COLUMNS];
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j) {
        const unsigned number_n = column + j / PIECE * ACROSS * PIECE + j % PIECE;
        column_at[j] = tile.first_n + number_n < n ? offsets[BM + number_n] : -1;
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const unsigned number_m = row + i / PIECE * DOWN * PIECE + i % PIECE;
        if (tile.first_m + number_m >= m)
            continue;
        Element *const to = (Element *)c + offsets[number_m];
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j)
            if (column_at[j] >= 0)
#if COMPLEX
                to[column_at[j]] = make_float2(sum[i][j][0], sum[i][j][1]);
#else
                to[column_at[j]] = sum[i][j][0];
#endif
    }
}
