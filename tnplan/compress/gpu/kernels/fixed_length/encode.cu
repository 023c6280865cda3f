// The coder `fast` writes: tiles are coded, and brought to their places in the stream.

#include "fixed_length.cuh"
#include "../common/checksum.cuh"
#include "../common/plan.cuh"

// Vectors and words in flight, and blocks on a multiprocessor, as registers allow.
#define LOADED 8u
#define MOVED 4
#define SLOT_WORDS (HEAD_BYTES / 4 + COMPONENTS * TILE)
#define BLOCKS (VALUE_BYTES == 4 ? 6 : 4)

// Write the first word of a tile that is not dense, its mask and the significant elements' places: the bytes before
// the numbers of planes. Every thread takes part; a row a thread.
__device__ __forceinline__ unsigned put_mask(Shared& shared, unsigned count)
{
    const unsigned row = threadIdx.x, lane = row % LANES, warp = row / LANES, first_row = warp * WARP_ROWS;
    const unsigned place = spread_lane(first_row, lane);
#pragma unroll
    for (unsigned k = 0; k < WARP_ROWS; ++k) {
        unsigned any = 0;
#pragma unroll
        for (unsigned c = 0; c < COMPONENTS; ++c) any |= shared.z[c][(place ^ k) + k * LANES];
        const unsigned word = __ballot_sync(WHOLE_WARP, any != 0);
        if (lane == 0) shared.mask[first_row + k] = word;
    }
    __syncthreads();
    const unsigned bits = row < ROWS ? shared.mask[row] : 0;
    const unsigned own = bytes_of(bits), group = own | __shfl_xor_sync(WHOLE_WARP, own, 1) << 4;
    const bool first = row % 2 == 0 && group;
    unsigned total;
    const unsigned packed = __popc(bits) | __popc(own) << 13 | (unsigned)first << 23;
    const unsigned before = scanned<WARPS>(packed, shared.sums, total);
    const unsigned n_groups = total >> 23, end = 12 + n_groups + (total >> 13 & 1023);
    const unsigned groups = __ballot_sync(WHOLE_WARP, first);
    if (row >= ROWS) return end;
    Byte* head = (Byte*)shared.head;
    if (row == 0) shared.head[0] = count;
    if (lane == 0) {
        unsigned even = groups;
#pragma unroll
        for (unsigned step = 1; step < 16; step *= 2) even = (even | even >> step) & ~0u / ((1u << 2 * step) + 1);
        ((Half*)(shared.head + 1))[warp] = (Half)even;
    }
    put_places(shared, row, bits, before % 8192);
    if (first) head[12 + (before >> 23)] = group;
    unsigned at = 12 + n_groups + (before >> 13 & 1023);
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
        if (own >> k & 1) head[at++] = bits >> 8 * k;
    }
    return end;
}

// What a thread has seen of a tile: significant elements, the bits of all numbers, and values to be stored exactly.
struct Seen {
    unsigned elements, bits, missing[COMPONENTS];

    // 1 for what is not 0 as a minimum is one instruction less than as a comparison.
    __device__ __forceinline__ void see(unsigned any)
    {
        bits |= any;
#ifdef __CUDA_ARCH__
        asm("min.u32 %0, %0, 1;" : "+r"(any));
#else
        any = any != 0;
#endif
        elements += any;
    }
};

// Fill shared.z with a tile's numbers. `from`: the first of this thread's elements; it goes to `place`.
__device__ __forceinline__ void put_vectors(
    Shared& shared, const Element* from, unsigned place, const Order& order, const Rules& rules, Seen& seen)
{
#pragma unroll 1
    for (unsigned begin = 0; begin < VECTORS; begin += min(VECTORS, LOADED)) {
        Vector vectors[VECTORS < LOADED ? VECTORS : LOADED];
#pragma unroll
        for (unsigned k = 0; k < min(VECTORS, LOADED); ++k) {
            vectors[k] = *(const Vector*)(from + combined<VECTOR_LOG2 + 8, TILE_LOG2>(begin + k, order.numbers));
        }
#pragma unroll
        for (unsigned k = 0; k < min(VECTORS, LOADED); ++k) {
            const unsigned row = place ^ combined<VECTOR_LOG2 + 8, TILE_LOG2>(begin + k, order.turns);
            unsigned z[VECTOR][COMPONENTS];
            bool sure = true;
#pragma unroll
            for (unsigned j = 0; j < VECTOR * COMPONENTS; ++j) {
                const unsigned v = j / COMPONENTS, c = j % COMPONENTS;
                z[v][c] = sure_zigzag(vectors[k].of[v].part[c], rules.of[c], sure);
            }
            if (!sure) {
#pragma unroll
                for (unsigned j = 0; j < VECTOR * COMPONENTS; ++j) {
                    const unsigned v = j / COMPONENTS, c = j % COMPONENTS;
                    bool missed;
                    z[v][c] = zigzag(quantized<true>(vectors[k].of[v].part[c], rules.of[c], missed));
                    seen.missing[c] += missed;
                }
            }
#pragma unroll
            for (unsigned v = 0; v < VECTOR; ++v) {
                unsigned any = 0;
#pragma unroll
                for (unsigned c = 0; c < COMPONENTS; ++c) {
                    at_bytes(shared.z[c], row ^ combined<0, VECTOR_LOG2>(v, order.turns)) = z[v][c];
                    any |= z[v][c];
                }
                seen.see(any);
            }
        }
    }
}

