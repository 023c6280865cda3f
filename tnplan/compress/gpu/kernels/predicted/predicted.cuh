// A frame as a box of fine whole numbers, which passes fill from coarse to fine (compress/format/box.py,
// compress/cpu/predictor_kernel.py). Fine numbers are (frames, COMPONENTS, elements); residuals are whole numbers as
// reals, (frames, elements), in the order of passes.

#include "../common/tile.cuh"

#ifndef THREADS
#define THREADS 256
#define WARPS (THREADS / LANES)
#endif
#ifndef AXES
#define AXES 3
#endif
#define SHIFT 7
#define LARGEST_FINE (1 << 26)

// compress/format/box.py: PointPass. Bits of `along`: the axes along which points are predicted.
struct Pass {
    unsigned along, spacing, starts[AXES], steps[AXES], counts[AXES], first;
};

// The extents of a box, whether cubics predict, log2 of the points of a strip, and how many points the axes have that went
// first (compress/format/box.py: predicted_box), 1 where there are none.
struct Box {
    unsigned n[AXES], cubic, strip_log2, last;
};

// The element of a frame that a point of its box is, and the reverse.
__device__ __forceinline__ Word element_of(Word number, Word elements, unsigned last)
{
    return last == 1 ? number : number % (elements / last) * last + number / (elements / last);
}
__device__ __forceinline__ Word number_of(Word element, Word elements, unsigned last)
{
    return last == 1 ? element : element % last * (elements / last) + element / last;
}

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

// Where a point is: its number in the box, and its coordinates.
struct Point {
    unsigned number, at[AXES];
};

__device__ __forceinline__ unsigned size_of(const Pass& pass)
{
    unsigned size = 1;
#pragma unroll
    for (unsigned axis = 0; axis < AXES; ++axis) size *= pass.counts[axis];
    return size;
}

// Points k, k + stride, .. of a pass, in C order. Only the first and the stride are divided.
struct Walk {
    const Pass& pass;
    const Box& box;
    unsigned k, stride, place[AXES], steps[AXES], row, rows_on, n_rows;

    __device__ __forceinline__ Walk(const Pass& pass, const Box& box, unsigned k, unsigned stride)
        : pass(pass), box(box), k(k), stride(stride)
    {
        row = divided(k, place);
        rows_on = divided(stride, steps);
        n_rows = size_of(pass) / pass.counts[AXES - 1];
    }

    // The coordinates of point `number` in the pass; its row.
    __device__ __forceinline__ unsigned divided(unsigned number, unsigned* parts) const
    {
        const unsigned own_row = number / pass.counts[AXES - 1];
#pragma unroll
        for (unsigned axis = AXES - 1; axis > 0; --axis) {
            parts[axis] = number % pass.counts[axis];
            number /= pass.counts[axis];
        }
        parts[0] = number;
        return own_row;
    }

    __device__ __forceinline__ void next()
    {
        k += stride;
        unsigned carry = 0;
#pragma unroll
        for (unsigned axis = AXES - 1; axis > 0; --axis) {
            place[axis] += steps[axis] + carry;
            carry = place[axis] >= pass.counts[axis];
            place[axis] -= carry ? pass.counts[axis] : 0;
            if (axis == AXES - 1) row += rows_on + carry;
        }
        place[0] += steps[0] + carry;
    }

    __device__ __forceinline__ Point point() const
    {
        Point point;
        point.number = 0;
#pragma unroll
        for (unsigned axis = 0; axis < AXES; ++axis) {
            point.at[axis] = pass.starts[axis] + place[axis] * pass.steps[axis];
            point.number = point.number * box.n[axis] + point.at[axis];
        }
        return point;
    }

    // Where the residual stands among those of the pass: strip by strip.
    __device__ __forceinline__ unsigned residual() const
    {
        const unsigned x = place[AXES - 1], before = x >> box.strip_log2 << box.strip_log2;
        const unsigned width = min(1u << box.strip_log2, pass.counts[AXES - 1] - before);
        return before * n_rows + row * width + (x - before);
    }
};

// The mean of so many predictions with this sum, rounded to nearest.
__device__ __forceinline__ int mean_of(int sum, unsigned count)
{
    if (count == 2) return sum_of(sum, 1) >> 1;
    const long long weight = count == 3 ? 1431655765 : count == 4 ? 1073741824 : count == 5 ? 858993459 : 715827883;
    return (int)((sum * weight + (1ll << 31)) >> 32);
}

__device__ __forceinline__ int prediction_of(const int* fine, const Pass& pass, const Box& box, const Point& point)
{
    const int* here = fine + point.number;
    long long step = pass.spacing;
    if ((pass.along & (pass.along - 1)) == 0) {
        unsigned at = 0, n = 1;
        long long own = 0;
#pragma unroll
        for (int axis = AXES - 1; axis >= 0; --axis) {
            if (pass.along >> axis & 1) at = point.at[axis], n = box.n[axis], own = step;
            step *= box.n[axis];
        }
        const auto near = [=](int k) { return here[k * own]; };
        return predicted(near, at, n, pass.spacing, box.cubic != 0);
    }
    int sum = 0;
    unsigned count = 0;
#pragma unroll
    for (int axis = AXES - 1; axis >= 0; --axis) {
        if (pass.along >> axis & 1) {
            const auto near = [=](int k) { return here[k * step]; };
            sum = sum_of(sum, predicted(near, point.at[axis], box.n[axis], pass.spacing, box.cubic != 0));
            ++count;
        }
        step *= box.n[axis];
    }
    return mean_of(sum, count);
}

// The residual of a point under a Lorenzo predictor along the axes of a pass: the sum over the corners of a cube, with signs;
// whole(at) is the number at given coordinates. Corners outside count as 0; `inside`: the point is moved inside first.
template <typename Whole>
__device__ __forceinline__ int difference_of(const Whole& whole, unsigned along, Point point, const Box& box, bool inside)
{
#pragma unroll
    for (unsigned axis = 0; axis < AXES; ++axis) {
        const bool crossed = along >> axis & 1;
        if (inside && crossed && box.n[axis] == 1) along &= ~(1u << axis);
        else if (inside && crossed && point.at[axis] == 0) point.at[axis] = 1;
        else if (crossed && point.at[axis] == 0) along &= ~(1u << axis);
    }
    int sum = 0;
    for (unsigned corner = along;; corner = (corner - 1) & along) {
        unsigned number = 0;
#pragma unroll
        for (unsigned axis = 0; axis < AXES; ++axis) {
            number = number * box.n[axis] + point.at[axis] - (corner >> axis & 1);
        }
        const int one = whole(number);
        sum = sum_of(sum, __popc(corner) & 1 ? times_of(-1, one) : one);
        if (!corner) return sum;
    }
}

__device__ __forceinline__ float nearest(float x) { return rintf(x); }
__device__ __forceinline__ double nearest(double x) { return rint(x); }

// Whether a value misses its bound, by its fine number.
__device__ __forceinline__ bool misses(REAL x, int fine, const Rule& rule)
{
    return !(magnitude(less(x, times((REAL)fine, rule.step))) < rule.limit);
}
