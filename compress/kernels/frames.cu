// Frames around what the coders write: sizes, places in the stream, values without loss, checksums; and back.

#include "tile.cuh"
#include "checksum.cuh"

#define THREADS 256
#define WARPS (THREADS / LANES)
#define PLANES 1
#define AT_ONCE 4
#define MOST_HEADER_WORDS 79
// Of a header: bytes before the quantizers, of each of these, and of the axes.
#define FIXED_BYTES 32
#define RULE_BYTES 32
#define AXES_BYTES 16
#define LARGEST_FRAME_LOG2 30

// The sum of `count` sizes (~0: 2^40), and of those before each: starts (count). A block.
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
            if (begin + k < count) starts[begin + k] = before;
            before += own[k];
        }
        all += total;
    }
    return all;
}

// From the bytes of a frame's parts (frames, n_tiles; ~0: does not fit) and before them, and the exact values of
// its tiles (frames, COMPONENTS, n_tiles): where parts start, behind the head, and exact values; the frame, but for
// where it starts. A block a frame.
extern "C" __global__ void __launch_bounds__(THREADS) frame_sizes(
    const unsigned* sizes, const unsigned* heads, const unsigned* exact, unsigned n_tiles, Word frame_elements,
    Word* starts, Word* exact_starts, Frame* frames)
{
    __shared__ Word sums[WARPS];
    const unsigned number = blockIdx.x, all = COMPONENTS * n_tiles;
    const Word tile = (Word)number * n_tiles, place = (Word)number * all;
    const Word coded = heads[number] + summed(sizes + tile, n_tiles, starts + tile, sums);
    const Word count = summed(exact + place, all, exact_starts + place, sums);
    if (threadIdx.x != 0) return;
    const Word raw_bytes = frame_elements * VALUE_BYTES;
    const Word coded_bytes = coded + exact_bytes(count) + CODED_HEAD_BYTES + 8;
    const bool good = count <= frame_elements * COMPONENTS / MOST_EXACT + 1 && coded_bytes <= raw_bytes;
    Frame& frame = frames[number];
    frame.sum = frame.damaged = 0;
    frame.kind = good ? CODED : RAW;
    frame.exact = good ? count : 0;
    frame.coded = good ? coded : 0;
    frame.size = good ? CODED_HEAD_BYTES + filled(coded) + exact_bytes(count) : filled(8 + raw_bytes);
}

// Put n_frames frames behind one another, from byte `begin` on, or from *end on where it is 0; *end moves on. Those
// that would end beyond out_bytes become BAD. Of the last ones the host is told where they end. One block.
extern "C" __global__ void __launch_bounds__(THREADS) place_frames(
    Frame* frames, unsigned n_frames, Word out_bytes, Word begin, Word* end, unsigned last, Word* told)
{
    __shared__ Word sums[WARPS];
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
    if (last) told[0] = at, post(told, 2);
}

// What coders leave out of frames in the stream: first words, filling, exact values (their places in the order of
// the stream, and bits), and values without loss. Frames along y, blocks along x share the tiles.
extern "C" __global__ void __launch_bounds__(THREADS) fill_frames(
    const Element* values, Word frame_elements, Order order, unsigned n_tiles, Rules rules, const unsigned* exact,
    const Word* exact_starts, const Frame* frames, Byte* out)
{
    __shared__ unsigned sums[WARPS], parts[THREADS], n_parts;
    const Frame frame = frames[blockIdx.y];
    if (frame.kind == BAD) return;
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
    exact += (Word)blockIdx.y * all, exact_starts += (Word)blockIdx.y * all;
    for (unsigned begin = blockIdx.x * share; frame.exact && begin < all; begin += gridDim.x * share) {
        __syncthreads();
        if (threadIdx.x == 0) n_parts = 0;
        __syncthreads();
        const unsigned own = begin + threadIdx.x;
        if (threadIdx.x < share && own < all && exact[own]) parts[atomicAdd(&n_parts, 1u)] = own;
        __syncthreads();
        for (unsigned k = 0; k < n_parts; ++k) {
            const unsigned part = parts[k], c = part / n_tiles, tile = part % n_tiles;
            const Word first = tile_offset(tile, order);
            Word at = exact_starts[part];
            for (unsigned t = threadIdx.x; t < TILE; t += THREADS) {
                const Word number = first + deposited<0, TILE_LOG2>(t, order.axes);
                bool missed = false;
                Element element = {};
                if (number < frame_elements) {
                    element = from[number];
                    quantized(element.part[c], rules.of[c], missed);
                }
                unsigned total;
                const unsigned before = scanned<WARPS>((unsigned)missed, sums, total);
                if (missed) {
                    places[at + before] = (c * n_tiles + tile) * TILE + t;
                    bits[at + before] = bits_of(element.part[c]);
                }
                at += total;
            }
        }
    }
}

