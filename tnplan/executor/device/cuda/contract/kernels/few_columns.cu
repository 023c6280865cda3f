// c[batch(t) + row(i) + column(j)] = the sum over q of a[t, i, q] b[t, j, q] for many rows and few columns, whose modes lie
// in c in any order: read once and written once. An operand has element (t, i, q) at t * batch_step + i * row_step +
// q * step.
//
// Injected: REAL (float, double), COMPLEX (0, 1); THREADS: of a block at most; BLOCKS: that share a multiprocessor;
// COLUMNS: n or more, for as many sums of a row; TENSOR: 1 multiplies by tensor cores, complex numbers of doubles alone;
// VECTOR: elements of a row of a that a thread reads at once, 1 unless `a_step` is 1; GAP: results of a column before a gap
// in shared memory, against bank conflicts. NumPy twin: einsum "tiq,tjq->tij". The order of a sum depends on k alone: the
// same bits every run.
//
// A block takes tiles of one part of c in turn: a group of columns of a batch, which lies at `part_at`. A tile has any
// rows, those of `row_at`, counted from its first: a row each thread, or 16 at once each warp. Its results go through
// shared memory, so that threads in a row write what lies in a row in c: results `slots` of the tile to `places`.

#include "part.cuh"
#include "value.cuh"

struct alignas(VECTOR * sizeof(Value)) Vector {
    Value value[VECTOR];
};
struct alignas(2 * sizeof(Value)) Pair {
    Value value[2];
};

// Where the rows of a tile are.
struct Source {
    const Value *a;
    long long row_step, step;
    Part rows_of;
    const unsigned *row_at;
    int k, rows;
    unsigned n_tiles, tile_step;
};

#if TENSOR
#include "double_mma.cuh"

// A complex product is one of real numbers: a as [row | re, im of q], b as [re, im of j | re, im of q], signs included. An
// instruction takes 4 terms, the real parts first, and 4 columns. Lane l reads term l % 4 of rows l / 4 and l / 4 + 8,
// and its sums are those of column l % 4 of each four. A lane has reads under way at all times: before the results of some
// rows are stored, it begins with the next ones.
#define TERMS 4
#define WARP_ROWS 16
#define COLUMN_STEP (COLUMNS + 2) // of a term: terms lie in different banks
#define AHEAD (COLUMNS > 32 ? 2 : COLUMNS > 24 ? 3 : 4)

struct Rows {
    const Source source;
    const int lane, term, own;
    const Value *start; // of the tile
    int present;        // its rows
    const Value *x[2];
    int left[2];
    Value y[AHEAD][2];

    __device__ Rows(const Source &of)
        : source(of), lane(threadIdx.x % 32), term(lane % TERMS), own(threadIdx.x / 32 * WARP_ROWS) {}

    __device__ void read(int s, int q) {
#pragma unroll
        for (int h = 0; h < 2; ++h)
            y[s][h] = q < left[h] ? x[h][q * source.step] : Value{};
    }

    __device__ void begin(unsigned tile) {
        present = tile < source.n_tiles ? source.rows : 0;
        start = source.a + (present ? source.rows_of(tile) : 0) * source.row_step + term * source.step;
        begin_rows(own);
    }

    __device__ void begin_rows(int first) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int row = first + lane / 4 + 8 * h;
            left[h] = row < present ? source.k - term : 0;
            x[h] = start + source.row_at[row < present ? row : 0] * source.row_step;
        }
