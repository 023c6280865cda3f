// How a warp reads a segment of the coder `small`: words are brought to shared memory, lanes' states take them, and
// numbers are taken from states by tables.

// Words that a warp brings at once, and how many of them its ring holds.
#define PART (2 * LANES)
#define RING (4 * PART)
// The first token with more than RAW_LOG2 raw bits.
#define LONG (DIRECT + 2 * (RAW_LOG2 - 2))

// Bring two words to shared memory, of which `bytes` are there, the rest 0; copies may be under way until arrived().
__device__ __forceinline__ void bring(unsigned* into, const unsigned* from, unsigned bytes)
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2; cp.async.commit_group;" ::
                 "r"((unsigned)__cvta_generic_to_shared(into)), "l"(from), "r"(bytes) : "memory");
#else
    *into = bytes == 0 ? 0 : bytes == 2 ? *from & 0xffff : *from;
#endif
}

// Wait for all copies of the warp but its last.
__device__ __forceinline__ void arrived()
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
    __syncwarp();
}

// What a block's warps share, and what each has for itself.
struct Storage {
    unsigned histories[WARPS][TILE / 4], rings[WARPS][RING / 2], firsts[TABLES];
    Byte parts[TABLES * SLOTS];
    Half starts[STARTS + 1];
};

// Numbers of type T in shared memory, by an address of 32 bits.
template <typename T> struct Shared {
#ifdef __CUDA_ARCH__
    unsigned at;

    __device__ __forceinline__ Shared(const T* from) : at((unsigned)__cvta_generic_to_shared(from))
    {
        // From a lane, so that the address is kept and not formed anew at each use.
        at = __shfl_sync(WHOLE_WARP, at, 0);
    }

    // The number behind place k by `further`.
    template <unsigned further = 0> __device__ __forceinline__ unsigned get(unsigned k) const
    {
        unsigned number;
        const unsigned from = at + k * (unsigned)sizeof(T);
        // Parts are read before it is known whether they are needed.
        if (sizeof(T) == 1)
            asm volatile("ld.volatile.shared.u8 %0, [%1+%2];" : "=r"(number) : "r"(from), "n"(further));
        else if (sizeof(T) == 2)
            asm volatile("ld.shared.u16 %0, [%1+%2];" : "=r"(number) : "r"(from), "n"(2 * further));
        else asm volatile("ld.shared.u32 %0, [%1+%2];" : "=r"(number) : "r"(from), "n"(4 * further));
        return number;
    }
#else
    const T* at;

    Shared(const T* from) : at(from) {}

    template <unsigned further = 0> unsigned get(unsigned k) const { return at[k + further]; }
#endif
};

// The tables of numbers: `firsts` has the slots of token 0 and, from bit 16 on, the size of parts (logarithm); `parts`
// the token of the first slot of each part, `starts` those of tokens.
struct Tables {
    Shared<unsigned> firsts;
    Shared<Byte> parts;
    Shared<Half> starts;
};

// A segment's words, of which `taken` have been taken. The ring has the part in which the next one is and the part
// behind it; the one after those is on its way.
struct Reader {
    const unsigned* pairs;
    unsigned* ring;
    Shared<Half> words;
    unsigned count, taken, below;

    __device__ __forceinline__ void bring_part(unsigned part, unsigned lane) const
    {
        const unsigned place = part * PART + 2 * lane;
        const bool any = place < count;
        bring(ring + place % RING / 2, any ? pairs + place / 2 : pairs, any ? min(2u, count - place) * 2 : 0);
    }

    // Bring words for those that were taken since `before` of them were: PART at most.
    __device__ __forceinline__ void bring_more(unsigned before, unsigned lane) const
    {
        if (taken / PART == before / PART) return;
        bring_part(before / PART + 3, lane);
        arrived();
    }
};

__device__ __forceinline__ Reader reader_of(const unsigned* pairs, unsigned count, unsigned* ring, unsigned lane)
{
    const Reader reader = {pairs, ring, Shared<Half>((const Half*)ring), count, 0, lanes_below(lane)};
    for (unsigned part = 0; part < 3; ++part) reader.bring_part(part, lane);
    arrived();
    return reader;
}

// A lane's state, which is not whole until the word that it takes, where it is `low`, has come.
struct State {
    unsigned bits, word;
    bool low;

    __device__ __forceinline__ void settle()
    {
        if (low) bits = bits << 16 | word;
        low = false;
    }
};

// Lanes that are `low` take a word each, in the order of the lanes; past the end they take 0.
__device__ __forceinline__ void refill(State& state, bool low, Reader& reader)
{
    const unsigned all = __ballot_sync(WHOLE_WARP, low);
    state.low = low;
    state.word = reader.words.get((reader.taken + __popc(all & reader.below)) % RING);
    reader.taken += __popc(all);
}

