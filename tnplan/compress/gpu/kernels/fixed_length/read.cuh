// How a block of threads reads a tile of the coder `fast`: its numbers, or their values, come to their places in shared
// memory.

// Pairs of blocks of numbers in flight.
#define AHEAD 4
// What is added to numbers of 16 bits, and the bits of 2^23 as a float.
#define MIDDLE 32767
#define UNIT 0x4b000000

// Fill shared.mask from the tile's first bytes in shared.head; where its planes' numbers start, or 0 where the
// bytes make no sense. Every thread takes part; a thread a group of two rows.
__device__ __forceinline__ unsigned take_mask(Shared& shared, unsigned size)
{
    const unsigned own = threadIdx.x, lane = own % LANES;
    const Byte* head = (const Byte*)shared.head;
    const unsigned any[2] = {shared.head[1], shared.head[2]};
    const unsigned at = 12 + __popc(any[0]) + __popc(any[1]);
    unsigned group = 0, total;
    if (own < LANES && any[0] >> lane & 1) group = head[12 + __popc(any[0] & lanes_below(lane))];
    if (own / LANES == 1 && any[1] >> lane & 1) {
        group = head[12 + __popc(any[0]) + __popc(any[1] & lanes_below(lane))];
    }
    unsigned from = at + scanned<WARPS>((unsigned)__popc(group), shared.sums, total);
    if (at + total > size) return 0;
    if (own < ROWS / 2) {
        unsigned rows[2] = {};
#pragma unroll
        for (unsigned k = 0; k < 8; ++k) {
            if (group >> k & 1) rows[k / 4] |= (unsigned)head[from++] << 8 * (k % 4);
        }
        shared.mask[2 * own] = rows[0], shared.mask[2 * own + 1] = rows[1];
    }
    return at + total;
}

// In each half of a word all bits like the highest one of the half.
__device__ __forceinline__ unsigned signs_of(unsigned halves)
{
#ifdef __CUDA_ARCH__
    unsigned bits;
    asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(bits) : "r"(halves));
    return bits;
#else
    return (halves >> 15 & 0x00010001) * 0xffff;
#endif
}

// What shared.z gets of the numbers in the halves of a word: these, or the bits of their values. A half z stands
// for the number (z + 1) / 2 where it is odd, and for -z / 2 otherwise. That, plus MIDDLE, has 16 bits, which are the
// lowest ones of a float from 2^23 on.
template <bool as_values> struct Stored {
    unsigned low, high;

    __device__ __forceinline__ Stored(unsigned both, const Rule& rule) : low(both & 0xffff), high(both >> 16)
    {
        if (!as_values) return;
        const unsigned odd = signs_of(both << 15), top = 0x80008000, shifted = both >> 1;
        const unsigned numbers = (odd & top) | (~(shifted ^ odd) & ~top);
        low = value(__byte_perm(numbers, UNIT, 0x7610), rule), high = value(__byte_perm(numbers, UNIT, 0x7632), rule);
    }

    static __device__ __forceinline__ unsigned value(unsigned bits, const Rule& rule)
    {
        return (unsigned)bits_of(times(rule.step, less((REAL)__uint_as_float(bits), (REAL)(8388608.0f + MIDDLE))));
    }
};

// Store the word of this lane's number of block warp + k WARPS at its place.
template <bool dense>
__device__ __forceinline__ void put_stored(Shared& shared, unsigned c, unsigned k, unsigned count, unsigned z)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, own = (warp + k * WARPS) * LANES + lane;
    if (dense) at_bytes(shared.z[c] + warp * LANES, turned(4 * (lane ^ warp), k)) = z;
    else if (own < count) at_bytes(shared.z[c], shared.places[own]) = z;
}

// Of rows of a tile that is not dense, how many planes they have, and from bit 8 on how many there are before.
struct SparseRates {
    const Shared& shared;
    unsigned blocks;

    __device__ __forceinline__ unsigned at(unsigned c, unsigned block) const
    {
        return block < blocks ? shared.planes[c * blocks + block] : 0;
    }
};

