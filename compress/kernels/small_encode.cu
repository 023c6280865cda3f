// The coder `small` writes: tokens are counted, segments coded, and brought to their places in the stream.

#include "small.cuh"

// counts (frames, TABLES, TOKENS) and raw_bits (frames) start from zero; exact (frames, COMPONENTS, n_tiles).
// A warp counts a tile.
extern "C" __global__ void __launch_bounds__(THREADS) small_count(
    const Element* values, Word frame_elements, Order order, unsigned n_tiles, Rules rules, unsigned* counts,
    Word* raw_bits, unsigned* exact)
{
    __shared__ Byte histories[WARPS][TILE];
    __shared__ unsigned sums[TABLES * TOKENS], rounds[ROUNDS];
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, frame = blockIdx.y;
    const unsigned tile = blockIdx.x * WARPS + warp;
    for (unsigned k = threadIdx.x; k < TABLES * TOKENS; k += THREADS) sums[k] = 0;
    fill_rounds(rounds, order);
    __syncthreads();
    const Word first = (Word)tile_offset(tile, order) + deposited<0, 5>(lane, order.axes);
    const View view = {values + frame * frame_elements, frame_elements, first, rounds};
    Word raw = 0;
    unsigned missing[COMPONENTS] = {};
    for (unsigned begin = 0; tile < n_tiles && begin < ROUNDS; begin += AHEAD) {
        Element elements[AHEAD];
        bool inside[AHEAD];
#pragma unroll
        for (unsigned k = 0; k < AHEAD; ++k) elements[k] = view.element(begin + k, inside[k]);
#pragma unroll
        for (unsigned k = 0; k < AHEAD; ++k) {
            const unsigned r = begin + k;
            unsigned missed;
            Numbers numbers = numbers_of(elements[k], rules, missed);
            if (!inside[k]) numbers = {}, missed = 0;
            const unsigned bucket = bucket_of(histories[warp], r, lane);
            histories[warp][r * LANES + lane] = magnitude_of(numbers);
            for (unsigned c = 0; c < COMPONENTS; ++c) {
                unsigned bits;
                const unsigned token = token_of(zigzag(numbers.of[c]), bits);
                atomicAdd(&sums[table_of(c, bucket, numbers.of[0]) * TOKENS + token], 1u);
                raw += bits;
                missing[c] += missed >> c & 1;
            }
        }
    }
    for (unsigned step = LANES / 2; step; step /= 2) raw += __shfl_down_sync(WHOLE_WARP, raw, step);
    if (lane == 0 && raw) atomicAdd(&raw_bits[frame], raw);
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        const unsigned sum = __reduce_add_sync(WHOLE_WARP, missing[c]);
        if (lane == 0 && tile < n_tiles) exact[((Word)frame * COMPONENTS + c) * n_tiles + tile] = sum;
    }
    __syncthreads();
    for (unsigned k = threadIdx.x; k < TABLES * TOKENS; k += THREADS) {
        if (sums[k]) atomicAdd(&counts[(Word)frame * TABLES * TOKENS + k], sums[k]);
    }
}

// Put a symbol on the states of the lanes that are `active`; words are filled downwards from `top`.
__device__ __forceinline__ void push(
    unsigned& state, bool active, unsigned start, unsigned frequency, Half* words, unsigned& top, unsigned lane)
{
    const bool full = active && state >= (Word)frequency << (32 - TOTAL_LOG2);
    const unsigned all = __ballot_sync(WHOLE_WARP, full);
    if (full) {
        words[top - 1 - __popc(all & ~lanes_below(lane) & ~(1u << lane))] = (Half)state;
        state >>= 16;
    }
    top -= __popc(all);
    if (active) state = (state / frequency << TOTAL_LOG2) + state % frequency + start;
}

