// The heads of frames of the coder `small` (compress/cpu/rans.py): planned from counts, and read.

#include "rans.cuh"
#include "../common/checksum.cuh"
#include "../common/wait.cuh"
#include "../common/read.cuh"
#include "../common/verdict.cuh"
#include "../common/claims.cuh"

// Segments whose sizes a thread takes at once.
#define SIZES 4

// Twelve less the binary logarithm of a frequency, in units of 2^-COST_LOG2 (compress/cpu/rans.py).
__device__ __forceinline__ unsigned cost_of(unsigned frequency)
{
    Word power = (Word)frequency << __clz(frequency);
    unsigned logarithm = 31 - __clz(frequency);
    for (unsigned k = 0; k < COST_LOG2; ++k) {
        power = power * power >> 31;
        logarithm = 2 * logarithm + (unsigned)(power >> 32);
        power >>= power >> 32;
    }
    return (TOTAL_LOG2 << COST_LOG2) - logarithm;
}

// A table's tokens, LANES apart in the lanes of a warp.
struct Spread {
    unsigned of[TOKENS_LANE];
};

// The frequencies of a table's counts: they add to TOTAL, and what occurs has 1 or more. One warp.
__device__ __forceinline__ Spread normalized(const Spread& counts, unsigned lane)
{
    Spread found = {};
    unsigned own = 0;
    for (unsigned k = 0; k < TOKENS_LANE; ++k) own += counts.of[k];
    const unsigned total = __reduce_add_sync(WHOLE_WARP, own);
    if (total == 0) return found;
    for (unsigned k = 0; k < TOKENS_LANE; ++k) {
        const unsigned share = (unsigned)(((Word)counts.of[k] << TOTAL_LOG2) / total);
        found.of[k] = counts.of[k] ? (share ? share : 1) : 0;
    }
    for (;;) {
        unsigned sum = 0, best = 0;
        for (unsigned k = 0; k < TOKENS_LANE; ++k) {
            // The first of the largest.
            const unsigned key = found.of[k] << 8 | (255 - k * LANES - lane);
            sum += found.of[k];
            best = key > best ? key : best;
        }
        const int lacking = (int)TOTAL - (int)__reduce_add_sync(WHOLE_WARP, sum);
        if (lacking == 0) return found;
        best = __reduce_max_sync(WHOLE_WARP, best);
        const int least = -(int)((best >> 8) / 2);
        for (unsigned k = 0; k < TOKENS_LANE; ++k) {
            if (k * LANES + lane == 255 - (best & 255)) found.of[k] += lacking > least ? lacking : least;
        }
    }
}

// starts[token] for tokens up to TOKENS: the sum of the frequencies before. One warp.
__device__ __forceinline__ void put_starts(const Spread& frequencies, unsigned lane, Half* starts)
{
    Spread upto = frequencies;
#pragma unroll
    for (unsigned step = 1; step < LANES; step *= 2) {
#pragma unroll
        for (unsigned k = 0; k < TOKENS_LANE; ++k) upto.of[k] = joined(upto.of[k], step);
    }
    unsigned before = 0;
#pragma unroll
    for (unsigned k = 0; k < TOKENS_LANE; ++k) {
        const unsigned token = k * LANES + lane;
        if (token <= TOKENS) starts[token] = (Half)(before + upto.of[k] - frequencies.of[k]);
        before += __shfl_sync(WHOLE_WARP, upto.of[k], LANES - 1);
    }
}

