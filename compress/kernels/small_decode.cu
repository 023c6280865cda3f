// The coder `small` reads.

#include "small.cuh"
#include "checksum.cuh"
#include "wait.cuh"
#include "read.cuh"
#include "verdict.cuh"
#include "claims.cuh"

// Words that a warp brings at once, and how many of them its ring holds.
#define PART (2 * LANES)
#define RING (4 * PART)
// Tiles whose share of a payload a block sums.
#define TILES_A_CHECK 32
// The first token with more than RAW_LOG2 raw bits.
#define LONG (DIRECT + 2 * (RAW_LOG2 - 2))
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

// What a block's warps share, and what each has for itself.
struct Room {
    unsigned histories[WARPS][TILE / 4], rings[WARPS][RING / 2], firsts[TABLES];
    Byte parts[TABLES * SLOTS];
    Half starts[STARTS + 1];
};

// Numbers of type T in shared memory, by an address of 32 bits.
template <typename T> struct Shared {
#ifdef __CUDA_ARCH__
    unsigned at;

    __device__ __forceinline__ Shared(const T* from) : at((unsigned)__cvta_generic_to_shared(from))
    {
        // From a lane, so that the address is kept and not formed anew at each use.
        at = __shfl_sync(WHOLE_WARP, at, 0);
    }

    // The number behind place k by `further`.
    template <unsigned further = 0> __device__ __forceinline__ unsigned get(unsigned k) const
    {
        unsigned number;
        const unsigned from = at + k * (unsigned)sizeof(T);
        // Parts are asked for before it is known whether they are needed.
        if (sizeof(T) == 1)
            asm volatile("ld.volatile.shared.u8 %0, [%1+%2];" : "=r"(number) : "r"(from), "n"(further));
        else if (sizeof(T) == 2)
            asm volatile("ld.shared.u16 %0, [%1+%2];" : "=r"(number) : "r"(from), "n"(2 * further));
        else asm volatile("ld.shared.u32 %0, [%1+%2];" : "=r"(number) : "r"(from), "n"(4 * further));
        return number;
    }
#else
    const T* at;

    Shared(const T* from) : at(from) {}

    template <unsigned further = 0> unsigned get(unsigned k) const { return at[k + further]; }
#endif
};

// The tables of numbers: `firsts` has the slots of token 0 and, from bit 16 on, the size of parts (logarithm); `parts`
// the token of the first slot of each part, `starts` those of tokens.
struct Tables {
    Shared<unsigned> firsts;
    Shared<Byte> parts;
    Shared<Half> starts;
};

// A segment's words, of which `taken` have been taken. The ring has the part in which the next one is and the part
// behind it; the one after those is on its way.
struct Reader {
    const unsigned* pairs;
    unsigned* ring;
    Shared<Half> words;
    unsigned count, taken, below;

    __device__ __forceinline__ void bring_part(unsigned part, unsigned lane) const
    {
        const unsigned place = part * PART + 2 * lane;
        const bool any = place < count;
        bring(ring + place % RING / 2, any ? pairs + place / 2 : pairs, any ? min(2u, count - place) * 2 : 0);
    }

    // Bring words for those that were taken since `before` of them were: PART at most.
    __device__ __forceinline__ void bring_more(unsigned before, unsigned lane) const
    {
        if (taken / PART == before / PART) return;
        bring_part(before / PART + 3, lane);
        arrived();
    }
};

__device__ __forceinline__ Reader reader_of(const unsigned* pairs, unsigned count, unsigned* ring, unsigned lane)
{
    const Reader reader = {pairs, ring, Shared<Half>((const Half*)ring), count, 0, lanes_below(lane)};
    for (unsigned part = 0; part < 3; ++part) reader.bring_part(part, lane);
    arrived();
    return reader;
}

// A lane's state, which is not whole until the word that it takes, where it is `low`, has come.
struct State {
    unsigned bits, word;
    bool low;

    __device__ __forceinline__ void settle()
    {
        if (low) bits = bits << 16 | word;
        low = false;
    }
};

// Lanes that are `low` take a word each, in the order of the lanes; past the end they take 0.
__device__ __forceinline__ void refill(State& state, bool low, Reader& reader)
{
    const unsigned all = __ballot_sync(WHOLE_WARP, low);
    state.low = low;
    state.word = reader.words.get((reader.taken + __popc(all & reader.below)) % RING);
    reader.taken += __popc(all);
}

