// What sampled boxes of an array take as they are and under predictors
// (compress/cpu/predictor.py): counted in whole numbers, as on a CPU.

#define AXES 6
#include "../rans/count.cuh"
#include "../common/log2.cuh"
#include "predicted.cuh"

// Boxes of a level; a tile has the numbers of two.
#define N_BOXES 8
#define BOX (TILE / 2)
#define MOST_POINTS 3072

// Boxes of equal size: the elements of their first points, how many elements further the next point along each axis is, and
// how many points there are.
struct SampledBoxes {
    Word firsts[N_BOXES], steps[AXES];
    unsigned counts[AXES];
};

// The steps of components, and the largest value that a predictor may have.
struct Steps {
    double of[COMPONENTS], most;
};

// What is tried: numbers as they are, the same with neighbours in rounds instead of lanes, interpolation by cubics or not in
// passes number first .. first + count - 1, or differences `along` axes.
#define AS_THEY_ARE 0
#define TURNED 1
#define DIFFERENCES 3
struct Trial {
    unsigned kind, cubic, along, first, count;
};

// Elements of these numbers.
extern "C" __global__ void __launch_bounds__(THREADS) take_elements(
    const Element* values, const Word* numbers, unsigned count, Element* taken)
{
    for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < count; i += gridDim.x * THREADS) taken[i] = values[numbers[i]];
}

// Sampled boxes, one along x, shared by blocks along y, as elements one after the other; to `units` how many values no predictor takes.
extern "C" __global__ void __launch_bounds__(THREADS) take_boxes(
    const Element* values, SampledBoxes boxes, Steps steps, Element* taken, Word* units)
{
    unsigned size = 1, beyond = 0;
    for (unsigned axis = 0; axis < AXES; ++axis) size *= boxes.counts[axis];
    for (unsigned k = blockIdx.y * THREADS + threadIdx.x; k < size; k += gridDim.y * THREADS) {
        Word at = boxes.firsts[blockIdx.x];
        unsigned rest = k;
#pragma unroll
        for (int axis = AXES - 1; axis >= 0; --axis) {
            at += rest % boxes.counts[axis] * boxes.steps[axis];
            rest /= boxes.counts[axis];
        }
        const Element element = values[at];
        for (unsigned c = 0; c < COMPONENTS; ++c) beyond += fabs((double)element.part[c]) > steps.most;
        taken[blockIdx.x * size + k] = element;
    }
    if (beyond) atomicAdd(units, (Word)beyond);
}

// A whole number of units; 0 for what is too large, or no number.
__device__ __forceinline__ int whole_number(REAL value, double unit)
{
    const double scaled = rint((double)value / unit);
    return fabs(scaled) <= LARGEST_FINE ? (int)scaled : 0;
}

// The last residuals of a box of numbers `fine` to its half of a tile.
__device__ __forceinline__ void fill_residuals(
    int* fine, unsigned size, const Box& box, const Trial& trial, const Pass* passes, int* half)
{
    const unsigned first = size - min(size - 1, BOX);
    if (trial.kind == DIFFERENCES) {
        Pass all = {trial.along, 1, {}, {}, {}, 0};
        for (unsigned axis = 0; axis < AXES; ++axis) all.steps[axis] = 1, all.counts[axis] = box.n[axis];
        for (Walk walk(all, box, threadIdx.x, THREADS); walk.k < size; walk.next()) {
            const auto whole = [=](unsigned number) { return fine[number]; };
            const int residual = difference_of(whole, trial.along, walk.point(), box, true);
            if (walk.residual() >= first) half[walk.residual() - first] = residual;
        }
        __syncthreads();
        return;
    }
    if (threadIdx.x == 0) split_one(fine[0], 0);
    for (unsigned number = 0; number < trial.count; ++number) {
        __syncthreads();
        const Pass pass = passes[trial.first + number];
        for (Walk walk(pass, box, threadIdx.x, THREADS); walk.k < size_of(pass); walk.next()) {
            const Point point = walk.point();
            const int residual = split_one(fine[point.number], prediction_of(fine, pass, box, point));
            const unsigned at = pass.first + walk.residual();
            if (at >= first) half[at - first] = residual;
        }
    }
    __syncthreads();
}

