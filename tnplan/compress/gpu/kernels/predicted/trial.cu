// What sampled boxes of an array take as they are and under each predictor
// (compress/cpu/predictor.py): counted in whole numbers, as on a CPU.

#include "../rans/count.cuh"
#include "../common/log2.cuh"
#include "predicted.cuh"

// Boxes of a level; trials of a box: two without a predictor, of the finest boxes alone, and one of each predictor.
#define N_BOXES 4
#define PLAIN 2
#define TRIALS 6
#define MOST_POINTS 6144

// A box of points, `stride` apart along each axis: the number of the first one in the array, and how many there are along
// each axis.
struct SampledBox {
    Word start, stride;
    unsigned counts[3], unused;
};

struct SampledBoxes {
    SampledBox of[64];
};

// The steps of components, and the largest value that a predictor may have.
struct Steps {
    double of[COMPONENTS], most;
};

// Passes number first .. first + count - 1, of a box in an order of axes.
struct Span {
    unsigned first, count;
};

// An array's last two axes, and a sampled box of it.
struct Sample {
    const Element* values;
    Word n1, n2;
    const SampledBox& box;

    __device__ __forceinline__ unsigned size() const { return box.counts[0] * box.counts[1] * box.counts[2]; }

    __device__ __forceinline__ REAL value(unsigned k, unsigned c) const
    {
        const unsigned x = k % box.counts[2], row = k / box.counts[2], y = row % box.counts[1], z = row / box.counts[1];
        return values[box.start + (((Word)z * n1 + y) * n2 + x) * box.stride].part[c];
    }
};

// A whole number of units; 0 for what is too large, or no number.
__device__ __forceinline__ int whole_number(REAL value, double unit)
{
    const double scaled = rint((double)value / unit);
    return fabs(scaled) <= LARGEST_FINE ? (int)scaled : 0;
}

// A tile of a component as it is, filled up with zeros; `turned`: neighbours are in rounds instead of lanes.
__device__ __forceinline__ void fill_plain(const Sample& sample, unsigned c, double step, bool turned, int* tile)
{
    for (unsigned i = threadIdx.x; i < TILE; i += THREADS) {
        const unsigned place = turned ? i % ROUNDS * LANES + i / ROUNDS : i;
        tile[place] = i < sample.size() ? whole_number(sample.value(i, c), step) : 0;
    }
}

// The last tile of a component's residuals, filled up with zeros; fine (MOST_POINTS) is for work.
__device__ __forceinline__ void fill_residuals(
    const Sample& sample, unsigned c, double unit, const Box& box, const Pass* passes, unsigned n_passes, int* fine,
    int* tile)
{
    const unsigned size = sample.size(), count = min(size - 1, TILE), first = size - count;
    for (unsigned k = threadIdx.x; k < size; k += THREADS) fine[k] = whole_number(sample.value(k, c), unit);
    for (unsigned i = count + threadIdx.x; i < TILE; i += THREADS) tile[i] = 0;
    __syncthreads();
    if (threadIdx.x == 0) split_one(fine[0], 0);
    for (unsigned number = 0; number < n_passes; ++number) {
        __syncthreads();
        const Pass pass = passes[number];
        for (Walk walk(pass, box, threadIdx.x, THREADS); walk.k < size_of(pass); walk.next()) {
            const Point point = walk.point();
            const int residual = split_one(fine[point.number], prediction_of(fine, pass, box, point));
            if (pass.first + walk.k >= first) tile[pass.first + walk.k - first] = residual;
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

// Sampled boxes, along x, under trials, along y: to counts (levels, TRIALS, TABLES, TOKENS) and to units (levels, TRIALS),
// 2^LOG2_BITS for each raw bit; behind these, how many of the finest values no predictor takes. All start from zero;
// tiles (boxes, TRIALS, COMPONENTS, TILE) are for work. `spans` are those of levels and orders of axes (levels, 2).
extern "C" __global__ void __launch_bounds__(THREADS) try_predictors(
    const Element* values, Word n1, Word n2, SampledBoxes boxes, Steps steps, const Span* spans, const Pass* passes,
    int* tiles, unsigned* counts, Word* units)
{
    __shared__ int fine[MOST_POINTS];
    __shared__ unsigned history[TILE / 4], sums[TABLES * TOKENS];
    __shared__ Rounds rounds;
    const unsigned level = blockIdx.x / N_BOXES, trial = blockIdx.y, frame = level * TRIALS + trial;
    if (level && trial < PLAIN) return;
    const Sample sample = {values, n1, n2, boxes.of[blockIdx.x]};
    int* tile = tiles + ((Word)blockIdx.x * TRIALS + trial) * COMPONENTS * TILE;
    for (unsigned k = threadIdx.x; k < TABLES * TOKENS; k += THREADS) sums[k] = 0;
    fill_scales(rounds);
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        if (trial < PLAIN) {
            fill_plain(sample, c, steps.of[c], trial == 1, tile + c * TILE);
            continue;
        }
        const unsigned code = trial - PLAIN;
        const Box box = {{sample.box.counts[0], sample.box.counts[1], sample.box.counts[2]}, code & 1};
        const Span span = spans[2 * level + code / 2];
        const double unit = steps.of[c] / (1 << SHIFT);
        fill_residuals(sample, c, unit, box, passes + span.first, span.count, fine, tile + c * TILE);
    }
    if (level == 0 && trial == 0) {
        unsigned beyond = 0;
        for (unsigned k = threadIdx.x; k < sample.size(); k += THREADS) {
            for (unsigned c = 0; c < COMPONENTS; ++c) beyond += fabs((double)sample.value(k, c)) > steps.most;
        }
        if (beyond) atomicAdd(&units[gridDim.x / N_BOXES * TRIALS], (Word)beyond);
    }
    __syncthreads();
    if (threadIdx.x < LANES) {
        const Word raw = counted_tile(tile, rounds, history, sums);
        if (raw) atomicAdd(&units[frame], raw << LOG2_BITS);
    }
    __syncthreads();
    for (unsigned k = threadIdx.x; k < TABLES * TOKENS; k += THREADS) {
        if (sums[k]) atomicAdd(&counts[(Word)frame * TABLES * TOKENS + k], sums[k]);
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
