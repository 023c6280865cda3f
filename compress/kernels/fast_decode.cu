// The coder `fast` reads.

#include "fast.cuh"
#include "checksum.cuh"

// Pairs of blocks of numbers in flight, and blocks on a multiprocessor, as registers allow.
#define AHEAD 4
#define AT_ONCE 2
#define BLOCKS (VALUE_BYTES == 4 ? 8 : 4)

// Whether shared.z can hold the bits of values instead of their numbers: as it does where rules are plain, so that a
// number is restored once, and zeros are not.
#define HOLDS (sizeof(REAL) == 4)

#define NOT_CODED ~0u

// What a block needs to know of its tile: where its bytes start in the stream, its first element's number, and how many
// bytes it has, or NOT_CODED: look at the frame.
struct __align__(16) Tile {
    Word start;
    unsigned offset, size;
};

// Fill tiles (frames, n_tiles), and behind them what threads need to know of the order where rules are plain: number
// and, from bit 32 on, place (Mine). A block a frame; frames whose sizes make no sense become BAD.
extern "C" __global__ void __launch_bounds__(THREADS) fast_index(
    const Byte* data, Frame* frames, Order order, unsigned n_tiles, Tile* all_tiles)
{
    __shared__ Word sums[WARPS];
    Frame& frame = frames[blockIdx.x];
    Tile* tiles = all_tiles + (Word)blockIdx.x * n_tiles;
    if (blockIdx.x == 0) {
        const Mine mine = mine_of<VECTOR_LOG2>(order);
        ((Word*)(all_tiles + (Word)gridDim.x * n_tiles))[threadIdx.x] = (Word)mine.place << 32 | mine.number;
    }
    const bool coded = frame.kind == CODED, room = coded && frame.coded >= 4ull * n_tiles;
    const Word begin = frame.start + CODED_HEAD_BYTES, stop = begin + frame.coded;
    const unsigned* sizes = (const unsigned*)(data + begin);
    Word end = begin + 4ull * n_tiles;
    for (unsigned first = 0; room && first < n_tiles; first += THREADS) {
        const unsigned tile = first + threadIdx.x, size = tile < n_tiles ? sizes[tile] : 0;
        Word total;
        const Word before = scanned<WARPS>((Word)size, sums, total);
        if (tile < n_tiles) tiles[tile] = {(end + before) / 4 * 4, tile_offset(tile, order), size};
        end += total;
    }
    __syncthreads();
    if (room && end == stop) return;
    for (unsigned tile = threadIdx.x; tile < n_tiles; tile += THREADS) tiles[tile].size = NOT_CODED;
    if (coded && threadIdx.x == 0) frame.damaged = 1, frame.kind = BAD;
}

// Fill shared.mask from the tile's first bytes in shared.head; where its planes' numbers start, or 0 where the
// bytes make no sense. Every thread takes part; a thread a group of two rows.
__device__ __forceinline__ unsigned take_mask(Shared& shared, unsigned size)
{
    const unsigned own = threadIdx.x, lane = own % LANES;
    const Byte* head = (const Byte*)shared.head;
    const unsigned any[2] = {shared.head[1], shared.head[2]};
    const unsigned at = 12 + __popc(any[0]) + __popc(any[1]);
    unsigned group = 0, total;
    if (own < LANES && any[0] >> lane & 1) group = head[12 + __popc(any[0] & lanes_below(lane))];
    if (own / LANES == 1 && any[1] >> lane & 1) {
        group = head[12 + __popc(any[0]) + __popc(any[1] & lanes_below(lane))];
    }
    unsigned from = at + scanned<WARPS>((unsigned)__popc(group), shared.sums, total);
    if (at + total > size) return 0;
    if (own < ROWS / 2) {
        unsigned rows[2] = {};
#pragma unroll
        for (unsigned k = 0; k < 8; ++k) {
            if (group >> k & 1) rows[k / 4] |= (unsigned)head[from++] << 8 * (k % 4);
        }
        shared.mask[2 * own] = rows[0], shared.mask[2 * own + 1] = rows[1];
    }
    return at + total;
}

// Put this lane's number of block warp + k WARPS to its place, or where it is `held` the bits of its value.
template <bool held>
__device__ __forceinline__ void put_stored(
    Shared& shared, unsigned c, unsigned k, unsigned count, bool dense, unsigned z, const Rule& rule)
{
    if (held) z = (unsigned)bits_of(restored<true>(unzigzag(z), rule));
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, own = (warp + k * WARPS) * LANES + lane;
    if (dense) at_bytes(shared.z[c] + warp * LANES, turned(4 * (lane ^ warp), k)) = z;
    else if (own < count) at_bytes(shared.z[c], shared.places[own]) = z;
}

