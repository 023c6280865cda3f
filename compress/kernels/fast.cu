// The coder `fast` writes: tiles are coded, and brought to their places in the stream.

#include "fast.cuh"

// Vectors in flight.
#define LOADED 8u

// Write first word, mask and planes' numbers to shared.head; head_bytes is a multiple of 4. One warp.
__device__ __forceinline__ void write_head(Shared& shared, bool dense, unsigned blocks)
{
    const unsigned lane = threadIdx.x;
    Byte* head = (Byte*)shared.head;
    unsigned at = 4;
    for (unsigned k = lane; k < HEAD_BYTES / 4; k += LANES) shared.head[k] = 0;
    __syncwarp();
    if (lane == 0) shared.head[0] = shared.count | (dense ? DENSE : 0);
    if (!dense) {
        const Byte* bytes = (const Byte*)shared.mask;
        unsigned groups = 0, filled = 0;
        at += 8;
        for (unsigned half = 0; half < 2; ++half) {
            const unsigned w = half * LANES + lane;
            unsigned group = 0;
            for (unsigned k = 0; k < 8; ++k) group |= (bytes[8 * w + k] != 0) << k;
            const unsigned any = __ballot_sync(WHOLE_WARP, group != 0);
            if (lane == 0) shared.head[1 + half] = any;
            if (group) head[at + groups + __popc(any & lanes_below(lane))] = group;
            groups += __popc(any);
        }
        at += groups;
        for (unsigned k = lane; k < TILE / 8; k += LANES) {
            const unsigned any = __ballot_sync(WHOLE_WARP, bytes[k] != 0);
            if (bytes[k]) head[at + filled + __popc(any & lanes_below(lane))] = bytes[k];
            filled += __popc(any);
        }
        at += filled;
    }
    for (unsigned k = lane; k < COMPONENTS * blocks; k += LANES) head[at + k] = shared.planes[k];
    if (lane == 0) shared.head_bytes = (at + COMPONENTS * blocks + 3) & ~3u;
}

// Fill shared.z with a tile's numbers; missing: of this thread, values to be stored exactly.
__device__ __forceinline__ void put_vectors(
    Shared& shared, const Element* from, unsigned tile, const Order& order, const Rules& rules,
    unsigned (&missing)[COMPONENTS])
{
    const Mine mine = mine_of<VECTOR_LOG2>(order);
    const unsigned first = tile_offset(tile, order) + mine.number, place = spread(mine.place);
#pragma unroll 1
    for (unsigned begin = 0; begin < VECTORS; begin += min(VECTORS, LOADED)) {
        Vector vectors[VECTORS < LOADED ? VECTORS : LOADED];
#pragma unroll
        for (unsigned k = 0; k < min(VECTORS, LOADED); ++k) {
            const unsigned number = first + deposited<VECTOR_LOG2 + 8, TILE_LOG2>(begin + k, order.sorted);
            vectors[k] = *(const Vector*)(from + number);
        }
#pragma unroll
        for (unsigned k = 0; k < min(VECTORS, LOADED); ++k) {
            const unsigned row = place ^ spread_bits<VECTOR_LOG2 + 8, TILE_LOG2>(begin + k, order.places);
#pragma unroll
            for (unsigned v = 0; v < VECTOR; ++v) {
                const unsigned into = row ^ spread_bits<0, VECTOR_LOG2>(v, order.places);
#pragma unroll
                for (unsigned c = 0; c < COMPONENTS; ++c) {
                    bool missed;
                    shared.z[c][into] = zigzag(quantized<true>(vectors[k].of[v].part[c], rules.of[c], missed));
                    missing[c] += missed;
                }
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
        const Word number = first + deposited<8, TILE_LOG2>(k, order.sorted);
        const unsigned into = spread(mine.place | deposited<8, TILE_LOG2>(k, order.places));
        const bool inside = number < frame_elements;
        Element element = {};
        if (inside) element = from[number];
#pragma unroll
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            bool missed;
            const int q = quantized(element.part[c], rules.of[c], missed);
            shared.z[c][into] = inside ? zigzag(q) : 0;
            missing[c] += inside && missed;
        }
    }
}

// Write the planes of all blocks: of two at once where both have few.
__device__ __forceinline__ void write_planes(const Shared& shared, unsigned blocks, unsigned* words)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, half = lane / HALF_WARP;
#pragma unroll 2
    for (unsigned b = warp; b < COMPONENTS * blocks; b += 2 * WARPS) {
        unsigned z[2], planes[2];
#pragma unroll
        for (unsigned k = 0; k < 2; ++k) {
            const unsigned own = b + k * WARPS, c = own >= blocks, block = c ? own - blocks : own;
            const bool there = own < COMPONENTS * blocks;
            planes[k] = there ? shared.planes[own] : 0;
            z[k] = there ? shared.z[COMPONENTS == 1 ? 0 : c][spread_lane(block, lane)] : 0;
        }
        if (planes[0] <= HALF_WARP && planes[1] <= HALF_WARP) {
            const unsigned plane = transposed(z[0] | z[1] << HALF_WARP, lane), own = lane % HALF_WARP;
            if (own < (half ? planes[1] : planes[0])) words[shared.planes_before[b + half * WARPS] + own] = plane;
            continue;
        }
#pragma unroll
        for (unsigned k = 0; k < 2; ++k) {
            const unsigned plane = transposed(z[k], lane);
            if (lane < planes[k]) words[shared.planes_before[b + k * WARPS] + lane] = plane;
        }
    }
}

