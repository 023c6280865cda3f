// A frame as a box of fine whole numbers, which passes fill from coarse to fine (compress/format/box.py,
// compress/cpu/predictor_kernel.py). Fine numbers are (frames, COMPONENTS, elements); residuals are whole numbers as
// reals, (frames, elements), in the order of passes.

#include "../common/tile.cuh"

#ifndef THREADS
#define THREADS 256
#define WARPS (THREADS / LANES)
#endif
#define SHIFT 7
#define LARGEST_FINE (1 << 26)

// compress/format/box.py: PointPass.
struct Pass {
    unsigned axis, spacing, starts[3], steps[3], counts[3], first;
};

struct Box {
    unsigned n[3], cubic;
};

// Sums of damaged streams may be too large; they go round as on a CPU.
__device__ __forceinline__ int sum_of(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
__device__ __forceinline__ int times_of(int a, int b) { return (int)((unsigned)a * (unsigned)b); }

__device__ __forceinline__ int clipped(int number)
{
    const int least = number < -LARGEST_FINE ? -LARGEST_FINE : number;
    return least > LARGEST_FINE ? LARGEST_FINE : least;
}

// Between b and c, with a beyond b.
__device__ __forceinline__ int side_of(int a, int b, int c)
{
    return clipped(sum_of(sum_of(sum_of(times_of(6, b), times_of(3, c)), times_of(-1, a)), 4) >> 3);
}

// The prediction of the number at coordinate `at` of a line of n; near(k) is the number k spacings from it.
template <typename Near>
__device__ __forceinline__ int predicted(const Near& near, unsigned at, unsigned n, unsigned spacing, bool cubic)
{
    const bool far = at >= 3 * spacing, inside = at + spacing < n, farther = at + 3 * spacing < n;
    // All are read before any is used.
    const int b = near(-1), c = inside ? near(1) : 0;
    const int a = far && (cubic || !inside) ? near(-3) : 0, d = farther && cubic ? near(3) : 0;
    if (!inside) return far ? clipped(sum_of(sum_of(times_of(3, b), times_of(-1, a)), 1) >> 1) : b;
    if (!cubic || !(far || farther)) return sum_of(sum_of(b, c), 1) >> 1;
    if (!far) return side_of(d, c, b);
    if (!farther) return side_of(a, b, c);
    return clipped(sum_of(sum_of(times_of(9, sum_of(b, c)), times_of(-1, sum_of(a, d))), 8) >> 4);
}

// The residual of a fine number, which becomes what the residual gives.
__device__ __forceinline__ int split_one(int& here, int prediction)
{
    const int residual = (here - prediction + (1 << (SHIFT - 1))) >> SHIFT;
    here = sum_of(prediction, times_of(residual, 1 << SHIFT));
    return residual;
}

// Where a point is: its number in the box, and its coordinate along the axis of its pass.
struct Point {
    unsigned number, at;
};

__device__ __forceinline__ unsigned size_of(const Pass& pass)
{
    return pass.counts[0] * pass.counts[1] * pass.counts[2];
}

// Points k, k + stride, .. of a pass. Only the first and the stride are divided.
struct Walk {
    const Pass& pass;
    const Box& box;
    unsigned k, stride, place[3], steps[3];

    __device__ __forceinline__ Walk(const Pass& pass, const Box& box, unsigned k, unsigned stride)
        : pass(pass), box(box), k(k), stride(stride)
    {
        divide(k, place);
        divide(stride, steps);
    }

    __device__ __forceinline__ void divide(unsigned number, unsigned* parts) const
    {
        const unsigned row = number / pass.counts[2];
        parts[2] = number % pass.counts[2], parts[1] = row % pass.counts[1], parts[0] = row / pass.counts[1];
    }

    __device__ __forceinline__ void next()
    {
        k += stride;
        unsigned carry = 0;
        for (unsigned axis = 2; axis > 0; --axis) {
            place[axis] += steps[axis] + carry;
            carry = place[axis] >= pass.counts[axis];
            place[axis] -= carry ? pass.counts[axis] : 0;
        }
        place[0] += steps[0] + carry;
    }

    __device__ __forceinline__ Point point() const
    {
        const unsigned z = pass.starts[0] + place[0] * pass.steps[0], y = pass.starts[1] + place[1] * pass.steps[1];
        const unsigned x = pass.starts[2] + place[2] * pass.steps[2];
        return {(z * box.n[1] + y) * box.n[2] + x, pass.axis == 2 ? x : pass.axis == 1 ? y : z};
    }
};

__device__ __forceinline__ int prediction_of(const int* fine, const Pass& pass, const Box& box, const Point& point)
{
    const unsigned stride = pass.axis == 2 ? 1 : pass.axis == 1 ? box.n[2] : box.n[1] * box.n[2];
    const long long step = pass.spacing * stride;
    const int* here = fine + point.number;
    const auto near = [=](int k) { return here[k * step]; };
    return predicted(near, point.at, box.n[pass.axis], pass.spacing, box.cubic != 0);
}

__device__ __forceinline__ float nearest(float x) { return rintf(x); }
__device__ __forceinline__ double nearest(double x) { return rint(x); }

// Whether a value misses its bound, by its fine number.
__device__ __forceinline__ bool misses(REAL x, int fine, const Rule& rule)
{
    return !(magnitude(less(x, times((REAL)fine, rule.step))) < rule.limit);
}