struct Header {
    Word words[MOST_HEADER_WORDS];
};

// Write the headers of frames, along y, of which the first is frame `first`, and that of the stream before frame 0.
// Blocks along x add shares of a frame's words; the last one of them, counted in `damaged`, writes the header.
extern "C" __global__ void __launch_bounds__(THREADS) seal_frames(
    Header stream, unsigned n_words, Frame* frames, Word first, Word seed, Byte* out)
{
    __shared__ Word sums[WARPS];
    Frame& frame = frames[blockIdx.y];
    const Word number = first + blockIdx.y;
    if (number == 0 && blockIdx.x == 0 && threadIdx.x < n_words) ((Word*)out)[threadIdx.x] = stream.words[threadIdx.x];
    add_words<AT_ONCE>(out, frame, blockIdx.x, gridDim.x, sums);
    if (threadIdx.x != 0 || frame.kind == BAD) return;
    __threadfence();
    if (atomicAdd(&frame.damaged, (Word)1) + 1 != gridDim.x) return;
    Word* header = (Word*)(out + frame.start - FRAME_HEADER_BYTES);
    header[0] = frame.size;
    header[1] = atomicAdd(&frame.sum, (Word)0) + frame.size + seed + (number + 1) * GOLDEN;
}

// What a stream's header (compress/stream.py) says of its frames. Where it makes no sense there are none, or the host
// refuses it.
struct Layout {
    Word at, n_frames, frame_bytes, last_bytes;
    bool coded;
};

__device__ __forceinline__ Layout layout_of(const Byte* data, Word data_bytes)
{
    Layout layout = {};
    if (data_bytes < FIXED_BYTES) return layout;
    const unsigned components = data[16] < 2 ? 1 : 2, log2 = data[20], n_axes = *(const Half*)(data + 22);
    const Word sizes = FIXED_BYTES + components * RULE_BYTES + AXES_BYTES;
    layout.at = ((const unsigned*)data)[3];
    if (log2 > LARGEST_FRAME_LOG2 || layout.at != sizes + 8ull * n_axes + 8 || layout.at > data_bytes) return layout;
    Word elements = 1;
    for (unsigned k = 0; k < n_axes; ++k) elements *= ((const Word*)(data + sizes))[k];
    if (data[19]) elements = elements / 2 + elements % 2;
    const Word whole = elements >> log2, rest = elements & ((1ull << log2) - 1), bytes = components * sizeof(REAL);
    layout.n_frames = whole + (rest != 0), layout.frame_bytes = bytes << log2;
    layout.last_bytes = rest ? rest * bytes : layout.frame_bytes;
    layout.coded = data[18] != 0;
    return layout;
}