// From counts and raw bits of each frame: starts (frames, TABLES, TOKENS + 1), plans (frames), heads (frames): the
// bytes before the segments, and the first of these, the tables, in head_bytes (frames, HEAD_BYTES). Segments have at
// most 2^longest_log2 tiles.
// A block a frame.
extern "C" __global__ void __launch_bounds__(PLAN_THREADS) small_plan(
    const unsigned* counts, const Word* raw_bits, unsigned n_tiles, unsigned longest_log2, Half* starts, Plan* plans,
    unsigned* heads, unsigned* head_bytes)
{
    __shared__ unsigned lengths[TABLES], longs[TABLES];
    __shared__ Word costs[PLAN_WARPS];
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, frame = blockIdx.x;
    Byte* head = (Byte*)head_bytes + (Word)frame * HEAD_BYTES;
    for (unsigned k = threadIdx.x; k < HEAD_BYTES; k += PLAN_THREADS) head[k] = 0;
    Word cost = 0;
    for (unsigned table = warp; table < TABLES; table += PLAN_WARPS) {
        const unsigned* own = counts + ((Word)frame * TABLES + table) * TOKENS;
        Spread found = {};
        for (unsigned k = 0; k < TOKENS_LANE; ++k) {
            if (k * LANES + lane < TOKENS) found.of[k] = own[k * LANES + lane];
        }
        const Spread frequencies = normalized(found, lane);
        put_starts(frequencies, lane, starts + ((Word)frame * TABLES + table) * (TOKENS + 1));
        unsigned length = 0, many = 0;
        for (unsigned k = 0; k < TOKENS_LANE; ++k) {
            if (frequencies.of[k]) {
                cost += (Word)found.of[k] * cost_of(frequencies.of[k]);
                length = k * LANES + lane + 1;
            }
            many += frequencies.of[k] >= 128;
        }
        length = __reduce_max_sync(WHOLE_WARP, length);
        many = __reduce_add_sync(WHOLE_WARP, many);
        if (lane == 0) lengths[table] = length, longs[table] = many;
    }
    for (unsigned step = LANES / 2; step; step /= 2) cost += __shfl_down_sync(WHOLE_WARP, cost, step);
    if (lane == 0) costs[warp] = cost;
    __syncthreads();
    if (threadIdx.x == 0) {
        Word units = raw_bits[frame] << COST_LOG2;
        for (unsigned w = 0; w < PLAN_WARPS; ++w) units += costs[w];
        unsigned log2 = 0, at = 0, rest = 0;
        while (log2 < longest_log2 && units << log2 < (Word)n_tiles * LEAST_UNITS) ++log2;
        for (unsigned table = 0; table < TABLES; ++table) {
            const unsigned length = lengths[table], many = longs[table];
            head[8 + table] = (Byte)length;
            lengths[table] = at, longs[table] = rest;
            at += length, rest += many;
        }
        const unsigned tables_bytes = TABLES + at + rest;
        for (unsigned table = 0; table < TABLES; ++table) lengths[table] += 8 + TABLES, longs[table] += 8 + TABLES + at;
        ((unsigned*)head)[0] = log2, ((unsigned*)head)[1] = tables_bytes;
        const unsigned words_at = 8 + (tables_bytes + 3) / 4 * 4;
        const unsigned n_segments = (n_tiles + (1u << log2) - 1) >> log2;
        plans[frame] = {log2, words_at, n_segments};
        heads[frame] = words_at + 4 * n_segments;
    }
    __syncthreads();
    for (unsigned table = warp; table < TABLES; table += PLAN_WARPS) {
        const Half* own = starts + ((Word)frame * TABLES + table) * (TOKENS + 1);
        const unsigned length = head[8 + table];
        unsigned rest = longs[table];
        for (unsigned k = 0; k < TOKENS_LANE; ++k) {
            const unsigned token = k * LANES + lane;
            const unsigned frequency = token < length ? own[token + 1] - own[token] : 0;
            const unsigned all = __ballot_sync(WHOLE_WARP, frequency >= 128);
            if (token < length) head[lengths[table] + token] = frequency < 128 ? frequency : 128 | frequency >> 8;
            if (frequency >= 128) head[rest + __popc(all & lanes_below(lane))] = frequency & 255;
            rest += __popc(all);
        }
    }
}

// Replace the numbers of tables by the sums of those before each; behind them stands the sum of all. One warp.
__device__ __forceinline__ void sum_tables(unsigned* numbers, unsigned lane)
{
    unsigned before = 0;
#pragma unroll
    for (unsigned first = 0; first < TABLES; first += LANES) {
        const unsigned table = first + lane, own = table < TABLES ? numbers[table] : 0;
        unsigned upto = own;
#pragma unroll
        for (unsigned step = 1; step < LANES; step *= 2) upto = joined(upto, step);
        if (table < TABLES) numbers[table] = before + upto - own;
        before += __shfl_sync(WHOLE_WARP, upto, LANES - 1);
    }
    if (lane == 0) numbers[TABLES] = before;
}

