// The coder `small` reads.

#include "small.cuh"
#include "checksum.cuh"

// Words that a warp brings at once, and how many of them its ring holds.
#define PART (2 * LANES)
#define RING (4 * PART)
// Pairs of words of a checksum that a thread has in flight.
#define AT_ONCE 2

// Bring two words to shared memory, of which `bytes` are there, the rest 0; copies may be under way until arrived().
__device__ __forceinline__ void bring(unsigned* into, const unsigned* from, unsigned bytes)
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2; cp.async.commit_group;" ::
                 "r"((unsigned)__cvta_generic_to_shared(into)), "l"(from), "r"(bytes) : "memory");
#else
    *into = bytes == 0 ? 0 : bytes == 2 ? *from & 0xffff : *from;
#endif
}

// Wait for all copies of the warp but its last.
__device__ __forceinline__ void arrived()
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
    __syncwarp();
}

// A segment's words, of which `taken` have been taken. The ring has the part in which the next one is and the part
// behind it; the one after those is on its way.
struct Reader {
    const unsigned* pairs;
    unsigned* ring;
    unsigned count, taken;

    __device__ __forceinline__ void bring_part(unsigned part, unsigned lane) const
    {
        const unsigned place = part * PART + 2 * lane;
        const bool any = place < count;
        bring(ring + place % RING / 2, any ? pairs + place / 2 : pairs, any ? min(2u, count - place) * 2 : 0);
    }
};

__device__ __forceinline__ Reader reader_of(const unsigned* pairs, unsigned count, unsigned* ring, unsigned lane)
{
    const Reader reader = {pairs, ring, count, 0};
    for (unsigned part = 0; part < 3; ++part) reader.bring_part(part, lane);
    arrived();
    return reader;
}

// Lanes whose state is low take a word each, in the order of the lanes; past the end they take 0.
__device__ __forceinline__ void refill(unsigned& state, bool active, Reader& reader, unsigned lane)
{
    const bool low = active && state < LOW;
    const unsigned all = __ballot_sync(WHOLE_WARP, low);
    if (low) {
        const unsigned place = reader.taken + __popc(all & lanes_below(lane));
        state = state << 16 | ((const Half*)reader.ring)[place % RING];
    }
    const unsigned part = reader.taken / PART;
    reader.taken += __popc(all);
    if (reader.taken / PART != part) {
        reader.bring_part(part + 3, lane);
        arrived();
    }
}

