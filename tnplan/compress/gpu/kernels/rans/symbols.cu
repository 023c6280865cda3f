// The coder `small` writes frames under a predictor. Nearly all of their numbers are 0, so that a frame has few segments. A
// warp that codes one has a GPU's scheduler for itself, and what it does in a round takes as long as the instructions that
// wait for one another. So all that needs no state is done where numbers are counted, by a warp for each tile.

#include "count.cuh"
#include "writer.cuh"

// A number as it is kept: its token, numbered through all tables, and below that its raw bits. Numbers of 32-bit reals have
// at most 20 of these and tokens below 52.
#define KEPT_RAW_LOG2 (sizeof(BITS) == 4 ? 20 : 32)
#define KEPT_TOKENS (sizeof(BITS) == 4 ? 52 : TOKENS)

// Where a lane keeps a tile's numbers: (ROUNDS, COMPONENTS, LANES).
struct Keep {
    BITS* lane;

    __device__ __forceinline__ void operator()(
        unsigned round, unsigned c, unsigned table, unsigned token, unsigned z, unsigned bits) const
    {
        const BITS symbol = table * KEPT_TOKENS + token;
        lane[(round * COMPONENTS + c) * LANES] = symbol << KEPT_RAW_LOG2 | (z & ((1u << bits) - 1));
    }
};

// Residuals, whole numbers, to counts (frames, TABLES, TOKENS) and raw_bits (frames), which start from zero, and to
// kept_symbols (frames, n_tiles, ROUNDS, COMPONENTS, LANES). A warp takes a tile.
extern "C" __global__ void __launch_bounds__(THREADS) keep_symbols(
    const Element* residuals, Word frame_elements, Order order, unsigned n_tiles, Rules rules, unsigned* counts,
    Word* raw_bits, BITS* kept_symbols)
{
    __shared__ unsigned histories[WARPS][TILE / 4], sums[TABLES * TOKENS];
    __shared__ Rounds rounds;
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, frame = blockIdx.y;
    const unsigned tile = blockIdx.x * WARPS + warp;
    for (unsigned k = threadIdx.x; k < TABLES * TOKENS; k += THREADS) sums[k] = 0;
    fill_rounds(rounds, order);
    __syncthreads();
    View view = view_of(residuals + frame * frame_elements, frame_elements, order);
    view.first = tile_offset(tile, order) + deposited<0, 5>(lane, order.axes);
    Word raw = 0;
    if (tile < n_tiles) {
        const Keep keep = {kept_symbols + ((Word)frame * n_tiles + tile) * TILE * COMPONENTS + lane};
        const bool whole = frame_elements % TILE == 0;
        unsigned* history = histories[warp];
        raw = (whole ? counted_tile<true, true>(view, rounds, rules, history, sums, keep)
                     : counted_tile<false, true>(view, rounds, rules, history, sums, keep)).raw;
    }
    add_counts(frame, raw, sums, counts, raw_bits);
}

// What coding takes of a token: its first slot, its frequency and how many raw bits follow, in 12, 13 and 7 bits; and
// 2^32 over the frequency, rounded down, or 2^32 - 1.
struct Symbol {
    unsigned packed, inverse;

    __device__ __forceinline__ unsigned start() const { return packed & (TOTAL - 1); }
    __device__ __forceinline__ unsigned frequency() const { return packed >> TOTAL_LOG2 & (2 * TOTAL - 1); }
    __device__ __forceinline__ unsigned bits() const { return packed >> (2 * TOTAL_LOG2 + 1); }
};

__device__ __forceinline__ Symbol symbol_of(const Half* starts, unsigned table, unsigned token)
{
    const Half* own = starts + table * (TOKENS + 1) + token;
    const unsigned frequency = own[1] - own[0], bits = token < DIRECT ? 0 : (token - DIRECT) / 2 + 3;
    const unsigned packed = (own[0] & (TOTAL - 1)) | frequency << TOTAL_LOG2 | bits << (2 * TOTAL_LOG2 + 1);
    return {packed, frequency > 1 ? (unsigned)((1ull << 32) / frequency) : ~0u};
}

// Writer::push in fewer steps that wait for one another; words are filled downwards from `end`. The
// quotient is at most 1 too small.
__device__ __forceinline__ void push_symbol(Writer& writer, Half*& end, const Symbol& symbol)
{
    const unsigned frequency = symbol.frequency(), more = TOTAL - frequency;
    const bool full = writer.state > (frequency << (32 - TOTAL_LOG2)) - 1;
    const unsigned all = __ballot_sync(WHOLE_WARP, full);
    Half* at = end - 1 - (int)__popc(all & writer.above);
    if (full) *at = (Half)writer.state;
    end -= (int)__popc(all);
    const unsigned state = full ? writer.state >> 16 : writer.state, quotient = __umulhi(state, symbol.inverse);
    writer.state = state + symbol.start() + quotient * more + (state - quotient * frequency >= frequency ? more : 0);
}