// The same for any order, rules and frame.
__device__ __forceinline__ void put_elements(
    Shared& shared, const Element* from, Word frame_elements, unsigned tile, const Order& order,
    const Rules& rules, Seen& seen)
{
    const Mine mine = mine_of<0>(order);
    const Word first = (Word)tile_offset(tile, order) + mine.number;
#pragma unroll 1
    for (unsigned k = 0; k < TILE / THREADS; ++k) {
        const Word number = first + combined<8, TILE_LOG2>(k, order.numbers);
        const unsigned into = mine.place ^ combined<8, TILE_LOG2>(k, order.turns);
        const bool inside = number < frame_elements;
        Element element = {};
        if (inside) element = from[number];
        unsigned any = 0;
#pragma unroll
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            bool missed;
            const int q = quantized(element.part[c], rules.of[c], missed);
            const unsigned z = inside ? zigzag(q) : 0;
            at_bytes(shared.z[c], into) = z;
            any |= z;
            seen.missing[c] += inside && missed;
        }
        seen.see(any);
    }
}

// Of the numbers that are stored: this lane's of block warp + k WARPS. In a dense tile they are where they were put.
__device__ __forceinline__ unsigned stored(Shared& shared, bool dense, unsigned c, unsigned k, unsigned most)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, own = (warp + k * WARPS) * LANES + lane;
    if (dense) return at_bytes(shared.z[c] + warp * LANES, turned(4 * (lane ^ warp), k));
    return own < most ? at_bytes(shared.z[c], shared.places[own]) : 0;
}

// Where no number has more than 16 bits: keep the planes of this warp's blocks, of a pair of them in the two halves
// of a warp, and fill shared.found.
template <bool dense>
__device__ __forceinline__ void keep_planes(
    Shared& shared, unsigned most, unsigned blocks, unsigned (&own_planes)[COMPONENTS][PAIRS])
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const Turner turner(lane);
#pragma unroll
    for (unsigned c = 0; c < COMPONENTS; ++c) {
#pragma unroll
        for (unsigned p = 0; p < PAIRS; ++p) {
            if (!dense && warp + 2 * p * WARPS >= blocks) break;
            const unsigned one = stored(shared, dense, c, 2 * p, most), other = stored(shared, dense, c, 2 * p + 1, most);
            own_planes[c][p] = turner.transposed(__byte_perm(one, other, 0x5410));
            const unsigned any = __ballot_sync(WHOLE_WARP, own_planes[c][p] != 0);
            if (lane == 0) shared.found[c * ROWS / 2 + p * WARPS + warp] = any;
        }
    }
}

// Write the planes of `keep_planes`.
template <bool dense>
__device__ __forceinline__ void write_own_planes(
    const Shared& shared, unsigned blocks, const unsigned (&own_planes)[COMPONENTS][PAIRS], unsigned* words)
{
    const unsigned own = threadIdx.x % HALF_WARP, half = threadIdx.x / HALF_WARP % 2;
    const unsigned first = threadIdx.x / LANES + half * WARPS;
#pragma unroll
    for (unsigned c = 0; c < COMPONENTS; ++c) {
#pragma unroll
        for (unsigned p = 0; p < PAIRS; ++p) {
            const unsigned block = first + 2 * p * WARPS;
            if (!dense && block - half * WARPS >= blocks) break;
            const unsigned planes = dense || block < blocks ? shared.planes[c * blocks + block] : 0;
            if (own < planes % 256) words[(planes >> 8) + own] = own_planes[c][p];
        }
    }
}

