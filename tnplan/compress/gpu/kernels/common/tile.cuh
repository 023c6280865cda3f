// The order of elements in a frame, sums over threads, and the table of frames that kernels share.

#ifndef TILE_LOG2
#include "quantize.cuh"

#define WHOLE_WARP 0xffffffffu
#define TILE_LOG2 12
#define VALUE_BYTES (COMPONENTS * sizeof(REAL))
#define RAW 0
#define CODED 2
#define BAD 3
#define FRAME_HEADER_BYTES 16
#define CODED_HEAD_BYTES 24
#define PLACE_BYTES 4
#define MOST_EXACT 8

// compress/format/bit_tiling.py: bit j of a place in a tile is bit axes[j] of the element's number; the bits of the tile's number
// are the others. In the order in which memory is touched bit j adds numbers[j] to the element's number, and turns
// its place in shared memory (of `fast`, in bytes) by turns[j]; above[j] has the bits from numbers[j] on.
struct Order {
    unsigned above[TILE_LOG2], numbers[TILE_LOG2], turns[TILE_LOG2];
    Byte axes[TILE_LOG2];
};

// `count` frames of equal size behind one another, which end the stream or not, and how their values are coded; `done`,
// from 0, counts blocks.
struct Frames {
    Rules rules;
    Order order;
    Word elements;
    unsigned n_tiles, count, ends, done;
};

// A frame of a stream: where its payload starts and its bytes, the sum of its stirred words, the sum that its
// header states, and the payload's first words. `damaged` is set by whoever finds contradictions; while a stream is
// written, it counts the blocks that have summed words.
struct Frame {
    Word start, size, sum, stated, kind, exact, coded, damaged;
};

__device__ __forceinline__ Word filled(Word size) { return (size + 7) / 8 * 8; }

__device__ __forceinline__ Word exact_bytes(Word count)
{
    return filled(count * PLACE_BYTES) + filled(count * sizeof(REAL));
}

// Bit j of `number` moved to bit axes[j], for the bits from .. to - 1.
template <unsigned from, unsigned to>
__device__ __forceinline__ unsigned deposited(unsigned number, const Byte* axes)
{
    unsigned placed = 0;
#pragma unroll
    for (unsigned j = from; j < to; ++j) placed |= (number >> (j - from) & 1u) << axes[j];
    return placed;
}

// The number of the tile's first element: a bit 0 is put in at each axis, the lowest first.
__device__ __forceinline__ unsigned tile_offset(unsigned tile, const Order& order)
{
    unsigned number = tile;
#pragma unroll
    for (unsigned j = 0; j < TILE_LOG2; ++j) number += number & order.above[j];
    return number;
}

// `upto` of this lane and, where there is one, of that `step` below.
template <typename T> __device__ __forceinline__ T joined(T upto, unsigned step)
{
    const T other = __shfl_up_sync(WHOLE_WARP, upto, step);
    return threadIdx.x % LANES >= step ? upto + other : upto;
}

#ifdef __CUDA_ARCH__
__device__ __forceinline__ unsigned joined(unsigned upto, unsigned step)
{
    asm volatile("{ .reg .pred any; .reg .b32 other; shfl.sync.up.b32 other|any, %0, %1, 0, -1;"
                 " @any add.u32 %0, %0, other; }" : "+r"(upto) : "r"(step));
    return upto;
}
#endif

// The sum of `value` over the threads below, and of all threads in `total`; every thread takes part.
template <unsigned warps, typename T> __device__ __forceinline__ T scanned(T value, T* sums, T& total)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    T upto = value;
#pragma unroll
    for (unsigned step = 1; step < LANES; step *= 2) upto = joined(upto, step);
    if (lane == LANES - 1) sums[warp] = upto;
    __syncthreads();
    T below = 0;
    total = 0;
#pragma unroll
    for (unsigned w = 0; w < warps; ++w) {
        if (w < warp) below += sums[w];
        total += sums[w];
    }
    __syncthreads();
    return below + upto - value;
}

// Tell the host, whose words these are, that all words before the last one of its `n_words` are written.
__device__ __forceinline__ void post(Word* words, unsigned n_words)
{
    __threadfence_system();
    *(volatile Word*)(words + n_words - 1) = 1;
}

// Copy the values of part `part` of a frame that is stored raw; payloads have no alignment but that of 8 bytes.
__device__ __forceinline__ void copy_raw(
    const REAL* from, REAL* into, Word n_elements, unsigned part, unsigned thread, unsigned threads)
{
    const Word begin = (Word)part * TILE * COMPONENTS, stop = n_elements * COMPONENTS;
    for (Word i = begin + thread; i < begin + TILE * COMPONENTS && i < stop; i += threads) into[i] = from[i];
}
#endif
