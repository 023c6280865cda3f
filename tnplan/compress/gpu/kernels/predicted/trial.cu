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
// Where boxes may be, and how many points are probed at each.
#define N_PLACES 64
#define PROBES 16
#define MOST_THREADS 512

// Boxes of equal size, or one of all points of a coarse lattice: the elements of their first points (of active boxes the ranks of
// their places, 0 the most active), how many elements further the next point along each axis is, and the box; where their values
// begin among those taken, how many residuals of each box are left out, and how many tiles the others fill.
struct Level {
    Word firsts[N_BOXES], steps[AXES];
    Box box;
    unsigned taken, skipped, n_tiles;
};

// The steps of components, and the largest value that a predictor may have.
struct Steps {
    double of[COMPONENTS], most;
};

// What is tried on the boxes of a level: numbers as they are, the same with neighbours in rounds instead of lanes, interpolation
// by cubics or not in passes number first .. first + count - 1, or differences `along` axes. Passes stand behind all trials.
#define AS_THEY_ARE 0
#define TURNED 1
#define DIFFERENCES 3
struct Trial {
    unsigned level, kind, cubic, along, first, count;
};

__device__ __forceinline__ unsigned size_of(const Box& box)
{
    unsigned size = 1;
#pragma unroll
    for (unsigned axis = 0; axis < AXES; ++axis) size *= box.n[axis];
    return size;
}

// How much happens at a place (compress/cpu/predictor.py: active_boxes).
__device__ __forceinline__ double activity_of(const Element* place, const Word* probes, double most)
{
    double activity = 0, least[COMPONENTS], greatest[COMPONENTS];
#pragma unroll
    for (unsigned k = 0; k < PROBES; ++k) {
        const Element element = place[probes[k]];
#pragma unroll
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            const double value = (double)element.part[c], number = fabs(value) <= most ? value / 4 : 0;
            least[c] = k ? fmin(least[c], number) : number;
            greatest[c] = k ? fmax(greatest[c], number) : number;
        }
    }
#pragma unroll
    for (unsigned c = 0; c < COMPONENTS; ++c) activity += greatest[c] - least[c];
    return activity;
}

// Boxes, shared by blocks along x, of levels, along y, as elements one after the other; to `beyond` how many values of the first
// level no predictor takes. Boxes of that are the active ones of `n_places` places, unless these are 0; probes are behind places.
extern "C" __global__ void __launch_bounds__(THREADS) take_boxes(
    const Element* values, const Level* levels, const Word* places, unsigned n_places, unsigned n_boxes, Steps steps,
    Element* taken, Word* beyond)
{
    __shared__ double activities[N_PLACES];
    __shared__ Word first;
    const Level& level = levels[blockIdx.y];
    const unsigned number = blockIdx.x % n_boxes, share = blockIdx.x / n_boxes, size = size_of(level.box);
    if (threadIdx.x == 0) first = level.firsts[number];
    if (blockIdx.y == 0 && n_places) {
        const unsigned own = threadIdx.x;
        if (own < N_PLACES) activities[own] = activity_of(values + places[own], places + N_PLACES, steps.most);
        __syncthreads();
        unsigned rank = 0;
        if (own < N_PLACES) {
            for (unsigned k = 0; k < N_PLACES; ++k) {
                rank += activities[k] > activities[own] || (activities[k] == activities[own] && k < own);
            }
            if (rank == level.firsts[number]) first = places[own];
        }
    }
    __syncthreads();
    unsigned too_large = 0;
    taken += level.taken + number * size;
    for (unsigned k = share * THREADS + threadIdx.x; k < size; k += gridDim.x / n_boxes * THREADS) {
        Word at = first;
        unsigned rest = k;
#pragma unroll
        for (int axis = AXES - 1; axis >= 0; --axis) {
            at += rest % level.box.n[axis] * level.steps[axis];
            rest /= level.box.n[axis];
        }
        const Element element = values[at];
        for (unsigned c = 0; c < COMPONENTS; ++c) too_large += fabs((double)element.part[c]) > steps.most;
        taken[k] = element;
    }
    if (blockIdx.y == 0 && too_large) atomicAdd(beyond, (Word)too_large);
}

// A whole number of units; 0 for what is too large, or no number.
__device__ __forceinline__ int whole_number(REAL value, double unit)
{
    const double scaled = rint((double)value / unit);
    return fabs(scaled) <= LARGEST_FINE ? (int)scaled : 0;
}

