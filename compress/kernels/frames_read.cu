// What is left of a stream when its numbers are read: its header, exact values, and which frames are damaged.

#include "tile.cuh"
#include "checksum.cuh"
#include "wait.cuh"
#include "read.cuh"

#define THREADS 256
#define VERDICT_WORDS 3

// Tell the host the first words of a stream, `n_words` at most, and then a 1. A warp.
extern "C" __global__ void __launch_bounds__(LANES) tell_header(
    const Byte* data, Word data_bytes, unsigned n_words, Word* told)
{
    for (unsigned k = threadIdx.x; k < n_words && k < data_bytes / 8; k += LANES) told[k] = ((const Word*)data)[k];
    __threadfence_system();
    __syncwarp();
    if (threadIdx.x == 0) post(told, n_words + 1);
}

// Put the exact values of a coded frame, of which this block takes a share, to their places; `damaged` where these are
// not in order or are beyond the frame.
__device__ __forceinline__ void put_exact(
    const Byte* data, Frame& frame, Word frame_elements, const Order& order, unsigned n_tiles, BITS* into)
{
    const Byte* behind = data + frame.start + CODED_HEAD_BYTES + filled(frame.coded);
    const unsigned* places = (const unsigned*)behind;
    const BITS* bits = (const BITS*)(behind + filled(frame.exact * PLACE_BYTES));
    for (Word i = (Word)blockIdx.x * THREADS + threadIdx.x; i < frame.exact; i += (Word)gridDim.x * THREADS) {
        const unsigned place = places[i], tile = place / TILE % n_tiles, c = place / TILE / n_tiles;
        const Word number = (Word)tile_offset(tile, order) + deposited<0, TILE_LOG2>(place % TILE, order.axes);
        if ((i && places[i - 1] >= place) || c >= COMPONENTS || number >= frame_elements) frame.damaged = 1;
        else into[number * COMPONENTS + c] = bits[i];
    }
}

// The number of the first frame that is damaged, whose sum is wrong, or that a CPU stored without loss; or n_frames.
__device__ __forceinline__ Word first_wrong(const Frame* frames, Word n_frames, Word seed)
{
    __shared__ Word firsts[THREADS];
    Word first = n_frames;
    for (Word number = threadIdx.x; number < first; number += THREADS) {
        const Frame frame = frames[number];
        if (frame.kind == PLANES || frame.damaged || frame.sum + seed != frame.stated) first = number;
    }
    firsts[threadIdx.x] = first;
    for (unsigned half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x >= half) continue;
        const Word other = firsts[threadIdx.x + half];
        if (other < firsts[threadIdx.x]) firsts[threadIdx.x] = other;
    }
    __syncthreads();
    return firsts[0];
}

// Put the exact values of frames, along y. The last block of all launches then tells the host the first frame that is
// wrong, or n_frames; whether a CPU stored that one without loss; where the last frame ends; the words of the header.
extern "C" __global__ void __launch_bounds__(THREADS) finish_frames(
    const Byte* data, Word* words, Span span, Word frame_elements, Order order, unsigned n_tiles, Element* values,
    Word seed, Word* told)
{
    __shared__ bool last;
    const Work work = work_of(words, span);
    Frame& own = work.frames[span.first + blockIdx.y];
    BITS* into = (BITS*)(values + blockIdx.y * frame_elements);
    if (own.kind == CODED) put_exact(data, own, frame_elements, order, n_tiles, into);
    if (span.first + gridDim.y != span.n_frames) return;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(work.ended, (Word)1) + 1 == (Word)gridDim.x * gridDim.y;
        __threadfence();
    }
    __syncthreads();
    if (!last) return;
    const Word first = first_wrong(work.frames, span.n_frames, seed), n_words = span.begin / 8;
    for (unsigned k = threadIdx.x; k < n_words; k += THREADS) {
        told[VERDICT_WORDS + k] = k < span.data_bytes / 8 ? ((const Word*)data)[k] : 0;
    }
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x != 0) return;
    told[0] = first, told[1] = first < span.n_frames && work.frames[first].kind == PLANES;
    told[2] = work.places[span.n_frames] / 8 * 8;
    post(told, VERDICT_WORDS + n_words + 1);
}
