// Values to residuals: fine numbers, pass by pass, and the values that miss their bound.

#include "predicted.cuh"

#define LARGEST_WHOLE (1 << 18)

// The fine number of a value; 0 for what is larger than `largest`, or no number.
__device__ __forceinline__ int fine_of(REAL x, const Rule& rule, int largest = LARGEST_FINE)
{
    const REAL scaled = nearest(times(x, rule.inverse));
    return magnitude(scaled) <= (REAL)largest ? (int)scaled : 0;
}

// The fine numbers of frames, along y, at the points of a pass.
extern "C" __global__ void __launch_bounds__(THREADS) fill_fine(
    const Element* values, Word elements, Box box, const Pass* passes, unsigned number, Rules rules, int* fine)
{
    const Pass pass = passes[number];
    const Element* own = values + (Word)blockIdx.y * elements;
    int* into = fine + (Word)blockIdx.y * COMPONENTS * elements;
    const unsigned first = blockIdx.x * THREADS + threadIdx.x;
    for (Walk walk(pass, box, first, gridDim.x * THREADS); walk.k < size_of(pass); walk.next()) {
        const unsigned at = walk.point().number;
        const Element element = own[element_of(at, elements, box.last)];
        for (unsigned c = 0; c < COMPONENTS; ++c) into[c * elements + at] = fine_of(element.part[c], rules.of[c]);
    }
}

// The first point and the first `n_passes` passes of frames, along y. A block a component, along x.
extern "C" __global__ void __launch_bounds__(THREADS) split_coarse(
    int* fine, Word elements, Box box, const Pass* passes, unsigned n_passes, REAL* residuals)
{
    const unsigned c = blockIdx.x;
    int* own = fine + ((Word)blockIdx.y * COMPONENTS + c) * elements;
    REAL* into = residuals + (Word)blockIdx.y * elements * COMPONENTS + c;
    if (threadIdx.x == 0) into[0] = (REAL)split_one(own[0], 0);
    for (unsigned number = 0; number < n_passes; ++number) {
        __syncthreads();
        const Pass pass = passes[number];
        for (Walk walk(pass, box, threadIdx.x, THREADS); walk.k < size_of(pass); walk.next()) {
            const Point point = walk.point();
            const int prediction = prediction_of(own, pass, box, point);
            into[(Word)(pass.first + walk.residual()) * COMPONENTS] = (REAL)split_one(own[point.number], prediction);
        }
    }
}

// One pass of frames, along y, over fine numbers.
extern "C" __global__ void __launch_bounds__(THREADS) split_pass(
    int* fine, Word elements, Box box, const Pass* passes, unsigned number, Element* residuals)
{
    const Pass pass = passes[number];
    int* own = fine + (Word)blockIdx.y * COMPONENTS * elements;
    Element* into = residuals + (Word)blockIdx.y * elements + pass.first;
    const unsigned first = blockIdx.x * THREADS + threadIdx.x;
    for (Walk walk(pass, box, first, gridDim.x * THREADS); walk.k < size_of(pass); walk.next()) {
        const Point point = walk.point();
        Element element;
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            int* part = own + c * elements;
            element.part[c] = (REAL)split_one(part[point.number], prediction_of(part, pass, box, point));
        }
        into[walk.residual()] = element;
    }
}

// How many values of each tile, in C order, miss their bound: (COMPONENTS, n_tiles) of a frame, from zero. Few do.
struct Missing {
    unsigned* exact;
    unsigned n_tiles;

    __device__ __forceinline__ void look(REAL x, int fine, const Rule& rule, unsigned c, unsigned number) const
    {
        if (misses(x, fine, rule)) atomicAdd(&exact[c * n_tiles + number / TILE], 1u);
    }
};

__device__ __forceinline__ Missing missing_of(unsigned* exact, unsigned n_tiles)
{
    return {exact + (Word)blockIdx.y * COMPONENTS * n_tiles, n_tiles};
}

// A pass of spacing 1 of frames, along y. Nothing before it has read its points, so that their fine numbers are made of
// the values here. DIFFERENCES: all points under a Lorenzo predictor along the axes of the pass.
template <bool DIFFERENCES>
__device__ __forceinline__ void split_from_values(
    int* fine, Word elements, const Box& box, const Pass& pass, const Element* values, const Rules& rules, unsigned n_tiles,
    Element* residuals, unsigned* exact)
{
    const Missing missing = missing_of(exact, n_tiles);
    int* own = fine + (Word)blockIdx.y * COMPONENTS * elements;
    values += (Word)blockIdx.y * elements;
    Element* into = residuals + (Word)blockIdx.y * elements + (DIFFERENCES ? 0 : pass.first);
    const unsigned first = blockIdx.x * THREADS + threadIdx.x;
    for (Walk walk(pass, box, first, gridDim.x * THREADS); walk.k < size_of(pass); walk.next()) {
        const Point point = walk.point();
        const unsigned at = element_of(point.number, elements, box.last);
        const Element value = values[at];
        Element element;
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            const int most = DIFFERENCES ? LARGEST_WHOLE : LARGEST_FINE;
            int* part = own + c * elements;
            int here = fine_of(value.part[c], rules.of[c], most);
            const auto whole = [&](unsigned corner) {
                return fine_of(values[element_of(corner, elements, box.last)].part[c], rules.of[c], most);
            };
            element.part[c] = (REAL)(DIFFERENCES ? difference_of(whole, pass.along, point, box, false)
                                                 : split_one(here, prediction_of(part, pass, box, point)));
            part[point.number] = here;
            missing.look(value.part[c], here, rules.of[c], c, at);
        }
        into[walk.residual()] = element;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) split_values(
    int* fine, Word elements, Box box, const Pass* passes, unsigned number, const Element* values, Rules rules,
    unsigned n_tiles, Element* residuals, unsigned* exact)
{
    const Pass pass = passes[number];
    split_from_values<false>(fine, elements, box, pass, values, rules, n_tiles, residuals, exact);
}