// The same for numbers of any size, a block at a time: how many planes there are, and the planes.
__device__ __forceinline__ void count_planes(Shared& shared, bool dense, unsigned most, unsigned blocks)
{
    const unsigned warp = threadIdx.x / LANES;
#pragma unroll 1
    for (unsigned k = 0; k < COMPONENTS * WARP_ROWS; ++k) {
        const unsigned c = k / WARP_ROWS, block = warp + k % WARP_ROWS * WARPS;
        if (block >= blocks) continue;
        const unsigned any = __reduce_or_sync(WHOLE_WARP, stored(shared, dense, c, k % WARP_ROWS, most));
        if (threadIdx.x % LANES == 0) shared.planes[c * blocks + block] = 32 - __clz(any);
    }
}

__device__ __forceinline__ void write_planes(
    Shared& shared, bool dense, unsigned most, unsigned blocks, unsigned* words)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const Turner turner(lane);
#pragma unroll 1
    for (unsigned k = 0; k < COMPONENTS * WARP_ROWS; ++k) {
        const unsigned c = k / WARP_ROWS, block = warp + k % WARP_ROWS * WARPS;
        if (block >= blocks) continue;
        const unsigned plane = turner.transposed(stored(shared, dense, c, k % WARP_ROWS, most));
        const unsigned planes = shared.planes[c * blocks + block];
        if (lane < planes % 256) words[(planes >> 8) + lane] = plane;
    }
}

// Fill shared.planes, and the head from byte `at` on, from what the warps have found; how many planes there are.
// A block a thread.
__device__ __forceinline__ unsigned place_planes(Shared& shared, bool wide, unsigned blocks, unsigned at)
{
    const unsigned number = threadIdx.x, count = COMPONENTS * blocks;
    const unsigned c = COMPONENTS == 2 && number >= blocks, block = number - c * blocks;
    unsigned own = 0, total;
    if (number < count) {
        const unsigned found = shared.found[c * ROWS / 2 + block / (2 * WARPS) * WARPS + block % WARPS];
        own = wide ? shared.planes[number] : 32 - __clz(found >> block / WARPS % 2 * HALF_WARP & 0xffff);
    }
    const unsigned before = scanned<WARPS>(own, shared.sums, total);
    if (number < count) shared.planes[number] = own | before << 8;
    // Numbers of planes end with the threads, or there are threads for what fills the last word.
    if (at + number < filled_words(at + count)) ((Byte*)shared.head)[at + number] = own;
    return total;
}

// values: frames as the plan says, offsets (n_tiles): its tiles. slots (frames, n_tiles, SLOT_WORDS): the bytes of each
// tile; sizes (frames, n_tiles): how many; heads (frames): the bytes before a frame's tiles, that is, of these sizes;
// exact (frames, COMPONENTS, n_tiles): values to be stored exactly. Tiles along x, frames along y; there may be more of
// both than the plan has.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) fast_encode(
    const Element* values, const Plan* __restrict__ plan, const unsigned* __restrict__ offsets, unsigned* slots,
    unsigned* sizes, unsigned* heads, unsigned* exact)
{
    __shared__ Shared shared;
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const Frames& frames = plan->frames;
    const unsigned frame = blockIdx.y, tile = blockIdx.x, n_tiles = frames.n_tiles, part = frame * n_tiles + tile;
    if (frame >= frames.count || tile >= n_tiles) return;
    const Word frame_elements = frames.elements, mine = plan->mine[threadIdx.x];
    const Element* from = values + frame * frame_elements;
    Seen seen = {};
    if (plan->plain) {
        put_vectors(shared, from + offsets[tile] + (unsigned)mine, mine >> 32, frames.order, frames.rules, seen);
    } else {
        put_elements(shared, from, frame_elements, tile, frames.order, frames.rules, seen);
    }
    const unsigned sum = __reduce_add_sync(WHOLE_WARP, seen.elements);
    const unsigned missing = __reduce_add_sync(WHOLE_WARP, seen.missing[0] | seen.missing[COMPONENTS - 1] << 16);
    const bool many = __any_sync(WHOLE_WARP, seen.bits >> HALF_WARP);
    if (lane == 0) shared.sums[warp] = sum | (unsigned)many << 16, shared.exact[warp] = missing;
    __syncthreads();
    unsigned found = 0, lost = 0;
#pragma unroll
    for (unsigned w = 0; w < WARPS; ++w) found += shared.sums[w], lost += shared.exact[w];
    const unsigned count = found % (1u << 16);
    const bool wide = found >> 16, dense = count >= DENSE_FROM;
    if (threadIdx.x < COMPONENTS) {
        exact[(frame * COMPONENTS + threadIdx.x) * n_tiles + tile] = lost >> 16 * threadIdx.x & 0xffff;
    }
    if (threadIdx.x == 0 && tile == 0) heads[frame] = 4 * n_tiles;
    if (count == 0) {
        if (threadIdx.x == 0) sizes[part] = 0;
        return;
    }
    if (dense && threadIdx.x == 0) shared.head[0] = count | DENSE;
    const unsigned at = dense ? 4 : put_mask(shared, count);
    const unsigned most = dense ? TILE : count, blocks = (most + LANES - 1) / LANES;
    if (!dense) __syncthreads();
    unsigned own_planes[COMPONENTS][PAIRS];
    if (wide) count_planes(shared, dense, most, blocks);
    else if (dense) keep_planes<true>(shared, TILE, ROWS, own_planes);
    else keep_planes<false>(shared, most, blocks, own_planes);
    __syncthreads();
    const unsigned n_planes = place_planes(shared, wide, blocks, at);
    const unsigned head_words = filled_words(at + COMPONENTS * blocks) / 4;
    __syncthreads();
    unsigned* words = slots + (Word)part * SLOT_WORDS;
    if (threadIdx.x == 0) sizes[part] = 4 * (head_words + n_planes);
    if (threadIdx.x < head_words) words[threadIdx.x] = shared.head[threadIdx.x];
    words = settled(words + head_words);
    if (wide) write_planes(shared, dense, most, blocks, words);
    else if (dense) write_own_planes<true>(shared, ROWS, own_planes, words);
    else write_own_planes<false>(shared, blocks, own_planes, words);
}

