// The coder `fast`: a block of threads codes a tile of 4096 elements (layout: compress/fixed_kernel.py).
//
// Frames of equal size lie behind one another; `local` (4096) and `tiles` are the tables of compress/tiles.py,
// in elements. A frame's coded bytes are the sizes of its tiles, then the tiles.

#include "quantize.cuh"

#define THREADS 256
#define WARPS (THREADS / LANES)
#define BLOCKS (TILE / LANES)
#define DENSE (1u << 16)
#define DENSE_FROM 3840
#define HEAD_BYTES 856
#define KNOWN_SIZE (1ull << 62)
#define KNOWN_END (2ull << 62)
#define WHOLE_WARP 0xffffffffu

struct Shared {
    int q[COMPONENTS][TILE];
    Half stored[TILE];
    unsigned mask[BLOCKS];
    unsigned before[BLOCKS];
    unsigned planes_before[COMPONENTS * BLOCKS];
    unsigned sums[WARPS];
    __align__(4) Byte head[HEAD_BYTES];
    Byte planes[COMPONENTS * BLOCKS];
    unsigned exact[COMPONENTS];
    unsigned count, ticket, head_bytes;
    Word start;
};

// The sum of `value` over the threads below, and of all threads in `total`; every thread takes part.
__device__ __forceinline__ unsigned scanned(unsigned value, unsigned* sums, unsigned& total)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    unsigned upto = value;
    for (unsigned step = 1; step < LANES; step *= 2) {
        const unsigned other = __shfl_up_sync(WHOLE_WARP, upto, step);
        if (lane >= step) upto += other;
    }
    if (lane == LANES - 1) sums[warp] = upto;
    __syncthreads();
    unsigned below = 0;
    total = 0;
    for (unsigned w = 0; w < WARPS; ++w) {
        if (w < warp) below += sums[w];
        total += sums[w];
    }
    __syncthreads();
    return below + upto - value;
}

// From shared.mask: how many are significant (count), and their places in order (stored), or all places where
// `dense_from` or more are significant.
__device__ __forceinline__ void list_stored(Shared& shared, unsigned dense_from)
{
    const unsigned bits = threadIdx.x < BLOCKS ? shared.mask[threadIdx.x] : 0;
    unsigned total;
    const unsigned before = scanned(__popc(bits), shared.sums, total);
    if (threadIdx.x < BLOCKS) shared.before[threadIdx.x] = before;
    if (threadIdx.x == 0) shared.count = total;
    __syncthreads();
    const bool dense = total >= dense_from;
    for (unsigned t = threadIdx.x; t < TILE; t += THREADS) {
        const unsigned word = shared.mask[t / LANES], lane = t % LANES;
        if (dense) shared.stored[t] = t;
        else if (word >> lane & 1) shared.stored[shared.before[t / LANES] + __popc(word & lanes_below(lane))] = t;
    }
    __syncthreads();
}

__device__ __forceinline__ unsigned stored_zigzag(const Shared& shared, unsigned c, unsigned place, unsigned most)
{
    return place < most ? zigzag(shared.q[c][shared.stored[place]]) : 0;
}

// Write first word, mask and planes' numbers to shared.head; head_bytes is a multiple of 4. One warp.
__device__ __forceinline__ void write_head(Shared& shared, bool dense, unsigned blocks)
{
    const unsigned lane = threadIdx.x;
    unsigned at = 4;
    for (unsigned k = lane; k < HEAD_BYTES; k += LANES) shared.head[k] = 0;
    __syncwarp();
    if (lane == 0) *(unsigned*)shared.head = shared.count | (dense ? DENSE : 0);
    if (!dense) {
        const Byte* bytes = (const Byte*)shared.mask;
        unsigned groups = 0, filled = 0;
        at += 8;
        for (unsigned half = 0; half < 2; ++half) {
            const unsigned w = half * LANES + lane;
            unsigned group = 0;
            for (unsigned k = 0; k < 8; ++k) group |= (bytes[8 * w + k] != 0) << k;
            const unsigned any = __ballot_sync(WHOLE_WARP, group != 0);
            if (lane == 0) *(unsigned*)(shared.head + 4 + 4 * half) = any;
            if (group) shared.head[at + groups + __popc(any & lanes_below(lane))] = group;
            groups += __popc(any);
        }
        at += groups;
        for (unsigned k = lane; k < TILE / 8; k += LANES) {
            const unsigned any = __ballot_sync(WHOLE_WARP, bytes[k] != 0);
            if (bytes[k]) shared.head[at + filled + __popc(any & lanes_below(lane))] = bytes[k];
            filled += __popc(any);
        }
        at += filled;
    }
    for (unsigned k = lane; k < COMPONENTS * blocks; k += LANES) shared.head[at + k] = shared.planes[k];
    if (lane == 0) shared.head_bytes = (at + COMPONENTS * blocks + 3) & ~3u;
}