// Pass on the residuals of a box of numbers `fine`, and where each stands.
template <typename Put>
__device__ __forceinline__ void make_residuals(
    int* fine, unsigned size, const Box& box, const Trial& trial, const Pass* passes, const Put& put)
{
    if (trial.kind == DIFFERENCES) {
        Pass all = {trial.along, 1, {}, {}, {}, 0};
        for (unsigned axis = 0; axis < AXES; ++axis) all.steps[axis] = 1, all.counts[axis] = box.n[axis];
        for (Walk walk(all, box, threadIdx.x, blockDim.x); walk.k < size; walk.next()) {
            const auto whole = [=](unsigned number) { return fine[number]; };
            put(walk.residual(), difference_of(whole, trial.along, walk.point(), box, true));
        }
        return;
    }
    if (threadIdx.x == 0) put(0, split_one(fine[0], 0));
    for (unsigned number = 0; number < trial.count; ++number) {
        __syncthreads();
        const Pass pass = passes[trial.first + number];
        for (Walk walk(pass, box, threadIdx.x, blockDim.x); walk.k < size_of(pass); walk.next()) {
            const Point point = walk.point();
            put(pass.first + walk.residual(), split_one(fine[point.number], prediction_of(fine, pass, box, point)));
        }
    }
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

// Components of boxes, along x, under trials, along y, to tiles (trials, most_tiles, COMPONENTS, TILE), filled up with zeros. Boxes
// of more than MOST_POINTS points are in `work` (trials, COMPONENTS, most_points) meanwhile.
extern "C" __global__ void __launch_bounds__(MOST_THREADS) try_predictors(
    const Element* taken, const Level* levels, const Trial* trials, unsigned n_boxes, Steps steps, int* work,
    unsigned most_points, int* tiles, unsigned most_tiles)
{
    __shared__ int near[MOST_POINTS];
    const Trial trial = trials[blockIdx.y];
    const Pass* passes = (const Pass*)(trials + gridDim.y);
    const Level& level = levels[trial.level];
    const bool as_they_are = trial.kind <= TURNED, whole = as_they_are || trial.kind == DIFFERENCES;
    const unsigned c = blockIdx.x % COMPONENTS, number = blockIdx.x / COMPONENTS, skipped = level.skipped;
    Box box = level.box;
    box.cubic = trial.cubic;
    const unsigned size = size_of(box), room = level.n_tiles * TILE / n_boxes;
    int* tile = tiles + ((Word)blockIdx.y * most_tiles * COMPONENTS + c) * TILE;
    int* fine = size > MOST_POINTS ? work + ((Word)blockIdx.y * COMPONENTS + c) * most_points : near;
    const auto put = [=](unsigned k, int residual) {
        const unsigned at = number * room + k - skipped;
        if (k >= skipped) tile[at / TILE * COMPONENTS * TILE + at % TILE] = residual;
    };
    for (unsigned k = (as_they_are ? 0 : size - skipped) + threadIdx.x; k < room; k += blockDim.x) put(skipped + k, 0);
    __syncthreads();
    taken += level.taken + number * size;
    const double unit = whole ? steps.of[c] : steps.of[c] / (1 << SHIFT);
    for (unsigned i = threadIdx.x; i < (as_they_are ? min(size, BOX) : size); i += blockDim.x) {
        const int found = whole_number(taken[i].part[c], unit);
        if (as_they_are) put(skipped + (trial.kind == TURNED ? i % (BOX / LANES) * LANES + i / (BOX / LANES) : i), found);
        else fine[i] = found;
    }
    __syncthreads();
    if (!as_they_are) make_residuals(fine, size, box, trial, passes, put);
}

// Count the tokens of tiles (trials, most_tiles, COMPONENTS, TILE), a warp each along x, of trials, along y: in counts (trials,
// TABLES, TOKENS), and in units (trials) 2^LOG2_BITS for each raw bit. Both start from zero.
extern "C" __global__ void __launch_bounds__(THREADS) count_trials(
    const Level* levels, const Trial* trials, const int* tiles, unsigned most_tiles, unsigned* counts, Word* units)
{
    __shared__ unsigned histories[WARPS][TILE / 4], sums[TABLES * TOKENS];
    __shared__ Rounds rounds;
    const unsigned warp = threadIdx.x / LANES, number = blockIdx.x * WARPS + warp;
    for (unsigned k = threadIdx.x; k < TABLES * TOKENS; k += THREADS) sums[k] = 0;
    fill_scales(rounds);
    __syncthreads();
    Word raw = 0;
    if (number < levels[trials[blockIdx.y].level].n_tiles) {
        const int* tile = tiles + ((Word)blockIdx.y * most_tiles + number) * COMPONENTS * TILE;
        raw = counted_tile(tile, rounds, histories[warp], sums) << LOG2_BITS;
    }
    add_counts(blockIdx.y, raw, sums, counts, units);
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
