// Residuals to values.

#include "predicted.cuh"
#include "../common/checksum.cuh"
#include "../common/wait.cuh"
#include "../common/read.cuh"

__device__ __forceinline__ int whole(REAL residual) { return times_of((int)residual, 1 << SHIFT); }

// The first point and the first `n_passes` passes of frames, along y. A block a component, along x.
extern "C" __global__ void __launch_bounds__(THREADS) join_coarse(
    const REAL* residuals, Word elements, Box box, const Pass* passes, unsigned n_passes, int* fine)
{
    const unsigned c = blockIdx.x;
    int* own = fine + ((Word)blockIdx.y * COMPONENTS + c) * elements;
    const REAL* from = residuals + (Word)blockIdx.y * elements * COMPONENTS + c;
    if (threadIdx.x == 0) own[0] = whole(from[0]);
    for (unsigned number = 0; number < n_passes; ++number) {
        __syncthreads();
        const Pass pass = passes[number];
        for (Walk walk(pass, box, threadIdx.x, THREADS); walk.k < size_of(pass); walk.next()) {
            const Point point = walk.point();
            const REAL residual = from[(Word)(pass.first + walk.residual()) * COMPONENTS];
            own[point.number] = sum_of(prediction_of(own, pass, box, point), whole(residual));
        }
    }
}

// One pass of frames, along y.
extern "C" __global__ void __launch_bounds__(THREADS) join_pass(
    const Element* residuals, Word elements, Box box, const Pass* passes, unsigned number, int* fine)
{
    const Pass pass = passes[number];
    int* own = fine + (Word)blockIdx.y * COMPONENTS * elements;
    const Element* from = residuals + (Word)blockIdx.y * elements + pass.first;
    const unsigned first = blockIdx.x * THREADS + threadIdx.x;
    for (Walk walk(pass, box, first, gridDim.x * THREADS); walk.k < size_of(pass); walk.next()) {
        const Point point = walk.point();
        const Element element = from[walk.residual()];
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            int* part = own + c * elements;
            part[point.number] = sum_of(prediction_of(part, pass, box, point), whole(element.part[c]));
        }
    }
}

// Residuals of a Lorenzo predictor to the places of their points, all points (pass `number`) of frames, along y.
extern "C" __global__ void __launch_bounds__(THREADS) place_differences(
    const Element* residuals, Word elements, Box box, const Pass* passes, unsigned number, int* fine)
{
    const Pass pass = passes[number];
    int* own = fine + (Word)blockIdx.y * COMPONENTS * elements;
    const Element* from = residuals + (Word)blockIdx.y * elements;
    const unsigned first = blockIdx.x * THREADS + threadIdx.x;
    for (Walk walk(pass, box, first, gridDim.x * THREADS); walk.k < size_of(pass); walk.next()) {
        const Element element = from[walk.residual()];
        const unsigned at = walk.point().number;
        for (unsigned c = 0; c < COMPONENTS; ++c) own[c * elements + at] = (int)element.part[c];
    }
}

// Sums along an axis of boxes of this extent, whose points along it are `stride` apart; `size` points of all frames. A thread
// a line, or a warp where the points lie side by side.
extern "C" __global__ void __launch_bounds__(THREADS) add_along(int* fine, Word size, unsigned extent, Word stride)
{
    const Word thread = (Word)blockIdx.x * THREADS + threadIdx.x, threads = (Word)gridDim.x * THREADS;
    if (stride > 1) {
        for (Word line = thread; line < size / extent; line += threads) {
            int* own = fine + line / stride * stride * extent + line % stride;
            int total = 0;
            for (unsigned i = 0; i < extent; ++i) own[i * stride] = total = sum_of(total, own[i * stride]);
        }
        return;
    }
    for (Word line = thread / LANES; line < size / extent; line += threads / LANES) {
        int* own = fine + line * extent;
        unsigned before = 0;
        for (unsigned first = 0; first < extent; first += LANES) {
            const unsigned i = first + thread % LANES;
            unsigned upto = i < extent ? (unsigned)own[i] : 0;
#pragma unroll
            for (unsigned step = 1; step < LANES; step *= 2) upto = joined(upto, step);
            if (i < extent) own[i] = (int)(before + upto);
            before += __shfl_sync(WHOLE_WARP, upto, LANES - 1);
        }
    }
}

// The values of frames, along y: those of fine numbers, or of a frame without loss what its decoder has put in place of
// residuals.
extern "C" __global__ void __launch_bounds__(THREADS) fill_values(
    Word* words, Span span, const Element* residuals, const int* fine, Word elements, unsigned last, Rules rules,
    Element* values)
{
    const bool raw = work_of(words, span).frames[span.first + blockIdx.y].kind == RAW;
    const Word frame = (Word)blockIdx.y * elements;
    for (Word i = (Word)blockIdx.x * THREADS + threadIdx.x; i < elements; i += (Word)gridDim.x * THREADS) {
        Element element;
        if (raw) element = residuals[frame + i];
        else for (unsigned c = 0; c < COMPONENTS; ++c) {
            element.part[c] = times((REAL)fine[COMPONENTS * frame + c * elements + number_of(i, elements, last)], rules.of[c].step);
        }
        values[frame + i] = element;
    }
}
