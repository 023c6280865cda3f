// Frames around what the coders write: sizes, places in the stream, values without loss, checksums.

#include "tile.cuh"
#include "checksum.cuh"

#define THREADS 256
#define WARPS (THREADS / LANES)
#define AT_ONCE 4
#define MOST_HEADER_WORDS 79

// The sum of `count` sizes (~0: 2^40), and of those before each where `starts` (count) is given. A block.
__device__ __forceinline__ Word summed(const unsigned* sizes, unsigned count, Word* starts, Word* sums)
{
    Word all = 0, total;
    for (unsigned first = 0; first < count; first += THREADS * AT_ONCE) {
        const unsigned begin = first + threadIdx.x * AT_ONCE;
        Word own[AT_ONCE], sum = 0;
#pragma unroll
        for (unsigned k = 0; k < AT_ONCE; ++k) {
            const unsigned size = begin + k < count ? sizes[begin + k] : 0;
            own[k] = size == ~0u ? (Word)1 << 40 : size;
            sum += own[k];
        }
        Word before = all + scanned<WARPS>(sum, sums, total);
#pragma unroll
        for (unsigned k = 0; k < AT_ONCE; ++k) {
            if (starts && begin + k < count) starts[begin + k] = before;
            before += own[k];
        }
        all += total;
    }
    return all;
}

// Put frames behind one another, from byte `begin` on, or from *end on where it is 0; *end moves on. Those that would
// end beyond out_bytes become BAD. Where these end the stream, the host gets that offset. A block.
__device__ __forceinline__ void place(
    Frame* frames, unsigned n_frames, Word out_bytes, Word begin, Word* end, bool ends, Word* mailbox, Word* sums)
{
    Word at = begin ? begin : *end;
    __syncthreads();
    for (unsigned first = 0; first < n_frames; first += THREADS) {
        const unsigned number = first + threadIdx.x;
        const Word size = number < n_frames ? FRAME_HEADER_BYTES + frames[number].size : 0;
        Word total;
        const Word start = at + scanned<WARPS>(size, sums, total);
        if (number < n_frames) {
            frames[number].start = start + FRAME_HEADER_BYTES;
            if (start + size > out_bytes) frames[number].kind = BAD;
        }
        at += total;
    }
    if (threadIdx.x != 0) return;
    *end = at;
    if (ends) mailbox[0] = at, post(mailbox, 2);
}

// Of a plan's frames, gridDim.x at most, a block each: from the bytes of parts (frames, n_tiles; ~0: does not fit) and
// before them, and the exact values of tiles (frames, COMPONENTS, n_tiles), where parts start, behind the head, and the
// frame; the last block puts frames to their places, as above. Where they are not `coded`, frames have their sizes.
extern "C" __global__ void __launch_bounds__(THREADS) place_frames(
    unsigned coded, const unsigned* sizes, const unsigned* heads, const unsigned* exact, Frames* plan, Word* starts,
    Frame* frames, Word out_bytes, Word begin, Word* end, Word* mailbox)
{
    __shared__ Word sums[WARPS];
    __shared__ bool is_last;
    const unsigned number = blockIdx.x, n_tiles = plan->n_tiles, all = COMPONENTS * n_tiles;
    if (coded && number < plan->count) {
        const Word tile = (Word)number * n_tiles, first = (Word)number * all;
        const Word bytes = heads[number] + summed(sizes + tile, n_tiles, starts + tile, sums);
        const Word count = summed(exact + first, all, nullptr, sums);
        if (threadIdx.x == 0) {
            const Word raw_bytes = plan->elements * VALUE_BYTES;
            const Word needed = bytes + exact_bytes(count) + CODED_HEAD_BYTES + 8;
            const bool good = count <= plan->elements * COMPONENTS / MOST_EXACT + 1 && needed <= raw_bytes;
            Frame& frame = frames[number];
            frame.sum = frame.damaged = 0;
            frame.kind = good ? CODED : RAW;
            frame.exact = good ? count : 0;
            frame.coded = good ? bytes : 0;
            frame.size = good ? CODED_HEAD_BYTES + filled(bytes) + exact_bytes(count) : filled(8 + raw_bytes);
        }
    }
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(&plan->done, 1u) + 1 == gridDim.x;
        __threadfence();
    }
    __syncthreads();
    if (!is_last) return;
    const bool whole = plan->count <= gridDim.x;
    place(frames, whole ? plan->count : gridDim.x, out_bytes, begin, end, plan->ends && whole, mailbox, sums);
}

