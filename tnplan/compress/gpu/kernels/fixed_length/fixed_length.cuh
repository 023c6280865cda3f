// The coder `fast`: a block of threads takes a tile of 4096 elements (layout: compress/cpu/fixed_length_kernel.py).
//
// Frames of equal size lie behind one another. Memory is touched in the order of its addresses, a warp a row;
// numbers change places with those of the tile in shared memory, at `spread` places against bank conflicts.

#include "../common/tile.cuh"

#define THREADS 256
#define WARPS (THREADS / LANES)
#define ROWS (TILE / LANES)
#define WARP_ROWS (ROWS / WARPS)
#define DENSE (1u << 16)
#define DENSE_FROM 3840
#define HEAD_BYTES 1024
#define PAIRS (WARP_ROWS / 2)
#define HALF_WARP (LANES / 2)
#define VECTOR_LOG2 (VALUE_BYTES == 4 ? 2 : VALUE_BYTES == 8 ? 1 : 0)
#define VECTOR (1u << VECTOR_LOG2)
#define VECTORS (TILE / THREADS / VECTOR)

// places: in bytes of z, those of the significant elements of a tile that is not dense. planes: how many each block
// has, and from bit 8 on how many there are before; of a pair of blocks, `found` has which are not 0.
struct __align__(16) Shared {
    unsigned z[COMPONENTS][TILE];
    unsigned planes[COMPONENTS * ROWS];
    unsigned found[COMPONENTS * ROWS / 2];
    unsigned sums[WARPS], exact[WARPS];
    unsigned head[HEAD_BYTES / 4];
    unsigned mask[ROWS];
    unsigned damaged, wide;
    Half places[TILE];
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
// bits of the row share no bank (compress/gpu/launches.py: turns).
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

// Transposes bits: bit j of the result of lane i is bit i of what lane j gives. A lane's ways to choose between its
// bits and its partner's at distances 16 to 1: bytes of both, then a rotation and a mask of its own bits.
struct Turner {
    unsigned halves, bytes, turns[3], masks[3];

    __device__ __forceinline__ explicit Turner(unsigned lane)
    {
        halves = opaque(lane & 16 ? 0x3276 : 0x5410, lane), bytes = opaque(lane & 8 ? 0x3715 : 0x6240, lane);
#pragma unroll
        for (unsigned k = 0; k < 3; ++k) {
            const unsigned step = 4 >> k, low = ~0u / ((1u << step) + 1);
            turns[k] = opaque(lane & step ? LANES - step : step, lane);
            masks[k] = opaque(lane & step ? ~low : low, lane);
        }
    }

    // The same value, which the compiler cannot form anew wherever it is used.
    static __device__ __forceinline__ unsigned opaque(unsigned value, unsigned lane)
    {
        return __shfl_sync(WHOLE_WARP, value, lane);
    }

    __device__ __forceinline__ unsigned transposed(unsigned bits) const
    {
        bits = __byte_perm(bits, __shfl_xor_sync(WHOLE_WARP, bits, 16), halves);
        bits = __byte_perm(bits, __shfl_xor_sync(WHOLE_WARP, bits, 8), bytes);
#pragma unroll
        for (unsigned k = 0; k < 3; ++k) {
            const unsigned other = __shfl_xor_sync(WHOLE_WARP, bits, 4 >> k);
            bits = (bits & masks[k]) | (__funnelshift_l(other, other, turns[k]) & ~masks[k]);
        }
        return bits;
    }
};

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

// The same address, of which the compiler does not know how it came about: places behind it take one instruction.
template <typename T> __device__ __forceinline__ T* settled(T* address)
{
#ifdef __CUDA_ARCH__
    asm("" : "+l"(address));
#endif
    return address;
}

// Bytes of as many whole words as hold so many.
__device__ __forceinline__ unsigned filled_words(unsigned n_bytes) { return (n_bytes + 3) / 4 * 4; }

// A bit for each byte of a word, whether it is not 0.
__device__ __forceinline__ unsigned bytes_of(unsigned bits)
{
    bits |= bits >> 4, bits |= bits >> 2, bits |= bits >> 1;
    return (bits & 1) | (bits >> 7 & 2) | (bits >> 14 & 4) | (bits >> 21 & 8);
}