// The bytes before a frame's segments, of which tables take HEAD_BYTES at most; frequencies before those of each table,
// and how many of them take two bytes; where slots of tokens start.
struct Head {
    Word words[(HEAD_BYTES + 7) / 8];
    unsigned befores[TABLES + 1], longs[TABLES + 1];
    Half starts[STARTS];

    __device__ __forceinline__ const Byte* bytes() const { return (const Byte*)words; }
    // The frequencies' bytes begin here, the second ones behind all first ones.
    __device__ __forceinline__ const Byte* frequencies() const { return bytes() + 8 + TABLES; }
    __device__ __forceinline__ unsigned length(unsigned table) const { return bytes()[8 + table]; }
};

// Fill head.starts from the bytes, of which `tables_bytes` are said to be the tables'; whether they make sense. A
// block.
__device__ __forceinline__ bool take_tables(Head& head, unsigned tables_bytes)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    if (warp == 0) {
        for (unsigned table = lane; table < TABLES; table += LANES) head.befores[table] = head.length(table);
        sum_tables(head.befores, lane);
    }
    if (__syncthreads_or(threadIdx.x < TABLES && head.length(threadIdx.x) > TOKENS)) return false;
    for (unsigned table = warp; table < TABLES; table += PLAN_WARPS) {
        const Byte* own = head.frequencies() + head.befores[table];
        unsigned longs = 0;
#pragma unroll
        for (unsigned token = lane; token < TOKENS_LANE * LANES; token += LANES) {
            longs += __popc(__ballot_sync(WHOLE_WARP, token < head.length(table) && own[token] >= 128));
        }
        if (lane == 0) head.longs[table] = longs;
    }
    __syncthreads();
    if (warp == 0) sum_tables(head.longs, lane);
    __syncthreads();
    const unsigned in_tables = head.befores[TABLES];
    if (TABLES + in_tables + head.longs[TABLES] != tables_bytes) return false;
    bool wrong = false;
    for (unsigned table = warp; table < TABLES; table += PLAN_WARPS) {
        const Byte* own = head.frequencies() + head.befores[table];
        const Byte* rest = head.frequencies() + in_tables + head.longs[table];
        const unsigned length = head.length(table);
        Spread found;
        unsigned sum = 0;
#pragma unroll
        for (unsigned k = 0; k < TOKENS_LANE; ++k) {
            const unsigned token = k * LANES + lane, byte = token < length ? own[token] : 0;
            const unsigned all = __ballot_sync(WHOLE_WARP, byte >= 128);
            found.of[k] = byte < 128 ? byte : (byte & 127) << 8 | rest[__popc(all & lanes_below(lane))];
            rest += __popc(all), sum += found.of[k];
        }
        wrong |= length && __reduce_add_sync(WHOLE_WARP, sum) != TOTAL;
        Half* starts = head.starts + table * (TOKENS + 1);
        put_starts(found, lane, starts);
        __syncwarp();
        // Tables that no sound stream uses lead nowhere.
        if (lane == 0) starts[TOKENS] = TOTAL;
    }
    return !__syncthreads_or(wrong);
}

// The tokens of the first slots of four parts, from part `first` on; `starts` are the table's.
__device__ __forceinline__ unsigned four_tokens(const Half* starts, unsigned first, unsigned zeros)
{
    const unsigned log2 = part_log2(zeros);
    unsigned tokens[4] = {}, word = 0;
#pragma unroll
    for (unsigned step = 64; step; step /= 2) {
#pragma unroll
        for (unsigned j = 0; j < 4; ++j) {
            const unsigned next = tokens[j] + step;
            if (next <= TOKENS && starts[next] <= zeros + (first + j << log2)) tokens[j] = next;
        }
    }
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) word |= tokens[j] << 8 * j;
    return word;
}

