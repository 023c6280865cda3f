// The heads of frames of the coder `small` (compress/entropy.py): planned from counts, and read.

#include "small.cuh"
#include "checksum.cuh"
#include "wait.cuh"
#include "read.cuh"
#include "claims.cuh"

// Twelve less the binary logarithm of a frequency, in units of 2^-COST_LOG2 (compress/entropy.py).
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
    unsigned before = 0;
    for (unsigned k = 0; k < TOKENS_LANE; ++k) {
        unsigned upto = frequencies.of[k];
        for (unsigned step = 1; step < LANES; step *= 2) {
            const unsigned other = __shfl_up_sync(WHOLE_WARP, upto, step);
            if (lane >= step) upto += other;
        }
        const unsigned token = k * LANES + lane;
        if (token <= TOKENS) starts[token] = (Half)(before + upto - frequencies.of[k]);
        before += __shfl_sync(WHOLE_WARP, upto, LANES - 1);
    }
}

// From counts and raw bits of each frame: starts (frames, TABLES, TOKENS + 1), plans (frames), heads (frames): the
// bytes before the segments, and the first of these, the tables, in head_bytes (frames, HEAD_BYTES).
// A block a frame.
extern "C" __global__ void __launch_bounds__(PLAN_THREADS) small_plan(
    const unsigned* counts, const Word* raw_bits, unsigned n_tiles, Half* starts, Plan* plans, unsigned* heads,
    unsigned* head_bytes)
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
        while (log2 < LONGEST_WRITTEN_LOG2 && units << log2 < (Word)n_tiles * LEAST_UNITS) ++log2;
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

// Find frames, put them to the table, and read the heads of those that are coded: starts (frames, TABLES, TOKENS + 1),
// coarse (frames, TABLES, SLOTS): the token of the first slot of each part; plans (frames); segment_starts (frames,
// n_tiles), behind the head. The first block finds, and behind it is a block a frame; frames that make no sense
// become BAD.
extern "C" __global__ void __launch_bounds__(PLAN_THREADS) small_index(
    const Byte* data, Word* words, Span span, Word frame_elements, unsigned n_tiles, Half* starts, Byte* coarse,
    Plan* plans, Word* segment_starts, Claims* claims)
{
    __shared__ unsigned lengths[TABLES], befores[TABLES], sums[PLAN_WARPS];
    __shared__ Word word_sums[PLAN_WARPS];
    __shared__ Half linear[TABLES * TOKENS];
    __shared__ unsigned wrong, in_tables;
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, own_frame = blockIdx.x - 1;
    const Word raw_bytes = frame_elements * VALUE_BYTES;
    const Work work = work_of(words, span);
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0) find_frames(data, work, span, gridDim.x - 1, raw_bytes);
        return;
    }
    const Frame frame = found_frame(data, work, span, span.first + own_frame, raw_bytes);
    Frame& into = work.frames[span.first + own_frame];
    if (threadIdx.x == 0) put_frame(into, frame);
    if (frame.kind == RAW && threadIdx.x == 0) atomicMax(&claims->most, (Word)n_tiles);
    if (frame.kind != CODED) return;
    const Byte* head = data + frame.start + CODED_HEAD_BYTES;
    const bool any = frame.coded >= 8 + TABLES;
    const unsigned log2 = any ? ((const unsigned*)head)[0] : 0;
    const unsigned tables_bytes = any ? ((const unsigned*)head)[1] : 0;
    const unsigned n_segments = log2 > LONGEST_SEGMENT_LOG2 ? 0 : (n_tiles + (1u << log2) - 1) >> log2;
    const Word words_at = 8 + ((Word)tables_bytes + 3) / 4 * 4;
    if (threadIdx.x < TABLES) lengths[threadIdx.x] = any ? head[8 + threadIdx.x] : 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        wrong = !any || log2 > LONGEST_SEGMENT_LOG2 || words_at + 4ull * n_segments > frame.coded
            || tables_bytes < TABLES;
        in_tables = 0;
        for (unsigned table = 0; table < TABLES; ++table) {
            wrong |= lengths[table] > TOKENS;
            befores[table] = in_tables;
            in_tables += lengths[table];
        }
        wrong |= TABLES + in_tables > tables_bytes;
    }
    __syncthreads();
    const bool known = !wrong;
    unsigned longs = 0;
    for (unsigned begin = 0; known && begin < in_tables; begin += PLAN_THREADS) {
        const unsigned k = begin + threadIdx.x;
        const unsigned byte = k < in_tables ? head[8 + TABLES + k] : 0;
        unsigned total;
        const unsigned before = scanned<PLAN_WARPS>(byte >> 7, sums, total);
        const unsigned place = TABLES + in_tables + longs + before;
        const bool two = byte >= 128, lost = two && place >= tables_bytes;
        if (k < in_tables) linear[k] = two ? (byte & 127) << 8 | (lost ? 0 : head[8 + place]) : byte;
        longs += total;
    }
    const bool whole = known && TABLES + in_tables + longs == tables_bytes;
    if (threadIdx.x == 0) wrong = !whole;
    __syncthreads();
    if (whole) {
        for (unsigned table = warp; table < TABLES; table += PLAN_WARPS) {
            Spread found = {};
            unsigned sum = 0;
            for (unsigned k = 0; k < TOKENS_LANE; ++k) {
                const unsigned token = k * LANES + lane;
                if (token < lengths[table]) found.of[k] = linear[befores[table] + token];
                sum += found.of[k];
            }
            sum = __reduce_add_sync(WHOLE_WARP, sum);
            if (lane == 0 && lengths[table] && sum != TOTAL) wrong = 1;
            Half* own = starts + ((Word)own_frame * TABLES + table) * (TOKENS + 1);
            put_starts(found, lane, own);
            __syncwarp();
            // Tables that no sound stream uses lead nowhere.
            if (lane == 0) own[TOKENS] = TOTAL;
        }
    }
    __syncthreads();
    const bool sound = !wrong;
    Word end = 0;
    for (unsigned begin = 0; sound && begin < n_segments; begin += PLAN_THREADS) {
        const unsigned segment = begin + threadIdx.x;
        Word total, size = 0;
        if (segment < n_segments) {
            const unsigned count = ((const unsigned*)(head + words_at))[segment];
            size = STATES_BYTES + (2 * (Word)count + 3) / 4 * 4;
        }
        const Word before = scanned<PLAN_WARPS>(size, word_sums, total);
        if (segment < n_segments) segment_starts[(Word)own_frame * n_tiles + segment] = end + before;
        end += total;
    }
    __syncthreads();
    const bool good = sound && words_at + 4ull * n_segments + end == frame.coded;
    const bool sparse = is_sparse(frame, n_tiles);
    for (unsigned k = threadIdx.x; good && k < TABLES * SLOTS; k += PLAN_THREADS) {
        const Half* own = starts + ((Word)own_frame * TABLES + k / SLOTS) * (TOKENS + 1);
        const unsigned zeros = sparse ? own[1] : 0, slot = zeros + (k % SLOTS << part_log2(zeros));
        unsigned token = 0;
        for (unsigned step = 64; step; step /= 2) {
            if (token + step <= TOKENS && own[token + step] <= slot) token += step;
        }
        coarse[(Word)own_frame * TABLES * SLOTS + k] = token;
    }
    if (threadIdx.x == 0) {
        plans[own_frame] = {log2, (unsigned)words_at, n_segments};
        if (good) atomicMax(&claims->most, (Word)n_segments);
        if (!good) into.damaged = 1, into.kind = BAD;
    }
}
