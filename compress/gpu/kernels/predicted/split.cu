// Values to residuals: fine numbers, pass by pass, and the values that miss their bound.

#include "predicted.cuh"

// Sampled boxes of points, `stride` apart along each axis: the number of the first one in the array, where its values go,
// and how many there are along each axis.
struct SampledBox {
    Word start, at, stride;
    unsigned counts[3], unused;
};

struct SampledBoxes {
    SampledBox of[64];
};

// The values of boxes, along y, of an array whose last two axes have n1 and n2 points.
extern "C" __global__ void __launch_bounds__(THREADS) take_boxes(
    const Element* values, Word n1, Word n2, SampledBoxes boxes, Element* sample)
{
    const SampledBox& box = boxes.of[blockIdx.y];
    const unsigned size = box.counts[0] * box.counts[1] * box.counts[2];
    for (unsigned k = blockIdx.x * THREADS + threadIdx.x; k < size; k += gridDim.x * THREADS) {
        const unsigned x = k % box.counts[2], row = k / box.counts[2], y = row % box.counts[1], z = row / box.counts[1];
        sample[box.at + k] = values[box.start + (((Word)z * n1 + y) * n2 + x) * box.stride];
    }
}

// Fine numbers of frames, along y; 0 for what is too large, or no number.
extern "C" __global__ void __launch_bounds__(THREADS) fill_fine(
    const Element* values, Word elements, Rules rules, int* fine)
{
    const Word frame = (Word)blockIdx.y * elements;
    for (Word i = (Word)blockIdx.x * THREADS + threadIdx.x; i < elements; i += (Word)gridDim.x * THREADS) {
        const Element element = values[frame + i];
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            const REAL scaled = nearest(times(element.part[c], rules.of[c].inverse));
            fine[COMPONENTS * frame + c * elements + i] = magnitude(scaled) <= (REAL)LARGEST_FINE ? (int)scaled : 0;
        }
    }
}

__device__ __forceinline__ REAL split_one(int* here, int prediction)
{
    const int residual = (*here - prediction + (1 << (SHIFT - 1))) >> SHIFT;
    *here = sum_of(prediction, times_of(residual, 1 << SHIFT));
    return (REAL)residual;
}

// The first point and the first `n_passes` passes of frames, along y. A block a component, along x.
extern "C" __global__ void __launch_bounds__(THREADS) split_coarse(
    int* fine, Word elements, Box box, const Pass* passes, unsigned n_passes, REAL* residuals)
{
    const unsigned c = blockIdx.x;
    int* own = fine + ((Word)blockIdx.y * COMPONENTS + c) * elements;
    REAL* into = residuals + (Word)blockIdx.y * elements * COMPONENTS + c;
    if (threadIdx.x == 0) into[0] = split_one(own, 0);
    for (unsigned number = 0; number < n_passes; ++number) {
        __syncthreads();
        const Pass pass = passes[number];
        for (unsigned k = threadIdx.x; k < size_of(pass); k += THREADS) {
            const Point point = point_of(pass, box, k);
            into[(Word)(pass.first + k) * COMPONENTS] = split_one(own + point.number, prediction_of(own, pass, box, point));
        }
    }
}

// One pass of frames, along y.
extern "C" __global__ void __launch_bounds__(THREADS) split_pass(
    int* fine, Word elements, Box box, const Pass* passes, unsigned number, Element* residuals)
{
    const Pass pass = passes[number];
    int* own = fine + (Word)blockIdx.y * COMPONENTS * elements;
    Element* into = residuals + (Word)blockIdx.y * elements + pass.first;
    for (unsigned k = blockIdx.x * THREADS + threadIdx.x; k < size_of(pass); k += gridDim.x * THREADS) {
        const Point point = point_of(pass, box, k);
        Element element;
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            int* part = own + c * elements;
            element.part[c] = split_one(part + point.number, prediction_of(part, pass, box, point));
        }
        into[k] = element;
    }
}

// The points of a line that a block holds, and those beside them that it finds as well, since the passes that it does reach
// so far. Words are shifted by one behind each 32, so that points some steps apart are in different banks.
#define LINE 4096
#define BESIDE 96
__device__ __forceinline__ unsigned bank_of(unsigned place) { return place + place / LANES; }