// Find frames, put them to the table, and read the heads of those that are coded: starts (frames, TABLES, TOKENS + 1),
// coarse (frames, TABLES, SLOTS): the token of the first slot of each part; plans (frames); segment_starts (frames,
// n_tiles), behind the head; and in the launch's own words (Claims) how many segments a frame has at most. The first
// block finds frames and sends the header; behind it is a block a frame; frames that make no sense become BAD.
extern "C" __global__ void __launch_bounds__(PLAN_THREADS) small_index(
    const Byte* data, Word* words, Span span, Word frame_elements, unsigned n_tiles, Half* all_starts,
    unsigned* all_coarse, Plan* plans, Word* segment_starts, Word* box)
{
    __shared__ Head head;
    __shared__ Word sums[PLAN_WARPS];
    const unsigned own_frame = blockIdx.x - 1;
    const Word raw_bytes = frame_elements * VALUE_BYTES;
    const Work work = work_of(words, span);
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0) find_frames(data, work, span, gridDim.x - 1, raw_bytes);
        if (span.first == 0 && threadIdx.x / LANES == 1) send_head(data, span, box);
        return;
    }
    const Frame frame = found_frame(data, work, span, span.first + own_frame, raw_bytes);
    Frame& into = work.frames[span.first + own_frame];
    if (threadIdx.x == 0) put_frame(into, frame);
    Claims* claims = (Claims*)work.own;
    if (frame.kind == RAW && threadIdx.x == 0) atomicMax(&claims->most, (Word)n_tiles);
    if (frame.kind != CODED) return;
    const Byte* from = data + frame.start + CODED_HEAD_BYTES;
#pragma unroll
    for (unsigned k = threadIdx.x; k < sizeof(head.words) / 8; k += PLAN_THREADS) {
        head.words[k] = 8ull * k < frame.coded ? ((const Word*)from)[k] : 0;
    }
    __syncthreads();
    const unsigned log2 = (unsigned)head.words[0], tables_bytes = (unsigned)(head.words[0] >> 32);
    const unsigned n_segments = log2 > LONGEST_SEGMENT_LOG2 ? 0 : (n_tiles + (1u << log2) - 1) >> log2;
    const Word words_at = 8 + ((Word)tables_bytes + 3) / 4 * 4, segments_at = words_at + 4ull * n_segments;
    bool good = n_segments && frame.coded >= 8 + TABLES && segments_at <= frame.coded;
    unsigned counts[SIZES];
    const auto bring = [&](unsigned first) {
#pragma unroll
        for (unsigned k = 0; k < SIZES; ++k) {
            counts[k] = good && first + k < n_segments ? ((const unsigned*)(from + words_at))[first + k] : 0;
        }
    };
    // On their way while tables are read.
    bring(SIZES * threadIdx.x);
    good = good && take_tables(head, tables_bytes);
    if (good) {
        Half* starts = all_starts + (Word)own_frame * STARTS;
        for (unsigned k = threadIdx.x; k < STARTS; k += PLAN_THREADS) starts[k] = head.starts[k];
        const bool sparse = is_sparse(frame, n_tiles);
        unsigned* coarse = all_coarse + (Word)own_frame * (TABLES * SLOTS / 4);
        for (unsigned k = threadIdx.x; k < TABLES * SLOTS / 4; k += PLAN_THREADS) {
            const Half* own = head.starts + 4 * k / SLOTS * (TOKENS + 1);
            coarse[k] = four_tokens(own, 4 * k % SLOTS, sparse ? own[1] : 0);
        }
    }
    Word end = segments_at;
    for (unsigned before = 0; good && before < n_segments; before += SIZES * PLAN_THREADS) {
        const unsigned first = before + SIZES * threadIdx.x;
        Word sizes[SIZES], sum = 0, total;
#pragma unroll
        for (unsigned k = 0; k < SIZES; ++k) {
            sizes[k] = first + k < n_segments ? STATES_BYTES + (2 * (Word)counts[k] + 3) / 4 * 4 : 0;
            sum += sizes[k];
        }
        bring(first + SIZES * PLAN_THREADS);
        Word at = end - segments_at + scanned<PLAN_WARPS>(sum, sums, total);
        for (unsigned k = 0; k < SIZES && first + k < n_segments; ++k) {
            segment_starts[(Word)own_frame * n_tiles + first + k] = at;
            at += sizes[k];
        }
        end += total;
    }
    if (threadIdx.x == 0) {
        plans[own_frame] = {log2, (unsigned)words_at, n_segments};
        if (good && end == frame.coded) atomicMax(&claims->most, (Word)n_segments);
        else into.damaged = 1, into.kind = BAD;
    }
}
