// The coder `small`: a warp codes a segment of tiles (contexts, tokens, order: compress/entropy_kernel.py).
//
// Frames of equal size lie behind one another; `local` (4096) and `tiles` are the tables of compress/tiles.py,
// in elements. Every lane keeps the magnitudes of its own rounds of a tile, so that contexts need no exchange.

#include "quantize.cuh"

#define WARPS 4
#define THREADS (WARPS * LANES)
#define ROUNDS 128
#define ROUND_AXES 7
#define DIRECT 16
#define TOKENS 72
#define LARGEST_MAGNITUDE 255
#define FIRST 12
#define BUCKETS 13
#define CLASSES 4
#define TABLES (COMPONENTS == 1 ? BUCKETS : BUCKETS + BUCKETS * CLASSES)
#define TOTAL_LOG2 12
#define TOTAL (1u << TOTAL_LOG2)
#define LOW (1u << 16)
#define RAW_LOG2 12
#define MOST_ROUND_WORDS (8 * LANES)
#define STATES_BYTES (4 * LANES)
#define SLOTS 64
#define WHOLE_WARP 0xffffffffu

struct Numbers {
    int of[COMPONENTS];
};

// The numbers of a place of a tile, 0 beyond the frame; `missed` has bit c where part c is stored exactly.
__device__ __forceinline__ Numbers numbers_at(
    const Element* from, Word frame_elements, Word number, const Rules& rules, unsigned& missed)
{
    Numbers numbers = {};
    missed = 0;
    if (number >= frame_elements) return numbers;
    const Element element = from[number];
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        bool exact;
        numbers.of[c] = quantized(element.part[c], rules.of[c], exact);
        missed |= (unsigned)exact << c;
    }
    return numbers;
}

__device__ __forceinline__ unsigned size_of(int number) { return number < 0 ? -number : number; }

__device__ __forceinline__ unsigned magnitude_of(const Numbers& numbers)
{
    unsigned long long sum = 0;
    for (unsigned c = 0; c < COMPONENTS; ++c) sum += size_of(numbers.of[c]);
    return sum < LARGEST_MAGNITUDE ? (unsigned)sum : LARGEST_MAGNITUDE;
}

// The context bucket of this lane in round r; magnitudes (ROUNDS * LANES) of earlier rounds.
__device__ __forceinline__ unsigned bucket_of(const Byte* magnitudes, unsigned r, unsigned lane)
{
    if (r == 0) return FIRST;
    unsigned sum = 0;
    for (unsigned b = 0; b < ROUND_AXES; ++b) {
        if (r >> b & 1) sum += magnitudes[(r ^ 1u << b) * LANES + lane];
    }
    const unsigned scale = 8 * 65536 / __popc(r);
    return 32 - __clz(sum * scale >> 16);
}

__device__ __forceinline__ unsigned table_of(unsigned c, unsigned bucket, int real_part)
{
    if (c == 0) return bucket;
    const unsigned size = size_of(real_part);
    return BUCKETS + CLASSES * bucket + (size < 2 ? size : size < 4 ? 2 : 3);
}

// The token of a zigzag number, and how many raw bits follow.
__device__ __forceinline__ unsigned token_of(unsigned z, unsigned& bits)
{
    bits = 0;
    if (z < DIRECT) return z;
    const unsigned length = 32 - __clz(z);
    bits = length - 2;
    return DIRECT + 2 * (length - 5) + (z >> (length - 2) & 1);
}

__device__ __forceinline__ unsigned parts_of(unsigned bits) { return (bits + RAW_LOG2 - 1) / RAW_LOG2; }