#pragma unroll
        for (int s = 0; s < AHEAD; ++s)
            read(s, s * TERMS);
    }

    __device__ void form(unsigned tile, const Value *columns, Value *results, int column_step) {
        const int part = lane / 4 % 2, sign = part ? 0 : 1 << 31;
        const Value *const own_column = columns + term * COLUMN_STEP + lane / 8;
        const int all = blockDim.x / 32 * WARP_ROWS, k = source.k;
        for (int first = own; first < source.rows; first += all) {
            double sum[COLUMNS / 4][4] = {};
            for (int q = 0; q < k; q += AHEAD * TERMS)
#pragma unroll
                for (int s = 0; s < AHEAD; ++s) {
                    const int at = q + s * TERMS;
                    if (at >= k)
                        break;
                    const double2 real = {y[s][0].part[0], y[s][1].part[0]}, imaginary = {y[s][0].part[1], y[s][1].part[1]};
                    read(s, at + AHEAD * TERMS);
#pragma unroll
                    for (int j = 0; j < COLUMNS / 4; ++j) {
                        const double *const w = own_column[at * COLUMN_STEP + 4 * j].part;
                        const double other = w[1 - part]; // the imaginary part negated
                        multiply(sum[j], real, imaginary, w[part],
                                 __hiloint2double(__double2hiint(other) ^ sign, __double2loint(other)));
                    }
                }
            if (first + all < source.rows)
                begin_rows(first + all);
            else
                begin(tile + source.tile_step);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int row = first + lane / 4 + 8 * h;
                if (row < source.rows)
#pragma unroll
                    for (int j = 0; j < COLUMNS / 4; ++j)
                        results[(4 * j + term) * column_step + row + row / GAP] = {sum[j][2 * h], sum[j][2 * h + 1]};
            }
        }
    }
};
#else
#define TERMS 1
#define COLUMN_STEP COLUMNS

struct Rows {
    const Source source;
    const unsigned row;

    __device__ Rows(const Source &of) : source(of), row(of.row_at[threadIdx.x]) {}

    __device__ void begin(unsigned) {}

    __device__ void form(unsigned tile, const Value *columns, Value *results, int column_step) {
        Value *const own = results + threadIdx.x + threadIdx.x / GAP;
        const Value *const x = source.a + (source.rows_of(tile) + row) * source.row_step;
        Value sum[COLUMNS] = {};
#pragma unroll 4
        for (int q = 0; q < source.k; q += VECTOR) {
            const Vector read = *(const Vector *)(x + q * source.step);
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
    }
};
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
few_columns(const Value *__restrict__ a, long long a_batch_step, long long a_row_step, long long a_step,
            const Value *__restrict__ b, long long b_part_step, int b_row_step, int b_step, Value *__restrict__ c,
            unsigned n_parts, unsigned n_groups, int n, int k, int rows, int column_step, unsigned n_tiles,
            const unsigned *__restrict__ row_at, const unsigned *__restrict__ slots, const unsigned *__restrict__ places,
            const long long *__restrict__ part_at, const long long *a_high, const long long *a_low, unsigned a_split,
            const long long *c_high, const long long *c_low, unsigned c_split) {
    extern __shared__ __align__(32) unsigned char memory[];
    const int terms = (k + TERMS - 1) / TERMS * TERMS;
    Value *const columns = (Value *)memory;               // [terms | COLUMN_STEP], an even number
    Value *const results = columns + terms * COLUMN_STEP; // [COLUMNS | column_step]
    const Part places_of{c_high, c_low, c_split};
    const unsigned part = blockIdx.x % n_parts, tile_step = gridDim.x / n_parts;
    b += part * b_part_step;
    c += part_at[part];
    Rows reading({a + part / n_groups * a_batch_step, a_row_step, a_step, {a_high, a_low, a_split}, row_at, k, rows, n_tiles,
                  tile_step});
    reading.begin(blockIdx.x / n_parts);

    for (int t = threadIdx.x; t < terms * COLUMN_STEP; t += blockDim.x) {
        const int q = t / COLUMN_STEP, j = t % COLUMN_STEP;
        columns[t] = j < n && q < k ? b[j * b_row_step + q * b_step] : Value{};
    }
    __syncthreads();

    for (unsigned tile = blockIdx.x / n_parts; tile < n_tiles; tile += tile_step) {
        reading.form(tile, columns, results, column_step);
        __syncthreads();
        Value *const to = c + places_of(tile);
#pragma unroll 4
        for (int t = threadIdx.x; t < rows * n; t += blockDim.x)
            to[places[t]] = results[slots[t]];
        __syncthreads();
    }
}