// What coders leave out of frames in the stream: first words, filling, exact values (their places in the order of
// the stream, and bits), and values without loss. Frames along y, of which there may be more than the plan has; blocks
// along x share the tiles.
extern "C" __global__ void __launch_bounds__(THREADS) fill_frames(
    const Element* values, const Frames* plan, const unsigned* exact, const Frame* frames, Byte* out)
{
    __shared__ Word sums[WARPS], starts[THREADS];
    __shared__ unsigned counts[WARPS], parts[THREADS], n_parts;
    if (blockIdx.y >= plan->count) return;
    const Frame frame = frames[blockIdx.y];
    if (frame.kind == BAD) return;
    const Word frame_elements = plan->elements;
    const unsigned n_tiles = plan->n_tiles;
    const Element* from = values + blockIdx.y * frame_elements;
    Word* words = (Word*)(out + frame.start);
    if (frame.kind == RAW) {
        const bool odd = frame_elements * VALUE_BYTES % 8 != 0;
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            words[0] = RAW;
            if (odd) ((unsigned*)words)[frame.size / 4 - 1] = 0;
        }
        for (unsigned tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
            copy_raw((const REAL*)from, (REAL*)(words + 1), frame_elements, tile, threadIdx.x, THREADS);
        }
        return;
    }
    Byte* behind = out + frame.start + CODED_HEAD_BYTES + filled(frame.coded);
    unsigned* places = (unsigned*)behind;
    BITS* bits = (BITS*)(behind + filled(frame.exact * PLACE_BYTES));
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        words[0] = CODED, words[1] = frame.exact, words[2] = frame.coded;
        if (frame.coded % 8) places[-1] = 0;
        if (frame.exact % 2) {
            places[frame.exact] = 0;
            if (sizeof(BITS) == 4) bits[frame.exact] = 0;
        }
    }
    const unsigned all = COMPONENTS * n_tiles, share = min(THREADS, (all + gridDim.x - 1) / gridDim.x);
    exact += (Word)blockIdx.y * all;
    Word before = 0;
    unsigned counted = 0;
    for (unsigned begin = blockIdx.x * share; frame.exact && begin < all; begin += gridDim.x * share) {
        before += summed(exact + counted, begin - counted, nullptr, sums), counted = begin;
        if (threadIdx.x == 0) n_parts = 0;
        __syncthreads();
        const unsigned own = begin + threadIdx.x, count = threadIdx.x < share && own < all ? exact[own] : 0;
        Word total;
        const Word start = before + scanned<WARPS>((Word)count, sums, total);
        if (count) {
            const unsigned place = atomicAdd(&n_parts, 1u);
            parts[place] = own, starts[place] = start;
        }
        __syncthreads();
        for (unsigned k = 0; k < n_parts; ++k) {
            const unsigned part = parts[k], c = part / n_tiles, tile = part % n_tiles;
            const Word first = tile_offset(tile, plan->order);
            Word at = starts[k];
            for (unsigned t = threadIdx.x; t < TILE; t += THREADS) {
                const Word number = first + deposited<0, TILE_LOG2>(t, plan->order.axes);
                bool missed = false;
                Element element = {};
                if (number < frame_elements) {
                    element = from[number];
                    quantized(element.part[c], plan->rules.of[c], missed);
                }
                unsigned total_missed;
                const unsigned own_before = scanned<WARPS>((unsigned)missed, counts, total_missed);
                if (missed) {
                    places[at + own_before] = (c * n_tiles + tile) * TILE + t;
                    bits[at + own_before] = bits_of(element.part[c]);
                }
                at += total_missed;
            }
        }
        __syncthreads();
    }
}

struct Header {
    Word words[MOST_HEADER_WORDS];
};

// Write the headers of frames, along y, of which the first is frame `first`, and that of the stream before frame 0.
// Blocks along x add shares of a frame's words, of which the coder has `summed` those of its own; the last one of them,
// counted in `damaged`, writes the header.
extern "C" __global__ void __launch_bounds__(THREADS) seal_frames(
    Header stream, unsigned n_words, Frame* frames, Word first, Word seed, unsigned summed, Byte* out)
{
    __shared__ Word sums[WARPS];
    Frame& frame = frames[blockIdx.y];
    const Word number = first + blockIdx.y;
    if (number == 0 && blockIdx.x == 0 && threadIdx.x < n_words) ((Word*)out)[threadIdx.x] = stream.words[threadIdx.x];
    const bool behind = summed && frame.kind == CODED;
    const Word head = CODED_HEAD_BYTES / sizeof(Word);
    if (behind && blockIdx.x == 0 && threadIdx.x < head) {
        atomicAdd(&frame.sum, stirred(((const Word*)(out + frame.start))[threadIdx.x], threadIdx.x));
    }
    add_words<AT_ONCE>(out, frame, blockIdx.x, gridDim.x, sums, behind ? head + filled(frame.coded) / sizeof(Word) : 0);
    if (threadIdx.x != 0 || frame.kind == BAD) return;
    __threadfence();
    if (atomicAdd(&frame.damaged, (Word)1) + 1 != gridDim.x) return;
    Word* header = (Word*)(out + frame.start - FRAME_HEADER_BYTES);
    header[0] = frame.size;
    header[1] = atomicAdd(&frame.sum, (Word)0) + frame.size + seed + (number + 1) * GOLDEN;
}