extern "C" __global__ void __launch_bounds__(THREADS) split_differences(
    int* fine, Word elements, Box box, const Pass* passes, unsigned number, const Element* values, Rules rules,
    unsigned n_tiles, Element* residuals, unsigned* exact)
{
    const Pass pass = passes[number];
    split_from_values<true>(fine, elements, box, pass, values, rules, n_tiles, residuals, exact);
}

// The points of a line that a block holds, and those beside them that it finds as well, since the passes that it does reach
// so far. Words are shifted by one behind each 32, so that points some steps apart are in different banks.
#define LINE 4096
#define BESIDE 96
__device__ __forceinline__ unsigned bank_of(unsigned place) { return place + place / LANES; }

// The last `n_passes` passes, of spacings up to 16, of frames of one axis, along y: blocks along x take parts of the line.
// Only the points that are known before have fine numbers.
extern "C" __global__ void __launch_bounds__(THREADS) split_line(
    int* fine, Word elements, Box box, const Pass* passes, unsigned number, unsigned n_passes, const REAL* values,
    Rules rules, unsigned n_tiles, REAL* residuals, unsigned* exact)
{
    __shared__ int line[LINE + 2 * BESIDE + (LINE + 2 * BESIDE) / LANES];
    const Missing missing = missing_of(exact, n_tiles);
    const unsigned n = (unsigned)elements, stop = number + n_passes, known = (1u << n_passes) - 1;
    const unsigned c = blockIdx.x % COMPONENTS, begin = blockIdx.x / COMPONENTS * LINE, end = min(n, begin + LINE);
    const Word before = (Word)blockIdx.y * elements * COMPONENTS;
    int* own = fine + before + c * elements;
    values += before + c, residuals += before + c;
    // Points from low to high - 1 are right.
    unsigned low = begin > BESIDE ? begin - BESIDE : 0, high = min(n, end + BESIDE);
    const unsigned first = low;
    for (unsigned i = low + threadIdx.x; i < high; i += THREADS) {
        line[bank_of(i - first)] = i & known ? fine_of(values[(Word)i * COMPONENTS], rules.of[c]) : own[i];
    }
    for (unsigned p = number; p < stop; ++p) {
        const Pass pass = passes[p];
        const unsigned s = pass.spacing;
        low += low ? 3 * s : 0, high -= high < n ? 3 * s : 0;
        __syncthreads();
        for (unsigned k = (low + s - 1) / (2 * s) + threadIdx.x, i; (i = (2 * k + 1) * s) < high; k += THREADS) {
            const auto near = [=](int m) { return line[bank_of(i - first + m * (int)s)]; };
            const int residual = split_one(line[bank_of(i - first)], predicted(near, i, n, s, box.cubic != 0));
            if (i >= begin && i < end) residuals[(Word)(pass.first + k) * COMPONENTS] = (REAL)residual;
        }
    }
    __syncthreads();
    for (unsigned i = begin + threadIdx.x; i < end; i += THREADS) {
        const int here = line[bank_of(i - first)];
        if (i & known) own[i] = here, missing.look(values[(Word)i * COMPONENTS], here, rules.of[c], c, i);
    }
}

// How many values of each tile miss their bound, of the points of a pass. Frames along y.
extern "C" __global__ void __launch_bounds__(THREADS) count_missing(
    const int* fine, Word elements, Box box, const Pass* passes, unsigned number, const Element* values, Rules rules,
    unsigned n_tiles, unsigned* exact)
{
    const Pass pass = passes[number];
    const Missing missing = missing_of(exact, n_tiles);
    const int* own = fine + (Word)blockIdx.y * COMPONENTS * elements;
    values += (Word)blockIdx.y * elements;
    const unsigned first = blockIdx.x * THREADS + threadIdx.x;
    for (Walk walk(pass, box, first, gridDim.x * THREADS); walk.k < size_of(pass); walk.next()) {
        const unsigned number = walk.point().number, at = element_of(number, elements, box.last);
        const Element element = values[at];
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            missing.look(element.part[c], own[c * elements + number], rules.of[c], c, at);
        }
    }
}

// Put places and bits of exact values into coded frames, along y. Blocks along x share the tiles of components.
extern "C" __global__ void __launch_bounds__(THREADS) put_missing(
    const Element* values, const int* fine, Word elements, unsigned last, unsigned n_tiles, Rules rules, const unsigned* exact,
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
                missed = misses(x, fine[((Word)blockIdx.y * COMPONENTS + c) * elements + number_of(i, elements, last)], rules.of[c]);
            }
            unsigned total;
            const unsigned before = scanned<WARPS>((unsigned)missed, sums, total);
            if (missed) places[at + before] = c * n_tiles * TILE + (unsigned)i, bits[at + before] = bits_of(x);
            at += total;
        }
    }
}
