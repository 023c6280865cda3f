// The coder `small`: a warp codes a segment of tiles (contexts, tokens, order: compress/cpu/rans_kernel.py).
//
// Frames of equal size lie behind one another. Every lane keeps the magnitudes of its own rounds of a tile, so
// that contexts need no exchange. Rounds go in groups of eight, whose neighbours elsewhere are summed at once.

#include "../common/tile.cuh"

#define WARPS 4
#define THREADS (WARPS * LANES)
#define PLAN_WARPS 8
#define PLAN_THREADS (PLAN_WARPS * LANES)
#define ROUNDS 128
#define GROUP 8
#define GROUPS (ROUNDS / GROUP)
#define ROUND_AXES 7
#define DIRECT 16
#define TOKENS 72
#define TOKENS_LANE ((TOKENS + LANES - 1) / LANES)
#define LARGEST_MAGNITUDE 255u
#define FIRST 12
#define BUCKETS 13
#define CLASSES 4
#define TABLES (COMPONENTS == 1 ? BUCKETS : BUCKETS + BUCKETS * CLASSES)
#define STARTS (TABLES * (TOKENS + 1))
#define TOTAL_LOG2 12
#define TOTAL (1u << TOTAL_LOG2)
#define COST_LOG2 8
#define LONGEST_SEGMENT_LOG2 6
// What a segment takes at least, in units of 2^-COST_LOG2 bits (WASTE of compress/cpu/rans.py).
#define LEAST_UNITS (24u * 64 * 8 << COST_LOG2)
#define LOW (1u << 16)
#define RAW_LOG2 12
#define MOST_ROUND_WORDS (8 * LANES)
#define STATES_BYTES (4 * LANES)
#define TILE_WORDS (COMPONENTS * TILE * 2)
#define SLOT_HALVES (STATES_BYTES / 2 + TILE_WORDS + MOST_ROUND_WORDS)
#define HEAD_BYTES ((12 + TABLES * (1 + 2 * TOKENS)) / 4 * 4)
#define SLOTS_LOG2 (COMPONENTS == 1 ? 8 : 7)
#define SLOTS (1u << SLOTS_LOG2)

struct Numbers {
    int of[COMPONENTS];
};

template <bool LINEAR>
__device__ __forceinline__ Numbers numbers_of(const Element& element, const Rules& rules, unsigned& missed)
{
    Numbers numbers;
    missed = 0;
#pragma unroll
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        bool exact;
        numbers.of[c] = quantized<LINEAR>(element.part[c], rules.of[c], exact);
        missed |= (unsigned)exact << c;
    }
    return numbers;
}

// Whether every tile is whole and every rule linear, which kernels have a shorter way for.
__device__ __forceinline__ bool is_plain(const Rules& rules, Word frame_elements)
{
    return linear(rules) && frame_elements % TILE == 0;
}

// Where a lane's elements of a tile's rounds are: `first` with the bits of the round's group and of its place in
// the group added.
struct View {
    const Element* from;
    unsigned frame_elements, first;
    unsigned local[GROUP];

    template <bool PLAIN>
    __device__ __forceinline__ Element element(unsigned group, unsigned k, bool& inside) const
    {
        const unsigned number = first + group + local[k];
        inside = PLAIN || number < frame_elements;
        Element none = {};
        return inside ? from[number] : none;
    }
};

// Shared by a block: what a group adds to the number of an element, and 8 * 65536 over a number of neighbours.
struct Rounds {
    unsigned groups[GROUPS], scales[ROUND_AXES + 1];
};

__device__ __forceinline__ void fill_scales(Rounds& rounds)
{
    if (threadIdx.x <= ROUND_AXES) rounds.scales[threadIdx.x] = threadIdx.x ? 8 * 65536 / threadIdx.x : 0;
}

__device__ __forceinline__ void fill_rounds(Rounds& rounds, const Order& order)
{
    if (threadIdx.x < GROUPS) rounds.groups[threadIdx.x] = deposited<8, 12>(threadIdx.x, order.axes);
    fill_scales(rounds);
}

__device__ __forceinline__ View view_of(const Element* from, Word frame_elements, const Order& order)
{
    View view;
    view.from = from, view.frame_elements = (unsigned)frame_elements, view.first = 0;
#pragma unroll
    for (unsigned k = 0; k < GROUP; ++k) view.local[k] = deposited<5, 8>(k, order.axes);
    return view;
}

__device__ __forceinline__ unsigned size_of(int number) { return number < 0 ? -number : number; }

__device__ __forceinline__ unsigned magnitude_of(const Numbers& numbers)
{
    unsigned sum = 0;
    for (unsigned c = 0; c < COMPONENTS; ++c) sum += min(size_of(numbers.of[c]), LARGEST_MAGNITUDE);
    return min(sum, LARGEST_MAGNITUDE);
}