__device__ __forceinline__ void push_number(
    unsigned& state, int number, const Half* starts, Half* words, unsigned& top, unsigned lane)
{
    const unsigned z = zigzag(number);
    unsigned bits;
    const unsigned token = token_of(z, bits), n_parts = parts_of(bits);
    const unsigned longest = __reduce_max_sync(WHOLE_WARP, n_parts);
    for (unsigned part = longest; part-- > 0;) {
        const bool active = n_parts > part;
        const unsigned below = active ? RAW_LOG2 * (n_parts - 1 - part) : 0;
        const unsigned width = active ? min(RAW_LOG2, bits - below) : 0;
        const unsigned frequency = 1u << (TOTAL_LOG2 - width);
        push(state, active, (z >> below & ((1u << width) - 1)) * frequency, frequency, words, top, lane);
    }
    push(state, true, starts[token], starts[token + 1] - starts[token], words, top, lane);
}

// slots (frames, n_tiles, SLOT_HALVES): a segment's states are at the slot of its first tile, its words at the
// end of its room behind them. For each segment: words (frames, n_tiles): their number; sizes (frames, n_tiles):
// the segment's bytes, ~0 where it does not fit, 0 where there is none.
extern "C" __global__ void __launch_bounds__(THREADS) small_encode(
    const Element* values, Word frame_elements, Order order, unsigned n_tiles, Rules rules, const Half* starts,
    const Plan* plans, Half* slots, unsigned* words, unsigned* sizes)
{
    __shared__ Byte histories[WARPS][TILE];
    __shared__ Half table[STARTS];
    __shared__ unsigned rounds[ROUNDS];
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, frame = blockIdx.y;
    const unsigned segment = blockIdx.x * WARPS + warp;
    const Plan plan = plans[frame];
    if (segment >= plan.n_segments && segment < n_tiles) sizes[frame * n_tiles + segment] = 0;
    if (blockIdx.x * WARPS >= plan.n_segments) return;
    for (unsigned k = threadIdx.x; k < STARTS; k += THREADS) table[k] = starts[(Word)frame * STARTS + k];
    fill_rounds(rounds, order);
    __syncthreads();
    if (segment >= plan.n_segments) return;
    const unsigned lane_number = deposited<0, 5>(lane, order.axes);
    const unsigned begin = segment_begin(segment, plan), stop = segment_stop(segment, plan, n_tiles);
    const unsigned room = (stop - begin) * TILE_WORDS + MOST_ROUND_WORDS;
    Half* own = slots + ((Word)frame * n_tiles + begin) * SLOT_HALVES;
    Byte* history = histories[warp];
    unsigned state = LOW, top = room, missed;
    for (unsigned tile = stop; tile-- > begin;) {
        const Word first = (Word)tile_offset(tile, order) + lane_number;
        const View view = {values + frame * frame_elements, frame_elements, first, rounds};
        Element elements[AHEAD];
        bool inside[AHEAD];
        for (unsigned r = 0; r < ROUNDS; r += AHEAD) {
#pragma unroll
            for (unsigned k = 0; k < AHEAD; ++k) elements[k] = view.element(r + k, inside[k]);
#pragma unroll
            for (unsigned k = 0; k < AHEAD; ++k) {
                const unsigned size = magnitude_of(numbers_of(elements[k], rules, missed));
                history[(r + k) * LANES + lane] = inside[k] ? size : 0;
            }
        }
        // Two rounds, since what pushes a number is long.
        for (unsigned behind = ROUNDS; behind; behind -= 2) {
#pragma unroll
            for (unsigned k = 0; k < 2; ++k) elements[k] = view.element(behind - 1 - k, inside[k]);
#pragma unroll
            for (unsigned k = 0; k < 2; ++k) {
                if (top < MOST_ROUND_WORDS) {
                    if (lane == 0) sizes[frame * n_tiles + segment] = ~0u;
                    return;
                }
                Numbers numbers = numbers_of(elements[k], rules, missed);
                if (!inside[k]) numbers = {};
                const unsigned bucket = bucket_of(history, behind - 1 - k, lane);
#pragma unroll
                for (unsigned c = COMPONENTS; c-- > 0;) {
                    const unsigned which = table_of(c, bucket, numbers.of[0]);
                    push_number(
                        state, numbers.of[c], table + which * (TOKENS + 1), own + STATES_BYTES / 2, top, lane);
                }
            }
        }
    }
    ((unsigned*)own)[lane] = state;
    if (lane == 0) {
        words[frame * n_tiles + segment] = room - top;
        sizes[frame * n_tiles + segment] = STATES_BYTES + (2 * (room - top) + 3) / 4 * 4;
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