// Take the next `width` bits, at most RAW_LOG2, of states.
__device__ __forceinline__ unsigned take_raw(State& state, unsigned width, Reader& reader)
{
    state.settle();
    const unsigned rest = TOTAL_LOG2 - width, part = state.bits & (TOTAL - 1), kept = part & ((1u << rest) - 1);
    state.bits = (state.bits >> TOTAL_LOG2 << rest) + kept;
    refill(state, width != 0 && state.bits < LOW, reader);
    return part >> rest;
}

// Lanes whose state is low take a word each, and then all the next `width` bits, at most RAW_LOG2. Which lanes take a
// word after those bits does not depend on the first words, so that both are on their way at once.
__device__ __forceinline__ unsigned take_short(State& state, unsigned width, Reader& reader)
{
    const bool low = state.bits < LOW, again = width && state.bits < (low ? 1u : LOW) << width;
    const unsigned all = __ballot_sync(WHOLE_WARP, low), next = __ballot_sync(WHOLE_WARP, again);
    const unsigned between = reader.taken + __popc(all);
    const unsigned word = reader.words.get((reader.taken + __popc(all & reader.below)) % RING);
    state.word = reader.words.get((between + __popc(next & reader.below)) % RING);
    state.low = again;
    reader.taken = between + __popc(next);
    const unsigned bits = low ? state.bits << 16 | word : state.bits, rest = TOTAL_LOG2 - width;
    const unsigned part = bits & (TOTAL - 1);
    state.bits = (bits >> TOTAL_LOG2 << rest) + (part & ((1u << rest) - 1));
    return part >> rest;
}

// A token, and the slots it has.
struct Found {
    unsigned token, start, stop;
};

// The zigzag number of a token, whose lowest `bits` follow.
__device__ __forceinline__ unsigned begun(unsigned token, unsigned& bits)
{
    bits = token < DIRECT ? 0 : 3 + (token - DIRECT) / 2;
    return token < DIRECT ? token : (2 + (token & 1)) << bits;
}

// The next zigzag number of a table where a lane's token is behind the one that was found, or has more raw bits than are
// taken at once.
__device__ __forceinline__ unsigned take_long(
    State& state, unsigned table, Found found, unsigned slot, unsigned upper, const Tables& tables, Reader& reader,
    unsigned lane)
{
#pragma unroll 1
    while (slot >= found.stop) {
        ++found.token;
        found.start = found.stop;
        found.stop = tables.starts.get<1>(table * (TOKENS + 1) + found.token);
    }
    unsigned bits, z = begun(found.token, bits), before = reader.taken;
    state.bits = (found.stop - found.start) * upper + slot - found.start;
    refill(state, state.bits < LOW, reader);
#pragma unroll 1
    while (__any_sync(WHOLE_WARP, bits != 0)) {
        const unsigned width = bits ? (bits - 1) % RAW_LOG2 + 1 : 0;
        bits -= width;
        z |= take_raw(state, width, reader) << bits;
        reader.bring_more(before, lane);
        before = reader.taken;
    }
    reader.bring_more(before, lane);
    return z;
}

