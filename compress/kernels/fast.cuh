// The coder `fast`: a block of threads takes a tile of 4096 elements (layout: compress/fixed_kernel.py).
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
#define HALF_WARP (LANES / 2)
#define VECTOR_LOG2 (VALUE_BYTES == 4 ? 2 : VALUE_BYTES == 8 ? 1 : 0)
#define VECTOR (1u << VECTOR_LOG2)
#define VECTORS (TILE / THREADS / VECTOR)

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

// As many elements as a thread loads or stores at once.
struct __align__(VECTOR * COMPONENTS * sizeof(REAL)) Vector {
    Element of[VECTOR];
};

// Places that differ in the bits of the row share no bank. Of places without a common bit, that of the union is
// the exclusive or.
__device__ __forceinline__ unsigned spread(unsigned place) { return place ^ (place >> 5 & 31) ^ (place >> 10); }
template <unsigned from, unsigned to>
__device__ __forceinline__ unsigned spread_bits(unsigned number, const Byte* places)
{
    unsigned all = 0;
#pragma unroll
    for (unsigned j = from; j < to; ++j) all ^= number >> (j - from) & 1 ? spread(1u << places[j]) : 0;
    return all;
}

__device__ __forceinline__ unsigned spread_row(unsigned row) { return row ^ (row >> 4); }
__device__ __forceinline__ unsigned spread_lane(unsigned row, unsigned lane)
{
    return row * LANES | (lane ^ (row % LANES) ^ (row / LANES));
}

// Bit j of the result of lane i is bit i of what lane j gives.
__device__ __forceinline__ unsigned transposed(unsigned bits, unsigned lane)
{
#pragma unroll
    for (unsigned step = LANES / 2; step; step /= 2) {
        const unsigned low = ~0u / ((1u << step) + 1), keep = lane & step ? ~low : low;
        const unsigned turn = lane & step ? LANES - step : step;
        const unsigned other = __shfl_xor_sync(WHOLE_WARP, bits, step);
        bits = (bits & keep) | ((other << turn | other >> (LANES - turn)) & ~keep);
    }
    return bits;
}


// This thread's part of the order: what its lane and warp contribute to the element's number, and to its place
// in the tile, when the lowest `low` bits are the thread's own; the rows of the warp add theirs.
struct Mine {
    unsigned number, place;
};

template <unsigned low> __device__ __forceinline__ Mine mine_of(const Order& order)
{
    return {
        deposited<low, low + 8>(threadIdx.x, order.sorted), deposited<low, low + 8>(threadIdx.x, order.places)};
}

// Whether a thread can take vectors: rules are linear, tiles whole, and neighbours in memory lie in a tile.
__device__ __forceinline__ bool is_plain(
    const Rules& rules, const Order& order, Word frame_elements, const Element* values)
{
    bool plain = linear(rules) && frame_elements % TILE == 0 && (Word)values % sizeof(Vector) == 0;
    for (unsigned j = 0; j < VECTOR_LOG2; ++j) plain &= order.sorted[j] == j;
    return plain;
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
