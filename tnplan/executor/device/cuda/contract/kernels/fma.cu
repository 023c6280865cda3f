// c[batch(t) + row(i) + column(j)] = the sum over q of a[t, i, q] b[t, j, q] in fp32, for products whose
// modes lie in c in any order: no tile of the product is stored first. a [batch | m | k], b [batch | n | k]
// row-major; c anywhere.
//
// Where PERSISTENT is 1 a block forms one tile of c after another: while it sums the last chunk of one, it reads the
// first of the next. Else there is a block for each tile.
//
// Injected: COMPLEX (0, 1); ROWS, COLUMNS: rows and columns of c that a thread sums; ACROSS: threads of a block
// along the columns; CHUNK: floats of a row that are in shared memory at once; VECTOR: floats that a row can be
// read by (4, 2, 1); BLOCKS: blocks that share a multiprocessor; PERSISTENT (0, 1). NumPy twin: einsum
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
    int rows;

    __device__ void start(const float *base, long long stride, int first, int count, int most) {
        const int mine = threadIdx.x / READERS;
        next = base + (first + mine) * stride + threadIdx.x % READERS * 4;
        rows = min(count - first, most) - mine;
    }

    // `left`: floats of the row from here on; `step`: bytes between passes.
    __device__ void fetch(int left, unsigned step) {
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
            value[p] = read((const float *)((const char *)next + p * step), p * ROWS_A_PASS < rows ? left : 0);
        next += CHUNK;
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

// Whether `count` places are runs of PIECE that lie in a row in c, each from a multiple of 16 bytes on.
template <int COUNT> __device__ inline bool in_runs(const long long (&at)[COUNT]) {
    bool aligned = true;
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        aligned &= i % PIECE ? at[i] == at[i - 1] + 1 : (at[i] & (PIECE - 1)) == 0;
    return aligned;
}

// Whether all places are multiples of 16 bytes; those past the last row or column are not.
template <int COUNT> __device__ inline bool are_even(const long long (&at)[COUNT]) {
    bool aligned = true;
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        aligned &= (at[i] & (PIECE - 1)) == 0;
    return aligned;
}

__device__ inline float4 joined(const float (&p)[PARTS], const float (&q)[PARTS], const float (&r)[PARTS],
                                const float (&s)[PARTS]) {
#if COMPLEX
    return make_float4(p[0], p[1], q[0], q[1]);
#else
    return make_float4(p[0], q[0], r[0], s[0]);
#endif
}

// Writes the sums of a thread to their places: by 16 bytes where columns, or rows, lie in a row in c.
__device__ inline void write(Element *c, const float (&sum)[ROWS][COLUMNS][PARTS], const long long (&row_at)[ROWS],
                             const long long (&column_at)[COLUMNS]) {
    const bool is_even = (Address)c % 16 == 0;
    if (is_even && in_runs(column_at) && are_even(row_at)) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
#pragma unroll
            for (int j = 0; j < COLUMNS; j += PIECE)
                *(float4 *)(c + row_at[i] + column_at[j]) =
                    joined(sum[i][j], sum[i][j + 1], sum[i][j + PIECE - 2], sum[i][j + PIECE - 1]);
    } else if (is_even && in_runs(row_at) && are_even(column_at)) {
#pragma unroll
        for (int i = 0; i < ROWS; i += PIECE)
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j)
                *(float4 *)(c + row_at[i] + column_at[j]) =
                    joined(sum[i][j], sum[i + 1][j], sum[i + PIECE - 2][j], sum[i + PIECE - 1][j]);
    } else {
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j)
                if (row_at[i] >= 0 && column_at[j] >= 0)
#if COMPLEX
                    c[row_at[i] + column_at[j]] = make_float2(sum[i][j][0], sum[i][j][1]);
#else
                    c[row_at[i] + column_at[j]] = sum[i][j][0];
#endif
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
contract(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, long long stride,
         int length, unsigned m, unsigned n, unsigned m_tiles, unsigned n_tiles, const long long *batch_high,
         const long long *batch_low, unsigned batch_split, const long long *m_high, const long long *m_low,
         unsigned m_split, const long long *n_high, const long long *n_low, unsigned n_split, unsigned tiles) {
    __shared__ __align__(16) Element a_stage[2][DEPTH * A_ROW];
    __shared__ __align__(16) Element b_stage[2][DEPTH * B_ROW];
    // Three: while a slow thread writes a tile, a fast one may enter the places of the next but one.
    __shared__ long long offsets[3][BM + BN];

    Side<A_PASSES, A_ROW> left;
    Side<B_PASSES, B_ROW> right;
    const auto begin = [&](const Tile &tile, long long *places) {
        left.start(a + (long long)tile.batch * m * stride, stride, tile.first_m, m, BM);
        right.start(b + (long long)tile.batch * n * stride, stride, tile.first_n, n, BN);
        tile.offsets_in_c(places, m, n, {batch_high, batch_low, batch_split}, {m_high, m_low, m_split},
                          {n_high, n_low, n_split});
    };
    const unsigned step = ROWS_A_PASS * 4 * stride;
    const int first = threadIdx.x % READERS * 4;
    begin(Tile(blockIdx.x, m_tiles, n_tiles), offsets[0]);
    left.fetch(length - first, step);
    right.fetch(length - first, step);
    left.store(a_stage[0], BM);
    right.store(b_stage[0], BN);
    __syncthreads();

    // A thread's rows are runs of PIECE, DOWN * PIECE apart, so that the threads of a warp read shared memory
    // without gaps; its columns likewise.
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned row = (lane / LANES_ACROSS + warp / WARPS_ACROSS * LANES_DOWN) * PIECE;
    const unsigned column = (lane % LANES_ACROSS + warp % WARPS_ACROSS * LANES_ACROSS) * PIECE;
    int stage = 0, buffer = 0;
    for (unsigned number = blockIdx.x; number < tiles; number += gridDim.x) {
        const bool is_last = !PERSISTENT || number + gridDim.x >= tiles;
        const int after = buffer == 2 ? 0 : buffer + 1;
        float sum[ROWS][COLUMNS][PARTS] = {};
        for (int done = 0; done < length; done += CHUNK) {
            int rest = length - done - CHUNK - first;
            if (done + CHUNK >= length && !is_last) {
                begin(Tile(number + gridDim.x, m_tiles, n_tiles), offsets[after]);
                rest = length - first;
            }
            left.fetch(rest, step); // past the end of the last tile: zeros, and nothing is read
            right.fetch(rest, step);
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
            stage = 1 - stage;
            left.store(a_stage[stage], BM);
            right.store(b_stage[stage], BN);
            __syncthreads();
        }

        long long row_at[ROWS], column_at[COLUMNS];
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
            row_at[i] = offsets[buffer][row + i / PIECE * DOWN * PIECE + i % PIECE];
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j)
            column_at[j] = offsets[buffer][BM + column + j / PIECE * ACROSS * PIECE + j % PIECE];
        write((Element *)c, sum, row_at, column_at);
        if (is_last)
            return;
        buffer = after;
    }
}
