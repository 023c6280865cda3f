// The coder `fast` writes: tiles are coded, and brought to their places in the stream.

#include "fast.cuh"

// Vectors and words in flight, and blocks on a multiprocessor, as registers allow.
#define LOADED 8u
#define MOVED 8
#define BLOCKS (VALUE_BYTES == 4 ? 6 : 4)

// Write the tile's first word and its mask from shared.mask to shared.head, in which numbers of planes follow, and
// the significant elements' places. Every thread takes part; a row a thread.
__device__ __forceinline__ Counts put_mask(Shared& shared)
{
    const unsigned row = threadIdx.x, lane = row % LANES, bits = row < ROWS ? shared.mask[row] : 0;
    const unsigned own = bytes_of(bits), group = own | __shfl_xor_sync(WHOLE_WARP, own, 1) << 4;
    const bool first = row % 2 == 0 && group;
    unsigned total;
    const unsigned packed = __popc(bits) | __popc(own) << 13 | (unsigned)first << 23;
    const unsigned before = scanned<WARPS>(packed, shared.sums, total);
    const Counts counts = {total % 8192, total >> 13 & 1023, total >> 23};
    const unsigned groups = __ballot_sync(WHOLE_WARP, first);
    if (row >= ROWS) return counts;
    if (counts.elements >= DENSE_FROM) {
        if (row == 0) shared.head[0] = counts.elements | DENSE;
        return counts;
    }
    Byte* head = (Byte*)shared.head;
    if (row == 0) shared.head[0] = counts.elements;
    if (lane == 0) {
        unsigned even = groups;
#pragma unroll
        for (unsigned step = 1; step < 16; step *= 2) even = (even | even >> step) & ~0u / ((1u << 2 * step) + 1);
        ((Half*)(shared.head + 1))[row / LANES] = (Half)even;
    }
    put_places(shared, row, bits, before % 8192);
    if (first) head[12 + (before >> 23)] = group;
    unsigned at = 12 + counts.groups + (before >> 13 & 1023);
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
        if (own >> k & 1) head[at++] = bits >> 8 * k;
    }
    return counts;
}

// Fill shared.z with a tile's numbers; missing: of this thread, values to be stored exactly.
__device__ __forceinline__ void put_vectors(
    Shared& shared, const Element* from, unsigned tile, const Order& order, const Rules& rules,
    unsigned (&missing)[COMPONENTS])
{
    const Mine mine = mine_of<VECTOR_LOG2>(order);
    from += tile_offset(tile, order) + mine.number;
#pragma unroll 1
    for (unsigned begin = 0; begin < VECTORS; begin += min(VECTORS, LOADED)) {
        Vector vectors[VECTORS < LOADED ? VECTORS : LOADED];
#pragma unroll
        for (unsigned k = 0; k < min(VECTORS, LOADED); ++k) {
            vectors[k] = *(const Vector*)(from + combined<VECTOR_LOG2 + 8, TILE_LOG2>(begin + k, order.numbers));
        }
#pragma unroll
        for (unsigned k = 0; k < min(VECTORS, LOADED); ++k) {
            const unsigned row = mine.place ^ combined<VECTOR_LOG2 + 8, TILE_LOG2>(begin + k, order.turns);
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
                    missing[c] += missed;
                }
            }
#pragma unroll
            for (unsigned j = 0; j < VECTOR * COMPONENTS; ++j) {
                const unsigned v = j / COMPONENTS, c = j % COMPONENTS;
                at_bytes(shared.z[c], row ^ combined<0, VECTOR_LOG2>(v, order.turns)) = z[v][c];
            }
        }
    }
}

// The same for any order, rules and frame.
__device__ __forceinline__ void put_elements(
    Shared& shared, const Element* from, Word frame_elements, unsigned tile, const Order& order,
    const Rules& rules, unsigned (&missing)[COMPONENTS])
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
#pragma unroll
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            bool missed;
            const int q = quantized(element.part[c], rules.of[c], missed);
            at_bytes(shared.z[c], into) = inside ? zigzag(q) : 0;
            missing[c] += inside && missed;
        }
    }
}

