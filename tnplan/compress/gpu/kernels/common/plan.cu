// How an array is coded by `fast`: as the host says, or as it would once it knew what a survey has found.

#include "../fixed_length/fixed_length.cuh"
#include "bound.cuh"
#include "log2.cuh"
#include "plan.cuh"

#define CLASSES 6
#define PAIRS_OF_CLASSES (CLASSES * CLASSES)
#define MOST_AXES 30
#define PIECE_BYTES 32
#define SAMPLE_LOG2 14

// The host's rules and order, for n_frames frames that lie behind one another, and end the stream or not. One block.
extern "C" __global__ void __launch_bounds__(THREADS) lay_out_plan(
    const Element* values, Word frame_elements, Order order, unsigned n_tiles, Rules rules, unsigned n_frames,
    unsigned ends, Plan* plan, unsigned* offsets)
{
    lay_out({rules, order, frame_elements, n_tiles, n_frames, ends}, values, *plan, offsets);
}

// Fill entropies (n_axes) from the counts of pairs of classes along each axis: how much is not known of an element once
// its neighbour is, in thousandths of a bit (compress/format/bit_tiling.py: ranked_axes). A block; a warp an axis, a lane a term.
__device__ __forceinline__ void find_entropies(const unsigned* counts, unsigned n_axes, unsigned* entropies)
{
    const unsigned lane = threadIdx.x % LANES, shift = SAMPLE_LOG2 + LOG2_BITS;
#pragma unroll 1
    for (unsigned axis = threadIdx.x / LANES; axis < n_axes; axis += WARPS) {
        const unsigned* own = counts + axis * PAIRS_OF_CLASSES;
        Word sum = 0;
#pragma unroll 1
        for (unsigned term = lane; term < PAIRS_OF_CLASSES + CLASSES; term += LANES) {
            const bool pair = term < PAIRS_OF_CLASSES;
            unsigned number = 0;
            for (unsigned j = 0; j < (pair ? 1 : CLASSES); ++j) {
                number += own[pair ? term : j * CLASSES + term - PAIRS_OF_CLASSES];
            }
            const Word value = times_log2(number);
            sum += pair ? 0 - value : value;
        }
        for (unsigned step = LANES / 2; step; step /= 2) sum += __shfl_xor_sync(WHOLE_WARP, sum, step);
        if (lane == 0) entropies[axis] = (sum * 1000 + (1ull << (shift - 1))) >> shift;
    }
}

// The axes of a tile among n_axes (compress/format/bit_tiling.py: tile_axes): those with the least entropies, and those first, but
// the lowest ones are always among them. A block; a thread an axis. `taken`: a flag of each.
__device__ __forceinline__ void choose_axes(const unsigned* entropies, bool* taken, unsigned n_axes, Order& order)
{
    const unsigned axis = threadIdx.x, pieces = 31 - __clz(PIECE_BYTES / (unsigned)sizeof(Element));
    const auto is_before = [&](unsigned other) {
        return entropies[other] < entropies[axis] || (entropies[other] == entropies[axis] && other < axis);
    };
    if (axis < n_axes) {
        unsigned better = 0;
#pragma unroll 1
        for (unsigned other = pieces; other < n_axes; ++other) better += is_before(other);
        taken[axis] = axis < pieces || better < TILE_LOG2 - pieces;
    }
    __syncthreads();
    if (axis >= n_axes || !taken[axis]) return;
    unsigned place = 0, rank = 0;
#pragma unroll 1
    for (unsigned other = 0; other < n_axes; ++other) {
        if (taken[other]) place += is_before(other), rank += other < axis;
    }
    order.axes[place] = (Byte)axis;
    order.numbers[rank] = 1u << axis, order.above[rank] = 0u - (1u << axis);
    order.turns[rank] = 4 * spread_lane((1u << place) / LANES, (1u << place) % LANES);
}

// The plan that the host will make, of whole frames or a single one, of what the survey of n_elements and `neighbours`
// have found along n_axes axes or fewer; it has no frames where components have no linear rule. The host is told the
// elements of a frame and how many frames there are, then rules and order, all in mailbox_words. One block.
extern "C" __global__ void __launch_bounds__(THREADS) choose_plan(
    const Element* values, Word n_elements, Bound bound, unsigned frame_log2, unsigned n_axes, const BITS* found,
    const unsigned* counts, Plan* plan, unsigned* offsets, Word* mailbox, unsigned mailbox_words)
{
    __shared__ unsigned entropies[MOST_AXES];
    __shared__ bool taken[MOST_AXES];
    __shared__ Frames frames;
    const Word stored = is_mirrored(found, n_elements) ? (n_elements + 1) / 2 : n_elements, whole = 1ull << frame_log2;
    while (stored >> n_axes == 0) --n_axes;
    find_entropies(counts, n_axes, entropies);
    if (threadIdx.x < COMPONENTS) frames.rules.of[threadIdx.x] = rule_of(found + 4 * threadIdx.x, bound);
    __syncthreads();
    choose_axes(entropies, taken, n_axes, frames.order);
    if (threadIdx.x == 0) {
        bool good = true;
        for (unsigned c = 0; c < COMPONENTS; ++c) good &= (Word)bits_of(frames.rules.of[c].step) >= least_normal();
        frames.elements = stored < whole ? stored : whole;
        frames.n_tiles = (unsigned)(frames.elements / TILE);
        frames.count = good ? (unsigned)(stored / frames.elements) : 0;
        frames.ends = stored % frames.elements == 0;
    }
    __syncthreads();
    lay_out(frames, values, *plan, offsets);
    unsigned* words = (unsigned*)(mailbox + 2);
    const unsigned n_rules = sizeof(Rules) / sizeof(unsigned), n_order = sizeof(Order) / sizeof(unsigned);
    for (unsigned k = threadIdx.x; k < n_rules; k += THREADS) words[k] = ((const unsigned*)&frames.rules)[k];
    for (unsigned k = threadIdx.x; k < n_order; k += THREADS) words[n_rules + k] = ((const unsigned*)&frames.order)[k];
    if (threadIdx.x == 0) mailbox[0] = frames.elements, mailbox[1] = frames.count;
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) post(mailbox, mailbox_words);
}
