// The coder `fast`: a block of threads codes a tile of 4096 elements (layout: compress/fixed_kernel.py).
//
// Frames of equal size lie behind one another. Memory is touched in the order of its addresses, a warp a row;
// numbers change places with those of the tile in shared memory, at `spread` places against bank conflicts.

#include "tile.cuh"

#define THREADS 256
#define WARPS (THREADS / LANES)
#define ROWS (TILE / LANES)
#define WARP_ROWS (ROWS / WARPS)
#define DENSE (1u << 16)
#define DENSE_FROM 3840
#define HEAD_BYTES 1024
#define SLOT_WORDS (HEAD_BYTES / 4 + COMPONENTS * TILE)
#define AHEAD 4
#define LOADED 8
#define WRITTEN 4

struct Row {
    unsigned mask, before;
};

struct Shared {
    unsigned z[COMPONENTS][TILE];
    Row rows[ROWS];
    unsigned planes_before[COMPONENTS * ROWS];
    unsigned sums[WARPS];
    unsigned head[HEAD_BYTES / 4];
    Byte planes[COMPONENTS * ROWS];
    unsigned mask[ROWS];
    unsigned exact[COMPONENTS];
    unsigned count, head_bytes;
};

// Places that differ in the bits of the row share no bank.
__device__ __forceinline__ unsigned spread(unsigned place) { return place ^ (place >> 5 & 31) ^ (place >> 10); }
__device__ __forceinline__ unsigned spread_row(unsigned row) { return row ^ (row >> 4); }

// This thread's part of the order: what its lane and warp contribute to the element's number, and to its place
// in the tile; the rows of the warp add theirs.
struct Mine {
    unsigned number, place;
};

__device__ __forceinline__ Mine mine_of(const Order& order)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    return {
        deposited<0, 5>(lane, order.sorted) | deposited<9, 12>(warp, order.sorted),
        deposited<0, 5>(lane, order.places) | deposited<9, 12>(warp, order.places)};
}

// From shared.mask: rows with the significant elements before them, and how many there are.
__device__ __forceinline__ void count_rows(Shared& shared)
{
    const unsigned bits = threadIdx.x < ROWS ? shared.mask[threadIdx.x] : 0;
    unsigned total;
    const unsigned before = scanned<WARPS>((unsigned)__popc(bits), shared.sums, total);
    if (threadIdx.x < ROWS) shared.rows[spread_row(threadIdx.x)] = {bits, before};
    if (threadIdx.x == 0) shared.count = total;
    __syncthreads();
}

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
    const Mine mine = mine_of(order);
    const Word first = (Word)tile_offset(tile, order) + mine.number;
    const Element* from = values + frame * frame_elements;
    unsigned missing[COMPONENTS] = {};
#pragma unroll 1
    for (unsigned group = 0; group < WARP_ROWS / LOADED; ++group) {
        const Word number = first + deposited<8, 9>(group, order.sorted);
        const unsigned place = mine.place | deposited<8, 9>(group, order.places);
        Element elements[LOADED];
        bool inside[LOADED];
#pragma unroll
        for (unsigned k = 0; k < LOADED; ++k) {
            const Word own = number + deposited<5, 8>(k, order.sorted);
            inside[k] = own < frame_elements;
            elements[k] = {};
            if (inside[k]) elements[k] = from[own];
        }
#pragma unroll
        for (unsigned k = 0; k < LOADED; ++k) {
            const unsigned into = spread(place | deposited<5, 8>(k, order.places));
#pragma unroll
            for (unsigned c = 0; c < COMPONENTS; ++c) {
                bool missed;
                const int q = quantized(elements[k].part[c], rules.of[c], missed);
                shared.z[c][into] = inside[k] ? zigzag(q) : 0;
                missing[c] += inside[k] && missed;
            }
        }
    }
    __syncthreads();
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        const unsigned sum = __reduce_add_sync(WHOLE_WARP, missing[c]);
        if (lane == 0 && sum) atomicAdd(&shared.exact[c], sum);
    }
    unsigned z[COMPONENTS][WARP_ROWS];