// Where a tile of `size` bytes starts in its frame's tiles: decoupled look-back (Merrill and Garland, 2016).
// Tiles take their numbers in the order in which their blocks start, so that those before are under way.
__device__ __forceinline__ Word start_of(Word* status, unsigned tile, Word size)
{
    volatile Word* seen = status;
    Word start = 0;
    if (tile == 0) {
        seen[0] = KNOWN_END | size;
        return 0;
    }
    seen[tile] = KNOWN_SIZE | size;
    for (unsigned before = tile - 1;;) {
        const Word found = seen[before];
        if (found == 0) continue;
        start += found & ~(KNOWN_SIZE | KNOWN_END);
        if (found & KNOWN_END) break;
        --before;
    }
    seen[tile] = KNOWN_END | (start + size);
    return start;
}

// values: frames of frame_elements; coded: for each frame frame_bytes of room, filled from its start;
// status (frames * n_tiles) and ticket (1) are zero; coded_bytes (frames): the bytes of each frame, above
// frame_bytes where they do not fit; exact (frames, COMPONENTS, n_tiles): values to be stored exactly.
extern "C" __global__ void __launch_bounds__(THREADS) fast_encode(
    const Element* values, Word frame_elements, const unsigned* local, const unsigned* tiles, unsigned n_tiles,
    Rules rules, Byte* coded, Word frame_bytes, Word* status, unsigned* ticket, Word* coded_bytes, unsigned* exact)
{
    __shared__ Shared shared;
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    if (threadIdx.x == 0) shared.ticket = atomicAdd(ticket, 1u);
    if (threadIdx.x < COMPONENTS) shared.exact[threadIdx.x] = 0;
    __syncthreads();
    const unsigned frame = shared.ticket / n_tiles, tile = shared.ticket % n_tiles;
    const Element* from = values + frame * frame_elements;
    for (unsigned t = threadIdx.x; t < TILE; t += THREADS) {
        const Word number = (Word)tiles[tile] + local[t];
        bool any = false;
        Element element = {};
        const bool inside = number < frame_elements;
        if (inside) element = from[number];
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            bool missed = false;
            shared.q[c][t] = inside ? quantized(element.part[c], rules.of[c], missed) : 0;
            any |= shared.q[c][t] != 0;
            if (missed) atomicAdd(&shared.exact[c], 1u);
        }
        const unsigned word = __ballot_sync(WHOLE_WARP, any);
        if (lane == 0) shared.mask[t / LANES] = word;
    }
    __syncthreads();
    list_stored(shared, DENSE_FROM);
    const bool dense = shared.count >= DENSE_FROM;
    const unsigned most = dense ? TILE : shared.count, blocks = (most + LANES - 1) / LANES;
    for (unsigned b = warp; b < COMPONENTS * blocks; b += WARPS) {
        const unsigned z = stored_zigzag(shared, b / blocks, b % blocks * LANES + lane, most);
        const unsigned any = __reduce_or_sync(WHOLE_WARP, z);
        if (lane == 0) shared.planes[b] = 32 - __clz(any);
    }
    __syncthreads();
    unsigned n_planes;
    const unsigned mine = threadIdx.x < COMPONENTS * blocks ? shared.planes[threadIdx.x] : 0;
    const unsigned before = scanned(mine, shared.sums, n_planes);
    if (threadIdx.x < COMPONENTS * blocks) shared.planes_before[threadIdx.x] = before;
    if (shared.count && threadIdx.x < LANES) write_head(shared, dense, blocks);
    __syncthreads();
    const unsigned size = shared.count ? shared.head_bytes + 4 * n_planes : 0;
    if (threadIdx.x == 0) {
        shared.start = start_of(status + (Word)frame * n_tiles, tile, size) + 4ull * n_tiles;
        if (tile == n_tiles - 1) coded_bytes[frame] = shared.start + size;
    }
    if (threadIdx.x < COMPONENTS) exact[((Word)frame * COMPONENTS + threadIdx.x) * n_tiles + tile] = shared.exact[threadIdx.x];
    __syncthreads();
    Byte* out = coded + frame * frame_bytes;
    if (shared.start + size > frame_bytes) return;
    if (threadIdx.x == 0) ((unsigned*)out)[tile] = size;
    if (size == 0) return;
    unsigned* words = (unsigned*)(out + shared.start);
    for (unsigned k = threadIdx.x; k < shared.head_bytes / 4; k += THREADS) words[k] = ((unsigned*)shared.head)[k];
    words += shared.head_bytes / 4;
    for (unsigned b = warp; b < COMPONENTS * blocks; b += WARPS) {
        const unsigned z = stored_zigzag(shared, b / blocks, b % blocks * LANES + lane, most);
        unsigned kept = 0;
        for (unsigned p = 0; p < shared.planes[b]; ++p) {
            const unsigned plane = __ballot_sync(WHOLE_WARP, z >> p & 1);
            if (lane == p) kept = plane;
        }
        if (lane < shared.planes[b]) words[shared.planes_before[b] + lane] = kept;
    }
}

