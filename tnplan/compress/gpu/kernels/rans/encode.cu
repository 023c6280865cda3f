// The coder `small` writes: tokens are counted, and segments coded.

#include "count.cuh"
#include "writer.cuh"

// Loads in flight where only magnitudes are wanted.
#define AHEAD (VALUE_BYTES > 8 ? 8 : 128 / VALUE_BYTES)

// counts (frames, TABLES, TOKENS) and raw_bits (frames) start from zero; exact (frames, COMPONENTS, n_tiles).
// A warp counts a tile.
extern "C" __global__ void __launch_bounds__(THREADS) small_count(
    const Element* values, Word frame_elements, Order order, unsigned n_tiles, Rules rules, unsigned* counts,
    Word* raw_bits, unsigned* exact)
{
    __shared__ unsigned histories[WARPS][TILE / 4], sums[TABLES * TOKENS];
    __shared__ Rounds rounds;
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, frame = blockIdx.y;
    const unsigned tile = blockIdx.x * WARPS + warp;
    for (unsigned k = threadIdx.x; k < TABLES * TOKENS; k += THREADS) sums[k] = 0;
    fill_rounds(rounds, order);
    __syncthreads();
    View view = view_of(values + frame * frame_elements, frame_elements, order);
    view.first = tile_offset(tile, order) + deposited<0, 5>(lane, order.axes);
    Counted counted = {};
    if (tile < n_tiles) {
        const bool plain = is_plain(rules, frame_elements);
        unsigned* history = histories[warp];
        counted = plain ? counted_tile<true, true>(view, rounds, rules, history, sums, Nothing())
                        : counted_tile<false, false>(view, rounds, rules, history, sums, Nothing());
    }
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        const unsigned sum = __reduce_add_sync(WHOLE_WARP, counted.missing[c]);
        if (lane == 0 && tile < n_tiles) exact[((Word)frame * COMPONENTS + c) * n_tiles + tile] = sum;
    }
    add_counts(frame, counted.raw, sums, counts, raw_bits);
}

// A symbol of a table: its first slot and its frequency.
struct Symbol {
    Half start, frequency;
};

template <bool PLAIN>
__device__ __forceinline__ void remember_tile(
    const View& view, const Rounds& rounds, const Rules& rules, unsigned* history, unsigned lane)
{
#pragma unroll 1
    for (unsigned group = 0; group < GROUPS; group += AHEAD / GROUP) {
        Element elements[AHEAD];
        bool inside[AHEAD];
#pragma unroll
        for (unsigned k = 0; k < AHEAD; ++k) {
            elements[k] = view.element<PLAIN>(rounds.groups[group + k / GROUP], k % GROUP, inside[k]);
        }
#pragma unroll
        for (unsigned g = 0; g < AHEAD / GROUP; ++g) {
            unsigned sizes[GROUP], missed;
#pragma unroll
            for (unsigned k = 0; k < GROUP; ++k) {
                const unsigned size = magnitude_of(numbers_of<PLAIN>(elements[g * GROUP + k], rules, missed));
                sizes[k] = inside[g * GROUP + k] ? size : 0;
            }
            remember(history, group + g, lane, sizes);
        }
    }
}

// Put a tile's numbers, the last first; false where they do not fit. Memory is read a group ahead.
template <bool PLAIN>
__device__ __forceinline__ bool push_tile(
    const View& view, const Rounds& rounds, const Rules& rules, unsigned* history, const Symbol* symbols,
    Writer& writer)
{
    const unsigned lane = writer.lane;
    remember_tile<PLAIN>(view, rounds, rules, history, lane);
    Element ahead[GROUP];
    bool inside[GROUP];
#pragma unroll
    for (unsigned k = 0; k < GROUP; ++k) ahead[k] = view.element<PLAIN>(rounds.groups[GROUPS - 1], k, inside[k]);
#pragma unroll 1
    for (unsigned group = GROUPS; group-- > 0;) {
        Numbers numbers[GROUP];
        unsigned sizes[GROUP], missed;
#pragma unroll
        for (unsigned k = 0; k < GROUP; ++k) {
            numbers[k] = numbers_of<PLAIN>(ahead[k], rules, missed);
            if (!inside[k]) numbers[k] = {};
            sizes[k] = magnitude_of(numbers[k]);
        }
        const unsigned next = rounds.groups[group ? group - 1 : 0];
#pragma unroll
        for (unsigned k = 0; k < GROUP; ++k) ahead[k] = view.element<PLAIN>(next, k, inside[k]);
        const Context context(history, rounds, group, lane);
#pragma unroll
        for (unsigned k = GROUP; k-- > 0;) {
            if (writer.top < MOST_ROUND_WORDS) return false;
            const unsigned bucket = context.bucket(k, sizes);
#pragma unroll
            for (unsigned c = COMPONENTS; c-- > 0;) {
                unsigned bits;
                const unsigned z = zigzag(numbers[k].of[c]), token = token_of(z, bits);
                const Symbol symbol = symbols[table_of(c, bucket, numbers[k].of[0]) * TOKENS + token];
                const float inverse = __fdividef(1.0f, (float)symbol.frequency);
                if (__any_sync(WHOLE_WARP, bits)) writer.push_raw(z, bits);
                writer.push(symbol.start, symbol.frequency, inverse);
            }
        }
    }
    return true;
}

// slots (frames, n_tiles, SLOT_HALVES): a segment's states are at the slot of its first tile, its words at the
// end of its slots behind them. For each segment: words (frames, n_tiles): their number; sizes (frames, n_tiles):
// the segment's bytes, ~0 where it does not fit, 0 where there is none.
extern "C" __global__ void __launch_bounds__(THREADS) small_encode(
    const Element* values, Word frame_elements, Order order, unsigned n_tiles, Rules rules, const Half* starts,
    const Plan* plans, Half* slots, unsigned* words, unsigned* sizes)
{
    __shared__ unsigned histories[WARPS][TILE / 4];
    __shared__ Symbol symbols[TABLES * TOKENS];
    __shared__ Rounds rounds;
    const Share share = own_share();
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, frame = share.frame;
    const unsigned segment = share.first + warp;
    const Plan plan = plans[frame];
    if (segment >= plan.n_segments && segment < n_tiles) sizes[frame * n_tiles + segment] = 0;
    if (share.first >= plan.n_segments) return;
    for (unsigned k = threadIdx.x; k < TABLES * TOKENS; k += THREADS) {
        const Half* own = starts + (Word)frame * STARTS + k / TOKENS * (TOKENS + 1) + k % TOKENS;
        symbols[k] = {own[0], (Half)(own[1] - own[0])};
    }
    fill_rounds(rounds, order);
    __syncthreads();
    if (segment >= plan.n_segments) return;
    const unsigned lane_number = deposited<0, 5>(lane, order.axes);
    const unsigned begin = segment_begin(segment, plan), stop = segment_stop(segment, plan, n_tiles);
    View view = view_of(values + frame * frame_elements, frame_elements, order);
    Writer writer = writer_of(slots + ((Word)frame * n_tiles + begin) * SLOT_HALVES, stop - begin, lane);
    const bool plain = is_plain(rules, frame_elements);
    bool fits = true;
    for (unsigned tile = stop; fits && tile-- > begin;) {
        view.first = tile_offset(tile, order) + lane_number;
        fits = plain ? push_tile<true>(view, rounds, rules, histories[warp], symbols, writer)
                     : push_tile<false>(view, rounds, rules, histories[warp], symbols, writer);
    }
    put_segment(writer, fits, frame * n_tiles + segment, words, sizes);
}