// values: frames of frame_elements. slots (frames, n_tiles, SLOT_WORDS): the bytes of each tile; sizes (frames,
// n_tiles): how many; heads (frames): the bytes before a frame's tiles, that is, of these sizes; exact (frames,
// COMPONENTS, n_tiles): values to be stored exactly.
extern "C" __global__ void __launch_bounds__(THREADS, 4) fast_encode(
    const Element* values, Word frame_elements, Order order, unsigned n_tiles, Rules rules, unsigned* slots,
    unsigned* sizes, unsigned* heads, unsigned* exact)
{
    __shared__ Shared shared;
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const unsigned frame = blockIdx.x / n_tiles, tile = blockIdx.x % n_tiles;
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
    unsigned z[COMPONENTS][WARP_ROWS];
    const unsigned first = spread_lane(warp * WARP_ROWS, lane);
#pragma unroll
    for (unsigned k = 0; k < WARP_ROWS; ++k) {
        const unsigned row = warp * WARP_ROWS + k;
        unsigned any = 0;
#pragma unroll
        for (unsigned c = 0; c < COMPONENTS; ++c) any |= z[c][k] = shared.z[c][(first ^ k) + k * LANES];
        const unsigned word = __ballot_sync(WHOLE_WARP, any != 0);
        if (lane == 0) shared.mask[row] = word;
    }
    __syncthreads();
    count_rows(shared);
    const unsigned part = frame * n_tiles + tile;
    if (threadIdx.x < COMPONENTS) {
        exact[(frame * COMPONENTS + threadIdx.x) * n_tiles + tile] = shared.exact[threadIdx.x];
    }
    if (tile == 0 && threadIdx.x == 0) heads[frame] = 4 * n_tiles;
    const unsigned count = shared.count;
    if (count == 0) {
        if (threadIdx.x == 0) sizes[part] = 0;
        return;
    }
    const bool dense = count >= DENSE_FROM;
    const unsigned most = dense ? TILE : count, blocks = (most + LANES - 1) / LANES;
    if (!dense) {
#pragma unroll
        for (unsigned k = 0; k < WARP_ROWS; ++k) {
            const Row row = shared.rows[spread_row(warp * WARP_ROWS + k)];
            if (!row.mask) continue;
            const unsigned place = spread(row.before + __popc(row.mask & lanes_below(lane)));
            for (unsigned c = 0; c < COMPONENTS; ++c) {
                if (row.mask >> lane & 1) shared.z[c][place] = z[c][k];
            }
        }
        const unsigned behind = spread(count + lane);
        if (warp == 0 && count + lane < blocks * LANES) {
            for (unsigned c = 0; c < COMPONENTS; ++c) shared.z[c][behind] = 0;
        }
        __syncthreads();
    }
#pragma unroll 4
    for (unsigned b = warp; b < COMPONENTS * blocks; b += WARPS) {
        const unsigned c = COMPONENTS > 1 && b >= blocks, block = c ? b - blocks : b;
        const unsigned any = __reduce_or_sync(WHOLE_WARP, shared.z[c][spread_lane(block, lane)]);
        if (lane == 0) shared.planes[b] = 32 - __clz(any);
    }
    __syncthreads();
    unsigned n_planes;
    const unsigned own = threadIdx.x < COMPONENTS * blocks ? shared.planes[threadIdx.x] : 0;
    const unsigned before = scanned<WARPS>(own, shared.sums, n_planes);
    if (threadIdx.x < COMPONENTS * blocks) shared.planes_before[threadIdx.x] = before;
    if (warp == 0) write_head(shared, dense, blocks);
    __syncthreads();
    unsigned* words = slots + (Word)part * SLOT_WORDS;
    const unsigned head_words = shared.head_bytes / 4;
    if (threadIdx.x == 0) sizes[part] = 4 * (head_words + n_planes);
    for (unsigned k = threadIdx.x; k < head_words; k += THREADS) words[k] = shared.head[k];
    write_planes(shared, blocks, words + head_words);
}

// Bring the tiles of coded frames to their places in the stream, and their sizes before them: a block a tile.
// starts (frames, n_tiles): where each is behind the frame's head.
extern "C" __global__ void __launch_bounds__(THREADS) fast_pack(
    const unsigned* slots, const unsigned* sizes, const Word* starts, unsigned n_tiles, const Frame* frames,
    Byte* out)
{
    const unsigned part = blockIdx.x, tile = part % n_tiles;
    const Frame& frame = frames[part / n_tiles];
    if (frame.kind != CODED) return;
    unsigned* into = (unsigned*)(out + frame.start + CODED_HEAD_BYTES);
    const unsigned* from = slots + (Word)part * SLOT_WORDS;
    if (threadIdx.x == 0) into[tile] = sizes[part];
    into += n_tiles + starts[part] / 4;
    for (unsigned k = threadIdx.x; k < sizes[part] / 4; k += THREADS) into[k] = from[k];
}