// counts (frames, TABLES, TOKENS) and raw_bits (frames) start from zero; exact (frames, COMPONENTS, n_tiles).
// A warp counts a tile.
extern "C" __global__ void __launch_bounds__(THREADS) small_count(
    const Element* values, Word frame_elements, const unsigned* local, const unsigned* tiles, unsigned n_tiles,
    Rules rules, unsigned* counts, Word* raw_bits, unsigned* exact)
{
    __shared__ Byte histories[WARPS][TILE];
    __shared__ unsigned sums[TABLES * TOKENS];
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, frame = blockIdx.y;
    const unsigned tile = blockIdx.x * WARPS + warp;
    const Element* from = values + frame * frame_elements;
    for (unsigned k = threadIdx.x; k < TABLES * TOKENS; k += THREADS) sums[k] = 0;
    __syncthreads();
    Word raw = 0;
    unsigned missing[COMPONENTS] = {};
    for (unsigned r = 0; tile < n_tiles && r < ROUNDS; ++r) {
        const unsigned t = r * LANES + lane;
        unsigned missed;
        const Numbers numbers = numbers_at(from, frame_elements, (Word)tiles[tile] + local[t], rules, missed);
        const unsigned bucket = bucket_of(histories[warp], r, lane);
        histories[warp][t] = magnitude_of(numbers);
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            unsigned bits;
            const unsigned token = token_of(zigzag(numbers.of[c]), bits);
            atomicAdd(&sums[table_of(c, bucket, numbers.of[0]) * TOKENS + token], 1u);
            raw += bits;
            missing[c] += missed >> c & 1;
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

// starts (frames, TABLES, TOKENS + 1); words (frames, segments, room) are filled from their ends; for each
// segment its words' number, and the states. A segment that does not fit has the number ~0.
extern "C" __global__ void __launch_bounds__(THREADS) small_encode(
    const Element* values, Word frame_elements, const unsigned* local, const unsigned* tiles, unsigned n_tiles,
    Rules rules, const Half* starts, unsigned tiles_log2, unsigned n_segments, Half* words, unsigned room,
    unsigned* n_words, unsigned* states)
{
    __shared__ Byte histories[WARPS][TILE];
    __shared__ Half table[TABLES * (TOKENS + 1)];
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, frame = blockIdx.y;
    const unsigned segment = blockIdx.x * WARPS + warp;
    for (unsigned k = threadIdx.x; k < TABLES * (TOKENS + 1); k += THREADS) {
        table[k] = starts[(Word)frame * TABLES * (TOKENS + 1) + k];
    }
    __syncthreads();
    if (segment >= n_segments) return;
    const Element* from = values + frame * frame_elements;
    const Word place = (Word)frame * n_segments + segment;
    Half* own = words + place * room;
    Byte* history = histories[warp];
    unsigned state = LOW, top = room, missed;
    const unsigned begin = segment << tiles_log2, stop = min(n_tiles, (segment + 1) << tiles_log2);
    for (unsigned tile = stop; tile-- > begin;) {
        for (unsigned r = 0; r < ROUNDS; ++r) {
            const unsigned t = r * LANES + lane;
            history[t] = magnitude_of(numbers_at(from, frame_elements, (Word)tiles[tile] + local[t], rules, missed));
        }
        for (unsigned r = ROUNDS; r-- > 0;) {
            if (top < MOST_ROUND_WORDS) {
                if (lane == 0) n_words[place] = ~0u;
                return;
            }
            const Word number = (Word)tiles[tile] + local[r * LANES + lane];
            const Numbers numbers = numbers_at(from, frame_elements, number, rules, missed);
            const unsigned bucket = bucket_of(history, r, lane);
            for (unsigned c = COMPONENTS; c-- > 0;) {
                const unsigned which = table_of(c, bucket, numbers.of[0]);
                push_number(state, numbers.of[c], table + which * (TOKENS + 1), own, top, lane);
            }
        }
    }
    if (lane == 0) n_words[place] = room - top;
    states[place * LANES + lane] = state;
}

// Bring segments together: each, states and then words, to its place in `coded` (offsets in bytes, multiples
// of 4; the bytes that fill a segment up are zero already). A block copies a segment.
extern "C" __global__ void __launch_bounds__(THREADS) small_pack(
    const Half* words, unsigned room, const unsigned* n_words, const unsigned* states, const Word* offsets,
    Byte* coded)
{
    const Word segment = blockIdx.x;
    const unsigned count = n_words[segment];
    const Half* from = words + segment * room + (room - count);
    Half* into = (Half*)(coded + offsets[segment] + STATES_BYTES);
    if (threadIdx.x < LANES) {
        ((unsigned*)(coded + offsets[segment]))[threadIdx.x] = states[segment * LANES + threadIdx.x];
    }
    for (unsigned k = threadIdx.x; k < count; k += THREADS) into[k] = from[k];
}

struct Reader {
    const Half* words;
    unsigned count, at;
};

// Lanes whose state is low take a word each, in the order of the lanes; past the end they take 0.
__device__ __forceinline__ void refill(unsigned& state, bool active, Reader& reader, unsigned lane)
{
    const bool low = active && state < LOW;
    const unsigned all = __ballot_sync(WHOLE_WARP, low);
    if (low) {
        const unsigned at = reader.at + __popc(all & lanes_below(lane));
        state = state << 16 | (at < reader.count ? reader.words[at] : 0);
    }
    reader.at += __popc(all);
}

// `coarse`: for each 64 slots of the table the token of the first.
__device__ __forceinline__ int take_number(
    unsigned& state, const Half* starts, const Byte* coarse, Reader& reader, unsigned lane)
{
    const unsigned slot = state & (TOTAL - 1);
    unsigned token = coarse[slot / (TOTAL / SLOTS)];
    while (starts[token + 1] <= slot) ++token;
    state = (starts[token + 1] - starts[token]) * (state >> TOTAL_LOG2) + slot - starts[token];
    refill(state, true, reader, lane);
    unsigned bits = 0, z = token;
    if (token >= DIRECT) {
        bits = 3 + (token - DIRECT) / 2;
        z = (2 + (token & 1)) << bits;
    }
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

// coded: segments at `offsets` (frames * n_segments) in bytes, n_words of each; values are filled. damaged (1)
// is set where a segment's words or states do not come out even. A warp decodes a segment. Tables whose last
// start is not TOTAL are not used by a sound stream; their numbers come out as 0.
extern "C" __global__ void __launch_bounds__(THREADS) small_decode(
    const Byte* coded, const Word* offsets, const unsigned* n_words, Word frame_elements, const unsigned* local,
    const unsigned* tiles, unsigned n_tiles, Rules rules, const Half* starts, unsigned tiles_log2,
    unsigned n_segments, Element* values, unsigned* damaged)
{
    __shared__ Byte histories[WARPS][TILE];
    __shared__ Half table[TABLES * (TOKENS + 1)];
    __shared__ Byte coarse[TABLES * SLOTS];
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, frame = blockIdx.y;
    const unsigned segment = blockIdx.x * WARPS + warp;
    for (unsigned k = threadIdx.x; k < TABLES * (TOKENS + 1); k += THREADS) {
        const Half start = starts[(Word)frame * TABLES * (TOKENS + 1) + k];
        table[k] = k % (TOKENS + 1) == TOKENS ? TOTAL : start;
    }
    __syncthreads();
    for (unsigned k = threadIdx.x; k < TABLES * SLOTS; k += THREADS) {
        const Half* own = table + k / SLOTS * (TOKENS + 1);
        unsigned token = 0;
        while (own[token + 1] <= k % SLOTS * (TOTAL / SLOTS)) ++token;
        coarse[k] = token;
    }
    __syncthreads();
    if (segment >= n_segments) return;
    const Word place = (Word)frame * n_segments + segment;
    Reader reader = {(const Half*)(coded + offsets[place] + STATES_BYTES), n_words[place], 0};
    unsigned state = ((const unsigned*)(coded + offsets[place]))[lane];
    Element* into = values + frame * frame_elements;
    Byte* history = histories[warp];
    const unsigned begin = segment << tiles_log2, stop = min(n_tiles, (segment + 1) << tiles_log2);
    for (unsigned tile = begin; tile < stop && reader.at <= reader.count; ++tile) {
        for (unsigned r = 0; r < ROUNDS; ++r) {
            const unsigned t = r * LANES + lane, bucket = bucket_of(history, r, lane);
            Numbers numbers = {};
            Element element;
            for (unsigned c = 0; c < COMPONENTS; ++c) {
                const unsigned which = table_of(c, bucket, numbers.of[0]);
                numbers.of[c] = take_number(state, table + which * (TOKENS + 1), coarse + which * SLOTS, reader, lane);
                element.part[c] = restored(numbers.of[c], rules.of[c]);
            }
            history[t] = magnitude_of(numbers);
            const Word number = (Word)tiles[tile] + local[t];
            if (number < frame_elements) into[number] = element;
        }
    }
    if (state != LOW || reader.at != reader.count) *damaged = 1;
}