// Tell the host the first words of a stream, MOST_HEADER_WORDS at most, and find its frames, `room` of them at most. At
// the first one whose fields contradict each other all that follow are BAD. A warp, and then one thread; REAL is that
// of the stream, COMPONENTS may be another.
extern "C" __global__ void __launch_bounds__(LANES) find_frames(
    const Byte* data, Word data_bytes, Word room_frames, Frame* frames, Word* told)
{
    for (unsigned k = threadIdx.x; k < MOST_HEADER_WORDS && k < data_bytes / 8; k += LANES) {
        told[k] = ((const Word*)data)[k];
    }
    __threadfence_system();
    __syncwarp();
    if (threadIdx.x != 0) return;
    post(told, MOST_HEADER_WORDS + 1);
    const Layout layout = layout_of(data, data_bytes);
    const Word n_frames = layout.n_frames < room_frames ? layout.n_frames : room_frames;
    bool good = true;
    Word at = layout.at;
    for (Word number = 0; number < n_frames; ++number) {
        const Word raw_bytes = number + 1 == n_frames ? layout.last_bytes : layout.frame_bytes;
        Frame frame = {at + FRAME_HEADER_BYTES, 0, 0, 0, BAD, 0, 0, 0};
        if (good && at + FRAME_HEADER_BYTES + 8 <= data_bytes) {
            const Word* words = (const Word*)(data + at);
            const Word room = data_bytes - frame.start;
            const bool whole = room >= CODED_HEAD_BYTES;
            const Word size = words[0], kind = words[2];
            const Word exact = whole ? words[3] : 0, bytes = whole ? words[4] : 0;
            frame.size = size;
            frame.stated = words[1] - size - (number + 1) * GOLDEN;
            good = size % 8 == 0 && size >= 8 && size <= filled(8 + raw_bytes) && size <= room;
            if (kind == RAW) good = good && size == filled(8 + raw_bytes);
            else if (kind == CODED) {
                good = good && layout.coded && size >= CODED_HEAD_BYTES && exact <= size && bytes <= size
                    && bytes % 4 == 0 && size == CODED_HEAD_BYTES + filled(bytes) + exact_bytes(exact);
                frame.exact = exact, frame.coded = bytes;
            } else good = good && kind == PLANES;
            if (good) frame.kind = kind;
        } else good = false;
        frame.damaged = frame.kind == BAD;
        frames[number] = frame;
        at = frame.start + frame.size;
    }
}

// Tell the host, once all else is done: the number of the first frame that is damaged, whose sum is wrong, or that was
// stored without loss by a CPU, or n_frames; whether it is one of the latter; where the last frame ends. One block.
extern "C" __global__ void __launch_bounds__(THREADS) judge_frames(
    const Frame* frames, Word n_frames, Word seed, Word* told)
{
    __shared__ Word firsts[THREADS];
    Word first = n_frames;
    for (Word number = threadIdx.x; number < first; number += THREADS) {
        const Frame frame = frames[number];
        if (frame.kind == PLANES || frame.damaged || frame.sum + seed != frame.stated) first = number;
    }
    firsts[threadIdx.x] = first;
    for (unsigned half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x >= half) continue;
        const Word other = firsts[threadIdx.x + half];
        if (other < firsts[threadIdx.x]) firsts[threadIdx.x] = other;
    }
    if (threadIdx.x != 0) return;
    const Frame& last = frames[n_frames - 1];
    told[0] = firsts[0], told[1] = firsts[0] < n_frames && frames[firsts[0]].kind == PLANES;
    told[2] = last.start + last.size;
    post(told, 4);
}

// Put the exact values of coded frames, along y, to their places; `damaged` where these are not in order or are
// beyond the frame.
extern "C" __global__ void __launch_bounds__(THREADS) put_exact(
    const Byte* data, Frame* frames, Word frame_elements, Order order, unsigned n_tiles, Element* values)
{
    Frame& frame = frames[blockIdx.y];
    if (frame.kind != CODED) return;
    const Byte* behind = data + frame.start + CODED_HEAD_BYTES + filled(frame.coded);
    const unsigned* places = (const unsigned*)behind;
    const BITS* bits = (const BITS*)(behind + filled(frame.exact * PLACE_BYTES));
    BITS* into = (BITS*)(values + blockIdx.y * frame_elements);
    for (Word i = (Word)blockIdx.x * THREADS + threadIdx.x; i < frame.exact; i += (Word)gridDim.x * THREADS) {
        const unsigned place = places[i], tile = place / TILE % n_tiles, c = place / TILE / n_tiles;
        const Word number = (Word)tile_offset(tile, order) + deposited<0, TILE_LOG2>(place % TILE, order.axes);
        if ((i && places[i - 1] >= place) || c >= COMPONENTS || number >= frame_elements) frame.damaged = 1;
        else into[number * COMPONENTS + c] = bits[i];
    }
}
