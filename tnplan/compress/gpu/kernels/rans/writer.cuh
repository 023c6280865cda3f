// A warp writes a segment to its slots: the lanes' states, and words at the end of the slots behind them.

// A warp's words, filled downwards from `top`, and a lane's state.
struct Writer {
    Half* words;
    unsigned length, top, state, lane, above;

    // Lanes whose state is full put a word each.
    __device__ __forceinline__ void spill(bool full)
    {
        const unsigned all = __ballot_sync(WHOLE_WARP, full);
        if (full) {
            words[top - 1 - __popc(all & above)] = (Half)state;
            state >>= 16;
        }
        top -= __popc(all);
    }

    // Put a symbol whose first slot and frequency are given. The quotient of numbers in single precision errs by
    // less than a quarter, since it is below 2^20.
    __device__ __forceinline__ void push(unsigned start, unsigned frequency, float inverse)
    {
        spill(state >> (32 - TOTAL_LOG2) >= frequency);
        unsigned quotient = (unsigned)((float)state * inverse);
        const int rest = (int)(state - quotient * frequency);
        quotient += (rest >= (int)frequency) - (rest < 0);
        state += quotient * (TOTAL - frequency) + start;
    }

    // Put `bits` raw bits of z, in parts.
    __device__ __forceinline__ void push_raw(unsigned z, unsigned bits)
    {
        const unsigned n_parts = parts_of(bits);
#pragma unroll 1
        for (unsigned part = __reduce_max_sync(WHOLE_WARP, n_parts); part-- > 0;) {
            const bool active = n_parts > part;
            const unsigned below = active ? RAW_LOG2 * (n_parts - 1 - part) : 0;
            const unsigned width = active ? min(RAW_LOG2, bits - below) : 0, rest = TOTAL_LOG2 - width;
            spill(active && state >> (32 - width) % 32);
            const unsigned value = z >> below & ((1u << width) - 1);
            if (active) state = (state >> rest << TOTAL_LOG2) + (value << rest) + (state & ((1u << rest) - 1));
        }
    }
};

__device__ __forceinline__ Writer writer_of(Half* slots, unsigned n_tiles, unsigned lane)
{
    const unsigned length = n_tiles * TILE_WORDS + MOST_ROUND_WORDS;
    return {slots + STATES_BYTES / 2, length, length, LOW, lane, ~lanes_below(lane) & ~(1u << lane)};
}

// End segment number `segment`: its states, how many words it has, and its bytes, ~0 where it does not fit.
__device__ __forceinline__ void put_segment(
    const Writer& writer, bool fits, unsigned segment, unsigned* words, unsigned* sizes)
{
    ((unsigned*)(writer.words - STATES_BYTES / 2))[writer.lane] = writer.state;
    if (writer.lane) return;
    const unsigned count = writer.length - writer.top;
    words[segment] = count;
    sizes[segment] = fits ? STATES_BYTES + (2 * count + 3) / 4 * 4 : ~0u;
}