// The places and bits of a frame's exact values: one block a tile that has some, in the order of the stream.
// starts (COMPONENTS, n_tiles): the values of the frame before each tile's; the frame is `values`.
extern "C" __global__ void __launch_bounds__(THREADS) gather_exact(
    const Element* values, Word frame_elements, const unsigned* local, const unsigned* tiles, unsigned n_tiles,
    Rules rules, const Word* starts, unsigned* places, BITS* bits)
{
    __shared__ unsigned sums[WARPS];
    const unsigned tile = blockIdx.x;
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        Word at = starts[(Word)c * n_tiles + tile];
        for (unsigned t = threadIdx.x; t < TILE; t += THREADS) {
            const Word number = (Word)tiles[tile] + local[t];
            bool missed = false;
            Element element = {};
            if (number < frame_elements) {
                element = values[number];
                quantized(element.part[c], rules.of[c], missed);
            }
            unsigned total;
            const unsigned before = scanned(missed, sums, total);
            if (missed) {
                places[at + before] = (c * n_tiles + tile) * TILE + t;
                bits[at + before] = bits_of(element.part[c]);
            }
            at += total;
        }
    }
}

// Fill shared.mask from the tile's bytes; where its planes' numbers start, or 0 where the bytes make no sense.
__device__ __forceinline__ unsigned take_mask(Shared& shared, const Byte* data, unsigned size)
{
    const unsigned lane = threadIdx.x;
    unsigned ends = 0, any[2], n_groups = 0;
    if (size < 12) return 0;
    any[0] = *(const unsigned*)(data + 4);
    any[1] = *(const unsigned*)(data + 8);
    n_groups = __popc(any[0]) + __popc(any[1]);
    unsigned at = 12 + n_groups;
    if (at > size) return 0;
    for (unsigned half = 0; half < 2; ++half) {
        unsigned group = 0;
        if (any[half] >> lane & 1) {
            group = data[12 + (half ? __popc(any[0]) : 0) + __popc(any[half] & lanes_below(lane))];
        }
        unsigned upto = __popc(group);
        for (unsigned step = 1; step < LANES; step *= 2) {
            const unsigned other = __shfl_up_sync(WHOLE_WARP, upto, step);
            if (lane >= step) upto += other;
        }
        ends = at + __shfl_sync(WHOLE_WARP, upto, LANES - 1);
        if (ends > size) return 0;
        unsigned from = at + upto - __popc(group);
        for (unsigned k = 0; k < 8; ++k) {
            ((Byte*)shared.mask)[8 * (half * LANES + lane) + k] = group >> k & 1 ? data[from++] : 0;
        }
        at = ends;
    }
    return at;
}

