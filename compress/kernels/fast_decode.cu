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

// Fill shared.places from shared.mask; how many there are.
__device__ __forceinline__ unsigned take_places(Shared& shared)
{
    const unsigned bits = threadIdx.x < ROWS ? shared.mask[threadIdx.x] : 0;
    unsigned total;
    const unsigned before = scanned<WARPS>((unsigned)__popc(bits), shared.sums, total);
    put_places(shared, threadIdx.x, bits, before);
    return total;
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

// Fill shared.z with the tile's numbers, or `held` values; whether its bytes make sense.
template <bool held>
__device__ __forceinline__ bool take_tile(Shared& shared, const unsigned* data, unsigned size, const Rules& rules)
{
    for (unsigned k = threadIdx.x; k < HEAD_BYTES / 4; k += THREADS) shared.head[k] = 4 * k < size ? data[k] : 0;
    if (threadIdx.x == 0) shared.damaged = shared.wide = 0;
    __syncthreads();
    const unsigned head = shared.head[0], stated = head & (DENSE - 1);
    const bool dense = head & DENSE;
    if (!dense) {
        for (unsigned k = threadIdx.x; k < COMPONENTS * TILE / 4; k += THREADS) {
            ((uint4*)shared.z)[k] = make_uint4(0, 0, 0, 0);
        }
    }
    const unsigned rates = dense ? 4 : take_mask(shared, size);
    __syncthreads();
    const bool counted = dense ? stated <= TILE : take_places(shared) == stated;
    const unsigned most = dense ? TILE : stated, blocks = (most + LANES - 1) / LANES;
    const unsigned end = filled_words(rates + COMPONENTS * blocks);
    if (!(stated && rates && head < 2 * DENSE && counted && end <= size)) return false;
    unsigned n_planes;
    const unsigned own = threadIdx.x < COMPONENTS * blocks ? ((const Byte*)shared.head)[rates + threadIdx.x] : 0;
    const unsigned before = scanned<WARPS>(own, shared.sums, n_planes);
    if (threadIdx.x < COMPONENTS * blocks) shared.planes[threadIdx.x] = own | before << 8;
    if (own > LANES) shared.damaged = 1;
    if (own > HALF_WARP) shared.wide = 1;
    __syncthreads();
    if (end + 4 * n_planes != size || shared.damaged) return false;
    const unsigned* words = settled(data + end / 4);
    if (shared.wide) read_planes<held>(shared, stated, dense, blocks, words, rules);
    else if (dense) read_pairs<true, held>(shared, stated, ROWS, words, rules);
    else read_pairs<false, held>(shared, stated, blocks, words, rules);
    __syncthreads();
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

// Values of a tile from its numbers, or those of a tile without any.
__device__ __forceinline__ void take_vectors(
    Shared& shared, bool any, unsigned tile, const Order& order, const Rules& rules, Element* into)
{
    const Mine mine = mine_of<VECTOR_LOG2>(order);
    into += tile_offset(tile, order) + mine.number;
    Vector vector;
#pragma unroll
    for (unsigned v = 0; v < VECTOR; ++v) {
        for (unsigned c = 0; c < COMPONENTS; ++c) vector.of[v].part[c] = restored<true>(0, rules.of[c]);
    }
#pragma unroll
    for (unsigned k = 0; k < VECTORS; ++k) {
        const unsigned place = mine.place ^ combined<VECTOR_LOG2 + 8, TILE_LOG2>(k, order.turns);
#pragma unroll
        for (unsigned v = 0; any && v < VECTOR; ++v) {
            vector.of[v] = element_at<true>(shared, place ^ combined<0, VECTOR_LOG2>(v, order.turns), rules);
        }
        put_vector(vector, into + combined<VECTOR_LOG2 + 8, TILE_LOG2>(k, order.numbers));
    }
}

// The same for any order, rules and frame.
__device__ __forceinline__ void take_elements(
    Shared& shared, bool any, unsigned tile, const Order& order, const Rules& rules, Word frame_elements,
    Element* into)
{
    const Mine mine = mine_of<0>(order);
    const Word first = (Word)tile_offset(tile, order) + mine.number;
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

// starts (frames, n_tiles): where each tile's bytes are behind their sizes. Values are filled, those of frames
// that are stored raw too; frames whose bytes make no sense become `damaged`. Words are added to the frames' sums.
// Frames along y; of the blocks along x the last n_tiles take a tile each, those before them checksums.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) fast_decode(
    const Byte* data, Frame* frames, const Word* starts, Word frame_elements, Order order, unsigned n_tiles,
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
    if (frame.kind == RAW) {
        copy_raw((const REAL*)(data + frame.start + 8), (REAL*)into, frame_elements, tile, threadIdx.x, THREADS);
    }
    if (frame.kind != CODED) return;
    const unsigned* sizes = (const unsigned*)(data + frame.start + CODED_HEAD_BYTES);
    const unsigned size = sizes[tile];
    const Word start = starts[number * n_tiles + tile];
    const bool plain = is_plain(rules, order, frame_elements, values);
    bool good = size % 4 == 0 && start % 4 == 0;
    if (size && good) {
        const unsigned* own = sizes + n_tiles + start / 4;
        good = plain ? take_tile<HOLDS>(shared, own, size, rules) : take_tile<false>(shared, own, size, rules);
    }
    if (!good) {
        if (threadIdx.x == 0) frame.damaged = 1;
        return;
    }
    if (plain) {
        take_vectors(shared, size != 0, tile, order, rules, into);
    } else {
        take_elements(shared, size != 0, tile, order, rules, frame_elements, into);
    }
}
