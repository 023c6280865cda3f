// The coder `fast` reads.

#include "fast.cuh"

// Where the tiles of each coded frame start behind their sizes: starts (frames, n_tiles). A block a frame.
extern "C" __global__ void __launch_bounds__(THREADS) fast_index(
    const Byte* data, Frame* frames, unsigned n_tiles, Word* starts)
{
    __shared__ Word sums[WARPS];
    Frame& frame = frames[blockIdx.x];
    if (frame.kind != CODED) return;
    const unsigned* sizes = (const unsigned*)(data + frame.start + CODED_HEAD_BYTES);
    const bool room = frame.coded >= 4ull * n_tiles;
    Word end = 0;
    for (unsigned first = 0; room && first < n_tiles; first += THREADS) {
        const unsigned tile = first + threadIdx.x;
        Word total;
        const Word before = scanned<WARPS>((Word)(tile < n_tiles ? sizes[tile] : 0), sums, total);
        if (tile < n_tiles) starts[(Word)blockIdx.x * n_tiles + tile] = end + before;
        end += total;
    }
    __syncthreads();
    if (threadIdx.x == 0 && !(room && end + 4ull * n_tiles == frame.coded)) {
        frame.damaged = 1;
        frame.kind = BAD;
    }
}

// Fill shared.mask from the tile's first bytes in shared.head; where its planes' numbers start, or 0 where the
// bytes make no sense. One warp.
__device__ __forceinline__ unsigned take_mask(Shared& shared, unsigned size)
{
    const unsigned lane = threadIdx.x;
    const Byte* head = (const Byte*)shared.head;
    const unsigned any[2] = {shared.head[1], shared.head[2]};
    unsigned at = 12 + __popc(any[0]) + __popc(any[1]);
    if (at > size) return 0;
    for (unsigned half = 0; half < 2; ++half) {
        unsigned group = 0;
        if (any[half] >> lane & 1) {
            group = head[12 + (half ? __popc(any[0]) : 0) + __popc(any[half] & lanes_below(lane))];
        }
        unsigned upto = __popc(group);
        for (unsigned step = 1; step < LANES; step *= 2) {
            const unsigned other = __shfl_up_sync(WHOLE_WARP, upto, step);
            if (lane >= step) upto += other;
        }
        const unsigned ends = at + __shfl_sync(WHOLE_WARP, upto, LANES - 1);
        if (ends > size) return 0;
        unsigned from = at + upto - __popc(group);
        for (unsigned k = 0; k < 8; ++k) {
            ((Byte*)shared.mask)[8 * (half * LANES + lane) + k] = group >> k & 1 ? head[from++] : 0;
        }
        at = ends;
    }
    return at;
}

// Fill shared.z from the planes of all blocks: of two at once where both have few.
__device__ __forceinline__ void read_planes(Shared& shared, unsigned blocks, const unsigned* words)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, half = lane / HALF_WARP;
    const unsigned all = COMPONENTS * blocks;
    for (unsigned first = warp; first < all; first += 2 * AHEAD * WARPS) {
        unsigned kept[AHEAD];
        bool few[AHEAD];
#pragma unroll
        for (unsigned j = 0; j < AHEAD; ++j) {
            const unsigned b = first + 2 * j * WARPS, own = b + half * WARPS;
            const unsigned planes = own < all ? shared.planes[own] : 0;
            few[j] = !__any_sync(WHOLE_WARP, planes > HALF_WARP);
            kept[j] = lane % HALF_WARP < planes ? words[shared.planes_before[own] + lane % HALF_WARP] : 0;
        }
#pragma unroll
        for (unsigned j = 0; j < AHEAD; ++j) {
            const unsigned b = first + 2 * j * WARPS;
            if (b >= all) break;
            const unsigned both = few[j] ? transposed(kept[j], lane) : 0;
#pragma unroll
            for (unsigned k = 0; k < 2; ++k) {
                const unsigned own = b + k * WARPS, c = COMPONENTS > 1 && own >= blocks;
                if (own >= all) break;
                unsigned z = k ? both >> HALF_WARP : both & 0xffff;
                if (!few[j]) {
                    const bool there = lane < shared.planes[own];
                    z = transposed(there ? words[shared.planes_before[own] + lane] : 0, lane);
                }
                shared.z[c][spread_lane(c ? own - blocks : own, lane)] = z;
            }
        }
    }
}

// Fill shared.z with the tile's stored numbers and shared.rows with where they belong; whether all make sense.
__device__ __forceinline__ bool take_tile(Shared& shared, const unsigned* data, unsigned size, bool& dense)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    for (unsigned k = threadIdx.x; k < HEAD_BYTES / 4; k += THREADS) shared.head[k] = 4 * k < size ? data[k] : 0;
    __syncthreads();
    const unsigned head = shared.head[0], stated = head & (DENSE - 1);
    dense = head & DENSE;
    if (warp == 0) {
        const unsigned at = dense ? 4 : take_mask(shared, size);
        if (lane == 0) shared.head_bytes = at;
    }
    __syncthreads();
    if (!dense) count_rows(shared);
    const unsigned most = dense ? TILE : stated, blocks = (most + LANES - 1) / LANES, rates = shared.head_bytes;
    const unsigned end = (rates + COMPONENTS * blocks + 3) & ~3u;
    const bool counted = dense ? stated <= TILE : shared.count == stated;
    if (!(stated && rates && head < 2 * DENSE && counted && end <= size)) return false;
    unsigned n_planes;
    const unsigned own = threadIdx.x < COMPONENTS * blocks ? ((const Byte*)shared.head)[rates + threadIdx.x] : 0;
    const unsigned before = scanned<WARPS>(own, shared.sums, n_planes);
    if (threadIdx.x < COMPONENTS * blocks) {
        shared.planes[threadIdx.x] = own;
        shared.planes_before[threadIdx.x] = before;
    }
    if (__reduce_max_sync(WHOLE_WARP, own) > LANES && lane == 0) shared.head_bytes = 0;
    __syncthreads();
    if (end + 4 * n_planes != size || !shared.head_bytes) return false;
    read_planes(shared, blocks, data + end / 4);
    __syncthreads();
    return true;
}