// Of the numbers that are stored: this lane's of block warp + k WARPS. In a dense tile they are where they were put.
template <bool dense> __device__ __forceinline__ unsigned stored(Shared& shared, unsigned c, unsigned k, unsigned most)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, own = (warp + k * WARPS) * LANES + lane;
    if (dense) return at_bytes(shared.z[c] + warp * LANES, turned(4 * (lane ^ warp), k));
    return own < most ? at_bytes(shared.z[c], shared.places[own]) : 0;
}

// Fill shared.planes with how many planes each block has.
template <bool dense> __device__ __forceinline__ void count_planes(Shared& shared, unsigned most, unsigned blocks)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
#pragma unroll
    for (unsigned c = 0; c < COMPONENTS; ++c) {
#pragma unroll 4
        for (unsigned k = 0; k < WARP_ROWS; ++k) {
            const unsigned block = warp + k * WARPS;
            if (!dense && block >= blocks) break;
            const unsigned any = __reduce_or_sync(WHOLE_WARP, stored<dense>(shared, c, k, most));
            if (lane == 0) shared.planes[c * blocks + block] = 32 - __clz(any);
        }
    }
}

// Write the planes of all blocks: of two at once where both have few.
template <bool dense>
__device__ __forceinline__ void write_planes(Shared& shared, unsigned most, unsigned blocks, unsigned* words)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, half = lane / HALF_WARP;
    const unsigned own = lane % HALF_WARP;
#pragma unroll
    for (unsigned c = 0; c < COMPONENTS; ++c) {
#pragma unroll (dense ? 4 : 2)
        for (unsigned k = 0; k < WARP_ROWS; k += 2) {
            const unsigned block = warp + k * WARPS, b = c * blocks + block;
            if (!dense && block >= blocks) break;
            const bool more = dense || block + WARPS < blocks;
            const unsigned one = stored<dense>(shared, c, k, most);
            const unsigned other = more ? stored<dense>(shared, c, k + 1, most) : 0;
            const unsigned first = shared.planes[b], second = more ? shared.planes[b + WARPS] : 0;
            if (first <= HALF_WARP && second <= HALF_WARP) {
                const unsigned plane = transposed(one & 0xffff | other << HALF_WARP, lane);
                if (own < (half ? second : first)) words[shared.planes_before[b + half * WARPS] + own] = plane;
                continue;
            }
#pragma unroll 1
            for (unsigned n = 0; n < 2; ++n) {
                const unsigned plane = transposed(n ? other : one, lane);
                if (lane < (n ? second : first)) words[shared.planes_before[b + n * WARPS] + lane] = plane;
            }
        }
    }
}

// values: frames of frame_elements. slots (frames, n_tiles, SLOT_WORDS): the bytes of each tile; sizes (frames,
// n_tiles): how many; heads (frames): the bytes before a frame's tiles, that is, of these sizes; exact (frames,
// COMPONENTS, n_tiles): values to be stored exactly.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) fast_encode(
    const Element* values, Word frame_elements, Order order, unsigned n_tiles, Rules rules, unsigned* slots,
    unsigned* sizes, unsigned* heads, unsigned* exact)
{
    __shared__ Shared shared;
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const unsigned frame = blockIdx.y, tile = blockIdx.x;
    if (threadIdx.x < COMPONENTS) shared.exact[threadIdx.x] = 0;
    const Element* from = values + frame * frame_elements;
    unsigned missing[COMPONENTS] = {};
    if (is_plain(rules, order, frame_elements, values)) {
        put_vectors(shared, from, tile, order, rules, missing);
    } else {
        put_elements(shared, from, frame_elements, tile, order, rules, missing);
    }
    __syncthreads();
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        const unsigned sum = __reduce_add_sync(WHOLE_WARP, missing[c]);
        if (lane == 0 && sum) atomicAdd(&shared.exact[c], sum);
    }
    const unsigned first = spread_lane(warp * WARP_ROWS, lane);
