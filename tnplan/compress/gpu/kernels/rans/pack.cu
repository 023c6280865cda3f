// Coded segments to their places in the stream.

#include "rans.cuh"

// Bring heads and segments of coded frames to their places in the stream: a block a segment.
// segment_starts (frames, n_tiles): where each is behind the frame's head.
extern "C" __global__ void __launch_bounds__(THREADS) small_pack(
    const Half* slots, const unsigned* words, const Word* segment_starts, unsigned n_tiles, const Plan* plans,
    const unsigned* head_bytes, const Frame* frames, Byte* out)
{
    const unsigned segment = blockIdx.x, number = blockIdx.y;
    const Frame& frame = frames[number];
    const Plan plan = plans[number];
    if (frame.kind != CODED || segment >= plan.n_segments) return;
    const unsigned part = number * n_tiles + segment, count = words[part];
    unsigned* into = (unsigned*)(out + frame.start + CODED_HEAD_BYTES);
    if (segment == 0) {
        const unsigned* head = head_bytes + (Word)number * (HEAD_BYTES / 4);
        for (unsigned k = threadIdx.x; k < plan.words_at / 4; k += THREADS) into[k] = head[k];
    }
    into += plan.words_at / 4;
    if (threadIdx.x == 0) into[segment] = count;
    into += plan.n_segments + segment_starts[part] / 4;
    const unsigned begin = segment_begin(segment, plan), stop = segment_stop(segment, plan, n_tiles);
    const Half* own = slots + ((Word)number * n_tiles + begin) * SLOT_HALVES;
    if (threadIdx.x < LANES) into[threadIdx.x] = ((const unsigned*)own)[threadIdx.x];
    into += LANES;
    own += STATES_BYTES / 2 + (stop - begin) * TILE_WORDS + MOST_ROUND_WORDS - count;
    for (unsigned k = threadIdx.x; k < (count + 1) / 2; k += THREADS) {
        into[k] = own[2 * k] | (2 * k + 1 < count ? (unsigned)own[2 * k + 1] << 16 : 0);
    }
}