// The next number in a table: `starts` of its tokens, and the token of the first slot of each part. In sparse frames
// rounds that have nothing but token 0, the number 0, need no more than that.
template <bool SPARSE>
__device__ __forceinline__ int take_number(
    unsigned& state, const Half* starts, const Byte* parts, Reader& reader, unsigned lane)
{
    const unsigned slot = state & (TOTAL - 1), zeros = SPARSE ? starts[1] : 0;
    const bool other = !SPARSE || slot >= zeros, others = !SPARSE || __any_sync(WHOLE_WARP, other);
    unsigned token = 0, start = 0, stop = zeros;
    if (other) {
        token = parts[slot - zeros >> part_log2(zeros)], start = starts[token], stop = starts[token + 1];
#pragma unroll 1
        while (slot >= stop) {
            ++token;
            start = stop;
            stop = starts[token + 1];
        }
    }
    state = (stop - start) * (state >> TOTAL_LOG2) + slot - start;
    refill(state, true, reader, lane);
    if (!others) return 0;
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

// The same contexts as Context's where a group's rounds are read two at a time, in a loop: of the rounds to come the
// sums are in the low halves; magnitudes of the pair being read, of those one and two pairs before, and of all.
struct Nearby : Sums {
    const unsigned* scales;
    bool first;
    unsigned own[2], before[2], earlier[2], sizes[2];

    __device__ __forceinline__ Nearby(const unsigned* history, const Rounds& rounds, unsigned group, unsigned lane)
        : Sums(history, group, lane), scales(rounds.scales + __popc(group)), first(group == 0), own(), before(),
          earlier(), sizes()
    {
    }

    // The context bucket of round k of a pair.
    __device__ __forceinline__ unsigned bucket(unsigned pair, unsigned k) const
    {
        if (k == 0 && pair == 0 && first) return FIRST;
        unsigned sum = (k ? odd[0] : even[0]) & 0xffff;
        if (k) sum += own[0];
        if (pair & 1) sum += before[k];
        if (pair & 2) sum += earlier[k];
        return bucket_of(sum, scales[k + __popc(pair)]);
    }

    // Go on to the next pair.
    __device__ __forceinline__ void turn()
    {
        even[0] = __funnelshift_l(even[0], even[1], 16), even[1] >>= 16;
        odd[0] = __funnelshift_l(odd[0], odd[1], 16), odd[1] >>= 16;
        sizes[0] = __funnelshift_l(sizes[0], sizes[1], 16);
        sizes[1] = sizes[1] >> 16 | own[0] << 16 | own[1] << 24;
#pragma unroll
        for (unsigned k = 0; k < 2; ++k) earlier[k] = before[k], before[k] = own[k];
    }
};

// Decode a tile's rounds, two at a time, and put its values.
template <bool PLAIN, bool SPARSE>
__device__ __forceinline__ void take_tile(
    const View& view, const Rounds& rounds, const Rules& rules, unsigned* history, const Half* starts,
    const Byte* parts, Element* into, unsigned& state, Reader& reader)
{
    const unsigned lane = threadIdx.x % LANES;
#pragma unroll 1
    for (unsigned group = 0; group < GROUPS; ++group) {
        Nearby nearby(history, rounds, group, lane);
        const unsigned first = view.first + rounds.groups[group];
#pragma unroll 1
        for (unsigned pair = 0; pair < GROUP / 2; ++pair) {
            const unsigned begin = first + (pair & 1 ? view.local[2] : 0) + (pair & 2 ? view.local[4] : 0);
#pragma unroll
            for (unsigned k = 0; k < 2; ++k) {
                const unsigned bucket = nearby.bucket(pair, k), place = begin + (k ? view.local[1] : 0);
                Numbers numbers = {};
                Element element;
#pragma unroll
                for (unsigned c = 0; c < COMPONENTS; ++c) {
                    const unsigned which = table_of(c, bucket, numbers.of[0]);
                    numbers.of[c] = take_number<SPARSE>(
                        state, starts + which * (TOKENS + 1), parts + which * SLOTS, reader, lane);
                    element.part[c] = restored<PLAIN>(numbers.of[c], rules.of[c]);
                }
                nearby.own[k] = magnitude_of(numbers);
                if (PLAIN || place < view.frame_elements) into[place] = element;
            }
            nearby.turn();
        }
        history[2 * group * LANES + lane] = nearby.sizes[0];
        history[(2 * group + 1) * LANES + lane] = nearby.sizes[1];
    }
}

// What small_index has found of data; values are filled, those of frames that are stored raw too. A frame is
// `damaged` where a segment's words or states do not come out even. A warp decodes a segment; the blocks behind those of
// all segments add words to the frames' sums, while the longest segments are still under way.
extern "C" __global__ void __launch_bounds__(THREADS) small_decode(
    const Byte* data, Frame* frames, const Half* starts, const Byte* all_coarse, const Plan* plans,
    const Word* segment_starts, Word frame_elements, Order order, unsigned n_tiles, Rules rules, Element* values)
{
    __shared__ unsigned histories[WARPS][TILE / 4], rings[WARPS][RING / 2];
    __shared__ Byte __align__(4) parts[TABLES * SLOTS];
    __shared__ Half table[STARTS];
    __shared__ Rounds rounds;
    __shared__ Word sums[WARPS];
    const Share share = own_share();
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, number = share.frame;
    const unsigned segment = share.first + warp;
    Frame& frame = frames[number];
    const unsigned shares = (n_tiles + WARPS - 1) / WARPS;
    if (share.first >= shares * WARPS) {
        add_words<AT_ONCE>(data, frame, share.first / WARPS - shares, gridDim.x - shares, sums);
        return;
    }
    Element* into = values + number * frame_elements;
    if (frame.kind == RAW) {
        copy_raw((const REAL*)(data + frame.start + 8), (REAL*)into, frame_elements, segment, lane, LANES);
    }
    if (frame.kind != CODED) return;
    const Plan plan = plans[number];
    if (share.first >= plan.n_segments) return;
    for (unsigned k = threadIdx.x; k < STARTS; k += THREADS) table[k] = starts[(Word)number * STARTS + k];
    const unsigned* coarse = (const unsigned*)(all_coarse + (Word)number * TABLES * SLOTS);
    for (unsigned k = threadIdx.x; k < TABLES * SLOTS / 4; k += THREADS) ((unsigned*)parts)[k] = coarse[k];
    fill_rounds(rounds, order);
    __syncthreads();
    if (segment >= plan.n_segments) return;
    const unsigned* counts = (const unsigned*)(data + frame.start + CODED_HEAD_BYTES + plan.words_at);
    const unsigned* own = counts + plan.n_segments + segment_starts[(Word)number * n_tiles + segment] / 4;
    unsigned state = own[lane];
    Reader reader = reader_of(own + LANES, counts[segment], rings[warp], lane);
    const unsigned lane_number = deposited<0, 5>(lane, order.axes);
    const unsigned stop = segment_stop(segment, plan, n_tiles);
    View view = view_of(values, frame_elements, order);
    const bool plain = is_plain(rules, frame_elements), sparse = is_sparse(frame, n_tiles);
    for (unsigned tile = segment_begin(segment, plan); tile < stop && reader.taken <= reader.count; ++tile) {
        view.first = tile_offset(tile, order) + lane_number;
        unsigned* history = histories[warp];
        if (!plain && sparse) take_tile<false, true>(view, rounds, rules, history, table, parts, into, state, reader);
        else if (!plain) take_tile<false, false>(view, rounds, rules, history, table, parts, into, state, reader);
        else if (sparse) take_tile<true, true>(view, rounds, rules, history, table, parts, into, state, reader);
        else take_tile<true, false>(view, rounds, rules, history, table, parts, into, state, reader);
    }
    if (state != LOW || reader.taken != reader.count) frame.damaged = 1;
}
