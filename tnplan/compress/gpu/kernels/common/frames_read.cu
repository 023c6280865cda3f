// What is read of a stream before its numbers and behind them: its header, and exact values.

#include "tile.cuh"
#include "checksum.cuh"
#include "wait.cuh"
#include "read.cuh"
#include "verdict.cuh"

#define THREADS 256

// Tell the host the first words of a stream, `n_words` at most, and then a 1. A warp.
extern "C" __global__ void __launch_bounds__(LANES) send_header(
    const Byte* data, Word data_bytes, unsigned n_words, Word* mailbox)
{
    for (unsigned k = threadIdx.x; k < n_words && k < data_bytes / 8; k += LANES) mailbox[k] = ((const Word*)data)[k];
    __threadfence_system();
    __syncwarp();
    if (threadIdx.x == 0) post(mailbox, n_words + 1);
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

// Put the exact values of frames, along y. The last block of all launches sends the host the verdict once more.
extern "C" __global__ void __launch_bounds__(THREADS) put_exact_values(
    const Byte* data, Word* words, Span span, Word frame_elements, Order order, unsigned n_tiles, Element* values,
    Word* box)
{
    const Work work = work_of(words, span);
    Frame& own = work.frames[span.first + blockIdx.y];
    BITS* into = (BITS*)(values + blockIdx.y * frame_elements);
    if (own.kind == CODED) put_exact(data, own, frame_elements, order, n_tiles, into);
    __syncthreads();
    count_block(work, true);
    send_verdict(data, work, span, gridDim.y, box);
}