// coded: for each frame its coded bytes, from starts[frame] on (a multiple of 4), coded_bytes[frame] of them;
// values are filled. damaged (1) is set where the bytes of a tile make no sense.
extern "C" __global__ void __launch_bounds__(THREADS) fast_decode(
    const Byte* coded, const Word* starts, const Word* coded_bytes, Word frame_elements, const unsigned* local,
    const unsigned* tiles, unsigned n_tiles, Rules rules, Element* values, unsigned* damaged)
{
    __shared__ Shared shared;
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const unsigned frame = blockIdx.x / n_tiles, tile = blockIdx.x % n_tiles;
    const Byte* data = coded + starts[frame];
    const unsigned* sizes = (const unsigned*)data;
    const unsigned size = sizes[tile];
    if (threadIdx.x == 0) shared.start = 4ull * n_tiles;
    __syncthreads();
    Word before = 0;
    for (unsigned other = threadIdx.x; other < tile; other += THREADS) before += sizes[other];
    if (before) atomicAdd(&shared.start, before);
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        for (unsigned t = threadIdx.x; t < TILE; t += THREADS) shared.q[c][t] = 0;
    }
    __syncthreads();
    bool good = size % 4 == 0 && shared.start + size <= coded_bytes[frame];
    data += shared.start;
    const unsigned head = good && size >= 4 ? *(const unsigned*)data : 0;
    const bool dense = head & DENSE;
    if (good && head) {
        if (threadIdx.x < LANES) {
            unsigned at = 4;
            if (dense) {
                for (unsigned k = lane; k < BLOCKS; k += LANES) shared.mask[k] = ~0u;
            } else {
                at = take_mask(shared, data, size);
            }
            if (lane == 0) shared.head_bytes = at;
        }
        __syncthreads();
        if (shared.head_bytes) list_stored(shared, TILE + 1);
        const unsigned most = dense ? TILE : head;
        const unsigned blocks = (most + LANES - 1) / LANES, rates = shared.head_bytes;
        const unsigned end = (rates + COMPONENTS * blocks + 3) & ~3u;
        good = rates && head < 2 * DENSE && end <= size && (dense || shared.count == head);
        if (good) {
            const unsigned mine = threadIdx.x < COMPONENTS * blocks ? data[rates + threadIdx.x] : 0;
            unsigned n_planes;
            const unsigned sum = scanned(mine, shared.sums, n_planes);
            if (threadIdx.x < COMPONENTS * blocks) {
                shared.planes[threadIdx.x] = mine;
                shared.planes_before[threadIdx.x] = sum;
            }
            __syncthreads();
            good = end + 4ull * n_planes == size;
            const unsigned* words = (const unsigned*)(data + end);
            for (unsigned b = warp; good && b < COMPONENTS * blocks; b += WARPS) {
                const unsigned planes = shared.planes[b], place = b % blocks * LANES + lane;
                const unsigned kept = lane < planes ? words[shared.planes_before[b] + lane] : 0;
                unsigned z = 0;
                for (unsigned p = 0; p < planes && p < LANES; ++p) {
                    z |= (__shfl_sync(WHOLE_WARP, kept, p) >> lane & 1) << p;
                }
                if (place < most) shared.q[b / blocks][shared.stored[place]] = unzigzag(z);
            }
        }
    } else {
        good &= size == 0;
    }
    if (!good) *damaged = 1;
    __syncthreads();
    Element* into = values + frame * frame_elements;
    for (unsigned t = threadIdx.x; t < TILE; t += THREADS) {
        const Word number = (Word)tiles[tile] + local[t];
        if (number >= frame_elements) continue;
        Element element;
        for (unsigned c = 0; c < COMPONENTS; ++c) element.part[c] = restored(shared.q[c][t], rules.of[c]);
        into[number] = element;
    }
}
