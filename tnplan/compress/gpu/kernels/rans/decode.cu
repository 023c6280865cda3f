// The coder `small` reads.

#include "rans.cuh"
#include "../common/checksum.cuh"
#include "../common/wait.cuh"
#include "../common/read.cuh"
#include "../common/verdict.cuh"
#include "../common/claims.cuh"
#include "read.cuh"

// Tiles whose share of a payload a block sums.
#define TILES_A_CHECK 32
// Pairs of words of a checksum that a thread has in flight.
#define AT_ONCE 2

// 32 less the leading zeros.
__device__ __forceinline__ unsigned bit_length(unsigned number)
{
#ifdef __CUDA_ARCH__
    unsigned last;
    asm("bfind.u32 %0, %1;" : "=r"(last) : "r"(number));
    return last + 1;
#else
    return 32 - __clz(number);
#endif
}

// The same contexts as Context's where a group's rounds are read two at a time, in a loop: of the rounds to come the
// sums are in the low halves; magnitudes of the pair being read, of those one and two pairs before, and of all; and the
// scales of the pair's rounds.
struct Nearby {
    unsigned even[2], odd[2], own[2], before[2], earlier[2], sizes[2], scales[2], group, pair;

    __device__ __forceinline__ Nearby(const unsigned* history, const Rounds& rounds, unsigned number, unsigned lane)
        : even(), odd(), own(), before(), earlier(), sizes(), group(number), pair(0)
    {
#pragma unroll
        for (unsigned bit = 1; bit < GROUPS; bit *= 2) {
            if (!(group & bit)) continue;
#pragma unroll
            for (unsigned w = 0; w < 2; ++w) {
                const unsigned four = history[(2 * (group ^ bit) + w) * LANES + lane];
                even[w] += four & 0x00ff00ff;
                odd[w] += four >> 8 & 0x00ff00ff;
            }
        }
        for (unsigned k = 0; k < 2; ++k) scales[k] = rounds.scales[__popc(group) + k];
        // The tile's first round has no neighbours; this sum leads to FIRST.
        if (group == 0) even[0] = 1u << (FIRST - 1), scales[0] = 1u << 16;
    }

    // The bucket of the group's first round.
    __device__ __forceinline__ unsigned first_bucket() const
    {
        return bit_length((even[0] & 0xffff) * scales[0] >> 16);
    }

    // That of the second round of the pair, by the magnitude in the first.
    __device__ __forceinline__ unsigned second_bucket(unsigned size) const
    {
        const unsigned sum = (odd[0] & 0xffff) + (pair & 1 ? before[1] : 0) + (pair & 2 ? earlier[1] : 0);
        return bit_length((sum + size) * scales[1] >> 16);
    }

    // That of the first round of the next pair, when the first of this one is known.
    __device__ __forceinline__ unsigned next_bucket() const
    {
        const unsigned next = pair + 1, sum = (even[0] >> 16) + (next & 1 ? own[0] : 0) + (next & 2 ? before[0] : 0);
        return bit_length(sum * (pair == 1 ? scales[0] : scales[1]) >> 16);
    }

    // Go on to the next pair.
    __device__ __forceinline__ void turn(const Rounds& rounds)
    {
        even[0] = __funnelshift_l(even[0], even[1], 16), even[1] >>= 16;
        odd[0] = __funnelshift_l(odd[0], odd[1], 16), odd[1] >>= 16;
        sizes[0] = __funnelshift_l(sizes[0], sizes[1], 16);
        sizes[1] = sizes[1] >> 16 | own[0] << 16 | own[1] << 24;
#pragma unroll
        for (unsigned k = 0; k < 2; ++k) earlier[k] = before[k], before[k] = own[k];
        if (pair != 1) scales[0] = scales[1];
        ++pair;
        scales[1] = rounds.scales[__popc(group) + __popc(pair) + 1];
    }
};