// Take the next `width` bits, at most RAW_LOG2, of states.
__device__ __forceinline__ unsigned take_raw(State& state, unsigned width, Reader& reader)
{
    state.settle();
    const unsigned rest = TOTAL_LOG2 - width, part = state.bits & (TOTAL - 1), low_bits = part & ((1u << rest) - 1);
    state.bits = (state.bits >> TOTAL_LOG2 << rest) + low_bits;
    refill(state, width != 0 && state.bits < LOW, reader);
    return part >> rest;
}

// Lanes whose state is low take a word each, and then all the next `width` bits, at most RAW_LOG2. Which lanes take a
// word after those bits does not depend on the first words, so that both are on their way at once.
__device__ __forceinline__ unsigned take_short(State& state, unsigned width, Reader& reader)
{
    const bool low = state.bits < LOW, again = width && state.bits < (low ? 1u : LOW) << width;
    const unsigned all = __ballot_sync(WHOLE_WARP, low), next = __ballot_sync(WHOLE_WARP, again);
    const unsigned between = reader.taken + __popc(all);
    const unsigned word = reader.words.get((reader.taken + __popc(all & reader.below)) % RING);
    state.word = reader.words.get((between + __popc(next & reader.below)) % RING);
    state.low = again;
    reader.taken = between + __popc(next);
    const unsigned bits = low ? state.bits << 16 | word : state.bits, rest = TOTAL_LOG2 - width;
    const unsigned part = bits & (TOTAL - 1);
    state.bits = (bits >> TOTAL_LOG2 << rest) + (part & ((1u << rest) - 1));
    return part >> rest;
}

// A token, and the slots it has.
struct Found {
    unsigned token, start, stop;
};

// The zigzag number of a token, whose lowest `bits` follow.
__device__ __forceinline__ unsigned begun(unsigned token, unsigned& bits)
{
    bits = token < DIRECT ? 0 : 3 + (token - DIRECT) / 2;
    return token < DIRECT ? token : (2 + (token & 1)) << bits;
}

// The next zigzag number of a table where a lane's token is behind the one that was found, or has more raw bits than
// are taken at once.
__device__ __forceinline__ unsigned take_long(
    State& state, unsigned table, Found found, unsigned slot, unsigned upper, const Tables& tables, Reader& reader,
    unsigned lane)
{
#pragma unroll 1
    while (slot >= found.stop) {
        ++found.token;
        found.start = found.stop;
        found.stop = tables.starts.get<1>(table * (TOKENS + 1) + found.token);
    }
    unsigned bits, z = begun(found.token, bits), before = reader.taken;
    state.bits = (found.stop - found.start) * upper + slot - found.start;
    refill(state, state.bits < LOW, reader);
#pragma unroll 1
    while (__any_sync(WHOLE_WARP, bits != 0)) {
        const unsigned width = bits ? (bits - 1) % RAW_LOG2 + 1 : 0;
        bits -= width;
        z |= take_raw(state, width, reader) << bits;
        reader.bring_more(before, lane);
        before = reader.taken;
    }
    reader.bring_more(before, lane);
    return z;
}

// The next number in a table, of which `first` is known in sparse frames: rounds there that have nothing but token 0,
// the number 0, and take no word, need no more than that. Few warps run at the end of a launch, each of which waits for
// every step; so what is next is read before a state is settled, and branches are those of whole warps.
template <bool SPARSE>
__device__ __forceinline__ int take_number(
    State& state, unsigned table, unsigned first, const Tables& tables, Reader& reader, unsigned lane)
{
    state.settle();
    const unsigned slot = state.bits & (TOTAL - 1), upper = state.bits >> TOTAL_LOG2;
    const unsigned zeros = SPARSE ? first & 0xffff : 0;
    const bool other = !SPARSE || slot >= zeros;
    const unsigned part = !SPARSE ? slot >> part_log2(0) : other ? slot - zeros >> (first >> 16) : 0;
    const unsigned token = tables.parts.get(table * SLOTS + part);
    if (SPARSE) {
        const unsigned next = zeros * upper + slot;
        if (!__any_sync(WHOLE_WARP, other || next < LOW)) {
            state.bits = next;
            return 0;
        }
    }
    Found found = {other ? token : 0, 0, 0};
    const unsigned at = table * (TOKENS + 1) + found.token;
    found.start = tables.starts.get(at), found.stop = tables.starts.get<1>(at);
    // Of the last token this one's stop, since what is behind it is of another table.
    const unsigned behind = tables.starts.get<2>(at), next_stop = found.stop < behind ? behind : found.stop;
    if (slot >= found.stop) ++found.token, found.start = found.stop, found.stop = next_stop;
    const bool raw = __any_sync(WHOLE_WARP, found.token >= DIRECT);
    if (__any_sync(WHOLE_WARP, slot >= next_stop || found.token >= LONG)) {
        return unzigzag(take_long(state, table, found, slot, upper, tables, reader, lane));
    }
    const unsigned before = reader.taken;
    unsigned bits, z = begun(found.token, bits);
    state.bits = (found.stop - found.start) * upper + slot - found.start;
    if (raw) z |= take_short(state, bits, reader);
    else refill(state, state.bits < LOW, reader);
    reader.bring_more(before, lane);
    return unzigzag(z);
}
