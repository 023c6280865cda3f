// The coder `small` reads.

#include "small.cuh"

// A segment's words, of which the lanes hold those from `base` on: 32 each of now, next and after.
struct Reader {
    const Half* words;
    unsigned count, at, base, now, next, after;

    __device__ __forceinline__ unsigned word(unsigned place) const { return place < count ? words[place] : 0; }
};

// Lanes whose state is low take a word each, in the order of the lanes; past the end they take 0.
__device__ __forceinline__ void refill(unsigned& state, bool active, Reader& reader, unsigned lane)
{
    const bool low = active && state < LOW;
    const unsigned all = __ballot_sync(WHOLE_WARP, low);
    if (!all) return;
    const unsigned place = reader.at - reader.base + __popc(all & lanes_below(lane));
    const unsigned now = __shfl_sync(WHOLE_WARP, reader.now, place), next = __shfl_sync(WHOLE_WARP, reader.next, place);
    if (low) state = state << 16 | (place < LANES ? now : next);
    reader.at += __popc(all);
    if (reader.at - reader.base >= LANES) {
        reader.base += LANES;
        reader.now = reader.next;
        reader.next = reader.after;
        reader.after = reader.word(reader.base + 2 * LANES + lane);
    }
}

// `parts`: for each part of the table's slots the token of the first, with its first slot and its frequency.
__device__ __forceinline__ int take_number(
    unsigned& state, const Half* starts, const unsigned* parts, Reader& reader, unsigned lane)
{
    const unsigned slot = state & (TOTAL - 1), at = slot / (TOTAL / SLOTS), part = parts[at];
    unsigned token = part % 128, start = part / 128 % TOTAL, frequency = part / 128 / TOTAL;
    if (slot - start >= frequency) {
        // The last token that starts at the slot or before it is none after the first of the next part.
        unsigned last = at + 1 < SLOTS ? parts[at + 1] % 128 : TOKENS - 1;
#pragma unroll 1
        while (token < last) {
            const unsigned middle = (token + last + 1) / 2;
            const bool before = starts[middle] <= slot;
            token = before ? middle : token;
            last = before ? last : middle - 1;
        }
        start = starts[token];
        frequency = starts[token + 1] - start;
    }
    state = frequency * (state >> TOTAL_LOG2) + slot - start;
    refill(state, true, reader, lane);
    unsigned bits = 0, z = token;
    if (token >= DIRECT) {
        bits = 3 + (token - DIRECT) / 2;
        z = (2 + (token & 1)) << bits;
    }
#pragma unroll 1
    while (__any_sync(WHOLE_WARP, bits)) {
        const bool active = bits != 0;
        if (active) {
            const unsigned width = (bits - 1) % RAW_LOG2 + 1, rest = TOTAL_LOG2 - width;
            const unsigned part = state & (TOTAL - 1);
            state = (state >> TOTAL_LOG2 << rest) + (part & ((1u << rest) - 1));
            bits -= width;
            z |= part >> rest << bits;
        }
        refill(state, active, reader, lane);
    }
    return unzigzag(z);
}

// Decode a tile's rounds and put its values.
template <bool PLAIN>
__device__ __forceinline__ void take_tile(
    const View& view, const Rounds& rounds, const Rules& rules, unsigned* history, const Half* starts,
    const unsigned* parts, Element* into, unsigned& state, Reader& reader)
{
    const unsigned lane = threadIdx.x % LANES;
#pragma unroll 1
    for (unsigned group = 0; group < GROUPS; ++group) {
        const Context context(history, rounds, group, lane);
        const unsigned first = view.first + rounds.groups[group];
        unsigned sizes[GROUP];
#pragma unroll
        for (unsigned k = 0; k < GROUP; ++k) {
            const unsigned bucket = context.bucket(k, sizes), place = first + view.local[k];
            Numbers numbers = {};
            Element element;
#pragma unroll
            for (unsigned c = 0; c < COMPONENTS; ++c) {
                const unsigned which = table_of(c, bucket, numbers.of[0]);
                numbers.of[c] = take_number(state, starts + which * (TOKENS + 1), parts + which * SLOTS, reader, lane);
                element.part[c] = restored<PLAIN>(numbers.of[c], rules.of[c]);
            }
            sizes[k] = magnitude_of(numbers);
            if (PLAIN || place < view.frame_elements) into[place] = element;
        }
        remember(history, group, lane, sizes);
    }
}

// What small_index has found of data; values are filled, those of frames that are stored raw too. A frame is
// `damaged` where a segment's words or states do not come out even. A warp decodes a segment.
extern "C" __global__ void __launch_bounds__(THREADS) small_decode(
    const Byte* data, Frame* frames, const Half* starts, const Byte* all_coarse, const Plan* plans,
    const Word* segment_starts, Word frame_elements, Order order, unsigned n_tiles, Rules rules, Element* values)
{
    __shared__ unsigned histories[WARPS][TILE / 4], parts[TABLES * SLOTS];
    __shared__ Half table[STARTS];
    __shared__ Rounds rounds;
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, number = blockIdx.y;
    const unsigned segment = blockIdx.x * WARPS + warp;
    Frame& frame = frames[number];
    Element* into = values + number * frame_elements;
    if (frame.kind == RAW) {
        copy_raw((const REAL*)(data + frame.start + 8), (REAL*)into, frame_elements, segment, lane, LANES);
    }
    if (frame.kind != CODED) return;
    const Plan plan = plans[number];
    if (blockIdx.x * WARPS >= plan.n_segments) return;
    for (unsigned k = threadIdx.x; k < STARTS; k += THREADS) table[k] = starts[(Word)number * STARTS + k];
    __syncthreads();
    for (unsigned k = threadIdx.x; k < TABLES * SLOTS; k += THREADS) {
        const unsigned token = all_coarse[(Word)number * TABLES * SLOTS + k];
        const Half* own = table + k / SLOTS * (TOKENS + 1) + token;
        parts[k] = token | own[0] * 128u | (unsigned)(own[1] - own[0]) * (128u * TOTAL);
    }
    fill_rounds(rounds, order);
    __syncthreads();
    if (segment >= plan.n_segments) return;
    const unsigned* counts = (const unsigned*)(data + frame.start + CODED_HEAD_BYTES + plan.words_at);
    const unsigned* own = counts + plan.n_segments + segment_starts[(Word)number * n_tiles + segment] / 4;
    unsigned state = own[lane];
    Reader reader = {(const Half*)(own + LANES), counts[segment], 0, 0, 0, 0, 0};
    reader.now = reader.word(lane), reader.next = reader.word(LANES + lane), reader.after = reader.word(2 * LANES + lane);
    const unsigned lane_number = deposited<0, 5>(lane, order.axes);
    const unsigned stop = segment_stop(segment, plan, n_tiles);
    View view = view_of(values, frame_elements, order);
    const bool plain = is_plain(rules, frame_elements);
    for (unsigned tile = segment_begin(segment, plan); tile < stop && reader.at <= reader.count; ++tile) {
        view.first = tile_offset(tile, order) + lane_number;
        if (plain) {
            take_tile<true>(view, rounds, rules, histories[warp], table, parts, into, state, reader);
        } else {
            take_tile<false>(view, rounds, rules, histories[warp], table, parts, into, state, reader);
        }
    }
    if (state != LOW || reader.at != reader.count) frame.damaged = 1;
}