// Decode a tile's rounds, two at a time, and put its values. In sparse frames what a round needs of its table is on its
// way before the states are known: of a second round as if the first one were of zeros.
template <bool PLAIN, bool SPARSE>
__device__ __forceinline__ void take_tile(
    const View& view, const Rounds& rounds, const Rules& rules, unsigned* history, const Tables& tables,
    Element* into, State& state, Reader& reader)
{
    const unsigned lane = threadIdx.x % LANES;
#pragma unroll 1
    for (unsigned group = 0; group < GROUPS; ++group) {
        Nearby nearby(history, rounds, group, lane);
        const unsigned start = view.first + rounds.groups[group];
        unsigned bucket = nearby.first_bucket(), first = SPARSE ? tables.firsts.get(bucket) : 0;
#pragma unroll 1
        for (unsigned pair = 0; pair < GROUP / 2; ++pair) {
            const unsigned begin = start + (pair & 1 ? view.local[2] : 0) + (pair & 2 ? view.local[4] : 0);
            unsigned after = 0, after_first = 0;
#pragma unroll
            for (unsigned k = 0; k < 2; ++k) {
                const unsigned place = begin + (k ? view.local[1] : 0);
                const unsigned second = SPARSE && k == 0 ? tables.firsts.get(nearby.second_bucket(0)) : 0;
                Numbers numbers = {};
                Element element;
#pragma unroll
                for (unsigned c = 0; c < COMPONENTS; ++c) {
                    const unsigned table = table_of(c, bucket, numbers.of[0]);
                    if (SPARSE && c) first = tables.firsts.get(table);
                    numbers.of[c] = take_number<SPARSE>(state, table, first, tables, reader, lane);
                    element.part[c] = restored<PLAIN>(numbers.of[c], rules.of[c]);
                }
                nearby.own[k] = magnitude_of(numbers);
                if (k == 0) {
                    after = nearby.next_bucket(), after_first = SPARSE ? tables.firsts.get(after) : 0;
                    bucket = nearby.second_bucket(nearby.own[0]), first = second;
                    if (SPARSE && __any_sync(WHOLE_WARP, nearby.own[0])) first = tables.firsts.get(bucket);
                }
                if (PLAIN || place < view.frame_elements) into[place] = element;
            }
            nearby.turn(rounds);
            bucket = after, first = after_first;
        }
        history[2 * group * LANES + lane] = nearby.sizes[0];
        history[(2 * group + 1) * LANES + lane] = nearby.sizes[1];
    }
}

// Decode a segment of a frame, into whose values; whether it is damaged, since its words or states do not come out
// even. A warp.
__device__ __forceinline__ bool take_segment(
    const Byte* data, const Frame& frame, const Plan& plan, unsigned segment, Word segment_start, Word frame_elements,
    const Order& order, unsigned n_tiles, const Rounds& rounds, const Rules& rules, const Tables& tables,
    unsigned* history, unsigned* ring, Element* into)
{
    const unsigned lane = threadIdx.x % LANES;
    const unsigned* counts = (const unsigned*)(data + frame.start + CODED_HEAD_BYTES + plan.words_at);
    const unsigned* own = counts + plan.n_segments + segment_start / 4;
    State state = {own[lane], 0, false};
    Reader reader = reader_of(own + LANES, __shfl_sync(WHOLE_WARP, counts[segment], 0), ring, lane);
    const unsigned lane_number = deposited<0, 5>(lane, order.axes);
    const unsigned stop = segment_stop(segment, plan, n_tiles);
    View view = view_of(into, frame_elements, order);
    const bool plain = is_plain(rules, frame_elements), sparse = is_sparse(frame, n_tiles);
    for (unsigned tile = segment_begin(segment, plan); tile < stop && reader.taken <= reader.count; ++tile) {
        view.first = tile_offset(tile, order) + lane_number;
        if (!plain && sparse) take_tile<false, true>(view, rounds, rules, history, tables, into, state, reader);
        else if (!plain) take_tile<false, false>(view, rounds, rules, history, tables, into, state, reader);
        else if (sparse) take_tile<true, true>(view, rounds, rules, history, tables, into, state, reader);
        else take_tile<true, false>(view, rounds, rules, history, tables, into, state, reader);
    }
    state.settle();
    return state.bits != LOW || reader.taken != reader.count;
}