// Put the numbers in the planes of all blocks, of which none has more than 16, to their places: of pairs of blocks,
// AHEAD of them in flight.
template <bool dense, bool held>
__device__ __forceinline__ void read_pairs(
    Shared& shared, unsigned count, unsigned blocks, const unsigned* words, const Rules& rules)
{
    const unsigned warp = threadIdx.x / LANES, half = threadIdx.x / HALF_WARP % 2, own = threadIdx.x % HALF_WARP;
    const Turner turner(threadIdx.x % LANES);
#pragma unroll 1
    for (unsigned part = 0; part < COMPONENTS * PAIRS; part += AHEAD) {
        const unsigned c = part / PAIRS, begin = part % PAIRS * 2, first = warp + begin * WARPS;
        if (!dense && first >= blocks) continue;
        const Rule rule = c ? rules.of[COMPONENTS - 1] : rules.of[0];
        unsigned kept[AHEAD];
#pragma unroll
        for (unsigned j = 0; j < AHEAD; ++j) {
            const unsigned block = first + (2 * j + half) * WARPS;
            const unsigned planes = dense || block < blocks ? shared.planes[c * blocks + block] : 0;
            kept[j] = own < planes % 256 ? words[(planes >> 8) + own] : 0;
        }
#pragma unroll
        for (unsigned j = 0; j < AHEAD; ++j) {
            if (!dense && first + 2 * j * WARPS >= blocks) break;
            const unsigned both = turner.transposed(kept[j]);
            put_stored<held>(shared, c, begin + 2 * j, count, dense, both & 0xffff, rule);
            put_stored<held>(shared, c, begin + 2 * j + 1, count, dense, both >> HALF_WARP, rule);
        }
    }
}

// The same for any numbers of planes, a block at a time.
template <bool held>
__device__ __forceinline__ void read_planes(
    Shared& shared, unsigned count, bool dense, unsigned blocks, const unsigned* words, const Rules& rules)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const Turner turner(lane);
#pragma unroll 1
    for (unsigned k = 0; k < COMPONENTS * WARP_ROWS; ++k) {
        const unsigned c = k / WARP_ROWS, block = warp + k % WARP_ROWS * WARPS;
        if (block >= blocks) continue;
        const Rule rule = c ? rules.of[COMPONENTS - 1] : rules.of[0];
        const unsigned planes = shared.planes[c * blocks + block];
        const unsigned plane = lane < planes % 256 ? words[(planes >> 8) + lane] : 0;
        put_stored<held>(shared, c, k % WARP_ROWS, count, dense, turner.transposed(plane), rule);
    }
}

// Fill shared.z with the tile's numbers, or `held` values, for threads that wait for the others first; whether its
// bytes make sense. One scan counts places, in its lowest 13 bits, and planes.
template <bool held>
__device__ __forceinline__ bool take_tile(Shared& shared, const unsigned* data, unsigned size, const Rules& rules)
{
    static_assert(HEAD_BYTES / 4 == THREADS && COMPONENTS * TILE / 4 % THREADS == 0, "threads have equal shares");
    const unsigned own = threadIdx.x;
    shared.head[own] = 4 * own < size ? data[own] : 0;
    if (own == 0) shared.damaged = shared.wide = 0;
    __syncthreads();
    const unsigned head = shared.head[0], stated = head & (DENSE - 1);
    const bool dense = head & DENSE;
    if (stated == 0 || stated > TILE || head >= 2 * DENSE) return false;
    unsigned rates = 4, bits = 0;
    if (!dense) {
#pragma unroll
        for (unsigned k = 0; k < COMPONENTS * TILE / 4; k += THREADS) {
            ((uint4*)shared.z)[k + own] = make_uint4(0, 0, 0, 0);
        }
        rates = take_mask(shared, size);
        __syncthreads();
        if (own < ROWS) bits = shared.mask[own];
    }
    const unsigned blocks = dense ? ROWS : (stated + LANES - 1) / LANES;
    const unsigned end = filled_words(rates + COMPONENTS * blocks);
    if (rates == 0 || end > size) return false;
    const unsigned planes = own < COMPONENTS * blocks ? ((const Byte*)shared.head)[rates + own] : 0;
    unsigned total;
    const unsigned before = scanned<WARPS>(__popc(bits) | planes << 13, shared.sums, total);
    if (own < COMPONENTS * blocks) shared.planes[own] = planes | before >> 13 << 8;
    if (planes > LANES) shared.damaged = 1;
    if (planes > HALF_WARP) shared.wide = 1;
    if (!dense) put_places(shared, own, bits, before % 8192);
    __syncthreads();
    if ((!dense && total % 8192 != stated) || end + 4 * (total >> 13) != size || shared.damaged) return false;
    const unsigned* words = settled(data + end / 4);
    if (shared.wide) read_planes<held>(shared, stated, dense, blocks, words, rules);
    else if (dense) read_pairs<true, held>(shared, stated, ROWS, words, rules);
    else read_pairs<false, held>(shared, stated, blocks, words, rules);
    return true;
}

// The element at a place in bytes of shared.z, of plain rules or any.
template <bool PLAIN>
__device__ __forceinline__ Element element_at(Shared& shared, unsigned place, const Rules& rules)
{
    Element element;
#pragma unroll
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        const unsigned z = at_bytes(shared.z[c], place);
        element.part[c] = PLAIN && HOLDS ? value_of((BITS)z) : restored<PLAIN>(unzigzag(z), rules.of[c]);
    }
    return element;
}