// The same of the rows of a dense tile that this warp reads, of which its lanes have one each in `of`. Every warp sums
// up the planes of all rows, bytes of `words`, so that none waits for another.
struct DenseRates {
    unsigned of[COMPONENTS], total;

    __device__ __forceinline__ explicit DenseRates(const unsigned* words) : total(0)
    {
        const unsigned own = threadIdx.x / LANES % 4 * 8;
        unsigned sums = 0;
#pragma unroll
        for (unsigned c = 0; c < COMPONENTS; ++c) sums |= sum_of_bytes(words[c]) << 16 * c;
        unsigned upto = sums;
#pragma unroll
        for (unsigned step = 1; step < LANES; step *= 2) upto = joined(upto, step);
        const unsigned all = __shfl_sync(WHOLE_WARP, upto, LANES - 1);
#pragma unroll
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            const unsigned before = (upto - sums) >> 16 * c & 0xffff;
            const unsigned beside = sum_of_bytes(words[c] & ((1u << own) - 1));
            of[c] = (total + before + beside) << 8 | (words[c] >> own & 0xff);
            total += all >> 16 * c & 0xffff;
        }
    }

    static __device__ __forceinline__ unsigned sum_of_bytes(unsigned word) { return __dp4a(word, 0x01010101u, 0u); }

    __device__ __forceinline__ unsigned at(unsigned c, unsigned block) const
    {
        return __shfl_sync(WHOLE_WARP, c ? of[COMPONENTS - 1] : of[0], block / 4);
    }
};

// Put the numbers in the planes of all blocks, of which none has more than 16, to their places: of pairs of blocks,
// AHEAD of them in flight.
template <bool dense, bool as_values, typename Rates>
__device__ __forceinline__ void read_pairs(
    Shared& shared, unsigned count, unsigned blocks, const unsigned* words, const Rates& rates, const Rules& rules)
{
    const unsigned warp = threadIdx.x / LANES, half = threadIdx.x / HALF_WARP % 2, own = threadIdx.x % HALF_WARP;
    const Turner turner(threadIdx.x % LANES);
#pragma unroll(dense ? COMPONENTS * PAIRS / AHEAD : 1)
    for (unsigned part = 0; part < COMPONENTS * PAIRS; part += AHEAD) {
        const unsigned c = part / PAIRS, begin = part % PAIRS * 2, first = warp + begin * WARPS;
        if (!dense && first >= blocks) continue;
        const Rule rule = c ? rules.of[COMPONENTS - 1] : rules.of[0];
        unsigned own_planes[AHEAD];
#pragma unroll
        for (unsigned j = 0; j < AHEAD; ++j) {
            const unsigned planes = rates.at(c, first + (2 * j + half) * WARPS);
            own_planes[j] = own < planes % 256 ? words[(planes >> 8) + own] : 0;
        }
#pragma unroll
        for (unsigned j = 0; j < AHEAD; ++j) {
            if (!dense && first + 2 * j * WARPS >= blocks) break;
            const unsigned both = turner.transposed(own_planes[j]);
            const Stored<as_values> stored(both, rule);
            put_stored<dense>(shared, c, begin + 2 * j, count, stored.low);
            put_stored<dense>(shared, c, begin + 2 * j + 1, count, stored.high);
        }
    }
}

// The same for any numbers of planes, a block at a time.
template <bool dense, bool as_values, typename Rates>
__device__ __forceinline__ void read_planes(
    Shared& shared, unsigned count, unsigned blocks, const unsigned* words, const Rates& rates, const Rules& rules)
{
    const unsigned lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const Turner turner(lane);
#pragma unroll 1
    for (unsigned k = 0; k < COMPONENTS * WARP_ROWS; ++k) {
        const unsigned c = k / WARP_ROWS, block = warp + k % WARP_ROWS * WARPS;
        if (block >= blocks) continue;
        const Rule rule = c ? rules.of[COMPONENTS - 1] : rules.of[0];
        const unsigned planes = rates.at(c, block);
        const unsigned plane = lane < planes % 256 ? words[(planes >> 8) + lane] : 0;
        unsigned z = turner.transposed(plane);
        if (as_values) z = (unsigned)bits_of(restored<true>(unzigzag(z), rule));
        put_stored<dense>(shared, c, k % WARP_ROWS, count, z);
    }
}