// The first half of a word of the tiles from `tile` on, or 0, which fills the last word.
__device__ __forceinline__ unsigned next_half(const unsigned* slots, const unsigned* sizes, unsigned tile, unsigned n_tiles)
{
    while (tile < n_tiles && !sizes[tile]) ++tile;
    return tile < n_tiles ? slots[(Word)tile * SLOT_WORDS] : 0;
}

// Bring the tiles of coded frames to their places in the stream, and their sizes before them, and add the words to the
// frames' sums: a warp a tile, as for fast_encode, which takes the words of which the first half is the tile's. starts
// (frames, n_tiles): where each is behind the frame's head.
extern "C" __global__ void __launch_bounds__(THREADS) fast_pack(
    const unsigned* slots, const unsigned* sizes, const Word* starts, const Plan* plan, Frame* frames, Byte* out)
{
    __shared__ Word sums[WARPS];
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, tile = blockIdx.x * WARPS + warp;
    const unsigned n_tiles = plan->frames.n_tiles, first = blockIdx.y * n_tiles;
    if (blockIdx.y >= plan->frames.count) return;
    Frame& frame = frames[blockIdx.y];
    if (frame.kind != CODED) return;
    slots += (Word)first * SLOT_WORDS, sizes += first, starts += first;
    Word* words = (Word*)(out + frame.start);
    Word sum = 0;
    const auto put = [&](Word half, unsigned low, unsigned high) {
        const Word word = (Word)high << 32 | low;
        words[half / 2] = word;
        sum += stirred(word, half / 2);
    };
    const unsigned head = CODED_HEAD_BYTES / sizeof(unsigned), n_halves = tile < n_tiles ? sizes[tile] / 4 : 0;
    if (lane == 0 && tile < n_tiles && tile % 2 == 0) {
        const bool both = tile + 1 < n_tiles;
        put(head + tile, sizes[tile], both ? sizes[tile + 1] : next_half(slots, sizes, 0, n_tiles));
    }
    const unsigned* from = slots + (Word)tile * SLOT_WORDS;
    const Word begin = head + n_tiles + (n_halves ? starts[tile] / 4 : 0);
    unsigned k = begin % 2 + 2 * lane;
    for (; k + 2 * (MOVED - 1) * LANES + 1 < n_halves; k += 2 * MOVED * LANES) {
        unsigned halves[MOVED][2];
#pragma unroll
        for (unsigned j = 0; j < MOVED; ++j) {
            halves[j][0] = from[k + 2 * j * LANES], halves[j][1] = from[k + 2 * j * LANES + 1];
        }
#pragma unroll
        for (unsigned j = 0; j < MOVED; ++j) put(begin + k + 2 * j * LANES, halves[j][0], halves[j][1]);
    }
    for (; k < n_halves; k += 2 * LANES) {
        put(begin + k, from[k], k + 1 < n_halves ? from[k + 1] : next_half(slots, sizes, tile + 1, n_tiles));
    }
    for (unsigned step = LANES / 2; step; step /= 2) sum += __shfl_xor_sync(WHOLE_WARP, sum, step);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (unsigned w = 1; w < WARPS; ++w) sum += sums[w];
    atomicAdd(&frame.sum, sum);
}
