// The coder `small` writes: tokens are counted, segments coded, and brought to their places in the stream.

#include "rans.cuh"

// Loads in flight where only magnitudes are wanted.
#define AHEAD (VALUE_BYTES > 8 ? 8 : 128 / VALUE_BYTES)

// What a lane has counted besides tokens.
struct Counted {
    Word raw;
    unsigned missing[COMPONENTS];
};

template <bool PLAIN>
__device__ __forceinline__ Counted counted_tile(
    const View& view, const Rounds& rounds, const Rules& rules, unsigned* history, unsigned* sums)
{
    const unsigned lane = threadIdx.x % LANES;
    Counted counted = {};
#pragma unroll 1
    for (unsigned group = 0; group < GROUPS; ++group) {
        Element elements[GROUP];
        bool inside[GROUP];
        unsigned sizes[GROUP];
#pragma unroll
        for (unsigned k = 0; k < GROUP; ++k) elements[k] = view.element<PLAIN>(rounds.groups[group], k, inside[k]);
        const Context context(history, rounds, group, lane);
#pragma unroll
        for (unsigned k = 0; k < GROUP; ++k) {
            unsigned missed;
            Numbers numbers = numbers_of<PLAIN>(elements[k], rules, missed);
            if (!inside[k]) numbers = {}, missed = 0;
            const unsigned bucket = context.bucket(k, sizes);
            sizes[k] = magnitude_of(numbers);
#pragma unroll
            for (unsigned c = 0; c < COMPONENTS; ++c) {
                unsigned bits;
                const unsigned token = token_of(zigzag(numbers.of[c]), bits);
                atomicAdd(&sums[table_of(c, bucket, numbers.of[0]) * TOKENS + token], 1u);
                counted.raw += bits;
                counted.missing[c] += missed >> c & 1;
            }
        }
        remember(history, group, lane, sizes);
    }
    return counted;
}

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
        unsigned* history = histories[warp];
        counted = is_plain(rules, frame_elements) ? counted_tile<true>(view, rounds, rules, history, sums)
                                                  : counted_tile<false>(view, rounds, rules, history, sums);
    }
    Word raw = counted.raw;
    for (unsigned step = LANES / 2; step; step /= 2) raw += __shfl_down_sync(WHOLE_WARP, raw, step);
    if (lane == 0 && raw) atomicAdd(&raw_bits[frame], raw);
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        const unsigned sum = __reduce_add_sync(WHOLE_WARP, counted.missing[c]);
        if (lane == 0 && tile < n_tiles) exact[((Word)frame * COMPONENTS + c) * n_tiles + tile] = sum;
    }
    __syncthreads();
    for (unsigned k = threadIdx.x; k < TABLES * TOKENS; k += THREADS) {
        if (sums[k]) atomicAdd(&counts[(Word)frame * TABLES * TOKENS + k], sums[k]);
    }
}

// A warp's words, filled downwards from `top`, and a lane's state.
struct Writer {
    Half* words;
    unsigned top, state, lane, above;

    // Lanes whose state is full put a word each.
    __device__ __forceinline__ void spill(bool full)
    {
        const unsigned all = __ballot_sync(WHOLE_WARP, full);
        if (full) {
            words[top - 1 - __popc(all & above)] = (Half)state;
            state >>= 16;
        }
        top -= __popc(all);
    }

    // Put a symbol whose first slot and frequency are given. The quotient of numbers in single precision errs by
    // less than a quarter, since it is below 2^20.
    __device__ __forceinline__ void push(unsigned start, unsigned frequency, float inverse)
    {
        spill(state >> (32 - TOTAL_LOG2) >= frequency);
        unsigned quotient = (unsigned)((float)state * inverse);
        const int rest = (int)(state - quotient * frequency);
        quotient += (rest >= (int)frequency) - (rest < 0);
        state += quotient * (TOTAL - frequency) + start;
    }