// Write a vector as one; as a structure it would go element by element.
__device__ __forceinline__ void put_vector(const Vector& vector, Element* into)
{
    static_assert(sizeof(Vector) == sizeof(uint4), "vectors are of 16 bytes");
    unsigned words[4];
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
        const unsigned part = k * 4 / sizeof(REAL), shift = sizeof(REAL) == 4 ? 0 : k % 2 * 32;
        words[k] = (unsigned)((Word)bits_of(vector.of[part / COMPONENTS].part[part % COMPONENTS]) >> shift);
    }
    __stwb((uint4*)into, make_uint4(words[0], words[1], words[2], words[3]));
}

// Values of a tile from its numbers, of which this thread's first one is at `first`.
__device__ __forceinline__ void take_vectors(
    Shared& shared, unsigned first, const Order& order, const Rules& rules, Element* into)
{
#pragma unroll
    for (unsigned k = 0; k < VECTORS; ++k) {
        const unsigned place = first ^ combined<VECTOR_LOG2 + 8, TILE_LOG2>(k, order.turns);
        Vector vector;
#pragma unroll
        for (unsigned v = 0; v < VECTOR; ++v) {
            vector.of[v] = element_at<true>(shared, place ^ combined<0, VECTOR_LOG2>(v, order.turns), rules);
        }
        put_vector(vector, into + combined<VECTOR_LOG2 + 8, TILE_LOG2>(k, order.numbers));
    }
}

// Values of a tile without any numbers.
__device__ __forceinline__ void put_zeros(const Order& order, const Rules& rules, Element* into)
{
    Vector vector;
#pragma unroll
    for (unsigned v = 0; v < VECTOR; ++v) {
        for (unsigned c = 0; c < COMPONENTS; ++c) vector.of[v].part[c] = restored<true>(0, rules.of[c]);
    }
#pragma unroll
    for (unsigned k = 0; k < VECTORS; ++k) {
        put_vector(vector, into + combined<VECTOR_LOG2 + 8, TILE_LOG2>(k, order.numbers));
    }
}

// Values of a tile from its numbers, or of one without any, for any order, rules and frame.
__device__ __forceinline__ void take_elements(
    Shared& shared, bool any, unsigned offset, const Order& order, const Rules& rules, Word frame_elements,
    Element* into)
{
    const Mine mine = mine_of<0>(order);
    const Word first = (Word)offset + mine.number;
#pragma unroll 1
    for (unsigned k = 0; k < TILE / THREADS; ++k) {
        const unsigned place = mine.place ^ combined<8, TILE_LOG2>(k, order.turns);
        const Word number = first + combined<8, TILE_LOG2>(k, order.numbers);
        Element element;
        for (unsigned c = 0; c < COMPONENTS; ++c) element.part[c] = restored(0, rules.of[c]);
        if (any) element = element_at<false>(shared, place, rules);
        if (number < frame_elements) into[number] = element;
    }
}

// tiles: what fast_index has found. Values are filled, those of frames that are stored raw too; frames whose bytes
// make no sense become `damaged`. Words are added to the frames' sums. Frames along y; of the blocks along x the last
// n_tiles take a tile each, those before them checksums.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) fast_decode(
    const Byte* data, Frame* frames, const Tile* tiles, Word frame_elements, Order order, unsigned n_tiles,
    Rules rules, Element* values)
{
    __shared__ Shared shared;
    const unsigned number = blockIdx.y, checks = gridDim.x - n_tiles, tile = blockIdx.x - checks;
    Frame& frame = frames[number];
    if (blockIdx.x < checks) {
        add_words<AT_ONCE>(data, frame, blockIdx.x, checks, (Word*)shared.z);
        return;
    }
    Element* into = values + number * frame_elements;
    const Tile own = tiles[number * n_tiles + tile];
    if (own.size == NOT_CODED) {
        if (frame.kind != RAW) return;
        copy_raw((const REAL*)(data + frame.start + 8), (REAL*)into, frame_elements, tile, threadIdx.x, THREADS);
        return;
    }
    const bool plain = is_plain(rules, order, frame_elements, values);
    bool good = own.size % 4 == 0;
    if (own.size && good) {
        const unsigned* from = (const unsigned*)(data + own.start);
        if (plain) good = take_tile<HOLDS>(shared, from, own.size, rules);
        else good = take_tile<false>(shared, from, own.size, rules);
    }
    if (!good) {
        if (threadIdx.x == 0) frame.damaged = 1;
        return;
    }
    // On its way while the block's threads wait for one another.
    const Word mine = plain ? ((const Word*)(tiles + gridDim.y * n_tiles))[threadIdx.x] : 0;
    __syncthreads();
    if (plain) {
        into += own.offset + (unsigned)mine;
        if (own.size) take_vectors(shared, (unsigned)(mine >> 32), order, rules, into);
        else put_zeros(order, rules, into);
    } else {
        take_elements(shared, own.size != 0, own.offset, order, rules, frame_elements, into);
    }
}
