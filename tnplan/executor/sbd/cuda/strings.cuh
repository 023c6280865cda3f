// Strings of WORDS words, and sums over the lanes of a warp: what kernels of rows share.
//
// Needs the type Word, and THREADS of a block.

typedef long long Index;

const int WARPS = THREADS / 32;
const unsigned ALL = ~0u;

struct String {
    Word words[WORDS];
};

__device__ inline String string_at(const Word *__restrict__ words, Index k) {
    String string;
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        string.words[w] = words[WORDS * k + w];
    return string;
}

__device__ inline double sum_of_warp(double value) {
    for (int step = 16; step; step /= 2)
        value += __longlong_as_double(__shfl_xor_sync(ALL, __double_as_longlong(value), step));
    return value;
}
