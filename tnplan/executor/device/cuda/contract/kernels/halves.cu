// What stands around a product of half-precision matrices that is as exact as fp32: rows are scaled by a power
// of two and split, x 2^e = high + low, and the sums are scaled back and written to their places.
//
// A plain row is written as [low | high | high], a row of the other side as [high | low | high], so that the sum
// over a written row is low high + high low + high high, the small ones first. Injected: COMPLEX (0, 1). A row
// (re, im, ...) of the other side is written twice: (re, -im, ...) gives real sums, (im, re, ...) imaginary ones.
// NumPy twin: halves_product in tests/executor/device/cuda/test_fp16x3_cublas.py.

#include "half.cuh"
#include "part.cuh"

#define PARTS (COMPLEX + 1)

// exponents[row]: e of a row, 0 where it holds no number but zeros; a warp for a row, `length` even.
extern "C" __global__ void row_exponents(const float *x, long long stride, int length, unsigned rows, int *exponents) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (unsigned row = blockIdx.x * warps + warp; row < rows; row += gridDim.x * warps) {
        const float2 *from = (const float2 *)(x + row * stride);
        float most = 0.0f;
#pragma unroll 4
        for (int pair = lane; pair < length / 2; pair += 32) {
            const float2 v = __ldg(from + pair);
            most = fmaxf(most, fmaxf(finite(v.x), finite(v.y)));
        }
        for (int other = 1; other < 32; other *= 2)
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, other));
        if (lane == 0)
            exponents[row] = most > 0.0f ? TOP - ilogbf(most) : 0;
    }
}

struct Pair {
    unsigned high, low;
    __device__ Pair(float x, float y) {
        float one, two;
        high = pack(x, y);
        unpack(high, one, two);
        low = pack(x - one, y - two);
    }
};

// out[row]: three times `length` halves of the `length` reals at x + row * stride, a multiple of 2.
extern "C" __global__ void split_plain(const float *x, long long stride, int length, unsigned rows,
                                       const int *exponents, unsigned *out) {
    const int pairs = length / 2;
    for (unsigned row = blockIdx.x; row < rows; row += gridDim.x) {
        const float2 *from = (const float2 *)(x + row * stride);
        unsigned *to = out + (long long)row * 3 * pairs;
        const int e = exponents[row];
        for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
            const float2 v = __ldg(from + i);
            const Pair halves(ldexpf(v.x, e), ldexpf(v.y, e));
            to[i] = halves.low;
            to[pairs + i] = to[2 * pairs + i] = halves.high;
        }
    }
}

// out[PARTS * row + part]: the same for the other side.
extern "C" __global__ void split_other(const float *x, long long stride, int length, unsigned rows,
                                       const int *exponents, unsigned *out) {
    const int pairs = length / 2;
    for (unsigned row = blockIdx.x; row < rows; row += gridDim.x) {
        const float2 *from = (const float2 *)(x + row * stride);
        unsigned *to = out + (long long)row * PARTS * 3 * pairs;
        const int e = exponents[row];
        for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
            const float2 v = __ldg(from + i);
            const Pair halves(ldexpf(v.x, e), ldexpf(v.y, e));
            const unsigned flip = COMPLEX ? 0x80000000u : 0u; // the sign of the second
            to[i] = to[2 * pairs + i] = halves.high ^ flip;
            to[pairs + i] = halves.low ^ flip;
#if COMPLEX
            unsigned *turned = to + 3 * pairs;
            turned[i] = turned[2 * pairs + i] = halves.high << 16 | halves.high >> 16;
            turned[pairs + i] = halves.low << 16 | halves.low >> 16;
#endif
        }
    }
}

// c[place of first_row + i, place of first_column + j] = tile[i, j] scaled back; tile [rows | columns] of PARTS.
extern "C" __global__ void place(const float *tile, const int *row_exponents, const int *column_exponents, float *c,
                                 unsigned first_row, unsigned first_column, unsigned rows, unsigned columns,
                                 const long long *row_high, const long long *row_low, unsigned row_split,
                                 const long long *column_high, const long long *column_low, unsigned column_split) {
    const Part of_row = {row_high, row_low, row_split}, of_column = {column_high, column_low, column_split};
    for (unsigned row = blockIdx.x; row < rows; row += gridDim.x) {
        const long long at_row = of_row(first_row + row);
        const int row_exponent = row_exponents[row];
        for (unsigned column = threadIdx.x; column < columns; column += blockDim.x) {
            const long long at = at_row + of_column(first_column + column), from = (long long)row * columns + column;
            const int e = -(row_exponent + column_exponents[column]);
#if COMPLEX
            const float2 v = ((const float2 *)tile)[from];
            ((float2 *)c)[at] = make_float2(ldexpf(v.x, e), ldexpf(v.y, e));
#else
            c[at] = ldexpf(tile[from], e);
#endif
        }
    }
}
