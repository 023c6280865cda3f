// The verdict on a stream, which the last block that reads it sends to the host.

// Words before those of the header: the number of the first frame that is damaged, whose sum is wrong, or that a CPU
// alone reads, or n_frames; whether it is of the last kind; where the last frame ends; whether any frame has
// exact values.
#define VERDICT_WORDS 4

// Count this block among those that have ended: it changes frames no more; where it has changed one, thread 0 has done
// so, or has met the threads that did. Nobody waits for the answer.
__device__ __forceinline__ void count_block(const Work& work, bool changed)
{
    if (threadIdx.x != 0) return;
    if (changed) __threadfence();
    atomicAdd(work.ended, 1u);
}

// Of the numbers of this warp's lanes the least.
__device__ __forceinline__ Word least(Word number)
{
#pragma unroll
    for (unsigned step = LANES / 2; step; step /= 2) {
        const Word other = __shfl_xor_sync(WHOLE_WARP, number, step);
        if (other < number) number = other;
    }
    return number;
}

// Send the host the words of the header, which follow those of the verdict. A warp, whose block counts as ended later.
__device__ __forceinline__ void send_head(const Byte* data, const Span& span, Word* box)
{
    for (unsigned k = threadIdx.x % LANES; k < span.begin / 8; k += LANES) {
        box[VERDICT_WORDS + k] = k < span.data_bytes / 8 ? ((const Word*)data)[k] : 0;
    }
    __threadfence_system();
}

// Send the host the verdict, when all blocks have ended: the first warp of the last block of the last launch, whose
// frames are `count`. It waits for blocks with lower numbers alone, which run.
__device__ __forceinline__ void send_verdict(
    const Byte* data, const Work& work, const Span& span, unsigned count, Word* box)
{
    const bool last = blockIdx.x + 1 == gridDim.x && blockIdx.y + 1 == gridDim.y;
    if (!last || span.first + count != span.n_frames || threadIdx.x >= LANES) return;
    const unsigned lane = threadIdx.x, n_words = (unsigned)span.begin / 8;
    // What ties frames to their header, as seed_of of compress/format/stream.py forms it.
    const Word head = span.begin <= span.data_bytes ? ((const Word*)data)[n_words - 1] : 0;
    const Word seed = head + 8 + stirred(head, n_words - 1);
    // Thread 0 has counted this block.
    __syncwarp();
    while (*(const volatile unsigned*)work.ended != span.n_blocks) {}
    __threadfence();
    const Word end = work.places[span.n_frames] / 8 * 8;
    Word first = span.n_frames;
    bool exact = false;
    for (Word number = lane; number < span.n_frames; number += LANES) {
        const Frame& frame = work.frames[number];
        const bool wrong = frame.kind == PLANES || frame.damaged || frame.sum + seed != frame.stated;
        if (wrong && number < first) first = number;
        exact |= frame.kind == CODED && frame.exact;
    }
    first = least(first), exact = __any_sync(WHOLE_WARP, exact);
    if (lane != 0) return;
    // For the next launch that counts.
    *work.ended = 0;
    box[0] = first, box[1] = first < span.n_frames && work.frames[first].kind == PLANES, box[2] = end, box[3] = exact;
    post(box, VERDICT_WORDS + n_words + 1);
}