    // Put `bits` raw bits of z, in parts.
    __device__ __forceinline__ void push_raw(unsigned z, unsigned bits)
    {
        const unsigned n_parts = parts_of(bits);
#pragma unroll 1
        for (unsigned part = __reduce_max_sync(WHOLE_WARP, n_parts); part-- > 0;) {
            const bool active = n_parts > part;
            const unsigned below = active ? RAW_LOG2 * (n_parts - 1 - part) : 0;
            const unsigned width = active ? min(RAW_LOG2, bits - below) : 0, rest = TOTAL_LOG2 - width;
            spill(active && state >> (32 - width) % 32);
            const unsigned value = z >> below & ((1u << width) - 1);
            if (active) state = (state >> rest << TOTAL_LOG2) + (value << rest) + (state & ((1u << rest) - 1));
        }
    }
};

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

// Put a tile's numbers, the last first; false where there is no room. Memory is read a group ahead.
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
// end of its room behind them. For each segment: words (frames, n_tiles): their number; sizes (frames, n_tiles):
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
    const unsigned room = (stop - begin) * TILE_WORDS + MOST_ROUND_WORDS;
    unsigned* own = (unsigned*)(slots + ((Word)frame * n_tiles + begin) * SLOT_HALVES);
    View view = view_of(values + frame * frame_elements, frame_elements, order);
    Writer writer = {(Half*)(own + LANES), room, LOW, lane, ~lanes_below(lane) & ~(1u << lane)};
    const bool plain = is_plain(rules, frame_elements);
    bool fits = true;
    for (unsigned tile = stop; fits && tile-- > begin;) {
        view.first = tile_offset(tile, order) + lane_number;
        fits = plain ? push_tile<true>(view, rounds, rules, histories[warp], symbols, writer)
                     : push_tile<false>(view, rounds, rules, histories[warp], symbols, writer);
    }
    own[lane] = writer.state;
    if (lane == 0) {
        const unsigned count = room - writer.top;
        words[frame * n_tiles + segment] = count;
        sizes[frame * n_tiles + segment] = fits ? STATES_BYTES + (2 * count + 3) / 4 * 4 : ~0u;
    }
}

// Bring heads and segments of coded frames to their places in the stream: a block a segment.
// segment_starts (frames, n_tiles): where each is behind the frame's head.
extern "C" __global__ void __launch_bounds__(THREADS) small_pack(
    const Half* slots, const unsigned* words, const Word* segment_starts, unsigned n_tiles, const Plan* plans,
    const unsigned* head_bytes, const Frame* frames, Byte* out)
{
    const unsigned segment = blockIdx.x, number = blockIdx.y;
    const Frame& frame = frames[number];
    const Plan plan = plans[number];
    if (frame.kind != CODED || segment >= plan.n_segments) return;
    const unsigned part = number * n_tiles + segment, count = words[part];
    unsigned* into = (unsigned*)(out + frame.start + CODED_HEAD_BYTES);
    if (segment == 0) {
        const unsigned* head = head_bytes + (Word)number * (HEAD_BYTES / 4);
        for (unsigned k = threadIdx.x; k < plan.words_at / 4; k += THREADS) into[k] = head[k];
    }
    into += plan.words_at / 4;
    if (threadIdx.x == 0) into[segment] = count;
    into += plan.n_segments + segment_starts[part] / 4;
    const unsigned begin = segment_begin(segment, plan), stop = segment_stop(segment, plan, n_tiles);
    const Half* own = slots + ((Word)number * n_tiles + begin) * SLOT_HALVES;
    if (threadIdx.x < LANES) into[threadIdx.x] = ((const unsigned*)own)[threadIdx.x];
    into += LANES;
    own += STATES_BYTES / 2 + (stop - begin) * TILE_WORDS + MOST_ROUND_WORDS - count;
    for (unsigned k = threadIdx.x; k < (count + 1) / 2; k += THREADS) {
        into[k] = own[2 * k] | (2 * k + 1 < count ? (unsigned)own[2 * k + 1] << 16 : 0);
    }
}
