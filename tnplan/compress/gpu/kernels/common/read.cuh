// Frames of a stream that is read, found one behind the other while others look at those that are found.

#define PLANES 1
// A CPU stores without loss in two ways, and residuals in one of its own; for kernels they are one.
#define SHUFFLED 4
#define ADAPTIVE 5

// What the host knows of a stream: its bytes, those of its header, how many frames it has, whether these may be coded,
// and how many blocks read it, in all launches; and of a launch, whose frames are of equal size: the first one, and
// where its own words begin (Work).
struct Span {
    Word data_bytes, begin, n_frames, first, own_at;
    unsigned coded, n_blocks;
};

// A stream's workspace, zeros before the first launch: frames (n_frames); places (n_frames + 1): where each begins, and
// the last one ends, plus 1, or 1 where that makes no sense; ready (n_frames): 1 when a frame is in the table; ended, in
// a word: blocks that have. Behind them are the launches' own words.
struct Work {
    Frame* frames;
    Word *places, *ready;
    unsigned* ended;
    Word* own;
};

__device__ __forceinline__ Work work_of(Word* words, const Span& span)
{
    Word* places = words + span.n_frames * (sizeof(Frame) / sizeof(Word));
    Word* ready = places + span.n_frames + 1;
    return {(Frame*)words, places, ready, (unsigned*)(ready + span.n_frames), words + span.own_at};
}

// The frame that begins at a place (0: none), whose values have so many bytes; BAD and `damaged` where its fields
// contradict each other.
__device__ __forceinline__ Frame frame_at(
    const Byte* data, const Span& span, Word at, Word number, Word raw_bytes)
{
    Frame frame = {at + FRAME_HEADER_BYTES, 0, 0, 0, BAD, 0, 0, 1};
    if (at == 0 || at + FRAME_HEADER_BYTES + 8 > span.data_bytes) return frame;
    const Word* words = (const Word*)(data + at);
    const Word left_bytes = span.data_bytes - frame.start;
    const bool whole = left_bytes >= CODED_HEAD_BYTES;
    const Word size = words[0], stated = words[1], kind = words[2];
    const Word exact = whole ? words[3] : 0, bytes = whole ? words[4] : 0;
    bool good = size % 8 == 0 && size >= 8 && size <= filled(8 + raw_bytes) && size <= left_bytes;
    if (kind == RAW) good = good && size == filled(8 + raw_bytes);
    else if (kind == CODED) {
        good = good && span.coded && size >= CODED_HEAD_BYTES && exact <= size && bytes <= size && bytes % 4 == 0
            && size == CODED_HEAD_BYTES + filled(bytes) + exact_bytes(exact);
        frame.exact = exact, frame.coded = bytes;
    } else good = good && (kind == PLANES || kind == SHUFFLED || kind == ADAPTIVE);
    if (!good) return frame;
    frame.size = size, frame.stated = stated - size - (number + 1) * GOLDEN;
    frame.kind = kind == SHUFFLED || kind == ADAPTIVE ? PLANES : kind, frame.damaged = 0;
    return frame;
}

// Where a frame ends that begins at a place, by its size alone, so that the next one is looked for before it is known
// whether the other fields of this one make sense; 0 where there is none.
__device__ __forceinline__ Word frame_end(const Byte* data, const Span& span, Word at, Word raw_bytes)
{
    if (at == 0 || at + FRAME_HEADER_BYTES + 8 > span.data_bytes) return 0;
    const Word size = *(const Word*)(data + at), start = at + FRAME_HEADER_BYTES;
    const bool good = size % 8 == 0 && size >= 8 && size <= filled(8 + raw_bytes) && size <= span.data_bytes - start;
    return good ? start + size : 0;
}

// Find the frames of a launch, `count` of them, and store where each begins. One thread.
__device__ __forceinline__ void find_frames(
    const Byte* data, const Work& work, const Span& span, unsigned count, Word raw_bytes)
{
    Word at = span.first ? work.places[span.first] / 8 * 8 : span.begin;
    for (Word number = span.first; number < span.first + count; ++number) {
        store_word(work.places + number, at + 1);
        at = frame_end(data, span, at, raw_bytes);
    }
    store_word(work.places + span.first + count, at + 1);
}

// A frame of a launch, once it is found.
__device__ __forceinline__ Frame found_frame(
    const Byte* data, const Work& work, const Span& span, Word number, Word raw_bytes)
{
    const Word at = number ? stored_word(work.places + number) / 8 * 8 : span.begin;
    return frame_at(data, span, at, number, raw_bytes);
}

// Put a frame to the table, but for its sum, which others add to.
__device__ __forceinline__ void put_frame(Frame& into, const Frame& frame)
{
    into.start = frame.start, into.size = frame.size, into.stated = frame.stated, into.kind = frame.kind;
    into.exact = frame.exact, into.coded = frame.coded;
    if (frame.damaged) into.damaged = 1;
}
