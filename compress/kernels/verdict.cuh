// What the host is told of a stream by the last block that reads it.

// Words before those of the header: the number of the first frame that is damaged, whose sum is wrong, or that a CPU
// stored without loss, or n_frames; whether it is of the last kind; where the last frame ends; whether any frame has
// exact values.
#define VERDICT_WORDS 4

// Count this block among those that have ended: how many had before, for thread 0. It is called when the block changes
// frames no more; where it has changed one, thread 0 has done so, or has met the threads that did. The last block begins
// anew, for the next launch that counts.
__device__ __forceinline__ unsigned counted(const Work& work, const Span& span, bool changed)
{
    if (threadIdx.x != 0) return 0;
    if (changed) __threadfence();
    // Of atomicAdd the answer would be shared with the warp, and so waited for, here.
    return atomicInc(work.ended, span.n_blocks - 1);
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

// Tell the host the verdict and the words of the header, where this block was the last to end: of `ended`, lane 0 has
// what `counted` returned. The block's first warp.
__device__ __forceinline__ void tell_verdict(
    const Byte* data, const Work& work, const Span& span, unsigned ended, Word* box)
{
    if (__shfl_sync(WHOLE_WARP, ended, 0) + 1 != span.n_blocks) return;
    __threadfence();
    __syncwarp();
    const unsigned lane = threadIdx.x % LANES, n_words = (unsigned)span.begin / 8;
    const Word* words = (const Word*)data;
    for (unsigned k = lane; k < n_words; k += LANES) box[VERDICT_WORDS + k] = k < span.data_bytes / 8 ? words[k] : 0;
    // What ties frames to their header, as seed_of of compress/stream.py forms it.
    const Word head = span.begin <= span.data_bytes ? words[n_words - 1] : 0, seed = head + 8 + stirred(head, n_words - 1);
    Word first = span.n_frames;
    bool exact = false;
    for (Word number = lane; number < span.n_frames; number += LANES) {
        const Frame& frame = work.frames[number];
        const bool wrong = frame.kind == PLANES || frame.damaged || frame.sum + seed != frame.stated;
        if (wrong && number < first) first = number;
        exact |= frame.kind == CODED && frame.exact;
    }
    first = least(first), exact = __any_sync(WHOLE_WARP, exact);
    __threadfence_system();
    __syncwarp();
    if (lane != 0) return;
    box[0] = first, box[1] = first < span.n_frames && work.frames[first].kind == PLANES;
    box[2] = work.places[span.n_frames] / 8 * 8, box[3] = exact;
    post(box, VERDICT_WORDS + n_words + 1);
}