// What a frame's segments are decoded with, brought to shared memory. A block; its threads wait for one another.
__device__ __forceinline__ void fill_tables(Storage& storage, const Half* starts, const unsigned* coarse)
{
    for (unsigned k = threadIdx.x; k < STARTS; k += THREADS) storage.starts[k] = starts[k];
    for (unsigned k = threadIdx.x; k < TABLES * SLOTS / 4; k += THREADS) ((unsigned*)storage.parts)[k] = coarse[k];
    for (unsigned k = threadIdx.x; k < TABLES; k += THREADS) {
        const unsigned zeros = starts[k * (TOKENS + 1) + 1];
        storage.firsts[k] = zeros | part_log2(zeros) << 16;
    }
    if (threadIdx.x == 0) storage.starts[STARTS] = TOTAL;
    __syncthreads();
}

// What small_index has found of data; values are filled, but for exact ones. Blocks claim shares of frames, the first
// ones of all frames first: WARPS segments, of which each warp decodes one; and then, while the longest segments are
// still under way, words that are added to the frames' sums. The last block of all launches sends the host the verdict.
extern "C" __global__ void __launch_bounds__(THREADS) small_decode(
    const Byte* data, Word* words, Span span, const Half* starts, const Byte* coarse, const Plan* plans,
    const Word* segment_starts, Word frame_elements, Order order, unsigned n_tiles, unsigned n_frames, Rules rules,
    Element* values, Word* box)
{
    __shared__ Storage storage;
    __shared__ Rounds rounds;
    __shared__ Word sums[WARPS];
    __shared__ unsigned claimed;
    // Of a lane, so that the compiler knows that it is the warp's.
    const unsigned warp = __shfl_sync(WHOLE_WARP, threadIdx.x / LANES, 0), lane = threadIdx.x % LANES;
    const Work work = work_of(words, span);
    Claims& claims = *(Claims*)work.own;
    const unsigned shares = ((unsigned)claims.most + WARPS - 1) / WARPS;
    const unsigned checks = (n_tiles + TILES_A_CHECK - 1) / TILES_A_CHECK;
    const Tables tables = {Shared<unsigned>(storage.firsts), Shared<Byte>(storage.parts), Shared<Half>(storage.starts)};
    fill_rounds(rounds, order);
    bool changed = false;
    if (threadIdx.x == 0) wait_in_turn(claims, (Word)(shares + checks) * n_frames);
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0) claimed = claim(claims);
        __syncthreads();
        const unsigned number = claimed % n_frames, share = claimed / n_frames, segment = share * WARPS + warp;
        if (share >= shares + checks) break;
        Frame& frame = work.frames[span.first + number];
        Element* into = values + number * frame_elements;
        if (share >= shares) {
            add_words<AT_ONCE>(data, frame, share - shares, checks, sums);
            changed = true;
        } else if (frame.kind == RAW) {
            copy_raw((const REAL*)(data + frame.start + 8), (REAL*)into, frame_elements, segment, lane, LANES);
        } else if (frame.kind == CODED && share * WARPS < plans[number].n_segments) {
            const Plan plan = plans[number];
            const Word tables_at = (Word)number * TABLES;
            fill_tables(storage, starts + tables_at * (TOKENS + 1), (const unsigned*)(coarse + tables_at * SLOTS));
            if (segment >= plan.n_segments) continue;
            const Word begin = segment_starts[(Word)number * n_tiles + segment];
            const bool damaged = take_segment(
                data, frame, plan, segment, begin, frame_elements, order, n_tiles, rounds, rules, tables,
                storage.histories[warp], storage.rings[warp], into);
            if (damaged) frame.damaged = 1, changed = true;
        }
    }
    count_block(work, __syncthreads_or(changed));
    send_verdict(data, work, span, n_frames, box);
}