// Bring the stored numbers in shared.z to their places, with 0 elsewhere.
__device__ __forceinline__ void expand(Shared& shared)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const unsigned first = spread_lane(warp * WARP_ROWS, lane);
    unsigned z[COMPONENTS][WARP_ROWS];
#pragma unroll
    for (unsigned k = 0; k < WARP_ROWS; ++k) {
        const Row row = shared.rows[spread_row(warp * WARP_ROWS + k)];
        for (unsigned c = 0; c < COMPONENTS; ++c) z[c][k] = 0;
        if (!row.mask) continue;
        const bool stored = row.mask >> lane & 1;
        const unsigned at = spread((row.before + __popc(row.mask & lanes_below(lane))) % TILE);
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            const unsigned found = shared.z[c][at];
            z[c][k] = stored ? found : 0;
        }
    }
    __syncthreads();
#pragma unroll
    for (unsigned k = 0; k < WARP_ROWS; ++k) {
        for (unsigned c = 0; c < COMPONENTS; ++c) shared.z[c][(first ^ k) + k * LANES] = z[c][k];
    }
    __syncthreads();
}

// The element at a spread place.
template <bool PLAIN>
__device__ __forceinline__ Element element_at(const Shared& shared, unsigned place, const Rules& rules)
{
    Element element;
#pragma unroll
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        element.part[c] = restored<PLAIN>(unzigzag(shared.z[c][place]), rules.of[c]);
    }
    return element;
}

// Values of a tile from its numbers, or those of a tile without any.
__device__ __forceinline__ void take_vectors(
    const Shared& shared, bool any, unsigned tile, const Order& order, const Rules& rules,
    Element* into)
{
    const Mine mine = mine_of<VECTOR_LOG2>(order);
    const unsigned base = spread(mine.place);
    into += tile_offset(tile, order) + mine.number;
    Vector vector;
#pragma unroll
    for (unsigned v = 0; v < VECTOR; ++v) {
        for (unsigned c = 0; c < COMPONENTS; ++c) vector.of[v].part[c] = restored<true>(0, rules.of[c]);
    }
#pragma unroll
    for (unsigned k = 0; k < VECTORS; ++k) {
        const unsigned place = base ^ spread_bits<VECTOR_LOG2 + 8, TILE_LOG2>(k, order.places);
#pragma unroll
        for (unsigned v = 0; any && v < VECTOR; ++v) {
            vector.of[v] = element_at<true>(shared, place ^ spread_bits<0, VECTOR_LOG2>(v, order.places), rules);
        }
        *(Vector*)(into + deposited<VECTOR_LOG2 + 8, TILE_LOG2>(k, order.sorted)) = vector;
    }
}

// The same for any order, rules and frame.
__device__ __forceinline__ void take_elements(
    const Shared& shared, bool any, unsigned tile, const Order& order, const Rules& rules,
    Word frame_elements, Element* into)
{
    const Mine mine = mine_of<0>(order);
    const Word first = (Word)tile_offset(tile, order) + mine.number;
#pragma unroll 1
    for (unsigned k = 0; k < TILE / THREADS; ++k) {
        const unsigned place = mine.place | deposited<8, TILE_LOG2>(k, order.places);
        const Word number = first + deposited<8, TILE_LOG2>(k, order.sorted);
        Element element;
        for (unsigned c = 0; c < COMPONENTS; ++c) element.part[c] = restored(0, rules.of[c]);
        if (any) element = element_at<false>(shared, spread(place), rules);
        if (number < frame_elements) into[number] = element;
    }
}

// starts (frames, n_tiles): where each tile's bytes are behind their sizes. Values are filled, those of frames
// that are stored raw too; frames whose bytes make no sense become `damaged`. A block a tile.
extern "C" __global__ void __launch_bounds__(THREADS, COMPONENTS == 1 ? 5 : 4) fast_decode(
    const Byte* data, Frame* frames, const Word* starts, Word frame_elements, Order order, unsigned n_tiles,
    Rules rules, Element* values)
{
    __shared__ Shared shared;
    const unsigned number = blockIdx.x / n_tiles, tile = blockIdx.x % n_tiles;
    Frame& frame = frames[number];
    Element* into = values + number * frame_elements;
    if (frame.kind == RAW) {
        copy_raw((const REAL*)(data + frame.start + 8), (REAL*)into, frame_elements, tile, threadIdx.x, THREADS);
    }
    if (frame.kind != CODED) return;
    const unsigned* sizes = (const unsigned*)(data + frame.start + CODED_HEAD_BYTES);
    const unsigned size = sizes[tile];
    const Word start = starts[blockIdx.x];
    bool dense = false, good = size % 4 == 0;
    if (size && good) good = start % 4 == 0 && take_tile(shared, sizes + n_tiles + start / 4, size, dense);
    if (!good) {
        if (threadIdx.x == 0) frame.damaged = 1;
        return;
    }
    if (size && !dense) expand(shared);
    if (is_plain(rules, order, frame_elements, values)) {
        take_vectors(shared, size != 0, tile, order, rules, into);
    } else {
        take_elements(shared, size != 0, tile, order, rules, frame_elements, into);
    }
}