// Whether one of these bytes is above a number below 128.
template <unsigned most> __device__ __forceinline__ bool any_above(const unsigned* words)
{
    bool any = false;
#pragma unroll
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        any |= (((words[c] & 0x7f7f7f7f) + (127 - most) * 0x01010101 | words[c]) & 0x80808080) != 0;
    }
    return __any_sync(WHOLE_WARP, any);
}

// Fill shared.z with the numbers, or their values, of a dense tile, of which lanes have a word of each component's
// numbers of planes; whether its bytes make sense.
template <bool as_values>
__device__ __forceinline__ bool take_dense(
    Shared& shared, const unsigned* data, unsigned size, const unsigned* planes, const Rules& rules)
{
    const unsigned begin = 1 + COMPONENTS * ROWS / 4;
    const DenseRates rates(planes);
    if (4 * (begin + rates.total) != size || any_above<LANES>(planes)) return false;
    const unsigned* words = settled(data + begin);
    if (any_above<HALF_WARP>(planes)) read_planes<true, as_values>(shared, TILE, ROWS, words, rates, rules);
    else read_pairs<true, as_values>(shared, TILE, ROWS, words, rates, rules);
    return true;
}

// The same of any tile, for threads that wait for the others first. `meanwhile` is done while the first bytes are on
// their way. One scan counts places, in its lowest 13 bits, and planes.
template <bool as_values, typename Meanwhile>
__device__ __forceinline__ bool take_tile(
    Shared& shared, const unsigned* data, unsigned size, const Rules& rules, Meanwhile meanwhile)
{
    static_assert(HEAD_BYTES / 4 == THREADS && COMPONENTS * TILE / 4 % THREADS == 0, "threads have equal shares");
    static_assert(ROWS == 4 * LANES, "lanes have the planes' numbers of four rows");
    const unsigned own = threadIdx.x, head = data[0], first = 4 * own < size ? data[own] : 0;
    unsigned dense_planes[COMPONENTS];
#pragma unroll
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        const unsigned at = 1 + c * LANES + own % LANES;
        dense_planes[c] = 4 * at < size ? data[at] : 0;
    }
    if (own == 0) shared.damaged = shared.wide = 0;
    meanwhile();
    const unsigned stated = head & (DENSE - 1);
    if (stated == 0 || stated > TILE || head >= 2 * DENSE) return false;
    if (head & DENSE) return take_dense<as_values>(shared, data, size, dense_planes, rules);
    shared.head[own] = first;
#pragma unroll
    for (unsigned k = 0; k < COMPONENTS * TILE / 4; k += THREADS) {
        ((uint4*)shared.z)[k + own] = make_uint4(0, 0, 0, 0);
    }
    __syncthreads();
    const unsigned rates = take_mask(shared, size);
    __syncthreads();
    const unsigned bits = own < ROWS ? shared.mask[own] : 0, blocks = (stated + LANES - 1) / LANES;
    const unsigned end = filled_words(rates + COMPONENTS * blocks);
    if (rates == 0 || end > size) return false;
    const unsigned planes = own < COMPONENTS * blocks ? ((const Byte*)shared.head)[rates + own] : 0;
    unsigned total;
    const unsigned before = scanned<WARPS>(__popc(bits) | planes << 13, shared.sums, total);
    if (own < COMPONENTS * blocks) shared.planes[own] = planes | before >> 13 << 8;
    if (planes > LANES) shared.damaged = 1;
    if (planes > HALF_WARP) shared.wide = 1;
    put_places(shared, own, bits, before % 8192);
    __syncthreads();
    if (total % 8192 != stated || end + 4 * (total >> 13) != size || shared.damaged) return false;
    const unsigned* words = settled(data + end / 4);
    const SparseRates found = {shared, blocks};
    if (shared.wide) read_planes<false, as_values>(shared, stated, blocks, words, found, rules);
    else read_pairs<false, as_values>(shared, stated, blocks, words, found, rules);
    return true;
}
