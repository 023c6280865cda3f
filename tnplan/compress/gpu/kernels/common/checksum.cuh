// The checksum of a payload: a sum over its words (compress/format/stream.py), of which blocks of threads take shares.

#define GOLDEN 0x9E3779B97F4A7C15ull
#define STIR 0xBF58476D1CE4E5B9ull

struct __align__(16) Pair {
    Word of[2];
};

// What word `number` of a payload adds to its checksum.
__device__ __forceinline__ Word stirred(Word word, Word number)
{
    Word mixed = (word ^ (number + 1) * GOLDEN) * STIR;
    mixed = (mixed ^ mixed >> 32) * GOLDEN;
    return mixed ^ mixed >> 29;
}

// Add share `share` of `shares` of the words' part of compress.stream.checksum to a frame's sum, from word `begin` on; a
// block, of which `sums` has a place a warp. Words are read in pairs, from the first whose address is a multiple of 16,
// and `at_once` pairs a thread are in flight.
template <unsigned at_once>
__device__ __forceinline__ void add_words(
    const Byte* data, Frame& frame, unsigned share, unsigned shares, Word* sums, Word begin = 0)
{
    if (frame.kind == BAD) return;
    const unsigned threads = blockDim.x, lane = threadIdx.x % LANES;
    const Word* words = (const Word*)(data + frame.start) + begin;
    const Word count = frame.size / 8 - begin, odd = count ? (Word)words / 8 % 2 : 0, n_pairs = (count - odd) / 2;
    const Pair* pairs = (const Pair*)(words + odd);
    Word sum = 0;
    if (share == 0 && threadIdx.x == 0) {
        if (odd) sum += stirred(words[0], begin);
        if ((count - odd) % 2) sum += stirred(words[count - 1], begin + count - 1);
    }
    const Word step = (Word)shares * threads * at_once;
    for (Word first = (Word)share * threads * at_once + threadIdx.x; first < n_pairs; first += step) {
        Pair some[at_once];
#pragma unroll
        for (unsigned k = 0; k < at_once; ++k) {
            const Word pair = first + k * threads;
            some[k] = pairs[pair < n_pairs ? pair : first];
        }
#pragma unroll
        for (unsigned k = 0; k < at_once; ++k) {
            const Word pair = first + k * threads, number = begin + odd + 2 * pair;
            if (pair < n_pairs) sum += stirred(some[k].of[0], number) + stirred(some[k].of[1], number + 1);
        }
    }
#pragma unroll
    for (unsigned step = LANES / 2; step; step /= 2) sum += __shfl_xor_sync(WHOLE_WARP, sum, step);
    if (lane == 0) sums[threadIdx.x / LANES] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (unsigned warp = 1; warp < threads / LANES; ++warp) sum += sums[warp];
    if (sum) atomicAdd(&frame.sum, sum);
}