// Put a group of rounds, the last first; false where they do not fit. In most groups no raw bits follow, and all fit.
__device__ __forceinline__ bool push_group(
    const BITS (&numbers)[GROUP * COMPONENTS], const Symbol (&symbols)[GROUP * COMPONENTS], Writer& writer)
{
    Half* end = writer.words + writer.top;
    unsigned all = 0;
#pragma unroll
    for (unsigned k = 0; k < GROUP * COMPONENTS; ++k) all |= symbols[k].bits();
    const bool is_short = !__any_sync(WHOLE_WARP, all) && writer.top >= GROUP * MOST_ROUND_WORDS;
    if (is_short) {
#pragma unroll
        for (unsigned k = GROUP * COMPONENTS; k-- > 0;) push_symbol(writer, end, symbols[k]);
        writer.top = (unsigned)(end - writer.words);
        return true;
    }
#pragma unroll
    for (unsigned k = GROUP * COMPONENTS; k-- > 0;) {
        if (k % COMPONENTS == COMPONENTS - 1 && writer.top < MOST_ROUND_WORDS) return false;
        const unsigned bits = symbols[k].bits();
        if (__any_sync(WHOLE_WARP, bits)) writer.push_raw((unsigned)numbers[k], bits);
        end = writer.words + writer.top;
        push_symbol(writer, end, symbols[k]);
        writer.top = (unsigned)(end - writer.words);
    }
    return true;
}

// Put so many rounds, the last first; false where they do not fit. Memory is read a group ahead.
__device__ __forceinline__ bool push_rounds(const BITS* numbers, unsigned count, const Symbol* table, Writer& writer)
{
    const unsigned step = COMPONENTS * LANES;
    BITS ahead[GROUP * COMPONENTS];
#pragma unroll
    for (unsigned k = 0; k < GROUP * COMPONENTS; ++k) ahead[k] = numbers[(count - GROUP) * step + k * LANES];
#pragma unroll 1
    for (unsigned rest = count; rest; rest -= GROUP) {
        BITS now[GROUP * COMPONENTS];
        Symbol symbols[GROUP * COMPONENTS];
        const BITS* next = numbers + (rest > GROUP ? rest - 2 * GROUP : 0) * step;
#pragma unroll
        for (unsigned k = 0; k < GROUP * COMPONENTS; ++k) {
            now[k] = ahead[k], ahead[k] = next[k * LANES];
            symbols[k] = table[(unsigned)(now[k] >> KEPT_RAW_LOG2)];
        }
        if (!push_group(now, symbols, writer)) return false;
    }
    return true;
}

// `small_encode` for numbers that are kept.
extern "C" __global__ void __launch_bounds__(THREADS) encode_symbols(
    const BITS* kept_symbols, unsigned n_tiles, const Half* starts, const Plan* plans, Half* slots, unsigned* words,
    unsigned* sizes)
{
    __shared__ Symbol symbols[TABLES * KEPT_TOKENS];
    const Share share = own_share();
    const unsigned lane = threadIdx.x % LANES, frame = share.frame, segment = share.first + threadIdx.x / LANES;
    const Plan plan = plans[frame];
    if (segment >= plan.n_segments && segment < n_tiles) sizes[frame * n_tiles + segment] = 0;
    if (share.first >= plan.n_segments) return;
    for (unsigned k = threadIdx.x; k < TABLES * KEPT_TOKENS; k += THREADS) {
        symbols[k] = symbol_of(starts + (Word)frame * STARTS, k / KEPT_TOKENS, k % KEPT_TOKENS);
    }
    __syncthreads();
    if (segment >= plan.n_segments) return;
    const unsigned begin = segment_begin(segment, plan), stop = segment_stop(segment, plan, n_tiles);
    Writer writer = writer_of(slots + ((Word)frame * n_tiles + begin) * SLOT_HALVES, stop - begin, lane);
    const BITS* own = kept_symbols + ((Word)frame * n_tiles + begin) * TILE * COMPONENTS + lane;
    const bool fits = push_rounds(own, (stop - begin) * ROUNDS, symbols, writer);
    put_segment(writer, fits, frame * n_tiles + segment, words, sizes);
}