#pragma unroll
    for (unsigned k = 0; k < WARP_ROWS; ++k) {
        const unsigned row = warp * WARP_ROWS + k;
        unsigned any = 0;
#pragma unroll
        for (unsigned c = 0; c < COMPONENTS; ++c) any |= z[c][k] = shared.z[c][spread(row * LANES + lane)];
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
    for (unsigned b = warp; b < COMPONENTS * blocks; b += WARPS) {
        const unsigned c = b >= blocks, block = c ? b - blocks : b;
        const unsigned any = __reduce_or_sync(WHOLE_WARP, shared.z[c][spread(block * LANES + lane)]);
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
    words += head_words;
    for (unsigned b = warp; b < COMPONENTS * blocks; b += WARPS) {
        const unsigned c = b >= blocks, block = c ? b - blocks : b, planes = shared.planes[b];
        unsigned rest = shared.z[c][spread(block * LANES + lane)], kept = 0;
        for (unsigned p = 0; p < planes; p += AHEAD, rest >>= AHEAD) {
#pragma unroll
            for (unsigned j = 0; j < AHEAD; ++j) {
                const unsigned plane = __ballot_sync(WHOLE_WARP, rest >> j & 1);
                if (lane == p + j) kept = plane;
            }
        }
        if (lane < planes) words[shared.planes_before[b] + lane] = kept;
    }
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
    const unsigned* words = data + end / 4;
    for (unsigned first = warp; first < COMPONENTS * blocks; first += AHEAD * WARPS) {
        unsigned kept[AHEAD];
#pragma unroll
        for (unsigned j = 0; j < AHEAD; ++j) {
            const unsigned b = first + j * WARPS;
            const unsigned planes = b < COMPONENTS * blocks ? shared.planes[b] : 0;
            kept[j] = lane < planes ? words[shared.planes_before[b] + lane] : 0;
        }
#pragma unroll
        for (unsigned j = 0; j < AHEAD; ++j) {
            const unsigned b = first + j * WARPS;
            if (b >= COMPONENTS * blocks) break;
            const unsigned c = b >= blocks, block = c ? b - blocks : b, planes = shared.planes[b];
            unsigned z = 0;
            for (unsigned p = 0; p < planes; p += AHEAD) {
#pragma unroll
                for (unsigned i = 0; i < AHEAD; ++i) {
                    z |= (__shfl_sync(WHOLE_WARP, kept[j], p + i) >> lane & 1) << (p + i);
                }
            }
            shared.z[c][spread(block * LANES + lane)] = z;
        }
    }
    __syncthreads();
    return true;
}

// starts (frames, n_tiles): where each tile's bytes are behind their sizes. Values are filled, those of frames
// that are stored raw too; frames whose bytes make no sense become `damaged`. A block a tile.
extern "C" __global__ void __launch_bounds__(THREADS) fast_decode(
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
    const Mine mine = mine_of(order);
    const Word first = (Word)tile_offset(tile, order) + mine.number;
#pragma unroll 1
    for (unsigned group = 0; group < WARP_ROWS / WRITTEN; ++group) {
        const Word number = first + deposited<7, 9>(group, order.sorted);
        const unsigned base = mine.place | deposited<7, 9>(group, order.places);
#pragma unroll
        for (unsigned k = 0; k < WRITTEN; ++k) {
            const unsigned place = base | deposited<5, 7>(k, order.places), lane = place % LANES;
            unsigned at = place;
            bool stored = size != 0;
            if (stored && !dense) {
                const Row row = shared.rows[spread_row(place / LANES)];
                stored = row.mask >> lane & 1;
                at = row.before + __popc(row.mask & lanes_below(lane));
            }
            Element element;
#pragma unroll
            for (unsigned c = 0; c < COMPONENTS; ++c) {
                element.part[c] = restored(stored ? unzigzag(shared.z[c][spread(at % TILE)]) : 0, rules.of[c]);
            }
            const Word own = number + deposited<5, 7>(k, order.sorted);
            if (own < frame_elements) into[own] = element;
        }
    }
}