// The last `n_passes` passes, of spacings up to 16, of frames of one axis, along y. Blocks along x take parts of the line. A
// point beside a block's own may be as it was or as the neighbour has left it; its residual and what comes of it are the
// same, as that is the prediction and a whole number of steps.
extern "C" __global__ void __launch_bounds__(THREADS) split_line(
    int* fine, Word elements, Box box, const Pass* passes, unsigned number, unsigned n_passes, REAL* residuals)
{
    __shared__ int line[LINE + 2 * BESIDE + (LINE + 2 * BESIDE) / LANES];
    const unsigned n = (unsigned)elements, stop = number + n_passes;
    for (unsigned part = blockIdx.x; part < (n + LINE - 1) / LINE * COMPONENTS; part += gridDim.x) {
        const unsigned c = part % COMPONENTS, begin = part / COMPONENTS * LINE, end = min(n, begin + LINE);
        int* own = fine + ((Word)blockIdx.y * COMPONENTS + c) * elements;
        REAL* into = residuals + (Word)blockIdx.y * elements * COMPONENTS + c;
        // Points from low to high - 1 are right.
        unsigned low = begin > BESIDE ? begin - BESIDE : 0, high = min(n, end + BESIDE);
        const unsigned first = low;
        __syncthreads();
        for (unsigned i = low + threadIdx.x; i < high; i += THREADS) line[bank_of(i - first)] = own[i];
        for (unsigned p = number; p < stop; ++p) {
            const Pass pass = passes[p];
            const unsigned s = pass.spacing;
            low += low ? 3 * s : 0, high -= high < n ? 3 * s : 0;
            __syncthreads();
            for (unsigned k = (low + s - 1) / (2 * s) + threadIdx.x, i; (i = (2 * k + 1) * s) < high; k += THREADS) {
                const auto near = [=](int m) { return line[bank_of(i - first + m * (int)s)]; };
                const REAL residual = split_one(line + bank_of(i - first), predicted(near, i, n, s, box.cubic != 0));
                if (i >= begin && i < end) into[(Word)(pass.first + k) * COMPONENTS] = residual;
            }
        }
        __syncthreads();
        for (unsigned i = begin + threadIdx.x; i < end; i += THREADS) own[i] = line[bank_of(i - first)];
    }
}

// How many values of each tile, in C order, miss their bound: exact (frames, COMPONENTS, n_tiles). A block a tile, along x.
extern "C" __global__ void __launch_bounds__(THREADS) count_missing(
    const Element* values, const int* fine, Word elements, unsigned n_tiles, Rules rules, unsigned* exact)
{
    __shared__ unsigned sums[WARPS];
    const Word frame = (Word)blockIdx.y * elements, begin = (Word)blockIdx.x * TILE;
    unsigned missing[COMPONENTS] = {};
    for (Word i = begin + threadIdx.x; i < begin + TILE && i < elements; i += THREADS) {
        const Element element = values[frame + i];
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            missing[c] += misses(element.part[c], fine[COMPONENTS * frame + c * elements + i], rules.of[c]);
        }
    }
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        unsigned total;
        scanned<WARPS>(missing[c], sums, total);
        if (threadIdx.x == 0) exact[((Word)blockIdx.y * COMPONENTS + c) * n_tiles + blockIdx.x] = total;
    }
}

// Put places and bits of exact values into coded frames, along y. Blocks along x share the tiles of components.
extern "C" __global__ void __launch_bounds__(THREADS) put_missing(
    const Element* values, const int* fine, Word elements, unsigned n_tiles, Rules rules, const unsigned* exact,
    const Frame* frames, Byte* out)
{
    __shared__ unsigned sums[WARPS];
    const Frame frame = frames[blockIdx.y];
    if (frame.kind != CODED || frame.exact == 0) return;
    Byte* behind = out + frame.start + CODED_HEAD_BYTES + filled(frame.coded);
    unsigned* places = (unsigned*)behind;
    BITS* bits = (BITS*)(behind + filled(frame.exact * PLACE_BYTES));
    const unsigned all = COMPONENTS * n_tiles, share = (all + gridDim.x - 1) / gridDim.x;
    const unsigned first = min(all, blockIdx.x * share), stop = min(all, first + share);
    exact += (Word)blockIdx.y * all;
    unsigned mine = 0, at;
    for (unsigned part = threadIdx.x; part < first; part += THREADS) mine += exact[part];
    scanned<WARPS>(mine, sums, at);
    for (unsigned part = first; part < stop; ++part) {
        if (exact[part] == 0) continue;
        const unsigned c = part / n_tiles, tile = part % n_tiles;
        for (unsigned k = 0; k < TILE; k += THREADS) {
            const Word i = (Word)tile * TILE + k + threadIdx.x;
            bool missed = false;
            REAL x = 0;
            if (i < elements) {
                x = values[(Word)blockIdx.y * elements + i].part[c];
                missed = misses(x, fine[((Word)blockIdx.y * COMPONENTS + c) * elements + i], rules.of[c]);
            }
            unsigned total;
            const unsigned before = scanned<WARPS>((unsigned)missed, sums, total);
            if (missed) places[at + before] = c * n_tiles * TILE + (unsigned)i, bits[at + before] = bits_of(x);
            at += total;
        }
    }
}