// Count the tokens of a tile (COMPONENTS, TILE); its raw bits. One warp.
__device__ __forceinline__ Word counted_tile(
    const int* tile, const Rounds& rounds, unsigned* history, unsigned* sums)
{
    const unsigned lane = threadIdx.x % LANES;
    Counted counted = {};
#pragma unroll 1
    for (unsigned group = 0; group < GROUPS; ++group) {
        const Context context(history, rounds, group, lane);
        unsigned sizes[GROUP];
#pragma unroll
        for (unsigned k = 0; k < GROUP; ++k) {
            const unsigned round = group * GROUP + k, bucket = context.bucket(k, sizes);
            Numbers numbers;
            for (unsigned c = 0; c < COMPONENTS; ++c) numbers.of[c] = tile[c * TILE + round * LANES + lane];
            sizes[k] = magnitude_of(numbers);
            count_numbers(numbers, 0, round, bucket, sums, counted, Nothing());
        }
        remember(history, group, lane, sizes);
    }
    return counted.raw;
}

// Boxes (`sample`: boxes, points), two along x, under trials, along y: to counts (trials, TABLES, TOKENS) and to units
// (trials), 2^LOG2_BITS for each raw bit. All start from zero; tiles (trials, N_BOXES / 2, COMPONENTS, TILE) are for work.
extern "C" __global__ void __launch_bounds__(THREADS) try_predictors(
    const Element* sample, Box box, Steps steps, const Trial* trials, const Pass* passes, int* tiles, unsigned* counts,
    Word* units)
{
    __shared__ int fine[MOST_POINTS];
    __shared__ unsigned history[TILE / 4], sums[TABLES * TOKENS];
    __shared__ Rounds rounds;
    const Trial trial = trials[blockIdx.y];
    const bool as_they_are = trial.kind <= TURNED, whole = as_they_are || trial.kind == DIFFERENCES;
    int* tile = tiles + ((Word)blockIdx.y * gridDim.x + blockIdx.x) * COMPONENTS * TILE;
    for (unsigned k = threadIdx.x; k < TABLES * TOKENS; k += THREADS) sums[k] = 0;
    for (unsigned k = threadIdx.x; k < COMPONENTS * TILE; k += THREADS) tile[k] = 0;
    fill_scales(rounds);
    unsigned size = 1;
    for (unsigned axis = 0; axis < AXES; ++axis) size *= box.n[axis];
    box.cubic = trial.cubic;
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        const double unit = whole ? steps.of[c] : steps.of[c] / (1 << SHIFT);
        for (unsigned k = 0; k < 2; ++k) {
            const Element* own = sample + (2 * blockIdx.x + k) * size;
            int* half = tile + c * TILE + k * BOX;
            __syncthreads();
            for (unsigned i = threadIdx.x; i < (as_they_are ? min(size, BOX) : size); i += THREADS) {
                const int number = whole_number(own[i].part[c], unit);
                const unsigned place = trial.kind == TURNED ? i % (BOX / LANES) * LANES + i / (BOX / LANES) : i;
                (as_they_are ? half : fine)[place] = number;
            }
            __syncthreads();
            if (!as_they_are) fill_residuals(fine, size, box, trial, passes, half);
        }
    }
    __syncthreads();
    if (threadIdx.x < LANES) {
        const Word raw = counted_tile(tile, rounds, history, sums);
        if (raw) atomicAdd(&units[blockIdx.y], raw << LOG2_BITS);
    }
    __syncthreads();
    for (unsigned k = threadIdx.x; k < TABLES * TOKENS; k += THREADS) {
        if (sums[k]) atomicAdd(&counts[(Word)blockIdx.y * TABLES * TOKENS + k], sums[k]);
    }
}

// Add to units (frames) what tokens take of which there are so many (frames, TABLES, TOKENS). A block a frame, a warp a table.
extern "C" __global__ void __launch_bounds__(THREADS) weigh_trials(const unsigned* counts, Word* units)
{
    const unsigned lane = threadIdx.x % LANES;
    Word own = 0;
    for (unsigned table = threadIdx.x / LANES; table < TABLES; table += WARPS) {
        const unsigned* of = counts + ((Word)blockIdx.x * TABLES + table) * TOKENS;
        unsigned total = 0;
        for (unsigned token = lane; token < TOKENS; token += LANES) {
            total += of[token];
            own -= times_log2(of[token]);
        }
        total = __reduce_add_sync(WHOLE_WARP, total);
        if (lane == 0) own += times_log2(total);
    }
    if (own) atomicAdd(&units[blockIdx.x], own);
}
