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

// Numbers of significant elements, of bytes of the mask that are not 0, and of groups of 8 such bytes.
struct Counts {
    unsigned elements, bytes, groups;
};

// places: in bytes of z, those of the significant elements of a tile that is not dense.
struct __align__(16) Shared {
    unsigned z[COMPONENTS][TILE];
    unsigned planes_before[COMPONENTS * ROWS];
    unsigned sums[WARPS];
    unsigned head[HEAD_BYTES / 4];
    unsigned mask[ROWS];
    unsigned exact[COMPONENTS];
    unsigned damaged;
    Half places[TILE];
    Byte planes[COMPONENTS * ROWS];
};

// As many elements as a thread loads or stores at once.
struct __align__(VECTOR * COMPONENTS * sizeof(REAL)) Vector {
    Element of[VECTOR];
};

// The exclusive or of parts[from + j] over the bits j of a number that are set.
template <unsigned from, unsigned to>
__device__ __forceinline__ unsigned combined(unsigned number, const unsigned* parts)
{
    unsigned all = 0;
#pragma unroll
    for (unsigned j = from; j < to; ++j) all ^= number >> (j - from) & 1 ? parts[j] : 0;
    return all;
}

// Where an element of a tile is in shared memory: rows are turned so that elements at places that differ in the
// bits of the row share no bank (compress/launches.py: turns).
__device__ __forceinline__ unsigned spread_lane(unsigned row, unsigned lane)
{
    return row * LANES | (lane ^ (row % LANES) ^ (row / LANES));
}

// Of a warp's rows, WARPS apart: for row = warp + k WARPS, 4 spread_lane(row, lane) is 4 warp LANES plus
// turned(4 (lane ^ warp), k).
__device__ __forceinline__ unsigned turned(unsigned lane4, unsigned k)
{
    const unsigned row = k * WARPS;
    return 4 * row * LANES + (lane4 ^ 4 * (row % LANES ^ row / LANES));
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

// Put the places of a row's significant elements to shared.places, behind `before` others.
__device__ __forceinline__ void put_places(Shared& shared, unsigned row, unsigned bits, unsigned before)
{
    const unsigned turn = row % LANES ^ row / LANES;
#pragma unroll 1
    for (unsigned at = before + __popc(bits); bits;) {
        const unsigned lane = 31 - __clz(bits);
        bits ^= 1u << lane;
        shared.places[--at] = (Half)(4 * (row * LANES | (lane ^ turn)));
    }
}

// This thread's part of the order: what its lane and warp contribute to the element's number, and to its place
// in shared memory, when the lowest `low` bits are the thread's own; the rows of the warp add theirs.
struct Mine {
    unsigned number, place;
};

template <unsigned low> __device__ __forceinline__ Mine mine_of(const Order& order)
{
    return {combined<low, low + 8>(threadIdx.x, order.numbers), combined<low, low + 8>(threadIdx.x, order.turns)};
}

// Whether a thread can take vectors: rules are linear, tiles whole, and neighbours in memory lie in a tile.
__device__ __forceinline__ bool is_plain(
    const Rules& rules, const Order& order, Word frame_elements, const Element* values)
{
    bool plain = linear(rules) && frame_elements % TILE == 0 && (Word)values % sizeof(Vector) == 0;
    for (unsigned j = 0; j < VECTOR_LOG2; ++j) plain &= order.numbers[j] == 1u << j;
    return plain;
}

// The number at a place in bytes.
__device__ __forceinline__ unsigned& at_bytes(unsigned* numbers, unsigned place)
{
    return *(unsigned*)((Byte*)numbers + place);
}

// A bit for each byte of a word, whether it is not 0.
__device__ __forceinline__ unsigned bytes_of(unsigned bits)
{
    bits |= bits >> 4, bits |= bits >> 2, bits |= bits >> 1;
    return (bits & 1) | (bits >> 7 & 2) | (bits >> 14 & 4) | (bits >> 21 & 8);
}
