// A warp counts the tokens of a tile.

#include "rans.cuh"

// What a lane has counted besides tokens.
struct Counted {
    Word raw;
    unsigned missing[COMPONENTS];
};

// Where symbols are only counted, they go nowhere.
struct Nothing {
    __device__ __forceinline__ void operator()(unsigned, unsigned, unsigned, unsigned, unsigned, unsigned) const {}
};

// Count the tokens of a round's numbers in `sums` (TABLES, TOKENS) and what else is counted, and pass on each number. Bit c of
// `missed`: that of component c is stored exactly.
template <typename Keep>
__device__ __forceinline__ void count_numbers(
    const Numbers& numbers, unsigned missed, unsigned round, unsigned bucket, unsigned* sums, Counted& counted,
    const Keep& keep)
{
#pragma unroll
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        unsigned bits;
        const unsigned z = zigzag(numbers.of[c]), token = token_of(z, bits);
        const unsigned table = table_of(c, bucket, numbers.of[0]);
        atomicAdd(&sums[table * TOKENS + token], 1u);
        keep(round, c, table, token, z, bits);
        counted.raw += bits;
        counted.missing[c] += missed >> c & 1;
    }
}

// Count the tokens of a tile in `sums` (TABLES, TOKENS), and pass on each number's round, component, table, token, zigzag
// number and raw bits. WHOLE: no element is missing; LINEAR: the rules are known to be.
template <bool WHOLE, bool LINEAR, typename Keep>
__device__ __forceinline__ Counted counted_tile(
    const View& view, const Rounds& rounds, const Rules& rules, unsigned* history, unsigned* sums,
    const Keep& keep)
{
    const unsigned lane = threadIdx.x % LANES;
    Counted counted = {};
#pragma unroll 1
    for (unsigned group = 0; group < GROUPS; ++group) {
        Element elements[GROUP];
        bool inside[GROUP];
        unsigned sizes[GROUP];
#pragma unroll
        for (unsigned k = 0; k < GROUP; ++k) elements[k] = view.element<WHOLE>(rounds.groups[group], k, inside[k]);
        const Context context(history, rounds, group, lane);
#pragma unroll
        for (unsigned k = 0; k < GROUP; ++k) {
            unsigned missed;
            Numbers numbers = numbers_of<LINEAR>(elements[k], rules, missed);
            if (!inside[k]) numbers = {}, missed = 0;
            const unsigned bucket = context.bucket(k, sizes);
            sizes[k] = magnitude_of(numbers);
            count_numbers(numbers, missed, group * GROUP + k, bucket, sums, counted, keep);
        }
        remember(history, group, lane, sizes);
    }
    return counted;
}

// Add what a block has counted to its frame's counts (TABLES, TOKENS) and raw bits.
__device__ __forceinline__ void add_counts(
    unsigned frame, Word raw, const unsigned* sums, unsigned* counts, Word* raw_bits)
{
    for (unsigned step = LANES / 2; step; step /= 2) raw += __shfl_down_sync(WHOLE_WARP, raw, step);
    if (threadIdx.x % LANES == 0 && raw) atomicAdd(&raw_bits[frame], raw);
    __syncthreads();
    for (unsigned k = threadIdx.x; k < TABLES * TOKENS; k += THREADS) {
        if (sums[k]) atomicAdd(&counts[(Word)frame * TABLES * TOKENS + k], sums[k]);
    }
}