// Magnitudes of a group of rounds for the history: a byte a round, two words a group and lane.
__device__ __forceinline__ void remember(
    unsigned* history, unsigned group, unsigned lane, const unsigned (&sizes)[GROUP])
{
#pragma unroll
    for (unsigned w = 0; w < 2; ++w) {
        const unsigned* of = sizes + 4 * w;
        history[(2 * group + w) * LANES + lane] = of[0] | of[1] << 8 | of[2] << 16 | of[3] << 24;
    }
}

// The neighbours of a group's rounds in other groups: sums of magnitudes, of two rounds a word.
struct Sums {
    unsigned even[2], odd[2];

    __device__ __forceinline__ Sums(const unsigned* history, unsigned group, unsigned lane) : even(), odd()
    {
#pragma unroll 1
        for (unsigned rest = group; rest; rest &= rest - 1) {
            const unsigned other = group ^ (rest & -rest);
#pragma unroll
            for (unsigned w = 0; w < 2; ++w) {
                const unsigned four = history[(2 * other + w) * LANES + lane];
                even[w] += four & 0x00ff00ff;
                odd[w] += four >> 8 & 0x00ff00ff;
            }
        }
    }
};

// The context of a number from the sum of its neighbours' magnitudes.
__device__ __forceinline__ unsigned bucket_of(unsigned sum, unsigned scale) { return 32 - __clz(sum * scale >> 16); }

// These sums, and the scales for 0 to 3 neighbours more.
struct Context : Sums {
    unsigned scales[4];
    bool first;

    __device__ __forceinline__ Context(
        const unsigned* history, const Rounds& rounds, unsigned group, unsigned lane)
        : Sums(history, group, lane), first(group == 0)
    {
#pragma unroll
        for (unsigned k = 0; k < 4; ++k) scales[k] = rounds.scales[__popc(group) + k];
    }

    // The context bucket of the group's round k, from the magnitudes of the group's rounds before it.
    __device__ __forceinline__ unsigned bucket(unsigned k, const unsigned (&sizes)[GROUP]) const
    {
        if (k == 0 && first) return FIRST;
        const unsigned both = k & 1 ? odd[k / 4] : even[k / 4];
        unsigned sum = k & 2 ? both >> 16 : both & 0xffff;
        if (k & 1) sum += sizes[k ^ 1];
        if (k & 2) sum += sizes[k ^ 2];
        if (k & 4) sum += sizes[k ^ 4];
        return bucket_of(sum, scales[(k & 1) + (k >> 1 & 1) + (k >> 2)]);
    }
};

__device__ __forceinline__ unsigned table_of(unsigned c, unsigned bucket, int real_part)
{
    if (c == 0) return bucket;
    const unsigned size = size_of(real_part);
    return BUCKETS + CLASSES * bucket + (size < 2 ? size : size < 4 ? 2 : 3);
}

// The token of a zigzag number, and how many raw bits follow.
__device__ __forceinline__ unsigned token_of(unsigned z, unsigned& bits)
{
    bits = 0;
    if (z < DIRECT) return z;
    const unsigned length = 32 - __clz(z);
    bits = length - 2;
    return DIRECT + 2 * (length - 5) + (z >> (length - 2) & 1);
}

// Whether a coded frame is decoded by a way that is shorter for rounds of zeros and longer for others: where it has
// less than two bits a number.
__device__ __forceinline__ bool is_sparse(const Frame& frame, unsigned n_tiles)
{
    return 4 * frame.coded < (Word)n_tiles * TILE * COMPONENTS;
}

// A table's slots from `zeros` on are in SLOTS parts of 2^this: those behind its first token in sparse frames, all in
// others.
__device__ __forceinline__ unsigned part_log2(unsigned zeros)
{
    const unsigned length = 32 - __clz(TOTAL - 1 - zeros);
    return length > SLOTS_LOG2 ? length - SLOTS_LOG2 : 0;
}

__device__ __forceinline__ unsigned parts_of(unsigned bits) { return (bits + RAW_LOG2 - 1) / RAW_LOG2; }

// How a frame's segments are coded: tiles a segment (logarithm), where the numbers of their words start behind
// the start of the coder's bytes, and how many segments there are.
struct Plan {
    unsigned tiles_log2, words_at, n_segments;
};

// The frame of a block, along y, and the first of its WARPS segments, along x. Blocks start in the order of
// segments, not of frames: few of a frame's may have work, and so all those that do start first.
struct Share {
    unsigned frame, first;
};

__device__ __forceinline__ Share own_share()
{
    const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    return {block % gridDim.y, block / gridDim.y * WARPS};
}

// The segment of a warp: its first tile and the one behind its last.
__device__ __forceinline__ unsigned segment_begin(unsigned segment, const Plan& plan)
{
    return segment << plan.tiles_log2;
}

__device__ __forceinline__ unsigned segment_stop(unsigned segment, const Plan& plan, unsigned n_tiles)
{
    return min(n_tiles, (segment + 1) << plan.tiles_log2);
}