// The next number in a table, of which `first` is known in sparse frames: rounds there that have nothing but token 0,
// the number 0, and take no word, need no more than that. Few warps run at the end of a launch, each of which waits for
// every step; so what is next is asked for before a state is settled, and branches are those of whole warps.
template <bool SPARSE>
__device__ __forceinline__ int take_number(
    State& state, unsigned table, unsigned first, const Tables& tables, Reader& reader, unsigned lane)
{
    state.settle();
    const unsigned slot = state.bits & (TOTAL - 1), upper = state.bits >> TOTAL_LOG2;
    const unsigned zeros = SPARSE ? first & 0xffff : 0;
    const bool other = !SPARSE || slot >= zeros;
    const unsigned part = !SPARSE ? slot >> part_log2(0) : other ? slot - zeros >> (first >> 16) : 0;
    const unsigned token = tables.parts.get(table * SLOTS + part);
    if (SPARSE) {
        const unsigned next = zeros * upper + slot;
        if (!__any_sync(WHOLE_WARP, other || next < LOW)) {
            state.bits = next;
            return 0;
        }
    }
    Found found = {other ? token : 0, 0, 0};
    const unsigned at = table * (TOKENS + 1) + found.token;
    found.start = tables.starts.get(at), found.stop = tables.starts.get<1>(at);
    // Of the last token this one's stop, since what is behind it is of another table.
    const unsigned behind = tables.starts.get<2>(at), next_stop = found.stop < behind ? behind : found.stop;
    if (slot >= found.stop) ++found.token, found.start = found.stop, found.stop = next_stop;
    const bool raw = __any_sync(WHOLE_WARP, found.token >= DIRECT);
    if (__any_sync(WHOLE_WARP, slot >= next_stop || found.token >= LONG)) {
        return unzigzag(take_long(state, table, found, slot, upper, tables, reader, lane));
    }
    const unsigned before = reader.taken;
    unsigned bits, z = begun(found.token, bits);
    state.bits = (found.stop - found.start) * upper + slot - found.start;
    if (raw) z |= take_short(state, bits, reader);
    else refill(state, state.bits < LOW, reader);
    reader.bring_more(before, lane);
    return unzigzag(z);
}

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

// Decode a segment of a frame, into whose values; whether it is damaged, since its words or states do not come out even.
// A warp.
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
__device__ __forceinline__ void fill_tables(Room& room, const Half* starts, const unsigned* coarse)
{
    for (unsigned k = threadIdx.x; k < STARTS; k += THREADS) room.starts[k] = starts[k];
    for (unsigned k = threadIdx.x; k < TABLES * SLOTS / 4; k += THREADS) ((unsigned*)room.parts)[k] = coarse[k];
    for (unsigned k = threadIdx.x; k < TABLES; k += THREADS) {
        const unsigned zeros = starts[k * (TOKENS + 1) + 1];
        room.firsts[k] = zeros | part_log2(zeros) << 16;
    }
    if (threadIdx.x == 0) room.starts[STARTS] = TOTAL;
    __syncthreads();
}

// What small_index has found of data; values are filled, but for exact ones. Blocks claim shares of frames, the first
// ones of all frames first: WARPS segments, of which each warp decodes one; and then, while the longest segments are
// still under way, words that are added to the frames' sums. The last block of all launches tells the host the verdict.
extern "C" __global__ void __launch_bounds__(THREADS) small_decode(
    const Byte* data, Word* words, Span span, const Half* starts, const Byte* coarse, const Plan* plans,
    const Word* segment_starts, Word frame_elements, Order order, unsigned n_tiles, unsigned n_frames, Rules rules,
    Element* values, Word* box)
{
    __shared__ Room room;
    __shared__ Rounds rounds;
    __shared__ Word sums[WARPS];
    __shared__ unsigned claimed;
    // Of a lane, so that the compiler knows that it is the warp's.
    const unsigned warp = __shfl_sync(WHOLE_WARP, threadIdx.x / LANES, 0), lane = threadIdx.x % LANES;
    const Work work = work_of(words, span);
    Claims& claims = *(Claims*)work.own;
    const unsigned shares = ((unsigned)claims.most + WARPS - 1) / WARPS;
    const unsigned checks = (n_tiles + TILES_A_CHECK - 1) / TILES_A_CHECK;
    const Tables tables = {Shared<unsigned>(room.firsts), Shared<Byte>(room.parts), Shared<Half>(room.starts)};
    fill_rounds(rounds, order);
    bool changed = false;
    if (threadIdx.x == 0) wait_in_turn(claims);
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
            fill_tables(room, starts + tables_at * (TOKENS + 1), (const unsigned*)(coarse + tables_at * SLOTS));
            if (segment >= plan.n_segments) continue;
            const Word begin = segment_starts[(Word)number * n_tiles + segment];
            const bool damaged = take_segment(
                data, frame, plan, segment, begin, frame_elements, order, n_tiles, rounds, rules, tables,
                room.histories[warp], room.rings[warp], into);
            if (damaged) frame.damaged = 1, changed = true;
        }
    }
    const unsigned ended = counted(work, span, __syncthreads_or(changed));
    if (threadIdx.x < LANES) tell_verdict(data, work, span, ended, box);
}