#pragma unroll
    for (unsigned k = 0; k < WARP_ROWS; ++k) {
        const unsigned row = warp * WARP_ROWS + k;
        unsigned any = 0;
#pragma unroll
        for (unsigned c = 0; c < COMPONENTS; ++c) any |= shared.z[c][(first ^ k) + k * LANES];
        const unsigned word = __ballot_sync(WHOLE_WARP, any != 0);
        if (lane == 0) shared.mask[row] = word;
    }
    __syncthreads();
    const Counts counts = put_mask(shared);
    const unsigned part = frame * n_tiles + tile;
    if (threadIdx.x < COMPONENTS) {
        exact[(frame * COMPONENTS + threadIdx.x) * n_tiles + tile] = shared.exact[threadIdx.x];
    }
    if (tile == 0 && threadIdx.x == 0) heads[frame] = 4 * n_tiles;
    const unsigned count = counts.elements;
    if (count == 0) {
        if (threadIdx.x == 0) sizes[part] = 0;
        return;
    }
    const bool dense = count >= DENSE_FROM;
    const unsigned most = dense ? TILE : count, blocks = (most + LANES - 1) / LANES;
    __syncthreads();
    if (dense) count_planes<true>(shared, most, ROWS);
    else count_planes<false>(shared, most, blocks);
    __syncthreads();
    unsigned n_planes;
    const unsigned own = threadIdx.x < COMPONENTS * blocks ? shared.planes[threadIdx.x] : 0;
    const unsigned before = scanned<WARPS>(own, shared.sums, n_planes);
    if (threadIdx.x < COMPONENTS * blocks) shared.planes_before[threadIdx.x] = before;
    const unsigned at = dense ? 4 : 12 + counts.groups + counts.bytes;
    const unsigned head_words = (at + COMPONENTS * blocks + 3) / 4;
    for (unsigned k = threadIdx.x; at + k < 4 * head_words; k += THREADS) {
        ((Byte*)shared.head)[at + k] = k < COMPONENTS * blocks ? shared.planes[k] : 0;
    }
    __syncthreads();
    unsigned* words = slots + (Word)part * SLOT_WORDS;
    if (threadIdx.x == 0) sizes[part] = 4 * (head_words + n_planes);
    for (unsigned k = threadIdx.x; k < head_words; k += THREADS) words[k] = shared.head[k];
    if (dense) write_planes<true>(shared, most, ROWS, words + head_words);
    else write_planes<false>(shared, most, blocks, words + head_words);
}

// Bring the tiles of coded frames to their places in the stream, and their sizes before them: a warp a tile.
// starts (frames, n_tiles): where each is behind the frame's head.
extern "C" __global__ void __launch_bounds__(THREADS) fast_pack(
    const unsigned* slots, const unsigned* sizes, const Word* starts, unsigned n_tiles, const Frame* frames,
    Byte* out)
{
    const unsigned lane = threadIdx.x % LANES, tile = blockIdx.x * WARPS + threadIdx.x / LANES;
    const unsigned part = blockIdx.y * n_tiles + tile;
    const Frame& frame = frames[blockIdx.y];
    if (tile >= n_tiles || frame.kind != CODED) return;
    unsigned* into = (unsigned*)(out + frame.start + CODED_HEAD_BYTES);
    const unsigned* from = slots + (Word)part * SLOT_WORDS;
    const unsigned n_words = sizes[part] / 4;
    if (lane == 0) into[tile] = sizes[part];
    into += n_tiles + starts[part] / 4;
    unsigned k = lane;
    for (; k + (MOVED - 1) * LANES < n_words; k += MOVED * LANES) {
        unsigned words[MOVED];
#pragma unroll
        for (unsigned j = 0; j < MOVED; ++j) words[j] = from[k + j * LANES];
#pragma unroll
        for (unsigned j = 0; j < MOVED; ++j) into[k + j * LANES] = words[j];
    }
    for (; k < n_words; k += LANES) into[k] = from[k];
}
